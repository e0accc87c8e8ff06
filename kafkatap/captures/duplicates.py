"""Which captures of a run hold duplicates: packets that another of them holds too."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.hashing import new_seed
from kafkatap.reassembly import duplicates

from .sources import CaptureReader, FileReport


class DuplicateCounter:
    """Counts the duplicates of each capture but the first that holds a packet. For packets in merged order."""

    def __init__(self, captures: int) -> None:
        self._numbers: dict[int, int] = {}  # by id of the capture's report
        self._table = np.zeros(duplicates.TABLE_SIZE, duplicates.FINGERPRINT)
        self._packets = 0
        self._counts = np.zeros(captures, np.int64)
        self._seed = new_seed()

    def look(self, reader: CaptureReader, end: int) -> None:
        """Take reader.packets[reader.position:end]."""
        number = self._numbers.setdefault(id(reader.report), len(self._numbers))
        self._packets = duplicates.count_duplicates(
            reader.buffer, reader.packets, reader.position, end, number,
            self._table, self._counts, self._packets, self._seed,
        )  # fmt: skip

    def of(self, report: FileReport) -> int:
        number = self._numbers.get(id(report))
        return 0 if number is None else int(self._counts[number])
