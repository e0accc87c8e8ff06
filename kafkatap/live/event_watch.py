"""`EventWatch`: events while they happen, by the section `events` over the last minutes.

Each second it adds what the engine still holds, as it would be if the capture ended now: open connections, and the
oldest request of each connection that waits. Then it asks the section for its findings. So live capture and reports
judge by the same rules. Events of which the rules want to know the end of a capture (a leak, packets that were lost)
are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkatap.reports import units
from kafkatap.reports.batch import Array, Batch
from kafkatap.reports.connection_words import NOT_CLOSED
from kafkatap.reports.findings import Finding

from .sink import Sink, names_of

if TYPE_CHECKING:
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ..engine.engine import Engine

SECOND = 1_000_000_000
#: Rows of each count that are kept, the latest: minutes of a busy cluster. They bound the time of a look.
ROWS = 20_000
#: Rare requests are kept so long: the time between the announcement of a broker's end and the end.
KEPT_NS = 300 * SECOND
#: Two events of the same kind and party that begin within this are one, which is better known now.
_SAME_NS = 2 * SECOND
#: An event that began longer ago is no news: the watch was started anew, or slept.
_NEWS_NS = 60 * SECOND
#: Requests that wait for so long can tell a hang.
_WAITS_NS = SECOND
#: Events that rest on what did not come: packets that the kernel dropped may be what is missing.
_BY_SILENCE = frozenset(("broker_hung", "broker_unreachable", "hosts_cut_off"))
#: A silence that begins so long before a drop, or later, may be one of the capture.
_NEAR_NS = 2 * SECOND
#: Events that are complete only when a capture is.
_AT_END = frozenset(("connection_leak", "capture_dropped", "capture_hole"))
_WANTED = ("events",)


class EventWatch:
    """`end_second` returns the events that are new."""

    def __init__(self, engine: Engine, now: int) -> None:
        self._counts = engine.section_counts(_WANTED, ROWS)
        self._began = now
        self._dropped = 0  # when the kernel dropped packets for the last time
        self._announced: dict[tuple[object, ...], int] = {}  # by kind and party: when the last one began

    def add(self, batch: Batch) -> None:
        """Add finished exchanges, each once."""
        self._counts.add(batch)

    def add_connections(self, rows: Array) -> None:
        """Add connections (CONNECTION_ROW) that ended."""
        self._counts.add_connections(rows)

    def restart(self, engine: Engine) -> None:
        """Forget all: the engine is about to change its numbers."""
        self._counts = engine.section_counts(_WANTED, ROWS)
        self._began = engine.latest

    def note_drops(self, now: int) -> None:
        """The kernel dropped packets within the last second."""
        self._dropped = now

    def end_second(self, engine: Engine, now: int) -> list[Finding]:
        """The events that were found by now, and not before."""
        from kafkatap.reports.counting.counts import ReportCounts
        from kafkatap.reports.section_parts.section import SectionInput
        from kafkatap.reports.sections.events import findings

        self._counts.finish()
        self._counts.forget_events("events", now - KEPT_NS)
        context = names_of(engine)._replace(first=self._began, last=now)
        found = findings(SectionInput(self._with_open(engine, now), ReportCounts(), context, {}))
        return list(self._new(found, now))

    def _with_open(self, engine: Engine, now: int) -> SectionCounts:
        """The counts, with what is open and waits now."""
        made = engine.section_counts(_WANTED, 2 * ROWS)
        made.merge(self._counts)
        rows = engine.open_rows()
        # What waits on a connection that one end has closed gets no answer: its end is that of the connection.
        rows["unanswered"] += rows["closed_with"] != NOT_CLOSED
        made.add_connections(rows)
        waiting = engine.waiting_rows(now - _WAITS_NS)
        if waiting is not None:
            made.add(waiting)
        made.finish()
        return made

    def _new(self, found: list[Finding], now: int) -> Iterator[Finding]:
        for finding in found:
            begin = finding.begin or now
            if finding.id in _AT_END or begin < max(now - _NEWS_NS, self._began):
                continue
            if self._is_doubtful(finding):
                continue
            party = next((party for party in finding.parties if party.kind != "error"), None)
            keys = ((finding.id, party), (finding.id, begin))  # a broker's address may be learnt later
            before = max(self._announced.get(key, 0) for key in keys)
            self._announced.update(dict.fromkeys(keys, begin))
            if begin - before > _SAME_NS:
                yield finding
        self._announced = {key: begin for key, begin in self._announced.items() if begin > now - 2 * _NEWS_NS}

    def _is_doubtful(self, finding: Finding) -> bool:
        """Whether what did not come may have been dropped here. The end of a silence is as doubtful as the silence."""
        name, _, begin = finding.cause if finding.id == "broker_returned" and finding.cause else finding.key
        return name in _BY_SILENCE and (begin or 0) < self._dropped + _NEAR_NS


class EventNotices(Sink):
    """Writes a line for each event: to standard error, and to the screen while it has the terminal."""

    def __init__(self, notify: Callable[..., None], utc: bool = False) -> None:
        self._notify, self._utc = notify, utc

    def add_event(self, finding: Finding) -> None:
        self._notify(
            units.safe(f"{units.clock(finding.begin or 0, self._utc)} {finding.text}"),
            kind="event", event=finding.id, severity=finding.severity,
            begin=None if finding.begin is None else units.iso(finding.begin), numbers=dict(finding.numbers),
            parties=[party._asdict() for party in finding.parties],
        )  # fmt: skip
