"""`CurrentReader`: the blocks of one reader after another, as those of a single reader."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from .capture_reader import CaptureReader
from .merge import EARLIEST, sort_times

Array = np.ndarray[Any, Any]
Reader = TypeVar("Reader", bound=CaptureReader)


class CurrentReader(Generic[Reader]):
    """Has the attributes of a `CaptureReader`'s current block. An heir opens the readers, in `fill`."""

    _reader: Reader | None = None
    #: The time by which the latest packet of the file is sorted; an heir sets it when it opens a reader.
    sorted_by: int = EARLIEST

    @property
    def reader(self) -> Reader:
        """The reader of the current blocks."""
        assert self._reader is not None, "call fill() first"
        return self._reader

    def sort_times(self) -> Array:
        """The times by which packets[position:count] are sorted among those of other captures (`merge.sort_times`),
        int64. Call it once for each block that was read."""
        reader = self.reader
        found = sort_times(reader.packets["ts"][reader.position : reader.count], reader.is_cut, self.sorted_by)
        self.sorted_by = int(found[-1])
        return found

    @property
    def buffer(self) -> Array:
        return self.reader.buffer

    @property
    def packets(self) -> Array:
        return self.reader.packets

    @property
    def count(self) -> int:
        return self.reader.count

    @property
    def position(self) -> int:
        return self.reader.position

    @position.setter
    def position(self, value: int) -> None:
        self.reader.position = value
