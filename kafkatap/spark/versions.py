"""Versions of one capture: a file that has grown, was compressed or was copied in part, under whatever name.

Each has an identity of its own (`captures/identity.py`). A lake keeps the rows of one: a run over a version with as
many packets or more replaces the rows of the others. One with fewer is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .lake_options import OtherOptions
from .output.delta import is_delta, read_table

if TYPE_CHECKING:
    from kafkatap.reports.batch import FileInfo

_COMPRESSED = re.compile(r"\.(gz|zst)$")


class _Version(NamedTuple):
    """A capture that a lake has. Times in µs."""

    path: str
    packets: int
    first: int | None
    last: int | None
    capture: int


def earlier_versions(out: str, files: Sequence[FileInfo], replace: bool = False) -> set[int]:
    """The identities of captures in a lake of which these files are other versions.

    That is so if both begin with the same packet, and have the same name, but for `.gz` or `.zst`, or also end with the
    same packet and have as many. OtherOptions if a file has fewer packets than the version that is there, unless
    `replace`.
    """
    if not is_delta(out, "files"):
        return set()
    by_first: dict[int, list[_Version]] = {}
    for version in _versions(out):
        if version.first is not None:
            by_first.setdefault(version.first, []).append(version)
    found, own = set(), {info.capture for info in files}
    for info in files:
        for version in by_first.get(-1 if info.first is None else info.first // 1_000, ()):
            if version.capture in own or not _is_same(version, info):
                continue
            if version.packets > info.packets and not replace:
                raise OtherOptions(
                    f"{info.path}: {out} has {version.packets:,} packets of this capture, from {version.path}, and "
                    f"this file has {info.packets:,}. Leave it out, or say --replace"
                )
            found.add(version.capture)
    return found


def _is_same(version: _Version, info: FileInfo) -> bool:
    is_named_so = _COMPRESSED.sub("", version.path) == _COMPRESSED.sub("", info.path)
    last = None if info.last is None else info.last // 1_000
    return is_named_so or (version.last == last and version.packets == info.packets)


def _versions(out: str) -> list[_Version]:
    table = read_table(out, "files", ["path", "packets", "first", "last", "capture"])
    for name in ("first", "last"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast("int64"))
    return [_Version(**row) for row in table.to_pylist()]
