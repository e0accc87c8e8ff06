"""Members that a group expels again and again: they poll too seldom, or their heartbeats stop."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from kafkatap.kernels.arrays import dict_rows

from .. import units
from ..finding_words import and_more
from ..findings import Finding, Party
from ..section_parts.section import SectionInput
from .member_events import EXPELLED, FACTS, JOINED, KINDS, LAST, LEFT, member_events, read
from .parties import client_option, client_parties, client_words
from .signature import Signature

#: How Java's consumers say in LeaveGroup that max.poll.interval.ms is over.
_POLL_REASON = "poll timeout"
#: Of one group. One or two may be a pause or a deployment.
_LEAST = 3
#: A member without a reason (librdkafka, KIP-848) left as max.poll.interval.ms was over if it was in the group for as
#: long as this part of it, and came back on the same connection.
_PART = 0.9
POLL, SESSION = "poll", "session"


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
        left, poll_ns = self._left, event["rebalance_timeout_ms"] * 1_000_000
        self.session_ms, self.poll_ms = max(event["session_timeout_ms"], 0), max(event["rebalance_timeout_ms"], 0)
        if left is not None and left["kind"] == LEFT:
            is_back = left["connection"] == event["connection"]
            if left["is_poll"] or (
                left["reason"] < 0 and is_back and self.since and left["sent"] - self.since >= _PART * poll_ns
            ):
                self._add(left, POLL, self.poll_ms, event["time"])
        elif left is not None:
            self._add(left, SESSION, left["session_timeout_ms"], event["time"])
        self._left, self.since = None, event["time"]

    def out(self, event: dict[str, int]) -> None:
        if self._left is None:
            self._left = event | {"session_timeout_ms": self.session_ms}

    def finish(self) -> None:
        """The capture ended while it was out. Without a reason, it is not known why it left."""
        left = self._left
        if left is not None and (left["kind"] == EXPELLED or left["is_poll"]):
            is_poll = left["kind"] == LEFT
            self._add(left, POLL if is_poll else SESSION, self.poll_ms if is_poll else self.session_ms, 0)

    def _add(self, left: dict[str, int], how: str, timeout_ms: int, end: int) -> None:
        self.found.append(_Expulsion(self.client, how, left["sent"], end, timeout_ms, left["packet"]))


_COLUMNS = ("kind", "time", "connection", "packet", "client_id", "client_ip", "group", "reason", "session_timeout_ms",
            "rebalance_timeout_ms", "sent")  # fmt: skip


def _expulsions(given: SectionInput) -> dict[int, list[_Expulsion]]:
    """The expulsions of each group, by its number."""
    events = member_events(given, JOINED, LEFT, EXPELLED)
    members: dict[tuple[int, tuple[int, int]], _Membership] = {}
    for event in dict_rows(events, _COLUMNS):
        client = event["client_id"], event["client_ip"]
        one = members.setdefault((event["group"], client), _Membership(client))
        event["is_poll"] = int(_POLL_REASON in (given.context.text(event["reason"]) or ""))
        if event["kind"] == JOINED:
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
    who = client_words(context, clients[0][0]) + and_more(len(clients) - 1)
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
    setting = "max.poll.interval.ms, max.poll.records" if how == POLL else "session.timeout.ms, heartbeat.interval.ms"
    return EXPULSIONS.rule._replace(setting=setting, remedy=remedy).found(
        text, Party("group", name), *client_parties(context, *clients[0]), begin=found[0].begin,
        end=max(one.end or one.begin for one in found), packets=(one.packet for one in found[:10]), lost=sum(out),
        see=[("sections", "groups"), *client_option(context, clients[0][0])], expulsions=len(found),
        clients=len(clients), out_ns=sum(out), timeout_ms=timeout or None, how=how,
    )  # fmt: skip


EXPULSIONS = Signature(
    "expelled_members",
    "a group expels members again and again",
    "Members leave after the poll timeout, and join again on the same connection. Or a Heartbeat or commit is "
    "answered UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH, and the client joins again.",
    "max.poll.interval.ms and max.poll.records, or session.timeout.ms and heartbeat.interval.ms",
    "Raise the timeout above the client's longest pause, or make its pauses shorter: fewer records in a poll.",
    f"{_LEAST} expulsions of one kind in one group. Time lost: until the client has joined again.",
    _findings,
    read=read,
    facts=FACTS,
    events=KINDS,
    counts=(LAST,),
    label="expelled",
)  # fmt: skip
