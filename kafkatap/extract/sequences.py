"""`read_sequences`: the packets of a few connections, around packets that a report names.

The captures are read once more, without decoding: only TCP headers. So it works for TLS as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv6Address
from typing import Any

import numpy as np

from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ACK, FIN, QUOTED, RST, SYN
from kafkatap.reports.batch import endpoint
from kafkatap.reports.rendering.html.sequence import LeftOut, PacketSequence, SequencePacket
from kafkatap.run import Watch, never

from ..captures.capture_reader import CaptureReader, FileReport

Array = np.ndarray[Any, Any]
#: Packets of the connection before the first one and after the last one.
_BEFORE, _AFTER = 6, 3
#: Packets that are read, that are drawn at the begin and at the end, and unusual ones between these.
_READ, _FIRST, _LAST, _UNUSUAL = 4_000, 18, 10, 16
_FLAGS = ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"))
_HALF, _WHOLE = 1 << 31, 1 << 32


class _Wanted:
    """A sequence that is being read."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, max(first, last)
        self.flow = -1
        self.ends: tuple[str, str] = ("", "")
        self.parts: list[Array] = []
        self.count = self.after = 0
        self.is_over = False

    def add(self, segments: Array) -> None:
        """Add segments of its connection, in order."""
        after = np.cumsum(segments["packet"] > self.last) + self.after
        kept = segments[after <= _AFTER][: _READ - self.count]
        self.parts.append(kept)
        self.count += len(kept)
        self.after = int(after[-1]) if len(after) else self.after
        self.is_over = self.after >= _AFTER or self.count >= _READ


def read_sequences(
    files: Sequence[FileReport], wanted: Iterable[tuple[int, int]], brokers: Collection[str], watch: Watch = never
) -> dict[int, PacketSequence]:
    """The sequence of each packet that is a TCP segment, by its number. `files`: reports on captures that were read.
    `wanted`: numbers of a first and a last packet of one connection; the last one may be 0. `brokers`: the addresses
    with ports of those that are known. `watch` is called once a block; it ends the reading."""
    found: dict[int, PacketSequence] = {}
    left = sorted(dict(sorted(wanted, reverse=True)).items())
    for file in files:
        mine = [_Wanted(a, b) for a, b in left if file.first_packet <= a < file.first_packet + file.packets]
        if mine and not file.fatal:
            _read(file, mine, watch)
            found |= {one.first: _sequence(one, brokers) for one in mine if one.count}
    return found


def _read(file: FileReport, wanted: list[_Wanted], watch: Watch) -> None:
    reader = CaptureReader(file.path)
    assembler = Assembler(keep_flows=True)
    before = None
    try:
        reader.number_from(file.first_packet)
        while not all(one.is_over for one in wanted) and reader.fill() and not watch(0):
            parts = [
                part.copy()
                for part in assembler.read_segments(reader.buffer, reader.packets, 0, reader.count)
            ]  # fmt: skip
            segments = np.concatenate(parts)
            segments = segments[segments["source"] != QUOTED]
            last = int(reader.packets["number"][reader.count - 1])
            for one in wanted:
                if not one.is_over:
                    _add(one, segments, before, last, assembler)
            before = segments
            reader.position = reader.count
            assembler.end_block()
    finally:
        reader.close()


def _add(one: _Wanted, segments: Array, before: Array | None, last: int, assembler: Assembler) -> None:
    """Add the segments of a block. `last`: the number of its last packet."""
    begin = 0
    if one.flow < 0:
        if one.first > last:
            return
        at = np.flatnonzero(segments["packet"] == one.first)
        if not len(at):
            one.is_over = True
            return
        begin = int(at[0])
        one.flow = int(segments["flow"][begin])
        one.ends = _ends(assembler.flows[one.flow])
        earlier = segments[:begin] if before is None else np.concatenate((before, segments[:begin]))
        one.add(earlier[earlier["flow"] == one.flow][-_BEFORE:])
    rest = segments[begin:]
    one.add(rest[rest["flow"] == one.flow])


def _ends(flow: Any) -> tuple[str, str]:
    """The two ends of a FLOW, as texts."""

    def text(high: int, low: int, port: int) -> str:
        address = IPv6Address(((high % (1 << 64)) << 64) | (low % (1 << 64)))
        return endpoint(str(address.ipv4_mapped or address), port)

    return (
        text(int(flow["a_high"]), int(flow["a_low"]), int(flow["a_port"])),
        text(int(flow["b_high"]), int(flow["b_low"]), int(flow["b_port"])),
    )


def _client_direction(one: _Wanted, segments: Array, brokers: Collection[str]) -> int:
    """The direction that the client sends: the end that is no known broker; the one that sent the SYN; or else the one
    with the higher port."""
    is_broker = [end in brokers for end in one.ends]
    if is_broker[0] != is_broker[1]:
        return int(is_broker[0])
    flags = segments["tcp_flags"]
    syn = np.flatnonzero((flags & SYN != 0) & (flags & ACK == 0))
    if len(syn):
        return int(segments["direction"][syn[0]])
    ports = [int(end.rpartition(":")[2]) for end in one.ends]
    return int(ports[1] > ports[0])


def _sequence(one: _Wanted, brokers: Collection[str]) -> PacketSequence:
    segments = np.concatenate(one.parts)
    client = _client_direction(one, segments, brokers)
    packets = _packets(segments, client)
    return PacketSequence(one.ends[client], one.ends[1 - client], tuple(_drawn(packets)))


def _packets(segments: Array, client: int) -> list[SequencePacket]:
    """The packets with what is unusual about them, as far as the sequence shows it."""
    base: list[int | None] = [None, None]  # the first sequence number of each direction
    sent = [0, 0]  # the end of the highest byte so far
    missing: list[list[tuple[int, int]]] = [[], []]  # bytes before others that came first
    copies: set[tuple[int, ...]] = set()
    found = []
    names = ("packet", "ts", "direction", "seq", "ack", "wire", "window", "ip_id", "tcp_flags")
    for number, ts, direction, seq, ack, wire, window, ip_id, flags in segments[list(names)].tolist():
        length = wire + (flags & SYN != 0) + (flags & FIN != 0)
        is_first = base[direction] is None
        if is_first:
            base[direction] = seq
        if flags & ACK and base[1 - direction] is None:
            base[1 - direction] = ack
            sent[1 - direction] = 0
        place = _signed(seq - (base[direction] or 0))
        notes = []
        copy = (direction, seq, ack, wire, flags, ip_id)
        if ip_id and copy in copies:
            notes.append("captured twice")
        elif wire and any(begin < place + wire and place < end for begin, end in missing[direction]):
            notes.append("late: sent again, or out of order")
        elif length and not is_first and place + length <= sent[direction]:
            notes.append("sent again" if wire else "sent again (no payload)")
        elif wire and not is_first and place < sent[direction]:
            notes.append("sent again, and more")
        elif not is_first and place > sent[direction]:
            notes.append(f"{place - sent[direction]:,} B before it are missing")
            missing[direction].append((sent[direction], place))
        copies.add(copy)
        if not window and not flags & (RST | SYN):
            notes.append("window 0")
        sent[direction] = place + length if is_first else max(sent[direction], place + length)
        other = base[1 - direction]
        if flags & ACK and other is not None:  # what is acknowledged was sent, perhaps before these packets
            sent[1 - direction] = max(sent[1 - direction], _signed(ack - other))
        found.append(SequencePacket(
            number, ts, direction == client, place, wire,
            _signed(ack - other) if flags & ACK and other is not None else None,
            " ".join(name for bit, name in _FLAGS if flags & bit), "; ".join(notes),
        ))  # fmt: skip
    return found


def _signed(difference: int) -> int:
    """A difference of sequence numbers, 32 bits."""
    return (difference + _HALF) % _WHOLE - _HALF


def _drawn(packets: list[SequencePacket]) -> Iterable[SequencePacket | LeftOut]:
    """The first and last packets, and unusual ones between these."""
    middle = packets[_FIRST : len(packets) - _LAST]
    unusual = {packet.number for packet in [p for p in middle if p.note or p.flags][:_UNUSUAL]}
    chosen = [n < _FIRST or n >= len(packets) - _LAST or packet.number in unusual for n, packet in enumerate(packets)]
    hidden: list[SequencePacket] = []
    for packet, is_drawn in zip(packets, chosen, strict=True):
        if not is_drawn:
            hidden.append(packet)
            continue
        if hidden:
            yield _left_out(hidden)
            hidden = []
        yield packet
    if hidden:
        yield _left_out(hidden)


def _left_out(packets: list[SequencePacket]) -> LeftOut:
    return LeftOut(
        len(packets),
        sum(p.length for p in packets if p.from_client),
        sum(p.length for p in packets if not p.from_client),
    )
