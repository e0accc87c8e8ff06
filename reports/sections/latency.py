"""Latency by API, and also by client, broker, connection, version or topic.

Broker time ends with the response's first byte. It starts with the latest of three times: the request's last byte, the
first byte of the connection's previous response, and the end of a throttle wait. Total time runs from the request's
first byte to the response's last byte. A long poll is a Fetch that waited for its whole max_wait_ms. Long polls have
rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kafkatap.dissector.dtypes import FETCHES

from ..batch import Array, Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.histogram import P99
from ..counting.rollup import PARTS, Label, Rolled, add_up, api_label, group_columns, maybe, numbered_rows, roll_up
from ..model import Column, ReportTable, Row, Value, in_columns
from . import time_shares
from .time_shares import has_unknown_waits, spent

#: PARTS in the names of columns.
_PARTS = ("p50", "p90", "p99", "p999")
#: The APIs of the first rows, and their order: Produce and Fetch.
_ALWAYS: Mapping[object, int] = {0: 0, 1: 1}
BY = ("api", "client", "broker", "connection", "version", "topic")

_BY_COLUMNS = {
    "api": (),
    "client": (Column("client_id", "client", "text", "client_id of the requests"),),
    "broker": (Column("broker", "broker", "text", "address and port of the broker", end="broker"),),
    "connection": (
        Column("connection", "connection", "text", "the client's address and port, and the broker's", end="both"),
        Column("client_id", "client", "text", "client_id of the requests"),
    ),
    "version": (Column("api_version", "version", "count", "version of the API"),),
    "topic": (Column("topic", "topic", "text", "topic, or its id if the capture has no name for it"),),
}
_API = Column("api", "API", "text", "API of the request")
_VALUES = (
    Column("count", "count", "count", "requests"),
    Column("broker_p50_ns", "broker\np50", "ns", "broker time, median"),
    Column("broker_p90_ns", "broker\np90", "ns", "broker time, 90th percentile", 2),
    Column("broker_p99_ns", "broker\np99", "ns", "broker time, 99th percentile"),
    Column("broker_p999_ns", "broker\np99.9", "ns", "broker time, 99.9th percentile", 3),
    Column("broker_max_ns", "broker\nmax", "ns", "broker time, longest"),
    Column("total_p50_ns", "total\np50", "ns",
           "total time, median: from the request's first byte to the response's last byte", 3),
    Column("total_p90_ns", "total\np90", "ns", "total time, 90th percentile", 4),
    Column("total_p99_ns", "total\np99", "ns", "total time, 99th percentile"),
    Column("total_p999_ns", "total\np99.9", "ns", "total time, 99.9th percentile", 4),
    Column("total_max_ns", "total\nmax", "ns", "total time, longest", 2),
    Column("hol_waits", "HOL\nwaits", "count", "exchanges with a head-of-line wait", 4),
    Column("hol_wait_share", "HOL\nwaited", "share", "share of the answered exchanges with a head-of-line wait", 2),
    Column("hol_wait_p99_ns", "HOL wait\np99", "ns", "head-of-line wait (behind earlier requests of the connection), "
           "99th percentile of the exchanges that waited", 2),
    Column("hol_wait_sum_ns", "HOL wait\nsum", "ns", "head-of-line wait, summed", 5),
    Column("throttle_waits", "throttle\nwaits", "count", "exchanges with a throttle wait", 5),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "throttle wait, summed", 1),
    Column("throttle_wait_max_ns", "throttle\nwait max", "ns", "throttle wait, longest", 5),
    *time_shares.COLUMNS,
    Column("evidence", "evidence", "text", time_shares.EVIDENCE, 1),
    time_shares.HOL_BEHIND,
    Column("answered", "answered", "count", "requests with a response", 9),
    Column("no_reply_expected", "no reply", "count", "requests that expect no response (acks=0)", 9),
    Column("unanswered", "unanswered", "count", "requests without a response, or whose response was lost", 4),
    Column("api_key", "key", "count", "number of the API", 9),
    Column("long_poll", "long poll", "flag", "true: Fetches that waited for their whole max_wait_ms", 9),
)  # fmt: skip


def check_by(by: str) -> None:
    """Raise ValueError unless `by` is one of BY."""
    if by not in BY:
        raise ValueError(f"by must be one of {', '.join(BY)}, not {by!r}")


def latency_columns(by: str) -> tuple[Column, ...]:
    return (_API, *_BY_COLUMNS[by], *_VALUES)


def latency(counts: ReportCounts, context: Context, by: str = "api") -> ReportTable:
    """Rows in descending order of lost time (`time_shares.lost_ns`); Produce and Fetch come first. Long polls come
    last, or with `by` "api" after their API."""
    rolled = roll_latency(counts, context, by)
    v = rolled.values
    broker = rolled.percentiles(tally.M_BROKER, v["broker_max"])
    total = rolled.percentiles(tally.M_TOTAL, v["total_max"])
    hol_wait = rolled.percentiles(tally.M_HOL_WAIT, v["hol_wait_max"])
    requests = rolled.exchanges()
    lost = time_shares.lost_ns(v)
    order = sorted(
        (i for i in range(len(rolled)) if requests[i]),
        key=lambda i: (rolled.keys[i][1], -int(lost[i]), -int(requests[i]), str(rolled.keys[i])),
    )
    if by == "api":
        place = {rolled.keys[i][0]: n for n, i in reversed(list(enumerate(order)))}
        order.sort(key=lambda i: (_ALWAYS.get(rolled.keys[i][0], len(_ALWAYS)), place[rolled.keys[i][0]]))
    of_by = [column.name for column in _BY_COLUMNS[by]]
    shown = set[int]()

    def named_rows() -> Iterator[Row]:
        for i in order:
            api_key, long_poll, *rest = rolled.keys[i]
            assert isinstance(api_key, int)
            shown.add(api_key)
            answered, hol_waits = int(v["answered"][i]), int(v["hol_waits"][i])
            parts = spent(rolled, i)
            yield {
                "api": api_label(api_key, int(bool(long_poll))), **dict(zip(of_by, rest, strict=True)),
                "count": int(requests[i]),
                **_percentiles("broker", broker[i]), "broker_max_ns": int(v["broker_max"][i]) if answered else None,
                **_percentiles("total", total[i]), "total_max_ns": int(v["total_max"][i]) if answered else None,
                "hol_waits": hol_waits, "hol_wait_share": hol_waits / answered if answered else None,
                "hol_wait_p99_ns": maybe(hol_wait[i, PARTS.index(P99)]), "hol_wait_sum_ns": int(v["hol_wait_ns"][i]),
                "throttle_waits": int(v["throttle_waits"][i]), "throttle_wait_sum_ns": int(v["throttle_wait_ns"][i]),
                "throttle_wait_max_ns": int(v["throttle_wait_max"][i]) if v["throttle_waits"][i] else None,
                **parts.shares(), "evidence": parts.in_words(is_known=not has_unknown_waits(rolled, i)),
                time_shares.HOL_BEHIND.name: parts.hol_in_words(), "answered": answered,
                "no_reply_expected": int(v["no_reply_expected"][i]),
                "unanswered": int(v["unanswered"][i] + v["response_lost"][i]),
                "api_key": api_key, "long_poll": bool(long_poll),
            }  # fmt: skip

    rows = in_columns(latency_columns(by), named_rows())
    title = "Latency by API" + (f" and {by}" if by != "api" else "")
    notes = ["total: HOL wait (behind earlier requests of the connection) + throttle wait + broker + transfers."]
    if by == "topic":
        notes.append("An exchange with several topics counts for each of them.")
    elif shown.intersection(FETCHES):
        notes.append("A Fetch waits at the broker for data; a long poll is one that waited for its whole max_wait_ms.")
    return ReportTable(
        "latency", title, latency_columns(by), rows, tuple(notes), empty="no requests",
    )  # fmt: skip


def _percentiles(name: str, values: Array) -> dict[str, Value]:
    """The columns with PARTS of a time."""
    return {f"{name}_{part}_ns": maybe(value) for part, value in zip(_PARTS, values, strict=True)}


def roll_latency(counts: ReportCounts, context: Context, by: str) -> Rolled:
    """Rows by (api_key, long_poll) and `by`, without orphan responses."""
    table, histograms = (
        (counts.topics, counts.topic_histograms) if by == "topic" else (counts.groups, counts.histograms)
    )
    c = group_columns(table, tally.TOPIC_KEY if by == "topic" else tally.GROUP_KEY)
    keys, polls = c["api_key"].tolist(), c["long_poll"].tolist()
    if by == "api":
        rows = np.stack((c["api_key"], c["long_poll"]), axis=1)
        return add_up(table, tally.GROUP_VALUES, histograms, *numbered_rows(rows))
    names = [names_by(c, context, by)]
    if by == "connection":
        names.append(names_by(c, context, "client"))
    labels: list[Label | None] = list(zip(keys, polls, *names, strict=True))
    return roll_up(table, tally.GROUP_VALUES, histograms, labels)


def names_by(columns: Mapping[str, Array], context: Context, by: str) -> Sequence[int | str | None]:
    """The client, broker, connection, version or topic of each group. `columns`: the key columns of the table
    (`group_columns`)."""
    if by == "client":
        return [context.text(n) for n in columns["client_id"].tolist()]
    if by == "broker":
        ends = zip(columns["broker_ip"].tolist(), columns["broker_port"].tolist(), strict=True)
        return [endpoint(context.address(ip), port) for ip, port in ends]
    if by == "connection":
        columns_of_ends = ("client_ip", "client_port", "broker_ip", "broker_port")
        four = zip(*(columns[name].tolist() for name in columns_of_ends), strict=True)
        return [f"{endpoint(context.address(a), p)} > {endpoint(context.address(b), q)}" for a, p, b, q in four]
    if by == "topic":
        topics = zip(columns["topic"].tolist(), columns["topic_id"].tolist(), strict=True)
        return [context.topic(topic, topic_id) for topic, topic_id in topics]
    versions: list[int] = columns["api_version"].tolist()
    return versions
