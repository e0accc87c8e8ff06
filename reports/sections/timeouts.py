"""Timeouts: requests without a response, and responses that came too late; whose fault, and what the retry got.

A response is too late if the client has closed the connection meanwhile, so that its host answers with a RST, or if it
took `--late` (30 s, the default of request.timeout.ms). The capture does not hold the client's own timeout.

Requests in flight at the end of the capture are no timeouts. Nor are failed logins: requests that a broker refuses by
closing the connection, as nothing but a handshake was answered on it, and logins that the client gives up at once (the
section `auth` has them). One that reaches more than a handshake on another connection is logged in.

Who closed the connection comes first, and how long the client waited. Then the largest share of the time decides:

1. broker   it closed the connection without a response
2. client   it closed the connection within `_PATIENCE` of the oldest request, or while JoinGroup waited for members, or
            before it had sent the request whole
3. network  of a late response: most of the time passed with lost segments of the request or response, or on the path;
            of a request without one: its bytes were sent again and never acknowledged
4. quota    most of the time passed as the broker throttled the client; or no response, and it throttles the client
5. broker   most of the time was its own; or it acknowledged the request, and the client waited until it closed
6. unknown  neither end closed the connection while it was captured

A broker answers the requests of a connection in order. A request that waited behind one without an answer says so, and
has the fault of that one.

A retry is the same record batch on any connection (`section_parts.batch_copies`); of other requests, a later one of the
same client, address and API on another connection.

Only unanswered exchanges, and those that took `_PATIENCE`, are events. The counts that they are joined with have a row
for each connection, and one for each of its APIs; beyond `--max-names`, the latest are kept.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, FETCHES, LATE_NS, NO_INT32, RESPONSE_LOST, UNANSWERED, WAITS
from kafkatap.dissector.time_parts import parts_of
from kafkatap.kernels.arrays import dict_rows, is_among

from ..batch import Array
from ..connection_words import CLOSERS, NOT_CLOSED, P_KAFKA, WITH_RST
from ..counting.count_forms import NUMBER
from ..counting.rollup import api_label
from ..model import Column, ReportTable, in_columns, largest_first
from ..section_parts.batch_copies import COPIES, batch_key, first_batches
from ..section_parts.counted import CLIENT, CONNECTION, CONNECTIONS, counted, largest, total
from ..section_parts.event_rows import EventKind, EventView, events_of
from ..section_parts.gathered import Gathered
from ..section_parts.section import READ_SELECTED, CountRow, Section, SectionInput
from ..section_parts.section_counts import Tally
from ..units import duration

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests", of=lambda r: r.event.text("client_id")),
    Column("address", "address", "text", "IP address of the client", 2, end="client",
           of=lambda r: r.event.context.address(r.event["client_ip"])),
    Column("broker", "broker", "text", "address and port of the broker", 2, end="broker",
           of=lambda r: r.event.end("broker")),
    Column("api", "API", "text", "API of the requests", of=lambda r: api_label(r.event["api_key"])),
    Column("requests", "requests", "count", "requests without a response, or with one that came too late"),
    Column("fault", "fault", "text",
           "network, broker, quota, client or unknown; behind another request: of that one", of="case.fault"),
    Column("what", "what happened", "text", "what happened to them", of="case.what"),
    Column("waited_ns", "longest\nwait", "ns", "the longest time from a request to its response, or to the end of its "
           "connection, or of the capture", of="waited"),
    Column("loss_ns", "loss", "ns", "the longest time of such a request until a lost segment was sent again and "
           "acknowledged, or until its last copy if it never was", 1, of="loss"),
    Column("retried", "retry\nanswered", "count", "requests with a retry on another connection that was answered"),
    Column("not_retried", "no retry\nanswered", "count", "requests without such a retry", 3,
           of=lambda r: r.requests - r.retried),
    Column("first", "first", "time", "the first such request", of=lambda r: r.event["sent"]),
    Column("last", "last", "time", "the last such request", 2),
    Column("packet", "packet", "packet", "packet: of the first byte of the first such request", 2,
           of=lambda r: r.event["packet"]),
)  # fmt: skip

#: Exchanges of at least this total time are candidates; a client that waits less than this does not wait.
_PATIENCE = 1_000_000_000
#: A RST of the client that follows a response within this means that the response was too late.
_RESET_AFTER = 1_000_000_000
#: SaslHandshake, SaslAuthenticate; with ApiVersions all that is answered before a login.
_LOGIN = (17, 36)
_HANDSHAKE = (*_LOGIN, 18)
#: A client that a broker told to wait this long is throttled.
_THROTTLED_MS = 1000
#: JoinGroup and SyncGroup, which wait for other members.
_WAIT_FOR_MEMBERS = tuple(key for key in WAITS if key not in FETCHES)

_ANSWERED = counted(
    "timeouts.answered",
    CLIENT | {"api_key": NUMBER, **CONNECTION},
    lambda x: x.outcome == ANSWERED,
    newest="last",
    answered=total(1),
    last=largest("request_first"),
    throttle_ms=largest(lambda x: np.maximum(x.throttle_time_ms, 0)),
)
#: How connections ended.
_CONNECTIONS = counted(
    "timeouts.connections", CONNECTION, lambda x: x.protocol == P_KAFKA, of=CONNECTIONS, newest="last",
    is_suspect=largest(lambda x: (x.reset_by >= 0) | (x.closed_with == WITH_RST) | (x.client_lost_bytes > 0)),
    last=largest("last"), closed_by=largest("closed_by"), closed_with=largest("closed_with"),
    reset_by=largest("reset_by"), lost_bytes=largest("client_lost_bytes"), lost_at=largest("client_lost_at"),
)  # fmt: skip
_CLIENT, _BROKER = 0, 1
#: A candidate. `sent`: the request's time; `until`: the response's, or until when it waited. `producer_id` to `crc`,
#: and its partition: of its first batch. `loss_or_bytes`: the loss of an answered one, ns, or the size of another one.
#: `fault`: whose most of its time was, of `_FAULTS`. `is_cut`: 1: the request never came whole.
_CANDIDATE = EventKind(1, EventView(
    sent="v0", until="v1", producer_id="v2", epoch_sequence="v3", crc="v4", max_wait_ms="v5", loss_or_bytes="v6",
    fault="v7", is_cut="error_code",
))  # fmt: skip
#: The key of a batch, with its partition.
_OF_BATCH = ("producer_id", "epoch_sequence", "crc")
#: The order of rows: clients that end while a request waits are usual.
_FAULTS = ("network", "broker", "quota", "unknown", "client")


def read(gathered: Gathered, tally: Tally) -> None:
    """Note candidates."""
    outcome, api, own = (gathered.column(name) for name in ("outcome", "api_key", "max_wait_ms"))
    waited = gathered.column("total_ns").copy()
    polls = is_among(api, FETCHES) & (own != NO_INT32)
    waited[polls] -= own[polls].astype(np.int64) * 1_000_000
    is_late = (outcome == ANSWERED) & (waited >= _PATIENCE) & ~is_among(api, _WAIT_FOR_MEMBERS)
    chosen = np.flatnonzero(is_late | (outcome == UNANSWERED) | (outcome == RESPONSE_LOST))
    if len(chosen):
        tally.note(_events(gathered, chosen))


def _events(gathered: Gathered, chosen: Array) -> Array:
    events = events_of(gathered, chosen, _CANDIDATE, at_request=True)
    rows = gathered.rows(chosen)
    sent = np.maximum(rows["request_first"], rows["request_last"])  # NO_TIME is below any time
    until = sent + np.maximum(rows["waited_ns"], 0)
    events["sent"] = rows["request_first"]
    events["until"] = np.where(rows["outcome"] == ANSWERED, rows["response_last"], until)
    events["crc"] = -1
    events["max_wait_ms"] = rows["max_wait_ms"]
    came = rows["request_bytes"] + 4 - rows["request_cut_bytes"]
    events["loss_or_bytes"] = np.where(rows["outcome"] == ANSWERED, rows["loss_ns"], came)
    events["fault"], events["is_cut"] = _largest(rows), rows["request_cut_bytes"] > 0
    batches = first_batches(gathered)
    at = np.searchsorted(batches.exchange, chosen)
    found = np.flatnonzero(at < len(batches))
    found = found[batches.exchange[at[found]] == chosen[found]]
    if len(found):
        key = batch_key(gathered, batches.where(at[found]))
        for name in (*_OF_BATCH, "topic", "topic_id", "partition"):
            events[name][found] = key[name]
    return events


def _largest(rows: Array) -> Array:
    """Whose the largest share of the time of each exchange was: int64 (n,), indexes of `_FAULTS`."""
    parts, throttled = parts_of(rows), rows["hol_throttle_wait_ns"]
    shares = {
        "broker": parts["broker"] + parts["waiting"] + parts["HOL"] - throttled,
        "network": parts["loss"] + parts["path"],
        "quota": parts["throttle"] + throttled,
        "client": parts["receiver"],
        "unknown": parts["sender"] + parts["unexplained"],
    }
    names = list(shares)
    largest = np.stack([shares[name] for name in names]).argmax(axis=0)
    found: Array = np.array([_FAULTS.index(name) for name in names])[largest]
    return found


class _Connection(NamedTuple):
    """A row of _CONNECTIONS, without its first value."""

    last: int
    closed_by: int
    closed_with: int
    reset_by: int
    lost_bytes: int
    lost_at: int


class _Case(NamedTuple):
    fault: str
    what: str
    waited: int
    loss: int


class _Row:
    """`event`, `case`: the first of its requests."""

    def __init__(self, event: CountRow, case: _Case) -> None:
        self.event, self.case = event, case
        self.requests = self.retried = self.waited = self.loss = self.last = 0

    def add(self, case: _Case, at: int, is_retried: bool) -> None:
        self.requests += 1
        self.retried += is_retried
        self.waited, self.loss = max(self.waited, case.waited), max(self.loss, case.loss)
        self.last = max(self.last, at)


class _Judge:
    """Says what happened to candidates."""

    def __init__(self, given: SectionInput, retries: _Retries, events: list[dict[str, int]]) -> None:
        self._late_ns = given.options.get("late", LATE_NS)
        self._retries = retries
        keys, values = given.keys(_CONNECTIONS.name), given.values(_CONNECTIONS.name)
        columns = (values[name].tolist() for name in _Connection._fields)
        self._ends = {key: _Connection(*row) for key, *row in zip(keys["connection"].tolist(), *columns, strict=True)}
        self._oldest = self._oldest_of(events)
        self.lost = self._lost(events)

    def _oldest_of(self, events: list[dict[str, int]]) -> dict[int, tuple[int, dict[str, int]]]:
        """The request of each connection whose response was due first, and since when, of those that did not come, or
        came after its end. A client that gives up a request closes the connection, and so gives up the younger ones,
        too."""
        found: dict[int, tuple[int, dict[str, int]]] = {}
        for event in events:
            is_due = event["outcome"] != ANSWERED or self._is_given_up(event)
            if is_due and event["api_key"] not in _WAIT_FOR_MEMBERS:
                due = event["sent"] + max(event["max_wait_ms"], 0) * 1_000_000
                mine = (due, event)
                found[event["connection"]] = min(found.get(event["connection"], mine), mine, key=itemgetter(0))
        return found

    def case(self, event: dict[str, int], is_lost: bool) -> _Case | None:
        """What happened to a candidate; None if its response came in time, or may only not be captured. `is_lost`: of a
        request without a response: its bytes were sent again, and never acknowledged."""
        end = self._ends.get(event["connection"])
        if event["outcome"] == ANSWERED:
            return self._late(event)
        until, waited = event["until"], event["until"] - event["sent"]
        is_patient = until - self._oldest.get(event["connection"], (until, event))[0] >= _PATIENCE
        if event["outcome"] == RESPONSE_LOST and waited < self._late_ns:
            return None
        if end is not None and end.closed_with != NOT_CLOSED:
            closed = CLOSERS[end.closed_with]
            if event["is_cut"] and not is_lost:
                closer = "broker" if end.closed_by == _BROKER else "client"
                return _Case(closer, f"{closer} closed in mid-request ({closed})", waited, 0)
            if end.closed_by == _BROKER:
                if not self._retries.is_logged_in(event):
                    return None
                return _Case("broker", f"no answer, broker closed ({closed})", waited, 0)
            if event["api_key"] in _WAIT_FOR_MEMBERS:
                return _Case("client", f"waited for members, client closed ({closed})", waited, 0)
            if not is_patient:
                if event["api_key"] in _LOGIN:
                    return None
                return _Case("client", f"client closed before the response ({closed})", waited, 0)
        elif not is_patient:
            return None
        if is_lost and end is not None:
            return _Case("network", "sent again, never acknowledged", waited, max(end.lost_at - event["sent"], 0))
        if end is None or end.closed_with == NOT_CLOSED:
            return _Case("unknown", "no answer in the capture", waited, 0)
        throttle_ms = self._retries.throttle_ms.get((event["client_id"], event["client_ip"]), 0)
        slow = "quota" if throttle_ms >= _THROTTLED_MS else "broker"
        how, ahead = "no answer", self._ahead(event)
        if ahead is not None:
            first = self.case(ahead, ahead["exchange"] in self.lost)
            how, slow = f"behind {api_label(ahead['api_key'])}", slow if first is None else first.fault
        return _Case(slow, f"{how}, client closed ({CLOSERS[end.closed_with]})", waited, 0)

    def _ahead(self, event: dict[str, int]) -> dict[str, int] | None:
        """The request without an answer in time that a request of the same connection waited behind."""
        _, first = self._oldest.get(event["connection"], (0, event))
        return first if first["sent"] < event["sent"] else None

    def _is_given_up(self, event: dict[str, int]) -> bool:
        """Whether a response came when the client had closed the connection."""
        end = self._ends.get(event["connection"])
        return end is not None and end.reset_by == _CLIENT and 0 <= end.last - event["until"] < _RESET_AFTER

    def _late(self, event: dict[str, int]) -> _Case | None:
        total = event["until"] - event["sent"]
        is_given_up = self._is_given_up(event)
        if not is_given_up and total < self._late_ns:
            return None
        what, fault = "answered too late" if is_given_up else "answered late", _FAULTS[event["fault"]]
        ahead = self._ahead(event) if fault == "broker" else None
        what += "" if ahead is None else f", behind {api_label(ahead['api_key'])}"
        return _Case(fault, f"sent again, {what}" if fault == "network" else what, total, event["loss_or_bytes"])

    def _lost(self, events: list[dict[str, int]]) -> set[int]:
        """The keys of unanswered requests among the bytes of their connections that were never acknowledged, which are
        the last ones."""
        left = {key: end.lost_bytes for key, end in self._ends.items() if end.lost_bytes}
        found = set()
        for event in sorted(events, key=lambda e: (-e["sent"], -e["packet"])):
            if event["outcome"] != ANSWERED and left.get(event["connection"], 0) > 0:
                left[event["connection"]] -= event["loss_or_bytes"]
                found.add(event["exchange"])
        return found


class _Retries:
    """Finds answered retries."""

    def __init__(self, given: SectionInput) -> None:
        keys, values = given.keys(COPIES.name), given.values(COPIES.name)
        several = np.flatnonzero(values["copies"] > 1)
        rows = zip(*(keys[name][several].tolist() for name in COPIES.keys), strict=True)
        self._batches = dict(zip(rows, values["answered"][several].tolist(), strict=True))
        self._answered = defaultdict[tuple[int, ...], list[tuple[int, int]]](list)
        #: The longest throttle time that each client was told, ms, by client_id and address.
        self.throttle_ms = defaultdict[tuple[int, int], int](int)
        #: Connections and clients with an answer to more than a handshake.
        self._connections, self._clients = set[int](), set[tuple[int, int]]()
        for row in given.rows(_ANSWERED.name):
            client = row["client_id"], row["client_ip"]
            self._answered[*client, row["api_key"]].append((row["last"], row["connection"]))
            self.throttle_ms[client] = max(self.throttle_ms[client], row["throttle_ms"])
            if row["api_key"] not in _HANDSHAKE:
                self._connections.add(row["connection"])
                self._clients.add(client)
        for found in self._answered.values():
            found.sort(reverse=True)

    def is_logged_in(self, event: dict[str, int]) -> bool:
        """Whether a request without a response is none of a login."""
        is_known = (event["client_id"], event["client_ip"]) in self._clients and event["api_key"] not in _HANDSHAKE
        return is_known or event["connection"] in self._connections

    def is_answered(self, event: dict[str, int]) -> bool:
        """Whether the retry of a request was answered."""
        if event["crc"] >= 0:
            key = tuple(event[name] for name in ("client_id", "topic", "topic_id", "partition", *_OF_BATCH))
            return bool(self._batches.get(key, 0) > (event["outcome"] == ANSWERED))
        for last, connection in self._answered.get((event["client_id"], event["client_ip"], event["api_key"]), ()):
            if last <= event["sent"]:
                return False
            if connection != event["connection"]:
                return True
        return False


_COLUMNS = (
    "client_id", "client_ip", "broker_ip", "broker_port", "api_key", "connection", "outcome", "topic", "topic_id",
    "partition", "packet", "exchange", "sent", "until", *_OF_BATCH, "max_wait_ms", "loss_or_bytes", "fault",
    "is_cut",
)  # fmt: skip


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Rows by client, address, broker, API and what happened: by fault, then the most requests first."""
    retries = _Retries(given)
    events = list(dict_rows(_CANDIDATE.view.of(given.events("timeouts")), _COLUMNS))
    judge = _Judge(given, retries, events)
    rows: dict[tuple[Any, ...], _Row] = {}
    for event in events:
        case = judge.case(event, event["exchange"] in judge.lost)
        if case is not None:
            who = tuple(event[name] for name in ("client_id", "client_ip", "broker_ip", "broker_port", "api_key"))
            row = rows.setdefault((*who, case.fault, case.what), _Row(CountRow(event, given.context), case))
            row.add(case, event["sent"], retries.is_answered(event))
    made = largest_first(COLUMNS, in_columns(COLUMNS, rows.values()), "requests", then=[c.name for c in COLUMNS[:7]])
    made.sort(key=lambda row: _FAULTS.index(str(row[5])))
    late = given.options.get("late", LATE_NS)
    notes = (
        f"Requests without a response, and those whose response came late: after {duration(late)} (--late), or too "
        "late: when the client had closed the connection.",
    )
    return (ReportTable("timeouts", "Timeouts", COLUMNS, made, notes, empty="no request timed out"),)


SECTION = Section(
    "timeouts", "Which requests time out, and whose fault is it?",
    columns={"timeouts": COLUMNS}, tables=tables, counts=(_ANSWERED, _CONNECTIONS), read=read,
    under_selection=READ_SELECTED, made_of=("section_parts.batch_copies:READING",),
)  # fmt: skip
