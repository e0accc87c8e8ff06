"""The exchanges of a recording as Kafka's own parsers read them, behind a plain reassembler: `NAME.exchanges.tsv`.

For recordings of loopback that lost nothing and begin before their connections. The columns are in samples/README.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE

from .captures import read_capture
from .kafka_clients import Line, error_codes, read_frames
from .truth import error_text

COLUMNS = (
    "client", "broker", "api_key", "api_version", "correlation_id", "client_id", "request_first_us", "request_last_us",
    "response_first_us", "response_last_us", "request_bytes", "response_bytes", "throttle_time_ms", "batches",
    "records", "errors", "status",
)  # fmt: skip
NULL = "\\N"
API_VERSIONS, UNSUPPORTED_VERSION = 18, 35
#: Where records are counted: (key, direction).
WITH_RECORDS = ((0, REQUEST), (1, RESPONSE), (78, RESPONSE))
SYN = 2

End = tuple[str, int]


@dataclass(slots=True)
class Stream:
    """The bytes of one direction, and the time of each packet that added some, by the place of its first byte."""

    base: int
    data: bytearray = field(default_factory=bytearray)
    places: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def add(self, seq: int, payload: bytes, time_us: int) -> None:
        at = (seq - self.base) % 2**32
        assert at <= len(self.data) or at > 2**31, "a segment is missing"
        new = payload[len(self.data) - at :] if at <= len(self.data) else b""
        if new:
            self.places.append(len(self.data))
            self.times.append(time_us)
            self.data += new

    def time(self, at: int) -> int:
        return self.times[bisect_right(self.places, at) - 1]


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame without its size, and the times of its first and last byte in µs."""

    data: bytes
    first: int
    last: int

    @property
    def correlation_id(self) -> int:
        return int(struct.unpack_from("!i", self.data)[0])


def streams(path: Path) -> dict[tuple[End, End], Stream]:
    """The streams of a capture of Ethernet and IPv4 by (source, destination)."""
    found: dict[tuple[End, End], Stream] = {}
    for packet in read_capture(path).packets:
        head = 14 + (packet.data[14] & 15) * 4
        size = 14 + struct.unpack_from("!H", packet.data, 16)[0]
        source, destination, seq = struct.unpack_from("!HHI", packet.data, head)
        addresses = [".".join(map(str, packet.data[at : at + 4])) for at in (26, 30)]
        way = (addresses[0], source), (addresses[1], destination)
        if packet.data[head + 13] & SYN:
            found[way] = Stream(seq + 1)
        payload = packet.data[head + (packet.data[head + 12] >> 4) * 4 : size]
        if payload:
            found[way].add(seq, payload, packet.time_ns // 1000)
    return found


def frames(stream: Stream) -> list[Frame]:
    """The complete frames of a stream."""
    found, at = [], 0
    while at + 4 <= len(stream.data):
        end = at + 4 + struct.unpack_from("!i", stream.data, at)[0]
        if end > len(stream.data):
            break
        found.append(Frame(bytes(stream.data[at + 4 : end]), stream.time(at), stream.time(end - 1)))
        at = end
    return found


def truth_of(path: Path, port: int, release: str) -> str:
    """The exchanges with the broker on a port as a table, in the order of their requests. `release`: of the parsers."""
    pairs: list[tuple[End, End, Frame, Frame | None]] = []
    found = streams(path)
    for (client, broker), stream in found.items():
        if broker[1] != port:
            continue
        waiting: dict[int, deque[Frame]] = defaultdict(deque)
        for response in frames(found[broker, client]) if (broker, client) in found else ():
            waiting[response.correlation_id].append(response)
        for request in frames(stream):
            (correlation_id,) = struct.unpack_from("!i", request.data, 4)
            answers = waiting[correlation_id]
            pairs.append((client, broker, request, answers.popleft() if answers else None))
        assert not any(waiting.values()), "a response without a request"
    asked: list[tuple[int, int, int, bytes]] = []
    for _, _, request, answer in pairs:
        key, version = struct.unpack_from("!hh", request.data)
        asked.append((key, version, REQUEST, request.data))
        if answer is not None:
            asked.append((key, 0 if is_refused(key, answer) else version, RESPONSE, answer.data))
    read = iter(read_frames(release, asked))
    rows = []
    for client, broker, request, answer in pairs:
        rows.append((request.first, row(client, broker, request, next(read), answer, next(read) if answer else None)))
    lines = ["\t".join(COLUMNS), *("\t".join(values[name] for name in COLUMNS) for _, values in sorted_rows(rows))]
    return "\n".join(lines) + "\n"


def sorted_rows(rows: list[tuple[int, dict[str, str]]]) -> list[tuple[int, dict[str, str]]]:
    return sorted(rows, key=lambda entry: (entry[0], entry[1]["client"]))


def is_refused(key: int, answer: Frame) -> bool:
    """Whether a response refuses the version of ApiVersions: it has the format of version 0."""
    return key == API_VERSIONS and struct.unpack_from("!h", answer.data, 4)[0] == UNSUPPORTED_VERSION


def row(client: End, broker: End, request: Frame, sent: Line, answer: Frame | None, got: Line | None) -> dict[str, str]:
    """One row of the table."""
    for line in (sent, got):
        if line is not None and ("error" in line or line["left"]):
            raise ValueError(f"Kafka cannot read {line}")
    values: dict[str, Any] = {
        "client": f"{client[0]}:{client[1]}", "broker": f"{broker[0]}:{broker[1]}", "api_key": sent["key"],
        "api_version": sent["version"], "correlation_id": struct.unpack_from("!i", request.data, 4)[0],
        "client_id": sent["client_id"], "request_first_us": request.first, "request_last_us": request.last,
        "request_bytes": len(request.data), "batches": 0, "records": 0, "errors": "", "status": "unanswered",
    }  # fmt: skip
    for line, direction in ((sent, REQUEST), (got, RESPONSE)):
        if line is not None and (line["key"], direction) in WITH_RECORDS:
            batches = [batch for found in line["records"].values() for batch in found["batches"]]
            values["batches"], values["records"] = len(batches), sum(map(len, batches))
    if answer is not None and got is not None:
        codes = Counter(code for code in error_codes(got["body"]) if code)
        values |= {
            "response_first_us": answer.first, "response_last_us": answer.last, "response_bytes": len(answer.data),
            "throttle_time_ms": got["body"].get("throttleTimeMs"), "errors": error_text(codes),
            "status": "paired,v0_format" if is_refused(sent["key"], answer) else "paired",
        }  # fmt: skip
    return {name: NULL if values.get(name) is None else str(values[name]) for name in COLUMNS}
