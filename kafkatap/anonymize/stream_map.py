"""`StreamMap`: the new bytes of TCP streams, by connection, direction and offset. All other bytes are filler.

The bytes lie in an unnamed temporary file. Nothing of an original is in it.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

#: One end of a connection: an address (16 bytes, IPv4 mapped into IPv6) and a port.
End = tuple[bytes, int]
_HALF, _WRAP = 1 << 31, 1 << 32
_PIECE = 1 << 20


@dataclass(slots=True)
class Stream:
    """One direction of one connection. `base`: the sequence number of offset 0. Rows are in order of their starts once
    the map is closed."""

    first_packet: int
    base: int = -1
    starts: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    latest: int = 0

    def offset_of(self, sequence: int) -> int:
        """The offset of a sequence number, the one nearest to the latest."""
        distance = (sequence - self.base - self.latest) % _WRAP
        if distance >= _HALF:
            distance -= _WRAP
        self.latest += distance
        return self.latest


class StreamMap:
    """The streams of a capture. Add bytes, `close`, then read."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `release`
        self._used = 0
        self._streams: dict[tuple[End, End], list[Stream]] = {}

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
        for streams in self._streams.values():
            for stream in streams:
                if any(a > b for a, b in zip(stream.starts, stream.starts[1:], strict=False)):
                    order = sorted(range(len(stream.starts)), key=stream.starts.__getitem__)
                    for name in ("starts", "lengths", "places"):
                        setattr(stream, name, array("q", [getattr(stream, name)[k] for k in order]))

    def release(self) -> None:
        """Free the file."""
        self._file.close()

    def new_bytes(self, overlap: int) -> Iterator[bytes]:
        """All bytes that were added, in pieces. Each begins with the last `overlap` bytes of the one before it."""
        for place in range(0, self._used, _PIECE):
            first = max(place - overlap, 0)
            yield self._read(first, min(place + _PIECE, self._used) - first)

    def _read(self, place: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, place)

    def stream_of(self, sender: End, receiver: End, packet: int) -> Stream | None:
        """The latest stream between two ends that began before a packet, or the first one."""
        streams = self._streams.get((sender, receiver))
        if not streams:
            return None
        found = streams[0]
        for stream in streams[1:]:
            if stream.first_packet > packet:
                break
            found = stream
        return found

    def pieces(self, stream: Stream, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The known bytes in a range of offsets: (offset, bytes) in order."""
        starts, lengths = stream.starts, stream.lengths
        row = max(bisect_right(starts, start) - 1, 0)
        while row < len(starts) and starts[row] < end:
            low, high = max(start, starts[row]), min(end, starts[row] + lengths[row])
            if low < high:
                place = stream.places[row] + low - starts[row]
                yield low, self._read(place, high - low)
            row += 1
