"""How fast the lag of a reader grows, how far it is behind in time, and since when it falls back: from ends and
positions over time.

end(t)       the end of the partition, linear between what was captured if that is seconds apart, or else late
position(t)  the offset that the reader fetches next, which stays until it fetches from another one
lag(t)       end(t) less position(t)

The reader is behind by the time since end(t) passed its position. Its present fall began where lag(t) was least. A
reader that catches up has its least lag at the end. One that reads now and then has a fall before, or a rise since,
that is as large: neither falls back.

A position that somebody set back far is a new beginning: what was before says nothing of how fast the reader is.

Commits come now and then, so their lag rises between two of them. It counts just after each: a group that keeps up has
hardly any then, however seldom it commits. It also counts at the end if the group has stopped to commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..batch import Array
from .group_lag import Latest, PartitionLag
from .offsets_over_time import FETCHES, LEAST_NS, SPAN_NS

#: A change of the lag in the other direction that counts, as a part of the present fall: half of it is no noise.
_OTHER_WAY = 0.5
#: Ends further apart are not estimated between: the partition may have stood still.
_LONGEST_GAP_NS = 4_000_000_000
#: A group has stopped to commit after so many of its longest intervals. One that is behind by fewer than the second of
#: these keeps up.
_SILENT, _SEVERAL = 3, 2
_SECOND = 1_000_000_000
#: Shorter captures show no growth: positions and ends are kept for each two seconds.
_LEAST_SPAN_NS = 5 * _SECOND


class FallBack(NamedTuple):
    """A reader that falls back. `behind_ns`: since the end passed its position, and `is_at_least` if it had before the
    capture. `since`, `until`: of the present fall, ns since the epoch. `records`: what the lag grew by since.
    `appended`: what the partition did."""

    behind_ns: int
    is_at_least: bool
    since: int
    until: int
    records: int
    appended: float

    @property
    def records_per_s(self) -> float:
        """How fast the lag grows."""
        return self.records * _SECOND / (self.until - self.since)

    @property
    def appended_per_s(self) -> float:
        """How fast the partition grows."""
        return self.appended * _SECOND / (self.until - self.since)

    @property
    def fallen_ns(self) -> float:
        """The lag's growth in time: how long the partition needs for as many records."""
        return (self.until - self.since) * self.records / self.appended


class _Course(NamedTuple):
    """The lag over time: at `times`, `lags`, the last one at the end; and `ends` at `ends_at`. float64, times in ns
    since `start`."""

    start: int
    times: Array
    lags: Array
    ends_at: Array
    ends: Array


def growth_per_s(lag: PartitionLag, positions: Sequence[Latest], ends: Sequence[Latest]) -> float | None:
    """Records/s by which a lag grew from the first position to the last end, negative: the reader catches up. None: too
    little was captured. Arguments as of `fall_back`."""
    course = _course(lag, positions, ends)
    if course is None or course.ends_at[-1] - course.times[0] < _LEAST_SPAN_NS:
        return None
    grown = course.lags[-1] - course.lags[0]
    return float(grown * _SECOND / (course.ends_at[-1] - course.times[0]))


def commits_growth_per_s(offsets: Sequence[Latest], written: Sequence[int], ends: Sequence[Latest]) -> float | None:
    """The same of the lag of commits, from just after the first one to just after the last. Arguments as of
    `commits_fall_back`."""
    course = _commits_course(offsets, ends)
    if course is None or len(written) < FETCHES or course.times[-1] - course.times[0] < _LEAST_SPAN_NS:
        return None
    grown = course.lags[-1] - course.lags[0]
    if abs(grown) < 1:  # less than a record: ends between two that were captured are estimates
        return 0.0
    return float(grown * _SECOND / (course.times[-1] - course.times[0]))


class CommitsFallBack(NamedTuple):
    """A group whose commits fall back. `lag`: records at the end of the fall. `is_stopped`: it has not committed for
    long."""

    fall: FallBack
    lag: int
    is_stopped: bool


def commits_fall_back(
    offsets: Sequence[Latest], written: Sequence[int], ends: Sequence[Latest], is_read: bool
) -> CommitsFallBack | None:
    """How the commits of a group fall back on a partition, None: they do not, or too little was captured. `offsets`:
    the committed offset over time. `written`: when the group committed. `is_read`: it has a reader at the end."""
    if len(written) < FETCHES or len(ends) < 2:
        return None
    longest = int(np.diff(np.sort(np.array(written, np.int64))).max())
    until, committed = max(ends).time, max(offsets).value
    silent = until - max(written)
    is_stopped = silent >= max(LEAST_NS, _SILENT * longest)
    if is_stopped and not is_read:
        return None
    course = _commits_course(offsets, ends, at_end=is_stopped)
    if course is None:
        return None
    found = _fall_back(course, int(course.lags[-1]), committed, float(course.times[-1]))
    least = max(LEAST_NS, _SEVERAL * longest)
    # Of each span, the last commit is kept: the least lag may have been that much less.
    if found is None or found.behind_ns < least or found.fallen_ns < least - SPAN_NS:
        return None
    return CommitsFallBack(found, max(max(end.value for end in ends) - committed, 0), is_stopped)


def _commits_course(offsets: Sequence[Latest], ends: Sequence[Latest], at_end: bool = False) -> _Course | None:
    """The lag just after each commit, and at the end."""
    if len(ends) < 2 or not offsets:
        return None
    start = min(ends).time
    at, size = _columns(ends, start)
    size = np.maximum.accumulate(size)
    times, values = _columns(offsets, start)
    # After the last end that was captured, only commits of all that was there say something.
    seen = (times >= 0) & ((times <= at[-1]) | (values >= size[-1]))
    times, values = np.minimum(times[seen], at[-1]), values[seen]
    if not len(times):
        return None
    since = _set_back(values, size[-1] - values[-1])
    times, values = times[since:], values[since:]
    lags = np.interp(times, at, size) - values
    if at_end:
        times, lags = np.append(times, at[-1]), np.append(lags, size[-1] - values[-1])
    return _Course(start, times, np.maximum(lags, 0), at, size)


def fall_back(lag: PartitionLag, positions: Sequence[Latest], ends: Sequence[Latest]) -> FallBack | None:
    """How a reader falls back on a partition, None: it does not, or too little was captured. `lag`: at the end.
    `positions`, `ends`: over time, in any order."""
    course = _course(lag, positions, ends) if lag.lag else None
    if course is None or lag.lag is None or lag.position is None:
        return None
    return _fall_back(course, lag.lag, lag.position, float(course.ends_at[-1]))


def _fall_back(course: _Course, lag: int, position: int, until: float) -> FallBack | None:
    """`lag`: at `until`, where the course ends. `position`: the offset that the end passed."""
    start, times, lags, at, size = course
    least = len(lags) - 1 - int(np.argmin(lags[::-1]))
    grown, since = lag - lags[least], int(times[least])
    other_way = max(_largest_rise(lags[: least + 1]), _largest_rise(lags[least:][::-1]))
    appended = float(np.interp(until, at, size) - np.interp(since, at, size))
    if since >= until or grown <= 0 or appended <= 0 or other_way > _OTHER_WAY * grown:
        return None
    passed = int(np.searchsorted(size, position, side="right"))
    when = float(at[0])
    if 0 < passed < len(size):
        when = float(np.interp(position, size[passed - 1 : passed + 1], at[passed - 1 : passed + 1]))
        when = max(when, float(at[passed]) - _LONGEST_GAP_NS)
    return FallBack(int(until - when), passed == 0, start + since, start + int(until), round(float(grown)), appended)


def _course(lag: PartitionLag, positions: Sequence[Latest], ends: Sequence[Latest]) -> _Course | None:
    if lag.lag is None or lag.end is None or len(ends) < 2 or not positions:
        return None
    start = min(ends).time
    at, size = _columns(ends, start)
    size = np.maximum.accumulate(size)
    size[-1] = max(size[-1], lag.end)
    moments, offsets = _columns(positions, start)
    seen = (moments >= 0) & (moments <= at[-1])
    moments, offsets = moments[seen], offsets[seen]
    if not len(moments):
        return None
    since = _set_back(offsets, lag.lag)
    moments, offsets = moments[since:], offsets[since:]
    then = np.interp(moments, at, size)
    # Each time both before and after the position moves, and the end of the capture.
    times = np.append(np.repeat(moments, 2), at[-1])
    lags = np.append(np.stack([then - np.append(offsets[:1], offsets[:-1]), then - offsets], axis=1), lag.lag)
    lags = np.maximum(lags, 0)  # ends between two that were captured are estimates
    return _Course(start, times, lags, at, size)


def _set_back(offsets: Array, lag: float) -> int:
    """The row with which offsets go on after the last time that they were set back by as much as a large part of the
    lag at the end."""
    back = np.flatnonzero(offsets[:-1] - offsets[1:] > max(_OTHER_WAY * lag, 0))
    return int(back[-1]) + 1 if len(back) else 0


def _columns(points: Sequence[Latest], start: int) -> tuple[Array, Array]:
    """Times since `start`, ascending, and values: float64."""
    rows = np.array(sorted(points), np.int64)
    return (rows[:, 0] - start).astype(np.float64), rows[:, 1].astype(np.float64)


def _largest_rise(values: Array) -> float:
    """The largest difference of a value to one before it."""
    return float(np.max(values - np.minimum.accumulate(values)))
