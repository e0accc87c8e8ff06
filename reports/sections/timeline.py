"""Counts for each time interval. An exchange counts in the interval in which its request began."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import WAITS
from kafkatap.kernels.arrays import is_among

from .. import units
from ..batch import Array, Context
from ..counting import tally
from ..counting.counts import INTERVALS, SECOND, ReportCounts
from ..counting.histogram import P50, P99
from ..counting.rollup import group_columns, maybe, roll_up
from ..model import Column, ReportTable, Row, in_columns

COLUMNS = (
    Column("start", "start", "time", "start of the interval"),
    Column("requests", "requests", "count", "requests that began in it"),
    Column("answered", "answered", "count", "requests with a response", 1),
    Column("unanswered", "un-\nanswered", "count", "requests without a response", 1),
    Column("response_lost", "response\nlost", "count",
           "requests whose response was lost in a gap, or came after the capture", 1),
    Column("failed_exchanges", "failed", "count", "exchanges whose response has a non-zero error code"),
    Column("error_codes", "error\ncodes", "count", "non-zero error codes in their responses", 1),
    Column("throttled", "throttled", "count", "responses with throttle_time_ms above zero"),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "throttle wait, summed", 2),
    Column("timed", "timed", "count", "exchanges that the broker times cover", 9),
    Column("broker_p50_ns", "broker\np50", "ns",
           "broker time, median (without Fetch, JoinGroup and SyncGroup where there are others)"),
    Column("broker_p99_ns", "broker\np99", "ns",
           "broker time, 99th percentile (without Fetch, JoinGroup and SyncGroup where there are others)"),
    Column("broker_max_ns", "broker\nmax", "ns",
           "broker time, longest (without Fetch, JoinGroup and SyncGroup where there are others)", 1),
    Column("message_bytes", "message\nbytes", "bytes", "sizes of requests and responses, summed", 1),
)  # fmt: skip

WITHOUT_WAITS = "without Fetch, JoinGroup and SyncGroup"
LONG_POLLS = "without long polls"

#: Values of the timeline that a row shows as they are.
_COUNTED = (
    "requests", "answered", "unanswered", "response_lost", "failed_exchanges", "error_codes", "throttled",
)  # fmt: skip
#: Round intervals, seconds.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)
#: Empty intervals get a row as long as the timeline has at most this many rows.
_FILL_LIMIT = 10_000


def display_interval(counts: ReportCounts, rows: int) -> int:
    """The interval that the user chose, or else the shortest round one that needs at most `rows` rows."""
    times = counts.timeline.key_rows()[:, 0]
    if counts.fixed_interval or len(times) == 0:
        return counts.interval
    first, last = int(times.min()) * counts.interval, int(times.max()) * counts.interval
    for step in (s * SECOND for s in _STEPS):
        if step % counts.interval == 0 and last // step - first // step < rows:
            return step
    return max(counts.interval, INTERVALS[-1])


def timeline(counts: ReportCounts, context: Context, rows: int = 24) -> ReportTable:
    """Rows in time order, including empty intervals."""
    interval = display_interval(counts, rows)
    c = group_columns(counts.timeline, tally.TIMELINE_KEY)
    starts = c["interval"] * counts.interval // interval
    labels: list[tuple[int | str | None, ...] | None] = [(start,) for start in starts.tolist()]
    rolled = roll_up(counts.timeline, tally.TIMELINE_VALUES, counts.timeline_histograms, labels)
    v = rolled.values
    times: Array = np.array([k[0] for k in rolled.keys], np.int64)
    # Requests that wait for data or for other members would hide the times of all others.
    waits = is_among(c["api_key"], WAITS)
    mixed = bool((~waits).any())
    prompt = roll_up(
        counts.timeline, tally.TIMELINE_VALUES, counts.timeline_histograms,
        [None if mixed and wait else label for label, wait in zip(labels, waits.tolist(), strict=True)],
    )  # fmt: skip
    broker = prompt.percentiles(tally.M_BROKER, prompt.values["broker_max"], (P50, P99))
    timed = prompt.counted(tally.M_BROKER)
    prompt_row = {key[0]: i for i, key in enumerate(prompt.keys)}
    found = {int(t): i for i, t in enumerate(times)}
    shown = sorted(found)
    if shown and shown[-1] - shown[0] < _FILL_LIMIT:
        shown = list(range(shown[0], shown[-1] + 1))

    def row_of(t: int) -> Row:
        i, at = found.get(t, -1), prompt_row.get(t, -1)
        p50, p99 = (maybe(broker[at, 0]), maybe(broker[at, 1])) if at >= 0 else (None, None)
        return {
            "start": t * interval, **{name: int(v[name][i]) if i >= 0 else 0 for name in _COUNTED},
            "message_bytes": int(v["bytes"][i]) if i >= 0 else 0,
            "throttle_wait_sum_ns": int(v["throttle_wait_ns"][i]) if i >= 0 else 0,
            "timed": int(timed[at]) if at >= 0 else 0, "broker_p50_ns": p50, "broker_p99_ns": p99,
            "broker_max_ns": None if p50 is None else int(prompt.values["broker_max"][at]),
        }  # fmt: skip

    out = in_columns(COLUMNS, map(row_of, shown))
    title = f"Timeline, {units.step(interval)} each"
    notes = (
        "An exchange counts in the interval in which its request began.",
        f"Broker times are {WITHOUT_WAITS if mixed and waits.any() else LONG_POLLS}.",
    )
    return ReportTable(
        "timeline", title, COLUMNS, out, notes, whole=not counts.fixed_interval and len(out) <= rows,
        empty="no requests", chosen_by="requests", bars=("requests", "broker_p99_ns"),
    )  # fmt: skip
