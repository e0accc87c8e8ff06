"""The bytes of streams that wait for their frames, and the places of frames in them.

The dissector says which packet brought the first byte of a frame, but not where the frame lies in its stream. Frames of
a stream follow one another, so the next one is mostly where the last one ended. After a gap it is searched in the bytes
of its first packet. A place is right only if all bytes of the frame are there.

Bytes behind the latest frame wait. Those of a stream that is not Kafka are dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter

from .stream_map import Stream

#: Bytes that wait in one stream, at most: more than the longest frame.
MOST_WAITING = 160 << 20
#: Bytes that wait while nothing shows that a connection is Kafka.
MOST_UNKNOWN = 4 << 20
_COMPARED_FIRST = 64
#: Bytes before the end of the latest frame that are kept, for frames that come late.
_KEPT_BEHIND = 1 << 16


@dataclass(slots=True)
class _Run:
    """Bytes without a gap. `packets`: (offset, packet) where the bytes of a packet begin."""

    start: int
    data: bytearray = field(default_factory=bytearray)
    packets: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.data)


_start_of = attrgetter("start")


@dataclass(slots=True)
class CapturedStream:
    """One direction of a connection. `end`: the offset behind its bytes so far; `cursor`: behind its latest frame."""

    stream: Stream
    end: int = 0
    cursor: int = 0
    is_kafka: bool = False
    tls_next: int = -1  # where the next TLS record begins, if that is known
    runs: list[_Run] = field(default_factory=list)

    def append(self, data: bytes, length: int, packet: int, keep: bool) -> None:
        """Add `length` bytes of which `data` was captured. `keep`: a frame may lie in them."""
        if keep and data:
            if not self.runs or self.runs[-1].end != self.end:
                self.runs.append(_Run(self.end))
            run = self.runs[-1]
            run.packets.append((self.end, packet))
            run.data += data
        elif not keep:
            self.runs.clear()
        self.end += length
        most = MOST_WAITING if self.is_kafka else MOST_UNKNOWN
        if self.runs and self.end - self.runs[0].start > most and self._waiting > most:
            self._drop_before(self.end - most // 2)

    def locate(self, frame: bytes | memoryview, packet: int, size: int) -> int:
        """The offset of a frame whose first byte came with a packet, -1 if it is not found. `size`: that of the whole
        frame with its size field. The next frame is expected behind it."""
        at = self.cursor
        run = self._run_at(at)
        if run is None or not run.data.startswith(frame, at - run.start):
            at = self._search(frame, packet)
            if at < 0:
                return -1
        if at >= self.cursor:
            self.cursor = at + size
            self._drop_before(self.cursor - _KEPT_BEHIND)
        return at

    def between(self, start: int, end: int) -> bytes | None:
        """The bytes in a range of offsets; None if one of them did not wait."""
        run = self._run_at(start)
        if run is None or end > run.end:
            return None
        return bytes(run.data[start - run.start : end - run.start])

    @property
    def _waiting(self) -> int:
        """Bytes that wait, without gaps."""
        return sum(len(run.data) for run in self.runs)

    def _run_at(self, offset: int) -> _Run | None:
        row = bisect_right(self.runs, offset, key=_start_of) - 1
        return self.runs[row] if row >= 0 and offset < self.runs[row].end else None

    def _search(self, frame: bytes | memoryview, packet: int) -> int:
        """The first place of a frame that starts in a packet: behind the latest frame, else before its end."""
        late = -1
        for run in self.runs:
            for row, (offset, number) in enumerate(run.packets):
                if number != packet:
                    continue
                stop = run.packets[row + 1][0] if row + 1 < len(run.packets) else run.end
                at, last = offset - run.start, stop - run.start
                while True:
                    at = run.data.find(frame[:_COMPARED_FIRST], at, last + len(frame[:_COMPARED_FIRST]) - 1)
                    if at < 0 or at >= last:
                        break
                    if run.data.startswith(frame, at):
                        if run.start + at >= self.cursor:
                            return run.start + at
                        late = run.start + at if late < 0 else late
                    at += 1
        return late

    def _drop_before(self, offset: int) -> None:
        """Drop bytes before an offset, if that frees much."""
        while self.runs and self.runs[0].end <= offset:
            del self.runs[0]
        if self.runs and offset - self.runs[0].start > max(_KEPT_BEHIND, len(self.runs[0].data) // 2):
            run = self.runs[0]
            del run.data[: offset - run.start]
            run.start = offset
            run.packets = [(max(at, offset), packet) for at, packet in _from(run.packets, offset)]


def _from(packets: list[tuple[int, int]], offset: int) -> list[tuple[int, int]]:
    """The packets from the one on that has the byte at an offset."""
    first = 0
    for row, (at, _) in enumerate(packets):
        if at > offset:
            break
        first = row
    return packets[first:]
