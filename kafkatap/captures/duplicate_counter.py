"""Count the duplicates of each capture: packets that another capture of the run holds too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafkatap.kernels.hashing import new_seed
from kafkatap.reassembly import duplicates

from .capture_reader import CaptureReader, FileReport
from .merge import merge_captures


class DuplicateCounter:
    """Counts packets that several captures hold. They count as duplicates of the capture that began later.

    The packets come in merged order.
    """

    def __init__(self, captures: int) -> None:
        self._numbers: dict[int, int] = {}  # by the id of the capture's report
        self._table = np.zeros(duplicates.TABLE_SIZE, duplicates.FINGERPRINT)
        self._packets = 0
        self._counts = np.zeros(captures, np.int64)
        self._seed = new_seed()

    def add(self, reader: CaptureReader, end: int) -> None:
        """Count reader.packets[reader.position:end]."""
        number = self._numbers.setdefault(id(reader.report), len(self._numbers))
        self._packets = duplicates.count_duplicates(
            reader.buffer, reader.packets, reader.position, end, number,
            self._table, self._counts, self._packets, self._seed,
        )  # fmt: skip

    def count(self, report: FileReport) -> int:
        """How many packets of a capture are duplicates."""
        number = self._numbers.get(id(report))
        return 0 if number is None else int(self._counts[number])


def count_duplicates(paths: Sequence[str]) -> list[int]:
    """Read captures in time order; return how many packets of each are duplicates."""
    counter = DuplicateCounter(len(paths))
    reports: list[FileReport] = []
    for reader, end in merge_captures(paths):
        if end > reader.position:
            counter.add(reader, end)
            reader.position = end
        else:
            reports.append(reader.report)
    found = {report.path: counter.count(report) for report in reports}
    return [found.get(path, 0) for path in paths]
