"""What members of groups do, as events: read once for the signatures on members that are expelled, that die, and that
hold up others."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array, rows_of
from ..counting.count_forms import TEXT
from ..section_parts.counted import counted, largest, total
from ..section_parts.event_rows import EventKind, EventView, events_of, events_of_facts
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally

#: Names of their values. `group`: -1: not named. `protocol`: of a join. `reason`: of a leave. `assignment`: its bytes.
#: `sent`: the request's first byte. `generation`: of a join as answered. `is_new`: a join was answered with another
#: member id than it has.
MEMBER = EventView(
    group="s0", member="s1", protocol="s2", reason="s3", assignment="s3", session_timeout_ms="v0",
    rebalance_timeout_ms="v1", sent="v2", generation="v3", is_new="v4",
)  # fmt: skip
#: Kinds of events. REFUSED: a join without a good answer, with its error code. OWNS: a partition that a heartbeat's
#: response assigns. FENCED: another member has the same group.instance.id. TOLD: a heartbeat that is answered
#: REBALANCE_IN_PROGRESS.
JOINED, LEFT, EXPELLED, REFUSED, SYNCED, OWNS, FENCED, TOLD = KINDS = tuple(EventKind(n, MEMBER) for n in range(20, 28))
FACTS = (
    "join group", "joined group", "heartbeat", "heartbeat answer", "sync group", "synced group", "leave group",
    "leaving member", "consumer heartbeat", "consumer heartbeat answer", "consumer assigned partition",
)  # fmt: skip
#: When each member sent its last request.
LAST = counted(
    "advice.members", {"group": TEXT, "member": TEXT}, lambda x: x.member >= 0,
    of=("join group", "heartbeat", "sync group", "consumer heartbeat"), newest="last",
    requests=total(1), last=largest("request_first"),
)  # fmt: skip
#: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH; FENCED_INSTANCE_ID.
_ERRORS = {EXPELLED: (25, 110), FENCED: (82,)}
_REBALANCE_IN_PROGRESS = 27
#: OffsetCommit, JoinGroup, Heartbeat, SyncGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat.
_APIS = (8, 11, 12, 14, 68, 76)
#: Epochs of the last heartbeats of a member, and of a static one.
_LEAVES = (-1, -2)
#: Larger assignments of heartbeats are not noted: each partition is an event.
_MOST_PARTITIONS = 1000


def read(gathered: Gathered, tally: Tally) -> None:
    """Note joins, assignments, leaves, and refused requests of members."""
    _note_joins(gathered, tally)
    _note_told(gathered, tally)
    _note_assignments(gathered, tally)
    _note_leaves(gathered, tally)
    _note_errors(gathered, tally)


def _noted(gathered: Gathered, tally: Tally, rows: FactRows, kind: EventKind, **columns: Array) -> None:
    if not len(rows):
        return
    events = events_of(gathered, rows.exchange, kind)
    events["sent"] = gathered.column("request_first")[rows.exchange]
    for name, values in columns.items():
        events[name] = values
    tally.note(events)


def _is_good(gathered: Gathered, rows: FactRows, answer: str) -> Array:
    """Whether requests were answered without an error: bool."""
    code = gathered.top(answer, "error_code", 0)
    found: Array = (gathered.column("outcome")[rows.exchange] == ANSWERED) & (code[rows.exchange] == 0)
    return found


def _member(gathered: Gathered, rows: FactRows, answer: str) -> Array:
    """The members of requests: as the response names them, since a new one may have no id yet."""
    answered = gathered.top(answer, "member")[rows.exchange]
    found: Array = np.where(answered >= 0, answered, rows["member"])
    return found


def _note_joins(gathered: Gathered, tally: Tally) -> None:
    for fact, answer in (("join group", "joined group"), ("consumer heartbeat", "consumer heartbeat answer")):
        rows = gathered.facts(fact)
        if fact == "consumer heartbeat":
            rows = rows.where(rows["member_epoch"] == 0)
        is_good = _is_good(gathered, rows, answer)
        for kind, mine in ((JOINED, rows.where(is_good)), (REFUSED, rows.where(~is_good))):
            member = _member(gathered, mine, answer)
            more = {}
            if fact == "join group":
                more = {
                    "session_timeout_ms": mine["session_timeout_ms"],
                    "generation": gathered.top(answer, "generation")[mine.exchange],
                    "is_new": member != mine["member"],
                    "protocol": gathered.top(answer, "protocol")[mine.exchange],
                    "error_code": gathered.top(answer, "error_code", 0)[mine.exchange],
                }
            timeout_ms = mine["rebalance_timeout_ms"]
            if fact == "join group":  # in version 0 the session timeout is both
                timeout_ms = np.where(timeout_ms == NO_NUMBER, mine["session_timeout_ms"], timeout_ms)
            _noted(
                gathered, tally, mine, kind, group=mine["group"], member=member, rebalance_timeout_ms=timeout_ms, **more
            )


def _note_told(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("heartbeat")
    if len(rows):
        code = gathered.top("heartbeat answer", "error_code", 0)
        rows = rows.where(code[rows.exchange] == _REBALANCE_IN_PROGRESS)
        _noted(gathered, tally, rows, TOLD, **{name: rows[name] for name in ("group", "member", "generation")})


def _note_assignments(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("sync group")
    rows = rows.where(_is_good(gathered, rows, "synced group"))
    columns = {name: rows[name] for name in ("group", "member", "generation")}
    columns["assignment"] = gathered.top("synced group", "assignment")[rows.exchange]
    _noted(gathered, tally, rows, SYNCED, **columns)
    parts = gathered.facts("consumer assigned partition")
    if len(parts):
        many = np.bincount(parts.exchange, minlength=len(gathered))
        parts = parts.where(many[parts.exchange] <= _MOST_PARTITIONS)
        events = events_of_facts(gathered, parts, OWNS)
        events["partition"] = parts["item"]
        events["group"] = gathered.top("consumer heartbeat", "group")[parts.exchange]
        events["sent"] = gathered.column("request_first")[parts.exchange]
        tally.note(events)


def _note_leaves(gathered: Gathered, tally: Tally) -> None:
    tops, members = gathered.facts("leave group"), gathered.facts("leaving member")
    group = gathered.top("leave group", "group")
    alone = tops.where(~is_among(tops.exchange, members.exchange))
    _noted(gathered, tally, alone, LEFT, group=alone["group"], member=alone["member"])
    reasons = {name: members[name] for name in ("member", "reason")}
    _noted(gathered, tally, members, LEFT, group=group[members.exchange], **reasons)
    rows = gathered.facts("consumer heartbeat")
    rows = rows.where(is_among(rows["member_epoch"], _LEAVES))
    _noted(gathered, tally, rows, LEFT, group=rows["group"], member=rows["member"])


def _note_errors(gathered: Gathered, tally: Tally) -> None:
    for kind, errors in _ERRORS.items():
        codes = gathered.results[is_among(gathered.results["error_code"], errors)]
        if len(codes):
            _note_refused(gathered, tally, kind, codes["exchange"])


def _note_refused(gathered: Gathered, tally: Tally, kind: EventKind, exchanges: Array) -> None:
    at = distinct_values(rows_of(gathered.column("exchange"), exchanges))
    at = at[(at >= 0) & is_among(gathered.column("api_key")[at], _APIS)]
    group = np.full(len(gathered), -1, np.int64)
    for fact in LAST.of:
        rows = gathered.facts(fact)
        group[rows.exchange] = rows["group"]
    events = events_of(gathered, at, kind)
    events["group"], events["sent"] = group[at], gathered.column("request_first")[at]
    tally.note(events)


def member_events(given: SectionInput, *kinds: EventKind) -> Array:
    """The events of some kinds in order of time, all with their group, with the names of MEMBER. One that names none,
    as of a commit, has that of its connection."""
    events = given.once(_member_events)
    found: Array = events[is_among(events["kind"], kinds)]
    return found


def _member_events(given: SectionInput) -> Array:
    events = given.events("advice")
    events = MEMBER.of(events[is_among(events["kind"], KINDS)])
    is_named = events["group"] >= 0
    named, unnamed = events[is_named], np.flatnonzero(~is_named)
    of_connection = dict(zip(named["connection"].tolist(), named["group"].tolist(), strict=True))
    events["group"][unnamed] = [of_connection.get(link, -1) for link in events["connection"][unnamed].tolist()]
    found: Array = events[events["group"] >= 0]
    return found
