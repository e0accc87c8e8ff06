"""Merge several captures into one sequence of packets in time order.

The order follows the packets' times, not the files' names. Only captures whose turn has come are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace

from .capture_bytes import UnreadableBytes
from .capture_reader import BLOCK_SIZE, CaptureReader, count_packets
from .pipes import is_pipe

#: Time stamps step back within one file too. Captures overlap only where they do so by more than this.
SLACK_NS = 1_000_000
#: The numbers reserved for a pipe that overlaps other captures: its packets cannot be counted in advance.
PIPE_PACKETS = 1_000_000_000


def merge_captures(paths: Sequence[str], block_size: int = BLOCK_SIZE) -> Iterator[tuple[CaptureReader, int]]:
    """Yield (reader, end): reader.packets[reader.position:end] come next in time. The caller sets `position` to `end`.

    At its end each capture is yielded once more with end == position: its report is complete then. Of several captures,
    one that cannot be opened is damaged. OSError where the only one cannot be opened, or one is not there.
    """
    waiting: list[_Waiting] = []
    finished: list[CaptureReader] = []
    for order, path in enumerate(paths):
        keep = is_pipe(path) or len(paths) == 1
        reader = _opened(path, block_size if keep else 65_536, alone=len(paths) == 1)
        if not reader.fill():
            finished.append(reader)
            reader.close()
            continue
        waiting.append((reader.next_time(), order, reader if keep else None, path))
        if not keep:
            reader.close()
    for reader in finished:
        yield reader, reader.position
    waiting.sort(key=lambda w: w[:2])
    merge = _Merge(deque(waiting), block_size)
    try:
        yield from merge.runs()
    finally:  # also where the caller stops early
        merge.close()


def _opened(path: str, block_size: int, alone: bool) -> CaptureReader:
    try:
        return CaptureReader(path, block_size)
    except FileNotFoundError:
        raise
    except OSError as error:
        if alone:
            raise
        return CaptureReader(path, block_size, UnreadableBytes(error))


#: A capture that has packets: (time of the first one, place in `paths`, reader or None, path).
_Waiting = tuple[int, int, CaptureReader | None, str]


class _Merge:
    """Merges captures that have packets. `waiting` holds those that are not yet open, sorted by time."""

    def __init__(self, waiting: deque[_Waiting], block_size: int) -> None:
        self._waiting = waiting
        self._block_size = block_size
        self._active: list[tuple[int, int, CaptureReader]] = []  # a heap: (time of the next packet, place, reader)
        self._next_number = 1  # of the first packet of the next capture that opens
        self._uncounted: list[CaptureReader] = []  # open captures whose packets `_next_number` does not count yet

    def runs(self) -> Iterator[tuple[CaptureReader, int]]:
        active = self._active
        while self._waiting or active:
            if not active or (self._waiting and self._waiting[0][0] < active[0][0]):
                self._open_next()
                continue
            _, order, reader = active[0]
            others = [other[0] for other in active[1:3]]
            others += [self._waiting[0][0]] if self._waiting else []
            end = reader.end_of_run(min(others) + SLACK_NS if others else None)
            if end == reader.position:
                end += 1
            yield reader, end
            if reader.fill():
                heapreplace(active, (reader.next_time(), order, reader))
                continue
            self._next_number = max(self._next_number, reader.report.first_packet + reader.report.packets)
            self._uncounted = [other for other in self._uncounted if other is not reader]
            yield reader, reader.position
            heappop(active)
            reader.close()

    def _open_next(self) -> None:
        _, order, kept, path = self._waiting.popleft()
        # These overlap the next capture. Their packets are counted first, so that its numbers follow.
        for other in self._uncounted:
            first, path_of_other = other.report.first_packet, other.report.path
            count = PIPE_PACKETS if is_pipe(path_of_other) else count_packets(path_of_other)
            self._next_number = max(self._next_number, first + count)
        opened = kept if kept is not None else CaptureReader(path, self._block_size)
        opened.number_from(self._next_number)
        self._uncounted = [opened]
        if opened.fill():
            heappush(self._active, (opened.next_time(), order, opened))

    def close(self) -> None:
        for reader in (*(a[2] for a in self._active), *(w[2] for w in self._waiting)):
            if reader is not None:
                reader.close()
