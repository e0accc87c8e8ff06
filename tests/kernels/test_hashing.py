"""Keyed hashes: regular keys spread, other seeds give other hashes, compiled and plain code agree."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.kernels import hashing
from kafkatap.reassembly.flows import Ends, hash_flow

CLIENT, BROKER = 0xFFFF_0A00_0001, 0xFFFF_0A00_0101
SEEDS = [
    (number * 0x1234567 << 31 | number * 0x2545F491 & 0x3FFFFFFF | 0x40000001) & (1 << 62) - 1 for number in range(4)
]


def most_in_a_bucket(hashes: list[int], buckets: int) -> int:
    return int(np.bincount(np.array(hashes) & (buckets - 1), minlength=buckets).max())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "ends",
    [(0, CLIENT, 0, BROKER), (0, BROKER, 0, CLIENT), (0x20010DB8 << 32, 1, 0x20010DB8 << 32, 2), (0, 1, 0, 1)],
)
@pytest.mark.parametrize("step", [1, 2, 1 << 8, 1 << 12])
def test_sequential_ports_spread(seed: int, ends: tuple[int, int, int, int], step: int) -> None:
    """As many as a random function puts into the fullest of twice as many buckets: 6 or 7, seldom 10."""
    a_high, a_low, b_high, b_low = ends
    ports = [1024 + k * step % 64_000 + k * step // 64_000 for k in range(4_000)]
    for ordered in ([(p, 9092) for p in ports], [(9092, p) for p in ports]):
        different = list(dict.fromkeys(ordered))
        hashes = [int(hash_flow(Ends(a_high, a_low, b_high, b_low, a, b), seed)) for a, b in different]
        assert most_in_a_bucket(hashes, 8_192) <= 14
        assert len(set(hashes)) >= len(different) - 5
        assert all(0 <= h < 1 << 30 for h in hashes)


@pytest.mark.parametrize("seed", SEEDS)
def test_neighbouring_words_spread(seed: int) -> None:
    for shift in (0, 8, 16, 24, 32, 48):
        words = [k << shift for k in range(min(4_000, 1 << (63 - shift)))]
        hashes = [int(hashing.spread(hashing.mix64(hashing.hash_start(seed), w, seed))) for w in words]
        assert most_in_a_bucket(hashes, 8_192) <= 14, shift


def test_each_seed_gives_hashes_of_its_own() -> None:
    key = [int(hash_flow(Ends(0, CLIENT, 0, BROKER, 40_000, 9_092), hashing.new_seed())) for _ in range(50)]
    assert len(set(key)) > 45


def test_keys_that_collide_under_one_seed_do_not_under_another() -> None:
    """Keys picked with a known seed so that all fall into one bucket of 4,096."""
    known, other = SEEDS[:2]
    picked = [
        p
        for p in range(65_536 * 4)
        if hash_flow(Ends(0, CLIENT + (p >> 16), 0, BROKER, p & 0xFFFF, 9_092), known) & 4_095 == 0
    ]
    assert len(picked) > 30
    again = [int(hash_flow(Ends(0, CLIENT + (p >> 16), 0, BROKER, p & 0xFFFF, 9_092), other)) for p in picked]
    assert most_in_a_bucket(again, 4_096) <= 5


def test_seeds_have_a_large_odd_multiplier() -> None:
    for _ in range(100):
        seed = hashing.new_seed()
        assert 0 <= seed < 2**62
        assert seed & 1
        assert seed & 0x7FFFFFFF >= 1 << 30
