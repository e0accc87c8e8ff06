"""`write_plain`: the packets of a capture, with plain segments in place of those of decrypted connections.

The capture is read twice. The first pass decrypts it, and keeps the plain bytes of each packet that completed records.
The second pass writes a segment with them at the time of that packet. Sequence numbers count plain bytes, from the
connection's own first number. Bytes that were lost are a gap in them. SYN, FIN and RST stay. Packets without plain
bytes stay, empty, if they acknowledge more plain bytes or change the window. No TLS is left of such a connection.

The new packets begin with their IP header. Packets of other connections are copied as they are.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kafkatap.reassembly import link_types as link
from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ACK, CHUNK_DATA, CHUNK_GAP, FIN, FROM_HELD, PSH, QUOTED, RST, SYN, Segment
from kafkatap.reassembly.layers import TCP_PROTOCOL
from kafkatap.reassembly.pcap import LONGEST_PACKET

from ..engine.assembly import Assembled
from ..engine.engine import Engine
from ..engine.read_options import ReadOptions
from ..engine.tls.layer import TlsLayer
from ..engine.tls.record_tables import DECRYPTED, HOLDING, ROW_RECORD, RecordRow
from ..engine.tls.tracked import Tracked
from ..output_file import UnnamedFile
from ..run import Run, Watch, never
from .exchange_index import ConnectionPlaces, WatchedEngine
from .source_blocks import SourceInterface, SourceReader
from .wanted_packets import FlowConnections, connections_by_ends

Array = np.ndarray[Any, Any]
#: What stands for the length of a gap where that is unknown. It is longer than a frame, and reassembly can wait for
#: several such gaps at once.
_LONG_GAP = 1 << 27
#: The most payload of a new packet.
_MOST_PAYLOAD = 65_000
_EDGES = SYN | FIN | RST
_HALF, _WRAP = 1 << 31, 1 << 32
_TTL = 64
_MAPPED = bytes(10) + b"\xff\xff"
#: TCP options: no-operation, end of options, and SACK, whose blocks count encrypted bytes.
_NOP, _END, _SACK = 1, 0, 5
#: Plain bytes of one record. `stream`: 2 * connection + direction. `place`: in the file of plain bytes.
_PIECE = np.dtype([("packet", "i8"), ("offset", "i8"), ("place", "i8"), ("length", "i4"), ("stream", "i4")])


def _nearest(sequence: int, known: int, offset: int) -> int:
    """The offset of a sequence number, near that of a known one."""
    return offset + (sequence - known + _HALF) % _WRAP - _HALF


@dataclass(slots=True)
class _Marks:
    """How far the plain bytes of a stream are when so many encrypted bytes came. `ends`: offsets of encrypted bytes,
    ascending, from the stream's first record on; `plain`: offsets of plain bytes. `records`: ends of records that have
    no mark so far."""

    sequence: int = -1  # of the latest record,
    offset: int = 0  # and its offset
    first: int = -1  # sequence number of offset 0
    size: int = 0  # plain bytes so far
    records: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    plain: array[int] = field(default_factory=lambda: array("q"))

    def _offset_of(self, sequence: int) -> int:
        if self.sequence < 0:
            self.first = self.sequence = sequence
        self.offset, self.sequence = _nearest(sequence, self.sequence, self.offset), sequence
        return self.offset

    def add_record(self, sequence: int, length: int) -> None:
        """A record was read: its first byte's sequence number, and its length."""
        self.records.append(self._offset_of(sequence) + length)

    def add(self, end: int, size: int) -> int:
        """`size` more plain bytes are there with the encrypted byte before the offset `end`; return their offset."""
        start = self.size
        self.size += size
        self.ends.append(max(end, self.ends[-1] if self.ends else end))
        self.plain.append(self.size)
        return start

    def add_plain(self, sequence: int, size: int) -> int:
        """Plain bytes of a record, or a PROXY header; return their offset."""
        end = _nearest(sequence, self.sequence, self.offset) + size if self.sequence >= 0 else 0
        at = bisect_right(self.records, end - 1)
        end = self.records[at] if at < len(self.records) else end
        del self.records[:at]
        return self.add(end, size)

    def add_gap(self, sequence: int, size: int) -> None:
        """Plain bytes are missing before a record (0: at the end of the stream)."""
        if sequence and self.sequence >= 0:
            end = _nearest(sequence, self.sequence, self.offset)
        else:
            end = (self.ends[-1] if self.ends else 0) + 1
        self.add(end, min(size, _LONG_GAP))


class _PlainBytes(ConnectionPlaces):
    """What the first pass finds: the plain bytes of all decrypted connections, by packet."""

    def __init__(self, file: UnnamedFile) -> None:
        super().__init__()
        self._file = file
        self._used = 0
        self._pieces: list[Array] = []
        self.late: set[int] = set()  # connections of which encrypted chunks passed
        self.marks: defaultdict[int, _Marks] = defaultdict(_Marks)  # by stream

    def add_record(self, tracked: Tracked, row: RecordRow, _: Array) -> None:
        """See a record of any connection: the method of a `TlsLayer`."""
        if row.kind == ROW_RECORD:
            stream = 2 * int(self.numbers[tracked.connection]) + row.direction
            self.marks[stream].add_record(row.seq, row.length)

    def add_plain(self, part: Assembled, tracked: dict[int, Tracked]) -> None:
        """See the chunks of a part in which plain bytes are in place of records."""
        columns = ("kind", "connection", "direction", "source", "at", "captured", "length", "seq", "packet")
        chunks = part.chunks
        # While a connection waits for its secrets, only a PROXY header passes.
        decrypted = [number for number, each in tracked.items() if each.mode in (DECRYPTED, HOLDING)]
        chunks = chunks[np.isin(chunks["connection"], decrypted) & (chunks["kind"] <= CHUNK_GAP)]
        found = []
        for row in zip(*(chunks[name].tolist() for name in columns), strict=True):
            kind, connection, direction, source, at, captured, length, seq, packet = row
            if not length:
                continue
            stream = 2 * int(self.numbers[connection]) + direction
            if kind == CHUNK_GAP:
                self.marks[stream].add_gap(seq, length)
            elif kind == CHUNK_DATA:
                data = (part.held if source == FROM_HELD else part.block)[at : at + captured]
                self._file.file.write(data.data)
                found.append((packet, self.marks[stream].add_plain(seq, length), self._used, captured, stream))
                self._used += captured
        if found:
            self._pieces.append(np.array(found, _PIECE))

    def end(self, part: Assembled, engine: Engine) -> None:
        super().end(part, engine)
        for connection in part.ended.tolist():
            tracked = engine.tls.tracked.get(connection)
            if tracked is not None and tracked.was_late:
                self.late.add(int(self.numbers[connection]))

    def pieces(self) -> Array:
        """_PIECE of all connections, in order of packets."""
        rows = np.concatenate(self._pieces) if self._pieces else np.zeros(0, _PIECE)
        return rows[np.argsort(rows["packet"], kind="stable")]


class _NotedLayer(TlsLayer):
    """A layer whose plain bytes are noted."""

    def __init__(self, read: ReadOptions, plain: _PlainBytes) -> None:
        super().__init__(read.key_log, plain.add_record)
        self._plain = plain

    def read(self, part: Assembled, now: int = 0) -> Assembled:
        made = super().read(part, now)
        self._plain.add_plain(made, self.tracked)
        return made


class _Side:
    """One direction of a connection in the second pass. Offsets count from the first byte after its SYN."""

    def __init__(self, base: int, marks: _Marks | None) -> None:
        self.base = base
        self._marks = marks or _Marks()
        self._shift = (self._marks.first - base) % _WRAP if self._marks.first >= 0 else 0
        self._latest = 0
        self._fin = -1  # the offset behind the last encrypted byte
        self.acked = self.window = -1  # as its sender last wrote them

    def offset_of(self, sequence: int) -> int:
        """The offset of the encrypted byte with a sequence number."""
        self._latest = _nearest(sequence, self.base + self._latest, self._latest)
        return self._latest

    def end(self, offset: int) -> None:
        """A FIN follows the encrypted bytes before an offset."""
        self._fin = offset

    def plain_at(self, offset: int) -> int:
        """How many plain bytes, and FINs, the encrypted bytes before an offset make."""
        at = bisect_right(self._marks.ends, offset - self._shift)
        return (self._marks.plain[at - 1] if at else 0) + (0 <= self._fin < offset)


class _NewSegment(NamedTuple):
    seq: int
    ack: int
    flags: int
    payload: bytes


class _Connection:
    """A decrypted connection in the second pass. `ends`: as in CONNECTION_PLACE."""

    def __init__(self, ends: bytes, sides: tuple[_Side, _Side]) -> None:
        *halves, a_port, b_port = struct.unpack("=4Q2i", ends)
        a, b = (struct.pack(">2Q", *halves[at : at + 2]).removeprefix(_MAPPED) for at in (0, 2))
        self._addresses, self._ports = (a, b), (a_port, b_port)
        self._sides = sides

    def segments(self, segment: Segment, pieces: list[tuple[int, bytes]]) -> Iterator[_NewSegment]:
        """What becomes of a segment. `pieces`: the plain bytes that it completes, with their offsets."""
        own, other = self._sides[segment.direction], self._sides[1 - segment.direction]
        flags = segment.tcp_flags
        end = own.offset_of(segment.seq + bool(flags & SYN)) + segment.wire
        acked = other.plain_at(other.offset_of(segment.ack)) if flags & ACK else own.acked
        ack = (other.base + acked) % _WRAP if flags & ACK else 0
        if flags & FIN:
            own.end(end)
        for offset, data in pieces:
            yield _NewSegment((own.base + offset) % _WRAP, ack, flags & ~_EDGES, data)
        if flags & _EDGES:
            # A SYN comes before the first byte, and a FIN is counted only for what follows it.
            seq = segment.seq if flags & SYN else (own.base + own.plain_at(end)) % _WRAP
            yield _NewSegment(seq, ack, flags & ~PSH, b"")
        elif not pieces and (acked > own.acked or segment.window != own.window):
            yield _NewSegment((own.base + own.plain_at(end)) % _WRAP, ack, flags & ~PSH, b"")
        own.acked, own.window = max(own.acked, acked), segment.window

    def packet(self, new: _NewSegment, old: Segment, options: bytes) -> bytes:
        """The bytes of a packet from its IP header on. Checksums stay 0."""
        direction = old.direction
        source, target = self._addresses[direction], self._addresses[1 - direction]
        tcp = struct.pack(
            ">HHIIBBHHH", self._ports[direction], self._ports[1 - direction], new.seq, new.ack,
            (20 + len(options)) << 2, new.flags, old.window, 0, 0,
        ) + options + new.payload  # fmt: skip
        if len(source) == 4:
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), old.ip_id, 0, _TTL, TCP_PROTOCOL, 0)
        else:
            head = struct.pack(">IHBB", 6 << 28, len(tcp), TCP_PROTOCOL, _TTL)
        return head + source + target + tcp


def write_plain(path: str, output: UnnamedFile, folder: str | None, read: ReadOptions, watch: Watch = never) -> None:
    """Write the packets of the pcapng at `path` to `output`, without the TLS of the connections that `read.key_log`
    decrypts. `folder`: for the plain bytes meanwhile, in a file without a name."""
    with UnnamedFile(folder) as file:
        plain = _PlainBytes(file)
        engine = WatchedEngine(read, apis=frozenset(), tables=False, problems=False)
        engine.places, engine.tls = plain, _NotedLayer(read, plain)
        for _ in Run([path], engine, watch).batches():
            pass
        file.publish()
        _Writer(output, plain, file).write(path, watch)
        output.publish()


class _Writer:
    """The second pass."""

    def __init__(self, output: UnnamedFile, plain: _PlainBytes, file: UnnamedFile) -> None:
        output.restart()
        self._output, self._plain_file = output.file, file.file.fileno()
        self._pieces = plain.pieces()
        self._packets = np.ascontiguousarray(self._pieces["packet"])
        places = plain.connections()
        self._by_ends = connections_by_ends(places, np.ones(len(places), bool))
        self._connections: dict[int, _Connection] = {}
        for number in np.flatnonzero(places["is_decrypted"]).tolist():
            if number not in plain.late:
                base = places["base_seq"][number].tolist()
                a, b = (_Side(base[d], plain.marks.get(2 * number + d)) for d in (0, 1))
                self._connections[number] = _Connection(places["ends"][number].tobytes(), (a, b))
        self._interfaces: dict[tuple[int, bool], int] = {}
        self._output.write(blocks.section_header("kafkatap"))

    def write(self, path: str, watch: Watch) -> None:
        """Read the capture, and write its packets."""
        reader = SourceReader(path, with_texts=False)
        assembler = Assembler(keep_flows=True)
        flows = FlowConnections(assembler, self._by_ends)
        try:
            while reader.fill() and not watch(0):
                new: dict[int, list[bytes]] = {}
                for segments in assembler.read_segments(reader.buffer, reader.packets, 0, reader.count):
                    for number, row in zip(flows.connections_of(segments).tolist(), segments.tolist(), strict=True):
                        segment = Segment._make(row)
                        if number in self._connections and segment.source != QUOTED:
                            block = assembler.pool if segment.source == FROM_HELD else reader.buffer
                            new.setdefault(segment.packet, []).extend(self._new(number, segment, block))
                self._write_block(reader, new)
                assembler.end_block()
                reader.position = reader.count
        finally:
            reader.close()

    def _new(self, number: int, segment: Segment, block: Array) -> Iterator[bytes]:
        """The packets in place of one with a segment of a decrypted connection."""
        options = b""
        if segment.options > 0:
            options = _without_sack(block[segment.at - segment.options : segment.at].tobytes())
        connection = self._connections[number]
        pieces = self._pieces_of(segment.packet, 2 * number + segment.direction)
        for new in connection.segments(segment, pieces):
            yield connection.packet(new, segment, options)

    def _pieces_of(self, packet: int, stream: int) -> list[tuple[int, bytes]]:
        """The plain bytes of a stream that a packet completes, with their offsets: as few as possible."""
        rows = self._pieces[slice(*np.searchsorted(self._packets, (packet, packet + 1)).tolist())]
        found: list[tuple[int, bytearray]] = []
        for offset, place, length in rows[rows["stream"] == stream][["offset", "place", "length"]].tolist():
            if not found or found[-1][0] + len(found[-1][1]) != offset:
                found.append((offset, bytearray()))
            found[-1][1].extend(os.pread(self._plain_file, length, place))
        return [
            (offset + at, bytes(data[at : at + _MOST_PAYLOAD]))
            for offset, data in found
            for at in range(0, len(data), _MOST_PAYLOAD)
        ]

    def _write_block(self, reader: SourceReader, new: dict[int, list[bytes]]) -> None:
        rows, known = reader.blocks_of(np.arange(reader.count))
        numbers = reader.packets["number"][: reader.count].tolist()
        columns = (rows[name].tolist() for name in ("at", "captured", "original", "interface", "ticks"))
        for row, (at, captured, original, interface, ticks) in enumerate(zip(*columns, strict=True)):
            high, low = ticks >> 32 & 0xFFFFFFFF, ticks & 0xFFFFFFFF
            options = known.get(row, ())
            made = new.get(numbers[row])
            if made is None:
                to = self._interface(reader.interfaces[interface], False)
                data = reader.buffer[at : at + captured].tobytes()
                self._output.write(blocks.packet(to, high, low, data, original, options))
                continue
            to = self._interface(reader.interfaces[interface], True)
            for data in made:
                self._output.write(blocks.packet(to, high, low, data, len(data), options))
                options = ()

    def _interface(self, source: SourceInterface, is_plain: bool) -> int:
        """The number of an interface for copied packets, or for new ones."""
        key = source.number, is_plain
        if key not in self._interfaces:
            self._interfaces[key] = len(self._interfaces)
            link_type, snap_length, options = source.link_type, source.snap_length, source.options
            if is_plain:
                link_type, snap_length = link.RAW, LONGEST_PACKET
                options = tuple(option for option in options if option[0] != blocks.FRAME_CHECK_LENGTH)
            self._output.write(blocks.interface_description(link_type, snap_length, options))
        return self._interfaces[key]


def _without_sack(options: bytes) -> bytes:
    """TCP options with no-operations in place of SACK."""
    made, at = bytearray(options), 0
    while at < len(made) and made[at] != _END:
        size = 1 if made[at] == _NOP else made[at + 1] if at + 1 < len(made) else 0
        if size < 1 or at + size > len(made):
            break
        if made[at] == _SACK:
            made[at : at + size] = bytes((_NOP,)) * size
        at += size
    return bytes(made)
