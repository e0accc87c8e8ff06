"""The events of `group_events` with their strings, by group, and the assignments in them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME

from ..batch import Array, Context
from .group_events import ASSIGNED, BEAT, CLASSIC, JOIN, SYNC, TOPIC

Partition = tuple[str, int]
#: The most partitions of an assignment that are read: a bound for damaged bytes.
_MOST_PARTITIONS = 1_000_000


class Event(NamedTuple):
    """An event with its strings. `sent`, `done`: ns, of the request's first byte and of the response's last byte."""

    kind: int
    sent: int
    done: int
    group: str
    member: str
    instance: str | None
    client: str | None
    address: str | None
    number: int  # generation, or epoch of the response
    sent_number: int  # epoch of the request
    timeout_ms: int
    text: str | None  # reason
    protocol: str | None
    error: int
    is_answered: bool
    type: int
    assignment: frozenset[Partition] | None
    connection: int = 0
    interval_ms: int = 0  # of the heartbeats that the coordinator wants
    topics: frozenset[str] = frozenset()  # what a heartbeat subscribes to


_COLUMNS = (
    "kind", "v7", "time", "s0", "s1", "s2", "s3", "client_id", "client_ip", "topic", "v0", "v1", "v3", "exchange",
    "error_code", "outcome", "connection", "v4",
)  # fmt: skip


def read_events(events: Array, context: Context) -> dict[str, list[Event]]:
    """The events of each group in order of time, with their strings."""
    found: dict[str, list[Event]] = {}
    given = assigned_partitions(events[events["kind"] == ASSIGNED], context)
    text, address = cache(context.text), cache(context.address)
    subscribed: dict[int, set[str]] = {}
    topics = events[events["kind"] == TOPIC]
    for exchange, name in zip(topics["exchange"].tolist(), topics["s3"].tolist(), strict=True):
        subscribed.setdefault(exchange, set()).add(text(name) or "")
    others = events[(events["kind"] != ASSIGNED) & (events["kind"] != TOPIC)]
    for row in zip(*(others[name].tolist() for name in _COLUMNS), strict=True):
        kind, sent, done, s0, s1, s2, s3, client, ip, topic, v0, v1, v3, exchange, code, outcome, link, v4 = row
        assignment = None
        if kind == SYNC and s3 >= 0:
            raw = context.strings[s3]
            assignment = None if raw is None else read_assignment(raw)
        elif kind == BEAT and exchange in given:
            assignment = frozenset(given[exchange])
        event = Event(
            kind, sent if sent != NO_TIME else done, done, text(s0) or "", text(s1) or "", text(s2), text(client),
            address(ip), v1 if kind == BEAT else v0, v0, v1 if kind == JOIN else 0,
            (text(s3) or None) if kind not in (SYNC, BEAT) else None, text(topic) if kind == JOIN else None, code,
            outcome == ANSWERED, v3 if kind == BEAT else CLASSIC, assignment, link,
            max(v4, 0) if kind == BEAT else 0, frozenset(subscribed.get(exchange, ())),
        )  # fmt: skip
        found.setdefault(event.group, []).append(event)
    return found


def assigned_partitions(events: Array, context: Context) -> dict[int, set[Partition]]:
    """The partitions that heartbeat responses assign, by the exchange's key."""
    topic_of = cache(context.topic)
    given: dict[int, set[Partition]] = {}
    columns = (events[name].tolist() for name in ("exchange", "topic", "topic_id", "partition"))
    for exchange, topic, topic_id, partition in zip(*columns, strict=True):
        given.setdefault(exchange, set()).add((topic_of(topic, topic_id) or "", partition))
    return given


def read_assignment(raw: bytes) -> frozenset[Partition] | None:
    """The partitions of a ConsumerProtocolAssignment: version, [topic, [partition]]. None if it is none."""
    at, found = 2, set()

    def number(size: int) -> int:
        nonlocal at
        at += size
        if at > len(raw):
            raise ValueError
        return int.from_bytes(raw[at - size : at], "big", signed=True)

    try:
        for _ in range(number(4)):
            length = number(2)
            topic = raw[at : at + length].decode()
            at += max(length, 0)
            for _ in range(number(4)):
                found.add((topic, number(4)))
                if len(found) > _MOST_PARTITIONS:
                    return None
    except (ValueError, UnicodeDecodeError):
        return None if raw else frozenset()
    return frozenset(found)
