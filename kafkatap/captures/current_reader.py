"""`CurrentReader`: the blocks of one reader after another, as those of a single reader."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from .capture_reader import CaptureReader

Array = np.ndarray[Any, Any]
Reader = TypeVar("Reader", bound=CaptureReader)


class CurrentReader(Generic[Reader]):
    """Has the attributes of a `CaptureReader`'s current block. An heir opens the readers, in `fill`."""

    _reader: Reader | None = None

    @property
    def reader(self) -> Reader:
        """The reader of the current blocks."""
        assert self._reader is not None, "call fill() first"
        return self._reader

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
