"""The events of `group_events` with their strings, by group, and the assignments in them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME
from kafkatap.kernels.arrays import dict_rows

from ..batch import Array, Context
from .group_events import ASSIGNED, BEAT, CLASSIC, GROUP, JOIN, SYNC, TOPIC

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
    "kind", "sent", "time", "group", "member", "instance", "reason", "assignment", "client_id", "client_ip", "topic",
    "generation", "sent_epoch", "epoch", "session_timeout_ms", "type", "exchange", "error_code", "outcome",
    "connection", "interval_ms",
)  # fmt: skip


def read_events(events: Array, context: Context) -> dict[str, list[Event]]:
    """The events of each group in order of time, with their strings."""
    found: dict[str, list[Event]] = {}
    given = assigned_partitions(ASSIGNED.among(events), context)
    text, address = cache(context.text), cache(context.address)

    @cache
    def assigned(number: int) -> frozenset[Partition] | None:
        raw = context.strings[number]
        return None if raw is None else read_assignment(raw)

    subscribed: dict[int, set[str]] = {}
    topics = TOPIC.among(events)
    for exchange, name in zip(topics["exchange"].tolist(), topics["subscribed"].tolist(), strict=True):
        subscribed.setdefault(exchange, set()).add(text(name) or "")
    others = events[(events["kind"] != ASSIGNED) & (events["kind"] != TOPIC)]
    for row in dict_rows(GROUP.of(others), _COLUMNS):
        kind, exchange, assignment = row["kind"], row["exchange"], None
        is_beat = kind == BEAT
        if kind == SYNC and row["assignment"] >= 0:
            assignment = assigned(row["assignment"])
        elif is_beat and exchange in given:
            assignment = frozenset(given[exchange])
        event = Event(
            kind, row["sent"] if row["sent"] != NO_TIME else row["time"], row["time"], text(row["group"]) or "",
            text(row["member"]) or "", text(row["instance"]), text(row["client_id"]), address(row["client_ip"]),
            row["epoch" if is_beat else "generation"], row["sent_epoch"],
            row["session_timeout_ms"] if kind == JOIN else 0,
            (text(row["reason"]) or None) if kind not in (SYNC, BEAT) else None,
            text(row["topic"]) if kind == JOIN else None, row["error_code"], row["outcome"] == ANSWERED,
            row["type"] if is_beat else CLASSIC, assignment, row["connection"],
            max(row["interval_ms"], 0) if is_beat else 0, frozenset(subscribed.get(exchange, ())),
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
