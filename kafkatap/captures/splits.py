"""Cut captures into splits by byte range. Each split can be read without those before it.

A split has the records that begin in its range. `SplitReader` searches for the first of them (`boundaries`), reads to
the end of the last one, and reports where both are: `begins` and `ends`. A search can be misled by the contents of
packets, but not unnoticed: in one file each split must begin where the one before it ended (`split_checks`). A split
that does not is read again with its `exact` place.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from kafkatap.reassembly import boundaries
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.errors import CaptureError
from kafkatap.reassembly.pcapng import INTERFACE_DESCRIPTION, PACKET_BLOCKS, SECTION_HEADER
from kafkatap.reassembly.scanner import HEADER_SIZE, MODIFIED, Scanner

from .capture_bytes import CaptureBytes
from .capture_reader import BLOCK_SIZE, CaptureReader
from .storage import File, InputFile, open_input, read_range

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Bytes after a split's start that a chain of records must span. The second window is for huge blocks of pcapng.
_WINDOWS = (512 << 10, 17 << 20)
#: Bytes that are read past a split's end, for its last record.
_BEYOND = 64 << 10
_HEAD = 64 << 10
#: Bytes of a pcap's head that a split keeps: the file header and the time of the first packet.
_KEPT = HEADER_SIZE + 4
#: A first packet with an earlier time (s) means that the clock was not set.
_CLOCK_WAS_SET = 1 << 28
_DESCRIPTIONS = (SECTION_HEADER, INTERFACE_DESCRIPTION)


@dataclass(frozen=True, slots=True)
class Split:
    """The records of a capture that begin in bytes start:end of its file (end None: to the end of the file).

    `file` numbers the files of a plan, `number` the splits of a file, both from 0. `head`: the first 28 bytes of the
    file, b"" for a file that is read whole. `interfaces`: the section headers and interface descriptions of a pcapng
    before `start`, as far as known. `parts`: the number of splits of the file. `size`: bytes of the whole file, -1 if
    unknown. Bytes that are added later are not read.
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
        """Bytes in the range."""
        return (self.size if self.end is None else self.end) - self.start

    def start_of(self, number: int) -> int:
        """The start of split `number` of the same file."""
        return self.size * number // self.parts


# ---------------------------------------------------------------- planning


def plan_splits(files: Sequence[File], size: int) -> list[Split]:
    """Cut each file into splits of equal length, at most `size` bytes (0: whole files), in the order of the files.

    Only the heads of longer files are read. Compressed files, files that are no captures, and files that cannot be
    opened are one split each.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(32) as threads:  # object stores have high latency but answer many requests at once
        whole = [Split(file.path, file=number, size=file.size) for number, file in enumerate(files)]
        long = [split for split in whole if 0 < size < split.size]
        splits = dict(zip((split.file for split in long), threads.map(lambda each: cut(each, size), long), strict=True))
    return [split for each in whole for split in splits.get(each.file, [each])]


def cut(whole: Split, size: int) -> list[Split]:
    """Cut a file into splits of at most `size` bytes, or into one split if it must be read whole."""
    try:
        data = read_range(whole.path, 0, _HEAD)
    except OSError:  # the reader reports it
        return [whole]
    head = data[:_KEPT]
    scanner = Scanner(1)
    try:
        scanner.start(head)
    except CaptureError:  # compressed, or no capture; the reader reports it
        return [whole]
    if scanner.format == MODIFIED:  # rare: not worth a search of its own
        return [whole]
    interfaces = b""
    if scanner.format == "pcapng":
        interfaces = _first_descriptions(data)
        if not interfaces:  # the first block is damaged
            return [whole]
    whole = replace(whole, head=head, parts=-(-whole.size // size))
    starts = [whole.start_of(n) for n in range(whole.parts)]
    return [
        replace(whole, start=start, end=end, number=n, interfaces=interfaces if n else b"")
        for n, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True))
    ]


def _window(file: InputFile, start: int, count: int) -> Bytes:
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


def _first_descriptions(data: bytes) -> bytes:
    order: Any = "big" if data[8:12] == b"\x1a\x2b\x3c\x4d" else "little"
    parts = []
    at = 0
    while at + 12 <= len(data):
        kind = int.from_bytes(data[at : at + 4], order)
        length = int.from_bytes(data[at + 4 : at + 8], order)
        if kind in PACKET_BLOCKS or length < 12 or at + length > len(data):
            break
        if kind in _DESCRIPTIONS:
            parts.append(data[at : at + length])
        at += length
    return b"".join(parts)


# ---------------------------------------------------------------- reading


def find_record(file: InputFile, split: Split) -> int | None:
    """Search for the first record at the split's start or later: its place in the file, None if none was found, or the
    file's size if there is none."""
    scanner = Scanner(1)
    first = scanner.start(split.head)
    if split.start <= first:
        return first
    scanner.know(split.interfaces)
    start = max(first, (split.start - boundaries.BEFORE) & ~3)
    # If the window begins with the file's first record, the chain must begin there.
    last = 0 if start == first else split.start - start
    for after in _WINDOWS[: 2 if scanner.format == "pcapng" else 1]:
        data = _window(file, start, min(split.start - start + after, split.size - start))
        if len(data) <= split.start - start:
            break
        # At the file's end, prefer a chain whose last record is complete.
        for whole in (1, 0) if start + len(data) >= split.size else (0,):
            found = _search(data, (split.start - start, last, whole), split, scanner)
            if found >= 0:
                return min(start + found, split.size)
    return None


def _search(data: Bytes, wanted: tuple[int, int, int], split: Split, scanner: Scanner) -> int:
    """The place of a record in a window; below 0 if there is none."""
    landing = np.empty(len(data), np.int32)
    result = np.zeros(1, boundaries.FOUND)
    if scanner.format == "pcapng":
        return int(boundaries.find_pcapng(data, len(data), *wanted, scanner.swapped, landing, result))
    second = 1_000_000 if scanner.format == "pcap" else 1_000_000_000
    about = _about(split, scanner)
    place = boundaries.find_pcap(data, len(data), *wanted, scanner.swapped, second, about, landing, result)
    if result["others"][0] >= 0:
        return int(place)
    # Some programs write fractions of a second, or first times, that cannot be meant.
    guess = boundaries.find_pcap(data, len(data), *wanted, scanner.swapped, 1 << 32, 0, landing, result)
    return int(guess if result["others"][0] >= 0 or place < 0 else place)


def _about(split: Split, scanner: Scanner) -> int:
    """The time of a pcap's first packet (s); 0 if the clock was not set."""
    time = int.from_bytes(split.head[HEADER_SIZE:_KEPT], "big" if scanner.swapped else "little")
    return time if time > _CLOCK_WAS_SET else 0


class _Part:
    """Reads a file from some place, and only little beyond `end`."""

    compression = ""

    def __init__(self, file: InputFile, end: int | None, size: int) -> None:
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


class _Whole(io.RawIOBase):
    """A whole file, up to its size when it was planned."""

    def __init__(self, file: InputFile, size: int) -> None:
        self._file = file
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._file.tell(), os.SEEK_END: self._size}[whence]
        return self._file.seek(base + offset)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, view: Any) -> int:
        view = view[: max(self._size - self._file.tell(), 0)]
        return (self._file.readinto(view) or 0) if len(view) else 0

    def close(self) -> None:
        self._file.close()
        super().close()


def _whole(split: Split, file: InputFile) -> CaptureBytes:
    return CaptureBytes(split.path, file if split.size < 0 else _Whole(file, split.size))


class SplitReader(CaptureReader):
    """A `CaptureReader` of one split: its packets, numbered from 1, up to the last one that begins in its range.

    `exact`: where the first record begins, if known; else the reader searches. `file`: it is open already. `begins`:
    where it began (None: it found no record and has no packets). After the last packet, `ends` is where the next record
    begins, or None at the file's end or at damage. A file that is read whole begins at 0. `interfaces_read`: the
    section headers and interface descriptions in the split. In the report, `bytes` counts the split's records and the
    bytes between them, and `damage` names the byte in the file.
    """

    def __init__(
        self,
        split: Split,
        block_size: int = BLOCK_SIZE,
        exact: int | None = None,
        *,
        file: InputFile | None = None,
        reuse: CaptureReader | None = None,
    ) -> None:
        self.split = split
        self.begins: int | None = 0
        self._exact = exact
        self._descriptions: list[bytes] = []
        self._places = np.zeros(32, boundaries.BLOCK_RANGE)
        file = open_input(split.path) if file is None else file
        self._part = _Part(file, split.end, split.size) if split.head else None
        super().__init__(split.path, block_size, self._part or _whole(split, file), reuse)
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
            self.begins = find_record(self._part._file, split)
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
        """The byte of the file (decompressed) up to which everything is read."""
        return self._base + self._at

    @property
    def interfaces_read(self) -> bytes:
        return b"".join(self._descriptions)

    @property
    def drops(self) -> dict[int, int]:
        """The last drop count of each interface of a pcapng, by its number in the file."""
        return self._scanner.drops

    def _bytes_of_report(self) -> int:
        if self._part is None or self.begins is None:
            return super()._bytes_of_report()
        reached = self.ends
        first = self.begins if self.split.start else 0
        return (self._base + self._end if reached is None else reached) - first

    def _scan(self) -> None:
        first, swapped = self._at, self._scanner.swapped
        super()._scan()
        self._note_descriptions(first, swapped)

    def assemble(self, assembler: Assembler) -> Iterator[int]:
        first, swapped = self._at, self._scanner.swapped
        yield from super().assemble(assembler)
        self._note_descriptions(first, swapped)

    def _note_descriptions(self, first: int, swapped: int) -> None:
        """Note the section headers and interface descriptions from a byte of the buffer on."""
        if self._scanner.format != "pcapng":
            return
        while True:
            count = boundaries.find_descriptions(self.buffer, first, self._at, swapped, self._places)
            if count <= len(self._places):
                break
            self._places = np.zeros(2 * count, boundaries.BLOCK_RANGE)
        for begin, end in self._places[:count].tolist():
            self._descriptions.append(self.buffer[begin:end].tobytes())
