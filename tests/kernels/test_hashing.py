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


def key_of(*words: int) -> int:
    key = hashing.start_key(np.int64(words[0]))
    for word in words[1:]:
        key = hashing.add_to_key(key, np.int64(word))
    return int(hashing.finish_key(key))


def test_keys_are_64_bit_arithmetic_without_overflow() -> None:
    """Of numpy's integers, which warn of an overflow, as of Python's."""

    def fold(number: int) -> int:
        product = number * 0xD6E8FEB86659FD93 % 2**64
        return product ^ (product >> 32)

    edges = [0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -(2**63), -(2**32), 0x7FFFFFFF_FFFFFFFF]
    for one in edges:
        for other in edges:
            wanted = fold(fold(fold(fold(one % 2**64) ^ other % 2**64))) % 2**63
            assert key_of(one, other) == wanted


def test_each_bit_of_a_word_changes_half_of_a_key() -> None:
    for place in range(3):
        for bit in range(64):
            changed = 0
            for n in range(40):
                words = [n * 0x9E3779B97F4A7C15 % 2**63, n, 1_795_233_600_000_000_000 + 1_000 * n]
                other = list(words)
                other[place] = (words[place] ^ 1 << bit) - (2**64 if (words[place] ^ 1 << bit) >= 2**63 else 0)
                changed += (key_of(*words) ^ key_of(*other)).bit_count()
            assert 27 < changed / 40 < 36, (place, bit)


def test_keys_of_regular_words_are_distinct() -> None:
    """Packets a microsecond apart, requests of the same length."""
    keys = {key_of(7, 1_795_233_600_000_000_000 + 1_000 * n, 100 * n << 1) for n in range(50_000)}
    assert len(keys) == 50_000
    assert all(0 <= key < 2**63 for key in keys)
    assert most_in_a_bucket([key % 2**40 for key in list(keys)[:4_000]], 8_192) <= 14


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
