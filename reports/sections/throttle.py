"""Throttling by client_id and API: the throttle time in responses, and the throttle wait on the wire.

Since Kafka 2.0 (KIP-219) a broker sends a throttled response at once, and then delays the next request of the
connection. The throttle wait counts with the request that waited. So a row can have a throttle wait and no throttled
response. Older brokers hold the throttled response back: it waits itself.
"""

from __future__ import annotations

from kafkatap.kernels.arrays import distinct_values

from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.histogram import P99
from ..counting.rollup import Label, api_label, group_columns, roll_up, value_columns
from ..model import Column, ReportTable, in_columns

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests", of=lambda r: r.key[0]),
    Column("api", "API", "text", "API of the request", of=lambda r: api_label(r.key[1])),
    Column("responses", "responses", "count", "responses that have the field throttle_time_ms", 1, of="throttle_known"),
    Column("throttled", "throttled", "count", "responses with throttle_time_ms above zero"),
    Column("throttled_share", "share", "share", "share of the responses that are throttled",
           of=lambda r: r.throttled / r.throttle_known if r.throttle_known else None),
    Column("throttle_time_sum_ms", "throttle\ntime sum", "ms", "throttle_time_ms, summed", of="throttle_time_ms"),
    Column("throttle_time_p99_ms", "throttle\ntime p99", "ms",
           "throttle_time_ms, 99th percentile of the throttled responses", 1,
           of=lambda r: r.percentile(tally.M_THROTTLE_TIME, "throttle_time_ms_max", P99)),
    Column("throttle_time_max_ms", "throttle\ntime max", "ms", "throttle_time_ms, largest",
           of=lambda r: r.throttle_time_ms_max if r.throttled else None),
    Column("throttle_waits", "throttle\nwaits", "count", "requests with a throttle wait", 1),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "throttle wait, summed", of="throttle_wait_ns"),
    Column("throttle_wait_p99_ns", "throttle\nwait p99", "ns",
           "throttle wait, 99th percentile of the requests that waited", 2,
           of=lambda r: r.percentile(tally.M_THROTTLE_WAIT, "throttle_wait_max", P99)),
    Column("throttle_wait_max_ns", "throttle\nwait max", "ns", "throttle wait, longest",
           of=lambda r: r.throttle_wait_max if r.throttle_waits else None),
)  # fmt: skip


def throttle(counts: ReportCounts, context: Context) -> ReportTable:
    """Rows with throttle time or throttle wait, the longest summed wait first."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    has_rows = bool(((values["throttled"] > 0) | (values["throttle_waits"] > 0)).any())
    names = {n: context.text(n) for n in distinct_values(c["client_id"]).tolist()} if has_rows else {}
    labels: list[Label | None] = [
        (names[client], key) if has_rows else None
        for client, key in zip(c["client_id"].tolist(), c["api_key"].tolist(), strict=True)
    ]
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, labels).rows()
    rows = in_columns(
        COLUMNS, (row for row in rolled if row.throttled or row.throttle_waits),
        lambda r: (-r.throttle_wait_ns, -r.throttle_time_ms, str(r.key)),
    )  # fmt: skip
    notes = (
        "Throttle wait: of the next requests of the connection; before Kafka 2.0, of the throttled one.",
        "Several may wait for the same throttle time: one that is not sent whole waits for all of it meanwhile.",
    )
    return ReportTable(
        "throttle", "Throttling by client and API", COLUMNS, rows, notes, empty="no response was throttled",
    )  # fmt: skip
