"""Packets that go to chunks in one pass, and the same packets through the tables of packets and segments.

`assert_same_streams(path)` asserts that both ways make the same chunks, connections and counts of a capture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.captures.readahead import AHEAD
from kafkatap.engine.assembly import Assembled, Assembly
from kafkatap.kernels.table import SlotTable
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import CHUNK_DATA, CHUNK_START, CONNECTION, DIRECTION, HELD, Bounds

#: Fields that number rows, or that mean nothing until the connection is closed.
_UNSTABLE = ("flow", "previous", "closed_number", "is_quiet")
CONNECTION_FIELDS = [name for name in CONNECTION.names or () if name not in _UNSTABLE]
_DIRECTION = [name for name in DIRECTION.names or () if name not in ("gap_previous", "gap_next")]


def _of_direction(row: Any) -> list[Any]:
    """The fields of a DIRECTION row. `sent` means something only beyond `next`."""
    return [max(row["sent"], row["next"]) if name == "sent" else row[name] for name in _DIRECTION]


@dataclass
class Streams:
    """What reassembly made of a capture. `chunks`: by the connection's serial number, with their bytes."""

    chunks: dict[int, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[int, list[Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    payload: int = 0
    times: list[tuple[int, int]] = field(default_factory=list)
    packets: int = 0
    report: SimpleNamespace = field(default_factory=SimpleNamespace)  # as `FileReport`
    _serials: dict[int, int] = field(default_factory=dict)

    def add(self, part: Assembled) -> None:
        self.packets += part.packets
        assert part.chunk_count <= len(part.table), "chunks were written beyond their table"
        if part.first is not None and part.last is not None:
            self.times.append((part.first, part.last))
        for row in part.chunks:
            if row["kind"] == CHUNK_START:
                self._serials[int(row["connection"])] = int(row["at"])
            values = [int(row[name]) for name in ("kind", "direction", "ts", "packet", "length", "captured", "opening")]
            data = b""
            if row["kind"] == CHUNK_DATA:
                values.append(int(row["seq"]))
                data = (part.block, part.held)[row["source"]][row["at"] :][: row["captured"]].tobytes()
            self.chunks[self._serials[int(row["connection"])]].append((*values, data))
        assert len(part.started) == np.count_nonzero(part.chunks["kind"] == CHUNK_START) == len(part.started_flows)
        both = part.ended_directions.reshape(-1, 2)
        for number, row, directions in zip(part.ended.tolist(), part.ended_rows, both, strict=True):
            serial = self._serials[number]
            assert serial not in self.ended
            self.ended[serial] = [[row[n] for n in CONNECTION_FIELDS], [_of_direction(d) for d in directions]]

    def bounds(self) -> tuple[int, int] | None:
        """The earliest and the latest time."""
        return (min(low for low, _ in self.times), max(high for _, high in self.times)) if self.times else None


def tables(size: int = 0, bounds: Bounds | None = None) -> Assembly:
    """Reassembly whose tables have room for `size` rows at first (0: as usual)."""
    if not size:
        return Assembly(Assembler(turns=AHEAD, bounds=bounds))
    assembler = Assembler(connections=size, chunks=size, turns=AHEAD, bounds=bounds)
    assembler._held = SlotTable(size, held=HELD)
    assembler._pools = [np.zeros(size, np.uint8) for _ in range(AHEAD)]
    return Assembly(assembler)


def in_one_pass(path: Path, block_size: int, assembly: Assembly) -> Streams:
    def parts(reader: CaptureReader) -> Iterator[Assembled]:
        while reader.next_block():
            yield from assembly.read(reader.buffer, reader.assemble)

    return _streams(path, block_size, assembly, parts)


def through_all_tables(path: Path, block_size: int, assembly: Assembly) -> Streams:
    def parts(reader: CaptureReader) -> Iterator[Assembled]:
        while reader.fill():
            yield from assembly.feed(reader.buffer, reader.packets, reader.position, reader.count)
            reader.position = reader.count

    return _streams(path, block_size, assembly, parts)


def _streams(path: Path, block_size: int, assembly: Assembly, parts: Any) -> Streams:
    seen = Streams()
    reader = CaptureReader(str(path), block_size)
    for part in parts(reader):
        seen.add(part)
    for part in assembly.end_all():
        seen.add(part)
    reader.close()
    seen.counts, seen.payload = assembly.assembler.packet_counts, assembly.assembler.payload_bytes
    # `Run` counts packets in the report where it reads in one pass.
    first, last = seen.bounds() or (None, None)
    counted = {"packets": seen.packets, "first": first, "last": last}
    seen.report = SimpleNamespace(**vars(reader.report) | counted)
    assert reader.report.packets in (0, seen.packets)
    return seen


def assert_same_streams(
    path: Path, block_size: int = 1 << 20, size: int = 0, bounds: Bounds | None = None
) -> tuple[Streams, Streams]:
    got = in_one_pass(path, block_size, tables(size, bounds))
    wanted = through_all_tables(path, block_size, tables(0, bounds))
    assert got.chunks == wanted.chunks
    assert got.ended == wanted.ended
    assert (got.counts, got.payload, got.packets) == (wanted.counts, wanted.payload, wanted.packets)
    assert got.bounds() == wanted.bounds()
    assert got.report == wanted.report
    return got, wanted
