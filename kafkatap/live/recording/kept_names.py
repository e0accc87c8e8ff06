"""Where `live --keep` keeps packets, and what its files are called: by the time of their first packets."""

from __future__ import annotations

import re

#: The folder, unless --keep-dir names another one.
FOLDER = "/var/lib/kafkatap/kept"
#: From this a file has its name: `kept-20261121T174501.123Z.pcapng`.
NAME = "kept.pcapng"
#: ns of packets that a file holds, about.
PIECE = 30_000_000_000
#: ns by which packets may be earlier or later than the names of their file and the next one say: they wait for the
#: disk.
SLACK = 5_000_000_000
#: What a file says of itself, in its comment.
WITHOUT_SECRETS = "kept by kafkatap live, without tokens of SASL"
WITH_SECRETS = "kept by kafkatap live, with tokens of SASL"
_KEPT = re.compile(r"kept-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)\.(\d{3})Z(?:-\d{1,6})?\.pcapng", re.ASCII)


def begin_of(name: str) -> int | None:
    """When a file begins, ns since the epoch; None if it is none of these."""
    found = _KEPT.fullmatch(name)
    if found is None:
        return None
    from calendar import timegm  # imported late: every `kafkatap live` reads this module

    year, month, day, hours, minutes, seconds, millis = map(int, found.groups())
    return (timegm((year, month, day, hours, minutes, seconds)) * 1_000 + millis) * 1_000_000


def names_between(names: list[str], begin: int, end: int) -> list[str]:
    """The files with packets of a span (ns since the epoch), in the order of time."""
    dated = sorted((at, name) for name in names if (at := begin_of(name)) is not None)
    until = [*(at for at, _ in dated[1:]), end]
    return [
        name
        for (at, name), following in zip(dated, until, strict=True)
        if at - SLACK < end and max(following, at) + SLACK > begin
    ]
