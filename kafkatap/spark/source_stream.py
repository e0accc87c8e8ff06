"""`RowsAsTheyArrive`: the stream of the data source "kafkatap".

An offset is the number of batches so far. From Spark 4.2 on, batches have limits; before, Spark asks for all that has
arrived. The process that plans beside the driver reads the captures of a batch; tasks read its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkatap.reports.literals import read_duration, read_size

from ..captures.store_settings import use, used
from ..engine.host_names import open_hosts
from ..engine.read_options import ReadOptions
from ..engine.selection import Selection
from ..splits.run_options import RunOptions
from ..splits.secrets import read_key_logs
from .arrivals import BATCH_SIZE
from .cluster.failures import OptionError
from .row_stream import RowStream, read_rows
from .source_options import STREAM_OPTIONS, SourceOptions
from .stream import STREAM_SPLIT_SIZE

if TYPE_CHECKING:
    import pyarrow as pa

#: Whether this Spark lets a reader in Python limit its batches.
HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
#: (name, default): options that are durations.
_WAITS = ("quiet", "60s"), ("lateness", "0s")
Offset = dict[str, int]


class _Rows(InputPartition):
    """A file with rows."""

    def __init__(self, location: str, name: str) -> None:
        super().__init__(None)
        self.location, self.name, self.settings = location, name, used()


class RowsAsTheyArrive(DataSourceStreamReader):
    """`columns`: the names of those that are wanted. OptionError if an option is wrong or missing."""

    def __init__(self, columns: list[str], options: SourceOptions) -> None:
        self._columns, self._options = columns, options
        _checked(options.of_stream)

    @cached_property
    def stream(self) -> RowStream:
        """It is made where batches are planned. So tasks get no secrets."""
        read = self._options
        try:
            key_log = read_key_logs([read.keylog]) if read.keylog else None
            hosts = open_hosts([read.hosts]) if read.hosts else None
        except (OSError, ValueError) as error:
            raise OptionError(str(error)) from None
        reading = RunOptions(
            ReadOptions(read.ports, key_log=key_log, hosts=hosts), records=read.table == "records",
            selection=Selection.of(filter=read.filter),
        )  # fmt: skip
        size = STREAM_SPLIT_SIZE if read.split_size is None else read.split_size
        return RowStream(
            table=read.table, patterns=read.paths, reading=reading, split_size=size, **_checked(read.of_stream)
        )

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"batches": self.stream.first_batch()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        batches = range(start["batches"], end["batches"])
        try:
            names = [name for batch in batches for name in self.stream.rows_of(batch)]
        except (OSError, ValueError) as error:
            raise error if isinstance(error, OptionError) else OptionError(str(error)) from None
        return [_Rows(self.stream.location, name) for name in names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        use(partition.settings)
        yield from read_rows(partition.location, partition.name, self._options.table, self._columns)

    def commit(self, end: Offset) -> None:
        self.stream.commit(end["batches"])

    if HAS_LIMITS:

        def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
            from pyspark.sql.streaming.datasource import ReadAllAvailable

            batch = start["batches"]
            return {"batches": batch + self.stream.has_batch(batch, isinstance(limit, ReadAllAvailable))}

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            from pyspark.sql.streaming.datasource import ReadMaxBytes

            return ReadMaxBytes(self.stream.size)  # Spark's word for "limited"; `files` limits too

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self.stream.planner.hold()

    else:

        def latestOffset(self) -> Offset:  # type: ignore[misc]  # noqa: N802
            batch = self.stream.states.batches
            while self.stream.has_batch(batch):
                batch += 1
            return {"batches": batch}


if HAS_LIMITS:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    SupportsTriggerAvailableNow.register(RowsAsTheyArrive)


def _checked(options: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a RowStream that options of STREAM_OPTIONS name. OptionError for wrong ones."""
    if not options.get("statelocation"):
        raise OptionError(
            "a stream keeps open connections in a folder of its own: option('stateLocation', FOLDER), which the driver "
            "and executors see; beside the query's checkpoint"
        )
    limits = [STREAM_OPTIONS[name] for name in ("maxfilespertrigger", "maxbytespertrigger") if name in options]
    if limits and not HAS_LIMITS:
        raise OptionError(f"{limits[0]} needs Spark 4.2 or later: this one reads all that has arrived in one batch")
    files, finish = options.get("maxfilespertrigger"), options.get("finish", "false").lower()
    if files is not None and not (files.isdecimal() and int(files)):
        raise OptionError(f"maxFilesPerTrigger: {files!r} is not a number of captures")
    if finish not in ("true", "false"):
        raise OptionError(f"finish: {finish!r} is neither true nor false")
    try:
        size = read_size(options["maxbytespertrigger"]) if "maxbytespertrigger" in options else BATCH_SIZE
        quiet, lateness = (read_duration(options.get(name, usual)) for name, usual in _WAITS)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return {
        "location": options["statelocation"], "files": None if files is None else int(files), "size": size,
        "quiet": quiet / 1e9, "lateness": lateness / 1e9, "finish": finish == "true",
    }  # fmt: skip
