"""The data source "kafkatap": the tables of captures, for `spark.read` and SQL.

    register(spark)
    spark.read.format("kafkatap").option("table", "exchanges").load("captures/*.pcap").where("api_name = 'Produce'")

Spark plans a Python data source in one process beside the driver. There this source surveys the captures and proves the
plan; tasks decode rows. `kafkatap.spark.exchanges` and its like survey in tasks too, and suit many captures better.
`source_stream` is what `spark.readStream` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..captures.store_settings import use, used
from ..engine.host_names import open_hosts
from ..engine.read_options import ReadOptions
from ..engine.selection import Selection
from ..splits.run_options import RunOptions
from ..splits.secrets import read_key_logs
from ..splits.task_rows import dump
from .captures import Captures, spark_schema
from .cluster.failures import OptionError
from .cluster.store_access import adopt, use_of, with_settings
from .executor import RowsOf
from .source_options import SourceOptions, is_of_catalog, known_columns, names_captures, options_in, with_options
from .source_stream import RowsAsTheyArrive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: The tables that tasks make.
DECODED = ("exchanges", "results", "records")


def register(spark: SparkSession) -> None:
    """Add the format "kafkatap" to a session, with the settings of stores that it has now."""
    adopt(spark)
    spark.dataSource.register(with_settings(KafkatapSource))


class KafkatapSource(DataSource):
    """The data source that `register` adds. Options: `table` (default exchanges), `splitSize` (such as 64m; 0: whole
    files), `ports` (such as 9092,9093), `filter` (an expression, docs/filters.md), `keylog` (a file with the secrets of
    TLS connections); of streams, those of `source_stream`. OptionError, from `load`, for wrong ones."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._read = SourceOptions.of(options) if names_captures(options) else None

    @classmethod
    def name(cls) -> str:
        return "kafkatap"

    def schema(self) -> StructType:
        schema: StructType = spark_schema((self._read or SourceOptions.of(self.options)).table)
        return with_options(schema, self.options) if is_of_catalog(self.options) else schema

    def reader(self, schema: StructType) -> CapturesReader:
        return CapturesReader(schema, self._options(schema))

    def streamReader(self, schema: StructType) -> RowsAsTheyArrive:  # noqa: N802
        read = self._options(schema)
        return RowsAsTheyArrive(known_columns(schema, read.table), read)

    def _options(self, schema: StructType) -> SourceOptions:
        use_of(self)
        return self._read or SourceOptions.of({**options_in(schema), **self.options})


class _Part(InputPartition):
    """One split to decode, or the rows of a table that the planning process has."""

    def __init__(self, split: tuple[RowsOf, bytes] | None = None, rows: pa.Table | None = None) -> None:
        super().__init__(None)
        self._split, self._rows, self._settings = split, rows, used()

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._rows is not None:
            return iter(self._rows.to_batches())
        use(self._settings)
        assert self._split is not None
        function, mine = self._split
        return function.rows(mine)


class CapturesReader(DataSourceReader):
    """Reads the columns `schema` of a table. OptionError if the table lacks one, or has another type.

    It has no `pushFilters`. Spark 4.3 plans a filtered query of a DataFrame or view once more, and then uses that plan
    for all queries of it, so later ones lack rows. It also refuses such a reader if the session pushes nothing down.
    """

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns = known_columns(schema, options.table)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        read = self._options
        try:
            key_log = read_key_logs([read.keylog]) if read.keylog else None
            hosts = open_hosts([read.hosts]) if read.hosts else None
            reading = RunOptions(
                ReadOptions(read.ports, key_log=key_log, hosts=hosts), selection=Selection.of(filter=read.filter)
            )
            captures = Captures(None, read.paths, read.split_size, reading)
            captures.files  # noqa: B018  # names a path that matches nothing
        except (OSError, ValueError) as error:
            raise OptionError(str(error)) from None
        if read.table not in DECODED:
            return [_Part(rows=captures.small_table(read.table))]
        function, inputs = captures.rows_of(read.table)
        return [_Part((function, dump(mine))) for mine in inputs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        for batch in partition.batches():
            yield batch.select(self._columns)
