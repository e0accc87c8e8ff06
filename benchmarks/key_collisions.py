"""How many of a billion exchanges have equal keys, with TCP time stamps and without.

    python benchmarks/key_collisions.py                # 100 million connections of 10 requests, 9 GB of memory
    python benchmarks/key_collisions.py --connections 1000000

A month of few clients that connect again all the time, which is the worst case: each 4-tuple is used about 60 times,
with a random first sequence number. Keys are made as docs/tables.md says.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CLIENTS, PORTS, BROKERS = 20, 28_232, 3
REQUESTS = 10
#: Bytes of a request.
SIZE = 61
MONTH_MS = 30 * 86_400_000
_BLOCK = 1_000_000
_MULTIPLIER, _SHIFT = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


def fold(words: Array) -> Array:
    """uint64 (n,) -> uint64 (n,): as of `kernels/hashing.py`."""
    product = words * _MULTIPLIER
    found: Array = product ^ (product >> _SHIFT)
    return found


def hashes(*columns: Array) -> Array:
    """The hash of some words in each row: uint64 (n,), 63 bits."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = fold(found ^ column)
    return fold(fold(found)) & np.uint64(2**63 - 1)


def keys_of(chance: np.random.Generator, connections: int, has_stamps: bool) -> Array:
    """The keys of the requests of some connections: uint64 (connections * REQUESTS,)."""
    client = (0xFFFF << 32 | 0x0A000000) + chance.integers(0, CLIENTS, connections, np.uint64)
    broker = (0xFFFF << 32 | 0x0A010000) + chance.integers(0, BROKERS, connections, np.uint64)
    port = chance.integers(32_768, 32_768 + PORTS, connections, np.uint64)
    nothing = np.zeros(connections, np.uint64)
    ends = hashes(nothing, client, nothing, broker, port << np.uint64(16) | np.uint64(9_092))
    first = chance.integers(0, 2**32, connections, np.uint64)
    begun = chance.integers(0, MONTH_MS, connections, np.uint64)
    stamp = (begun & np.uint64(2**32 - 1)) >> np.uint64(16) if has_stamps else nothing
    found = np.empty((REQUESTS, connections), np.uint64)
    for n in range(REQUESTS):
        seq = (first + np.uint64(1 + n * SIZE)) & np.uint64(2**32 - 1)
        found[n] = hashes(ends, (stamp << _SHIFT | seq) << np.uint64(1), np.full(connections, n, np.uint64))
    return found.reshape(-1)


def collisions(connections: int, has_stamps: bool, seed: int) -> int:
    """How many keys are equal to the next one in order."""
    chance = np.random.default_rng(seed)
    keys = np.empty(connections * REQUESTS, np.uint64)
    for at in range(0, connections, _BLOCK):
        count = min(_BLOCK, connections - at)
        keys[at * REQUESTS : (at + count) * REQUESTS] = keys_of(chance, count, has_stamps)
    keys.sort()
    return sum(
        int(np.count_nonzero(keys[at + 1 : at + _BLOCK + 1] == keys[at : at + _BLOCK][: len(keys) - at - 1]))
        for at in range(0, len(keys) - 1, _BLOCK)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=100_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tuples = CLIENTS * PORTS * BROKERS
    uses = options.connections / tuples
    by_chance = (options.connections * REQUESTS) ** 2 / 2**64
    print(f"{options.connections * REQUESTS:,} requests, each 4-tuple used {uses:.1f} times; by chance {by_chance:.3f}")
    for has_stamps in (True, False):
        start = time.perf_counter()
        found = collisions(options.connections, has_stamps, options.seed)
        words = "with time stamps" if has_stamps else "without"
        print(f"{words:18} {found:6,} equal keys ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
