"""Latency by API, and by client, broker, version or topic: the broker's own time, and the time that the client saw.

Broker time runs from the request's last byte (or, where that is later, the previous response's first byte on the
connection, or the end of a throttle window) to the response's first byte. Total time is first byte to last byte. A
Fetch that waited out its max_wait_ms is no slow Fetch: it has a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkatap.dissector.dtypes import FETCHES

from ..batch import Array, Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import PARTS, Rolled, api_label, group_columns, maybe, roll_up
from ..model import Column, Table, Value

BY = ("api", "client", "broker", "version", "topic")

_BY_COLUMNS = {
    "api": (),
    "client": (Column("client_id", "client", "text", "client_id of the requests"),),
    "broker": (Column("broker", "broker", "text", "address and port of the broker"),),
    "version": (Column("api_version", "version", "count", "version of the API"),),
    "topic": (Column("topic", "topic", "text", "topic, or its id where no name was seen"),),
}
_API = Column("api", "API", "text", "API of the request")
_VALUES = (
    Column("count", "count", "count", "requests"),
    Column("broker_p50_ns", "broker\np50", "ns", "broker time, median"),
    Column("broker_p90_ns", "broker\np90", "ns", "broker time, 90th percentile", 2),
    Column("broker_p99_ns", "broker\np99", "ns", "broker time, 99th percentile"),
    Column("broker_p999_ns", "broker\np99.9", "ns", "broker time, 99.9th percentile", 3),
    Column("broker_max_ns", "broker\nmax", "ns", "broker time, longest"),
    Column("total_p50_ns", "total\np50", "ns", "request's first byte to response's last byte, median", 3),
    Column("total_p90_ns", "total\np90", "ns", "total time, 90th percentile", 4),
    Column("total_p99_ns", "total\np99", "ns", "total time, 99th percentile"),
    Column("total_p999_ns", "total\np99.9", "ns", "total time, 99.9th percentile", 4),
    Column("total_max_ns", "total\nmax", "ns", "total time, longest", 2),
    Column("queued", "HOL\nwaits", "count", "exchanges that waited behind earlier requests of their connection", 4),
    Column("queued_share", "HOL\nshare", "share", "those, of the answered", 2),
    Column(
        "hol_wait_p99_ns",
        "HOL wait\np99",
        "ns",
        "head-of-line wait: behind earlier requests of the connection; 99th percentile of the exchanges that waited",
        2,
    ),
    Column("hol_wait_sum_ns", "HOL wait\nsum", "ns", "head-of-line wait, summed", 5),
    Column("throttle_waits", "throttle\nwaits", "count", "exchanges that a quota delayed on the wire", 5),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "time that quotas delayed them on the wire, summed", 1),
    Column("throttle_wait_max_ns", "throttle\nwait max", "ns", "time that a quota delayed one of them, longest", 5),
    Column("answered", "answered", "count", "requests with a response", 9),
    Column("no_reply_expected", "no reply", "count", "requests that ask for none (acks=0)", 9),
    Column("unanswered", "unanswered", "count", "requests without a response, or whose response was lost", 4),
    Column("api_key", "key", "count", "number of the API", 9),
    Column("long_poll", "long poll", "flag", "a Fetch that waited out its max_wait_ms", 9),
)


def check_by(by: str) -> None:
    """ValueError where a report cannot be by this."""
    if by not in BY:
        raise ValueError(f"a report is by one of {', '.join(BY)}, not by {by!r}")


def latency_columns(by: str) -> tuple[Column, ...]:
    return (_API, *_BY_COLUMNS[by], *_VALUES)


def latency(counts: ReportCounts, context: Context, by: str = "api") -> Table:
    """Rows in descending order of their summed broker time; long polls last, or (by API alone) after their API."""
    rolled = roll_latency(counts, context, by)
    v = rolled.values
    broker = rolled.percentiles(tally.M_BROKER, v["broker_max"])
    total = rolled.percentiles(tally.M_TOTAL, v["total_max"])
    queue = rolled.percentiles(tally.M_QUEUE, v["hol_wait_max"])
    requests = rolled.exchanges()
    order = sorted(
        (i for i in range(len(rolled)) if requests[i]),
        key=lambda i: (rolled.keys[i][1], -int(v["broker_ns"][i]), -int(requests[i]), str(rolled.keys[i])),
    )
    if by == "api":
        place = {rolled.keys[i][0]: n for n, i in reversed(list(enumerate(order)))}
        order.sort(key=lambda i: place[rolled.keys[i][0]])
    p99 = PARTS.index(9900)
    rows: list[tuple[Value, ...]] = []
    for i in order:
        api_key, long_poll, *rest = rolled.keys[i]
        assert isinstance(api_key, int)
        answered = int(v["answered"][i])
        rows.append((
            api_label(api_key, int(bool(long_poll))), *rest, int(requests[i]),
            *(maybe(p) for p in broker[i]), int(v["broker_max"][i]) if answered else None,
            *(maybe(p) for p in total[i]), int(v["total_max"][i]) if answered else None,
            int(v["queued"][i]), int(v["queued"][i]) / answered if answered else None, maybe(queue[i, p99]),
            int(v["hol_wait_ns"][i]),
            int(v["waited"][i]), int(v["wait_ns"][i]), int(v["wait_max"][i]) if v["waited"][i] else None,
            answered, int(v["no_reply_expected"][i]), int(v["unanswered"][i] + v["response_lost"][i]),
            api_key, bool(long_poll),
        ))  # fmt: skip
    title = "Latency by API" + (f" and {by}" if by != "api" else "")
    notes = [
        "total (request's first byte to response's last) = head-of-line wait (HOL, behind earlier requests of the "
        "connection) + throttle wait + broker + transfer. Largest sum of broker time first.",
    ]
    if any(row[-1] for row in rows):
        notes.append("Long poll: a Fetch that waited out its max_wait_ms; the other Fetch rows are without those.")
    if any(row[-2] in FETCHES for row in rows):
        notes.append("A Fetch waits at the broker for data: its broker time does not tell whether the broker is slow.")
    if by == "topic":
        notes.append("An exchange on several topics counts for each of them.")
    p99_note = "HOL wait p99 is that of the requests which waited so; HOL share is their share of the answered."
    return Table(
        "latency", title, latency_columns(by), rows, tuple(notes), empty="no requests",
        column_notes=(("hol_wait_p99_ns", p99_note),),
    )  # fmt: skip


def roll_latency(counts: ReportCounts, context: Context, by: str) -> Rolled:
    """Rows by (api_key, long_poll) and what else is asked for; orphan responses are left out."""
    table, histograms = (
        (counts.topics, counts.topic_histograms) if by == "topic" else (counts.groups, counts.histograms)
    )
    c = group_columns(table, tally.TOPIC_KEY if by == "topic" else tally.GROUP_KEY)
    keys, polls = c["api_key"].tolist(), c["long_poll"].tolist()
    labels: list[tuple[int | str | None, ...] | None]
    if by == "api":
        labels = list(zip(keys, polls, strict=True))
    else:
        labels = list(zip(keys, polls, names_by(c, context, by), strict=True))
    return roll_up(table, tally.GROUP_VALUES, histograms, labels)


def names_by(columns: Mapping[str, Array], context: Context, by: str) -> Sequence[int | str | None]:
    """What groups (or topics, or error codes) are called in rows by client, broker, version or topic: one a group.

    `columns`: the key columns of their table (`group_columns`).
    """
    if by == "client":
        return [context.text(n) for n in columns["client_id"].tolist()]
    if by == "broker":
        ends = zip(columns["broker_ip"].tolist(), columns["broker_port"].tolist(), strict=True)
        return [endpoint(context.address(ip), port) for ip, port in ends]
    if by == "topic":
        topics = zip(columns["topic"].tolist(), columns["topic_id"].tolist(), strict=True)
        return [context.topic(topic, topic_id) for topic, topic_id in topics]
    versions: list[int] = columns["api_version"].tolist()
    return versions
