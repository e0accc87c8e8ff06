"""Keyed permutations of small and large ranges of numbers, and the keys that they are made of.

`Permutations.of(context, size, value)` maps 0..size-1 onto itself. The key and the context determine the map. Without
the key, a result says nothing of the value. No value maps to itself, so nothing stays as it was by chance.

A permutation of a large range is a Feistel network over BLAKE2b with cycle walking, in the manner of NIST SP 800-38G.
That of a small range is a shuffled table. Either is conjugated with a rotation, which removes the fixed points.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from hashlib import blake2b, scrypt, shake_128

KEY_BYTES = 32
#: Key files may have more bytes than this; shorter ones are refused.
SHORTEST_KEY = 16
#: The same in all runs, as the same file has to be the same key.
_SALT = b"kafkatap extract --anonymize-key"
_TABLE, _TABLES_KEPT, _ROUNDS = 1_024, 4_096, 8


def random_key() -> bytes:
    """A key for one run."""
    return secrets.token_bytes(KEY_BYTES)


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The key that a file determines, by scrypt (RFC 7914): its bytes count without white space at their ends.

    So each guess of a key that somebody made up costs time and memory. OSError, or ValueError for a short one.
    """
    with open(path, "rb") as file:
        raw = file.read(1 << 20).strip()
    if len(raw) < SHORTEST_KEY:
        raise ValueError(
            f"{os.fspath(path)}: a key has at least {SHORTEST_KEY} bytes; make one with: openssl rand -hex 32"
        )
    return scrypt(raw, salt=_SALT, n=1 << 15, r=8, p=1, maxmem=1 << 26, dklen=KEY_BYTES)


class Permutations:
    """All permutations of one key."""

    def __init__(self, key: bytes) -> None:
        self._key = blake2b(key, digest_size=KEY_BYTES, person=b"kafkatap-anon").digest()
        self._tables: dict[tuple[bytes, int], list[int]] = {}

    def of(self, context: bytes, size: int, value: int) -> int:
        """The number that `value` maps to, both in 0..size-1. Not the same number if `size` is 2 or more."""
        if size <= _TABLE:
            table = self._tables.get((context, size))
            if table is None:
                if len(self._tables) >= _TABLES_KEPT:
                    self._tables.clear()
                table = self._tables[context, size] = self._shuffled(context, size)
            return table[value]
        rotated = (self._feistel(context, size, value, range(_ROUNDS)) + 1) % size
        return self._feistel(context, size, rotated, range(_ROUNDS - 1, -1, -1))

    def stream(self, context: bytes, size: int) -> bytes:
        """`size` bytes that the key and the context determine."""
        return shake_128(self._key + context).digest(size)

    def seed(self, text: bytes) -> bytes:
        """16 bytes that the key and a text determine; it is not copied."""
        found = shake_128(self._key)
        found.update(text)
        return found.digest(16)

    def _shuffled(self, context: bytes, size: int) -> list[int]:
        """A random cycle through all numbers: each maps to the next one of a shuffled row."""
        order = list(range(size))
        numbers = self._numbers(context + b"\0table" + size.to_bytes(4, "big"))
        for last in range(size - 1, 0, -1):
            other = next(numbers) % (last + 1)
            order[last], order[other] = order[other], order[last]
        table = [0] * size
        for place, value in enumerate(order):
            table[value] = order[(place + 1) % size]
        return table

    def _numbers(self, context: bytes) -> Iterator[int]:
        count = 0
        while True:
            block = blake2b(context + count.to_bytes(4, "big"), key=self._key).digest()
            for at in range(0, len(block), 8):
                yield int.from_bytes(block[at : at + 8], "big")
            count += 1

    def _feistel(self, context: bytes, size: int, value: int, rounds: range) -> int:
        """One permutation of 0..size-1, or its inverse if the rounds run backwards."""
        half = ((size - 1).bit_length() + 1) // 2
        mask, width = (1 << half) - 1, (half + 7) // 8
        prefix = self._key + len(context).to_bytes(4, "big") + context + size.to_bytes(width * 2 + 1, "big")
        forwards = rounds.step > 0
        while True:
            left, right = value >> half, value & mask
            for number in rounds:
                source = right if forwards else left
                block = shake_128(prefix + bytes((number,)) + source.to_bytes(width, "big")).digest(width)
                mixed = int.from_bytes(block, "big") & mask
                if forwards:
                    left, right = right, left ^ mixed
                else:
                    left, right = right ^ mixed, left
            value = left << half | right
            if value < size:
                return value
