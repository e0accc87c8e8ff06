"""What is compared, and how: each measure is a ratio of sums over blocks, for any set of leaves.

name             of what                                             judged by
total, broker    time of answered exchanges                          ranks, and the share of the slowest values
HOL, ...         the other parts of the total time                   means
size, records    bytes and records of a request, response or batch   ranks
shares           throttled, unanswered, failed by error code         shares
rate             requests in a second                                rates
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.time_parts import DURATIONS, parts_of

from ..batch import Array
from ..counting.histogram import middle
from .leaves import Leaves, Values
from .statistics import Difference, difference, exact_p, rank, rank_variance, share_variance, weights_of

RANKS, TAIL, MEANS, SHARES, RATES = "ranks", "slowest", "means", "shares", "rates"
#: Parts of the total time that are compared by their means. Broker time has ranks.
WAITING = ("HOL", "throttle", "loss", "receiver", "sender", "path")
#: The slowest values: those above this part of the values of both sides together.
SLOWEST = 0.95
#: Counts of events below which a share is also judged by Fisher's exact test.
_FEW_EVENTS = 50


class Measure(NamedTuple):
    """One number of all leaves: `part` by `whole`, float (blocks, leaves) for each side; `whole` of RATES: seconds.

    `values`: its histograms, if it has some. `ties`: of ranks. `is_timed`: its blocks are of time; otherwise they are
    connections, and leaves are added up before they are compared. `sums`: of part and whole over blocks, for A and B.
    """

    name: str
    test: str
    part: tuple[Array, Array]
    whole: tuple[Array, Array]
    values: Values | None = None
    ties: Array | None = None
    is_timed: bool = True
    sums: tuple[Array, ...] = ()

    def summed(self) -> Measure:
        """The same with its sums."""
        (pa, pb), (wa, wb) = self.part, self.whole
        return self._replace(sums=tuple(side.sum(axis=0) for side in (pa, wa, pb, wb)))

    def totals(self, members: Array) -> tuple[Array, Array, Array, Array]:
        """Sums over blocks: part and whole of A, then of B, float (members,)."""
        a, n, b, m = (side[members] for side in self.sums)
        return a, n, b, m

    def compare(self, members: Array) -> Difference:
        """Compare the sides over some leaves (their numbers, int64)."""
        (pa, pb), (wa, wb) = self.part, self.whole
        if self.test == RATES:
            parts = [side[:, members].sum(axis=1, keepdims=True) for side in (pa, pb)]
            times = [side[:, :1] for side in (wa, wb)]
            poisson = [float(p.sum()) / max(float(t.sum()), 1e-9) ** 2 for p, t in zip(parts, times, strict=True)]
            return difference(parts[0], times[0], parts[1], times[1], independent=(poisson[0], poisson[1]))
        a, n, b, m = self.totals(members)
        sides = [side[:, members] for side in (pa, wa, pb, wb)]
        if not self.is_timed:
            sides = [side.sum(axis=1, keepdims=True) for side in sides]
            a, n, b, m = (np.array([side.sum()]) for side in (a, n, b, m))
        independent = None
        if self.test == RANKS and self.ties is not None:
            independent = rank_variance(n, m, self.ties[members])
        elif self.test in (SHARES, TAIL):
            independent = share_variance(a, n, b, m)
        found = difference(sides[0], sides[1], sides[2], sides[3], independent=independent, is_timed=self.is_timed)
        if self.test == SHARES and a.sum() + b.sum() <= _FEW_EVENTS:
            exact = exact_p(int(a.sum()), int(n.sum()), int(b.sum()), int(m.sum()))
            found = found._replace(p=max(found.p, exact))
        return found

    def quantiles(self, members: Array, parts: tuple[float, ...]) -> tuple[list[float], list[float]]:
        """Quantiles of the values of both sides, as if both had the same mix of leaves."""
        (one, of_one), (other, of_other) = self._spread(members)
        return _quantiles(one, of_one, parts), _quantiles(other, of_other, parts)

    def means(self, members: Array) -> tuple[float, float]:
        """The means of the values of both sides, with the same mix."""
        a, b = (
            float(middle(bucket) @ share) / max(float(share.sum()), 1e-300) for bucket, share in self._spread(members)
        )
        return a, b

    def _spread(self, members: Array) -> list[tuple[Array, Array]]:
        """The buckets of the values of each side, and their shares with the same mix of leaves."""
        assert self.values is not None
        _, n, _, m = self.totals(members)
        weights = weights_of(n, m)
        number = np.full(self.part[0].shape[1], -1, np.int64)
        number[members] = np.arange(len(members))
        starts = np.searchsorted(self.values.leaf, [members, members + 1])
        rows = np.concatenate([np.arange(first, last) for first, last in starts.T.tolist()])
        side, own = self.values.side[rows], number[self.values.leaf[rows]]
        bucket, times = self.values.bucket[rows], self.values.times[rows]
        found = []
        for which, total in enumerate((n, m)):
            mine = side == which
            weight = np.where(total > 0, weights / np.maximum(total, 1e-300), 0)
            found.append((bucket[mine], weight[own[mine]] * times[mine]))
        return found


def _quantiles(bucket: Array, share: Array, parts: tuple[float, ...]) -> list[float]:
    whole = share.sum()
    if not len(bucket) or whole <= 0:
        return [float("nan")] * len(parts)
    order = np.argsort(bucket, kind="stable")
    running = np.cumsum(share[order]) / whole
    at = np.minimum(np.searchsorted(running, np.array(parts) - 1e-9), len(order) - 1)
    return [float(v) for v in middle(bucket[order][at])]


def ranked(leaves: Leaves, metric: str, is_timed: bool = True, with_tail: bool = False) -> list[Measure]:
    """The ranks of a histogram's values, and the share of the slowest."""
    values = leaves.values(metric)
    ranks = rank(values.leaf, values.bucket, values.times, len(leaves))
    whole = leaves.sums(values, values.times.astype(float))
    found = [
        Measure(metric, RANKS, leaves.sums(values, values.times * ranks.ridit), whole, values, ranks.ties, is_timed)
    ]
    if with_tail:
        part = leaves.sums(values, values.times * (ranks.ridit > SLOWEST))
        found.append(Measure(metric, TAIL, part, whole, values, None, is_timed))
    return found


def parts_of_time(value: Mapping[str, tuple[Array, Array]]) -> dict[str, tuple[Array, Array]]:
    """The parts of the total time (`dissector.time_parts`) by name, of both sides."""
    a, b = (parts_of({name: value[name][side] for name in DURATIONS}) for side in (0, 1))
    return {name: (a[name], b[name]) for name in a}


def of_exchanges(leaves: Leaves) -> list[Measure]:
    """The measures of leaves of the form `exchanges` or `topics`."""
    value = {name: leaves.value(name) for name in leaves.sides[0].counts.forms[leaves.form].form.values}
    answered = value["answered"]
    measures = ranked(leaves, "total", with_tail=True)
    if leaves.form == "exchanges":
        measures += ranked(leaves, "broker", with_tail=True)
        measures += [*ranked(leaves, "size"), *ranked(leaves, "records")]
        for name, part in parts_of_time(value).items():
            if name in WAITING:
                measures.append(Measure(name, MEANS, part, answered))
        measures.append(Measure("throttled", SHARES, value["throttled"], value["throttle_known"]))
    measures.append(Measure("unanswered", SHARES, value["unanswered"], value["expecting"]))
    seconds = tuple(
        np.broadcast_to(s[:, None], v.shape) for s, v in zip(leaves.seconds, value["requests"], strict=True)
    )
    measures.append(Measure("rate", RATES, value["requests"], (seconds[0], seconds[1])))
    return measures
