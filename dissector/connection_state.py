"""A connection's state: its known facts, and all that later packets can depend on.

Spark hands connections from one split to the next. `ConnectionFacts` are what the next split has to know; the state as
plain values is what two splits compare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .framing.connections import (
    PROTOCOL_FOREIGN,
    PROTOCOL_TLS,
    PROTOCOL_UNKNOWN,
    STREAM_IN_SYNC,
)
from .strings import StringTable

Array = np.ndarray[Any, Any]

#: Strings of a connection.
NAMES = ("client_id", "software", "software_version", "mechanism")
_REQUEST = (
    "key", "correlation_id", "api_key", "api_version", "request_first", "request_last", "request_packet_first",
    "request_packet_last", "request_bytes", "request_status", "request_problem_at", "acks", "max_wait_ms", "min_bytes",
)  # fmt: skip
_REQUEST_NAMES = ("client_id", "client_software", "client_software_version", "request_problem")
_AHEAD = (
    "ahead_late", "ahead_broker", "ahead_mute", "ahead_hol_wait", "ahead_hol_throttle_wait", "ahead_hol_poll_wait",
    "ahead_polls",
)  # fmt: skip
_AHEAD_NOT_BROKER = ("ahead_late", "ahead_mute", "ahead_hol_throttle_wait", "ahead_hol_poll_wait", "ahead_polls")
_STREAM = ("mode", "frame_size", "kept", "passed", "seen", "used", "is_broken", "doubt")
_SEGMENT = ("offset", "ts", "packet", "seq", "length", "captured", "starts_chunk")


class ConnectionTables(Protocol):
    """The tables of a dissector that hold the state of connections."""

    strings: StringTable

    @property
    def connections(self) -> Array: ...
    @property
    def streams(self) -> Array: ...
    @property
    def exchanges(self) -> Array: ...
    @property
    def links(self) -> Array: ...
    @property
    def segments(self) -> Array: ...
    @property
    def pool(self) -> Array: ...


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """The known facts of a connection. Strings are as on the wire; None if they are unknown.

    `client`: the direction that sends requests, -1 unknown. `protocol`: PROTOCOL_*. `answers_at_once`: KIP-219, 1 yes,
    0 no, -1 unknown. `head`: the packet of the first answered exchange, or that showed that it is TLS or foreign; 0.
    `not_kafka_since`: the packet of its 16th chunk without Kafka; 0. `key`: the connection's key in tables.
    """

    serial: int
    client: int = -1
    protocol: int = PROTOCOL_UNKNOWN
    answers_at_once: int = -1
    client_id: bytes | None = None
    software: bytes | None = None
    software_version: bytes | None = None
    mechanism: bytes | None = None
    head: int = 0
    not_kafka_since: int = 0
    key: int = 0


def facts_of(tables: ConnectionTables, connection: int) -> ConnectionFacts:
    """The known facts of a connection."""
    row = tables.connections[connection]
    texts = {name: _text(tables, row[name]) for name in NAMES}
    return ConnectionFacts(
        int(row.serial), int(row.client), int(row.protocol), int(row.answers_at_once), head=int(row.head),
        not_kafka_since=int(row.not_kafka_since), key=int(row.key), **texts,
    )  # fmt: skip


def set_facts(tables: ConnectionTables, connection: int, facts: ConnectionFacts) -> None:
    """Write the facts of a connection that began earlier to its row. The START chunk sets its serial and its key."""
    row = tables.connections[connection]
    row.client = facts.client
    # Nobody knows where its frames begin, so Kafka has to be found again.
    row.protocol = facts.protocol if facts.protocol in (PROTOCOL_TLS, PROTOCOL_FOREIGN) else PROTOCOL_UNKNOWN
    row.answers_at_once = facts.answers_at_once
    for name in NAMES:
        value = getattr(facts, name)
        row[name] = -1 if value is None else tables.strings.number_of(value)


def waiting_slots(tables: ConnectionTables, connection: int) -> Iterator[int]:
    """The slots of the exchanges that wait for their response, in order."""
    slot = int(tables.connections["waiting_first"][connection])
    while slot >= 0:
        yield slot
        slot = int(tables.links["next"][slot])


def state_of(tables: ConnectionTables, connection: int) -> tuple[Any, ...]:
    """All that later packets can depend on, as plain values: the same for the same packets, whatever came before."""
    row = tables.connections[connection]
    if row.protocol in (PROTOCOL_TLS, PROTOCOL_FOREIGN):
        return int(row.protocol), int(row.client), int(row.key)
    streams = tables.streams[2 * connection : 2 * connection + 2]
    slots = list(waiting_slots(tables, connection))
    return (
        *(int(row[name]) for name in ("key", "protocol", "client", "raw_sasl", "answers_at_once", "previous_response")),
        int(row.mute_end) if row.mute_end > row.previous_response else None,  # else it is over
        _ahead(tables, row, slots),
        int(row.tls_records) if row.protocol == PROTOCOL_UNKNOWN else None,
        tuple(_text(tables, row[name]) for name in NAMES),
        tuple(_stream(tables, stream) for stream in streams),
        tuple(_request(tables, row, streams, slot) for slot in slots),
    )


def _request(tables: ConnectionTables, row: Any, streams: Array, slot: int) -> tuple[Any, ...]:
    """A request that waits."""
    x, link = tables.exchanges[slot], tables.links[slot]
    losses = int(streams["losses"][1 - int(row.client)]) if row.client >= 0 else 0
    return (
        *(int(x[name]) for name in _REQUEST),
        *(_text(tables, x[name]) for name in _REQUEST_NAMES),
        _text(tables, link.name), int(link.no_reply), int(link.token), losses != int(link.losses),
    )  # fmt: skip


def _ahead(tables: ConnectionTables, row: Any, slots: list[int]) -> tuple[int, ...] | None:
    """What the head-of-line wait of a waiting request will be charged by. None if no waiting request came before the
    last response, or if all of the time ahead was the broker's."""
    if not slots or tables.exchanges["request_last"][slots[0]] >= row.previous_response:
        return None
    return tuple(int(row[name]) for name in _AHEAD) if any(row[name] for name in _AHEAD_NOT_BROKER) else None


def _stream(tables: ConnectionTables, stream: Any) -> tuple[Any, ...]:
    """The bytes of the current frame, or those that are searched."""
    segments = []
    number = int(stream.segments_first)
    while number >= 0:
        segment = tables.segments[number]
        segments.append(tuple(int(segment[name]) for name in _SEGMENT))
        number = int(segment.next)
    return (
        *(int(stream[name]) for name in _STREAM),
        (int(stream.first), int(stream.packet_first), int(stream.seq_first)) if stream.passed else None,
        int(stream.retry) if stream.mode != STREAM_IN_SYNC else None,
        tuple(segments),
        _digest(tables.pool[stream.buffer : stream.buffer + stream.used]),
    )


def _digest(data: Array) -> bytes:
    return hashlib.blake2b(data.tobytes(), digest_size=8).digest() if len(data) else b""


def _text(tables: ConnectionTables, number: int) -> bytes | None:
    return tables.strings[number] if number >= 0 else None
