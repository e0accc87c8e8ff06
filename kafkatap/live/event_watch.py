"""`EventWatch`: events while they happen, by the section `events` over the last minutes.

Each second it adds what the engine still holds, as it would be if the capture ended with the latest packet: open
connections, and the oldest request of each connection that waits. Then it asks the section for its findings. So live
capture and reports judge by the same rules, and a report on the packets so far says the same. Events of which the rules
want to know the end of a capture (a leak, packets that were lost) are not among them.

A look takes time for each host. Seconds in which it could find nothing new have none (`event_signs`), and a look that
takes more processor time than the governor grants waits until that is saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.kernels.arrays import is_among
from kafkatap.reports import kinds, units
from kafkatap.reports.batch import Array, Batch
from kafkatap.reports.connection_words import NOT_CLOSED
from kafkatap.reports.findings import NOTE, Finding

from .sink import Elapsed, Sink, names_of

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ..engine.engine import Engine
    from .governor import Allowance

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
#: Packets are read so long after they came, at most. A silence without any packet is this much shorter than it seems.
_SETTLED_NS = SECOND // 2
#: Of these, those that follow from another event are events of their own if they last for so long.
_FOLLOWING, _FOLLOWS_NS = (kinds.BURST, kinds.STORM), 10 * SECOND
#: Seconds for which `EventWatch.late` tells of a look that waited.
_LATELY = 10


class EventWatch:
    """`end_second` returns the events that are new. `allowance`: of processor time for looks."""

    def __init__(self, engine: Engine, allowance: Allowance) -> None:
        self._allowance = allowance
        self._first: int | None = None  # what came before is not known
        self._dropped = 0  # when the kernel dropped packets for the last time
        self._announced: dict[tuple[object, ...], tuple[int, int]] = {}  # by kind and parties: until when, last found
        self._lasting: list[tuple[object, ...]] = []  # the keys of those that last, as of the last look
        self._before = 0  # the time of the last second
        self._put_off = 0  # seconds for which the next look has waited
        self._lately: deque[int] = deque(maxlen=_LATELY)
        self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        from kafkatap.reports.sections.event_counts import CONNECTION_COLUMNS

        from .event_signs import Signs
        from .open_connections import OpenConnections

        self._open = [OpenConnections(CONNECTION_COLUMNS, one) for one in engine.engines]
        self._counts = engine.section_counts(_WANTED, ROWS)
        self._signs = Signs(self._counts)
        self._has_ended = False  # connections, since the last second

    def add(self, batch: Batch) -> None:
        """Add finished exchanges, each once."""
        self._counts.add(batch)

    def add_connections(self, rows: Array) -> None:
        """Add connections (CONNECTION_ROW) that ended."""
        self._counts.add_connections(rows)
        self._has_ended = True

    def restart(self, engine: Engine) -> None:
        """Forget all: the engine is about to change its numbers."""
        self._begin(engine)
        self._first = engine.latest

    def note_drops(self, now: int) -> None:
        """The kernel dropped packets within the last second."""
        self._dropped = now

    def end_second(self, engine: Engine, seconds: int = 1, clock: int = 0) -> list[Finding]:
        """The events that a report on the packets so far has, and had not before. `seconds`: that passed. `clock`: now,
        ns since the epoch. When a broker stops, its host may see no packet any more: then time goes on without them."""
        if self._first is None:
            self._first = engine.first
        now = engine.latest
        is_quiet = clock - _SETTLED_NS > now + SECOND
        last = clock - _SETTLED_NS if is_quiet else now
        self._allowance.save(seconds)
        waiting = self._read(engine, now)
        found: list[Finding] = []
        has_stuck = any(each.has_stuck for each in self._open)
        if not (self._signs.are_there(last) or has_stuck or self._waits(engine, waiting)):
            self._put_off = 0
        elif self._allowance.is_spent:
            self._put_off += seconds
        else:
            self._put_off = 0
            with self._allowance.spending():
                seen = self._look(engine, waiting, last)
                # Silences of brokers that did not stop are known by the packets of others.
                found = list(self._new([f for f in seen if f.id == kinds.STOPPED] if is_quiet else seen, now))
        self._before = now
        self._lately.append(self._put_off)
        return found

    @property
    def late(self) -> int:
        """How many seconds a look has waited for processor time, the most of the last seconds: events may come so much
        later."""
        return max(self._lately, default=0)

    def _read(self, engine: Engine, now: int) -> Batch | None:
        """Read what came in the last second; return what waits."""
        self._counts.finish()
        has_changed = [each.read() for each in self._open]
        if any(has_changed) or self._has_ended:
            self._signs.note(now)
        self._has_ended = False
        self._signs.read(now)
        self._counts.forget_events("events", now - KEPT_NS)
        self._signs.forgot()
        return engine.waiting_rows(now - _WAITS_NS)

    def _waits(self, engine: Engine, waiting: Batch | None) -> bool:
        """Whether requests wait for a broker that is silent, or on a connection with packets that were sent again."""
        if waiting is None:
            return False
        if self._signs.has_silent(waiting.exchanges, engine.latest):
            return True
        resent = np.concatenate([each.resent() for each in self._open])
        return bool(len(resent)) and bool(is_among(waiting.exchanges["connection"], resent).any())

    def _look(self, engine: Engine, waiting: Batch | None, last: int) -> list[Finding]:
        """All events that a report has now. `last`: the end of its time."""
        from kafkatap.reports.counting.counts import ReportCounts
        from kafkatap.reports.section_parts.section import SectionInput
        from kafkatap.reports.sections.events import findings

        context = names_of(engine)._replace(first=self._first, last=last)
        given = SectionInput(self._with_open(engine, waiting), ReportCounts(), context, {})
        found = findings(given)
        given.forget()
        return found

    def _with_open(self, engine: Engine, waiting: Batch | None) -> SectionCounts:
        """The counts, with what is open and waits now."""
        made = engine.section_counts(_WANTED, 2 * ROWS)
        made.merge(self._counts)
        rows = np.concatenate([each.rows() for each in self._open])
        # At the end of a capture, what waits has no answer. On a connection that one end has closed, it gets none.
        rows["unanswered"] += rows["closed_with"] != NOT_CLOSED
        if waiting is not None:
            rows["unanswered"] += is_among(rows["connection"], waiting.exchanges["connection"])
            made.add(waiting)
        made.add_connections(rows)
        made.finish()
        return made

    def _new(self, found: list[Finding], now: int) -> Iterator[Finding]:
        # What lasted until the last look did so until the last second, if there was none in between.
        for key in self._lasting:
            self._announced[key] = (max(self._announced[key][0], self._before), self._announced[key][1])
        self._lasting = []
        for finding in found:
            begin = finding.begin or now
            if finding.id in kinds.AT_END or begin < (self._first or 0) or self._is_doubtful(finding):
                continue
            if follows_only(finding, now):
                continue
            # A note without an end took no time. All others last.
            until = finding.end or (begin if finding.severity == NOTE else now)
            keys = (_whom(finding), (finding.id, begin))  # a broker's address may be learnt later
            before = max(self._announced.get(key, (0, 0))[0] for key in keys)
            self._announced.update(dict.fromkeys(keys, (max(until, before), now)))
            self._lasting += keys if finding.end is None and finding.severity != NOTE else ()
            if begin > before + _SAME_NS:
                yield finding
        self._announced = {key: each for key, each in self._announced.items() if each[1] > now - 2 * KEPT_NS}

    def _is_doubtful(self, finding: Finding) -> bool:
        """Whether what did not come may have been dropped here. The end of a silence is as doubtful as the silence."""
        name, _, begin = finding.cause if finding.id == kinds.RETURNED and finding.cause else finding.key
        return name in _BY_SILENCE and (begin or 0) < self._dropped + _NEAR_NS


def follows_only(finding: Finding, now: int) -> bool:
    """Whether what happened follows from another event, and does not last."""
    if finding.id not in _FOLLOWING or finding.cause is None:
        return False
    return (finding.end or now) - (finding.begin or now) < _FOLLOWS_NS


def _whom(finding: Finding) -> tuple[object, ...]:
    """The kind of an event and its first party. A host may be cut off from several brokers."""
    return (finding.id, *finding.parties[: 2 if finding.id == kinds.CUT_OFF else 1])


class _Told:
    """A kind of event on one party, of which a line was written. `until`: others before that time are only counted.
    `pause`: how long that is, ns. `last`, `count`: of these."""

    def __init__(self, until: int, pause: int) -> None:
        self.until, self.pause = until, pause
        self.last: Finding | None = None
        self.count = 0


class EventNotices(Sink):
    """Writes a line for each event: to standard error, and to the screen while it has the terminal.

    After a line, the same kind of event on the same party is only counted for a minute, and then told in one line. If
    it goes on, these lines come after twice the time each, up to LONGEST_PAUSE.
    """

    PAUSE, LONGEST_PAUSE = 60 * SECOND, 960 * SECOND

    def __init__(self, notify: Callable[..., None], utc: bool = False) -> None:
        self._notify, self._utc = notify, utc
        self._elapsed = Elapsed()
        self._now = 0
        self._told: dict[tuple[object, ...], _Told] = {}

    def add_event(self, finding: Finding) -> None:
        told = self._told.get(_whom(finding))
        if told is not None:
            told.last, told.count = finding, told.count + 1
            return
        self._write(finding)
        self._told[_whom(finding)] = _Told(self._now + self.PAUSE, self.PAUSE)

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        self._now = self._elapsed.at(now)
        for key, told in list(self._told.items()):
            if self._now < told.until:
                continue
            if told.last is None:
                del self._told[key]
                continue
            self._tell_rest(told)
            told.pause = min(2 * told.pause, self.LONGEST_PAUSE)
            told.until = self._now + told.pause

    def close(self, engine: Engine) -> None:
        for told in self._told.values():
            self._tell_rest(told)

    def _tell_rest(self, told: _Told) -> None:
        """Write a line of what was only counted."""
        if told.last is not None:
            more = f" ({told.count:,} times since the last line)" if told.count > 1 else ""
            self._write(told.last, more, told.count)
        told.last, told.count = None, 0

    def _write(self, finding: Finding, more: str = "", times: int = 1) -> None:
        self._notify(
            units.safe(f"{units.clock(finding.begin or 0, self._utc)} {finding.text}{more}"),
            kind="event", event=finding.id, severity=finding.severity, times=times,
            begin=None if finding.begin is None else units.iso(finding.begin), numbers=dict(finding.numbers),
            parties=[party._asdict() for party in finding.parties],
        )  # fmt: skip
