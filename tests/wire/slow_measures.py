"""Measures of TCP in the slow and obvious way: each question is answered from the list of all segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
STALL_NS, TIMEOUT_NS = 200_000, 190_000_000
RECEIVER_LIMITED, LOSS, SENDER_IDLE = range(3)


@dataclass(frozen=True)
class Options:
    """The options of a SYN. `scale` None: windows are not scaled."""

    mss: int | None = 1460
    scale: int | None = 7
    sack: bool = True
    timestamps: bool = True


@dataclass(frozen=True)
class Sent:
    """One captured segment. `end`: 0 the client, 1 the server. `offset`, `acked`: bytes after the SYN of its own and
    the other direction. `window`: as in the header."""

    time_ns: int
    end: int
    offset: int
    length: int
    acked: int
    window: int
    flags: int = ACK
    options: Options | None = None
    got_twice: bool = False  # it reports data that came twice (D-SACK)

    @property
    def last(self) -> int:
        return self.offset + self.length

    @property
    def is_ack(self) -> bool:
        return bool(self.flags & ACK) and not self.flags & RST


@dataclass
class Direction:
    """What was measured of the direction that one end sends."""

    rtts: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    zero_window_ns: int = 0
    window_max: int = 0
    in_flight_max: int = 0
    stalls: list[tuple[int, int, int]] = field(default_factory=list)  # begin, end, cause

    @property
    def timeouts(self) -> int:
        return sum(wait >= TIMEOUT_NS for wait in self.waits)


class Conversation:
    """All segments of a connection, in the order captured. The handshake may be missing."""

    def __init__(self, segments: list[Sent]) -> None:
        self.segments = segments
        syns = {s.end: s for s in segments if s.flags & SYN}
        self.options = {end: s.options for end, s in syns.items()}
        self.syn, self.syn_ack = syns.get(0), syns.get(1)
        answers = [s for s in segments if s.end == 0 and s.is_ack and not s.flags & SYN]
        self.ack = answers[0] if self.syn and self.syn_ack and answers else None

    def scaled(self, s: Sent) -> int | None:
        """The window of a segment in bytes, None if the scale is not known."""
        if s.flags & SYN:
            return s.window
        known = [self.options.get(end) for end in (s.end, 1 - s.end)]
        if any(o is not None and o.scale is None for o in known):
            return s.window
        mine, other = known
        if mine is None or other is None or mine.scale is None:
            return None
        return s.window << mine.scale

    def acked_by(self, end: int, before: int) -> int:
        """How far segments before a number acknowledge the direction of `end`."""
        found = [s.acked for s in self.segments[:before] if s.end != end and s.is_ack]
        return max([0, *found])

    def lag(self, end: int) -> int:
        if self.syn is None or self.syn_ack is None or self.ack is None:
            return 0
        return (self.ack.time_ns - self.syn_ack.time_ns) if end == 0 else self.syn_ack.time_ns - self.syn.time_ns

    def measured(self, end: int) -> Direction:
        """Measure the direction of `end`."""
        found = Direction()
        self._windows(end, found)
        self._data(end, found)
        self._round_trips(end, found)
        return found

    def _windows(self, end: int, found: Direction) -> None:
        since = None
        for s in self.segments:
            if s.end != end or not s.flags & ACK:
                continue
            found.window_max = max(found.window_max, self.scaled(s) or 0)
            if s.window == 0 and since is None:
                since = s.time_ns
            elif s.window > 0 and since is not None:
                found.zero_window_ns += s.time_ns - since
                since = None
        if since is not None:
            found.zero_window_ns += self.segments[-1].time_ns - since

    def _data_before(self, end: int, number: int) -> list[int]:
        """The numbers of the segments with data before a number that count as sending."""
        found: list[int] = []
        for n, s in enumerate(self.segments[:number]):
            if s.end == end and s.length and not self._has_come(end, n):
                found.append(n)
        return found

    def _sent(self, end: int, number: int) -> int | None:
        ends = [s.last for s in self.segments[:number] if s.end == end and s.length]
        return max(ends) if ends else None

    def _is_repeated(self, end: int, number: int) -> bool:
        sent = self._sent(end, number)
        return sent is not None and self.segments[number].offset < sent

    def _has_come(self, end: int, number: int) -> bool:
        """Whether a segment repeats bytes that were acknowledged before it."""
        return self._is_repeated(end, number) and self.acked_by(end, number) >= self.segments[number].last

    def _is_keep_alive(self, end: int, number: int) -> bool:
        s = self.segments[number]
        return self._has_come(end, number) and s.length == 1 and s.last == self._sent(end, number)

    def _data(self, end: int, found: Direction) -> None:
        loss: tuple[int, int] | None = None
        for n, s in enumerate(self.segments):
            if s.end != end and s.is_ack and s.got_twice and loss is not None:
                found.stalls.append((2 * loss[1] - loss[0], loss[1], LOSS))
                loss = None
            if s.end != end or not s.length or self._is_keep_alive(end, n):
                continue
            earlier = self._data_before(end, n)
            if earlier:
                wait = s.time_ns - self.segments[earlier[-1]].time_ns
                if self._is_repeated(end, n):
                    found.waits.append(wait)
                if wait > STALL_NS and not self._has_come(end, n):
                    made = self._stall(end, earlier[-1], n)
                    found.stalls += made
                    loss = next(((begin, until) for begin, until, cause in made if cause == LOSS), loss)
            if not self._is_repeated(end, n):
                loss = None
            if any(other.end != end and not other.flags & RST for other in self.segments[:n]):
                in_flight = max(s.last, self._sent(end, n) or 0) - self.acked_by(end, n)
                if not self._has_come(end, n):
                    found.in_flight_max = max(found.in_flight_max, in_flight)

    def _stall(self, end: int, first: int, last: int) -> list[tuple[int, int, int]]:
        """The stall between two segments with data."""
        begin, until = self.segments[first].time_ns, self.segments[last].time_ns
        blocked = until
        free = self._free_since(end, first, last)
        if free is not None and not self._is_repeated(end, last):
            blocked = min(until, max(begin, free + self.lag(end)))
        found = []
        if blocked - begin > STALL_NS:
            repeated = [
                n for n in range(first + 1)
                if self.segments[n].end == end and self.segments[n].length and self._is_repeated(end, n)
                and not self._has_come(end, n)
            ]  # fmt: skip
            recovery = max((self._sent(end, n + 1) or 0 for n in repeated), default=0)
            if self._is_repeated(end, last) or self.acked_by(end, first) < recovery:
                found.append((begin, blocked, LOSS))
            elif self._is_limited(end, first, last):
                found.append((begin, blocked, RECEIVER_LIMITED))
        if until - blocked > STALL_NS:
            found.append((blocked, until, SENDER_IDLE))
        return found

    def _free_since(self, end: int, first: int, last: int) -> int | None:
        """Since when all was acknowledged and the window open, before segment `last`."""
        since = None
        for n in range(first + 1, last):
            s = self.segments[n]
            if s.end == end or not s.is_ack:
                continue
            sent = self._sent(end, n) or 0
            if self.acked_by(end, n + 1) >= sent and s.window > 0:
                since = s.time_ns if since is None else since
            else:
                since = None
        return since

    def _is_limited(self, end: int, first: int, last: int) -> bool:
        begin = self.segments[first].time_ns
        theirs = [s for s in self.segments[:last] if s.end != end and not s.flags & RST]
        acks = [s for s in theirs if s.flags & ACK]
        for before, s in pairwise(acks):
            if before.window == 0 and s.window > 0 and s.time_ns > begin:
                return True
        if acks and acks[-1].window == 0:
            return True
        known = [s for s in theirs if s.time_ns <= begin - self.lag(end)]
        if not known or known[-1].flags & (SYN | ACK) != ACK:
            return False
        window = self.scaled(known[-1])
        if window is None:
            return False
        room = window - ((self._sent(end, first + 1) or 0) - known[-1].acked)
        both = [o.mss for o in self.options.values() if o is not None and o.mss]
        mss = min(both) if len(both) == 2 else 1448
        return room <= 0 or room < min(mss, window // 2)

    def _round_trips(self, end: int, found: Direction) -> None:
        timed: tuple[int, int] | None = None
        for n, s in enumerate(self.segments):
            if s.end == end and s.length and not self._is_keep_alive(end, n):
                if self._is_repeated(end, n):
                    if timed is not None and timed[0] > s.offset and not self._has_come(end, n):
                        timed = None
                elif timed is None:
                    timed = (s.last, s.time_ns)
            if s.end != end and s.is_ack and timed is not None and self.acked_by(end, n + 1) >= timed[0]:
                found.rtts.append(s.time_ns - timed[1])
                timed = None
