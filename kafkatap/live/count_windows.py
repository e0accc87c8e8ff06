"""Counts of each second, of the last seconds together, and since the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafkatap.reports.counting.counts import ReportCounts

#: How many single seconds are kept.
KEPT = 60
_TEN = 10


class Windows:
    """`make` returns new, empty counts. `start`: the counts of all seconds since the start or the last reset."""

    def __init__(self, make: Callable[[], ReportCounts]) -> None:
        self._make = make
        self.start = make()
        self.seconds: deque[ReportCounts] = deque(maxlen=KEPT)
        self._tens: deque[ReportCounts] = deque(maxlen=KEPT // _TEN)  # sums of ten, from the oldest second on
        self._added = 0

    def add(self, counts: ReportCounts) -> None:
        """Add the counts of the next second."""
        self.start.merge(counts)
        self.seconds.append(counts)
        self._added += 1
        if self._added % _TEN == 0:
            self._tens.append(self._sum(list(self.seconds)[-_TEN:]))

    def last(self, seconds: int) -> ReportCounts:
        """The counts of the last seconds, as many as there are. Fast for 10 and 60."""
        every = list(self.seconds)[-seconds:]
        loose = self._added % _TEN
        tens = min((len(every) - loose) // _TEN, len(self._tens))
        if tens <= 0:
            return self._sum(every)
        whole = tens * _TEN
        older = every[: len(every) - loose - whole]
        return self._sum([*older, *list(self._tens)[-tens:], *(every[len(every) - loose :] if loose else [])])

    def reset(self) -> None:
        """Remove all counts."""
        self.start = self._make()
        self.seconds.clear()
        self._tens.clear()
        self._added = 0

    def every(self) -> list[ReportCounts]:
        """All counts that are kept, for `memory_limits`."""
        return [self.start, *self.seconds, *self._tens]

    def _sum(self, parts: list[ReportCounts]) -> ReportCounts:
        total = self._make()
        for part in parts:
            total.merge(part)
        return total
