"""The data source "pcap-arrivals": a row for each capture that is complete, as a stream.

An offset holds the name of each capture that was returned, and its size at that time. Captures that grow later are not
returned again. Captures that were deleted are dropped from the offset.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

from ..captures.storage import File, find

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Offset = dict[str, int]


class ArrivedCaptures(DataSource):
    """Options: `paths` (a JSON list of folders and globs), `quiet` (s), `maxFilesPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        return "pcap-arrivals"

    def schema(self) -> str:
        return "path string, size long"

    def streamReader(self, schema: StructType) -> Arrivals:  # noqa: N802
        most = self.options.get("maxFilesPerTrigger")
        paths = tuple(json.loads(self.options["paths"]))
        return Arrivals(paths, float(self.options.get("quiet", 60)), None if most is None else max(int(most), 1))


def series(path: str) -> str:
    """The part of a name that one program's rotated files share: the name without its digits."""
    return re.sub(r"\d+", "", path)


def complete(files: Sequence[File], quiet: float, now: float) -> list[File]:
    """The files that are no longer written, oldest first. `now`: s since the epoch.

    A file is complete when the next file of its `series` exists, or when it has not changed for `quiet` s.
    """
    newest: dict[str, File] = {}
    for file in files:
        known = newest.get(series(file.path))
        if known is None or (known.modified, known.path) < (file.modified, file.path):
            newest[series(file.path)] = file
    done = [f for f in files if newest[series(f.path)] is not f or f.modified <= (now - quiet) * 1e9]
    return sorted(done, key=lambda f: (f.modified, f.path))


class _Arrived(InputPartition):
    def __init__(self, files: list[tuple[str, int]]) -> None:
        self.files = files


@dataclass
class Arrivals(DataSourceStreamReader):
    """`patterns`: folders and globs; `quiet`: s, as of `complete`; `files`: at most this many in a batch."""

    patterns: tuple[str, ...]
    quiet: float = 60
    files: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self.files is None else ReadMaxFiles(self.files)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        try:
            files = find(self.patterns)
        except FileNotFoundError:  # nothing has arrived, or everything was deleted
            files = []
        new = [f for f in complete(files, self.quiet, time.time()) if f.path not in start]
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        if not new:
            return start
        present = {f.path for f in files}
        kept = {path: size for path, size in start.items() if path in present}
        return dict(sorted((kept | {f.path: f.size for f in new}).items()))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [_Arrived([(path, size) for path, size in end.items() if path not in start])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Arrived)
        yield from partition.files
