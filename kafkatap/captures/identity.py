"""The identity of a capture file: an integer of its size and of the bytes at its head and tail.

Name and time of change do not matter: a file that is renamed, copied or downloaded again keeps its identity. Tables
have it in the column `capture`, so that a run can replace the rows of the captures that it reads again.
"""

from __future__ import annotations

import hashlib

from .storage import read_ranges, size_of

#: Bytes of the head, and of the tail, that count.
SAMPLE = 64 << 10


def capture_identity(path: str, size: int | None = None) -> int:
    """A positive int64 of one capture file. `size`: count only its first `size` bytes (None: all).

    OSError if the file cannot be read.
    """
    if size is None:
        size = size_of(path)
    begin = max(size - SAMPLE, SAMPLE)  # of the tail
    head, tail = read_ranges(path, [(0, min(size, SAMPLE)), (begin, max(size - begin, 0))])
    return identity_of_bytes(size, head, tail)


def identity_of_bytes(size: int, head: bytes, tail: bytes) -> int:
    """The identity of a file of `size` bytes. `head`: its first SAMPLE bytes. `tail`: its last SAMPLE bytes, without
    those that are in `head`."""
    return _positive(hashlib.blake2b(size.to_bytes(8, "little") + head + tail, digest_size=8, person=b"capture"))


def missing_identity(path: str) -> int:
    """In place of the identity of a file that cannot be read: a positive int64 of its name."""
    return _positive(hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8, person=b"missing"))


def _positive(digest: hashlib.blake2b) -> int:
    return int.from_bytes(digest.digest(), "little") >> 1 or 1
