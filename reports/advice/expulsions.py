"""Members that a group expels again and again: they poll too seldom, or their heartbeats stop."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED
from kafkatap.kernels.arrays import distinct_values, is_among

from .. import units
from ..batch import Array, rows_of
from ..findings import WARNING, Finding, Party
from ..questions.event_rows import events_of
from ..questions.gathered import FactRows, Gathered
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .parties import client_option, client_parties
from .signature import Signature, events_of_kind

#: Kinds of events. s0 group (-1: of the client's last one), s1 member, s3 reason; v0 session timeout, v1 rebalance
#: timeout, both in ms; v2 the request's first byte.
_JOINED, _LEFT, _EXPELLED = KINDS = 20, 21, 22
#: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
_ERRORS = (25, 110)
#: OffsetCommit, JoinGroup, Heartbeat, SyncGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat.
_APIS = (8, 11, 12, 14, 68, 76)
#: How Java's consumers say in LeaveGroup that max.poll.interval.ms is over.
_POLL_REASON = "poll timeout"
#: Of one group. One or two may be a pause or a deployment.
_LEAST = 3
#: A member without a reason (librdkafka, KIP-848) left as max.poll.interval.ms was over if it was in the group for as
#: long as this part of it, and came back on the same connection.
_PART = 0.9
POLL, SESSION = "poll", "session"


def _read(gathered: Gathered, tally: Tally) -> None:
    _note_joins(gathered, tally)
    _note_leaves(gathered, tally)
    _note_errors(gathered, tally)


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


def _note_joins(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("join group")
    rows = rows.where(_is_good(gathered, rows, "joined group"))
    _noted(gathered, tally, rows, _JOINED, s0=rows["group"], s1=rows["member"], v0=rows["session_timeout_ms"],
           v1=rows["rebalance_timeout_ms"])  # fmt: skip
    rows = gathered.facts("consumer heartbeat")
    rows = rows.where((rows["member_epoch"] == 0) & _is_good(gathered, rows, "consumer heartbeat answer"))
    _noted(gathered, tally, rows, _JOINED, s0=rows["group"], s1=rows["member"], v1=rows["rebalance_timeout_ms"])


def _note_leaves(gathered: Gathered, tally: Tally) -> None:
    tops, members = gathered.facts("leave group"), gathered.facts("leaving member")
    group = gathered.top("leave group", "group")
    alone = tops.where(~is_among(tops.exchange, members.exchange))
    _noted(gathered, tally, alone, _LEFT, s0=alone["group"], s1=alone["member"])
    _noted(gathered, tally, members, _LEFT, s0=group[members.exchange], s1=members["member"], s3=members["reason"])
    rows = gathered.facts("consumer heartbeat")
    rows = rows.where(rows["member_epoch"] == -1)
    _noted(gathered, tally, rows, _LEFT, s0=rows["group"], s1=rows["member"])


def _note_errors(gathered: Gathered, tally: Tally) -> None:
    codes = gathered.results[is_among(gathered.results["error_code"], _ERRORS)]
    if not len(codes):
        return
    at = distinct_values(rows_of(gathered.column("exchange"), codes["exchange"]))
    at = at[(at >= 0) & is_among(gathered.column("api_key")[at], _APIS)]
    group = np.full(len(gathered.exchanges), -1, np.int64)
    for kind in ("join group", "heartbeat", "sync group", "consumer heartbeat"):
        rows = gathered.facts(kind)
        group[rows.exchange] = rows["group"]
    events = events_of(gathered, at, _EXPELLED)
    events["s0"], events["v2"] = group[at], gathered.exchanges["request_first"][at]
    tally.note(events)


class _Expulsion(NamedTuple):
    """`how`: POLL or SESSION. `end`: when the client was in the group again; 0: not captured. Timeouts in ms, or 0."""

    client: tuple[int, int]
    how: str
    begin: int
    end: int
    timeout_ms: int
    packet: int


class _Membership:
    """A client in a group. `since`: when it joined, 0: unknown."""

    def __init__(self, client: tuple[int, int]) -> None:
        self.client = client
        self.since = self.session_ms = self.poll_ms = 0
        self.found: list[_Expulsion] = []
        self._left: dict[str, int] | None = None  # the event by which it is out

    def joined(self, event: dict[str, int]) -> None:
        left, poll_ns = self._left, event["v1"] * 1_000_000
        self.session_ms, self.poll_ms = max(event["v0"], 0), max(event["v1"], 0)
        if left is not None and left["kind"] == _LEFT:
            is_back = left["connection"] == event["connection"]
            if left["is_poll"] or (
                left["s3"] < 0 and is_back and self.since and left["v2"] - self.since >= _PART * poll_ns
            ):
                self._add(left, POLL, self.poll_ms, event["time"])
        elif left is not None:
            self._add(left, SESSION, left["v0"], event["time"])
        self._left, self.since = None, event["time"]

    def out(self, event: dict[str, int]) -> None:
        if self._left is None:
            self._left = event | {"v0": self.session_ms}

    def finish(self) -> None:
        """The capture ended while it was out. Without a reason, it is not known why it left."""
        left = self._left
        if left is not None and (left["kind"] == _EXPELLED or left["is_poll"]):
            is_poll = left["kind"] == _LEFT
            self._add(left, POLL if is_poll else SESSION, self.poll_ms if is_poll else self.session_ms, 0)

    def _add(self, left: dict[str, int], how: str, timeout_ms: int, end: int) -> None:
        self.found.append(_Expulsion(self.client, how, left["v2"], end, timeout_ms, left["packet"]))


_COLUMNS = ("kind", "time", "connection", "packet", "client_id", "client_ip", "s0", "s3", "v0", "v1", "v2")


def _expulsions(given: SectionInput) -> dict[int, list[_Expulsion]]:
    """The expulsions of each group, by its number."""
    events = events_of_kind(given, EXPULSIONS, *KINDS)
    members: dict[tuple[int, tuple[int, int]], _Membership] = {}
    last: dict[tuple[int, int], int] = {}
    for row in zip(*(events[name].tolist() for name in _COLUMNS), strict=True):
        event = dict(zip(_COLUMNS, row, strict=True))
        client = event["client_id"], event["client_ip"]
        group = event["s0"] if event["s0"] >= 0 else last.get(client, -1)
        if group < 0:
            continue
        last[client] = group
        one = members.setdefault((group, client), _Membership(client))
        event["is_poll"] = int(_POLL_REASON in (given.context.text(event["s3"]) or ""))
        if event["kind"] == _JOINED:
            one.joined(event)
        else:
            one.out(event)
    found: dict[int, list[_Expulsion]] = defaultdict(list)
    for (group, _), one in members.items():
        one.finish()
        found[group] += one.found
    return found


def _findings(given: SectionInput) -> list[Finding]:
    made = []
    for group, found in _expulsions(given).items():
        for how in (POLL, SESSION):
            mine = sorted((one for one in found if one.how == how), key=lambda one: one.begin)
            if len(mine) >= _LEAST:
                made.append(_finding(given, group, how, mine))
    return made


def _finding(given: SectionInput, group: int, how: str, found: list[_Expulsion]) -> Finding:
    context, name = given.context, given.context.text(group) or "?"
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for one in found:
        counts[one.client] += 1
    clients = sorted(counts, key=lambda client: (-counts[client], context.text(client[0]) or ""))
    out = [one.end - one.begin for one in found if one.end]
    timeout = max(one.timeout_ms for one in found)
    limit = "max.poll.interval.ms" if how == POLL else "session.timeout.ms"
    why = "did not poll in time" if how == POLL else "sent no heartbeat in time"
    who = f'client "{context.text(clients[0][0])}"' + (f" and {len(clients) - 1} more" if len(clients) > 1 else "")
    text = (
        f'group "{name}" lost members {len(found)} times, as they {why}'
        + (f" ({limit}={timeout:,})" if timeout else "")
        + f": {who}; out for {units.duration(sum(out))} in total"
    )
    remedy = (
        "Raise `max.poll.interval.ms` above the longest time that the client works on one poll, or lower "
        "`max.poll.records`." if how == POLL else
        "Raise `session.timeout.ms` (at least 3 times `heartbeat.interval.ms`) above the client's pauses, or find what "
        "stops the process (GC, CPU limits)."
    )  # fmt: skip
    return Finding(
        EXPULSIONS.id, WARNING, EXPULSIONS.label, text,
        sum(out), found[0].begin, max(one.end or one.begin for one in found),
        {"expulsions": len(found), "clients": len(clients), "out_ns": sum(out), "timeout_ms": timeout or None,
         "how": how},
        tuple(one.packet for one in found[:10]), (Party("group", name), *client_parties(context, *clients[0])),
        "max.poll.interval.ms, max.poll.records" if how == POLL else "session.timeout.ms, heartbeat.interval.ms",
        remedy, (("sections", "groups"), *client_option(context, clients[0][0])),
    )  # fmt: skip


EXPULSIONS = Signature(
    "expelled_members",
    "a group expels members again and again",
    "Members leave with the reason that the poll timeout has expired, or without a reason after max.poll.interval.ms, "
    "and join again on the same connection. Or a Heartbeat or commit is answered UNKNOWN_MEMBER_ID (or "
    "FENCED_MEMBER_EPOCH), and the client joins as a new member.",
    "max.poll.interval.ms and max.poll.records, or session.timeout.ms and heartbeat.interval.ms",
    "Raise the timeout above the client's longest pause, or make its pauses shorter: fewer records in a poll.",
    f"{_LEAST} expulsions of one kind in one group: one or two may be a pause or a deployment. The time lost is from "
    "the expulsion, as far as the wire shows it, until the client has joined again.",
    _findings,
    read=_read,
    facts=("join group", "joined group", "heartbeat", "sync group", "leave group", "leaving member",
           "consumer heartbeat", "consumer heartbeat answer"),
    events=KINDS,
    label="expelled",
)  # fmt: skip
