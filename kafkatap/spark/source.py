"""The data source "kafkatap": the tables of captures, for `spark.read` and SQL.

    register(spark)
    spark.read.format("kafkatap").option("table", "exchanges").load("captures/*.pcap").where("api_name = 'Produce'")

Spark plans a Python data source in one process beside the driver. There this source surveys the captures and proves the
plan; tasks decode rows. `kafkatap.spark.exchanges` and its like survey in tasks too, and suit many captures better.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafkatap.reports.expressions import ExpressionError
from kafkatap.reports.literals import read_size
from kafkatap.reports.tables import TABLES

from ..engine.read_options import ReadOptions
from ..engine.selection import Selection
from ..splits.run_options import RunOptions
from ..splits.secrets import read_key_logs
from ..splits.task_rows import dump
from .captures import Captures, spark_schema
from .cluster.failures import OptionError
from .executor import RowsOf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: The tables that tasks make.
DECODED = ("exchanges", "results", "records")
_OPTIONS = ("table", "filter", "splitsize", "ports", "keylog", "path", "paths")


def register(spark: SparkSession) -> None:
    """Add the format "kafkatap" to a session."""
    spark.dataSource.register(KafkatapSource)


class KafkatapSource(DataSource):
    """The data source that `register` adds. Options: `table` (default exchanges), `splitSize` (such as 64m; 0: whole
    files), `ports` (such as 9092,9093), `filter` (an expression, docs/filters.md), `keylog` (a file with the secrets of
    TLS connections). OptionError, from `load`, for wrong ones."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._read = SourceOptions.of(options)

    @classmethod
    def name(cls) -> str:
        return "kafkatap"

    def schema(self) -> StructType:
        schema: StructType = spark_schema(self._read.table)
        return schema

    def reader(self, schema: StructType) -> CapturesReader:
        return CapturesReader(schema, self._read)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the data source. `paths`: the captures, as `load` names them."""

    table: str
    paths: tuple[str, ...]
    split_size: int | None
    ports: tuple[int, ...]
    filter: str | None
    keylog: str | None

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        """`options` as `option(...)` sets them, case-insensitive. OptionError for wrong ones."""
        unknown = sorted(name for name in options if name.lower() not in _OPTIONS)
        if unknown:
            raise OptionError(
                f"there is no option {unknown[0]!r}; there are table, filter, splitSize, ports and keylog"
            )
        table = str(options.get("table", "exchanges"))
        if table not in TABLES:
            raise OptionError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
        paths = json.loads(options["paths"]) if options.get("paths") else [options.get("path", "")]
        if not all(paths):
            raise OptionError("no capture is named: load(PATH), a folder, a glob or a list of these")
        filter = options.get("filter")
        try:
            split_size = read_size(options["splitSize"]) if options.get("splitSize") else None
            Selection.of(filter=filter)
        except ExpressionError as error:
            where = f"at character {error.at + 1} of {error.text!r}"
            raise OptionError(f"filter: {error.message}, {where} (docs/filters.md)") from None
        except ValueError as error:
            raise OptionError(str(error)) from None
        ports = tuple(_port(text) for text in options.get("ports", "").split(",") if text.strip())
        return SourceOptions(table, tuple(paths), split_size, ports, filter, options.get("keylog"))


def _port(text: str) -> int:
    if not text.strip().isdecimal() or not 0 < int(text) < 65536:
        raise OptionError(f"ports: {text.strip()!r} is not a port (1 to 65535, such as 9092,9093)")
    return int(text)


class _Part(InputPartition):
    """One split to decode, or the rows of a table that the planning process has."""

    def __init__(self, split: tuple[RowsOf, bytes] | None = None, rows: pa.Table | None = None) -> None:
        super().__init__(None)
        self._split, self._rows = split, rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._rows is not None:
            return iter(self._rows.to_batches())
        assert self._split is not None
        function, mine = self._split
        return function.rows(mine)


class CapturesReader(DataSourceReader):
    """Reads the columns `schema` of a table. OptionError if the table lacks one.

    It has no `pushFilters`. Spark 4.3 plans a filtered query of a DataFrame or view once more, and then uses that plan
    for all queries of it, so later ones lack rows. It also refuses such a reader if the session pushes nothing down.
    """

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        known = spark_schema(options.table).names
        unknown = [name for name in schema.names if name not in known]
        if unknown:
            raise OptionError(f"{options.table} has no column {unknown[0]!r} (docs/tables.md)")
        self._columns = schema.names
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        read = self._options
        try:
            key_log = read_key_logs([read.keylog]) if read.keylog else None
            reading = RunOptions(ReadOptions(read.ports, key_log=key_log), selection=Selection.of(filter=read.filter))
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
