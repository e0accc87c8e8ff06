"""Shorter inputs that reveal the same: whole packets go first, then ever smaller runs of bytes."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

from tests.support.captures import PcapRecords


def smaller(data: bytes, reveals: Callable[[bytes], bool], seconds: float = 20.0) -> bytes:
    """The shortest input found within `seconds` for which `reveals` still holds."""
    end = time.monotonic() + seconds
    records = _records(data)
    if len(records) > 1:
        data = b"".join(_fewer(records, 1, lambda parts: reveals(b"".join(parts)), end))
    length = max(1, len(data) // 2)
    while length and time.monotonic() < end:
        parts = [data[at : at + length] for at in range(0, len(data), length)]
        data = b"".join(_fewer(parts, 0, lambda parts: reveals(b"".join(parts)), end))
        length //= 2
    return data


def _fewer(
    parts: Sequence[bytes], kept: int, reveals: Callable[[Sequence[bytes]], bool], end: float
) -> Sequence[bytes]:
    """The parts without those that are not needed; the first `kept` always stay."""
    run = max(1, (len(parts) - kept) // 2)
    while run and time.monotonic() < end:
        at = kept
        while at < len(parts) and time.monotonic() < end:
            rest = [*parts[:at], *parts[at + run :]]
            if reveals(rest):
                parts = rest
            else:
                at += run
        run //= 2
    return parts


def _records(data: bytes) -> list[bytes]:
    """A classic pcap's header, its records, and what follows them; else all as one."""
    try:
        records = PcapRecords(data)
    except (KeyError, struct.error, IndexError):
        return [data]
    whole = [records.header, *(records.record(n) for n in range(len(records)))]
    return [*whole, data[sum(map(len, whole)) :]]
