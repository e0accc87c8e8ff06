"""Small files of a store, read in threads before they are needed: a request takes many ms. Local files are read when
they are needed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .splits import Split
from .storage import InputFile, is_uri, open_input, read_range

#: Files that are read at once, and the largest of them in bytes.
AHEAD, LARGEST = 8, 4 << 20


class FilesAhead:
    """Opens files of one folder in their order. OSErrors are those of `open_input`."""

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
