"""The (api_key, version) pairs that each Kafka release supports. The table is releases.tsv.

A release supports a version if its client classes have it as a stable one. Requests between brokers of 0.8.2 count from
0.8.2, though only brokers had them. KIP-896 removed old versions in 4.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

#: All releases that the table counts from, ascending.
RELEASES = (
    "0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5",
    "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2",
    "4.3", "4.4",
)  # fmt: skip

_TABLE = os.path.join(os.path.dirname(__file__), "releases.tsv")


@cache
def _known() -> dict[tuple[int, int], tuple[str, str]]:
    """(since, removed in or "") by (api_key, version)."""
    with open(_TABLE, encoding="utf-8") as file:
        lines = file.read().splitlines()[1:]
    known: dict[tuple[int, int], tuple[str, str]] = {}
    for line in lines:
        api_key, first, last, since, removed = line.split("\t")
        for version in range(int(first), int(last) + 1):
            known[int(api_key), version] = (since, removed)
    return known


def release_of(name: str) -> str:
    """The release of `RELEASES` that a name means: "4.3.1" and "4.3" are 4.3, "0.9" is 0.9.0. KeyError with those that
    it may mean, if these are none or several.

    Releases that only correct errors support the same versions.
    """
    if name in RELEASES:
        return name
    shorter, _, last = name.rpartition(".")
    if shorter in RELEASES and last.isdecimal():
        return shorter
    longer = [release for release in RELEASES if release.startswith(f"{name}.")]
    if len(longer) == 1:
        return longer[0]
    raise KeyError(*longer)


def known_since(api_key: int, version: int) -> str | None:
    """The first release that supports this version; None for unstable and newer versions."""
    entry = _known().get((api_key, version))
    return entry[0] if entry else None


def removed_in(api_key: int, version: int) -> str | None:
    """The release that removed this version ("4.0"); None if the newest release supports it, or none ever did."""
    entry = _known().get((api_key, version))
    return (entry[1] or None) if entry else None


def speaks(release: str, api_key: int, version: int) -> bool:
    """Whether a release of `RELEASES` supports this version."""
    since, gone = known_since(api_key, version), removed_in(api_key, version)
    at = release_number(release)
    return since is not None and release_number(since) <= at and (gone is None or at < release_number(gone))


def stable_versions(api_key: int) -> list[int]:
    """The versions of an API that any release supports, ascending."""
    return sorted(version for key, version in _known() if key == api_key)


def oldest_release_for(pairs: Iterable[tuple[int, int]]) -> str:
    """The oldest release with all these (api_key, version) pairs; "" if there is none.

    Pairs that no release supports are ignored.
    """
    since = {known_since(api_key, version) for api_key, version in pairs} - {None}
    return max((release for release in since if release), key=release_number, default="")


def release_number(release: str) -> tuple[int, ...]:
    """A release as numbers, which sort in order."""
    return tuple(int(part) for part in release.split("."))
