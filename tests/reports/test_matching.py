"""Matching of facts by exchange and place, beside a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.kernels.hashing import new_seed
from kafkatap.reports.section_parts.matching import match_places


def expected(in_exchange: list[int], in_place: list[int], exchange: list[int], place: list[int]) -> list[int]:
    first: dict[tuple[int, int], int] = {}
    for i, key in enumerate(zip(in_exchange, in_place, strict=True)):
        first.setdefault(key, i)
    return [first.get(key, -1) for key in zip(exchange, place, strict=True)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("exchanges", "places"), [(1, 4), (5, 300), (200, 3), (50, 1 << 62)])
def test_the_first_row_of_each_place(seed: int, exchanges: int, places: int) -> None:
    """With exchanges that are missing on either side, repeated places and places that are in one list only."""
    random = np.random.default_rng(seed)
    lists = []
    for count in random.integers(0, 400, 2).tolist():
        lists.append(np.sort(random.integers(0, exchanges, count)).astype(np.int64))
        lists.append((random.integers(0, places, count) // 2 * 2).astype(np.int64))
    if len(lists[1]) and len(lists[3]):
        lists[3][: len(lists[3]) // 2] = random.choice(lists[1], len(lists[3]) // 2)
    most = int(np.bincount(lists[0]).max(initial=0))
    slots = np.full(1 << max(2 * most, 1).bit_length(), -1, np.int32)
    out = np.zeros(len(lists[2]), np.int64)
    match_places(*lists, slots, new_seed(), out)
    assert out.tolist() == expected(*(column.tolist() for column in lists))
