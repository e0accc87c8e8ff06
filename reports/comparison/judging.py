"""Judge all comparisons of two sides: `Change`s that are sure and large enough, one for each cell and measure.

The false discovery rate is controlled over all comparisons of a family (Benjamini-Hochberg): times, sizes, errors and
so on. So a rare error is not lost among thousands of times. A change counts only if it is also large enough for an
operator, whatever its p: see `Demands`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import WAITS
from kafkatap.kernels.arrays import distinct_values

from ..batch import Array
from .cells import CONNECTION_KINDS, KINDS, TOPIC_KINDS, Cell, cells_of
from .leaves import Forms, Leaves
from .measures import MEANS, RANKS, RATES, SHARES, TAIL, WAITING, Measure, of_exchanges, ranked
from .quality import Quality
from .statistics import Difference, false_discovery

#: Values (exchanges, batches ...) on each side below which nothing is compared.
FEWEST = 20
#: A change with a larger p is none, so its values are not worked out.
_PERHAPS = 0.05
TIMES = ("total", "broker")
SIZES = ("size", "records")


class Demands(NamedTuple):
    """How large a change has to be. `ratio`: relative. `time`: of times, ns. `share`: of shares. `rate`: the false
    discovery rate."""

    ratio: float = 0.2
    time: float = 100_000
    share: float = 0.002
    rate: float = 0.01


class Change(NamedTuple):
    """One comparison. `a`, `b`: what is shown: medians (RANKS of times), 99th percentiles (TAIL), means, shares, rates
    (by second). `direction`: 1 up, -1 down. `count_a`, `count_b`: values. `superiority`: P(B > A) + P(B = A) / 2 of
    ranks. `q`: the false discovery rate at which it is a discovery.
    """

    cell: Cell
    measure: Measure
    a: float
    b: float
    difference: Difference
    count_a: float
    count_b: float
    q: float = 1.0
    is_large: bool = False

    @property
    def direction(self) -> int:
        return 1 if self.difference.b > self.difference.a else -1

    @property
    def superiority(self) -> float | None:
        return 0.5 + self.difference.b - self.difference.a if self.measure.test == RANKS else None

    @property
    def ratio(self) -> float:
        """b by a; infinite from 0."""
        return self.b / self.a if self.a > 0 else math.inf if self.b > 0 else 1.0

    def is_sure(self, rate: float) -> bool:
        return self.q <= rate and self.is_large


class Judged(NamedTuple):
    """`changes`: of all cells and measures that could be judged. `leaves`: those of the exchanges. `comparisons`: how
    many there were. `too_few`: comparisons without enough blocks or values. `topic_total`: of topics."""

    changes: list[Change]
    leaves: Leaves
    topics: Leaves
    cells: list[Cell]
    comparisons: int
    too_few: int
    topic_total: Measure | None


def family(measure: str) -> str:
    """The measures among which the false discovery rate is controlled: times, sizes, or one of the others."""
    if measure in (*TIMES, *WAITING, "rtt"):
        return "times"
    return "sizes" if measure in SIZES else "errors" if measure.startswith("error") else measure


def judge(forms: Forms, demands: Demands, quality: Quality) -> Judged:
    """Compare two sides, without what their quality does not allow."""
    leaves, topics = forms["exchanges"], forms["topics"]
    cells: list[Cell] = []
    changes: list[Change] = []
    too_few = 0
    topic_total: Measure | None = None
    for made, kinds in ((leaves, KINDS), (topics, TOPIC_KINDS)):
        if not len(made) or (made is topics and not quality.allows("topics")):
            continue
        requests = made.value("requests")
        own = cells_of(made, kinds, requests[0].sum(0) + requests[1].sum(0))
        measures = of_exchanges(made)
        if made is leaves:
            cells = own
            measures += of_errors(leaves, forms["errors"])
        else:
            topic_total = measures[0].summed() if quality.allows("total") else None
        found, few = _compare_all(made, own, measures, demands, quality)
        changes += found
        too_few += few
    for made, measures in of_connections(forms):
        requests = measures[0].whole
        own = cells_of(made, CONNECTION_KINDS, requests[0].sum(0) + requests[1].sum(0))
        found, few = _compare_all(made, own, measures, demands, quality)
        changes += found
        too_few += few
    families = np.array([family(change.measure.name) for change in changes], str)
    q = np.ones(len(changes))
    for one in distinct_values(families):
        own = families == one
        q[own] = false_discovery(np.array([c.difference.p for c, mine in zip(changes, own, strict=True) if mine]))
    changes = [change._replace(q=float(value)) for change, value in zip(changes, q, strict=True)]
    return Judged(changes, leaves, topics, cells, len(changes), too_few, topic_total)


def of_errors(leaves: Leaves, errors: Leaves) -> list[Measure]:
    """The share of the answered exchanges with an error code, for each code."""
    if not len(errors):
        return []
    number = {key: n for n, key in enumerate(leaves.keys)}
    target = np.array([number.get(key._replace(code=None), -1) for key in errors.keys], np.int64)
    codes = np.array([key.code for key in errors.keys])
    counts, answered = errors.value("exchanges"), leaves.value("answered")
    found = []
    for code in distinct_values(codes).tolist():
        chosen = np.flatnonzero((codes == code) & (target >= 0))
        parts = []
        for side in (0, 1):
            part = np.zeros_like(answered[side])
            np.add.at(part.T, target[chosen], counts[side][:, chosen].T)
            parts.append(part)
        found.append(Measure(f"error {code}", SHARES, (parts[0], parts[1]), answered))
    return found


def of_connections(forms: Forms) -> list[tuple[Leaves, list[Measure]]]:
    """The measures of connections: refused ones, round trips; and retransmissions over connections."""
    found: list[tuple[Leaves, list[Measure]]] = []
    opened, traffic = forms["connections"], forms["traffic"]
    if len(opened):
        value = {name: opened.value(name) for name in ("opened", "refused", "asked")}
        a, b = value["asked"]
        seconds = (
            np.broadcast_to(opened.seconds[0][:, None], a.shape),
            np.broadcast_to(opened.seconds[1][:, None], b.shape),
        )
        found.append((opened, [
            Measure("opened", RATES, value["opened"], seconds), Measure("refused", RATES, value["refused"], seconds),
            *ranked(opened, "rtt"),
        ]))  # fmt: skip
    if len(traffic):
        packets = traffic.value("packets")
        found.append((traffic, [
            Measure("retransmitted", SHARES, traffic.value("retransmitted"), packets, is_timed=False),
        ]))  # fmt: skip
    return found


def _compare_all(
    leaves: Leaves, cells: list[Cell], measures: list[Measure], demands: Demands, quality: Quality
) -> tuple[list[Change], int]:
    found, too_few = [], 0
    measures = [measure.summed() for measure in measures if quality.allows(measure.name)]
    for cell in cells:
        for measure in measures:
            if not fits(cell, measure) or (measure.name == "rate" and not quality.allows_rate(cell.kind)):
                continue
            change = compare(leaves, cell, measure, demands)
            if change is None:
                too_few += 1
            else:
                found.append(change)
    return found, too_few


def fits(cell: Cell, measure: Measure) -> bool:
    """Whether a measure says something of a cell. Sizes of different APIs are not compared together."""
    return "api" in cell.kind or measure.name not in SIZES


def members_of(leaves: Leaves, cell: Cell, measure: Measure) -> Array:
    """The leaves of a cell that a measure covers: times without APIs that wait for data, unless these are the cell."""
    if measure.name in TIMES and "api" not in cell.kind:
        waits = np.array([leaves.keys[n].api in WAITS for n in cell.members.tolist()], bool)
        kept: Array = cell.members[~waits]
        return kept
    return cell.members


def compare(leaves: Leaves, cell: Cell, measure: Measure, demands: Demands) -> Change | None:
    """Compare a cell by a measure; None if there is too little of it."""
    members = members_of(leaves, cell, measure)
    if not len(members):
        return None
    a, n, b, m = measure.totals(members)
    if measure.test == RATES:
        if max(a.sum(), b.sum()) < FEWEST or (min(a.sum(), b.sum()) < 1 and measure.name == "rate"):
            return None
        counts = float(a.sum()), float(b.sum())
    else:
        both = (n > 0) & (m > 0)
        counts = float(n[both].sum()), float(m[both].sum())
        if min(counts) < FEWEST:
            return None
        if measure.test in (MEANS, SHARES) and a.sum() + b.sum() == 0:
            return None
    found = measure.compare(members)
    if not found.is_judged:
        return None
    shown = _shown(measure, members, found) if found.p < _PERHAPS else (found.a, found.b)
    change = Change(cell._replace(members=members), measure, *shown, found, *counts)
    return change._replace(is_large=found.p < _PERHAPS and _is_large(change, demands))


def _shown(measure: Measure, members: Array, found: Difference) -> tuple[float, float]:
    if measure.test in (RANKS, TAIL):
        if measure.name in SIZES:
            return measure.means(members)
        a, b = measure.quantiles(members, (0.99 if measure.test == TAIL else 0.5,))
        return a[0], b[0]
    return found.a, found.b


def _is_large(change: Change, demands: Demands) -> bool:
    a, b = change.a, change.b
    if not (math.isfinite(a) and math.isfinite(b)) or a == b:
        return False
    low, high = min(a, b), max(a, b)
    if low > 0 and high / low < 1 + demands.ratio:
        return False
    name, test = change.measure.name, change.measure.test
    if (b > a) != (change.direction > 0):
        return False  # the median and the ranks disagree
    if test == SHARES:
        return high - low >= demands.share
    if test in (MEANS, RANKS, TAIL) and name not in SIZES:
        return high - low >= demands.time
    return True
