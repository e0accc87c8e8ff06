"""Timeouts: requests without a response, and responses that came too late; whose fault, and what the retry got.

A response is too late if the client has closed the connection meanwhile, so that its host answers with a RST, or if it
took `--late` (30 s, the default of request.timeout.ms). The capture does not hold the client's own timeout.

The cause is judged in this order:

1. quota    the broker throttles the client, and so reads no requests of it for a while
2. network  the client's host sent data of the connection again, twice or more, although the broker's window was open
3. broker   it closed the connection, or answered too late, or not at all until the client closed the connection
4. client   it closed the connection within `_PATIENCE` of its request, or while JoinGroup waited for other members
5. unknown  neither end closed the connection while it was captured

A retry is the same record batch on any connection (`questions.batch_copies`); of other requests, a later one of the
same client, address and API on another connection.

Only unanswered exchanges, and those that took `_PATIENCE`, are events. The counts that they are joined with have a row
for each connection, and one for each of its APIs; beyond `--max-names`, the latest are kept.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, FETCHES, NO_INT32, RESPONSE_LOST, UNANSWERED, WAITS

from ..batch import CLOSERS, NOT_CLOSED, P_KAFKA, WITH_RST, Array, endpoint
from ..counting.count_table import MAX, SUM
from ..counting.rollup import api_label
from ..model import Column, ReportTable, Value
from ..questions.batch_copies import FACTS, batch_form, batch_key, count_batches, first_batches
from ..questions.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..questions.event_rows import events_of
from ..questions.gathered import Gathered
from ..questions.section import READ_SELECTED, Section, SectionInput
from ..questions.section_counts import Tally
from ..units import duration

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("address", "address", "text", "IP address of the client", 2),
    Column("broker", "broker", "text", "address and port of the broker", 2),
    Column("api", "API", "text", "API of the requests"),
    Column("requests", "requests", "count", "requests without a response, or with one that came too late"),
    Column("fault", "fault", "text", "network, broker, quota, client or unknown"),
    Column("what", "what happened", "text", "what happened to them"),
    Column("waited_ns", "longest\nwait", "ns", "the longest time from a request to its response, or to the last packet "
                                               "of its connection"),
    Column("retransmitted_packets", "sent\nagain", "count", "packets of the client that were sent again, most on one "
                                                            "connection", 1),
    Column("retried", "retry\nanswered", "count", "requests with a retry on another connection that was answered"),
    Column("not_retried", "no retry\nanswered", "count", "requests without such a retry", 3),
    Column("first", "first", "time", "the first such request"),
    Column("last", "last", "time", "the last such request", 2),
    Column("packet", "packet", "packet", "packet of the first such request", 2),
)  # fmt: skip

DEFAULT_LATE_NS = 30_000_000_000
#: Exchanges of at least this total time are candidates; a client that waits less than this does not wait.
_PATIENCE = 1_000_000_000
#: A RST of the client that follows a response within this means that the response was too late.
_RESET_AFTER = 1_000_000_000
_RETRANSMITTED = 2
#: A client that a broker told to wait this long is throttled.
_THROTTLED_MS = 1000
#: JoinGroup and SyncGroup, which wait for other members.
_WAIT_FOR_MEMBERS = tuple(key for key in WAITS if key not in FETCHES)

_BATCHES = batch_form("timeouts")
_ANSWERED = CountForm(
    "timeouts.answered",
    {"client_id": TEXT, "client_ip": ADDRESS, "api_key": NUMBER, "connection": NUMBER},
    {"answered": SUM, "last": MAX, "throttle_ms": MAX},
    {"client_id": OTHER, "client_ip": -1, "api_key": -1, "connection": 0},
    newest="last",
)
_CONNECTIONS = CountForm(
    "timeouts.connections",
    {"connection": NUMBER},
    {
        "is_suspect": MAX,
        "last": MAX,
        "closed_by": MAX,
        "closed_with": MAX,
        "reset_by": MAX,
        "retransmitted": MAX,
        "zero_windows": MAX,
    },
    {"connection": 0},
    newest="last",
)
_CLIENT, _BROKER = 0, 1
#: The order of rows: clients that end while a request waits are usual.
_FAULTS = ("network", "broker", "quota", "unknown", "client")


def read(gathered: Gathered, tally: Tally) -> None:
    """Note candidates: v0 request's time, v1 response's, v2 to v4 and partition its first batch, v5 max_wait_ms."""
    rows = gathered.exchanges
    answered = rows["outcome"] == ANSWERED
    waited = rows["total_ns"].copy()
    polls = np.isin(rows["api_key"], FETCHES) & (rows["max_wait_ms"] != NO_INT32)
    waited[polls] -= rows["max_wait_ms"][polls].astype(np.int64) * 1_000_000
    is_late = answered & (waited >= _PATIENCE) & ~np.isin(rows["api_key"], _WAIT_FOR_MEMBERS)
    chosen = np.flatnonzero(is_late | (rows["outcome"] == UNANSWERED) | (rows["outcome"] == RESPONSE_LOST))
    if len(chosen):
        tally.note(_events(gathered, chosen))
    if answered.any():
        keys = {name: rows[name][answered] for name in _ANSWERED.keys}
        throttle_ms = np.maximum(rows["throttle_time_ms"][answered], 0)
        values = {"answered": 1, "last": rows["request_first"][answered], "throttle_ms": throttle_ms}
        tally.add(_ANSWERED.name, keys, values)
    count_batches(gathered, tally, _BATCHES)


def _events(gathered: Gathered, chosen: Array) -> Array:
    events = events_of(gathered, chosen, 1, at_request=True)
    rows = gathered.exchanges[chosen]
    events["v0"], events["v1"] = rows["request_first"], rows["response_last"]
    events["v4"] = -1
    events["v5"] = rows["max_wait_ms"]
    batches = first_batches(gathered)
    at = np.searchsorted(batches.exchange, chosen)
    found = np.flatnonzero(at < len(batches))
    found = found[batches.exchange[at[found]] == chosen[found]]
    if len(found):
        key = batch_key(gathered, batches.where(at[found]))
        for column, name in (("v2", "producer_id"), ("v3", "epoch_sequence"), ("v4", "crc")):
            events[column][found] = key[name]
        for name in ("topic", "topic_id", "partition"):
            events[name][found] = key[name]
    return events


def read_connections(rows: Array, tally: Tally) -> None:
    """Keep how each connection ended."""
    rows = rows[rows["protocol"] == P_KAFKA]
    if len(rows):
        again = rows["client_retransmitted_packets"]
        is_suspect = (rows["reset_by"] >= 0) | (rows["closed_with"] == WITH_RST) | (again >= _RETRANSMITTED)
        tally.add(_CONNECTIONS.name, {"connection": rows["connection"]}, {
            "is_suspect": is_suspect, "last": rows["last"], "closed_by": rows["closed_by"],
            "closed_with": rows["closed_with"], "reset_by": rows["reset_by"], "retransmitted": again,
            "zero_windows": rows["broker_zero_windows"],
        })  # fmt: skip


class _Connection(NamedTuple):
    """A row of _CONNECTIONS, without its first value."""

    last: int
    closed_by: int
    closed_with: int
    reset_by: int
    retransmitted: int
    zero_windows: int


class _Case(NamedTuple):
    fault: str
    what: str
    waited: int
    retransmitted: int


class _Row:
    def __init__(self) -> None:
        self.requests = self.retried = self.waited = self.retransmitted = 0
        self.first = self.last = self.packet = 0
        self.what = ""

    def add(self, case: _Case, at: int, packet: int, is_retried: bool) -> None:
        if not self.requests:
            self.first, self.packet, self.what = at, packet, case.what
        self.requests += 1
        self.retried += is_retried
        self.waited, self.retransmitted = max(self.waited, case.waited), max(self.retransmitted, case.retransmitted)
        self.last = max(self.last, at)


def _judged(event: dict[str, int], end: _Connection | None, last: int, late_ns: int, throttle_ms: int) -> _Case | None:
    """What happened to a candidate; None if its response came in time, or may only not be captured."""
    asked, answered_at = event["v0"], event["v1"]
    again = end.retransmitted if end is not None else 0
    is_lost = end is not None and again >= _RETRANSMITTED and not end.zero_windows
    slow = "quota" if throttle_ms >= _THROTTLED_MS else "broker"
    if event["outcome"] == ANSWERED:
        total = answered_at - asked
        is_given_up = end is not None and end.reset_by == _CLIENT and 0 <= end.last - answered_at < _RESET_AFTER
        if not is_given_up and total < late_ns:
            return None
        late = "answered too late" if is_given_up else "answered late"
        return _Case("network", f"sent again, {late}", total, again) if is_lost else _Case(slow, late, total, again)
    waited = max((end.last if end is not None else last) - asked, 0)
    if event["outcome"] == RESPONSE_LOST and waited < late_ns:
        return None
    if is_lost:
        return _Case("network", "sent again, no answer", waited, again)
    if end is None or end.closed_with == NOT_CLOSED:
        if waited - max(event["v5"], 0) * 1_000_000 < _PATIENCE:
            return None
        return _Case("unknown", "no answer in the capture", waited, again)
    closed = CLOSERS[end.closed_with]
    if end.closed_by == _BROKER:
        return _Case("broker", f"no answer, broker closed ({closed})", waited, again)
    if event["api_key"] in _WAIT_FOR_MEMBERS:
        return _Case("client", f"waited for members, client closed ({closed})", waited, again)
    if waited - max(event["v5"], 0) * 1_000_000 >= _PATIENCE:
        return _Case(slow, f"no answer, client closed ({closed})", waited, again)
    return _Case("client", f"client closed at once ({closed})", waited, again)


class _Retries:
    """Finds answered retries."""

    def __init__(self, given: SectionInput) -> None:
        keys, values = given.keys(_BATCHES.name), given.values(_BATCHES.name)
        several = np.flatnonzero(values["copies"] > 1)
        rows = zip(*(keys[name][several].tolist() for name in _BATCHES.keys), strict=True)
        self._batches = dict(zip(rows, values["answered"][several].tolist(), strict=True))
        keys, values = given.keys(_ANSWERED.name), given.values(_ANSWERED.name)
        self._answered: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        #: The longest throttle time that each client was told, ms, by client_id and address.
        self.throttle_ms: dict[tuple[int, int], int] = defaultdict(int)
        columns = [keys[name].tolist() for name in _ANSWERED.keys]
        for client, ip, api, connection, last, throttle_ms in zip(
            *columns, values["last"].tolist(), values["throttle_ms"].tolist(), strict=True
        ):
            self._answered[client, ip, api].append((last, connection))
            self.throttle_ms[client, ip] = max(self.throttle_ms[client, ip], throttle_ms)
        for found in self._answered.values():
            found.sort(reverse=True)

    def is_answered(self, event: dict[str, int]) -> bool:
        """Whether the retry of a request was answered."""
        if event["v4"] >= 0:
            key = tuple(event[name] for name in ("client_id", "topic", "topic_id", "partition", "v2", "v3", "v4"))
            return bool(self._batches.get(key, 0) > (event["outcome"] == ANSWERED))
        for last, connection in self._answered.get((event["client_id"], event["client_ip"], event["api_key"]), ()):
            if last <= event["v0"]:
                return False
            if connection != event["connection"]:
                return True
        return False


_COLUMNS = (
    "client_id", "client_ip", "broker_ip", "broker_port", "api_key", "connection", "outcome", "topic", "topic_id",
    "partition", "packet", "v0", "v1", "v2", "v3", "v4", "v5",
)  # fmt: skip


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Rows by client, address, broker, API and what happened: by fault, then the most requests first."""
    late_ns = given.options.get("late", DEFAULT_LATE_NS)
    context, last = given.context, given.context.last or 0
    keys, values = given.keys(_CONNECTIONS.name), given.values(_CONNECTIONS.name)
    ends = {
        key: _Connection(*row)
        for key, *row in zip(
            keys["connection"].tolist(), *(values[name].tolist() for name in _Connection._fields), strict=True
        )
    }
    retries = _Retries(given)
    events = given.events("timeouts")
    rows: dict[tuple[Any, ...], _Row] = defaultdict(_Row)
    for row in zip(*(events[name].tolist() for name in _COLUMNS), strict=True):
        event = dict(zip(_COLUMNS, row, strict=True))
        throttle_ms = retries.throttle_ms.get((event["client_id"], event["client_ip"]), 0)
        case = _judged(event, ends.get(event["connection"]), last, late_ns, throttle_ms)
        if case is not None:
            who = tuple(event[name] for name in ("client_id", "client_ip", "broker_ip", "broker_port", "api_key"))
            rows[(*who, case.fault, case.what)].add(case, event["v0"], event["packet"], retries.is_answered(event))
    made: list[tuple[Value, ...]] = []
    for (client, ip, broker_ip, port, api, fault, what), found in rows.items():
        made.append((
            context.text(client), context.address(ip), endpoint(context.address(broker_ip), port), api_label(api),
            found.requests, fault, what, found.waited, found.retransmitted, found.retried,
            found.requests - found.retried, found.first, found.last, found.packet,
        ))  # fmt: skip
    made.sort(key=lambda row: (_FAULTS.index(str(row[5])), -int(row[4] or 0), str(row[:7])))  # type: ignore[arg-type]
    notes = (
        f"Requests without a response, and those whose response came late: after {duration(late_ns)} (--late), or too "
        "late: when the client had closed the connection.",
    )
    return (ReportTable("timeouts", "Timeouts", COLUMNS, made, notes, empty="no request timed out"),)


SECTION = Section(
    "timeouts",
    "Which requests time out, and whose fault is it?",
    FACTS,
    (_BATCHES, _ANSWERED, _CONNECTIONS),
    {"timeouts": COLUMNS},
    read,
    tables,
    read_connections,
    under_selection=READ_SELECTED,
)
