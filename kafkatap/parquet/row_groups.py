"""`RowGroup`: rows of exchanges that become one row group of a table. `GatheredRows` gathers them from batches, and
`RowGroupQueue` is a queue of them in a file."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, RESULT
from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels.arrays import as_bytes, distinct_values, joined
from kafkatap.reports.batch import Array, Batch, Context, error_counts

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows gather to this many bytes before they become Arrow tables.
GATHERED_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class RowGroup:
    """EXCHANGE rows, and the RESULT and EXCHANGE_TOPIC rows of these exchanges."""

    exchanges: Array
    results: Array
    topics: Array

    @staticmethod
    def of(batches: Sequence[Batch]) -> RowGroup:
        """The rows of some batches, copied."""
        return RowGroup(
            joined([b.exchanges for b in batches], EXCHANGE),
            joined([b.results for b in batches], RESULT),
            joined([b.topics for b in batches if b.topics is not None], EXCHANGE_TOPIC),
        )

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        return self.exchanges, self.results, self.topics

    def topics_without_names(self, names: Collection[int]) -> list[int]:
        """The ids, as numbers of strings, of topics that rows have by id only. `names`: ids with known names."""
        found = np.concatenate([rows["topic_id"][rows["topic"] < 0] for rows in (self.results, self.topics)])
        return [number for number in distinct_values(found[found >= 0]).tolist() if number not in names]

    def exchanges_table(self, context: Context) -> pa.Table:
        from kafkatap.reports import tables

        topics = self.topics, self.results
        return tables.exchanges_table(self.exchanges, error_counts(self.results), topics, context)

    def results_table(self, context: Context) -> pa.Table:
        from kafkatap.reports import tables

        return tables.results_table(self.results, self.exchanges, context)


class GatheredRows:
    """The rows of batches until they make a row group of `most` bytes."""

    def __init__(self, most: int = GATHERED_BYTES) -> None:
        self._most = most
        self._batches: list[Batch] = []
        self._bytes = 0

    def add(self, batch: Batch) -> bool:
        """Add exchanges and their results. Whether there are enough now."""
        self._batches.append(batch)
        arrays = (batch.exchanges, batch.results, batch.topics)
        self._bytes += sum(rows.nbytes for rows in arrays if rows is not None)
        return self._bytes >= self._most

    def take(self) -> RowGroup:
        """Remove and return all rows."""
        group = RowGroup.of(self._batches)
        self._batches.clear()
        self._bytes = 0
        return group


class RowGroupQueue:
    """Row groups that wait for names of topics, in an unnamed file in `folder`, which `close` gives back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Any = None
        self._waiting: deque[tuple[int, list[int], tuple[int, ...]]] = deque()  # place, unnamed topics, row counts

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, group: RowGroup, unnamed: list[int]) -> None:
        """Add a row group behind the others. `unnamed`: its topics without names."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix=".kafkatap-")  # noqa: SIM115
            place = self._file.seek(0, os.SEEK_END)
            for rows in group.arrays:
                self._file.write(as_bytes(rows).data)
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._folder)) from error
        self._waiting.append((place, unnamed, tuple(map(len, group.arrays))))

    def is_first_named(self, names: Collection[int]) -> bool:
        """Whether there is a first group, and all its topics have names now."""
        return bool(self._waiting) and all(number in names for number in self._waiting[0][1])

    def take(self) -> RowGroup:
        """Remove and return the first group."""
        place, _, counts = self._waiting.popleft()
        self._file.seek(place)
        arrays = []
        for count, dtype in zip(counts, (EXCHANGE, RESULT, EXCHANGE_TOPIC), strict=True):
            rows = np.empty(count, dtype)
            if self._file.readinto(as_bytes(rows)) != rows.nbytes:
                raise OSError(f"{self._folder}: a temporary file is shorter than it was")
            arrays.append(rows)
        if not self._waiting:
            self._file.truncate(0)
        return RowGroup(*arrays)

    def close(self) -> None:
        """Drop all groups."""
        self._waiting.clear()
        if self._file is not None:
            self._file.close()
