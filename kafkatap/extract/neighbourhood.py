"""Which exchanges belong to the selected ones, and the byte ranges and times of packets to copy.

The rows of the selected exchanges have to be the same when the copied packets are read alone. They depend on others of
their connection:

* The first packet of a connection is part of its key. The handshake, ApiVersions and SASL say who speaks (the opening).
* The head-of-line wait depends on the exchange that was answered before, and on that one's wait, as long as there is
  one.
* The throttle wait depends on the throttled response whose mute window a request falls into.
* A message that begins within a segment needs the one before it: after a gap, messages are found where segments begin.

And Wireshark has to find no gap within an exchange. So all messages of the connection that were under way during a
selected exchange are copied too, each with its request or response, and so are the messages before it in both
directions: Wireshark reports a gap at the first packet after it.

A connection that was decrypted is copied from its beginning to the last byte that is needed: the handshake has its
keys, and records are numbered.

What this leaves out may still matter, such as a release of Kafka that shows itself by earlier responses. `row_check`
finds this, and such a connection is copied whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME

from .exchange_index import ExchangeIndex

Array = np.ndarray[Any, Any]
#: APIs of a connection's opening: SaslHandshake, ApiVersions, SaslAuthenticate.
OPENING_APIS = (17, 18, 36)
#: How long after an exchange the acknowledgements of its bytes may come, ns.
ACK_NS = 250_000_000
#: How many messages that end in the segment in which the next one begins are followed.
MOST_FORWARD = 16
#: A stream's copied bytes have no gap longer than about this, so that sequence numbers stay comparable while the bytes
#: behind one gap wait, and the next gap follows.
LONGEST_GAP = 1 << 28
#: Segments that are copied after one in a longer gap.
BRIDGE_SEGMENTS = 8
#: Places of intervals: connection or stream * SPAN + offset (bytes) or time (ticks).
SPAN, BIAS = 1 << 42, 1 << 40


@dataclass
class Plan:
    """What the second pass copies.

    `how`: by connection, COPY_NONE, COPY_PARTS or COPY_WHOLE (uint8). `bytes_from`, `bytes_to`: ascending intervals of
    places `stream * SPAN + offset + BIAS` (int64). `times_from`, `times_to`: the same of `connection * SPAN + ticks`,
    inclusive, where ticks of `tick` ns count from `time_zero` (ns). `chosen`: bool, one for each of
    `ExchangeIndex.places`.
    """

    how: Array
    bytes_from: Array
    bytes_to: Array
    times_from: Array
    times_to: Array
    time_zero: int
    tick: int
    chosen: Array

    def time_places(self, connections: Array, times: Array) -> Array:
        """Places of times (ns) of connections."""
        return _time_places(connections, times, self.time_zero, self.tick)


COPY_NONE, COPY_PARTS, COPY_WHOLE = range(3)


def make_plan(index: ExchangeIndex, whole: Array, also: Array) -> Plan:
    """Plan the copy. `whole`: numbers of connections that are copied whole. `also`: numbers of further exchanges that
    are needed, such as those that name topics."""
    places = index.places
    how = np.zeros(len(index.connections), np.uint8)
    wanted = index.is_selected | np.isin(places["number"], also)
    how[np.unique(places["connection"][wanted])] = COPY_PARTS
    how[whole] = COPY_WHOLE
    chosen = np.zeros(len(places), bool)
    windows: list[tuple[Array, Array, Array]] = []
    first = np.searchsorted(places["connection"], np.arange(len(how) + 1))
    for connection in np.flatnonzero(how == COPY_PARTS).tolist():
        rows = slice(int(first[connection]), int(first[connection + 1]))
        closure = _decrypted_closure if index.connections["is_decrypted"][connection] else _closure
        chosen[rows], begin, end = closure(index, connection, places[rows], wanted[rows])
        windows.append((np.full(len(begin), connection, np.int64), begin, end))
    chosen |= how[places["connection"]] == COPY_WHOLE
    is_decrypted = (how == COPY_PARTS) & index.connections["is_decrypted"]
    in_parts = (how == COPY_PARTS) & ~is_decrypted
    starts, ends = _byte_ranges(index, places[chosen & in_parts[places["connection"]]])
    whole_until = [_bytes_until(index, *window) for window in windows if is_decrypted[window[0][0]]]
    starts, ends = _merged(*(np.concatenate(parts) for parts in zip((starts, ends), *whole_until, strict=True)))
    bridges = _bridges(index, starts, ends)
    windows += [_bridge_window(index, number) for number in bridges.tolist()]
    zero = int(index.connections["first"].min(initial=2**62)) - ACK_NS
    tick = max(1, -((zero - ACK_NS - int(index.connections["last"].max(initial=zero))) // (SPAN - 1)))
    return Plan(how, starts, ends, *_time_ranges(windows, zero, tick), zero, tick, chosen)


# ---------------------------------------------------------------- one connection


def _closure(index: ExchangeIndex, connection: int, rows: Array, wanted: Array) -> tuple[Array, Array, Array]:
    """The exchanges of a connection to copy (bool), and the times in which all of its packets are: begins and ends."""
    is_opening = np.cumprod(np.isin(rows["api_key"], OPENING_APIS)).astype(bool)
    exact = _with_causes(rows, wanted)
    begin, end = _spans(rows[wanted])
    begin, end = _merged(begin, end)
    requests = _Chains(rows, "request", np.argsort(rows["number"], kind="stable"))
    responses = _Chains(rows, "response", np.lexsort((rows["number"], rows["response_first"])))
    chosen = exact | is_opening
    for message, chains in (("request", requests), ("response", responses)):
        chosen |= chains.with_previous(wanted | _overlap(rows, message, begin, end))
    while True:
        before = int(chosen.sum())
        requests.close(chosen)
        responses.close(chosen)
        if int(chosen.sum()) == before:
            break
    opened = _opening_window(index, connection, rows[~is_opening])
    end = _until_acknowledged(index, connection, end)
    return chosen, np.append(begin, opened[0]), np.append(end, opened[1])


def _decrypted_closure(
    index: ExchangeIndex, connection: int, rows: Array, wanted: Array
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The same of a connection that was decrypted."""
    exact = _with_causes(rows, wanted)
    begin, end = _spans(rows)
    last = end[exact].max(keepdims=True)
    first = index.connections["first"][connection : connection + 1].astype(np.int64)
    return begin <= last[0], first, _until_acknowledged(index, connection, last)


def _bytes_until(index: ExchangeIndex, connections: Array, begin: Array, end: Array) -> tuple[Array, Array]:
    """The bytes of a connection's streams from their beginning up to the last ones that came by the end of a time."""
    found = []
    for stream in (2 * int(connections[0]), 2 * int(connections[0]) + 1):
        here = index.segments[slice(*np.searchsorted(index.segments["stream"], (stream, stream + 1)).tolist())]
        here = here[here["ts"] <= end[-1]]
        if len(here):
            last = int((here["offset"] + here["length"]).max())
            found.append((stream * SPAN, stream * SPAN + BIAS + last))
    begins, ends = zip(*found, strict=True) if found else ((), ())
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _with_causes(rows: Array, wanted: Array) -> Array:
    """The wanted exchanges, and those that their waits depend on: bool."""
    exact = wanted.copy()
    answered = np.flatnonzero(rows["response_first"] != NO_TIME)
    order = answered[np.lexsort((rows["number"][answered], rows["response_first"][answered]))]
    before = np.full(len(rows), -1, np.int64)
    before[order[1:]] = order[:-1]
    throttled = order[rows["throttle_time_ms"][order] > 0]
    muted_from = rows["response_first"][throttled]
    muted_until = muted_from + rows["throttle_time_ms"][throttled].astype(np.int64) * 1_000_000
    longest = int((muted_until - muted_from).max(initial=0))
    left = np.flatnonzero(wanted).tolist()
    while left:
        row = left.pop()
        needed = [int(before[row])] if rows["hol_wait_ns"][row] > 0 and before[row] >= 0 else []
        if longest:
            start = int(rows["request_last"][row])
            near = slice(*np.searchsorted(muted_from, (start - longest, int(rows["response_first"][row]))).tolist())
            needed += throttled[near][muted_until[near] > start].tolist()
        for other in needed:
            if not exact[other]:
                exact[other] = True
                left.append(other)
    return exact


def _spans(rows: Array) -> tuple[Array, Array]:
    """The times of exchanges from the first to the last byte."""
    begin = np.where(rows["request_first"] == NO_TIME, rows["response_first"], rows["request_first"])
    end = np.maximum.reduce([rows["request_last"], rows["response_last"], begin])
    return begin, end


def _merged(begin: Array, end: Array) -> tuple[Array, Array]:
    """Intervals without overlaps, ascending."""
    order = np.argsort(begin, kind="stable")
    begin, latest = begin[order], np.maximum.accumulate(end[order])
    starts = np.ones(len(begin), bool)
    starts[1:] = begin[1:] > latest[:-1]
    ends = np.append(starts[1:], np.ones(min(len(begin), 1), bool))
    return begin[starts], latest[ends]


def _overlap(rows: Array, message: str, begin: Array, end: Array) -> Array:
    """Which messages were under way in one of the intervals: bool."""
    first, last = rows[f"{message}_first"], rows[f"{message}_last"]
    last = np.maximum(last, first)
    at = np.searchsorted(begin, last, "right") - 1
    found: Array = (at >= 0) & (first != NO_TIME)
    found &= end[np.maximum(at, 0)] >= first
    return found


class _Chains:
    """The messages of one direction, in runs in which each one begins in the segment in which the one before ends."""

    def __init__(self, rows: Array, message: str, order: Array) -> None:
        first, last = rows[f"{message}_packet_first"], rows[f"{message}_packet_last"]
        self._order = order[first[order] > 0]
        first, last = first[self._order], last[self._order]
        begins = np.ones(len(first), bool)
        begins[1:] = first[1:] != last[:-1]
        self._run = np.cumsum(begins) - 1
        self._place = np.arange(len(first)) - np.flatnonzero(begins)[self._run] if len(first) else first
        self._runs = int(begins.sum())
        self._limit = np.full(self._runs, -1, np.int64)  # by run, the last place that is chosen

    def with_previous(self, chosen: Array) -> Array:
        """The chosen messages, and the one before each: bool."""
        found = chosen.copy()
        found[self._order[:-1][chosen[self._order[1:]]]] = True
        return found

    def close(self, chosen: Array) -> None:
        """Choose all messages of a run before a chosen one, and some after it."""
        picked = chosen[self._order]
        if not picked.any():
            return
        last = np.full(self._runs, -1, np.int64)
        np.maximum.at(last, self._run[picked], self._place[picked])
        # A run that was followed once is followed again only from a message beyond that.
        grows = (self._limit < last) & (last >= 0)
        self._limit[grows] = last[grows] + MOST_FORWARD
        chosen[self._order[self._place <= self._limit[self._run]]] = True


def _opening_window(index: ExchangeIndex, connection: int, others: Array) -> tuple[int, int]:
    """The time from the first packet of a connection up to the first request behind its opening."""
    row = index.connections[connection]
    if not len(others):
        return int(row["first"]), int(row["last"])
    begin, _ = _spans(others)
    return int(row["first"]), max(int(row["first"]), int(begin.min()) - 1)


def _until_acknowledged(index: ExchangeIndex, connection: int, end: Array) -> Array:
    """The ends of times, later by the time in which the connection sends only acknowledgements."""
    times = _times_of(index, connection)
    if not len(times):
        return end + ACK_NS
    following = np.searchsorted(times, end, "right")
    limits = np.where(following < len(times), times[np.minimum(following, len(times) - 1)] - 1, end + ACK_NS)
    until: Array = np.maximum(end, np.minimum(limits, end + ACK_NS))
    return until


def _times_of(index: ExchangeIndex, connection: int) -> Array:
    """The times of a connection's segments with payload, ascending."""
    here = slice(*np.searchsorted(index.segments["stream"], (2 * connection, 2 * connection + 2)).tolist())
    times: Array = np.sort(index.segments["ts"][here])
    return times


# ---------------------------------------------------------------- all connections


def _byte_ranges(index: ExchangeIndex, rows: Array) -> tuple[Array, Array]:
    """The places of the segments that carry the messages of exchanges: ascending intervals."""
    clients = index.connections["client"][rows["connection"]].astype(np.int64)
    segments = index.segments
    keys = (segments["stream"].astype(np.int64) << 36) | segments["packet"]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begin, end = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for message, direction in (("request", clients), ("response", 1 - clients)):
        first, last = rows[f"{message}_packet_first"], rows[f"{message}_packet_last"]
        there = (first > 0) & (last > 0)
        streams = 2 * rows["connection"][there].astype(np.int64) + direction[there]
        low = np.searchsorted(keys, (streams << 36) | first[there])
        high = np.searchsorted(keys, (streams << 36) | last[there], "right") - 1
        found = (low < len(keys)) & (low <= high)
        low, high, streams = order[low[found]], order[high[found]], streams[found]
        begin.append(streams * SPAN + BIAS + segments["offset"][low])
        end.append(streams * SPAN + BIAS + segments["offset"][high] + segments["length"][high])
    return _merged(np.concatenate(begin), np.concatenate(end))


def _bridges(index: ExchangeIndex, starts: Array, ends: Array) -> Array:
    """The numbers of segments in those gaps between intervals that are too long."""
    segments = index.segments
    before = np.zeros(len(starts), np.int64)
    before[1:] = ends[:-1]
    streams = starts // SPAN
    before = np.maximum(before, streams * SPAN + BIAS)
    far = np.flatnonzero(starts - before > LONGEST_GAP)
    if not len(far):
        return far
    places = segments["stream"].astype(np.int64) * SPAN + BIAS + segments["offset"]
    targets = np.concatenate([np.arange(before[n] + LONGEST_GAP, starts[n], LONGEST_GAP) for n in far.tolist()])
    found = np.searchsorted(places, targets)
    kept: Array = found[(found < len(places)) & (places[np.minimum(found, len(places) - 1)] // SPAN == targets // SPAN)]
    return kept


def _bridge_window(index: ExchangeIndex, number: int) -> tuple[Array, Array, Array]:
    """The time from a segment until a few more came: they show that the bytes before it will not come any more."""
    row = index.segments[number]
    connection = row["stream"] // 2
    times = _times_of(index, connection)
    at = np.searchsorted(times, row["ts"], "right")
    last = min(int(times[min(at + BRIDGE_SEGMENTS, len(times) - 1)]), int(row["ts"]) + ACK_NS)
    return np.array([connection], np.int64), np.array([row["ts"]]), np.array([last])


def _time_ranges(windows: list[tuple[Array, Array, Array]], zero: int, tick: int) -> tuple[Array, Array]:
    if not windows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    connections, begin, end = (np.concatenate(parts) for parts in zip(*windows, strict=True))
    return _merged(_time_places(connections, begin, zero, tick), _time_places(connections, end, zero, tick))


def _time_places(connections: Array, times: Array, zero: int, tick: int) -> Array:
    places: Array = connections * SPAN + np.clip((times - zero) // tick, 0, SPAN - 1)
    return places
