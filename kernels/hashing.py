"""Keyed hashes for the tables that traffic fills.

A hash is a chain of `mix` steps, one for each 32 bits of the key. Each multiplies by a secret odd number and folds the
high half of the product into the low one, so that regular keys (sequential ports, neighbouring addresses) spread over a
table, and nobody who does not know the seed can make keys collide. No answer depends on the seed: tables hold whole
keys, and their order of rows is the order of first appearance.

Products stay below 2^63, so plain Python and compiled code give the same hashes.
"""

from __future__ import annotations

import os

from .declarations import helper


def new_seed() -> int:
    """A seed for a table, int64: 31 bits to begin with above a multiplier of 31 bits that is odd and large."""
    number = int.from_bytes(os.urandom(8), "little") >> 2
    return (number >> 31) << 31 | (number & 0x3FFFFFFF) | 0x40000001


@helper
def hash_start(seed):  # type: ignore[no-untyped-def]
    """The hash of nothing."""
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
    """A finished hash: 30 bits of which each depends on all of `h`, so that a table may use the lowest."""
    product = (h ^ (h >> 15)) * 0x2C1B3C6D
    product = (product ^ (product >> 12) ^ (product >> 32)) & 0xFFFFFFFF
    return (product ^ (product >> 15)) & 0x3FFFFFFF
