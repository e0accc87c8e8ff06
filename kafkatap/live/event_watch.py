"""`EventWatch`: events while they happen, by the section `events` over the last minutes.

Each second it adds what the engine still holds, as it would be if the capture ended with the latest packet: open
connections, and the oldest request of each connection that waits. Then it asks the section for its findings. So live
capture and reports judge by the same rules, and a report on the packets so far says the same. Events of which the rules
want to know the end of a capture (a leak, packets that were lost) are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.kernels.arrays import grown, is_among, taken
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reassembly.dtypes import ROW_OPEN
from kafkatap.reports import kinds, units
from kafkatap.reports.batch import Array, Batch
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import NOT_CLOSED
from kafkatap.reports.findings import NOTE, Finding

from .sink import Sink, names_of

if TYPE_CHECKING:
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ..engine.engine import Engine

SECOND = 1_000_000_000
#: Rows of each count that are kept, the latest: minutes of a busy cluster. They bound the time of a look.
ROWS = 20_000
#: Rare requests are kept so long: the time between the announcement of a broker's end and the end.
KEPT_NS = 300 * SECOND
#: An event that begins within this after another one of the same kind and party is that one, which is better known now.
_SAME_NS = 2 * SECOND
#: Requests that wait for so long can tell a hang.
_WAITS_NS = SECOND
#: Events that rest on what did not come: packets that the kernel dropped may be what is missing.
_BY_SILENCE = kinds.SILENCES | {kinds.CUT_OFF, kinds.FROZE}
#: A silence that begins so long before a drop, or later, may be one of the capture.
_NEAR_NS = 2 * SECOND
_WANTED = ("events",)
#: Of a connection by number: which one it was, and how many packets it had, when its row was made.
_MADE = record_dtype(("serial", "i8"), ("packets", "i8"))


class EventWatch:
    """`end_second` returns the events that are new."""

    def __init__(self, engine: Engine) -> None:
        from kafkatap.reports.sections.event_counts import CONNECTION_COLUMNS

        self._open = _OpenConnections(CONNECTION_COLUMNS)
        self._counts = engine.section_counts(_WANTED, ROWS)
        self._first: int | None = None  # what came before is not known
        self._dropped = 0  # when the kernel dropped packets for the last time
        self._announced: dict[tuple[object, ...], tuple[int, int]] = {}  # by kind and parties: until when, last found

    def add(self, batch: Batch) -> None:
        """Add finished exchanges, each once."""
        self._counts.add(batch)

    def add_connections(self, rows: Array) -> None:
        """Add connections (CONNECTION_ROW) that ended."""
        self._counts.add_connections(rows)

    def restart(self, engine: Engine) -> None:
        """Forget all: the engine is about to change its numbers."""
        from kafkatap.reports.sections.event_counts import CONNECTION_COLUMNS

        self._open = _OpenConnections(CONNECTION_COLUMNS)
        self._counts = engine.section_counts(_WANTED, ROWS)
        self._first = engine.latest

    def note_drops(self, now: int) -> None:
        """The kernel dropped packets within the last second."""
        self._dropped = now

    def end_second(self, engine: Engine) -> list[Finding]:
        """The events that a report on the packets so far has, and had not before."""
        from kafkatap.reports.counting.counts import ReportCounts
        from kafkatap.reports.section_parts.section import SectionInput
        from kafkatap.reports.sections.events import findings

        if self._first is None:
            self._first = engine.first
        self._counts.finish()
        self._counts.forget_events("events", engine.latest - KEPT_NS)
        context = names_of(engine)._replace(first=self._first, last=engine.latest)
        found = findings(SectionInput(self._with_open(engine), ReportCounts(), context, {}))
        return list(self._new(found, engine.latest))

    def _with_open(self, engine: Engine) -> SectionCounts:
        """The counts, with what is open and waits now."""
        made = engine.section_counts(_WANTED, 2 * ROWS)
        made.merge(self._counts)
        rows = self._open.rows(engine)
        # At the end of a capture, what waits has no answer. On a connection that one end has closed, it gets none.
        rows["unanswered"] += rows["closed_with"] != NOT_CLOSED
        waiting = engine.waiting_rows(engine.latest - _WAITS_NS)
        if waiting is not None:
            rows["unanswered"] += is_among(rows["connection"], waiting.exchanges["connection"])
            made.add(waiting)
        made.add_connections(rows)
        made.finish()
        return made

    def _new(self, found: list[Finding], now: int) -> Iterator[Finding]:
        for finding in found:
            begin = finding.begin or now
            if finding.id in kinds.AT_END or begin < (self._first or 0) or self._is_doubtful(finding):
                continue
            # A note without an end took no time. All others last.
            until = finding.end or (begin if finding.severity == NOTE else now)
            keys = (_whom(finding), (finding.id, begin))  # a broker's address may be learnt later
            before = max(self._announced.get(key, (0, 0))[0] for key in keys)
            self._announced.update(dict.fromkeys(keys, (max(until, before), now)))
            if begin > before + _SAME_NS:
                yield finding
        self._announced = {key: each for key, each in self._announced.items() if each[1] > now - 2 * KEPT_NS}

    def _is_doubtful(self, finding: Finding) -> bool:
        """Whether what did not come may have been dropped here. The end of a silence is as doubtful as the silence."""
        name, _, begin = finding.cause if finding.id == kinds.RETURNED and finding.cause else finding.key
        return name in _BY_SILENCE and (begin or 0) < self._dropped + _NEAR_NS


def _whom(finding: Finding) -> tuple[object, ...]:
    """The kind of an event and its first party. A host may be cut off from several brokers."""
    return (finding.id, *finding.parties[: 2 if finding.id == kinds.CUT_OFF else 1])


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


class _OpenConnections:
    """Rows of the open connections, of which only those that had packets are made anew each second. `columns`: those of
    CONNECTION_ROW that the rows have. A row takes memory for these only."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._rows: Array = np.zeros(256, [(name, CONNECTION_ROW[name]) for name in columns])
        self._made: Array = np.zeros(256, _MADE)

    def rows(self, engine: Engine) -> Array:
        """A copy of the rows of all connections that are open now."""
        table = engine.assembler.connections
        if len(self._rows) < len(table):
            self._rows, self._made = (grown(rows, len(table)) for rows in (self._rows, self._made))
        numbers = np.flatnonzero(table["used"] == ROW_OPEN)
        made = self._made[numbers]
        is_changed = np.zeros(len(numbers), bool)
        for name in ("serial", "packets"):
            is_changed |= made[name] != table[name][numbers]
        changed = numbers[is_changed]
        if len(changed):
            rows = engine.open_rows(changed)
            for name in self._columns:
                self._rows[name][changed] = rows[name]
            for name in ("serial", "packets"):
                self._made[name][changed] = table[name][changed]
        return taken(self._rows, numbers)
