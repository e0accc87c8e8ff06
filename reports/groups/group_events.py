"""Group requests as events and counts, with positions and the ends of partitions: what `groups_of` is made of.

Events (rare): each JoinGroup, SyncGroup and LeaveGroup; each heartbeat of a consumer, share or streams group that
changes something; each heartbeat or commit that is answered REBALANCE_IN_PROGRESS; each request of a classic member
that is answered UNKNOWN_MEMBER_ID. All other heartbeats, commits and fetches are counts, of which the latest values are
kept.

"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, INCOMPLETE
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import NUMBER, OTHER, TEXT
from ..section_parts.counted import (
    CLIENT,
    KEPT,
    PLACE,
    Counted,
    Made,
    Rows,
    began,
    counted,
    ended,
    largest,
    largest_where,
    latest,
    least,
    least_where,
    once,
    total,
)
from ..section_parts.event_rows import EventKind, EventView, events_of
from ..section_parts.gathered import Gathered
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
#: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH.
_NO_MEMBER = (UNKNOWN_MEMBER_ID, 82, 110)
_MEMBER_ID_REQUIRED = 79
_COMMIT, _JOIN_GROUP, _HEARTBEAT, _SYNC_GROUP, _TXN_COMMIT = 8, 11, 12, 14, 28
_HEARTBEATS = (_HEARTBEAT, 68, 76, 88)
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


def _of_requests(gathered: Gathered, kinds: tuple[str, ...], column: str) -> Array:
    """A text that one of several kinds has: int64, one for each exchange."""
    found = np.full(len(gathered), -1, np.int64)
    for kind in kinds:
        rows = gathered.facts(kind)
        if len(rows):
            found[rows.exchange] = rows[column]
    return found


def _group(gathered: Gathered) -> Array:
    return _of_requests(gathered, _WITH_MEMBER, "group")


def _instance(gathered: Gathered) -> Array:
    return _of_requests(gathered, _WITH_INSTANCE, "instance")


def _member(gathered: Gathered) -> Array:
    """The member of each exchange: of the request, or as a response without an error assigns it."""
    member = _of_requests(gathered, _WITH_MEMBER, "member")
    for kind in ("joined group", *(f"{name} heartbeat answer" for name in _BEATS.values())):
        rows = gathered.facts(kind)
        is_new = (rows["member"] >= 0) & (rows["error_code"] == 0)
        member[rows.exchange[is_new]] = rows["member"][is_new]
    return member


def _is_error(code: Array) -> Array:
    """Whether a code is an error. MEMBER_ID_REQUIRED is a part of joining."""
    found: Array = (code != 0) & (code != _MEMBER_ID_REQUIRED)
    return found


def _have(gathered: Gathered, is_so: Callable[[Array], Array]) -> Array:
    """Which exchanges have an answer with an error code of which `is_so` holds: bool, of all exchanges."""
    found = np.zeros(len(gathered), bool)
    for kind in _ERRORS:
        rows = gathered.facts(kind)
        found[rows.exchange[is_so(rows["error_code"])]] = True
    return found


def _has_failed(gathered: Gathered) -> Array:
    return _have(gathered, _is_error)


def _is_expelled(gathered: Gathered) -> Array:
    return _have(gathered, lambda code: is_among(code, _NO_MEMBER))


def _has_moved(gathered: Gathered) -> Array:
    return _have(gathered, lambda code: is_among(code, _MOVED))


def of_group(x: Rows) -> Any:
    """The group of the request."""
    return x.each(_group)


def _type(x: Rows) -> Any:
    found = np.full(len(x.api_key), -1, np.int64)
    for api_key, kind in _TYPES.items():
        found[x.api_key == api_key] = kind
    return found


def _commits(x: Rows) -> Any:
    return is_among(x.api_key, (_COMMIT, _TXN_COMMIT))


MEMBERS = counted(
    "groups.members", {"group": TEXT, "member": TEXT, "instance": TEXT, **CLIENT, "type": NUMBER},
    lambda x: of_group(x) >= 0,
    more={"group": of_group, "member": lambda x: x.each(_member), "instance": lambda x: x.each(_instance),
          "type": _type},
    other={"group": KEPT, "member": OTHER, "client_id": OTHER, "type": KEPT},
    requests=total(1), heartbeats=total(lambda x: is_among(x.api_key, _HEARTBEATS)),
    commits=total(_commits), committed=least(lambda x: least_where(_commits(x), began(x))),
    errors=total(lambda x: x.each(_has_failed)),
    first=least(began), last=largest(began), good=largest(lambda x: largest_where(~x.each(_is_expelled), began(x))),
)  # fmt: skip


def _answered_at(x: Rows, has_moved: Any) -> Any:
    is_whole = (x.outcome == ANSWERED) & (x.response_status != INCOMPLETE)
    return largest_where(is_whole & has_moved, x.response_last)


COORDINATORS = counted(
    "groups.coordinators", {"group": TEXT}, lambda x: of_group(x) >= 0, more={"group": of_group},
    requests=total(1), answered_at=largest(lambda x: _answered_at(x, ~x.each(_has_moved))),
    moved_at=largest(lambda x: _answered_at(x, x.each(_has_moved))),
)  # fmt: skip
ERRORS = counted(
    "groups.errors", {"group": TEXT, "api_key": NUMBER, "error_code": NUMBER},
    (lambda x: _is_error(x.error_code), lambda x: of_group(x) >= 0), of=_ERRORS, more={"group": of_group},
    other={"api_key": KEPT, "error_code": KEPT}, codes=total(1),
)  # fmt: skip


def _errors_of(group: Made, *of: str, beside: tuple[str, ...] = ()) -> Counted:
    """The errors of answers that name a group, or whose request does, but no member."""
    where = (lambda x: x.error_code != 0, lambda x: x.made(group) >= 0)
    return ERRORS.also(of, where, {"group": group}, beside, codes=1)


def _searched(x: Rows) -> Any:
    """The group of a FindCoordinator for one. Version 0 looks for groups, and has no type."""
    return np.where(_is_for_groups(x), x.top("find coordinator", "key"), -1)


def _is_for_groups(x: Rows) -> Any:
    return x.top("find coordinator", "key_type") <= 0


_OTHER_ERRORS = (
    _errors_of(_searched, "coordinator", beside=("find coordinator",)),
    _errors_of(lambda x: np.where(_is_for_groups(x), x.key, -1), "coordinator of key"),
    _errors_of(lambda x: x.top("offset fetch", "group"), "fetched offsets", "fetched offset", beside=("offset fetch",)),
    _errors_of("group", "fetched offset group"),
    _errors_of(lambda x: x.around("fetched offset group", "group"), "fetched offset of group"),
)


@once
def is_committed(x: Rows) -> Any:
    """Whether a commit of an offset was answered without an error."""
    return (x.offset >= 0) & (x.outcome == ANSWERED) & (x.beside("committed partition", "error_code", 0) == 0)


def _fetching_group(gathered: Gathered) -> Array:
    """The group whose offsets are read. A response for several groups does not say which is whose here."""
    group = gathered.top("offset fetch", "group").copy()
    several = gathered.facts("offset fetch group")
    group[several.exchange] = several["group"]
    group[several.exchange[~several.is_first()]] = -1
    return group


def of_fetching_group(x: Rows) -> Any:
    """The group whose offsets a client reads."""
    return x.each(_fetching_group)


@once
def is_fetched(x: Rows) -> Any:
    """Whether a committed offset was read."""
    return (x.offset >= 0) & (x.error_code == 0) & (of_fetching_group(x) >= 0)


COMMIT_PARTITIONS = ("commit partition", "transaction commit partition")
FETCHED_OFFSETS = ("fetched offset", "fetched offset of group")
COMMITTED = counted(
    "groups.committed", {"group": TEXT, **PLACE}, is_committed, of=COMMIT_PARTITIONS, more={"group": of_group},
    other={"group": KEPT, "topic": OTHER}, beside=("committed partition",),
    commits=total(1), time=largest(ended), offset=latest("offset"),
)  # fmt: skip


@once
def is_position(x: Rows) -> Any:
    """Whether a consumer fetches at an offset. A follower of a replica is none."""
    return (x.offset >= 0) & (x.top("fetch", "replica_id") < 0) & (x.top("fetch", "replica_state_id") < 0)


POSITIONS = counted(
    "groups.positions", CLIENT | PLACE, is_position, of=("fetch partition",), beside=("fetch",),
    fetches=total(1), time=largest(began), offset=latest("offset"),
)  # fmt: skip


@once
def has_end(x: Rows) -> Any:
    """Whether a Fetch response has a high watermark."""
    return (x.high_watermark >= 0) & (x.error_code == 0)


@once
def is_appended(x: Rows) -> Any:
    """Whether batches were appended."""
    return (x.base_offset >= 0) & (x.error_code == 0)


@once
def end_of_appended(x: Rows) -> Any:
    """The offset after what a Produce appends."""
    return x.base_offset + x.summed("batch", "records")


def _asks_for_ends(gathered: Gathered) -> Array:
    """Whether a ListOffsets asks for the latest offsets only."""
    asked, found = gathered.facts("list offsets partition"), np.zeros(len(gathered), bool)
    is_latest = asked["timestamp"] == -1
    found[asked.exchange[is_latest]] = True
    found[asked.exchange[~is_latest]] = False
    return found


#: High watermarks of Fetch responses, ends of what Produce appends, and latest offsets of ListOffsets.
ENDS = counted(
    "groups.ends", PLACE, has_end, of=("fetched partition",),
    seen=total(1), time=largest("response_last"), high_watermark=latest("high_watermark"), end=largest(),
)  # fmt: skip
COUNTS = (
    MEMBERS, COORDINATORS, ERRORS, *_OTHER_ERRORS, COMMITTED,
    COMMITTED.also(FETCHED_OFFSETS, is_fetched, {"group": of_fetching_group}, commits=0, time=ended, offset="offset"),
    POSITIONS, ENDS,
    ENDS.also(
        ("listed partition",), lambda x: (x.offset >= 0) & (x.error_code == 0) & x.each(_asks_for_ends),
        beside=("list offsets partition",), seen=1, end="offset",
    ),
    ENDS.also(("produced partition",), is_appended, beside=("batch",), seen=1, end=end_of_appended),
)  # fmt: skip
FACTS = (
    *_WITH_MEMBER, "leaving member", "offset fetch group", "consumer subscription", "share subscription",
    "consumer assigned partition", "share assigned partition",
)  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Note what members of groups do."""
    if (gathered.once(_group) >= 0).any():
        _read_joins(gathered, tally)
        _read_leaves(gathered, tally)
        _read_refusals(gathered, tally)
        for kind, name in _BEATS.items():
            _read_beats(gathered, tally, kind, name)


def _note(gathered: Gathered, tally: Tally, at: Array, kind: EventKind, **columns: Any) -> None:
    if len(at):
        tally.note(events_of(gathered, at, kind, sent=gathered.column("request_first")[at], **columns))


def _read_joins(gathered: Gathered, tally: Tally) -> None:
    member = gathered.once(_member)
    for kind, fact, answer in ((JOIN, "join group", "joined group"), (SYNC, "sync group", "synced group")):
        rows = gathered.facts(fact)
        at = rows.exchange
        columns = {"error_code": gathered.top(answer, "error_code", 0)[at]}
        if kind == JOIN:
            columns |= {name: rows[name] for name in ("session_timeout_ms", "reason")}
            columns |= {"generation": gathered.top(answer, "generation", NO_NUMBER)[at]}
            columns |= {"topic": gathered.top(answer, "protocol")[at]}
        else:
            columns |= {"generation": rows["generation"], "assignment": gathered.top(answer, "assignment")[at]}
        _note(gathered, tally, at, kind, group=rows["group"], member=member[at], instance=rows["instance"], **columns)


def _read_leaves(gathered: Gathered, tally: Tally) -> None:
    """A LeaveGroup names one member, or since version 3 several."""
    tops, members = gathered.facts("leave group"), gathered.facts("leaving member")
    alone, at = tops.where(~is_among(tops.exchange, members.exchange)), members.exchange
    _note(gathered, tally, alone.exchange, LEAVE, group=alone["group"], member=alone["member"])
    columns = {name: members[name] for name in ("member", "instance", "reason")}
    _note(gathered, tally, at, LEAVE, group=gathered.top("leave group", "group")[at], **columns)


def _read_refusals(gathered: Gathered, tally: Tally) -> None:
    """How members hear of a rebalance, and that the group expelled them."""
    group, member, api = gathered.once(_group), gathered.once(_member), gathered.column("api_key")
    generation = gathered.top("heartbeat", "generation", 0) + gathered.top("commit", "generation", 0)
    for kind, code, apis in (
        (REFUSED, REBALANCE_IN_PROGRESS, (_HEARTBEAT, _COMMIT)),
        (EXPELLED, UNKNOWN_MEMBER_ID, (_HEARTBEAT, _COMMIT, _SYNC_GROUP, _JOIN_GROUP)),
    ):
        is_so = _have(gathered, partial(np.equal, code))
        at = np.flatnonzero(is_so & is_among(api, apis))
        more = {"generation": generation[at]} if kind == REFUSED else {}
        _note(gathered, tally, at, kind, group=group[at], member=member[at], error_code=code, **more)


def _read_beats(gathered: Gathered, tally: Tally, kind: int, name: str) -> None:
    """Heartbeats that join, leave, fail, subscribe, or change the epoch or the assignment."""
    rows, answer = gathered.facts(f"{name} heartbeat"), f"{name} heartbeat answer"
    if not len(rows):
        return
    epoch, code = gathered.top(answer, "member_epoch", NO_NUMBER), gathered.top(answer, "error_code", 0)
    group, member = gathered.top(f"{name} heartbeat", "group"), gathered.once(_member)
    at, sent = rows.exchange, rows["member_epoch"]
    is_change = (sent <= 0) | (epoch[at] != sent) | (code[at] != 0)
    if kind != STREAMS:
        parts, topics = gathered.facts(f"{name} assigned partition"), gathered.facts(f"{name} subscription")
        is_change |= is_among(at, parts.exchange) | (is_among(at, topics.exchange) & (kind == CONSUMER))
        of = parts.exchange
        _note(gathered, tally, of, ASSIGNED, group=group[of], member=member[of], partition=parts["item"],
              **{name: parts[name] for name in ("topic", "topic_id", "error_code")})  # fmt: skip
        _note(gathered, tally, topics.exchange, TOPIC, group=group[topics.exchange], subscribed=topics["item"])
    rows = rows.where(is_change)
    at = rows.exchange
    _note(
        gathered, tally, at, BEAT, group=rows["group"], member=member[at], sent_epoch=rows["member_epoch"],
        instance=rows["instance"] if kind != SHARE else -1, epoch=epoch[at], type=kind, error_code=code[at],
        interval_ms=gathered.top(answer, "interval_ms", 0)[at],
    )  # fmt: skip
