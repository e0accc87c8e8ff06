"""What the section `events` keeps of exchanges and connections: counts of each second, and rare requests as EVENT rows.

It reads facts of rare APIs only. Counts are by second, so that a silence of a second or more shows between two rows,
with the exact time of the last byte before it and of the first one after it. Beyond `--max-names` rows, the latest
seconds are kept.

EVENT rows: a broker's requests to its controller, created and deleted topics, coordinators, and waits: exchanges that
took `WAIT_NS` longer than they were asked to wait for data, or that have no response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, FETCHES, NO_INT32, NO_REPLY_EXPECTED, NO_TIME, ORPHAN_RESPONSE
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array
from ..connection_words import (
    ENDS,
    H_COMPLETE,
    H_NOT_CAPTURED,
    H_REFUSED,
    H_UNANSWERED,
    NOT_CLOSED,
    P_FOREIGN,
    WITH_FIN,
    WITH_RST,
)
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..section_parts.counted import (
    BROKER,
    CONNECTION,
    RESULTS,
    Rows,
    counted,
    largest,
    largest_where,
    least,
    least_where,
    total,
)
from ..section_parts.counted import CONNECTIONS as ENDED
from ..section_parts.event_rows import EventKind, EventView, events_of, events_of_facts
from ..section_parts.gathered import Gathered
from ..section_parts.notable import WAIT_NS
from ..section_parts.section_counts import Tally
from .error_words import USERS, WORDS
from .event_answers import SECOND
from .event_leaders import LEADERS
from .event_replicas import IN_SYNC, PARTITIONS
from .late_answers import LATE, is_prompt
from .slow_times import COUNTS as SLOW_COUNTS
from .sufferers import SUFFERED

#: `asked`: the request's last byte; `answered`: the response's first byte (NO_TIME: none). `is_prompt`: 1: a broker
#: that works would have answered at once (`late_answers`). `own_ns`: the time that a Fetch waits for data.
#: `behind_ns`: the head-of-line wait of one that was answered. `cut_bytes`, `closed_by`: of one that was not.
WAIT = EventKind(1, EventView(
    asked="v0", answered="v1", is_prompt="v2", own_ns="v3", loss_ns="v4", request_bytes="v5", behind_ns="v6",
    cut_bytes="v7", closed_by="error_code",
))  # fmt: skip
#: `is_fenced`: by the controller; -1: no answer.
HEARTBEAT = EventKind(2, EventView(node="v0", wants_shutdown="v1", is_fenced="v2", answered="v3"))
REGISTERED = EventKind(3, EventView(node="v0"))
CREATED, DELETED = EventKind(4), EventKind(5)
COORDINATOR = EventKind(6, EventView(node="v0", key="s0"))
FACTS = (
    *PARTITIONS, "controlled shutdown", "find coordinator", "coordinator", "coordinator of key", "created topic",
    "deleted topic", "broker registration", "broker heartbeat", "joined group", "consumer heartbeat answer",
    "broker heartbeat answer", "broker registration answer", "controlled shutdown answer", "end transaction", "marker",
)  # fmt: skip

_PAIR = {"client_ip": ADDRESS, **BROKER}
_CLIENT = _PAIR | {"client_id": TEXT}


def _answered_at(x: Rows) -> Any:
    return x.response_last // SECOND


def _is_oriented(x: Rows) -> Any:
    return (x.protocol != P_FOREIGN) & (x.orientation_known != 0)


def _is_refused(x: Rows) -> Any:
    return x.handshake == H_REFUSED


def _is_rejected(x: Rows) -> Any:
    """An ICMP message refused it: hosts answer with RST, so that was a firewall or a router."""
    return _is_refused(x) & (x.closed_with != WITH_RST)


def _by_broker(x: Rows) -> Any:
    return x.closed_by == 1


#: Connections in the seconds in which they began. `gone_packet`: of the first FIN or RST of the broker, or of its host
#: to a SYN.
CONNECTIONS = counted(
    "events.connections", _CLIENT, _is_oriented, of=ENDED, more={"second": lambda x: x.first // SECOND},
    last=largest("first"), opened=total(lambda x: x.handshake == H_COMPLETE),
    seen=total(lambda x: x.handshake == H_NOT_CAPTURED), refused=total(_is_refused), rejected=total(_is_rejected),
    unanswered=total(lambda x: x.handshake == H_UNANSWERED), client_closed=total(), broker_closed=total(),
    broker_fins=total(), first_refused=least(lambda x: least_where(_is_refused(x), x.first)), first=least("first"),
    first_close=least(), last_close=largest(), packet=least("first_packet"),
    gone_packet=least(lambda x: least_where(_is_refused(x), np.maximum(x.closed_packet, x.first_packet))),
)  # fmt: skip
#: The same in the seconds in which they ended.
_CLOSED = CONNECTIONS.also(
    ENDED,
    lambda x: _is_oriented(x) & (x.closed_with != NOT_CLOSED) & ~is_among(x.handshake, (H_REFUSED, H_UNANSWERED)),
    {"second": lambda x: x.last // SECOND},
    last="last", client_closed=lambda x: ~_by_broker(x), broker_closed=_by_broker,
    broker_fins=lambda x: _by_broker(x) & (x.closed_with == WITH_FIN),
    first_close=lambda x: least_where(_by_broker(x), x.closed_at),
    last_close=lambda x: largest_where(_by_broker(x), x.last),
    gone_packet=lambda x: least_where(_by_broker(x), x.closed_packet),
)  # fmt: skip
#: Packets of one end that were sent again on a connection before it counts as one whose packets did not arrive: TCP
#: repeats a segment three times within WAIT_NS. Single ones are usual.
RESENT_PACKETS = 2


def _resent(x: Rows) -> Any:
    """Packets that one end sent again. Copies of what had arrived show that the path works."""
    return np.maximum(*(x[f"{end}_retransmitted_packets"] - x[f"{end}_spurious_retransmissions"] for end in ENDS))


def _of_any_end(name: str) -> Callable[[Rows], Any]:
    """Whether one end has any such bytes."""
    return lambda x: (x[f"client_{name}"] > 0) | (x[f"broker_{name}"] > 0)


def _is_stuck(x: Rows) -> Any:
    """Whether bytes of an end did not arrive. What a broker answers after its client closed the connection is none."""
    was_sent = (x.broker_stuck_ns > 0) & (x.broker_stuck_at + x.broker_stuck_ns >= x.closed_at)
    is_broker = (x.broker_unacknowledged_bytes > 0) & ((x.closed_with == NOT_CLOSED) | _by_broker(x) | was_sent)
    return (x.client_unacknowledged_bytes > 0) | is_broker


_is_missing = _of_any_end("gap_bytes")
#: Waits without an answer are judged by the end of their connection. Of all others, packets that were sent again and
#: bytes that are missing say all.
LINKS = counted(
    "events.links", CONNECTION,
    lambda x: _is_oriented(x) & ((x.unanswered > 0) | (_resent(x) >= RESENT_PACKETS) | _is_missing(x)), of=ENDED,
    last=largest("last"), closed_at=largest("closed_at"), resent=largest(_resent),
    is_stuck=largest(_is_stuck), missing=largest(_is_missing),
    lost_bytes=largest("client_lost_bytes"), unacknowledged_bytes=largest("client_unacknowledged_bytes"),
    lost_at=largest("client_lost_at"),
)  # fmt: skip
#: Times in which nothing acknowledged what a broker sent again. `heard`: the first of their ends. `is_open`: to the end
#: of the connection.
STUCK = counted(
    "events.stuck", _PAIR, lambda x: (x.broker_stuck_ns > 0) & _is_oriented(x), of=ENDED,
    more={"second": lambda x: x.broker_stuck_at // SECOND},
    last=largest(lambda x: x.broker_stuck_at + x.broker_stuck_ns), first=least("broker_stuck_at"),
    heard=least(lambda x: x.broker_stuck_at + x.broker_stuck_ns), connections=total(1),
    is_open=largest(
        lambda x: (x.broker_stuck_at + x.broker_stuck_ns >= x.last) & (x.broker_unacknowledged_bytes > 0)
        & (x.closed_with == NOT_CLOSED)
    ),
)  # fmt: skip
ERRORS = counted(
    "events.errors", _CLIENT | {"error_code": NUMBER, "api_key": NUMBER}, lambda x: x.error_code != 0, of=RESULTS,
    more={"second": _answered_at},
    last=largest("response_last"), codes=total(1), first=least("response_last"), packet=least("response_packet_last"),
)  # fmt: skip
#: Ends of transactions: EndTxn at the coordinator, WriteTxnMarkers at the leaders.
TRANSACTIONS = counted(
    "events.transactions",
    BROKER,
    lambda x: x.outcome == ANSWERED,
    of=("end transaction", "marker"),
    more={"second": _answered_at},
    last=largest("response_last"),
)
THROTTLED = counted(
    "events.throttled", _CLIENT, lambda x: (x.outcome == ANSWERED) & (x.throttle_time_ms > 0),
    more={"second": _answered_at},
    last=largest("response_last"), responses=total(1), ms=largest("throttle_time_ms"), first=least("response_last"),
    packet=least("response_packet_last"),
)  # fmt: skip
#: Answers that say a new generation or epoch, and its number.
_ANSWERS = {
    "join group": ("joined group", "generation"), "consumer heartbeat": ("consumer heartbeat answer", "member_epoch")
}  # fmt: skip


def _number(x: Rows) -> Any:
    return x.generation if x.fact == "sync group" else x.top(*_ANSWERS[x.fact])


def _is_new(x: Rows) -> Any:
    number = _number(x)
    is_known = (x.top(_ANSWERS[x.fact][0], "error_code") == 0) & (number > 0)
    if x.fact == "join group":
        return is_known
    # A member's own epoch may not have been captured.
    return is_known & (x.member_epoch != NO_NUMBER) & (x.member_epoch != number)


#: The members that are answered a new generation or epoch.
REBALANCES = counted(
    "events.rebalances", {"group": TEXT, "is_epoch": NUMBER, "number": NUMBER, "second": NUMBER}, _is_new,
    of=tuple(_ANSWERS),
    more={"is_epoch": lambda x: x.fact != "join group", "number": _number, "second": _answered_at},
    last=largest("response_last"), first=least("request_first"), members=total(1),
    packet=least("request_packet_first"), waited_ns=total(),
)  # fmt: skip
#: How long members waited for the others in JoinGroup or SyncGroup, by the generation that they waited for.
_MEMBER_WAITS = REBALANCES.also(
    ("join group", "sync group"), lambda x: (x.outcome == ANSWERED) & (_number(x) > 0) & (x.total_ns > 0),
    {"is_epoch": 0}, waited_ns="total_ns",
)  # fmt: skip
COUNTS = (
    CONNECTIONS, _CLOSED, LINKS, STUCK, ERRORS, TRANSACTIONS, THROTTLED, LEADERS, IN_SYNC, REBALANCES, _MEMBER_WAITS,
    WORDS, USERS, LATE, SUFFERED,
    *SLOW_COUNTS,
)  # fmt: skip
#: The columns of connections that are counted.
CONNECTION_COLUMNS = (
    *_CLIENT, "connection", "protocol", "orientation_known", "handshake", "first", "first_packet", "last",
    "closed_with", "closed_by", "closed_at", "closed_packet", "unanswered", "broker_stuck_at", "broker_stuck_ns",
    "client_lost_bytes", "client_lost_at", "response_resent_ns", "twin_of",
    *(f"{end}_{name}" for end in ENDS for name in (
        "retransmitted_packets", "spurious_retransmissions", "unacknowledged_bytes", "gap_bytes",
    )),
)  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Note rare requests and waits."""
    _read_waits(gathered, tally)
    _read_brokers(gathered, tally)
    _read_topics(gathered, tally)


def _read_waits(gathered: Gathered, tally: Tally) -> None:
    """Note waits."""
    outcome = gathered.column("outcome")
    total = gathered.column("response_first") - gathered.column("request_last")
    waited = (outcome == ANSWERED) & (total >= WAIT_NS)
    late = np.flatnonzero(waited)
    late = late[_beyond_own_wait(gathered.rows(late), total[late]) >= WAIT_NS]
    silent = np.flatnonzero((outcome != ANSWERED) & (outcome != NO_REPLY_EXPECTED) & (outcome != ORPHAN_RESPONSE))
    chosen = distinct_values(np.concatenate((late, silent)))
    if len(chosen):
        events = events_of(gathered, chosen, WAIT, at_request=True)
        mine = gathered.rows(chosen)
        events["asked"] = mine["request_last"]
        events["answered"] = np.where(mine["outcome"] == ANSWERED, mine["response_first"], NO_TIME)
        own_ms = np.where(mine["max_wait_ms"] != NO_INT32, mine["max_wait_ms"], 0)
        events["is_prompt"], events["own_ns"] = is_prompt(mine), own_ms.astype(np.int64) * 1_000_000
        events["behind_ns"] = np.where(mine["outcome"] == ANSWERED, mine["hol_wait_ns"], 0)
        events["loss_ns"] = mine["loss_ns"]
        events["request_bytes"] = mine["request_bytes"].astype(np.int64) + 4 - mine["request_cut_bytes"]
        events["cut_bytes"], events["closed_by"] = mine["request_cut_bytes"], mine["closed_by"]
        tally.note(events)


def _beyond_own_wait(rows: Array, total: Array) -> Array:
    """How long exchanges waited, without head-of-line wait, throttle wait and the wait of a Fetch for data: ns."""
    polls = is_among(rows["api_key"], FETCHES) & (rows["max_wait_ms"] != NO_INT32)
    own = np.where(polls, rows["max_wait_ms"], 0).astype(np.int64) * 1_000_000
    found: Array = total - own - rows["hol_wait_ns"] - rows["throttle_wait_ns"]
    return found


def _read_brokers(gathered: Gathered, tally: Tally) -> None:
    """Read what brokers say to their controller."""
    for kind, event in (
        ("broker heartbeat", HEARTBEAT), ("controlled shutdown", HEARTBEAT), ("broker registration", REGISTERED),
    ):  # fmt: skip
        rows = gathered.facts(kind)
        if not len(rows):
            continue
        at, node = rows.exchange, rows["node"]
        events = events_of(gathered, at, event, at_request=event == HEARTBEAT)
        events["node"] = node
        if event == HEARTBEAT:
            events["wants_shutdown"] = rows["wants_shutdown"] if kind == "broker heartbeat" else 1
            events["is_fenced"] = gathered.top("broker heartbeat answer", "is_fenced")[at]
            events["answered"] = gathered.column("response_last")[at]
            for answer in ("broker heartbeat answer", "controlled shutdown answer"):
                events["error_code"] += gathered.top(answer, "error_code", 0)[at].astype(np.int16)
        else:
            events["error_code"] = gathered.top("broker registration answer", "error_code", 0)[at]
        tally.note(events)
    _read_coordinators(gathered, tally)


def _read_coordinators(gathered: Gathered, tally: Tally) -> None:
    one = gathered.facts("coordinator")
    if len(one):
        key = gathered.top("find coordinator", "key")
        keyed = one.where((one["error_code"] == 0) & (one["node"] >= 0) & (key[one.exchange] >= 0))
        events = events_of(gathered, keyed.exchange, COORDINATOR)
        events["node"], events["key"] = keyed["node"], key[keyed.exchange]
        tally.note(events)
    several = gathered.facts("coordinator of key")
    if len(several):
        keyed = several.where((several["error_code"] == 0) & (several["node"] >= 0))
        events = events_of(gathered, keyed.exchange, COORDINATOR)
        events["node"], events["key"] = keyed["node"], keyed["key"]
        tally.note(events)


def _read_topics(gathered: Gathered, tally: Tally) -> None:
    for kind, event in (("created topic", CREATED), ("deleted topic", DELETED)):
        rows = gathered.facts(kind)
        if len(rows):
            rows = rows.where(rows["code"] == 0)  # and not one whose error code was not captured
            tally.note(events_of_facts(gathered, rows, event))
