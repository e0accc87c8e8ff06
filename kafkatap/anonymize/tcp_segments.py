"""TCP segments: header and options as far as they only have numbers, and the payload by a `StreamMap`."""

from __future__ import annotations

from typing import NamedTuple

from kafkatap.reassembly import layers as known

from .packet_copy import PacketCopy, transport_checksum
from .stream_map import End, StreamMap

_HEADER = 20
_NOP, _END_OF_OPTIONS = 1, 0
#: Options that only have numbers, with their lengths: MSS, window scale, SACK permitted, SACK (any), timestamps.
_OPTIONS = {2: (4,), 3: (3,), 4: (2,), 5: (10, 18, 26, 34), 8: (10,)}
_MAPPED = bytes(10) + b"\xff\xff"


class Span(NamedTuple):
    """Where a segment lies in its packet: the captured bytes `at`:`end`. `wire`: its end on the wire."""

    at: int
    end: int
    wire: int


def copy_segment(
    packet: PacketCopy, streams: StreamMap, span: Span, olds: tuple[bytes, bytes], ends: tuple[bytes, bytes]
) -> None:
    """Copy a segment. `olds`, `ends`: the addresses of the original and their pseudonyms."""
    at, end, wire = span
    if at + _HEADER > end:
        packet.copy(at, min(end, at + 16))
        return
    header = (packet.old[at + 12] >> 4) * 4
    packet.copy(at, at + 16)
    packet.copy(at + 18, at + 20)
    if header < _HEADER or at + header > wire:
        packet.fill(at + 20, end)
    else:
        _copy_options(packet, at + _HEADER, min(at + header, end))
        _write_payload(packet, streams, Span(at + header, end, wire), at, olds)
    if end == wire:
        checksum = transport_checksum(known.TCP_PROTOCOL, *ends, packet.new[at:end])
        packet.new[at + 16 : at + 18] = checksum.to_bytes(2, "big")


def _copy_options(packet: PacketCopy, at: int, end: int) -> None:
    """Copy the options that only have numbers; the others become no-operations."""
    packet.new[at:end] = bytes((_NOP,)) * max(end - at, 0)
    while at < end:
        kind = packet.old[at]
        if kind == _END_OF_OPTIONS:
            packet.new[at:end] = bytes(end - at)
            return
        if kind == _NOP:
            at += 1
            continue
        size = packet.old[at + 1] if at + 1 < end else 0
        if size < 2 or at + size > end:
            return
        if size in _OPTIONS.get(kind, ()):
            packet.copy(at, at + size)
        at += size


def _write_payload(packet: PacketCopy, streams: StreamMap, span: Span, tcp: int, olds: tuple[bytes, bytes]) -> None:
    """Write the new payload. `tcp`: where the header begins."""
    at, end, _ = span
    if at >= end:
        return
    packet.fill(at, end)
    sender: End = (_mapped(olds[0]), packet.u16(tcp))
    receiver: End = (_mapped(olds[1]), packet.u16(tcp + 2))
    stream = streams.stream_of(sender, receiver, packet.number)
    if stream is None or stream.base < 0:
        return
    sequence = int.from_bytes(packet.old[tcp + 4 : tcp + 8], "big") + (packet.old[tcp + 13] >> 1 & 1)
    offset = stream.offset_of(sequence)
    for place, piece in streams.pieces(stream, offset, offset + end - at):
        start = at + place - offset
        packet.new[start : start + len(piece)] = piece


def _mapped(address: bytes) -> bytes:
    return address if len(address) == 16 else _MAPPED + address
