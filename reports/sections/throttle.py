"""Throttling by client_id and API: what brokers said in throttle_time_ms, and what was really waited on the wire.

Since Kafka 2.0 the throttled response comes at once and the next request on that connection waits: the throttle wait is
counted with the request that waited, so a row can have one without a throttled response of its own.
"""

from __future__ import annotations

from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.histogram import P99
from ..counting.rollup import api_label, group_columns, maybe, roll_up
from ..model import Column, Table, Value

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("api", "API", "text", "API of the request"),
    Column("responses", "responses", "count", "responses that have the field throttle_time_ms", 1),
    Column("throttled", "throttled", "count", "... and in which it is above zero"),
    Column("share", "share", "share", "throttled of those responses"),
    Column("throttle_sum_ms", "throttle\ntime sum", "ms", "throttle_time_ms, summed"),
    Column("throttle_p99_ms", "throttle\ntime p99", "ms", "throttle_time_ms, 99th percentile of the throttled", 1),
    Column("throttle_max_ms", "throttle\ntime max", "ms", "throttle_time_ms, largest"),
    Column("waits", "throttle\nwaits", "count", "requests that a quota delayed on the wire", 1),
    Column("wait_sum_ns", "throttle\nwait sum", "ns", "how long, summed"),
    Column("wait_p99_ns", "throttle\nwait p99", "ns", "how long, 99th percentile of those requests", 2),
    Column("wait_max_ns", "throttle\nwait max", "ns", "how long, at most"),
)


def throttle(counts: ReportCounts, context: Context) -> Table:
    """Rows with throttle time or throttle wait, the longest summed wait first."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    labels: list[tuple[int | str | None, ...] | None] = [
        (context.text(client), key) for client, key in zip(c["client_id"].tolist(), c["api_key"].tolist(), strict=True)
    ]
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, labels)
    v = rolled.values
    told = rolled.percentiles(tally.M_THROTTLE_MS, v["throttle_ms_max"], (P99,))
    waits = rolled.percentiles(tally.M_WAIT, v["wait_max"], (P99,))
    chosen = [i for i in range(len(rolled)) if v["throttled"][i] or v["waited"][i]]
    chosen.sort(key=lambda i: (-int(v["wait_ns"][i]), -int(v["throttle_ms"][i]), str(rolled.keys[i])))
    rows: list[tuple[Value, ...]] = []
    for i in chosen:
        client, api_key = rolled.keys[i]
        assert isinstance(api_key, int)
        known, throttled, waited = int(v["throttle_known"][i]), int(v["throttled"][i]), int(v["waited"][i])
        rows.append((
            client, api_label(api_key), known, throttled, throttled / known if known else None,
            int(v["throttle_ms"][i]), maybe(told[i, 0]), int(v["throttle_ms_max"][i]) if throttled else None,
            waited, int(v["wait_ns"][i]), maybe(waits[i, 0]), int(v["wait_max"][i]) if waited else None,
        ))  # fmt: skip
    notes = (
        "Throttle time: throttle_time_ms of the responses. Throttle wait: what requests really waited for it on the "
        "wire; since Kafka 2.0 that is the next request of the connection, whatever its API.",
    )
    return Table("throttle", "Throttling by client and API", COLUMNS, rows, notes, empty="no response was throttled")
