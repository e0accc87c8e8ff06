"""Throttling by client_id and API: the throttle time in responses, and the throttle wait on the wire.

Since Kafka 2.0 (KIP-219) a broker sends a throttled response at once, and then delays the next request of the
connection. The throttle wait counts with the request that waited. So a row can have a throttle wait and no throttled
response. Older brokers hold the throttled response back: it waits itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkatap.kernels.arrays import distinct_values

from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.histogram import P99
from ..counting.rollup import Label, api_label, group_columns, maybe, roll_up, value_columns
from ..model import Column, ReportTable, Row, in_columns

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("api", "API", "text", "API of the request"),
    Column("responses", "responses", "count", "responses that have the field throttle_time_ms", 1),
    Column("throttled", "throttled", "count", "responses with throttle_time_ms above zero"),
    Column("throttled_share", "share", "share", "share of the responses that are throttled"),
    Column("throttle_time_sum_ms", "throttle\ntime sum", "ms", "throttle_time_ms, summed"),
    Column(
        "throttle_time_p99_ms",
        "throttle\ntime p99",
        "ms",
        "throttle_time_ms, 99th percentile of the throttled responses",
        1,
    ),
    Column("throttle_time_max_ms", "throttle\ntime max", "ms", "throttle_time_ms, largest"),
    Column("throttle_waits", "throttle\nwaits", "count", "requests with a throttle wait", 1),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "throttle wait, summed"),
    Column(
        "throttle_wait_p99_ns",
        "throttle\nwait p99",
        "ns",
        "throttle wait, 99th percentile of the requests that waited",
        2,
    ),
    Column("throttle_wait_max_ns", "throttle\nwait max", "ns", "throttle wait, longest"),
)


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
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, labels)
    v = rolled.values
    times = rolled.percentiles(tally.M_THROTTLE_TIME, v["throttle_time_ms_max"], (P99,))
    waits = rolled.percentiles(tally.M_THROTTLE_WAIT, v["throttle_wait_max"], (P99,))
    chosen = [i for i in range(len(rolled)) if v["throttled"][i] or v["throttle_waits"][i]]
    chosen.sort(key=lambda i: (-int(v["throttle_wait_ns"][i]), -int(v["throttle_time_ms"][i]), str(rolled.keys[i])))

    def named_rows() -> Iterator[Row]:
        for i in chosen:
            client, api_key = rolled.keys[i]
            assert isinstance(api_key, int)
            known, throttled, waited = int(v["throttle_known"][i]), int(v["throttled"][i]), int(v["throttle_waits"][i])
            yield {
                "client_id": client, "api": api_label(api_key), "responses": known, "throttled": throttled,
                "throttled_share": throttled / known if known else None,
                "throttle_time_sum_ms": int(v["throttle_time_ms"][i]), "throttle_time_p99_ms": maybe(times[i, 0]),
                "throttle_time_max_ms": int(v["throttle_time_ms_max"][i]) if throttled else None,
                "throttle_waits": waited, "throttle_wait_sum_ns": int(v["throttle_wait_ns"][i]),
                "throttle_wait_p99_ns": maybe(waits[i, 0]),
                "throttle_wait_max_ns": int(v["throttle_wait_max"][i]) if waited else None,
            }  # fmt: skip

    notes = (
        "Throttle time: throttle_time_ms in the responses.",
        "Throttle wait: of the next requests of the connection, of any API; before Kafka 2.0, of the throttled one.",
    )
    return ReportTable(
        "throttle", "Throttling by client and API", COLUMNS, in_columns(COLUMNS, named_rows()), notes,
        empty="no response was throttled",
    )  # fmt: skip
