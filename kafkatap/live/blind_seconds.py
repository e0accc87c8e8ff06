"""`BlindSeconds`: a line for each time of which packets are missing, once it is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkatap.reports import units
from kafkatap.reports.finding_words import counted

from .governor import PAUSED
from .sink import Sink

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ..engine.engine import Engine

#: A time is over when nothing was dropped for so long.
CALM_NS = 10 * units.SECOND


class BlindSeconds(Sink):
    """`dropped`: how many packets the kernel dropped so far. `level`: the governor's."""

    def __init__(
        self, notify: Callable[..., None], dropped: Callable[[], int], level: Callable[[], int], utc: bool = False
    ) -> None:
        self._notify, self._dropped, self._level, self._utc = notify, dropped, level, utc
        self._before = dropped()
        self._begin = self._end = self._count = 0
        self._is_paused = False

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        dropped = self._dropped()
        new, self._before = dropped - self._before, dropped
        if new > 0:
            self._begin = self._begin or now - units.SECOND
            self._end = now
            self._count += new
            self._is_paused |= self._level() == PAUSED
        elif self._begin and now - self._end >= CALM_NS:
            self._tell()

    def close(self, engine: Engine) -> None:
        if self._begin:
            self._tell()

    def _tell(self) -> None:
        begin, end = (units.clock(at, self._utc, 0) for at in (self._begin, self._end))
        why = ", to keep to --max-cpu" if self._is_paused else ""
        what = f"{counted(self._count, 'packet')} dropped{why}"
        self._notify(
            f"{begin} to {end}: {what}; counts and events of this time lack them",
            kind="dropped", begin=units.iso(self._begin), end=units.iso(self._end), packets=self._count,
            is_paused=self._is_paused,
        )  # fmt: skip
        self._begin = self._end = self._count = 0
        self._is_paused = False
