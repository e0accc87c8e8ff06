"""Keyed hashes for tables whose keys come from the traffic.

A hash is a chain of `mix` steps, one for each 32 bits of the key. Each step multiplies by a secret odd number and folds
the high half of the product into the low half. So regular keys (sequential ports, neighbouring addresses) spread over a
table, and nobody who does not know the seed can make keys collide. No result depends on the seed: tables hold whole
keys, and their rows are in order of first appearance.

Keys of rows (`start_key`, `add_to_key`, `finish_key`) are hashes without a seed, so that every run makes the same ones.

Products stay below 2^63, so plain Python and compiled code return the same hashes.
"""

from __future__ import annotations

import os
from collections import namedtuple

from .declarations import helper


def new_seed() -> int:
    """Return a seed for a table, int64: a start value of 31 bits above an odd multiplier of 31 bits, which is large."""
    number = int.from_bytes(os.urandom(8), "little") >> 2
    return (number >> 31) << 31 | (number & 0x3FFFFFFF) | 0x40000001


@helper
def hash_start(seed):  # type: ignore[no-untyped-def]
    """Return the hash of an empty key."""
    return seed >> 31


@helper
def mix(h, word, seed):  # type: ignore[no-untyped-def]
    """Mix the low 32 bits of `word` into a hash of 32 bits."""
    product = ((h ^ word) & 0xFFFFFFFF) * (seed & 0x7FFFFFFF)
    return (product ^ (product >> 32)) & 0xFFFFFFFF


@helper
def mix64(h, word, seed):  # type: ignore[no-untyped-def]
    """Mix 64 bits into a hash of 32 bits."""
    return mix(mix(h, word, seed), word >> 32, seed)


@helper
def spread(h):  # type: ignore[no-untyped-def]
    """Return the finished hash: 30 bits. Each depends on all of `h`, so a table may use the lowest ones."""
    product = (h ^ (h >> 15)) * 0x2C1B3C6D
    product = (product ^ (product >> 12) ^ (product >> 32)) & 0xFFFFFFFF
    return (product ^ (product >> 15)) & 0x3FFFFFFF


#: A hash of 64 bits in two halves of 32 bits each (int64).
Key = namedtuple("Key", "high low")
#: The multiplier 0xD6E8FEB86659FD93 of `_fold`. Its upper half is negative here, which is the same modulo 2^32.
_HIGH, _LOW = 0xD6E8FEB8 - (1 << 32), 0x6659FD93
_MASK = 0xFFFFFFFF


@helper
def _fold(high, low):  # type: ignore[no-untyped-def]
    """Multiply 64 bits by an odd number, modulo 2^64, and fold the upper half of the product into the lower one."""
    product = low * _LOW
    above = ((product >> 32) + ((low * _HIGH) & _MASK) + ((high * _LOW) & _MASK)) & _MASK
    return Key(above, (product & _MASK) ^ above)


@helper
def start_key(word):  # type: ignore[no-untyped-def]
    """Return the hash of one word of 64 bits."""
    return _fold((word >> 32) & _MASK, word & _MASK)


@helper
def add_to_key(key, word):  # type: ignore[no-untyped-def]
    """Add a word of 64 bits to a hash."""
    return _fold(key.high ^ ((word >> 32) & _MASK), key.low ^ (word & _MASK))


@helper
def finish_key(key):  # type: ignore[no-untyped-def]
    """Return the finished hash: 63 bits, each of which depends on all words."""
    mixed = _fold(key.high, key.low)
    mixed = _fold(mixed.high, mixed.low)
    return ((mixed.high & 0x7FFFFFFF) << 32) | mixed.low
