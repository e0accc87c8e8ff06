"""`SaslFrames`: the tokens of SASL in packets that a checkpoint keeps become filler. Only their lengths matter later.

While a split is decoded, frames with tokens are noted. Of packets that are kept, the bytes of these frames are found by
their sequence numbers, so copies become filler too. Of TLS a checkpoint only has what was encrypted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dissector import Dissector
from kafkatap.dissector.framing.connections import STREAM_RESYNC
from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.layouts.schema import RESPONSE
from kafkatap.kernels.arrays import copied
from kafkatap.reassembly.layers import IPV4, IPV6
from kafkatap.reassembly.trail import LONGEST_TRAIL, TCP_SEGMENT, TRAIL, read_trail

from .seams import Seam

Array = np.ndarray[Any, Any]
_HANDSHAKE, _AUTHENTICATE = 17, 36
#: The first version of SaslAuthenticate with compact lengths.
_FLEXIBLE = 2
#: Bytes of a frame by which it is found in its first packet: size, API, version, correlation id.
_HEAD = 12
_PORTS, _SIZE = 4, 4
#: How headers of the PROXY protocol begin.
_PROXY = (b"PROXY", b"\r\n\r\n")
#: No API and no version has this number, or a larger one.
_NO_APIS, _NO_VERSIONS = 128, 64
#: Bytes of a frame that are looked at.
_MOST = 1024
_SIDES = ("request", "response")
#: What the bytes of tokens become: of messages, and of bare tokens, which must not begin as a request does.
_ZERO, _NO_API = 0, 0xFF
_WRAP, _HALF = 1 << 32, 1 << 31


class _Frame(NamedTuple):
    """A frame with a token. `first`, `last`: its packets. `head`: its first bytes; the token is from `token` on, and
    becomes `filler`."""

    first: int
    last: int
    head: bytes
    token: int
    size: int
    filler: int


class _Segment(NamedTuple):
    """The captured payload of a packet: data[at:end]. `sender`: one of the two ends of its flow."""

    number: int
    sender: bytes
    seq: int
    at: int
    end: int


class SaslFrames:
    """An inspector that notes the frames with tokens of each connection (key), and its first and its latest frame.
    Responses without a request can have tokens where a connection ended amid SASL. `was_authenticating`: some flows
    were when this run began."""

    def __init__(self, was_authenticating: bool) -> None:
        self._was_authenticating = was_authenticating
        self._frames: dict[int, list[_Frame]] = {}
        self._orphans: dict[int, list[_Frame]] = {}
        self._first: dict[int, int] = {}  # the packet of the first frame
        self._latest: dict[int, bool] = {}
        self._any_sasl = was_authenticating  # whether a latest frame can be of SASL

    def look(self, frames: Frames) -> None:
        """See the frames of a drain."""
        jobs = frames.jobs
        if not len(jobs):
            return
        slots, sides = jobs["frame"] >> 1, jobs["frame"] & 1
        connections, api_keys = frames.rows["connection"][slots], frames.rows["api_key"][slots]
        with_token = (api_keys == _AUTHENTICATE) | (frames.links["token"][slots] > 0)
        is_sasl, is_asked = with_token | (api_keys == _HANDSHAKE), with_token | (api_keys >= 0)
        self._any_sasl |= bool(is_sasl.any())
        if not self._any_sasl:
            return
        keys, latest = np.unique(connections[is_asked][::-1], return_index=True)
        self._latest.update(zip(keys.tolist(), is_sasl[is_asked][::-1][latest].tolist(), strict=True))
        if self._was_authenticating:
            self._note_firsts(frames, connections, slots, sides)
        noted = np.flatnonzero(with_token | ~is_asked if self._was_authenticating else with_token)
        for job, slot in zip(jobs[noted], slots[noted].tolist(), strict=True):
            row, side = frames.rows[slot], int(job["frame"]) & 1
            name = _SIDES[side]
            size, frame = int(row[f"{name}_bytes"]) + _SIZE, frames.bytes_of(job, _MOST)
            token, filler, is_orphan = _SIZE, _NO_API, False
            if not frames.links["token"][slot]:
                token, filler, is_orphan = int(job["at"]) - int(job["limit"]) + size, _ZERO, row["api_key"] < 0
                if not is_orphan:
                    token = _token_at(frame, token, side, int(row["api_version"]))
            first, last = int(row[f"{name}_packet_first"]), int(row[f"{name}_packet_last"])
            found = self._orphans if is_orphan else self._frames
            made = _Frame(first, last, frame[:_HEAD], token, size, filler)
            found.setdefault(int(row["connection"]), []).append(made)

    def _note_firsts(self, frames: Frames, connections: Array, slots: Array, sides: Array) -> None:
        """Note the packets of first frames of connections."""
        keys, firsts = np.unique(connections, return_index=True)
        requests, responses = (frames.rows[f"{name}_packet_first"][slots[firsts]] for name in _SIDES)
        packets = np.where(sides[firsts], responses, requests)
        for key, packet in zip(keys.tolist(), packets.tolist(), strict=True):
            self._first.setdefault(key, packet)

    def add_parts(self, dissector: Dissector, c: int) -> bool:
        """Note the tokens of which connection `c` (by its number) has only the begin so far. False: where messages
        begin is not known."""
        row, streams = dissector.connections[c], dissector.streams[2 * c : 2 * c + 2]
        for direction, stream in enumerate(streams):
            whole = dissector.pool[stream["buffer"] : stream["buffer"] + min(stream["used"], _MOST)].tobytes()
            if not whole or whole.startswith(_PROXY):
                continue
            if stream["mode"] == STREAM_RESYNC:
                return False
            api_key, version, body = _request_header(whole)
            if direction != row["client"] and row["waiting_first"] >= 0:
                asked = dissector.exchanges[row["waiting_first"]]
                api_key, version, body = int(asked["api_key"]), int(asked["api_version"]), 8
            token, filler = _SIZE, _NO_API
            if api_key == _AUTHENTICATE:
                token, filler = _token_at(whole, body, int(direction != row["client"]), version), _ZERO
            elif 0 <= api_key < _NO_APIS and 0 <= version < _NO_VERSIONS:
                continue
            size = max(int.from_bytes(whole[:_SIZE], "big") + _SIZE, int(stream["used"]))
            first, last = int(stream["packet_first"]), int(stream["packet_last"])
            made = _Frame(first, last, whole[:_HEAD], token, size, filler)
            self._frames.setdefault(int(row["key"]), []).append(made)
        return True

    def is_authenticating(self, connection: int, before: bool) -> bool:
        """Whether the latest frame of a connection was of SASL. `before`: when this run began."""
        return self._latest.get(connection, before)

    def blanked(
        self, connections: Sequence[int], kept: Seam, whole: Seam, was_authenticating: bool, is_whole: bool
    ) -> Seam:
        """Packets that are kept of a flow, without tokens. `whole`: all its packets; `connections`: its keys.
        `was_authenticating`: when this run began; `is_whole`: no frame can end before its first one."""
        noted = (self._frames, self._orphans) if was_authenticating else (self._frames,)
        frames = [frame for some in noted for key in connections for frame in some.get(key, ())]
        before = 0 if is_whole or not was_authenticating else max(self._first.get(key, 0) for key in connections)
        if not frames and (not before or before <= kept.packets["number"].min(initial=before)):
            return kept
        known = {number: list(_segments(whole, [number])) for number in {frame.first for frame in frames}}
        ranges, packets = [], [(0, before - 1)]
        for frame in frames:
            found = [one for segment in known[frame.first] for one in _range_of(frame, segment, whole.data)]
            ranges += found
            packets += [] if found else [(frame.first, frame.last)]
        data = kept.data.copy()
        for segment in _segments(kept):
            for sender, seq, length, filler in ranges:
                if sender == segment.sender:
                    at = segment.at + (seq - segment.seq + _HALF) % _WRAP - _HALF
                    data[max(at, segment.at) : max(min(at + length, segment.end), segment.at)] = filler
            if any(first <= segment.number <= last for first, last in packets):
                data[segment.at : segment.end] = 0
        return replace(kept, data=data)


def _request_header(frame: bytes) -> tuple[int, int, int]:
    """API and version of a request of which some bytes are there, and where its body begins."""
    api_key, version, name = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (4, 6, 12))
    return api_key, version, 14 + max(name, 0)


def shows_sasl(seam: Seam) -> bool:
    """Whether a request of SASL begins in one of these packets."""
    keys = {key.to_bytes(2, "big") for key in (_HANDSHAKE, _AUTHENTICATE)}
    return any(seam.data[s.at + 4 : min(s.at + 6, s.end)].tobytes() in keys for s in _segments(seam))


def _range_of(frame: _Frame, segment: _Segment, data: Array) -> Iterator[tuple[bytes, int, int, int]]:
    """Sender, sequence number, length and filler of a token whose frame begins in a segment."""
    payload = data[segment.at : segment.end].tobytes()
    place = payload.find(frame.head)
    if place < 0:  # only the first bytes of the frame are in it
        sizes = (
            size for size in range(min(len(frame.head), len(payload)), 0, -1) if payload.endswith(frame.head[:size])
        )
        place = len(payload) - next(sizes, len(payload) + 1)
    if place >= 0:
        yield segment.sender, (segment.seq + place + frame.token) % _WRAP, frame.size - frame.token, frame.filler


def _segments(seam: Seam, numbers: Iterable[int] | None = None) -> Iterator[_Segment]:
    """The payload of the packets with these numbers (None: all)."""
    trail = np.zeros(LONGEST_TRAIL, TRAIL)
    data = seam.data
    rows = copied(seam.packets if numbers is None else seam.packets[np.isin(seam.packets["number"], list(numbers))])
    for place in range(len(rows)):
        count = read_trail(data, rows, place, trail)
        if not count:
            continue
        last, number = trail[count - 1], int(rows["number"][place])
        at, end = int(last["at"]), int(last["end"])
        if last["what"] != TCP_SEGMENT:  # a fragment: where it belongs is not known
            yield _Segment(number, b"", 0, at, max(at, end))
        elif at + 20 <= end:
            header = trail[:count][np.isin(trail["what"][:count], (IPV4, IPV6))][-1]
            ip, head = int(header["at"]), data[at : at + 20].tobytes()
            address = data[ip + 12 : ip + 16] if header["what"] == IPV4 else data[ip + 8 : ip + 24]
            begin = min(at + (head[12] >> 4) * 4, end)
            seq = int.from_bytes(head[4:8], "big") + (head[13] >> 1 & 1)
            yield _Segment(number, address.tobytes() + head[:_PORTS], seq % _WRAP, begin, end)


def _token_at(frame: bytes, body: int, side: int, version: int) -> int:
    """Where the token begins in a frame of SaslAuthenticate; where it is cut, at its end."""
    at, is_flexible = body, version >= _FLEXIBLE
    if is_flexible:  # without tagged fields in the header
        at += 1
    if side == RESPONSE:
        at, length = _length(frame, at + 2, is_flexible, 2)
        at += length
    return _length(frame, at, is_flexible, 4)[0]


def _length(frame: bytes, at: int, is_flexible: bool, size: int) -> tuple[int, int]:
    """Where a string or bytes begin whose length is at `at`, and the length. `size`: of one that is not compact."""
    if not is_flexible:
        return at + size, max(int.from_bytes(frame[at : at + size], "big", signed=True), 0)
    value = shift = 0
    while at < len(frame):
        byte = frame[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    return at, max(value - 1, 0)
