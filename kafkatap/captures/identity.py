"""The identity of a capture: an integer of its first packet.

Files that are copied, renamed, compressed, converted, repaired or cut to a snap length have the identity of the whole
capture, and so does one that has grown. All of them are versions of one capture. Tables have the identity in the column
`capture`, so that a run can replace the rows of the captures that it reads again.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from .capture_reader import CaptureReader
from .current_reader import CurrentReader

#: Bytes of the first packet that count: up to the numbers of TCP. A snap length cuts what is behind them.
HEAD = 48
#: Bytes that are read at once to find the first packet.
_BLOCK = 1 << 16


class CaptureHead(NamedTuple):
    """`identity`: a positive int64. `first`: the time of the first packet, ns since the epoch; None without packets."""

    identity: int
    first: int | None


def capture_head(path: str) -> CaptureHead:
    """Look at the first packet of a capture file. OSError if the file cannot be read."""
    reader = CaptureReader(path, _BLOCK)
    try:
        if not reader.fill():
            return CaptureHead(missing_identity(path), None)
        return CaptureHead(identity_at(reader), reader.next_time())
    finally:
        reader.close()


def identity_at(reader: CaptureReader | CurrentReader[CaptureReader]) -> int:
    """The identity of a capture whose first packet is the next one of a reader. Times count to the microsecond."""
    packet = reader.packets[reader.position]
    at = int(packet["at"])
    data = reader.buffer[at : at + min(int(packet["captured"]), HEAD)].tobytes()
    numbers = int(packet["ts"]) // 1_000, int(packet["original"])
    return _positive(hashlib.blake2b(b"%d %d " % numbers + data, digest_size=8, person=b"capture"))


def missing_identity(path: str) -> int:
    """In place of the identity of a file without packets, or that cannot be read: a positive int64 of its name."""
    return _positive(hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8, person=b"missing"))


def _positive(digest: hashlib.blake2b) -> int:
    return int.from_bytes(digest.digest(), "little") >> 1 or 1
