"""Response times of connections that are not decrypted, estimated from sizes, directions and times of records alone.

A turn is what the client sends and what the broker then sends, until the client sends again. A turn of one request and
one response has a known response time: from the last record of the request to the first one of the response. It
contains what the broker took, long polls too, and what the request waited behind a quota.

Turns whose requests overlap have no estimate. Three rules find them:

* A message is one record, or a run of full records and a shorter one. Several records are several messages, unless the
  client writes its messages in parts: Java and librdkafka write the header of a Produce request and each of its batches
  alone. PATTERN_TURNS such bursts in a row, of unequal records, each with a single message as its response, show that.
  A message has as many parts as the smallest of these bursts; a larger one is several messages.
* Requests without a response are counted. While one is left, no turn counts. After IDLE_NS without any record, none is.
* Records of the broker that come more than GROUP_NS after the ones before are another response, except behind a full
  record.

The first turns of TLS 1.3 do not count, as they contain the end of the handshake and session tickets. Nor does the last
one if it may be the alerts that close the connection.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.reports.batch import ESTIMATE

from .record_tables import FLOW_HEADER

Array = np.ndarray[Any, Any]
#: Records of the broker that are further apart belong to different responses, ns.
GROUP_NS = 5_000_000
#: Records of the client that are further apart are not written at once, ns.
WRITE_NS = 1_000_000
#: After so long a silence, no request waits for its response, ns.
IDLE_NS = 3_000_000_000
#: Turns that show how a client writes its messages.
PATTERN_TURNS = 3
#: Turns of TLS 1.3 that may contain parts of the handshake.
FIRST_TURNS = 2
#: The length of a record with header from which on it is full.
FULL_RECORD = 16_384
#: A record of TLS 1.3 up to this length may be an alert (Java adds 16 bytes of padding).
LONGEST_ALERT = 40
#: What is in a turn so far.
TURN_NONE, TURN_REQUEST, TURN_RESPONSE = range(3)


@helper
def _forget_pattern(track):  # type: ignore[no-untyped-def]
    track.pattern_turns = 0
    track.pattern_records = 0
    track.pattern_parts = 0


@helper
def _learn_parts(track, records):  # type: ignore[no-untyped-def]
    """Note a burst of `records`, which are several messages or the parts of one. Return whether it shows the latter."""
    if track.writes > 1 or track.responses > 1 or track.is_even:
        _forget_pattern(track)
        return False
    if track.pattern_turns == 0:
        track.pattern_parts = records
    track.pattern_turns += 1
    track.pattern_records += records
    track.pattern_parts = min(np.int64(track.pattern_parts), records)
    if track.pattern_turns < PATTERN_TURNS:
        return False
    # Each of these records counted as a message.
    turns, parts = np.int64(track.pattern_turns), np.int64(track.pattern_parts)
    before = np.int64(track.waiting) - (np.int64(track.pattern_records) - records - turns + 1)
    track.waiting = max(np.int64(0), before) + (np.int64(track.pattern_records) + parts - 1) // parts - turns
    track.parts = parts
    track.messages -= track.pattern_records  # of these it was not known how many they are, as of the first turns
    _forget_pattern(track)
    return True


@helper
def begin_turns(track, is_middle):  # type: ignore[no-untyped-def]
    """Begin a connection. In mid-connection, requests may wait already."""
    track.is_middle = is_middle
    track.phase = TURN_NONE
    track.turns = 0
    track.waiting = 0
    track.is_suspended = 1 if is_middle else 0
    track.is_13 = 1 if is_middle else 0
    track.last_record = 0
    track.messages = 0
    track.parts = 1
    _forget_pattern(track)
    track.requests = 0


@helper
def suspend_turns(track):  # type: ignore[no-untyped-def]
    """Records are missing: no turn counts until the connection was silent."""
    track.is_suspended = 1


@helper
def _add_estimate(t, slot, track):  # type: ignore[no-untyped-def]
    """Add a row for the current turn."""
    walk = t.walk[0]
    row = t.estimates[walk.estimates]
    walk.estimates += 1
    row.slot = slot
    row.at = track.request_last
    row.ns = track.response_first - track.request_last
    row.request_bytes = track.request_bytes
    row.request_records = track.request_records
    row.response_bytes = track.response_bytes
    row.response_records = track.response_records


@helper
def end_turn(t, slot, track, is_over):  # type: ignore[no-untyped-def]
    """The current turn is over: the client sends again, or (`is_over`) the connection ends."""
    if track.phase != TURN_RESPONSE:
        return
    track.phase = TURN_NONE
    track.turns += 1
    records, parts = np.int64(track.requests), np.int64(track.parts)
    requests = (records + parts - 1) // parts
    is_first = track.is_13 and track.turns <= FIRST_TURNS
    if is_first:
        track.waiting = 0
        return
    track.messages += requests
    if parts > 1:
        if records > 1 and (track.writes > 1 or track.responses > 1):
            requests = max(requests, np.int64(track.writes))
            track.groups = max(track.groups, np.int64(2))  # it may be several: no estimate
    elif records > 1:
        if _learn_parts(track, records):
            return
    elif track.responses > 1:
        _forget_pattern(track)  # responses to records of before, which were messages
    is_alert = is_over and track.is_13 and track.request_bytes <= LONGEST_ALERT
    is_single = requests == 1 and track.waiting == 0 and track.groups == 1
    if is_single and not is_alert and not track.is_suspended:
        _add_estimate(t, slot, track)
    track.waiting = max(np.int64(0), track.waiting + requests - np.int64(track.groups))


@helper
def _add_request(t, slot, track, flow, length, ts):  # type: ignore[no-untyped-def]
    """A record of the client."""
    if track.phase == TURN_RESPONSE:
        end_turn(t, slot, track, False)
    if track.phase == TURN_NONE:
        track.phase = TURN_REQUEST
        track.requests = 0
        track.writes = 1
        track.request_bytes = 0
        track.request_records = 0
        track.first_length = length
        track.is_even = 1
        flow.was_full = 0
    elif ts - track.request_last > WRITE_NS:
        track.writes += 1
    if not flow.was_full:
        track.requests += 1
    if length != track.first_length:
        track.is_even = 0
    track.request_last = ts
    track.request_bytes += length
    track.request_records += 1


@helper
def _add_response(track, flow, length, ts):  # type: ignore[no-untyped-def]
    """A record of the broker."""
    if track.phase == TURN_NONE:
        return  # nothing was requested
    if track.phase == TURN_REQUEST:
        track.phase = TURN_RESPONSE
        track.response_first = ts
        track.response_bytes = 0
        track.response_records = 0
        track.groups = 1
        track.responses = 0
        flow.was_full = 0
    elif not flow.was_full and ts - track.response_last > GROUP_NS:
        track.groups += 1
    if not flow.was_full:
        track.responses += 1
    track.response_last = ts
    track.response_bytes += length
    track.response_records += 1


@helper
def note_record(t, slot, d, flow, length, ts):  # type: ignore[no-untyped-def]
    """A record with application data is complete. `length`: with its header."""
    track = t.tracks[slot]
    link = t.links[track.connection]
    client = np.int64(link.client if link.client >= 0 else link.hello)
    if client < 0:
        return
    if ts - track.last_record > IDLE_NS and track.last_record != 0:
        if track.phase == TURN_RESPONSE:
            end_turn(t, slot, track, False)
        if track.phase != TURN_REQUEST:
            track.waiting = 0
            track.is_suspended = 0
    elif track.last_record == 0:
        # Before all data of TLS 1.2 comes a handshake of both ends; in TLS 1.3 the server's is application data.
        other = t.flows[2 * slot + 1 - d]
        if d != client or (other.ended == 0 and other.mode == FLOW_HEADER):
            track.is_13 = 1
    track.last_record = ts
    if flow.missing > 0:
        suspend_turns(track)
    if d == client:
        _add_request(t, slot, track, flow, length, ts)
    else:
        _add_response(track, flow, length, ts)
    flow.was_full = length >= FULL_RECORD


def overhead_of(version: int, suite: int) -> int:
    """Bytes of a record that are no data, without padding; about as many, for CBC."""
    from kafkatap.reports.tls_names import TLS_1_3  # only captures with TLS need these

    from .suites import CBC, CHACHA20, SUITES

    found = SUITES.get(suite)
    if found is None or found.kind == CBC:
        return 53 if found is not None else 22
    if version == TLS_1_3:
        return 6 + found.tag_length
    return 21 if found.kind == CHACHA20 else 13 + found.tag_length


def estimate_rows(found: Array, keys: Array, ends: Array, overheads: Array) -> Array:
    """ESTIMATE rows of TURN_ROWs. `keys`, `ends`, `overheads`: of their connections; `ends` are numbers of address and
    port of the client, then of the broker, int32 (n, 4)."""
    rows = np.zeros(len(found), ESTIMATE)
    rows["connection"] = keys
    rows["at"], rows["ns"] = found["at"], found["ns"]
    for end in ("request", "response"):
        size = found[f"{end}_bytes"] - overheads * found[f"{end}_records"]
        rows[f"{end}_bytes"] = np.clip(size, 0, 2**31 - 1)
    for column, name in enumerate(("client_ip", "client_port", "broker_ip", "broker_port")):
        rows[name] = ends[:, column]
    return rows
