"""What the live screen shows rows of: `Live`, what the monitor has now, or `Frozen`, a copy of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.findings import Finding

from ...engine.selection import Selection
from ..broker_health import BrokerRow
from ..sink import Sink, names_of
from .group_rows import GroupCounts, knows
from .last_events import LastEvents
from .narrowed import Narrowed
from .pages import WINDOWS
from .recent_exchanges import Recent

if TYPE_CHECKING:
    from kafkatap.reports.groups.group import Group

    from ..monitor import Monitor
    from ..status import Status


class Kept:
    """What the screen keeps besides the monitor's counts. Its `sinks` belong to the monitor."""

    def __init__(self, recent: Recent | None = None) -> None:
        self.recent = recent or Recent()
        self.events, self.groups, self.narrowed = LastEvents(), GroupCounts(), Narrowed()

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return self.recent, self.events, self.groups, self.narrowed


class Live:
    """The rows that the monitor has now."""

    def __init__(self, monitor: Monitor, kept: Kept) -> None:
        self.monitor, self.kept = monitor, kept
        self.has_lag = knows(monitor.engine, "fetch partition")
        self.has_groups = knows(monitor.engine, "join group")
        self.has_events = monitor.events is not None

    @property
    def status(self) -> Status:
        return self.monitor.status

    @contextmanager
    def reading(
        self, window: int | None, selection: Selection | None = None
    ) -> Iterator[tuple[ReportCounts, Context, Recent]]:
        """Counts, names and exchanges, valid until the end of the block. `selection`: that of `narrow`; the exchanges
        are all."""
        engine = self.monitor.engine
        with self.monitor.reading(None if selection is not None else window) as counts:
            chosen = counts if selection is None else self.kept.narrowed.counts(window)
            yield chosen, names_of(engine)._replace(first=engine.first), self.kept.recent

    def narrow(self, selection: Selection | None) -> None:
        """Count what is selected, from the exchanges that are kept on; None: no more."""
        with self.monitor.lock:
            if selection is None:
                self.kept.narrowed.end()
            else:
                topics = self.monitor.governor.topics
                self.kept.narrowed.begin(selection, self.kept.recent, self.status.now, topics)

    def restart(self) -> None:
        """Restart all counts."""
        self.monitor.reset()
        with self.monitor.lock:
            self.kept.groups.restart()
            self.kept.narrowed.restart(self.status.now)

    def since(self, selection: Selection | None) -> int:
        """When the counts begin, ns since the epoch."""
        started = self.status.started
        return started if selection is None else max(started, self.kept.narrowed.since)

    @property
    def waiting(self) -> Batch:
        """The oldest request of each connection that waits for anything but data, members or a quota. Its numbers are
        valid within `reading`."""
        whole = self.monitor.engine.overdue(self.status.now, for_replicas=False)
        return next(iter(self.monitor.selected(whole)), Batch(whole.exchanges[:0], whole.results))

    @property
    def events(self) -> Sequence[tuple[int, Finding]]:
        """The last events with their numbers, the latest first."""
        with self.monitor.reading(None):
            return list(self.kept.events.found)

    def groups(self) -> list[Group]:
        """All groups."""
        with self.monitor.reading(None):
            return self.kept.groups.groups()

    def brokers(self, window: int | None) -> list[BrokerRow]:
        """The connections of brokers."""
        with self.monitor.reading(None):
            return self.monitor.health.rows(window)


class Frozen:
    """A copy of all rows at one moment: all windows, names and exchanges."""

    def __init__(self, live: Live) -> None:
        self.status = live.status
        self.has_lag, self.has_groups, self.has_events = live.has_lag, live.has_groups, live.has_events
        self.events, self._groups = live.events, live.groups()
        self._narrowed = Narrowed()
        self._counts: dict[int | None, ReportCounts] = {}
        with live.reading(None) as (_, names, recent):
            self._context = Context(
                strings=names.strings[:], addresses=list(names.addresses), topic_names=dict(names.topic_names),
                first=names.first, hosts=names.hosts,
            )  # fmt: skip
            self.waiting = live.waiting
            self._recent = recent.frozen()
            self._brokers = {window: live.brokers(window) for window in WINDOWS}
            for window in WINDOWS:
                with live.monitor.reading(window) as counts:
                    self._counts[window] = ReportCounts(by_topic=counts.by_topic)
                    self._counts[window].merge(counts)

    @contextmanager
    def reading(
        self, window: int | None, selection: Selection | None = None
    ) -> Iterator[tuple[ReportCounts, Context, Recent]]:
        if selection is None:
            yield self._counts[window], self._context, self._recent
        else:
            yield self._narrowed.counts(window), self._recent.batch()[1], self._recent

    def narrow(self, selection: Selection | None) -> None:
        """Count what is selected of the exchanges that are kept."""
        if selection is not None:
            self._narrowed.begin(selection, self._recent, self.status.now, self._counts[None].by_topic)

    def since(self, selection: Selection | None) -> int:
        return self.status.started if selection is None else max(self.status.started, self._narrowed.since)

    def groups(self) -> list[Group]:
        return self._groups

    def brokers(self, window: int | None) -> list[BrokerRow]:
        return self._brokers[window]
