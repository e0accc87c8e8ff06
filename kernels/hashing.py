"""Keyed hashes for tables whose keys come from the traffic.

A hash is a chain of `mix` steps, one for each 32 bits of the key. Each step multiplies by a secret odd number and folds
the high half of the product into the low half. So regular keys (sequential ports, neighbouring addresses) spread over a
table, and nobody who does not know the seed can make keys collide. No result depends on the seed: tables hold whole
keys, and their rows are in order of first appearance.

Products stay below 2^63, so plain Python and compiled code return the same hashes.
"""

from __future__ import annotations

import os

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
