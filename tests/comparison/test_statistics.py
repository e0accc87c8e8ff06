"""The arithmetic of comparisons beside scipy's, and its properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kafkatap.reports.comparison.statistics import (
    FEWEST_BLOCKS,
    Difference,
    correlation,
    difference,
    exact_p,
    false_discovery,
    rank,
    rank_variance,
    share_variance,
    student_p,
    weights_of,
)

#: Histograms of two sides: the number of values in each bucket.
HISTOGRAM = st.lists(st.integers(0, 30), min_size=3, max_size=12).filter(lambda counts: sum(counts) > 1)


@pytest.mark.parametrize("freedom", [1.0, 2.5, 7.0, 40.0, 1e5])
@pytest.mark.parametrize("t", [0.0, 0.01, 0.7, 2.0, 5.0, 40.0])
def test_students_t_is_that_of_scipy(t: float, freedom: float) -> None:
    assert student_p(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9, abs=1e-290)
    assert student_p(-t, freedom) == student_p(t, freedom)


@given(st.integers(0, 40), st.integers(1, 400), st.integers(0, 40), st.integers(1, 400))
def test_exact_p_is_fishers(part_a: int, whole_a: int, part_b: int, whole_b: int) -> None:
    part_a, part_b = min(part_a, whole_a), min(part_b, whole_b)
    wanted = stats.fisher_exact([[part_a, whole_a - part_a], [part_b, whole_b - part_b]]).pvalue
    assert exact_p(part_a, whole_a, part_b, whole_b) == pytest.approx(wanted, rel=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_the_false_discovery_rate_is_that_of_scipy(p: list[float]) -> None:
    assert false_discovery(np.array(p)) == pytest.approx(stats.false_discovery_control(p))


def both(a: list[int], b: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The (owner, bucket, count, side) of two histograms over the same buckets."""
    buckets = np.concatenate((np.arange(len(a)), np.arange(len(b))))
    side = np.repeat([0, 1], [len(a), len(b)])
    count = np.array(a + b)
    kept = count > 0
    return np.zeros(kept.sum(), np.int64), buckets[kept], count[kept], side[kept]


@given(HISTOGRAM, HISTOGRAM)
def test_ridits_are_the_mann_whitney_statistic_with_ties(a: list[int], b: list[int]) -> None:
    owner, bucket, count, side = both(a, b)
    ranks = rank(owner, bucket, count, 1)
    n, m = float(sum(a)), float(sum(b))
    means = [float((ranks.ridit * count)[side == s].sum() / count[side == s].sum()) for s in (0, 1)]
    values = [np.repeat(np.arange(len(h)), h) for h in (a, b)]
    wanted = stats.mannwhitneyu(values[1], values[0], use_continuity=False, method="asymptotic")
    assert 0.5 + means[1] - means[0] == pytest.approx(wanted.statistic / (n * m))
    variance = sum(rank_variance(np.array([n]), np.array([m]), ranks.ties))
    if variance > 0:
        z = (means[1] - means[0]) / math.sqrt(variance)
        assert 2 * stats.norm.sf(abs(z)) == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)


@given(st.integers(1, 50), st.integers(51, 200), st.integers(1, 50), st.integers(51, 200))
def test_shares_have_the_variance_of_the_pooled_two_proportion_test(a: int, n: int, b: int, m: int) -> None:
    found = sum(share_variance(*(np.array([float(v)]) for v in (a, n, b, m))))
    share = (a + b) / (n + m)
    assert found == pytest.approx(share * (1 - share) * (1 / n + 1 / m))


def column(values: list[float]) -> np.ndarray:
    return np.array(values, float)[:, None]


BLOCKS = st.lists(st.floats(0, 100), min_size=FEWEST_BLOCKS, max_size=30)


@given(BLOCKS, BLOCKS)
def test_blocks_of_one_value_are_judged_as_by_welch(a: list[float], b: list[float]) -> None:
    """Without correlation over time. scipy's variances are those of single values, as ours of single blocks."""
    if np.std(a) < 1e-3 or np.std(b) < 1e-3:
        return
    found = difference(column(a), column([1.0] * len(a)), column(b), column([1.0] * len(b)), is_timed=False)
    wanted = stats.ttest_ind(b, a, equal_var=False)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)
    assert found.freedom == pytest.approx(wanted.df, rel=1e-6)


@given(BLOCKS, BLOCKS)
def test_sides_swapped_are_the_same_difference_the_other_way(a: list[float], b: list[float]) -> None:
    ones = column([1.0] * len(a)), column([1.0] * len(b))
    there, back = difference(column(a), ones[0], column(b), ones[1]), difference(column(b), ones[1], column(a), ones[0])
    assert (there.a, there.b, there.blocks_a) == (back.b, back.a, back.blocks_b)
    assert there.p == pytest.approx(back.p, rel=1e-9)


@given(BLOCKS)
def test_a_side_with_itself_is_no_difference(a: list[float]) -> None:
    ones = column([1.0] * len(a))
    assert difference(column(a), ones, column(a), ones).p == 1.0


def test_too_few_blocks_are_not_judged() -> None:
    few, many = column([1.0] * (FEWEST_BLOCKS - 1)), column([5.0] * 20)
    found = difference(few, np.ones_like(few), many, np.ones_like(many))
    assert found.p == 1.0
    assert not found.is_judged


def test_bursts_are_less_sure_than_as_many_independent_values() -> None:
    """The same values: spread over all blocks, and one slow burst of six blocks."""
    rng = np.random.default_rng(1)
    quiet = rng.normal(10, 1, 24)
    spread = quiet.copy()
    spread[::4] += 8
    burst = quiet.copy()
    burst[6:12] += 8
    ones = np.ones((24, 1))
    found = [difference(column(list(quiet)), ones, column(list(side)), ones) for side in (spread, burst)]
    assert found[0].p < found[1].p


def test_correlation_is_between_0_and_its_bound() -> None:
    assert correlation(np.arange(20.0) - 9.5) == 0.8
    assert correlation(np.array([1.0, -1.0] * 10)) == 0.0
    assert correlation(np.zeros(5)) == 0.0


def test_a_mix_of_strata_does_not_count() -> None:
    """Each stratum is the same on both sides, but the slow one is more frequent after (Simpson)."""
    rng = np.random.default_rng(7)
    blocks = 20

    def side(slow: int, fast: int) -> tuple[np.ndarray, np.ndarray]:
        counts = np.tile([float(slow), float(fast)], (blocks, 1))
        return counts * [100.0, 1.0] * rng.normal(1, 0.01, (blocks, 2)), counts

    (part_a, whole_a), (part_b, whole_b) = side(10, 90), side(90, 10)
    assert part_b.sum() / whole_b.sum() > 5 * part_a.sum() / whole_a.sum()
    found = difference(part_a, whole_a, part_b, whole_b)
    assert isinstance(found, Difference)
    assert found.p > 0.01
    assert found.b == pytest.approx(found.a, rel=0.02)


def test_weights_leave_out_what_only_one_side_has() -> None:
    assert weights_of(np.array([4.0, 0.0, 4.0]), np.array([4.0, 9.0, 4.0])).tolist() == [0.5, 0.0, 0.5]


def test_p_is_uniform_for_equal_sides() -> None:
    """Of equal sides, 5 % have a p below 5 %, or fewer: the blocks that are joined make it cautious."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(400):
        counts = [rng.poisson(20, (24, 1)).astype(float) for _ in (0, 1)]
        parts = [rng.gamma(c * 2, 1.0) for c in counts]
        found.append(difference(parts[0], counts[0], parts[1], counts[1]).p)
    assert 0.005 < np.mean(np.array(found) < 0.05) < 0.06


def test_strata_with_one_value_each_do_not_seem_certain() -> None:
    """60 clients with one or two requests on each side: what their means vary by is in no stratum alone."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(200):
        whole = [np.zeros((20, 60)) for _ in (0, 1)]
        for side in whole:
            for stratum in range(60):
                side[rng.choice(20, 2, replace=False), stratum] = 1
        part = [side * rng.lognormal(0, 1, side.shape) for side in whole]
        found.append(difference(part[0], whole[0], part[1], whole[1]).p)
    assert 0.005 < np.mean(np.array(found) < 0.05) < 0.1


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("order", [1, -1])
def test_one_outlier_is_not_certain(times: int, order: int) -> None:
    """One wait of 4 s among waits of 20 ms, in a stratum with one, two or three values on its side."""
    rng = np.random.default_rng(5)
    sides = []
    for outlier in (0.0, 4_000.0):
        whole = rng.poisson(3, (40, 6)).astype(float)
        whole[:, 5] = 0
        whole[np.arange(times) * 7, 5] = 1
        part = whole * rng.lognormal(3, 0.1, whole.shape)
        part[0, 5] += outlier
        sides.append((part, whole))
    (part_a, whole_a), (part_b, whole_b) = sides[::order]
    assert max(part_a.sum(), part_b.sum()) > 1.2 * min(part_a.sum(), part_b.sum())
    assert difference(part_a, whole_a, part_b, whole_b).p > 0.01
