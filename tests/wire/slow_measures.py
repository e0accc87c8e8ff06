"""Measures of TCP in the slow and obvious way: each question is answered from the list of all segments."""

from __future__ import annotations

from dataclasses import dataclass, field

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
TIMEOUT_NS = 190_000_000


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
        for n, s in enumerate(self.segments):
            if s.end != end or not s.length or self._is_keep_alive(end, n):
                continue
            earlier = self._data_before(end, n)
            if earlier:
                wait = s.time_ns - self.segments[earlier[-1]].time_ns
                if self._is_repeated(end, n):
                    found.waits.append(wait)
            if any(other.end != end and not other.flags & RST for other in self.segments[:n]):
                in_flight = max(s.last, self._sent(end, n) or 0) - self.acked_by(end, n)
                if not self._has_come(end, n):
                    found.in_flight_max = max(found.in_flight_max, in_flight)

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
