"""`ClockSteps`: steps of the capturing host's clock, found by the TCP timestamps of the senders.

A silence and a step forward look alike in packet times. But most hosts write their own clock, in ms, into each segment.
If a sender's clock and the packets' times advance differently from one of its segments to the next, the capturing clock
stepped between the two. A direction counts only if its clock otherwise ticks once in a ms, or if those of its sender's
other directions do and its own does not tell. A step needs two directions that agree, or one and a second.

Each capture point has a clock of its own. All state is bounded by the number of flows, and by MOST_CANDIDATES.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from kafkatap.reassembly.dtypes import SYN

Array = np.ndarray[Any, Any]
MS = 1_000_000
#: The smallest step that is found, and the smallest that one direction alone shows, ns.
SMALLEST_NS, ALONE_NS = 100 * MS, 1_000 * MS
#: A segment is late if its time is so long before that of the segment before it, ns: longer than reassembly waits.
LATE_NS = 50 * MS
#: Pairs of segments this far apart show how fast a sender's clock ticks, ns.
SPACED_NS = 20 * MS
#: How far a sender's clock may be off between two segments: this, ns, and this share of the time between them.
TOLERANCE_NS, TOLERANCE_SHARE = 5 * MS, 0.02
#: A sender needs so many pairs that fit, and so many for each that does not.
LEAST_STEADY, STEADY_FOR_EACH = 3, 2
#: A sender whose directions have so many pairs that fit; and pairs of a direction that may not fit, though its sender's
#: others do.
STEADY_SENDER, FEW = 20, 3
#: Pairs that are kept at most.
MOST_CANDIDATES = 100_000


class ClockStep(NamedTuple):
    """The clock of a capture point stepped by `step_ns` after packet `after` and before or at packet `before`, whose
    time is `time`. `directions`: how many directions of connections show it; 0: the packet times alone do."""

    point: int
    step_ns: int
    after: int
    before: int
    time: int
    directions: int


_STATE = np.dtype([("ts", "i8"), ("packet", "i8"), ("value", "i8"), ("steady", "i8"), ("unsteady", "i8")])
_CANDIDATE = np.dtype([("after", "i8"), ("before", "i8"), ("step", "i8"), ("time", "i8"), ("key", "i8")])


class _Clock:
    """The directions that one capture point has seen."""

    def __init__(self) -> None:
        self.rows = np.zeros(0, _STATE)
        self.candidates: list[Array] = []
        self.kept = 0
        self.late = 0

    def add(self, keys: Array, times: Array, packets: Array, values: Array, is_syn: Array) -> None:
        """Add segments in the order of the capture. `values`: the senders' timestamps; those of a SYN do not count."""
        order = np.argsort(keys, kind="stable")
        keys, times, packets = keys[order], times[order], packets[order]
        values = np.where(is_syn[order], -1, values[order])
        if keys[-1] >= len(self.rows):
            grown = np.zeros(max(2 * len(self.rows), int(keys[-1]) + 1), _STATE)
            grown["value"] = -1
            grown[: len(self.rows)] = self.rows
            self.rows = grown
        begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        ends = np.append(begins[1:], len(keys)) - 1
        before = {}
        for name, column in (("ts", times), ("packet", packets), ("value", values)):
            previous = np.empty_like(column)
            previous[1:] = column[:-1]
            previous[begins] = self.rows[name][keys[begins]]
            before[name] = previous
            self.rows[name][keys[ends]] = column[ends]
        is_pair = (values >= 0) & (before["value"] >= 0)
        ticks = ((values - before["value"]) & 0xFFFFFFFF).astype(np.uint32).view(np.int32).astype(np.int64) * MS
        passed = times - before["ts"]
        self.late += int(((before["packet"] > 0) & (passed < -LATE_NS)).sum())
        step = passed - ticks
        fits = np.abs(step) <= np.maximum(TOLERANCE_NS, (TOLERANCE_SHARE * np.abs(ticks)).astype(np.int64))
        is_spaced = is_pair & (np.maximum(np.abs(ticks), np.abs(passed)) >= SPACED_NS)
        np.add.at(self.rows["steady"], keys[is_spaced & fits], 1)
        np.add.at(self.rows["unsteady"], keys[is_spaced & ~fits], 1)
        found = np.flatnonzero(is_pair & ~fits & (np.abs(step) >= SMALLEST_NS))[: MOST_CANDIDATES - self.kept]
        if len(found):
            rows = np.zeros(len(found), _CANDIDATE)
            columns = (before["packet"], packets, step, times, keys)
            for name, column in zip(_CANDIDATE.names or (), columns, strict=True):
                rows[name] = column[found]
            self.candidates.append(rows)
            self.kept += len(found)

    @property
    def offsets(self) -> Array:
        """The time of the latest segment of each direction, less its sender's clock: ns by key."""
        found: Array = self.rows["ts"] - self.rows["value"] * MS
        return found

    @property
    def steady(self) -> Array:
        """Whether each direction's clock ticks once in a ms: bool by key."""
        rows = self.rows
        good: Array = (rows["steady"] >= LEAST_STEADY) & (rows["steady"] >= STEADY_FOR_EACH * rows["unsteady"])
        return good

    def _is_trusted(self, flows: Array) -> Array:
        """Whether each direction's clock is thought to tick once in a ms: bool by key. `flows`: FLOW rows."""
        rows = self.rows
        ends = np.zeros((len(rows), 2), np.int64)
        known = flows[: (len(rows) + 1) // 2]
        for direction, end in enumerate("ab"):
            places = ends[direction : 2 * len(known) : 2]
            places[:, 0], places[:, 1] = (known[f"{end}_{half}"][: len(places)] for half in ("high", "low"))
        _, sender = np.unique(ends.view("V16").reshape(-1), return_inverse=True)
        fits, fails = (np.bincount(sender, rows[name])[sender] for name in ("steady", "unsteady"))
        is_sender_steady = (fits >= STEADY_SENDER) & (fits >= STEADY_FOR_EACH * fails)
        trusted: Array = self.steady | (is_sender_steady & (rows["unsteady"] <= FEW + rows["steady"]))
        return trusted

    def steps(self, point: int, flows: Array) -> list[ClockStep]:
        """The steps, in order of their packets. `flows`: FLOW rows."""
        if not self.candidates:
            return []
        rows = np.concatenate(self.candidates)
        rows = rows[self._is_trusted(flows)[rows["key"]]]
        rows = rows[np.argsort(rows["before"] - rows["after"], kind="stable")]
        found: list[list[int]] = []  # after, before, step, time, directions
        for after, before, step, time, _ in rows.tolist():
            within = [s for s in found if after < s[1] and s[0] < before]
            if not within:
                found.append([after, before, step, time, 1])
                continue
            known = sum(s[2] for s in within)
            if abs(step - known) > max(4 * TOLERANCE_NS, TOLERANCE_SHARE * abs(step)):
                continue  # several steps, or a segment that was late
            for s in within:
                s[4] += 1
            if len(within) == 1:
                s = within[0]
                s[0], s[1] = max(s[0], after), min(s[1], before)
                s[3] = min(s[3], time) if s[2] > 0 else s[3]
        sure = [s for s in found if s[4] > 1 or abs(s[2]) >= ALONE_NS]
        return [ClockStep(point, s[2], s[0], s[1], s[3], s[4]) for s in sorted(sure)]


class ClockSteps:
    """Collects segments of all capture points, and finds the steps of their clocks."""

    def __init__(self) -> None:
        self._clocks: dict[int, _Clock] = {}

    def add(self, segments: Array) -> None:
        """Add SEGMENT rows, in the order of the captures. Flows have to keep their numbers."""
        is_syn = (segments["tcp_flags"] & SYN) != 0
        chosen = np.flatnonzero((segments["timestamps"] != 0) | is_syn)
        if not len(chosen):
            return
        points = segments["point"][chosen]
        for point in np.unique(points).tolist():
            mine = chosen[points == point]
            keys = 2 * segments["flow"][mine].astype(np.int64) + segments["direction"][mine]
            values = (segments["timestamps"][mine] >> 32) & 0xFFFFFFFF
            columns = segments["ts"][mine].copy(), segments["packet"][mine].copy()
            self._clocks.setdefault(point, _Clock()).add(keys, *columns, values, is_syn[mine])

    def is_known(self, point: int) -> bool:
        """Whether some sender's clock shows the steps of a capture point."""
        clock = self._clocks.get(point)
        return clock is not None and bool(clock.steady.any())

    @property
    def late(self) -> dict[int, int]:
        """By capture point, the segments that come late after another of the same direction."""
        return {point: clock.late for point, clock in self._clocks.items()}

    def differences(self) -> list[tuple[int, int, int, int]]:
        """How far the clocks of capture points are apart: (a point, a later one, the median by which times of the later
        one are later, ns, the number of directions that both saw)."""
        found = []
        for first, second in combinations(sorted(self._clocks), 2):
            one, other = self._clocks[first], self._clocks[second]
            count = min(len(one.rows), len(other.rows))
            both = np.flatnonzero(one.steady[:count] & other.steady[:count])
            if len(both):
                apart = other.offsets[both] - one.offsets[both]
                found.append((first, second, int(np.median(apart)), len(both)))
        return found

    def steps(self, flows: Array) -> list[ClockStep]:
        """The steps of all capture points. `flows`: FLOW rows by number."""
        return [step for point, clock in sorted(self._clocks.items()) for step in clock.steps(point, flows)]
