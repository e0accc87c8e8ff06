"""Broker times: where requests spend their time inside of brokers, by the brokers' own request logs.

`kafkatap.request_log` joins the lines of the logs with exchanges. This section only adds them up: by API, by client,
and the difference between the broker's clock and ours. It has no counts of its own: the joined rows are those of the
option `request_log`.

The broker measures from the moment in which it has read a request (totalTimeMs). Its parts:

* request queue: waits for a request handler thread
* local: a request handler thread works on it
* remote: waits in purgatory, for followers, for data, or for other members
* response queue: waits for a network thread
* send: a network thread sends the response
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, WAITS
from kafkatap.kernels.arrays import is_among

from .. import units
from ..batch import Array, Context
from ..counting.percentiles import percentile
from ..counting.rollup import api_label
from ..model import Column, ReportTable, Row, Value, in_columns
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section, SectionInput
from ..section_parts.section_counts import Tally

PARTS = ("request_queue", "local", "remote", "throttle", "response_queue", "send")
_TITLES = {
    "request_queue": "request\nqueue", "local": "local", "remote": "remote", "throttle": "throttle",
    "response_queue": "response\nqueue", "send": "send",
}  # fmt: skip
_MEANT = {
    "request_queue": "it waited for a request handler thread",
    "local": "a request handler thread worked on it",
    "remote": "it waited for followers, data or members",
    "throttle": "as the broker logs its throttling",
    "response_queue": "the response waited for a network thread",
    "send": "a network thread sent the response",
}


def _pair(name: str, title: str, note: str, ranks: tuple[int, int] = (0, 0)) -> tuple[Column, Column]:
    return (
        Column(f"{name}_p50_ns", f"{title}\np50", "ns", f"median: {note}", ranks[0]),
        Column(f"{name}_p99_ns", f"{title}\np99", "ns", f"99 of 100 are at most this: {note}", ranks[1]),
    )


_TIMES = (
    Column("joined", "joined", "count", "answered requests that are in a log too"),
    Column("joined_share", "share", "share", "of the answered requests of these brokers in the captures", 4),
    *_pair("log_total", "broker's\nclock", "totalTimeMs of the broker"),
    *_pair("broker", "broker\ntime", "broker time, as packets show it"),
    *(c for part in PARTS for c in _pair(f"log_{part}", _TITLES[part], f"{part}TimeMs: {_MEANT[part]}",
                                         (6, 6) if part == "throttle" else (1, 3))),
    *_pair("hol_wait", "HOL\nwait", "head-of-line wait, before the broker's clock starts", (5, 5)),
    *_pair("throttle_wait", "throttle\nwait", "throttle wait, before the broker's clock starts", (5, 5)),
    *_pair("transfer", "transfer", "from the first to the last byte of the request, and of the response", (5, 5)),
    Column("difference_p50_ns", "differ-\nence p50", "ns", "median of broker time - totalTimeMs", 2),
    Column("difference_p90_ns", "differ-\nence p90", "ns", "90 of 100 differ by at most this, in either direction", 3),
    Column("difference_p99_ns", "differ-\nence p99", "ns", "99 of 100 differ by at most this, in either direction", 2),
    Column("dominant", "most in", "text", "the part with most of the time; empty: none has half of it"),
    Column("dominant_share", "of it", "share", "the part's share of the broker's time"),
    Column("finding", "finding", "text", "what that means; of the broker's own parts only from 100 requests on"),
)  # fmt: skip
API = Column("api", "API", "text", "API of the requests")
BY_API = (API, *_TIMES)
BY_CLIENT = (Column("client_id", "client", "text", "client_id of the requests"), API, *_TIMES)
DIFFERENCES = (
    Column("compared", "compared with the broker's clock", "text",
           "a time between packets, without some waits", of=lambda d: d[0]),
    Column("count", "count", "count", "answered requests that are in a log too", of=lambda d: len(d[1])),
    Column("difference_p50_ns", "difference p50", "ns", "median of the difference, in either direction",
           of=lambda d: percentile(d[1], 50)),
    Column("difference_mean_ns", "difference mean", "ns", "mean of it", of=lambda d: int(d[1].mean())),
    Column("difference_p90_ns", "difference p90", "ns", "90 of 100 differ by at most this",
           of=lambda d: percentile(d[1], 90)),
    Column("difference_p99_ns", "difference p99", "ns", "99 of 100 differ by at most this",
           of=lambda d: percentile(d[1], 99)),
)  # fmt: skip
UNMATCHED = (
    Column("side", "side", "text", "capture: requests without a line; log: lines without a request"),
    Column("reason", "reason", "text", "why it has no partner"),
    Column("count", "count", "count", "number of them", of="number"),
    Column("share", "share", "share", "of all requests in the captures, or of all lines",
           of=lambda u: u.number / u.of if u.of else None),
)  # fmt: skip
FILES = (
    Column("path", "path", "text", "path of the log", of="file.path"),
    Column("lines", "lines", "count", "lines in it", of="file.lines"),
    Column("requests", "requests", "count", "lines of requests", of="file.requests"),
    Column("unreadable", "unread-\nable", "count", "lines of requests that are cut, or of an unknown form",
           of="file.unreadable"),
    Column("joined", "joined", "count", "lines whose request is in the captures"),
    Column("first", "first", "time", "earliest time in it, by the broker's clock"),
    Column("last", "last", "time", "latest time in it, by the broker's clock"),
    Column("offset_ns", "clock\nahead by", "ns",
           "median of the time of a line - the end of its exchange; with the log's time zone, if it names none"),
    Column("damage", "damage", "text", "why the rest of it could not be read", of="file.damage"),
)  # fmt: skip
#: The share of the time from which on a part is named.
NAMED = 0.5
#: Requests from which on the table blames a broker's own parts: a few show nothing about its settings.
LEAST = 100
_EXACT = "Percentiles of this table are exact. Those of the latency table are of buckets less than 1 % wide."
_PRODUCE = 0
_NO_LOG = "this section needs the request logs of brokers: --request-log FILE"


class JoinedRows(Protocol):
    """What `LogJoin.joined` returns; see there."""

    @property
    def exchanges(self) -> Array: ...
    @property
    def lines(self) -> Array: ...
    @property
    def is_answered(self) -> Array: ...
    @property
    def files(self) -> Sequence[Any]: ...
    @property
    def unmatched(self) -> Sequence[Any]: ...
    @property
    def captured(self) -> dict[int, int]: ...


def finding_of(part: str, api_key: int) -> str:
    """What it means that a part has most of the time of an API."""
    if part == "remote":
        if api_key == _PRODUCE:
            return "followers: replication of acks=all"
        if api_key in FETCHES:
            return "long poll: no data yet"
        if api_key in WAITS:
            return "other members of the group"
        return "a coordinator or other brokers"
    return {
        "request_queue": "too few handlers: num.io.threads",
        "local": "disk, CPU or locks of the broker",
        "response_queue": "too few: num.network.threads",
        "send": "network threads or slow readers",
        "throttle": "a quota",
    }.get(part, "")


def differences(joined: JoinedRows) -> dict[str, Array]:
    """The difference of the time between packets from the broker's clock, in either direction: int64 ns, by what is
    left out."""
    rows, lines = _answered(joined)
    between = rows["response_first"] - rows["request_last"]
    clock = lines["total"]
    return {
        "from the request's last byte to the response's first byte": np.abs(between - clock),
        "... without head-of-line wait": np.abs(between - rows["hol_wait_ns"] - clock),
        "... and without throttle wait (this is broker time)": np.abs(rows["broker_ns"] - clock),
    }


def _answered(joined: JoinedRows) -> tuple[Array, Array]:
    chosen = joined.is_answered
    return joined.exchanges[chosen], joined.lines[chosen]


def _times(rows: Array, lines: Array, of: int | None) -> dict[str, Value]:
    """The values of _TIMES."""
    columns = {
        "log_total": lines["total"], "broker": rows["broker_ns"], **{f"log_{part}": lines[part] for part in PARTS},
        "hol_wait": rows["hol_wait_ns"], "throttle_wait": rows["throttle_wait_ns"],
        "transfer": (rows["request_last"] - rows["request_first"]) + (rows["response_last"] - rows["response_first"]),
    }  # fmt: skip
    values: dict[str, Value] = {"joined": len(rows), "joined_share": len(rows) / of if of else None}
    for name, column in columns.items():
        known = column[column >= 0]
        values |= {f"{name}_p50_ns": percentile(known, 50), f"{name}_p99_ns": percentile(known, 99)}
    apart = rows["broker_ns"] - lines["total"]
    values |= {
        "difference_p50_ns": percentile(apart, 50),
        **{f"difference_p{part}_ns": percentile(np.abs(apart), part) for part in (90, 99)},
    }
    return values | _dominant(rows, lines)


def _dominant(rows: Array, lines: Array) -> dict[str, Value]:
    sums = {part: int(np.maximum(lines[part], 0).sum()) for part in PARTS if part != "throttle"}
    total = sum(sums.values())
    part = max(sums, key=lambda name: sums[name])
    if not total or sums[part] < NAMED * total:
        return {"dominant": None, "dominant_share": None, "finding": None}
    text = _TITLES[part].replace("\n", " ")
    is_enough = part == "remote" or len(rows) >= LEAST
    finding = finding_of(part, int(rows["api_key"][0])) if is_enough else None
    return {"dominant": text, "dominant_share": sums[part] / total, "finding": finding}


def _by_api(rows: Array, lines: Array, captured: dict[int, int]) -> Iterator[Row]:
    for api in _largest(rows["api_key"], lines["total"]):
        mine = rows["api_key"] == api
        yield {"api": api_label(api), **_times(rows[mine], lines[mine], captured.get(api))}


def _by_client(rows: Array, lines: Array, context: Context) -> Iterator[Row]:
    both = (rows["client_id"].astype(np.int64) << 16) | (rows["api_key"].astype(np.int64) & 0xFFFF)
    for key in _largest(both, lines["total"]):
        mine = both == key
        api = int(rows["api_key"][mine][0])
        yield {"client_id": context.text(key >> 16), "api": api_label(api), **_times(rows[mine], lines[mine], None)}


def _largest(keys: Array, times: Array) -> list[int]:
    """The distinct keys, those with most time first."""
    found, inverse = np.unique(keys, return_inverse=True)
    sums = np.bincount(inverse.reshape(-1), weights=times, minlength=len(found))
    order: list[int] = found[np.argsort(-sums, kind="stable")].tolist()
    return order


def _note(joined: JoinedRows, rows: Array, lines: Array) -> str:
    """Where most of the brokers' time goes, without long polls and waits for members."""
    chosen = ~is_among(rows["api_key"], WAITS)
    sums = {part: int(np.maximum(lines[part][chosen], 0).sum()) for part in PARTS if part != "throttle"}
    total = sum(sums.values())
    if not total:
        return ""
    texts = [f"{_TITLES[part].replace(chr(10), ' ')} {units.share(n / total)}" for part, n in
             sorted(sums.items(), key=lambda item: -item[1])]  # fmt: skip
    return f"The brokers' time, without APIs that wait for data or members: {', '.join(texts)}."


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """The tables of the joined rows that the option `request_log` has."""
    title = "Broker times by API, from the brokers' request logs"
    source = given.options.get("request_log")
    if source is None or not hasattr(source, "joined"):
        return (ReportTable("broker_times", title, BY_API, [], empty=_NO_LOG),)
    joined: JoinedRows = source.joined(given.context)
    rows, lines = _answered(joined)
    note = _note(joined, rows, lines)
    notes = tuple(filter(None, (note, _EXACT if len(rows) else "")))
    empty = "no line of the logs belongs to a request of the captures; see below"
    found = in_columns(BY_API, _by_api(rows, lines, joined.captured))
    made = [ReportTable("broker_times", title, BY_API, found, notes, empty=empty)]
    if source.by_client:
        found = in_columns(BY_CLIENT, _by_client(rows, lines, given.context))
        made.append(ReportTable("broker_times_by_client", "Broker times by client", BY_CLIENT, found, empty=empty))
    return (*made, _differences(joined), _unmatched(joined), _files(joined))


def _differences(joined: JoinedRows) -> ReportTable:
    made = in_columns(DIFFERENCES, (each for each in differences(joined).items() if len(each[1])))
    return ReportTable("broker_time_differences", "Difference from the broker's clock", DIFFERENCES, made, whole=True)


def _unmatched(joined: JoinedRows) -> ReportTable:
    return ReportTable(
        "request_log_unmatched", "Requests and lines without a partner", UNMATCHED,
        in_columns(UNMATCHED, joined.unmatched), whole=True,
        empty="every request is in a log, and every line in a capture",
    )  # fmt: skip


def _files(joined: JoinedRows) -> ReportTable:
    return ReportTable("request_logs", "Request logs", FILES, in_columns(FILES, joined.files), whole=True)


def read(gathered: Gathered, tally: Tally) -> None:
    """Nothing: `LogJoin` gets the exchanges itself."""


SECTION = Section(
    "broker-times", "Where does the time go inside of the brokers, by their own request logs (--request-log)?",
    columns={
        "broker_times": BY_API, "broker_times_by_client": BY_CLIENT, "broker_time_differences": DIFFERENCES,
        "request_log_unmatched": UNMATCHED, "request_logs": FILES,
    },
    tables=tables, read=read,
)  # fmt: skip
