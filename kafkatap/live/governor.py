"""How much is decoded, so that the host is not hurt: less when the processor time or the drops grow, more when calm.

A level is left for the next one after a second that was too much, and taken back after some calm seconds, twice as many
each time that it was left again soon. Packets that wait, or are dropped, while others have the processors are no matter
of what decoding costs: then the thread's priority is raised first, until it is calm again.
"""

from __future__ import annotations

import time
from collections import deque

from .thread_priority import Priority

#: All; no topics (of bodies only error codes and throttle times); only the first bytes of messages: requests, responses
#: and their times, but of most bodies nothing; and in turns nothing at all.
FULL, LEAN, HEADERS, PAUSED = range(4)
LEVELS = ("full", "no topics", "headers only", "paused")
#: Leading bytes of each message that are looked at from HEADERS on: its size and header, with a client_id, and what
#: stands first in the body, such as acks.
HEAD_BYTES = 256
#: Seconds of calm before the level before is tried again, at first and at most.
CALM, LONGEST_CALM = 10, 600
#: At so much of the limit it is calm.
_CALM_SHARE = 0.6
#: So much above the limit is too much at once; less has to last for so many seconds.
_FAR, _LATELY = 1.25, 3
_FULL_BUFFER, _MORE = 0.5, 0.1
#: With less of a core than this while packets wait, others have it. Where nothing helps against that, the next level
#: comes when the buffer is nearly full.
_STARVED, _NEARLY_FULL = 0.8, 0.9
#: Seconds that are enough to measure a share.
_MEASURABLE = 0.2
SECOND = 1_000_000_000


class Governor:
    """`limit`: of one core's time, 0.33 is a third; None: only drops count. `strict`: keep to it even where packets are
    lost by it, else stay at HEADERS. `topics`: whether FULL is wanted. `priority`: that of the thread that calls."""

    def __init__(
        self,
        limit: float | None = None,
        topics: bool = True,
        strict: bool = False,
        priority: Priority | None = None,
    ) -> None:
        self.limit = limit
        self.priority = priority or Priority()
        self.highest = PAUSED if strict else HEADERS
        self.lowest = FULL if topics else LEAN
        self.level = self.lowest
        self.since = 0
        self.reason = ""
        self.cpu = 0.0
        self._used = time.process_time_ns()
        self._at = time.monotonic_ns()
        self._pressed = _FULL_BUFFER
        self._lately: deque[float] = deque(maxlen=_LATELY)
        self._calm = 0
        self._patience = CALM
        self._last_rise = 0

    @property
    def topics(self) -> bool:
        return self.level == FULL

    def begin(self) -> None:
        """Measure from now on: what starting took is not to be judged."""
        self._used, self._at = time.process_time_ns(), time.monotonic_ns()

    def judge_second(self, now: int, dropped: int) -> bool:
        """Judge the last second, in which `dropped` packets were lost; whether the level is another one now."""
        used, at = time.process_time_ns(), time.monotonic_ns()
        self.cpu = (used - self._used) / max(1, at - self._at)
        self._used, self._at = used, at
        return self.judge(now, self.cpu, dropped)

    def judge(self, now: int, cpu: float, dropped: int) -> bool:
        """`second` with what it measured."""
        before = self.level
        over = self._over(cpu)
        if dropped and not over and cpu < _STARVED and self.priority.raise_():
            self._calm = 0
            return self._changed(before, now)  # whether that is enough shows in the next second
        if (over or dropped) and self.level < (self.highest if over else HEADERS):
            if now - self._last_rise < 2 * self._patience * SECOND:
                self._patience = min(2 * self._patience, LONGEST_CALM)
            self.level += 1
            self.reason = f"{dropped:,} packets dropped" if dropped else f"{cpu:.0%} of a core, limit {self.limit:.0%}"
            self._calm = 0
        elif over or dropped or (self.limit is not None and cpu > _CALM_SHARE * self.limit and self.level < PAUSED):
            self._calm = 0
        elif self.level > self.lowest:
            self._calm += 1
            if self._calm >= self._patience:
                self.level -= 1
                self._calm = 0
                self._last_rise = now
                self.reason = self.reason if self.level > self.lowest else ""
        elif self.priority.is_raised:
            self._calm += 1
            if self._calm >= self._patience:
                self._calm = 0
                self.priority.restore()
        return self._changed(before, now)

    def check_backlog(self, now: int, backlog: float) -> bool:
        """The buffer of packets that wait is full to this part: from half of it on the next level does not wait for
        drops. Whether the level is another one now."""
        before = self.level
        if backlog < _FULL_BUFFER:
            self._pressed = _FULL_BUFFER
        if backlog > self._pressed and self.level < HEADERS and not self._helped(backlog):
            self.level += 1
            self._pressed = backlog + _MORE  # what waits now has to be read first
            self.reason = f"packets wait in {backlog:.0%} of the buffer"
            self._calm = 0
        return self._changed(before, now)

    def _helped(self, backlog: float) -> bool:
        """Whether what waits does so because others have the processors, and may still be read in time. The priority is
        raised then."""
        used, gone = self._since()
        if (used / gone if gone >= _MEASURABLE else self.cpu) >= _STARVED:
            return False
        if self.priority.raise_():
            self._pressed = backlog + _MORE
            return True
        return backlog < _NEARLY_FULL

    def _since(self) -> tuple[float, float]:
        """Seconds of processor time, and by the clock, since the last second was judged."""
        used, gone = time.process_time_ns() - self._used, time.monotonic_ns() - self._at
        return used / SECOND, max(1, gone) / SECOND

    def _over(self, cpu: float) -> bool:
        """Far above the limit in this second, or above it in the mean of the last ones: a moment alone is no reason."""
        if self.limit is None:
            return False
        self._lately.append(cpu)
        return cpu > _FAR * self.limit or sum(self._lately) > _LATELY * self.limit

    def _changed(self, before: int, now: int) -> bool:
        if self.level != before or not self.since:
            self.since = now
        if self.level != before:
            self._lately.clear()
        return self.level != before

    def pause(self) -> float:
        """Seconds that the loop is to sleep now, so that it keeps to the limit; only at PAUSED."""
        if self.level < PAUSED or self.limit is None:
            return 0.0
        used, gone = self._since()
        return max(0.0, min(used / self.limit - gone, 0.5))
