"""The exchanges of a capture, computed byte by byte in the plainest way.

`expected(seen, sent)` compares the segments of a capture with those really sent, which include the lost ones. Each
connection has its own addresses and ports and begins with a SYN in `sent`. A byte has the time and the packet number of
the first segment that carried it. The oracle does not cover Produce with acks=0, bare tokens, and request headers other
than v0 and v1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkatap.dissector.dtypes import NO_TIME
from tests.support.tcp import SYN, Endpoint, Segment
from tests.wire.harness import Row

Way = tuple[Endpoint, Endpoint]


@dataclass(slots=True)
class _Frame:
    """One frame: its first bytes, its place in the stream, and the time and packet number of each byte (0: none)."""

    data: bytes
    times: list[int]
    packets: list[int]

    @property
    def whole(self) -> bool:
        return all(self.packets)


def _frames(way: Way, sent: Sequence[Segment], seen: Sequence[Segment]) -> list[_Frame]:
    base = next((s.seq + 1) % 2**32 for s in sent if (s.source, s.destination) == way and s.flags & SYN)
    stream: dict[int, int] = {}
    for s in sent:
        if (s.source, s.destination) == way:
            at = _offset(s, base)
            for n, byte in enumerate(s.payload):
                stream.setdefault(at + n, byte)
    came: dict[int, tuple[int, int]] = {}
    for number, s in enumerate(seen, 1):
        if (s.source, s.destination) == way:
            at = _offset(s, base)
            for n in range(len(s.payload)):
                came.setdefault(at + n, (s.time_ns, number))
    frames = []
    at = 0
    while all(n in stream for n in range(at, at + 4)):
        end = at + 4 + struct.unpack("!i", bytes(stream[n] for n in range(at, at + 4)))[0]
        if not all(n in stream for n in range(at, end)):
            break
        places = [came.get(n, (NO_TIME, 0)) for n in range(at, end)]
        data = bytes(stream[n] for n in range(at, end))
        frames.append(_Frame(data, [time for time, _ in places], [packet for _, packet in places]))
        at = end
    return frames


def _offset(s: Segment, base: int) -> int:
    distance = (s.seq + (1 if s.flags & SYN else 0) - base) % 2**32
    return distance - 2**32 if distance >= 2**31 else distance


def expected(seen: Sequence[Segment], sent: Iterable[Segment] | None = None) -> tuple[list[Row], list[Row]]:
    """The rows of exchanges that were captured completely, and the complete rows of the others."""
    sent = list(seen if sent is None else sent)
    ways = {(s.source, s.destination): None for s in sent if s.flags & SYN and not s.flags & 16}
    whole: list[Row] = []
    damaged: list[Row] = []
    for client, broker in ways:
        answers: dict[int, list[_Frame]] = {}
        for frame in _frames((broker, client), sent, seen):
            answers.setdefault(struct.unpack_from("!i", frame.data, 4)[0], []).append(frame)
        for frame in _frames((client, broker), sent, seen):
            key, version, correlation_id, length = struct.unpack_from("!hhih", frame.data, 4)
            row: Row = {
                "client_ip": client[0], "client_port": client[1], "broker_ip": broker[0], "broker_port": broker[1],
                "api_key": key, "api_version": version, "correlation_id": correlation_id,
                "client_id": frame.data[14 : 14 + length].decode() if length >= 0 else None,
                "outcome": "unanswered",
            }  # fmt: skip
            row.update(_sizes("request", frame))
            answer = answers[correlation_id].pop(0) if answers.get(correlation_id) else None
            row.update(_sizes("response", answer))
            if answer is not None:
                row["outcome"] = "answered"
            (whole if frame.whole and (answer is None or answer.whole) else damaged).append(row)
    return whole, damaged


def _sizes(end: str, frame: _Frame | None) -> Row:
    return {
        f"{end}_bytes": -1 if frame is None else len(frame.data) - 4,
        f"{end}_first": NO_TIME if frame is None else frame.times[0],
        f"{end}_last": NO_TIME if frame is None else frame.times[-1],
        f"{end}_packet_first": 0 if frame is None else frame.packets[0],
        f"{end}_packet_last": 0 if frame is None else frame.packets[-1],
    }
