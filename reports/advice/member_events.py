"""What members of groups do, as events: read once for the signatures on members that are expelled, that die, and that
hold up others."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array, rows_of
from ..counting.count_forms import OTHER, TEXT, CountForm
from ..counting.count_table import MAX, SUM
from ..questions.event_rows import events_of, events_of_facts
from ..questions.gathered import FactRows, Gathered
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .signature import Signature, events_of_kind

#: Kinds of events. s0 group (-1: not named), s1 member, s2 protocol of a join, s3 reason of a leave, or the
#: assignment's bytes; v0 session timeout, v1 rebalance timeout, both in ms; v2 the request's first byte; v3 generation
#: (of a join as answered); v4 whether a join was answered with another member id than it has. REFUSED: a join without a
#: good answer, with its error code. OWNS: a partition that a heartbeat's response assigns. FENCED: another member has
#: the same group.instance.id. TOLD: a heartbeat that is answered REBALANCE_IN_PROGRESS.
JOINED, LEFT, EXPELLED, REFUSED, SYNCED, OWNS, FENCED, TOLD = KINDS = 20, 21, 22, 23, 24, 25, 26, 27
FACTS = (
    "join group", "joined group", "heartbeat", "heartbeat answer", "sync group", "synced group", "leave group",
    "leaving member", "consumer heartbeat", "consumer heartbeat answer", "consumer assigned partition",
)  # fmt: skip
#: When each member sent its last request.
LAST = CountForm(
    "advice.members",
    {"group": TEXT, "member": TEXT},
    {"requests": SUM, "last": MAX},
    {"group": OTHER, "member": OTHER},
    newest="last",
)
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
    _add_last(gathered, tally)


def _noted(gathered: Gathered, tally: Tally, rows: FactRows, kind: int, **columns: Array) -> None:
    if not len(rows):
        return
    events = events_of(gathered, rows.exchange, kind)
    events["v2"] = gathered.exchanges["request_first"][rows.exchange]
    for name, values in columns.items():
        events[name] = values
    tally.note(events)


def _is_good(gathered: Gathered, rows: FactRows, answer: str) -> Array:
    """Whether requests were answered without an error: bool."""
    code = gathered.top(answer, "error_code", 0)
    found: Array = (gathered.exchanges["outcome"][rows.exchange] == ANSWERED) & (code[rows.exchange] == 0)
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
                    "v0": mine["session_timeout_ms"],
                    "v3": gathered.top(answer, "generation")[mine.exchange],
                    "v4": member != mine["member"],
                    "s2": gathered.top(answer, "protocol")[mine.exchange],
                    "error_code": gathered.top(answer, "error_code", 0)[mine.exchange],
                }
            _noted(gathered, tally, mine, kind, s0=mine["group"], s1=member, v1=mine["rebalance_timeout_ms"], **more)


def _note_told(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("heartbeat")
    if len(rows):
        code = gathered.top("heartbeat answer", "error_code", 0)
        rows = rows.where(code[rows.exchange] == _REBALANCE_IN_PROGRESS)
        _noted(gathered, tally, rows, TOLD, s0=rows["group"], s1=rows["member"], v3=rows["generation"])


def _note_assignments(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("sync group")
    rows = rows.where(_is_good(gathered, rows, "synced group"))
    assignment = gathered.top("synced group", "assignment")[rows.exchange]
    _noted(gathered, tally, rows, SYNCED, s0=rows["group"], s1=rows["member"], s3=assignment, v3=rows["generation"])
    parts = gathered.facts("consumer assigned partition")
    if len(parts):
        many = np.bincount(parts.exchange, minlength=len(gathered.exchanges))
        parts = parts.where(many[parts.exchange] <= _MOST_PARTITIONS)
        events = events_of_facts(gathered, parts, OWNS)
        events["partition"] = parts["item"]
        events["s0"] = gathered.top("consumer heartbeat", "group")[parts.exchange]
        events["v2"] = gathered.exchanges["request_first"][parts.exchange]
        tally.note(events)


def _note_leaves(gathered: Gathered, tally: Tally) -> None:
    tops, members = gathered.facts("leave group"), gathered.facts("leaving member")
    group = gathered.top("leave group", "group")
    alone = tops.where(~is_among(tops.exchange, members.exchange))
    _noted(gathered, tally, alone, LEFT, s0=alone["group"], s1=alone["member"])
    _noted(gathered, tally, members, LEFT, s0=group[members.exchange], s1=members["member"], s3=members["reason"])
    rows = gathered.facts("consumer heartbeat")
    rows = rows.where(is_among(rows["member_epoch"], _LEAVES))
    _noted(gathered, tally, rows, LEFT, s0=rows["group"], s1=rows["member"])


def _note_errors(gathered: Gathered, tally: Tally) -> None:
    for kind, errors in _ERRORS.items():
        codes = gathered.results[is_among(gathered.results["error_code"], errors)]
        if len(codes):
            _note_refused(gathered, tally, kind, codes["exchange"])


def _note_refused(gathered: Gathered, tally: Tally, kind: int, exchanges: Array) -> None:
    at = distinct_values(rows_of(gathered.column("exchange"), exchanges))
    at = at[(at >= 0) & is_among(gathered.column("api_key")[at], _APIS)]
    group = np.full(len(gathered.exchanges), -1, np.int64)
    for fact in ("join group", "heartbeat", "sync group", "consumer heartbeat"):
        rows = gathered.facts(fact)
        group[rows.exchange] = rows["group"]
    events = events_of(gathered, at, kind)
    events["s0"], events["v2"] = group[at], gathered.exchanges["request_first"][at]
    tally.note(events)


def _add_last(gathered: Gathered, tally: Tally) -> None:
    for kind in ("join group", "heartbeat", "sync group", "consumer heartbeat"):
        rows = gathered.facts(kind)
        rows = rows.where(rows["member"] >= 0)
        if len(rows):
            times = gathered.exchanges["request_first"][rows.exchange]
            keys = {"group": rows["group"], "member": rows["member"]}
            tally.add(LAST.name, keys, {"requests": 1, "last": times})


def member_events(given: SectionInput, signature: Signature, *kinds: int) -> Array:
    """The events of some kinds in order of time, all with their group. One that names none, as of a commit, has that of
    its connection."""
    events = events_of_kind(given, signature, *KINDS)
    named = events[events["s0"] >= 0]
    of_connection = dict(zip(named["connection"].tolist(), named["s0"].tolist(), strict=True))
    unnamed = np.flatnonzero(events["s0"] < 0)
    events["s0"][unnamed] = [of_connection.get(link, -1) for link in events["connection"][unnamed].tolist()]
    found: Array = events[(events["s0"] >= 0) & is_among(events["kind"], kinds)]
    return found
