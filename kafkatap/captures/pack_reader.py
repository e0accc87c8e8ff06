"""`PackReader`: the packets of a pack, file by file, with a report on each file.

Packets have numbers within the pack: (number of the file << FILE_BITS) + the number in that file, from 1. So a pack of
one file has plain numbers. When it is known how many packets come before each file in the whole input (`bases`),
`numbered` makes numbers over the whole input of them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .capture_bytes import UnreadableBytes
from .capture_points import SLACK_NS
from .capture_reader import BLOCK_SIZE, CaptureReader, FileReport
from .current_reader import CurrentReader
from .identity import identity_at, missing_identity
from .merge import EARLIEST, sorted_by
from .packs import Pack
from .splits import Split, SplitReader
from .storage import InputFile, is_uri, open_input, read_range

Array = np.ndarray[Any, Any]

FILE_BITS = 40
_IN_FILE = (1 << FILE_BITS) - 1
#: In place of the base of a file without packets: it is not read again.
NO_PACKETS = -1
#: Files of a store that are read at once, and the largest of them in bytes.
AHEAD, LARGEST = 8, 4 << 20


def numbered(numbers: Array, bases: Sequence[int]) -> Array:
    """Packet numbers of a pack as numbers over the whole input. `bases`: packets before each file."""
    found: Array = np.asarray(bases, np.int64)[numbers >> FILE_BITS] + (numbers & _IN_FILE)
    return found


@dataclass(slots=True)
class FileRead:
    """A file of a pack. `head_time`: of its first packet, None without packets. `capture`: its identity, 0 for a part
    of a file that is not the first."""

    report: FileReport
    head_time: int | None = None
    capture: int = 0


class PackReader(CurrentReader[CaptureReader]):
    """Reads the files of a pack one after the other. `fill`, `buffer`, `packets`, `position` and `count` are those of
    `CaptureReader`; a block has packets of one file, `file`.

    Without `bases`, packets have numbers within the pack, and a file that cannot be opened is damaged. With `bases`
    they have numbers over the whole input, and files without packets are left out. OSError then if a file cannot be
    opened, or is not the one that was `seen`: the time of its first packet, and how many it has. `exact`: where the
    first record begins, for a part of a file, and `latest`: the latest time in the parts of the file before it.
    """

    def __init__(
        self,
        pack: Pack,
        exact: int | None = None,
        bases: Sequence[int] | None = None,
        seen: Sequence[tuple[int | None, int]] = (),
        block_size: int = BLOCK_SIZE,
        latest: int | None = None,
    ) -> None:
        self.file = -1
        #: The files that were opened so far.
        self.files: list[FileRead] = []
        self._bytes_before = 0  # of the files before the current one
        #: Whether each file so far began when the one before it was over.
        self.is_in_order = True
        self._pack = pack
        self._exact = exact
        self._latest_before = latest
        self._bases = bases
        self._seen = seen if bases is not None else ()
        self._block_size = block_size
        self._files = FilesAhead(pack)
        self._secrets = b""  # of the files before
        self._latest: tuple[int, int, int] | None = None  # of the files so far: first and last time, number

    def fill(self) -> bool:
        """Read until packets[position:count] holds a packet; False at the end of the pack."""
        while True:
            if self._reader is not None and self._reader.fill():
                if self.files[-1].head_time is None:
                    self._note_first(self._reader.next_time())
                return True
            if not self._open_next():
                return False

    @property
    def bytes_read(self) -> int:
        """Bytes of the captures so far."""
        return self._bytes_before + (self.files[-1].report.bytes if self.files else 0)

    def take_secrets(self) -> bytes:
        """`CaptureReader.take_secrets`, of all files so far."""
        found, self._secrets = self._secrets, b""
        return found + (b"" if self._reader is None else self._reader.take_secrets())

    # Of a part of a file, as of `SplitReader`.

    @property
    def begins(self) -> int | None:
        return self.part.begins if self.part is not None else self._exact

    @property
    def ends(self) -> int | None:
        return self.part.ends if self.part is not None else None

    @property
    def interfaces_read(self) -> bytes:
        return self.part.interfaces_read if self.part is not None else b""

    @property
    def drops(self) -> dict[int, int]:
        return self.part.drops if self.part is not None else {}

    @property
    def part(self) -> SplitReader | None:
        """The reader of the only split of the pack."""
        return self._reader if len(self._pack) == 1 and isinstance(self._reader, SplitReader) else None

    def close(self) -> None:
        self._files.close()
        if self._reader is not None:
            self._reader.close()

    def _open_next(self) -> bool:
        if self.file >= len(self._pack):
            return False
        self._end_file()
        self.file += 1
        while self._bases is not None and self.file < len(self._pack) and self._bases[self.file] == NO_PACKETS:
            self.file += 1
        if self.file >= len(self._pack):
            return False
        split = self._pack[self.file]
        before = self._reader
        if before is not None:
            self._secrets += before.take_secrets()
            before.close()
        self._reader = self._opened(split, before)
        self.sorted_by = (
            EARLIEST if self._latest_before is None else sorted_by(self._latest_before, self._reader.is_cut)
        )
        self._reader.number_from(1 + (self.file << FILE_BITS if self._bases is None else self._bases[self.file]))
        self._bytes_before = self.bytes_read
        self.files.append(FileRead(self._reader.report))
        if self._bases is None and split.number == 0:
            self.files[-1].capture = missing_identity(split.path)  # until its first packet is there
        return True

    def _opened(self, split: Split, before: CaptureReader | None) -> CaptureReader:
        try:
            file = self._files.open(self.file)
            return SplitReader(split, self._block_size, self._exact, file=file, reuse=before)
        except OSError as error:
            if self._bases is not None:
                raise
            return CaptureReader(split.path, self._block_size, UnreadableBytes(error), before)

    def _note_first(self, time: int) -> None:
        self.files[-1].head_time = time
        if self.files[-1].capture:
            self.files[-1].capture = identity_at(self)
        if self._seen and self._seen[self.file][0] != time:
            self._raise_changed()
        number = self._pack[self.file].file
        if self._latest is not None:
            first, last, before = self._latest
            self.is_in_order &= (first, before) < (time, number) and last <= time + SLACK_NS

    def _raise_changed(self) -> NoReturn:
        raise OSError(f"{self._pack[self.file].path}: the capture changed while it was read; run the job again")

    def _end_file(self) -> None:
        """Remember the times of the current file, which is read to its end."""
        if self._reader is not None and self._seen and self._seen[self.file][1] != self._reader.report.packets:
            self._raise_changed()
        if self._reader is not None and self.files[-1].head_time is not None:
            assert self._reader.report.last is not None
            self._latest = (self.files[-1].head_time, self._reader.report.last, self._pack[self.file].file)


class FilesAhead:
    """Opens files of one folder in their order. Small ones of a store are read in threads before they are needed: a
    request takes many ms. OSErrors are those of `open_input`."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = splits
        is_remote = len(splits) > 1 and is_uri(splits[0].path)
        self._threads = ThreadPoolExecutor(AHEAD, "kafkatap-files") if is_remote else None
        self._reading: dict[int, Future[bytes]] = {}

    def open(self, number: int) -> InputFile:
        """Open file `number`, and read the next ones."""
        for n in range(number, min(number + AHEAD + 1, len(self._splits))):
            split = self._splits[n]
            if n not in self._reading and self._threads is not None and split.size <= LARGEST:
                self._reading[n] = self._threads.submit(read_range, split.path, 0, split.size)
        for n in [n for n in self._reading if n < number]:
            self._reading.pop(n).cancel()
        if number not in self._reading:
            return open_input(self._splits[number].path)
        return io.BytesIO(self._reading.pop(number).result())

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
