"""Captures cut into splits by byte range, each of which can be read without those before it.

A split owns the records that begin in its range. `SplitReader` searches for the first of them (`boundaries`), reads on
to the end of the last one, and tells where both are: `begins` and `ends`. A search can be misled by what packets hold,
but not without notice: in one file each split must begin where the one before ended, and who reads all of them asks
`misplaced` for those that do not, and reads them again with the `exact` place. In the same way `misinformed` tells
which splits of a pcapng did not know of interfaces that are described in the middle of the file.

Adding up the reports of a file's splits: packets and bytes are sums; link types and interfaces those of all; `damage`
is that of the first split that met any, and splits after it do not count (`void`), as a capture is not read beyond its
damage; packets dropped are told of each interface since the capture's start, so the last one told counts (`dropped`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np

from kafkatap.kernels import store
from kafkatap.reassembly import boundaries
from kafkatap.reassembly.errors import CaptureError
from kafkatap.reassembly.scanner import HEADER_SIZE, MODIFIED, Scanner

from ..kernel_modules import KERNEL_MODULES
from .sources import BLOCK_SIZE, CaptureReader, Reading
from .storage import Input, open_input, size_of

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SPLIT_SIZE = 64 << 20
#: Bytes after a split's start in which a chain of records must hold: of these, then of those (pcapng: huge blocks).
_WINDOWS = (512 << 10, 17 << 20)
#: Bytes read past a split's end at once, for its last record.
_BEYOND = 64 << 10
_HEAD = 64 << 10
#: Of a pcap's head is kept as much as tells of the format and of the first packet's time.
_KEPT = HEADER_SIZE + 4
#: Captures whose first packet has an earlier time (s) do not know the time.
_CLOCK_WAS_SET = 1 << 28
_PACKET_BLOCKS = (2, 3, 6)
_DESCRIPTIONS = (0x0A0D0D0A, 1)

store.use(KERNEL_MODULES)  # an executor may read splits before it has an engine, or without one


@dataclass(frozen=True, slots=True)
class Split:
    """The records of a capture that begin in bytes start:end of its file (end None: all the rest).

    `file` counts the files of a plan, `number` the splits of a file, both from 0. `head` is the file's first 28 bytes,
    b"" for a file that is read as a whole. `interfaces`: the section headers and interface descriptions of a pcapng
    that lie before `start`, as far as known; b"" for none. `parts`: into how many splits the file is cut. `size`: bytes
    of the whole file, -1 where that is not known: what is added to it later is not read (but of compressed ones).
    """

    path: str
    start: int = 0
    end: int | None = None
    file: int = 0
    number: int = 0
    head: bytes = b""
    interfaces: bytes = b""
    size: int = -1
    parts: int = 1

    @property
    def length(self) -> int:
        """Bytes of its range."""
        return (self.size if self.end is None else self.end) - self.start

    def start_of(self, number: int) -> int:
        """Where split `number` of the same file starts."""
        return self.size * number // self.parts


# ---------------------------------------------------------------- planning


def plan_splits(paths: Sequence[str], size: int = SPLIT_SIZE) -> list[Split]:
    """Splits of at most `size` bytes (0: whole files), of each file of the same length, in the order of the paths.

    Reads no more than the heads of files longer than that. Compressed files, and those that are no captures, are one
    split each. OSError of a file that cannot be opened is the caller's.
    """
    with ThreadPoolExecutor(32) as threads:  # object stores answer late, but many at once
        plans = threads.map(lambda file, path: _plan_file(file, path, size), range(len(paths)), paths)
        return [split for splits in plans for split in splits]


def _plan_file(file: int, path: str, size: int) -> list[Split]:
    whole = Split(path, file=file, size=size_of(path))
    return [whole] if size <= 0 or whole.size <= size else cut(whole, size)


def cut(whole: Split, size: int) -> list[Split]:
    """Splits of at most `size` bytes of a file, which is read as a whole if it has to be."""
    path, length = whole.path, whole.size
    data = _read(path, 0, _HEAD)
    head = data[:_KEPT]
    scanner = Scanner(1)
    try:
        scanner.start(head)
    except CaptureError:  # compressed, or none: its reader says so
        return [whole]
    if scanner.format == MODIFIED:  # rare, and not worth another search for records
        return [whole]
    interfaces = b""
    if scanner.format == "pcapng":
        interfaces = _first_descriptions(data)
        if not interfaces:  # damaged in its first block
            return [whole]
    whole = replace(whole, head=head, parts=-(-length // size))
    starts = [whole.start_of(n) for n in range(whole.parts)]
    return [
        replace(whole, start=start, end=end, number=n, interfaces=interfaces if n else b"")
        for n, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True))
    ]


def _read(path: str, start: int, count: int) -> bytes:
    file = open_input(path)
    try:
        return _window(file, start, count).tobytes()
    finally:
        file.close()


def _window(file: Input, start: int, count: int) -> Bytes:
    """Up to `count` bytes from `start` on; fewer at the file's end."""
    data = np.empty(count, np.uint8)
    view = memoryview(cast(Any, data))
    file.seek(start)
    done = 0
    while done < count:
        got = file.readinto(view[done:])
        if not got:
            break
        done += got
    return data[:done]


def first_descriptions(path: str) -> bytes:
    """The section headers and interface descriptions of a pcapng, up to its first packet: what a plan knows of them."""
    return _first_descriptions(_read(path, 0, _HEAD))


def _first_descriptions(data: bytes) -> bytes:
    order: Any = "big" if data[8:12] == b"\x1a\x2b\x3c\x4d" else "little"
    parts = []
    at = 0
    while at + 12 <= len(data):
        kind = int.from_bytes(data[at : at + 4], order)
        length = int.from_bytes(data[at + 4 : at + 8], order)
        if kind in _PACKET_BLOCKS or length < 12 or at + length > len(data):
            break
        if kind in _DESCRIPTIONS:
            parts.append(data[at : at + length])
        at += length
    return b"".join(parts)


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Found:
    """The first record that begins at a byte or after it (None: not found; the file's size: none begins there), and
    whether nothing in the bytes around it speaks for another one."""

    place: int | None
    sure: bool


def find_record(file: Input, split: Split, target: int | None = None) -> Found:
    """Search for the first record that begins at `target` (the split's start) or later. Same bytes, same answer."""
    target = split.start if target is None else target
    scanner = Scanner(1)
    first = scanner.start(split.head)
    if target <= first:
        return Found(first, True)
    scanner.know(split.interfaces)
    start = max(first, (target - boundaries.BEFORE) & ~3)
    # Where the window begins with the file's first record, that is the only one to begin from.
    last = 0 if start == first else target - start
    for after in _WINDOWS[: 2 if scanner.format == "pcapng" else 1]:
        data = _window(file, start, min(target - start + after, split.size - start))
        if len(data) <= target - start:
            break
        # A capture's last record is whole, as long as there is a chain that says so.
        for whole in (1, 0) if start + len(data) >= split.size else (0,):
            found = _search(data, (target - start, last, whole), split, scanner)
            if found.place is not None:
                return Found(min(start + found.place, split.size), found.sure)
    return Found(None, False)


def _search(data: Bytes, wanted: tuple[int, int, int], split: Split, scanner: Scanner) -> Found:
    """What the kernels find in a window, as a place in it."""
    landing = np.empty(len(data), np.int32)
    told = np.zeros(2, np.int64)
    if scanner.format == "pcapng":
        place = boundaries.find_pcapng(data, len(data), *wanted, scanner.swapped, landing, told)
        return Found(place if place >= 0 else None, int(told[boundaries.OTHERS]) == 0)
    second = 1_000_000 if scanner.format == "pcap" else 1_000_000_000
    about = _about(split, scanner)
    place = boundaries.find_pcap(data, len(data), *wanted, scanner.swapped, second, about, landing, told)
    if told[boundaries.OTHERS] >= 0:
        return Found(place, int(told[boundaries.OTHERS]) == 0)
    # Some programs write fractions of a second, or first times, that cannot be meant: of these nothing is sure.
    guess = boundaries.find_pcap(data, len(data), *wanted, scanner.swapped, 1 << 32, 0, landing, told)
    if told[boundaries.OTHERS] >= 0 or place < 0:
        place = guess
    return Found(place if place >= 0 else None, False)


def _about(split: Split, scanner: Scanner) -> int:
    """The time of a pcap's first packet (s); 0 if it cannot be one."""
    time = int.from_bytes(split.head[HEADER_SIZE:_KEPT], "big" if scanner.swapped else "little")
    return time if time > _CLOCK_WAS_SET else 0


class _Part:
    """Bytes of a file from some place on, and little more of them than up to `end`."""

    compression = ""

    def __init__(self, file: Input, end: int | None, size: int) -> None:
        self._file = file
        self._at = 0
        self._end = end
        self._size = size
        self.bytes_read = 0

    def seek(self, place: int) -> None:
        self._at = self._file.seek(place)

    def readinto(self, view: memoryview) -> int:
        if self._end is not None:
            view = view[: max(self._end - self._at, 0) + _BEYOND]
        view = view[: max(self._size - self._at, 0)]
        count = (self._file.readinto(view) or 0) if len(view) else 0
        self._at += count
        self.bytes_read += count
        return count

    @property
    def progress(self) -> int:
        return self.bytes_read

    def close(self) -> None:
        self._file.close()


class _Whole(Reading):
    """A whole file as it was planned: what is added to it later belongs to no plan that stands."""

    def __init__(self, split: Split) -> None:
        super().__init__(split.path)
        self._limit = split.size if split.size >= 0 and not self.compression else None

    def readinto(self, view: memoryview) -> int:
        if self._limit is not None:
            view = view[: self._limit - self.bytes_read]
        return super().readinto(view) if len(view) or self._limit is None else 0


class SplitReader(CaptureReader):
    """`CaptureReader` for one split: its packets, numbered from 1, up to the last one that begins in it.

    `exact` is where its first record begins, if that is known; else it is searched for. `begins` is where it began
    (None: nothing was found; there are no packets then). When it is over, `ends` is where the first record begins that
    it did not take; None where the file's end or damage was met. A file that is read as a whole begins at 0.
    `interfaces_told`: the section headers and interface descriptions that it met. In its report, `bytes` are those of
    its records and of what lies between them, `damage` tells the byte in the file.
    """

    def __init__(self, split: Split, block_size: int = BLOCK_SIZE, exact: int | None = None) -> None:
        self.split = split
        self.begins: int | None = 0
        self._exact = exact
        self._told: list[bytes] = []
        self._places = np.zeros(64, np.int64)
        self._part = _Part(open_input(split.path), split.end, split.size) if split.head else None
        super().__init__(split.path, block_size, self._part or _Whole(split))
        if self._part is not None:
            self.report.bytes = self._bytes_of_report()

    def _begin(self) -> None:
        if self._part is None:
            super()._begin()
            return
        split = self.split
        self._scanner.start(split.head)
        self._scanner.know(split.interfaces)
        if split.end is not None:
            self._stop = split.end
        self.begins = self._exact
        if self.begins is None:
            self.begins = find_record(self._part._file, split).place
        self._over = self.begins is None or self.begins >= self._stop
        if self.begins is not None:
            self._base = self.begins
            self._part.seek(self.begins)

    @property
    def ends(self) -> int | None:
        met = self.begins is None or self.report.damage is not None or self.reached < self._stop
        return None if met else self.reached

    @property
    def reached(self) -> int:
        """Up to which byte of the file (decompressed) all was taken."""
        return self._base + self._at

    @property
    def interfaces_told(self) -> bytes:
        return b"".join(self._told)

    @property
    def drops(self) -> dict[int, int]:
        """Packets dropped as last told of each interface, by its number in the file (a pcapng's)."""
        return self._scanner.drops

    def _bytes_of_report(self) -> int:
        if self._part is None or self.begins is None:
            return super()._bytes_of_report()
        reached = self.ends
        first = self.begins if self.split.start else 0
        return (self._base + self._end if reached is None else reached) - first

    def _take_scan(self) -> None:
        first, swapped = self._at, self._scanner.swapped
        super()._take_scan()
        if self._scanner.format != "pcapng":
            return
        while True:
            count = boundaries.find_descriptions(self.buffer, first, self._at, swapped, self._places)
            if 2 * count <= len(self._places):
                break
            self._places = np.zeros(4 * count, np.int64)
        for n in range(count):
            self._told.append(self.buffer[self._places[2 * n] : self._places[2 * n + 1]].tobytes())


# ---------------------------------------------------------------- putting splits together


def misplaced(told: Iterable[tuple[Split, int | None, int | None]]) -> list[tuple[Split, int]]:
    """Of each file the first split that did not begin where the one before ended, and where it begins.

    `told` are splits, in their order, with their `begins` and `ends`. Asked again after those were read again.
    """
    wrong = []
    for _, group in _by_file(told):
        expected: int | None = None
        for split, begins, ends in group:
            if expected is not None and begins != expected:
                wrong.append((split, expected))
                break
            if ends is None:
                break
            expected = ends
    return wrong


def void(told: Iterable[tuple[Split, int | None, int | None]]) -> list[Split]:
    """The splits beyond the damage (or the end) of their file, once none are `misplaced`: they do not count."""
    beyond = []
    for _, group in _by_file(told):
        over = False
        for split, _, ends in group:
            if over:
                beyond.append(split)
            over = over or ends is None
    return beyond


def misinformed(told: Iterable[tuple[Split, bytes]]) -> list[Split]:
    """The splits that did not know of all interfaces described before them, as they are to be read again.

    `told` are splits, in their order, with their `interfaces_told`. Asked again after these were read again.
    """
    wrong = []
    for _, group in _by_file(told):
        known = b""
        for split, more in group:
            if split.interfaces != known:
                wrong.append(replace(split, interfaces=known))
            known += more
    return wrong


def dropped(drops: Iterable[dict[int, int]]) -> int | None:
    """Packets that one file's splits, in their order, tell were dropped; None where none tells."""
    last: dict[int, int] = {}
    for told in drops:
        last.update(told)
    return sum(last.values()) if last else None


def _by_file(told: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Iterator[tuple[Any, ...]]]]:
    return groupby(told, key=lambda row: cast(int, row[0].file))
