"""`SharedReader`: a capture reader over blocks that processes share. It copies only records that a block cuts."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from kafkatap.reassembly.errors import TruncatedCapture

from ..captures.capture_reader import CaptureReader
from .blocks import SharedBytes

Array = np.ndarray[Any, Any]


class SharedReader(CaptureReader):
    """Reads one capture block by block, for `assemble`. `buffer` stays as it is until the next block is read."""

    def __init__(self, path: str, source: SharedBytes) -> None:
        super().__init__(path, source=source)

    def _read_more(self) -> bool:
        rest = self.buffer[self._at : self._end]
        source = cast(SharedBytes, self._source)
        found = source.take(rest)
        if found is None:
            self._over = True
            if len(rest) and not source.is_stopped:
                raise TruncatedCapture("cut short: the last packet is not whole", self._base + self._at)
            return False
        self._base += self._at
        self.buffer, self._at, self._end = found
        self._base -= self._at
        return True

    def _shared(self) -> tuple[Array, Array] | None:
        return cast(SharedBytes, self._source).shared_from(self._at)
