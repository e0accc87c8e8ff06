"""Group requests as events and counts, with positions and the ends of partitions: what `groups_of` is made of.

Events (rare): each JoinGroup, SyncGroup and LeaveGroup; each heartbeat of a consumer, share or streams group that
changes something; each heartbeat or commit that is answered REBALANCE_IN_PROGRESS; each request of a classic member
that is answered UNKNOWN_MEMBER_ID. All other heartbeats, commits and fetches are counts, of which the latest values are
kept.

"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, INCOMPLETE, NO_TIME
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import EMPTY, LATEST, MAX, MIN, SUM
from ..section_parts.event_rows import EventKind, EventView, events_of, events_of_facts
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.section_counts import Tally

#: The section that reads this, and keeps the events.
READ_BY = "group-reading"
#: Names of values of events. `sent`: the time of the request's first byte. `generation`: of JOIN, SYNC and REFUSED.
#: `session_timeout_ms`, and `topic`, the protocol's name: of JOIN. `reason`: of JOIN and LEAVE. `assignment`: the bytes
#: of SYNC. Of BEAT: the epochs of the request and of the response, `type` (CONSUMER, SHARE ..), and the interval of
#: heartbeats that the response asks for. `subscribed`: of TOPIC.
GROUP = EventView(
    group="s0", member="s1", instance="s2", reason="s3", assignment="s3", subscribed="s3", generation="v0",
    sent_epoch="v0", session_timeout_ms="v1", epoch="v1", type="v3", interval_ms="v4", sent="v7",
)  # fmt: skip
#: Kinds of events. ASSIGNED: a partition that a BEAT's response assigns. TOPIC: a topic that its request subscribes to.
JOIN, SYNC, LEAVE, REFUSED, BEAT, ASSIGNED, EXPELLED, TOPIC = (EventKind(n, GROUP) for n in range(1, 9))
#: Types of groups.
CLASSIC, CONSUMER, SHARE, STREAMS = range(4)
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
#: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
_MOVED = (15, 16)
_MEMBER_ID_REQUIRED = 79
_COMMIT, _JOIN_GROUP, _HEARTBEAT, _SYNC_GROUP, _TXN_COMMIT = 8, 11, 12, 14, 28
#: API -> the type of groups that use it.
_TYPES = {11: CLASSIC, 12: CLASSIC, 13: CLASSIC, 14: CLASSIC, 68: CONSUMER, 76: SHARE, 88: STREAMS}
_BEATS = {CONSUMER: "consumer", SHARE: "share", STREAMS: "streams"}
#: Kinds of facts that name a group, and those that name a member too.
_WITH_MEMBER = (
    "commit", "join group", "heartbeat", "sync group", "leave group", "consumer heartbeat", "share heartbeat",
    "streams heartbeat", "transaction commit",
)  # fmt: skip
_WITH_INSTANCE = ("commit", "join group", "heartbeat", "sync group", "consumer heartbeat", "streams heartbeat")
#: Kinds of facts with the error codes of answers.
_ERRORS = (
    "joined group", "synced group", "left group", "left member", "heartbeat answer", "committed partition",
    "consumer heartbeat answer", "share heartbeat answer", "streams heartbeat answer",
)  # fmt: skip
FACTS = (
    *_WITH_MEMBER, *_ERRORS, "leaving member", "commit partition", "transaction commit partition", "offset fetch",
    "offset fetch group", "fetched offsets", "fetched offset", "fetched offset group", "fetched offset of group",
    "find coordinator", "coordinator", "coordinator of key", "consumer subscription", "share subscription",
    "consumer assigned partition", "share assigned partition", "fetch", "fetch partition", "fetched partition",
    "produced partition", "batch", "list offsets partition", "listed partition",
)  # fmt: skip

_PARTITION_OTHER = {"topic": OTHER, "topic_id": -1, "partition": -1}
FORMS = (
    CountForm(
        "groups.members",
        {"group": TEXT, "member": TEXT, "instance": TEXT, "client_id": TEXT, "client_ip": ADDRESS, "type": NUMBER},
        {"requests": SUM, "heartbeats": SUM, "commits": SUM, "errors": SUM, "first": MIN, "last": MAX},
        {"member": OTHER, "instance": OTHER, "client_id": OTHER, "client_ip": -1},
    ),
    CountForm(
        "groups.errors", {"group": TEXT, "api_key": NUMBER, "error_code": NUMBER}, {"codes": SUM}, {"group": OTHER}
    ),
    CountForm(
        "groups.coordinators", {"group": TEXT}, {"requests": SUM, "answered_at": MAX, "moved_at": MAX}, {"group": OTHER}
    ),
    CountForm(
        "groups.committed",
        {"group": TEXT, "topic": TEXT, "topic_id": TEXT, "partition": NUMBER},
        {"commits": SUM, "time": MAX, "offset": LATEST},
        _PARTITION_OTHER,
    ),
    CountForm(
        "groups.positions",
        {"client_id": TEXT, "client_ip": ADDRESS, "topic": TEXT, "topic_id": TEXT, "partition": NUMBER},
        {"fetches": SUM, "time": MAX, "offset": LATEST},
        {"client_id": OTHER, "client_ip": -1, **_PARTITION_OTHER},
    ),
    CountForm(
        "groups.ends",
        {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER},
        {"rows": SUM, "time": MAX, "high_watermark": LATEST, "end": MAX},
        _PARTITION_OTHER,
    ),
)  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Read the exchanges of group APIs, and the offsets of Fetch, Produce and ListOffsets."""
    group = _of_exchanges(gathered, _WITH_MEMBER, "group")
    if (group >= 0).any():
        _read_members(gathered, tally, group)
        _read_joins(gathered, tally)
        _read_leaves(gathered, tally)
        _read_refusals(gathered, tally, group)
        for kind, name in _BEATS.items():
            _read_beats(gathered, tally, kind, name)
    _read_other_errors(gathered, tally)
    _read_commits(gathered, tally)
    _read_positions(gathered, tally)
    _read_ends(gathered, tally)


def _of_exchanges(gathered: Gathered, kinds: tuple[str, ...], column: str) -> Array:
    """A text that one of several kinds has: int64, one for each exchange."""
    found = np.full(len(gathered.exchanges), -1, np.int64)
    for kind in kinds:
        rows = gathered.facts(kind)
        if len(rows):
            found[rows.exchange] = rows[column]
    return found


def _errors(gathered: Gathered) -> tuple[Array, Array]:
    """The error codes of answers: indexes of exchanges, codes. MEMBER_ID_REQUIRED is a part of joining."""
    exchanges, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for kind in _ERRORS:
        rows = gathered.facts(kind)
        failed = np.flatnonzero((rows["error_code"] != 0) & (rows["error_code"] != _MEMBER_ID_REQUIRED))
        exchanges.append(rows.exchange[failed])
        codes.append(rows["error_code"][failed].astype(np.int64))
    return np.concatenate(exchanges), np.concatenate(codes)


def _member(gathered: Gathered) -> Array:
    """The member of each exchange: of the request, or as a response without an error assigns it."""
    member = _of_exchanges(gathered, _WITH_MEMBER, "member")
    for kind in ("joined group", *(f"{name} heartbeat answer" for name in _BEATS.values())):
        rows = gathered.facts(kind)
        is_new = (rows["member"] >= 0) & (rows["error_code"] == 0)
        member[rows.exchange[is_new]] = rows["member"][is_new]
    return member


def _end_time(exchanges: Array, at: Array) -> Array:
    """The time of the response's last byte, or of the request's first, of some exchanges."""
    ends = exchanges["response_last"][at]
    found: Array = np.where(ends != NO_TIME, ends, exchanges["request_first"][at])
    return found


def _read_members(gathered: Gathered, tally: Tally, group: Array) -> None:
    chosen = np.flatnonzero(group >= 0)
    rows = gathered.rows(chosen)
    api = rows["api_key"]
    times = np.where(rows["request_first"] != NO_TIME, rows["request_first"], rows["response_last"])
    failed, codes = _errors(gathered)
    is_failed = np.zeros(len(group), bool)
    is_failed[failed] = True
    types = np.full(len(chosen), -1, np.int64)
    for api_key, kind in _TYPES.items():
        types[api == api_key] = kind
    tally.add(
        "groups.members",
        {
            "group": group[chosen],
            "member": _member(gathered)[chosen],
            "instance": _of_exchanges(gathered, _WITH_INSTANCE, "instance")[chosen],
            "client_id": rows["client_id"],
            "client_ip": rows["client_ip"],
            "type": types,
        },
        {
            "requests": 1,
            "heartbeats": is_among(api, (12, 68, 76, 88)),
            "commits": is_among(api, (_COMMIT, _TXN_COMMIT)),
            "errors": is_failed[chosen],
            "first": times,
            "last": times,
        },
    )
    has_moved = np.zeros(len(group), bool)
    has_moved[failed[is_among(codes, _MOVED)]] = True
    answered = (rows["outcome"] == ANSWERED) & (rows["response_status"] != INCOMPLETE)
    last = {"answered_at": answered & ~has_moved[chosen], "moved_at": answered & has_moved[chosen]}
    ends = {name: np.where(is_so, rows["response_last"], EMPTY[MAX]) for name, is_so in last.items()}
    tally.add("groups.coordinators", {"group": group[chosen]}, {"requests": 1, **ends})
    if len(failed):
        keys = {"group": group[failed], "api_key": gathered.exchanges["api_key"][failed], "error_code": codes}
        tally.add("groups.errors", keys, {"codes": 1})


def _read_other_errors(gathered: Gathered, tally: Tally) -> None:
    """Count the error codes of FindCoordinator and OffsetFetch, which name a group and no member."""
    is_group = gathered.top("find coordinator", "key_type") <= 0  # version 0 looks for groups, and has no type
    searched = np.where(is_group, gathered.top("find coordinator", "key"), -1)
    fetched = gathered.top("offset fetch", "group")
    found, outer = [], gathered.facts("fetched offset group")
    for kind, group in (("coordinator", searched), ("fetched offsets", fetched), ("fetched offset", fetched)):
        rows = gathered.facts(kind)
        found.append((rows, group[rows.exchange]))
    rows, inner = gathered.facts("coordinator of key"), gathered.facts("fetched offset of group")
    found.append((rows, np.where(is_group[rows.exchange], rows["key"], -1)))
    found += [(outer, outer["group"]), (inner, outer["group"][outer.around(inner)])]
    for rows, group in found:
        rows, group = rows.where(chosen := (rows["error_code"] != 0) & (group >= 0)), group[chosen]
        if len(rows):
            keys = {"group": group, "api_key": gathered.column("api_key")[rows.exchange]}
            tally.add("groups.errors", keys | {"error_code": rows["error_code"]}, {"codes": 1})


def _filled(events: Array, gathered: Gathered, exchanges: Array, **texts: Array) -> Array:
    events["sent"] = gathered.exchanges["request_first"][exchanges]
    for name, values in texts.items():
        events[name] = values
    return events


def _read_joins(gathered: Gathered, tally: Tally) -> None:
    member = _member(gathered)
    for kind, fact, answer in ((JOIN, "join group", "joined group"), (SYNC, "sync group", "synced group")):
        rows = gathered.facts(fact)
        if not len(rows):
            continue
        at = rows.exchange
        texts = {"group": rows["group"], "member": member[at], "instance": rows["instance"]}
        events = _filled(events_of(gathered, at, kind), gathered, at, **texts)
        events["error_code"] = gathered.top(answer, "error_code", 0)[at]
        if kind == JOIN:
            events["generation"] = gathered.top(answer, "generation", NO_NUMBER)[at]
            events["session_timeout_ms"], events["reason"] = rows["session_timeout_ms"], rows["reason"]
            events["topic"] = gathered.top(answer, "protocol")[at]
        else:
            events["generation"] = rows["generation"]
            events["assignment"] = gathered.top(answer, "assignment")[at]
        tally.note(events)


def _read_leaves(gathered: Gathered, tally: Tally) -> None:
    """A LeaveGroup names one member, or since version 3 several."""
    tops, members = gathered.facts("leave group"), gathered.facts("leaving member")
    if not len(tops):
        return
    group = gathered.top("leave group", "group")
    alone = tops.where(~is_among(tops.exchange, members.exchange))
    texts = {name: alone[name] for name in ("group", "member")}
    tally.note(_filled(events_of(gathered, alone.exchange, LEAVE), gathered, alone.exchange, **texts))
    at = members.exchange
    texts = {"group": group[at], **{name: members[name] for name in ("member", "instance", "reason")}}
    tally.note(_filled(events_of(gathered, at, LEAVE), gathered, at, **texts))


def _read_refusals(gathered: Gathered, tally: Tally, group: Array) -> None:
    """How members hear of a rebalance, and that the group expelled them."""
    exchanges, codes = _errors(gathered)
    api = gathered.exchanges["api_key"][exchanges]
    at = distinct_values(exchanges[(codes == REBALANCE_IN_PROGRESS) & is_among(api, (_HEARTBEAT, _COMMIT))])
    if len(at):
        events = _filled(events_of(gathered, at, REFUSED), gathered, at, group=group[at], member=_member(gathered)[at])
        generation = gathered.top("heartbeat", "generation", 0) + gathered.top("commit", "generation", 0)
        events["generation"] = generation[at]
        events["error_code"] = REBALANCE_IN_PROGRESS
        tally.note(events)
    is_of_member = is_among(api, (_HEARTBEAT, _COMMIT, _SYNC_GROUP, _JOIN_GROUP))
    at = distinct_values(exchanges[(codes == UNKNOWN_MEMBER_ID) & is_of_member])
    if len(at):
        events = _filled(events_of(gathered, at, EXPELLED), gathered, at, group=group[at], member=_member(gathered)[at])
        events["error_code"] = UNKNOWN_MEMBER_ID
        tally.note(events)


def _read_beats(gathered: Gathered, tally: Tally, kind: int, name: str) -> None:
    """Heartbeats that join, leave, fail, subscribe, or change the epoch or the assignment."""
    rows = gathered.facts(f"{name} heartbeat")
    if not len(rows):
        return
    at = rows.exchange
    epoch = gathered.top(f"{name} heartbeat answer", "member_epoch", NO_NUMBER)[at]
    code = gathered.top(f"{name} heartbeat answer", "error_code", 0)[at]
    subscribes, assigned = np.zeros(len(gathered.exchanges), bool), np.zeros(len(gathered.exchanges), bool)
    if kind != STREAMS:
        subscribes[gathered.facts(f"{name} subscription").exchange] = True
        assigned[gathered.facts(f"{name} assigned partition").exchange] = True
    sent = rows["member_epoch"]
    is_change = (sent <= 0) | (epoch != sent) | (code != 0) | assigned[at] | (subscribes[at] & (kind == CONSUMER))
    rows, at = rows.where(is_change), at[is_change]
    group, member = gathered.top(f"{name} heartbeat", "group"), _member(gathered)
    events = _filled(events_of(gathered, at, BEAT), gathered, at, group=rows["group"], member=member[at])
    if kind != SHARE:
        events["instance"] = rows["instance"]
    events["sent_epoch"], events["epoch"], events["type"] = sent[is_change], epoch[is_change], kind
    events["interval_ms"] = gathered.top(f"{name} heartbeat answer", "interval_ms", 0)[at]
    events["error_code"] = code[is_change]
    tally.note(events)
    if kind != STREAMS:
        parts = gathered.facts(f"{name} assigned partition")
        given = events_of_facts(gathered, parts, ASSIGNED)
        given["partition"] = parts["item"]
        at = parts.exchange
        tally.note(_filled(given, gathered, at, group=group[at], member=member[at]))
        topics = gathered.facts(f"{name} subscription")
        named = events_of(gathered, topics.exchange, TOPIC)
        at = topics.exchange
        tally.note(_filled(named, gathered, at, group=group[at], subscribed=topics["item"]))


def _read_commits(gathered: Gathered, tally: Tally) -> None:
    for commits, (keys, times, offsets, _) in committed_of(gathered):
        tally.add("groups.committed", keys, {"commits": commits, "time": times, "offset": offsets})


#: Who and where, times, offsets, and the exchanges' indexes.
Offsets = tuple[dict[str, Array], Array, Array, Array]


def committed_of(gathered: Gathered) -> Iterator[tuple[int, Offsets]]:
    """Committed offsets of groups: 1 and those that commits wrote, 0 and those that a client read."""
    group = _of_exchanges(gathered, _WITH_MEMBER, "group")
    if (group >= 0).any():
        yield from _written_offsets(gathered, group)
    yield from _fetched_offsets(gathered)


def _written_offsets(gathered: Gathered, group: Array) -> Iterator[tuple[int, Offsets]]:
    failed = gathered.facts("committed partition")
    failed = failed.where(failed["error_code"] != 0)
    refused = {
        (int(x), int(t), int(i), int(p))
        for x, t, i, p in zip(failed.exchange, failed["topic"], failed["topic_id"], failed["partition"], strict=True)
    }
    suspects = distinct_values(failed.exchange)
    for kind in ("commit partition", "transaction commit partition"):
        rows = gathered.facts(kind)
        good = gathered.exchanges["outcome"][rows.exchange] == ANSWERED
        for n in np.flatnonzero(is_among(rows.exchange, suspects)):
            key = rows.exchange[n], rows["topic"][n], rows["topic_id"][n], rows["partition"][n]
            good[n] &= tuple(map(int, key)) not in refused
        yield from _offsets(gathered, group, rows, np.flatnonzero(good & (rows["offset"] >= 0)), 1)


def _offsets(
    gathered: Gathered, group: Array, rows: FactRows, chosen: Array, commits: int
) -> Iterator[tuple[int, Offsets]]:
    """Some rows as of `committed_of`. `group`: of each exchange."""
    if len(chosen):
        at = rows.exchange[chosen]
        keys = {"group": group[at], **_place(rows, chosen)}
        yield commits, (keys, _end_time(gathered.exchanges, at), rows["offset"][chosen], at)


def _fetched_offsets(gathered: Gathered) -> Iterator[tuple[int, Offsets]]:
    """Committed offsets that a client reads. A response for several groups does not say which is whose here."""
    group = gathered.top("offset fetch", "group")
    several = gathered.facts("offset fetch group")
    count = np.bincount(several.exchange, minlength=len(gathered.exchanges))
    group[several.exchange] = several["group"]
    group[count > 1] = -1
    for kind in ("fetched offset", "fetched offset of group"):
        rows = gathered.facts(kind)
        good = (rows["offset"] >= 0) & (rows["error_code"] == 0) & (group[rows.exchange] >= 0)
        yield from _offsets(gathered, group, rows, np.flatnonzero(good), 0)


def _read_positions(gathered: Gathered, tally: Tally) -> None:
    keys, times, offsets, _ = positions_of(gathered)
    if len(times):
        tally.add("groups.positions", keys, {"fetches": 1, "time": times, "offset": offsets})


def positions_of(gathered: Gathered) -> Offsets:
    """The offsets that consumers fetch next: who and where, times, offsets, and the exchanges' indexes. A follower of a
    replica is no consumer."""
    rows = gathered.facts("fetch partition")
    is_follower = (gathered.top("fetch", "replica_id") >= 0) | (gathered.top("fetch", "replica_state_id") >= 0)
    offset = rows["offset"]
    chosen = np.flatnonzero(~is_follower[rows.exchange] & (offset >= 0))
    at, x = rows.exchange[chosen], gathered.exchanges
    times = np.where(x["request_first"] != NO_TIME, x["request_first"], x["response_last"])
    keys = {"client_id": x["client_id"][at], "client_ip": x["client_ip"][at], **_place(rows, chosen)}
    return keys, times[at], offset[chosen], at


def _place(rows: FactRows, chosen: Array) -> dict[str, Array]:
    """The topics and partitions of some rows."""
    return {name: rows[name][chosen] for name in ("topic", "topic_id", "partition")}


def _read_ends(gathered: Gathered, tally: Tally) -> None:
    """High watermarks of Fetch responses, ends of what Produce appends, and latest offsets of ListOffsets."""
    place, times, ends = high_watermarks_of(gathered)
    if len(times):
        tally.add("groups.ends", place, {"rows": 1, "time": times, "high_watermark": ends})
    _read_latest(gathered, tally)
    place, times, ends = appends_of(gathered)
    if len(times):
        tally.add("groups.ends", place, {"rows": 1, "end": ends})


def high_watermarks_of(gathered: Gathered) -> tuple[dict[str, Array], Array, Array]:
    """The high watermarks of Fetch responses: places, times, offsets."""
    rows = gathered.facts("fetched partition")
    high_watermark = rows["high_watermark"]
    chosen = np.flatnonzero((high_watermark >= 0) & (rows["error_code"] == 0))
    times = gathered.exchanges["response_last"][rows.exchange[chosen]]
    return _place(rows, chosen), times, high_watermark[chosen]


def _read_latest(gathered: Gathered, tally: Tally) -> None:
    wanted = gathered.facts("list offsets partition")
    is_latest = np.zeros(len(gathered.exchanges), bool)
    is_latest[wanted.exchange[wanted["timestamp"] == -1]] = True
    is_latest[wanted.exchange[wanted["timestamp"] != -1]] = False
    rows = gathered.facts("listed partition")
    chosen = np.flatnonzero(is_latest[rows.exchange] & (rows["offset"] >= 0) & (rows["error_code"] == 0))
    if len(chosen):
        tally.add("groups.ends", _place(rows, chosen), {"rows": 1, "end": rows["offset"][chosen]})


def appends_of(gathered: Gathered) -> tuple[dict[str, Array], Array, Array]:
    """The ends of what Produce appends, by the base offset of each partition in the response, and the records of its
    batch in the request: places, times, offsets."""
    produced, batches = gathered.facts("produced partition"), gathered.facts("batch")
    base = produced["base_offset"]
    chosen = np.flatnonzero((base >= 0) & (produced["error_code"] == 0))
    place, times = _place(produced, chosen), gathered.exchanges["response_last"][produced.exchange[chosen]]
    if not len(chosen):
        return place, times, base[chosen]
    both = {name: np.concatenate([place[name], batches[name]]).astype(np.int64) for name in place}
    # A topic has a name or an id. Both are numbers of strings.
    topic = np.where(both["topic"] >= 0, 2 * both["topic"], 2 * both["topic_id"] + 1) + 1
    partition = np.maximum(both["partition"], -1) + 1
    number = np.concatenate([produced.exchange[chosen], batches.exchange])
    number = (number * (int(topic.max()) + 1) + topic) * (int(partition.max()) + 1) + partition
    _, number = np.unique(number, return_inverse=True)
    records = np.zeros(int(number.max()) + 1, np.int64)
    np.add.at(records, number[len(chosen) :], np.maximum(batches["records"], 0))
    return place, times, base[chosen] + records[number[: len(chosen)]]
