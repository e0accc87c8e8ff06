"""What survives of the exchanges of a damaged capture, and what of it the product finds.

`WholeCapture` reads the undamaged capture: its exchanges, as the product finds them there, and which packets carry
their bytes. It looks for each frame's first bytes in its stream. `WholeCapture.compare` then judges a damaged
capture:

* *whole*: each byte of the request and of the response is in a packet that is left;
* *begun*: so are the first 12 bytes of the request and the first 8 of the response.

An exchange that the broker did not answer needs its request only.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .captures import ETHERNET, Packet
from .damage import Numbered, packets_of
from .segments import TcpPart, Way, tcp_part

REQUEST_HEAD, RESPONSE_HEAD = 12, 8
SYN = 2

#: Packets and their link type to the exchanges that the product finds: the columns of its table, packets from 1 on.
RowsReader = Callable[[Sequence[Packet], int], list[dict[str, Any]]]


@dataclass(slots=True)
class _Stream:
    """The bytes of one direction of one connection: `segments` are (first offset, end, packet number)."""

    base: int
    data: bytearray = field(default_factory=bytearray)
    segments: list[tuple[int, int, int]] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    longest: int = 0

    def add(self, part: TcpPart, number: int) -> tuple[int, int]:
        """Add the bytes of a packet. Return where in the stream they are."""
        first = (part.seq + (1 if part.flags & SYN else 0) - self.base) & 0xFFFFFFFF
        highest = self.segments[-1][1] if self.segments else 0
        first += ((highest - first + (1 << 31)) >> 32) << 32
        skipped = max(0, -first)
        if part.length - skipped <= 0:
            return 0, 0
        first += skipped
        end = first + part.length - skipped
        payload = part.payload[skipped:].ljust(end - first, b"\0")
        if first > len(self.data):
            self.data.extend(bytes(first - len(self.data)))
        self.data += payload[len(self.data) - first :]
        self.segments.append((first, end, number))
        return first, end

    def sort(self) -> None:
        self.segments.sort()
        self.begins = [first for first, _, _ in self.segments]
        self.longest = max((end - first for first, end, _ in self.segments), default=0)

    def carriers(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """The segments with bytes of [begin, end)."""
        at = bisect_left(self.begins, begin - self.longest)
        found = []
        while at < len(self.segments) and self.segments[at][0] < end:
            if self.segments[at][1] > begin:
                found.append(self.segments[at])
            at += 1
        return found


@dataclass(slots=True)
class Part:
    """A request or a response: where its bytes are in its stream, and the segments that carry them."""

    begin: int
    end: int
    carriers: list[tuple[int, int, int]]

    def has(self, captured: dict[int, int], length: int) -> bool:
        """Whether the first `length` bytes (-1: all) are in what is left: packet number to captured payload bytes."""
        end = self.end if length < 0 else min(self.end, self.begin + length)
        reached = self.begin
        for first, last, number in self.carriers:
            if first > reached:
                return False
            there = captured.get(number)
            if there is not None:
                reached = max(reached, min(last, first + there))
            if reached >= end:
                return True
        return reached >= end

    def starts_in(self) -> set[int]:
        """The packets with the first byte."""
        return {number for first, end, number in self.carriers if first <= self.begin < end}


@dataclass(slots=True)
class Exchange:
    """An exchange of the whole capture. `row`: its columns in the product's table."""

    row: dict[str, Any]
    request: Part
    response: Part | None


@dataclass(slots=True)
class Outcome:
    """What the product finds of a damaged capture."""

    whole: int = 0
    whole_found: int = 0
    begun: int = 0
    begun_found: int = 0
    invented: list[dict[str, Any]] = field(default_factory=list)  # rows with a request that nobody sent
    wrong: list[dict[str, Any]] = field(default_factory=list)  # rows with the response of another request, or of none
    orphans: list[dict[str, Any]] = field(default_factory=list)  # orphan responses that nobody sent
    missed: list[Exchange] = field(default_factory=list)  # begun and not found
    answered: list[Exchange] = field(default_factory=list)  # whole, with a response

    def __iadd__(self, other: Outcome) -> Outcome:
        for name in (
            "whole",
            "whole_found",
            "begun",
            "begun_found",
            "invented",
            "wrong",
            "orphans",
            "missed",
            "answered",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class WholeCapture:
    """The exchanges of an undamaged capture, and the bytes that its packets carry."""

    def __init__(self, packets: Sequence[Packet], read_rows: RowsReader, link_type: int = ETHERNET) -> None:
        self.link_type = link_type
        self.read_rows = read_rows
        self.parts = [tcp_part(p, link_type) for p in packets]
        self._streams: dict[Way, list[_Stream]] = defaultdict(list)
        self._stream_of: dict[int, _Stream] = {}
        self._spans: dict[int, tuple[int, int]] = {}  # the bytes of each packet in its stream
        for number, part in enumerate(self.parts, 1):
            if part is not None:
                self._add(part, number)
        for streams in self._streams.values():
            for stream in streams:
                stream.sort()
        self.rows = [row for row in read_rows(packets, link_type) if row["outcome"] != "orphan_response"]
        self.unlocated: list[dict[str, Any]] = []
        self.exchanges: list[Exchange] = []
        self._locate()

    def _add(self, part: TcpPart, number: int) -> None:
        streams = self._streams[part.way]
        base = (part.seq + (1 if part.flags & SYN else 0)) & 0xFFFFFFFF
        if not streams or (part.flags & SYN and streams[-1].base != base and streams[-1].segments):
            streams.append(_Stream(base))
        self._stream_of[number] = streams[-1]
        if part.length > 0:
            self._spans[number] = streams[-1].add(part, number)

    def _locate(self) -> None:
        """Find each frame's bytes: in the order of a stream, each begins in its first packet, where its header is."""
        parts: list[dict[str, Part]] = [{} for _ in self.rows]
        for kind in ("request", "response"):
            taken: set[tuple[int, int]] = set()  # places of the frames that are located
            for n, row in enumerate(self.rows):
                first = row[f"{kind}_packet_first"]
                if not first or (kind == "request" and _is_token(row)):
                    continue
                stream = self._stream_of[first]
                head = _head(row, kind)
                begin = -1
                at, last = self._spans[first]
                begin = stream.data.find(head, at, last + len(head) - 1)
                while (id(stream), begin) in taken:
                    begin = stream.data.find(head, begin + 1, last + len(head) - 1)
                if begin < 0:
                    self.unlocated.append(row)
                    continue
                taken.add((id(stream), begin))
                end = begin + 4 + row[f"{kind}_bytes"]
                parts[n][kind] = Part(begin, end, stream.carriers(begin, end))
        self.responses: dict[tuple[int, int, int], dict[str, Any]] = {}
        for n, row in enumerate(self.rows):
            if "response" in parts[n]:
                for number in parts[n]["response"].starts_in():
                    self.responses.setdefault((number, row["correlation_id"], row["response_bytes"]), row)
            if "request" in parts[n] and ("response" in parts[n] or not row["response_packet_first"]):
                self.exchanges.append(Exchange(row, parts[n]["request"], parts[n].get("response")))

    def compare(self, damaged: Sequence[Numbered]) -> Outcome:
        """What the product finds of the packets that are left."""
        return self.judge(damaged, self.read_rows(packets_of(damaged), self.link_type))

    def judge(self, damaged: Sequence[Numbered], rows: Sequence[dict[str, Any]]) -> Outcome:
        """The same, of the rows that the product found."""
        captured: dict[int, int] = {}
        for number, packet in damaged:
            part = self.parts[number - 1]
            if part is not None:
                left = tcp_part(packet, self.link_type)
                captured[number] = max(captured.get(number, 0), len(left.payload) if left else 0)
        by_place: dict[tuple[Any, ...], list[Exchange]] = defaultdict(list)
        for exchange in self.exchanges:
            for number in exchange.request.starts_in():
                by_place[number, _identity(exchange.row)].append(exchange)
        outcome = Outcome()
        found: dict[int, dict[str, Any]] = {}
        for row in rows:
            first = row["request_packet_first"]
            response = row["response_packet_first"]
            if row["outcome"] == "orphan_response":
                if (damaged[response - 1].number, row["correlation_id"], row["response_bytes"]) not in self.responses:
                    outcome.orphans.append(row)
                continue
            if _is_token(row):
                continue
            place = damaged[first - 1].number, _identity(row)
            candidates = [x for x in by_place.get(place, ()) if id(x) not in found]
            if not candidates:
                outcome.invented.append(row)
                continue
            exchange = candidates[0]
            if response and (
                exchange.response is None
                or damaged[response - 1].number not in exchange.response.starts_in()
                or row["response_bytes"] != exchange.row["response_bytes"]
            ):
                outcome.wrong.append(row)
                continue
            found[id(exchange)] = row
        for exchange in self.exchanges:
            request, response = exchange.request, exchange.response
            begun = request.has(captured, REQUEST_HEAD) and (response is None or response.has(captured, RESPONSE_HEAD))
            if not begun:
                continue
            whole = request.has(captured, -1) and (response is None or response.has(captured, -1))
            row = found.get(id(exchange), {})
            is_found = bool(row) and (response is None or bool(row["response_packet_first"]))
            outcome.begun += 1
            outcome.begun_found += is_found
            outcome.whole += whole
            outcome.whole_found += whole and is_found
            if whole and response is not None:
                outcome.answered.append(exchange)
            if not is_found:
                outcome.missed.append(exchange)
        return outcome


def _is_token(row: dict[str, Any]) -> bool:
    """Whether an exchange is one of bare SASL tokens."""
    return row["api_key"] is None or row["api_key"] < 0


def _head(row: dict[str, Any], kind: str) -> bytes:
    """The first bytes of a request or response."""
    if kind == "response":
        return struct.pack("!ii", row["response_bytes"], row["correlation_id"] or 0)
    return struct.pack("!ihhi", row["request_bytes"], row["api_key"], row["api_version"], row["correlation_id"])


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a request is, beside its place."""
    ends = "client_ip", "client_port", "broker_ip", "broker_port"
    return tuple(row[name] for name in (*ends, "api_key", "api_version", "correlation_id"))
