"""Counts of the exchanges that a typed filter selects: of the last ones that are kept, and of all that come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.reports.batch import Array, Batch
from kafkatap.reports.counting.counts import ReportCounts

from ...engine.selection import Selection, Selector
from ..count_windows import KEPT, Windows
from ..provisional_rows import revoked_rows, without_confirmed
from ..sink import Sink
from .recent_exchanges import Recent

if TYPE_CHECKING:
    from ...engine.engine import Engine

SECOND = 1_000_000_000


class Narrowed(Sink):
    """`selection`: None: nothing is counted. `since`: from when on all its exchanges are counted, ns since the epoch.
    Callers have the monitor's lock."""

    def __init__(self) -> None:
        self.selection: Selection | None = None
        self.since = 0
        self._selector: Selector | None = None
        self._make: Callable[[], ReportCounts] = ReportCounts
        self.windows = Windows(self._make)
        self._slice = self._make()
        self._first = 0  # the first exchange that may be counted

    def begin(self, selection: Selection, recent: Recent, now: int, by_topic: bool) -> None:
        """Count the exchanges of `recent` that are selected, by the seconds in which they ended, and then those that
        come. `now`: ns since the epoch."""
        self._make = lambda: ReportCounts(by_topic=by_topic)
        self.windows, self._slice = Windows(self._make), self._make()
        self.selection, self._selector = selection, None
        batch, context = recent.batch()
        numbers = batch.exchanges["exchange"]
        self._first = int(numbers.min(initial=np.iinfo(np.int64).max)) if len(numbers) else 0
        ended = np.maximum(_known(batch.exchanges["request_last"]), _known(batch.exchanges["response_last"]))
        self.since = int(ended[ended > 0].min()) if (ended > 0).any() else now
        picked = Selector(selection, context).pick(batch)
        ended = ended[np.isin(numbers, [] if picked is None else picked.exchanges["exchange"])]
        ages = np.clip((now - ended) // SECOND, 0, KEPT)
        for age in range(KEPT, -1, -1):
            counts = self._make()
            chosen = ages == age
            if picked is not None and chosen.any():
                counts.add(picked.picked(chosen))
            counts.seal()
            if age == KEPT:
                self.windows.start.merge(counts)
            else:
                self.windows.add(counts)

    def end(self) -> None:
        """Count nothing any more."""
        self.selection = self._selector = None
        self.windows, self._slice = Windows(self._make), self._make()

    def restart(self, now: int) -> None:
        """Begin anew, with what comes."""
        self.windows, self._slice, self.since = Windows(self._make), self._make(), now

    def counts(self, window: int | None) -> ReportCounts:
        """Those of the last `window` seconds; None: since `since`."""
        return self.windows.start if window is None else self.windows.last(window)

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        if self.selection is None:
            return
        self._add(without_confirmed(batch), engine)
        for wrong in revoked_rows(batch, self._first):
            revoked = self._make()
            for each in self._picked(wrong, engine):
                revoked.add(each)
            self._slice.subtract(revoked)

    def add_provisional(self, batch: Batch, engine: Engine) -> None:
        if self.selection is not None:
            self._add(batch, engine)

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        if self.selection is not None:
            self._slice.seal()
            self.windows.add(self._slice)
            self._slice = self._make()

    def resolve_names(self, engine: Engine) -> None:
        self._selector = None
        self.restart(engine.latest)

    def _add(self, batch: Batch, engine: Engine) -> None:
        for each in self._picked(batch, engine):
            self._slice.add(each)

    def _picked(self, batch: Batch, engine: Engine) -> list[Batch]:
        assert self.selection is not None
        if self._selector is None:
            self._selector = Selector(self.selection, engine)
        picked = self._selector.pick(batch)
        return [] if picked is None else [picked]


def _known(times: Array) -> Array:
    found: Array = np.where(times == NO_TIME, 0, times)
    return found
