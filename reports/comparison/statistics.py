"""The arithmetic of comparisons: distributions, tests of two sides over blocks of time, the false discovery rate.

Exchanges are not independent: they come in bursts, and a slow second slows all of its requests. So a side is cut into
blocks of time, and a number of a side is a ratio of sums over its blocks (cluster sampling). The scatter of the blocks
gives the variance of that ratio (Taylor linearization), and their lag-1 autocorrelation raises it. Two, four and eight
blocks at a time are tried too, and the largest p counts. The variance is never below that of independent exchanges.
The difference of two sides is judged by Student's t with the degrees of freedom of Welch and Satterthwaite.

The rank test is of the same form. Each value gets its mid-rank among the values of both sides, as a part of their
number (ridit). The difference of the mean ridits of two sides is P(B > A) + P(B = A) / 2 - 1/2, the Mann-Whitney
statistic with ties. So the test is the one of Obuchowski (1997) for clustered data. Without clusters its variance is
that of the Mann-Whitney test with the correction for ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..batch import Array

#: Fewer blocks with data than this on a side cannot be judged.
FEWEST_BLOCKS = 6
#: Blocks are also joined, so many at a time, to see slower changes of the load; no fewer than this must be left.
_JOINED, _FEWEST_JOINED = (2, 4, 8), 6
#: The autocorrelation that is assumed at most.
_MOST_CORRELATED = 0.8


class Difference(NamedTuple):
    """Two sides of one number, each the mean over the same strata.

    `a`, `b`: the numbers. `p`: two-sided; 1.0 if it cannot be judged. `deviation`: the standard error of b - a.
    `freedom`: the degrees of freedom. `blocks_a`, `blocks_b`: with data. `effect_a`, `effect_b`: the design effect:
    the variance over blocks by that of independent exchanges, nan if that is unknown.
    """

    a: float
    b: float
    p: float
    deviation: float
    freedom: float
    blocks_a: int
    blocks_b: int
    effect_a: float = math.nan
    effect_b: float = math.nan

    @property
    def is_judged(self) -> bool:
        return min(self.blocks_a, self.blocks_b) >= FEWEST_BLOCKS


def weights_of(total_a: Array, total_b: Array) -> Array:
    """The weight of each stratum by its denominators on both sides, float (n,): harmonic, 0 without one of them."""
    both = np.maximum(total_a + total_b, 1e-300)
    weights = total_a * total_b / both
    whole = weights.sum()
    found: Array = weights / whole if whole > 0 else weights
    return found


def difference(
    part_a: Array, whole_a: Array, part_b: Array, whole_b: Array, *,
    independent: tuple[float, float] | None = None, is_timed: bool = True,
) -> Difference:  # fmt: skip
    """Compare the ratio of two sums over blocks: `part` by `whole`, float (blocks, strata) for each side.

    Strata are compared one by one, so that a change of their mix does not count. `independent`: the variances of a and
    b if exchanges were independent. `is_timed`: blocks are in order of time; otherwise they are not correlated.
    """
    weights = weights_of(whole_a.sum(axis=0), whole_b.sum(axis=0))
    if independent is None:  # nothing else says how much the numbers of a stratum with one block vary
        weights = np.where(np.minimum(_blocks(whole_a), _blocks(whole_b)) > 1, weights, 0)
        weights = weights / max(float(weights.sum()), 1e-300)
    one, other = _side(part_a, whole_a, weights), _side(part_b, whole_b, weights)
    a, b, blocks_a, blocks_b = one.mean, other.mean, one.blocks, other.blocks
    if min(blocks_a, blocks_b) < FEWEST_BLOCKS:
        return Difference(a, b, 1.0, math.nan, 0.0, blocks_a, blocks_b)
    effects = math.nan, math.nan
    worst: Difference | None = None
    for joined in (1, *(_JOINED if is_timed else ())):
        sides = [_joined(side.residual, joined) for side in (one, other)]
        blocks = [-(-side.blocks // joined) for side in (one, other)]
        if joined > 1 and min(blocks) < _FEWEST_JOINED:
            break
        rho = correlation(*sides) if is_timed and joined == 1 else 0.0
        inflated = (1 + rho) / (1 - rho)
        sizes = [max(n * own.size / own.blocks / inflated, 2.0) for n, own in zip(blocks, (one, other), strict=True)]
        variances = [
            float(side @ side) * inflated * n / (n - 1) * (own.blocks - 1) / own.blocks
            for side, n, own in zip(sides, blocks, (one, other), strict=True)
        ]
        if independent is not None:
            if joined == 1:
                effects = _effect(variances[0], independent[0]), _effect(variances[1], independent[1])
            variances = [max(v, i) for v, i in zip(variances, independent, strict=True)]
        p, deviation, freedom = _judged(b - a, variances, sizes)
        if deviation == 0 and abs(b - a) > 1e-12 * max(abs(a), abs(b)):
            p = _sign_p(*blocks)
        if worst is None or p > worst.p:
            worst = Difference(a, b, p, deviation, freedom, blocks_a, blocks_b)
    assert worst is not None
    return worst._replace(effect_a=effects[0], effect_b=effects[1])


def _judged(distance: float, variances: Sequence[float], sizes: Sequence[float]) -> tuple[float, float, float]:
    """p, standard error and degrees of freedom (Welch, Satterthwaite) of a difference."""
    variance = sum(variances)
    scatter = sum(v * v / (n - 1) for v, n in zip(variances, sizes, strict=True))
    freedom = variance * variance / scatter if scatter > 0 else sum(sizes) - 2
    deviation = math.sqrt(variance)
    return (student_p(distance / deviation, freedom) if deviation > 0 else 1.0), deviation, freedom


def _effect(variance: float, independent: float) -> float:
    return variance / independent if independent > 0 else math.nan


def _joined(residual: Array, blocks: int) -> Array:
    """The residuals of several blocks each, added up."""
    if blocks == 1:
        return residual
    found: Array = np.add.reduceat(residual, np.arange(0, len(residual), blocks))
    return found


class _Side(NamedTuple):
    """`mean`: weighted over strata. `residual`: of each block, with the squares adding up to the variance of the mean.
    `blocks`: with data. `size`: as many independent blocks know as much of the variance."""

    mean: float
    residual: Array
    blocks: int
    size: float


def _side(part: Array, whole: Array, weights: Array) -> _Side:
    used = weights > 0
    if not used.any():
        return _Side(math.nan, np.zeros(len(part)), 0, 0)
    part, whole, weights = part[:, used], whole[:, used], weights[used]
    total = whole.sum(axis=0)
    mean = part.sum(axis=0) / total
    own = _blocks(whole).astype(float)
    unbiased = np.sqrt(own / np.maximum(own - 1, 1))  # the mean of few blocks lies too near to each of them
    residuals = (part - mean * whole) * (weights / total * unbiased)
    squares = (residuals * residuals).sum(axis=0)
    blocks = int((whole > 0).any(axis=1).sum())
    size = float(blocks)
    if squares.sum() > 0:
        squares = squares / squares.sum()
        size = min(size, max(float(squares @ own), 1 / float(squares @ squares)))
    return _Side(float(weights @ mean), residuals.sum(axis=1), blocks, size)


def _blocks(whole: Array) -> Array:
    """The number of blocks with data of each stratum."""
    found: Array = (whole > 0).sum(axis=0)
    return found


def _sign_p(blocks_a: int, blocks_b: int) -> float:
    """The chance that all blocks of one side lie above all of the other: for numbers without any scatter."""
    return 2 * math.exp(-log_choose(blocks_a + blocks_b, blocks_a))


def correlation(*residuals: Array) -> float:
    """The lag-1 autocorrelation of the residuals of several sides, 0 to 0.8, corrected for their shortness."""
    products = sum(float(r[1:] @ r[:-1]) for r in residuals)
    squares = sum(float(r @ r) for r in residuals)
    if squares <= 0:
        return 0.0
    shortest = sum(len(r) for r in residuals)
    return min(max(products / squares + len(residuals) / shortest, 0.0), _MOST_CORRELATED)


class Ranks(NamedTuple):
    """The mid-rank of each value among those of its owner on both sides, as a part of their number.

    `ridit`: float (n,). `ties`: for each owner, 1 minus the sum of cubes of equal values' shares: float (owners,).
    """

    ridit: Array
    ties: Array


def rank(owner: Array, bucket: Array, count: Array, owners: int) -> Ranks:
    """Rank the values of histograms: int64 (n,) each. An (owner, bucket) can have several rows."""
    order = np.lexsort((bucket, owner))
    o, b, c = owner[order], bucket[order], count[order].astype(float)
    total = np.bincount(owner, weights=count, minlength=owners)
    ties = np.ones(owners)
    ridit = np.zeros(len(owner))
    if not len(o):
        return Ranks(ridit, ties)
    starts = np.flatnonzero(np.concatenate(([True], (o[1:] != o[:-1]) | (b[1:] != b[:-1]))))
    tied = np.add.reduceat(c, starts)
    o_tied = o[starts]
    before = np.concatenate(([0.0], np.cumsum(tied)[:-1]))
    first_of_owner = np.concatenate(([0.0], np.cumsum(total)))[o_tied]
    middle_rank = (before - first_of_owner + tied / 2) / total[o_tied]
    ties -= np.bincount(o_tied, weights=(tied / total[o_tied]) ** 3, minlength=owners)
    ridit[order] = np.repeat(middle_rank, np.diff(np.append(starts, len(o))))
    return Ranks(ridit, ties)


def rank_variance(total_a: Array, total_b: Array, ties: Array) -> tuple[float, float]:
    """The variances of the mean ridits of both sides over strata, if all values are independent and equally spread.

    Of one stratum, their sum is the variance of the Mann-Whitney statistic with the correction for ties, by n * m.
    """
    weights = weights_of(total_a, total_b)
    used = weights > 0
    n, m, w, t = total_a[used], total_b[used], weights[used], ties[used]
    whole = n + m
    spread = w * w * t / 12 * whole / np.maximum(whole - 1, 1)
    return float((spread / n).sum()), float((spread / m).sum())


def share_variance(part_a: Array, total_a: Array, part_b: Array, total_b: Array) -> tuple[float, float]:
    """The variances of two shares over strata by the binomial distribution, with the share of both sides together."""
    weights = weights_of(total_a, total_b)
    used = weights > 0
    n, m, w = total_a[used], total_b[used], weights[used]
    share = (part_a[used] + part_b[used]) / (n + m)
    spread = w * w * share * np.maximum(1 - share, 0)
    return float((spread / n).sum()), float((spread / m).sum())


def log_choose(n: float, k: float) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def exact_p(part_a: int, whole_a: int, part_b: int, whole_b: int) -> float:
    """Fisher's exact test of two shares, two-sided: all tables that are no more likely than this one."""
    part, whole = part_a + part_b, whole_a + whole_b
    low, high = max(0, part - whole_b), min(part, whole_a)
    if high <= low:
        return 1.0
    base = log_choose(whole, part)
    k = np.arange(low, high + 1)
    logs = np.array([log_choose(whole_a, i) + log_choose(whole_b, part - i) for i in k.tolist()]) - base
    mine = logs[part_a - low]
    return min(1.0, float(np.exp(logs[logs <= mine + 1e-7]).sum()))


def student_p(t: float, freedom: float) -> float:
    """The two-sided p of Student's t."""
    if math.isnan(t) or freedom <= 0:
        return 1.0
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x > (a + 1) / (a + b + 2):
        return 1 - math.exp(log_front) / b * _beta_fraction(b, a, 1 - x)
    return math.exp(log_front) / a * _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    found = d
    for m in range(1, 500):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + step * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + step / c
            c = c if abs(c) > tiny else tiny
            found *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return found


def false_discovery(p: Array) -> Array:
    """Benjamini-Hochberg: for each p the smallest false discovery rate at which it is a discovery, float (n,)."""
    n = len(p)
    if not n:
        return np.zeros(0)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * n / np.arange(1, n + 1)
    found = np.empty(n)
    found[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return found
