"""A connection's state: its known facts, and all that later packets can depend on.

Spark hands connections from one split to the next. `ConnectionFacts` are what the next split has to know. The state, as
bytes, is what two splits compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.writers import put_bytes, put_int

from .framing.connections import PROTOCOL_FOREIGN, PROTOCOL_TLS, PROTOCOL_UNKNOWN, STREAM_AT_START, STREAM_IN_SYNC
from .framing.silences import silence_of
from .framing.tables import Tables
from .strings import StringTable

Array = np.ndarray[Any, Any]

#: What a PROXY header says of a connection's client.
SOURCE = ("source_high", "source_low", "source_port")
#: The numbers of `ConnectionFacts` that histories have, as fields of CONNECTION.
NUMBERS = ("serial", "key", "client", "protocol", "answers_at_once", "rebalance_ms", *SOURCE)
#: Strings of a connection.
NAMES = ("client_id", "software", "software_version", "mechanism", "advertised")


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


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """The known facts of a connection. Strings are as on the wire; None if they are unknown.

    `client`: the direction that sends requests, -1 unknown. `protocol`: PROTOCOL_*. `answers_at_once`: AT_ONCE_... or
    ANSWERS_LATE. `head`: as in CONNECTION.
    `not_kafka_since`: the packet of its 16th chunk without Kafka; 0. `key`: the connection's key in tables. `source_*`:
    the client's address and port by a PROXY header, as in CONNECTION. `rebalance_ms`: as there.
    """

    serial: int
    client: int = -1
    protocol: int = PROTOCOL_UNKNOWN
    answers_at_once: int = -1
    client_id: bytes | None = None
    software: bytes | None = None
    software_version: bytes | None = None
    mechanism: bytes | None = None
    advertised: bytes | None = None
    head: int = 0
    not_kafka_since: int = 0
    key: int = 0
    source_high: int = 0
    source_low: int = 0
    source_port: int = -1
    rebalance_ms: int = -1


def set_facts(tables: ConnectionTables, connection: int, facts: ConnectionFacts) -> None:
    """Write the facts of a connection that began earlier to its row. The START chunk sets its serial and its key."""
    row = tables.connections[connection]
    row.client = facts.client
    # Nobody knows where its frames begin, so Kafka has to be found again.
    row.protocol = facts.protocol if facts.protocol in (PROTOCOL_TLS, PROTOCOL_FOREIGN) else PROTOCOL_UNKNOWN
    row.answers_at_once = facts.answers_at_once
    for name in ("rebalance_ms", *SOURCE):
        row[name] = getattr(facts, name)
    for name in NAMES:
        value = getattr(facts, name)
        row[name] = -1 if value is None else tables.strings.number_of(value)


def waiting_slots(tables: ConnectionTables, connection: int) -> Iterator[int]:
    """The slots of the exchanges that wait for their response, in order."""
    slot = int(tables.connections["waiting_first"][connection])
    while slot >= 0:
        yield slot
        slot = int(tables.links["next"][slot])


@helper
def _put_text(t, out, at, number):  # type: ignore[no-untyped-def]
    """Write an interned string; -1 if there is none."""
    if number < 0:
        return put_int(out, at, np.int64(-1))
    entry = t.strings.entries[number]
    return put_bytes(out, at, t.strings.text, np.int64(entry.at), np.int64(entry.length))


@helper
def _earliest_waiting(t, connection):  # type: ignore[no-untyped-def]
    """When the first waiting request had come; the time of the last response if none waits. After losses, that need
    not be the first one of the stream."""
    earliest = np.int64(connection.previous_response)
    slot = np.int64(connection.waiting_first)
    while slot >= 0:
        earliest = min(earliest, np.int64(t.exchanges[slot].request_last))
        slot = np.int64(t.links[slot].next)
    return earliest


@helper
def _put_ahead(t, out, at, connection):  # type: ignore[no-untyped-def]
    """Write what the head-of-line wait of a waiting request will be charged by.

    Nothing, if no waiting request came before the last response, or if all of the time ahead was the broker's.
    """
    earliest = _earliest_waiting(t, connection)
    if earliest >= connection.previous_response:
        return put_int(out, at, np.int64(0))
    other = connection.ahead_late != 0 or connection.ahead_mute != 0 or connection.ahead_hol_throttle_wait != 0
    other = other or connection.ahead_unread != 0 or connection.ahead_in_doubt != 0
    other = other or connection.ahead_hol_unknown_wait != 0 or connection.ahead_hol_loss_wait != 0
    other = other or connection.ahead_missing != 0 or earliest < connection.ahead_arrived
    other = other or connection.ahead_passed != 0
    if not other and connection.ahead_hol_poll_wait == 0 and connection.ahead_polls == 0:
        return put_int(out, at, np.int64(0))
    at = put_int(out, at, np.int64(1))
    at = put_int(out, at, connection.ahead_late)
    at = put_int(out, at, connection.ahead_broker)
    at = put_int(out, at, connection.ahead_mute)
    at = put_int(out, at, connection.ahead_hol_wait)
    at = put_int(out, at, connection.ahead_hol_throttle_wait)
    at = put_int(out, at, connection.ahead_hol_poll_wait)
    at = put_int(out, at, connection.ahead_hol_unknown_wait)
    at = put_int(out, at, connection.ahead_hol_loss_wait)
    at = put_int(out, at, connection.ahead_missing)
    at = put_int(out, at, connection.ahead_arrived)
    at = put_int(out, at, np.int64(connection.ahead_unread))
    at = put_int(out, at, np.int64(connection.ahead_passed))
    at = put_int(out, at, np.int64(connection.ahead_in_doubt))
    return put_int(out, at, np.int64(connection.ahead_polls))


@helper
def _put_stream(t, out, at, stream):  # type: ignore[no-untyped-def]
    """Write a stream with the bytes of its current frame, or those that are searched."""
    at = put_int(out, at, np.int64(stream.mode))
    at = put_int(out, at, np.int64(1 if stream.mode == STREAM_AT_START and stream.proxy_bytes > 0 else 0))
    at = put_int(out, at, stream.frame_size)
    at = put_int(out, at, stream.kept)
    at = put_int(out, at, stream.passed)
    at = put_int(out, at, stream.seen)
    at = put_int(out, at, np.int64(stream.is_broken))
    at = put_int(out, at, np.int64(stream.doubt))
    at = put_int(out, at, stream.first if stream.passed else np.int64(0))
    at = put_int(out, at, stream.packet_first if stream.passed else np.int64(0))
    at = put_int(out, at, np.int64(stream.seq_first) if stream.passed else np.int64(0))
    at = put_int(out, at, stream.last if stream.passed else np.int64(0))
    at = put_int(out, at, stream.packet_last if stream.passed else np.int64(0))
    for_frame = np.int64(1 if stream.passed else 0)
    silence = silence_of(t, stream)
    at = put_int(out, at, for_frame * silence.quiet_ns)
    at = put_int(out, at, for_frame * silence.quiet_loss_ns)
    at = put_int(out, at, for_frame * silence.quiet_receiver_ns)
    at = put_int(out, at, for_frame * silence.quiet_sender_ns)
    at = put_int(out, at, for_frame * silence.quiet_nagle_ns)
    at = put_int(out, at, for_frame * silence.quiet_unknown_ns)
    at = put_int(out, at, for_frame * silence.quiet_late_ns)
    at = put_int(out, at, silence.loss_ns)
    at = put_int(out, at, silence.receiver_ns)
    at = put_int(out, at, silence.sender_ns)
    at = put_int(out, at, silence.nagle_ns)
    at = put_int(out, at, silence.unknown_ns)
    at = put_int(out, at, silence.late_ns)
    at = put_int(out, at, stream.retry if stream.mode != STREAM_IN_SYNC else np.int64(-1))
    number = np.int64(stream.segments_first)
    while number >= 0:
        segment = t.segments[number]
        at = put_int(out, at, np.int64(segment.offset))
        at = put_int(out, at, np.int64(segment.ts))
        at = put_int(out, at, np.int64(segment.packet))
        at = put_int(out, at, np.int64(segment.seq))
        at = put_int(out, at, np.int64(segment.length))
        at = put_int(out, at, np.int64(segment.captured))
        at = put_int(out, at, np.int64(segment.starts_chunk))
        number = np.int64(segment.next)
    at = put_int(out, at, np.int64(-1))
    return put_bytes(out, at, t.pool, stream.buffer, stream.used)


@helper
def _put_request(t, out, at, slot, losses):  # type: ignore[no-untyped-def]
    """Write a request that waits. `losses`: of the stream of responses."""
    x = t.exchanges[slot]
    link = t.links[slot]
    at = put_int(out, at, x.key)
    at = put_int(out, at, np.int64(x.correlation_id))
    at = put_int(out, at, np.int64(x.api_key))
    at = put_int(out, at, np.int64(x.api_version))
    at = put_int(out, at, x.request_first)
    at = put_int(out, at, x.request_last)
    at = put_int(out, at, x.request_packet_first)
    at = put_int(out, at, x.request_packet_last)
    at = put_int(out, at, np.int64(x.request_bytes))
    at = put_int(out, at, np.int64(x.request_status))
    at = put_int(out, at, np.int64(x.request_problem_at))
    at = put_int(out, at, np.int64(x.acks))
    at = put_int(out, at, np.int64(x.max_wait_ms))
    at = put_int(out, at, np.int64(x.min_bytes))
    at = _put_text(t, out, at, np.int64(x.client_id))
    at = _put_text(t, out, at, np.int64(x.client_software))
    at = _put_text(t, out, at, np.int64(x.client_software_version))
    at = _put_text(t, out, at, np.int64(x.request_problem))
    at = _put_text(t, out, at, np.int64(link.name))
    at = put_int(out, at, x.loss_ns)
    at = put_int(out, at, x.receiver_ns)
    at = put_int(out, at, x.sender_ns)
    at = put_int(out, at, x.nagle_ns)
    at = put_int(out, at, x.unexplained_ns)
    at = put_int(out, at, link.reached)
    at = put_int(out, at, link.request_whole)
    at = put_int(out, at, link.request_receiver_ns)
    at = put_int(out, at, np.int64(link.request_end))
    at = put_int(out, at, link.round_trip_ns)
    at = put_int(out, at, np.int64(link.wait_ms))
    at = put_int(out, at, np.int64(link.no_reply))
    at = put_int(out, at, np.int64(link.token))
    at = put_int(out, at, np.int64(link.passed))
    return put_int(out, at, np.int64(1 if losses != link.losses else 0))


@helper
def _is_mute(t, c):  # type: ignore[no-untyped-def]
    """Whether a mute window of a connection is not over for the requests that have begun."""
    row = t.connections[c]
    first = np.int64(row.waiting_first)
    if row.mute_end > row.previous_response or (first >= 0 and t.exchanges[first].request_first < row.mute_end):
        return True
    if row.client < 0:
        return False
    stream = t.streams[2 * c + np.int64(row.client)]
    return stream.passed > 0 and stream.first < row.mute_end


@helper
def _oldest(t, c):  # type: ignore[no-untyped-def]
    """When the first request began that waits or is under way; the time of the last response if there is none."""
    row = t.connections[c]
    found = row.previous_response
    slot = np.int64(row.waiting_first)
    while slot >= 0:
        found = min(found, t.exchanges[slot].request_first)
        slot = np.int64(t.links[slot].next)
    for d in range(2):
        stream = t.streams[2 * c + d]
        if stream.passed > 0:
            found = min(found, stream.first)
    return found


@helper
def _put_connection(t, out, at, c):  # type: ignore[no-untyped-def]
    """Write all that later packets of a connection can depend on: the same for the same packets, whatever came
    before."""
    row = t.connections[c]
    at = put_int(out, at, np.int64(row.protocol))
    at = put_int(out, at, np.int64(row.client))
    at = put_int(out, at, row.key)
    at = put_int(out, at, row.source_high)
    at = put_int(out, at, row.source_low)
    at = put_int(out, at, np.int64(row.source_port))
    if row.protocol == PROTOCOL_TLS or row.protocol == PROTOCOL_FOREIGN:
        return at
    at = put_int(out, at, np.int64(row.is_second_look))
    at = put_int(out, at, np.int64(row.raw_sasl))
    at = put_int(out, at, max(np.int64(row.rebalance_ms), np.int64(0)))
    at = put_int(out, at, np.int64(row.answers_at_once))
    at = put_int(out, at, row.previous_response)
    is_mute = _is_mute(t, c)
    at = put_int(out, at, row.mute_end if is_mute else np.int64(-1))
    # It does not matter for requests that begin later.
    is_older = is_mute and _oldest(t, c) < row.mute_begin
    at = put_int(out, at, row.mute_begin if is_older else np.int64(-1))
    at = put_int(out, at, row.mute_sum if is_older else np.int64(-1))
    at = _put_ahead(t, out, at, row)
    at = _put_text(t, out, at, np.int64(row.client_id))
    at = _put_text(t, out, at, np.int64(row.software))
    at = _put_text(t, out, at, np.int64(row.software_version))
    at = _put_text(t, out, at, np.int64(row.mechanism))
    at = _put_text(t, out, at, np.int64(row.advertised))
    for d in range(2):
        at = _put_stream(t, out, at, t.streams[2 * c + d])
    losses = np.int64(0)
    if row.client >= 0:
        losses = np.int64(t.streams[2 * c + 1 - np.int64(row.client)].losses)
    slot = np.int64(row.waiting_first)
    while slot >= 0:
        at = _put_request(t, out, at, slot, losses if row.client >= 0 else np.int64(t.links[slot].losses))
        slot = np.int64(t.links[slot].next)
    return at


@kernel(Tables, np.int64, int, np.uint8, np.int64)
def write_states(t, numbers, first, out, ends):  # type: ignore[no-untyped-def]
    """Write the states of connections numbers[first:] one after the other; ends[i] is where that of numbers[i] ends.

    Return how many of `numbers` are written. If that is fewer than all, `out` is full; ends[i] of the first one that is
    not written is the length that its state alone needs.
    """
    at = np.int64(0)
    for i in range(first, numbers.shape[0]):
        end = _put_connection(t, out, at, numbers[i])
        ends[i] = end
        if end > out.shape[0]:
            ends[i] = end - at
            return i
        at = end
    return numbers.shape[0]
