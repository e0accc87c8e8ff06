"""Buckets, percentiles and count tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.kernels.arrays import value_counts
from kafkatap.reports.counting.count_table import MAX, MIN, SUM, CountTable, merge
from kafkatap.reports.counting.histogram import BUCKETS, Histograms, buckets, middle, percentiles

VALUES = st.integers(0, 2**62)


@given(st.lists(VALUES, min_size=1, max_size=50))
def test_the_middle_of_a_bucket_is_within_one_percent(values: list[int]) -> None:
    exact = np.array(values, np.int64)
    found = buckets(exact)
    error = np.abs(middle(found) - exact)
    assert np.all(error <= exact * 0.008)
    assert found.max() < BUCKETS


def test_buckets_of_known_values() -> None:
    values = np.array([-5, 0, 1, 127, 128, 129, 130, 255, 256, 2**63 - 1], np.int64)
    assert buckets(values).tolist() == [0, 0, 1, 127, 128, 128, 129, 191, 192, 3711]


@given(VALUES, VALUES)
def test_buckets_are_monotonic(a: int, b: int) -> None:
    low, high = sorted((a, b))
    found = buckets(np.array([low, high], np.int64))
    assert found[0] <= found[1]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.sampled_from((5000, 9000, 9900, 9990)))
@settings(max_examples=60)
def test_percentiles_are_those_of_numpy_within_one_percent(values: list[int], part: int) -> None:
    exact = np.array(values, np.int64)
    found = buckets(exact)
    owner = np.zeros(len(found), np.int64)
    got = percentiles(owner, found, np.ones(len(found), np.int64), 1, (part,), np.array([exact.max()]))[0, 0]
    wanted = np.percentile(exact, part / 100, method="inverted_cdf")
    assert abs(int(got) - int(wanted)) <= 0.01 * int(wanted)


def test_percentiles_of_several_owners() -> None:
    owner = np.array([2, 0, 0, 2], np.int64)
    bucket = np.array([7, 10, 20, 5], np.int64)
    count = np.array([1, 99, 1, 1], np.int64)
    found = percentiles(owner, bucket, count, 3, (5000, 9900, 9990), np.array([20, 0, 7], np.int64))
    assert found.tolist() == [[10, 10, 20], [-1, -1, -1], [5, 7, 7]]


ROWS = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.sampled_from((-(2**63), -(2**40), 0, 2**31, 2**31 + 1, 2**63 - 1)),
        st.integers(-100, 100),
    ),
    max_size=60,
)


def table_of(rows: list[tuple[int, int, int]], capacity: int = 4) -> CountTable:
    table = CountTable(2, [SUM, MIN, MAX], capacity)
    if rows:
        keys = np.array([row[:2] for row in rows], np.int64)
        table.add(keys, np.array([[row[2]] * 3 for row in rows], np.int64))
    return table


def content(table: CountTable) -> dict[tuple[int, ...], tuple[int, ...]]:
    return dict(zip(map(tuple, table.key_rows().tolist()), map(tuple, table.value_rows().tolist()), strict=True))


@given(ROWS)
@settings(max_examples=50)
def test_a_table_adds_up_as_a_dict_does(rows: list[tuple[int, int, int]]) -> None:
    wanted: dict[tuple[int, ...], list[int]] = {}
    for a, b, value in rows:
        seen = wanted.setdefault((a, b), [0, 2**63 - 1, -(2**63)])
        seen[:] = [seen[0] + value, min(seen[1], value), max(seen[2], value)]
    table = table_of(rows)
    assert content(table) == {k: tuple(v) for k, v in wanted.items()}
    if rows:
        keys = np.array([row[:2] for row in rows], np.int64)
        assert table.key_rows()[table.find(keys)].tolist() == keys.tolist()
    assert table.find(np.array([[99, 99]])).tolist() == [-1]


@given(ROWS, ROWS, ROWS)
@settings(max_examples=50)
def test_the_order_of_merging_does_not_matter(a: list[Any], b: list[Any], c: list[Any]) -> None:
    one, two, three = table_of(a), table_of(b), table_of(c)
    together = content(table_of(a + b + c))
    assert content(merge(merge(one, two), three)) == content(merge(three, merge(two, one))) == together


@given(st.lists(st.integers(0, 40), max_size=100), st.integers(5, 9))
@settings(max_examples=50)
def test_histograms_count_what_was_noted(keys: list[int], space: int) -> None:
    histograms = Histograms(noted=space)
    for key in keys:
        histograms.reserve(1)
        histograms.noted[histograms.used[0]] = key
        histograms.used[0] += 1
    histograms.merge_noted()
    wanted, counts = np.unique(np.array(keys, np.int64), return_counts=True)
    assert histograms.keys.tolist() == wanted.tolist()
    assert histograms.counts.tolist() == counts.tolist()


@given(st.lists(st.tuples(st.sampled_from(("noted", "added")), st.lists(st.integers(0, 12), max_size=30)), max_size=12))
@settings(max_examples=80)
def test_a_histogram_counts_keys_in_any_order_however_they_come(parts: list[tuple[str, list[int]]]) -> None:
    histograms, expected = Histograms(noted=32), Counter[int]()
    for how, keys in parts:
        histograms.reserve(len(keys))
        used = int(histograms.used[0])
        if how == "noted":
            histograms.noted[used : used + len(keys)] = keys
            histograms.used[0] += len(keys)
        else:
            histograms.add(np.array(keys, np.int64), np.full(len(keys), 3, np.int64))
        expected.update(Counter(keys * (1 if how == "noted" else 3)))
    histograms.merge_noted()
    assert dict(zip(histograms.keys.tolist(), histograms.counts.tolist(), strict=True)) == expected
    assert histograms.keys.tolist() == sorted(expected)


def test_a_histogram_to_which_nothing_comes_does_not_grow() -> None:
    histograms = Histograms()
    for _ in range(3):
        histograms.merge_noted()
        histograms.add(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert not histograms._added


@given(st.lists(st.integers(-3, 3)))
def test_value_counts_are_those_of_numpy(values: list[int]) -> None:
    found, wanted = value_counts(np.array(values, np.int64)), np.unique(np.array(values, np.int64), return_counts=True)
    assert [one.tolist() for one in found] == [one.tolist() for one in wanted]
