"""The level of detail: kafkatap decodes less when it uses too much processor time or drops packets, more when calm.

The level drops after a second with too much load, and rises again after some calm seconds. If it soon drops again, the
next rise takes twice as many calm seconds. If packets wait in the buffer, the level drops at once, before any packet is
dropped. If they wait because other processes use the processors, the thread's priority is raised first, until load is
calm again. That may not suffice: among busy processes a thread gets its share of a core and no more, so it must also
need less.

Without root a process may raise its niceness but not lower it again, and so may root in a container. `allow_return`
permits the return to the present niceness. Call it before dropping capabilities; afterwards `can_return` tries it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

#: FULL decodes everything. LEAN decodes no topics, only error codes and throttle times. HEADERS reads the first bytes
#: of each message: requests, responses and their times. PAUSED also stops reading at times.
FULL, LEAN, HEADERS, PAUSED = range(4)
LEVELS = ("full", "no topics", "headers only", "paused")
#: Leading bytes that HEADERS reads of each message: size, header with client_id, first fields such as acks.
HEAD_BYTES = 256
#: Calm seconds before the level rises: at first, and at most.
CALM, LONGEST_CALM = 10, 600
#: The share of the limit up to which load is calm.
_CALM_SHARE = 0.6
#: Load of _FAR times the limit is too much at once; less than that only as the mean of _LATELY seconds.
_FAR, _LATELY = 1.25, 3
#: The part of the buffer in which packets may wait before something is done, and how much more before the next thing.
_WAITING, _MORE = 0.2, 0.15
#: A thread that gets less of a core than _STARVED while packets wait competes with others.
_STARVED = 0.8
#: One that gets less than this was kept from running at all: less work would not have helped.
_HELD_UP = 0.1
#: Seconds that suffice to measure a share.
_MEASURABLE = 0.2
#: The share of a core that looks for events may take.
WATCH = 0.03
#: What rounding may leave of an Allowance, seconds.
_ROUNDED = 1e-9
#: Seconds whose unspent part of an Allowance may be spent at once, and for which work waits at most.
_SAVED, _OWED = 10, 16
SECOND = 1_000_000_000


class Allowance:
    """Processor time for work that can wait: `share` of a core (None: all of it). What is not spent is saved up to that
    of `_SAVED` seconds. What was spent too much is waited for, at most `_OWED` seconds. `clock`: seconds of processor
    time of this thread."""

    def __init__(self, share: float | None, clock: Callable[[], float] = time.thread_time) -> None:
        self._share, self._clock = share, clock
        self._left = 0.0 if share is None else share * _SAVED
        self._is_first = True

    def save(self, seconds: int) -> None:
        """Seconds passed."""
        if self._share is not None:
            self._left = min(self._left + self._share * seconds, self._share * _SAVED)

    @property
    def is_spent(self) -> bool:
        return self._left < -_ROUNDED

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the processor time of a block of this thread. The first one does not count: it loads what it needs."""
        begin = self._clock()
        yield
        if self._share is not None and not self._is_first:
            self._left = max(self._left - (self._clock() - begin), -self._share * _OWED)
        self._is_first = False


class Governor:
    """`limit`: a share of one core, 0.33 is a third; None: only drops count. `strict`: keep to the limit even if that
    drops packets, else never pause. `topics`: whether FULL is the best level. `headers_only`: whether HEADERS is.
    `priority`: of the calling thread. `watch`: the share of one core that looks for events may take; None: any.
    `threads`: how many read packets."""

    def __init__(
        self,
        limit: float | None = None,
        topics: bool = True,
        strict: bool = False,
        priority: Priority | None = None,
        headers_only: bool = False,
        watch: float | None = WATCH,
        threads: int = 1,
    ) -> None:
        self._threads = threads
        self.limit = limit
        self.priority = priority or Priority()
        self.watch = Allowance(watch)
        self.highest = PAUSED if strict else HEADERS
        self.lowest = HEADERS if headers_only else FULL if topics else LEAN
        self.level = self.lowest
        self.since = 0
        self.reason = ""
        self.cpu = 0.0
        self._used = time.process_time_ns()
        self._at = time.monotonic_ns()
        self._pressed = _WAITING
        self._lately: deque[float] = deque(maxlen=_LATELY)
        self._calm = 0
        self._patience = CALM
        self._last_rise = 0

    @property
    def topics(self) -> bool:
        return self.level == FULL

    def begin(self) -> None:
        """Measure from now on, without the load of the start."""
        self._used, self._at = time.process_time_ns(), time.monotonic_ns()

    def judge_second(self, now: int, dropped: int) -> bool:
        """Set the level by the last second, in which `dropped` packets were lost. Return whether it changed."""
        used, at = time.process_time_ns(), time.monotonic_ns()
        self.cpu = (used - self._used) / max(1, at - self._at)
        self._used, self._at = used, at
        return self.judge(now, self.cpu, dropped)

    def judge(self, now: int, cpu: float, dropped: int) -> bool:
        """`judge_second` with a measured share of a core."""
        before = self.level
        over = self._over(cpu)
        if dropped and not over and cpu / self._threads < _STARVED and self.priority.raise_():
            self._calm = 0
            return self._changed(before, now)  # the next second shows whether that suffices
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
        """Raise the priority or drop the level if packets wait in too much of the buffer (`backlog`: 0 to 1). Return
        whether the level changed."""
        before = self.level
        if backlog < _WAITING:
            self._pressed = _WAITING
        elif backlog > self._pressed:
            self._pressed += _MORE
            self._calm = 0
            share = self._share()
            raised = share < _STARVED and self.priority.raise_()
            if not raised and share >= _HELD_UP and self.level < HEADERS:
                self.level += 1
                self.reason = f"packets wait in {backlog:.0%} of the buffer"
        return self._changed(before, now)

    def _share(self) -> float:
        """The part of a core that each thread got lately: little, if others keep it from the processors."""
        used, gone = self._since()
        return (used / gone if gone >= _MEASURABLE else self.cpu) / self._threads

    def _since(self) -> tuple[float, float]:
        """Seconds of processor time, and of the clock, since the last second was judged."""
        used, gone = time.process_time_ns() - self._used, time.monotonic_ns() - self._at
        return used / SECOND, max(1, gone) / SECOND

    def _over(self, cpu: float) -> bool:
        """Whether this second was far above the limit, or the mean of the last seconds above it."""
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
        """Seconds that the loop has to sleep now to keep to the limit; 0 unless PAUSED."""
        if self.level < PAUSED or self.limit is None:
            return 0.0
        used, gone = self._since()
        return max(0.0, min(used / self.limit - gone, 0.5))


def allow_return() -> None:
    """Permit this process to return to its present niceness later, if the system lets it decide that."""
    if sys.platform != "linux":
        return
    import resource

    wanted = 20 - os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (wanted, max(wanted, resource.getrlimit(resource.RLIMIT_NICE)[1])))


def can_return(nice: int) -> bool:
    """Whether a thread that adds `nice` to its niceness can return to the present one. A thread of its own tries it."""
    found: list[bool] = []

    def attempt() -> None:
        thread = threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, thread)
        try:
            os.setpriority(os.PRIO_PROCESS, thread, before + nice)
            os.setpriority(os.PRIO_PROCESS, thread, before)
        except OSError:
            found.append(False)
        else:
            found.append(True)

    if sys.platform == "linux":
        one = threading.Thread(target=attempt, name="kafkatap-nice")
        one.start()
        one.join()
    return found == [True]


class Priority:
    """The niceness of the calling thread: the usual one, or `best` (a lower number) while it is raised. `others`: the
    ids of threads that have the same."""

    def __init__(self, best: int = 0, others: Callable[[], Iterable[int]] = tuple) -> None:
        self._best, self._others = best, others
        self._usual: int | None = None  # the niceness to restore, while it is raised

    @property
    def is_raised(self) -> bool:
        return self._usual is not None

    def raise_(self) -> bool:
        """Set the best niceness. Return whether that is allowed and better than before."""
        if self.is_raised or sys.platform != "linux":
            return False
        usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        if usual <= self._best:
            return False
        try:
            self._set(self._best)
        except OSError:  # not allowed
            return False
        self._usual = usual
        return True

    def restore(self) -> None:
        """Set the usual niceness again."""
        if self._usual is not None:
            with suppress(OSError):
                self._set(self._usual)
        self._usual = None

    def _set(self, nice: int) -> None:
        for thread in (threading.get_native_id(), *self._others()):
            os.setpriority(os.PRIO_PROCESS, thread, nice)
