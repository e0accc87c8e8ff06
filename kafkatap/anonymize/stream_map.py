"""`StreamMap`: the new bytes of TCP streams, by connection, direction and offset. All other bytes are filler.

The bytes lie in an unnamed temporary file. Nothing of an original is in it.
"""

from __future__ import annotations

import mmap
import tempfile
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .segments import PIECE, STREAM, StreamTables

Array = np.ndarray[Any, Any]
#: One end of a connection: an address (16 bytes, IPv4 mapped into IPv6) and a port.
End = tuple[bytes, int]
_NOTHING = StreamTables(np.zeros(0, STREAM), np.zeros(0, PIECE), np.zeros(0, np.uint8))


@dataclass(slots=True)
class Stream:
    """One direction of one connection. `base`: the sequence number of offset 0. Rows: bytes that were added."""

    first_packet: int
    base: int = -1
    starts: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))


class StreamMap:
    """The streams of a capture. Add bytes, `close`, then read."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `release`
        self._used = 0
        self._streams: dict[tuple[End, End], list[Stream]] = {}
        self._first: dict[tuple[End, End], int] = {}
        self.tables = _NOTHING

    def begin(self, sender: End, receiver: End, first_packet: int) -> Stream:
        """A new stream. Those of the same ends come in the order of their first packets."""
        stream = Stream(first_packet)
        self._streams.setdefault((sender, receiver), []).append(stream)
        return stream

    def add(self, stream: Stream, offset: int, data: bytes | bytearray) -> None:
        """Set the bytes of a stream from an offset on."""
        if data:
            self._file.write(data)
            stream.starts.append(offset)
            stream.lengths.append(len(data))
            stream.places.append(self._used)
            self._used += len(data)

    def close(self) -> None:
        """Prepare for reading: nothing is added any more."""
        self._file.flush()
        known = [stream for streams in self._streams.values() for stream in streams]
        rows, pieces = np.zeros(len(known), STREAM), [np.zeros(0, PIECE)]
        for ends, streams in self._streams.items():
            self._first[ends] = len(pieces) - 1
            pieces += map(_pieces_of, streams)
        stops = np.cumsum([len(some) for some in pieces])
        rows["first"], rows["stop"] = stops[:-1], stops[1:]
        rows["base_seq"] = [stream.base for stream in known]
        rows["first_packet"] = [stream.first_packet for stream in known]
        rows["following"] = np.arange(1, len(known) + 1)
        rows["following"][np.cumsum([len(streams) for streams in self._streams.values()], dtype=np.int64) - 1] = -1
        # An empty file cannot be mapped.
        data = np.frombuffer(mmap.mmap(self._file.fileno(), self._used), np.uint8) if self._used else _NOTHING.data
        self.tables = StreamTables(rows, np.concatenate(pieces), data)
        self._streams.clear()

    def release(self) -> None:
        """Free the file."""
        self.tables = _NOTHING
        self._file.close()

    def first_of(self, sender: End, receiver: End) -> int:
        """The row of the first stream between two ends, -1 if there is none."""
        return self._first.get((sender, receiver), -1)


def _pieces_of(stream: Stream) -> Array:
    """What was added to a stream, in order of offsets."""
    rows = np.zeros(len(stream.starts), PIECE)
    rows["offset"], rows["length"], rows["place"] = stream.starts, stream.lengths, stream.places
    found: Array = rows[np.argsort(rows["offset"], kind="stable")]
    return found
