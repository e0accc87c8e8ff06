"""What the section `events` keeps of exchanges and connections: counts of each second, and rare requests as EVENT rows.

It reads facts of rare APIs only. Counts are by second, so that a silence of a second or more shows between two rows,
with the exact time of the last byte before it and of the first one after it. Beyond `--max-names` rows, the latest
seconds are kept.

EVENT rows: a broker's requests to its controller, created and deleted topics, coordinators, and waits: exchanges that
took `WAIT_NS` longer than they were asked to wait for data, or that have no response.
"""

from __future__ import annotations

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
)
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import EMPTY, MAX, MIN, SUM
from ..section_parts.counted import CONNECTIONS as ENDED
from ..section_parts.counted import counted, largest, least, total
from ..section_parts.event_rows import EventKind, EventView, events_of, events_of_facts
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.notable import WAIT_NS
from ..section_parts.section_counts import Tally
from .event_answers import ANSWERS, SECOND
from .event_leaders import FACTS as LEADER_FACTS
from .event_leaders import LEADERS, read_leaders
from .event_replicas import FACTS as IN_SYNC_FACTS
from .event_replicas import IN_SYNC, read_in_sync
from .slow_times import COUNTS as SLOW_COUNTS

#: `asked`: the request's last byte; `answered`: the response's first byte (NO_TIME: none). `is_prompt`: 1: a broker
#: that works would have answered at once (`_PROMPT`). `own_ns`: the time that a Fetch waits for data.
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
#: APIs that a broker answers from what it has in memory. All others may wait for a quorum, a follower or a member.
#: Produce is one of them unless acks is -1, Fetch beyond its max_wait_ms.
_PROMPT = (0, *FETCHES, 2, 3, 10, 12, 17, 18, 23, 36, 60)
_PRODUCE = 0
FACTS = (
    *dict.fromkeys((*LEADER_FACTS, *IN_SYNC_FACTS)), "controlled shutdown", "find coordinator", "coordinator",
    "coordinator of key", "created topic", "deleted topic", "broker registration", "broker heartbeat",
    "join group", "joined group", "sync group", "consumer heartbeat", "consumer heartbeat answer",
    "broker heartbeat answer", "broker registration answer", "controlled shutdown answer",
)  # fmt: skip

_PAIR = {"client_ip": ADDRESS, "broker_ip": ADDRESS, "broker_port": NUMBER}
_NO_PAIR = {"client_ip": -1, "broker_ip": -1, "broker_port": -1, "second": -1}
#: `gone_packet`: of the first FIN or RST of the broker, or of its host to a SYN.
CONNECTIONS = CountForm(
    "events.connections",
    {**_PAIR, "client_id": TEXT, "second": NUMBER},
    {
        "last": MAX, "opened": SUM, "seen": SUM, "refused": SUM, "unanswered": SUM, "client_closed": SUM,
        "broker_closed": SUM, "broker_fins": SUM, "first_refused": MIN,
        "first": MIN, "first_close": MIN, "last_close": MAX, "packet": MIN, "gone_packet": MIN,
    },
    {**_NO_PAIR, "client_id": OTHER},
)  # fmt: skip
LINKS = CountForm(
    "events.links",
    {"connection": NUMBER},
    {
        "last": MAX,
        "closed_at": MAX,
        "resent": MAX,
        "is_stuck": MAX,
        "missing": MAX,
        "lost_bytes": MAX,
        "unacknowledged_bytes": MAX,
    },
    {"connection": 0},
)
#: Times in which nothing acknowledged what a broker sent again. `heard`: the first of their ends. `is_open`: to the end
#: of the connection.
STUCK = counted(
    "events.stuck", _PAIR, lambda x: (x.broker_stuck_ns > 0) & (x.protocol != P_FOREIGN) & (x.orientation_known != 0),
    of=ENDED, more={"second": lambda x: x.broker_stuck_at // SECOND},
    last=largest(lambda x: x.broker_stuck_at + x.broker_stuck_ns), first=least("broker_stuck_at"),
    heard=least(lambda x: x.broker_stuck_at + x.broker_stuck_ns), connections=total(1),
    is_open=largest(
        lambda x: (x.broker_stuck_at + x.broker_stuck_ns >= x.last) & (x.broker_unacknowledged_bytes > 0)
        & (x.closed_with == NOT_CLOSED)
    ),
)  # fmt: skip
ERRORS = CountForm(
    "events.errors",
    {**_PAIR, "client_id": TEXT, "error_code": NUMBER, "api_key": NUMBER, "second": NUMBER},
    {"last": MAX, "codes": SUM, "first": MIN, "packet": MIN},
    {**_NO_PAIR, "client_id": OTHER, "error_code": 0, "api_key": -1},
)
THROTTLED = counted(
    "events.throttled", _PAIR | {"client_id": TEXT}, lambda x: (x.outcome == ANSWERED) & (x.throttle_time_ms > 0),
    more={"second": lambda x: x.response_last // SECOND},
    last=largest("response_last"), responses=total(1), ms=largest("throttle_time_ms"), first=least("response_last"),
    packet=least("response_packet_last"),
)  # fmt: skip
COUNTS = (STUCK, THROTTLED, *SLOW_COUNTS)
REBALANCES = CountForm(
    "events.rebalances",
    {"group": TEXT, "is_epoch": NUMBER, "number": NUMBER, "second": NUMBER},
    {"last": MAX, "first": MIN, "members": SUM, "packet": MIN, "waited_ns": SUM},
    {"group": OTHER, "is_epoch": -1, "number": -1, "second": -1},
)
FORMS = (
    ANSWERS,
    CONNECTIONS,
    LINKS,
    ERRORS,
    LEADERS,
    IN_SYNC,
    REBALANCES,
)
#: Packets of one end that were sent again on a connection before it counts as one whose packets did not arrive: TCP
#: repeats a segment three times within WAIT_NS. Single ones are usual.
RESENT_PACKETS = 2
_ENDS = ("client_ip", "broker_ip", "broker_port")
#: The columns of connections that `read_connections` reads.
CONNECTION_COLUMNS = (
    *_ENDS, "client_id", "connection", "protocol", "orientation_known", "handshake", "first", "first_packet", "last",
    "closed_with", "closed_by", "closed_at", "closed_packet", "unanswered", "broker_stuck_at", "broker_stuck_ns",
    "client_lost_bytes",
    *(f"{end}_{name}" for end in ENDS for name in (
        "retransmitted_packets", "spurious_retransmissions", "unacknowledged_bytes", "gap_bytes",
    )),
)  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Count errors and throttled responses; note rare requests and waits. `event_answers` counts answers."""
    _read_waits(gathered, tally)
    _read_errors(gathered, tally)
    _read_brokers(gathered, tally)
    read_leaders(gathered, tally)
    read_in_sync(gathered, tally)
    _read_topics(gathered, tally)
    _read_rebalances(gathered, tally)


def _read_waits(gathered: Gathered, tally: Tally) -> None:
    """Note waits."""
    rows, outcome = gathered.exchanges, gathered.column("outcome")
    total = gathered.column("response_first") - gathered.column("request_last")
    waited = (outcome == ANSWERED) & (total >= WAIT_NS)
    late = np.flatnonzero(waited)
    late = late[_beyond_own_wait(rows[late], total[late]) >= WAIT_NS]
    silent = np.flatnonzero((outcome != ANSWERED) & (outcome != NO_REPLY_EXPECTED) & (outcome != ORPHAN_RESPONSE))
    chosen = distinct_values(np.concatenate((late, silent)))
    if len(chosen):
        events = events_of(gathered, chosen, WAIT, at_request=True)
        mine = rows[chosen]
        events["asked"] = mine["request_last"]
        events["answered"] = np.where(mine["outcome"] == ANSWERED, mine["response_first"], NO_TIME)
        is_prompt = is_among(mine["api_key"], _PROMPT) & ((mine["api_key"] != _PRODUCE) | (mine["acks"] != -1))
        own_ms = np.where(mine["max_wait_ms"] != NO_INT32, mine["max_wait_ms"], 0)
        events["is_prompt"], events["own_ns"] = is_prompt, own_ms.astype(np.int64) * 1_000_000
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


def _read_errors(gathered: Gathered, tally: Tally) -> None:
    results = gathered.results
    failed = results[results["error_code"] != 0] if len(results) else results
    if not len(failed):
        return
    from ..batch import rows_of

    at = rows_of(gathered.column("exchange"), failed["exchange"])
    rows = gathered.rows(at)
    ends = rows["response_last"]
    keys = {name: rows[name] for name in (*_ENDS, "client_id", "api_key")}
    keys |= {"error_code": failed["error_code"], "second": ends // SECOND}
    tally.add(ERRORS.name, keys, {"last": ends, "codes": 1, "first": ends, "packet": rows["response_packet_last"]})


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


def _read_rebalances(gathered: Gathered, tally: Tally) -> None:
    """Count the members that are answered a new generation or epoch."""
    joins = gathered.facts("join group")
    if len(joins):
        generation = gathered.top("joined group", "generation")[joins.exchange]
        error = gathered.top("joined group", "error_code", -1)[joins.exchange]
        _add_rebalances(gathered, tally, joins.where((error == 0) & (generation > 0)), "joined group", "generation", 0)
        _add_waits(gathered, tally, joins, generation)
    syncs = gathered.facts("sync group")
    if len(syncs):
        _add_waits(gathered, tally, syncs, syncs["generation"])
    beats = gathered.facts("consumer heartbeat")
    if len(beats):
        epoch = gathered.top("consumer heartbeat answer", "member_epoch")[beats.exchange]
        error = gathered.top("consumer heartbeat answer", "error_code", -1)[beats.exchange]
        own = beats["member_epoch"]  # it may not have been captured
        is_new = (error == 0) & (epoch > 0) & (own != NO_NUMBER) & (epoch != own)
        _add_rebalances(gathered, tally, beats.where(is_new), "consumer heartbeat answer", "member_epoch", 1)


def _add_rebalances(
    gathered: Gathered, tally: Tally, rows: FactRows, answer: str, number: str, is_epoch: int
) -> None:  # fmt: skip
    at = rows.exchange
    if len(at):
        ends = gathered.column("response_last")[at]
        keys = {"group": rows["group"], "is_epoch": is_epoch, "number": gathered.top(answer, number)[at]}
        tally.add(REBALANCES.name, keys | {"second": ends // SECOND}, {
            "last": ends, "first": gathered.column("request_first")[at], "members": 1,
            "packet": gathered.column("request_packet_first")[at],
        })  # fmt: skip


def _add_waits(gathered: Gathered, tally: Tally, rows: FactRows, generation: Array) -> None:
    """Add how long members waited for the others in JoinGroup or SyncGroup, by the generation that they waited for."""
    waited = gathered.column("total_ns")[rows.exchange]
    chosen = (gathered.column("outcome")[rows.exchange] == ANSWERED) & (generation > 0) & (waited > 0)
    keys = {"group": rows["group"][chosen], "is_epoch": 0, "number": generation[chosen]}
    ends = gathered.column("response_last")[rows.exchange[chosen]]
    tally.add(REBALANCES.name, keys | {"second": ends // SECOND}, {"waited_ns": waited[chosen]})


def read_connections(rows: Array, tally: Tally) -> None:
    """Count connections in the seconds in which they began, and in which they ended."""
    at = np.flatnonzero((rows["protocol"] != P_FOREIGN) & (rows["orientation_known"] != 0))
    if not len(at):
        return
    handshake, first = rows["handshake"][at], rows["first"][at]
    keys = {name: rows[name][at] for name in (*_ENDS, "client_id")}
    closed_at, closed_packet, is_refused = rows["closed_at"][at], rows["closed_packet"][at], handshake == H_REFUSED
    is_tried = is_refused | (handshake == H_UNANSWERED)
    tally.add(CONNECTIONS.name, keys | {"second": first // SECOND}, {
        "last": first, "opened": handshake == H_COMPLETE, "seen": (handshake == H_NOT_CAPTURED),
        "refused": is_refused, "unanswered": handshake == H_UNANSWERED, "first": first,
        "first_refused": np.where(is_refused, first, EMPTY[MIN]),
        "packet": rows["first_packet"][at],
        "gone_packet": np.where(is_refused, np.maximum(closed_packet, rows["first_packet"][at]), EMPTY[MIN]),
    })  # fmt: skip
    is_closed = rows["closed_with"][at] != NOT_CLOSED
    closed = np.flatnonzero(is_closed & ~is_tried)
    ends, by_broker = rows["last"][at[closed]], rows["closed_by"][at[closed]] == 1
    tally.add(CONNECTIONS.name, {name: values[closed] for name, values in keys.items()} | {"second": ends // SECOND}, {
        "last": ends, "client_closed": ~by_broker, "broker_closed": by_broker,
        "broker_fins": by_broker & (rows["closed_with"][at[closed]] == WITH_FIN),
        "first_close": np.where(by_broker, closed_at[closed], EMPTY[MIN]),
        "last_close": np.where(by_broker, ends, EMPTY[MAX]),
        "gone_packet": np.where(by_broker, closed_packet[closed], EMPTY[MIN]),
    })  # fmt: skip
    # Copies of what had arrived show that the path works.
    needed = [rows[f"{end}_retransmitted_packets"][at] - rows[f"{end}_spurious_retransmissions"][at] for end in ENDS]
    resent = np.maximum(*needed)
    is_stuck = (rows["client_unacknowledged_bytes"][at] > 0) | (rows["broker_unacknowledged_bytes"][at] > 0)
    missing = (rows["client_gap_bytes"][at] > 0) | (rows["broker_gap_bytes"][at] > 0)
    # Waits without an answer are judged by the end of their connection. Of all others, these two say all.
    matters = np.flatnonzero((rows["unanswered"][at] > 0) | (resent >= RESENT_PACKETS) | missing)
    if len(matters):
        mine = at[matters]
        tally.add(LINKS.name, {"connection": rows["connection"][mine]}, {
            "last": rows["last"][mine], "closed_at": closed_at[matters], "resent": resent[matters],
            "is_stuck": is_stuck[matters], "missing": missing[matters], "lost_bytes": rows["client_lost_bytes"][mine],
            "unacknowledged_bytes": rows["client_unacknowledged_bytes"][mine],
        })  # fmt: skip
