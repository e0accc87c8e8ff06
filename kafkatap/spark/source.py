"""The data source "kafkatap": the tables of captures, for `spark.read` and SQL.

    register(spark)
    spark.read.format("kafkatap").option("table", "exchanges").load("captures/*.pcap").where("api_name = 'Produce'")

Spark plans a Python data source in one process beside the driver. There this source surveys the captures and proves the
plan; tasks decode rows. `kafkatap.spark.exchanges` and its like survey in tasks too, and suit many captures better.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kafkatap.reports.literals import Moment, read_size
from kafkatap.reports.tables import TABLES

from ..engine.read_options import ReadOptions
from ..engine.selection import Selection
from ..splits.run_options import RunOptions
from ..splits.secrets import read_key_logs
from .captures import Captures, spark_schema
from .executor import RowsOf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: The tables that tasks make.
DECODED = ("exchanges", "results", "records")
#: By table, the columns whose filters leave exchanges out before they are decoded: the argument of `Selection.of`.
_SELECTING = {
    ("exchanges", "api_name"): "apis",
    ("exchanges", "api_key"): "apis",
    ("exchanges", "client_id"): "clients",
    ("results", "topic"): "topics",
    ("records", "topic"): "topics",
}
_WILDCARDS = "*?[\\"
_OPTIONS = ("table", "filter", "splitsize", "ports", "keylog", "path", "paths")


def register(spark: SparkSession) -> None:
    """Add the format "kafkatap" to a session."""
    spark.dataSource.register(KafkatapSource)


class KafkatapSource(DataSource):
    """The data source that `register` adds. Options: `table` (default exchanges), `splitSize` (such as 64m; 0: whole
    files), `ports` (such as 9092,9093), `filter` (an expression, docs/filters.md), `keylog` (a file with the secrets of
    TLS connections)."""

    @classmethod
    def name(cls) -> str:
        return "kafkatap"

    def schema(self) -> StructType:
        schema: StructType = spark_schema(table_of(self.options))
        return schema

    def reader(self, schema: StructType) -> CapturesReader:
        return CapturesReader(schema, self.options)


def table_of(options: Any) -> str:
    """The table that options name. ValueError if there is none of that name."""
    name = str(options.get("table", "exchanges"))
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    return name


class _Part(InputPartition):
    """One split to decode, or the rows of a table that the planning process has."""

    def __init__(self, split: RowsOf | None = None, rows: pa.Table | None = None) -> None:
        super().__init__(None)
        self._split, self._rows = split, rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._rows is not None:
            return iter(self._rows.to_batches())
        assert self._split is not None
        return self._split.rows(0)


class CapturesReader(DataSourceReader):
    """`options` as `option(...)` sets them; ValueError for wrong ones."""

    def __init__(self, schema: StructType, options: Any) -> None:
        unknown = sorted(name for name in options if name.lower() not in _OPTIONS)
        if unknown:
            raise ValueError(f"there is no option {unknown[0]!r}; there are table, filter, splitSize, ports and keylog")
        self._columns = schema.names
        self._table = table_of(options)
        if not options.get("paths") and not options.get("path"):
            raise ValueError("no capture is named: load(PATH), a folder, a glob or a list of these")
        self._patterns = json.loads(options["paths"]) if options.get("paths") else [str(options["path"])]
        self._split_size = read_size(str(options["splitSize"])) if options.get("splitSize") else None
        self._ports = tuple(int(port) for port in str(options.get("ports", "")).split(",") if port.strip())
        self._filter = options.get("filter")
        self._keylog = options.get("keylog")
        self._pushed: dict[str, Any] = {}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep what leaves exchanges out before they are decoded. Spark still evaluates all filters."""
        for each in filters:
            self._pushed |= pushed(self._table, each)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        selection = Selection.of(filter=self._filter, **self._pushed)
        key_log = read_key_logs([self._keylog]) if self._keylog else None
        reading = RunOptions(ReadOptions(self._ports, key_log=key_log), selection=selection)
        captures = Captures(None, self._patterns, self._split_size, reading)
        if self._table not in DECODED:
            return [_Part(rows=captures.small_table(self._table))]
        splits = captures.rows_of(self._table)
        return [_Part(replace(splits, inputs=(mine,))) for mine in splits.inputs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        for batch in partition.batches():
            yield batch.select(self._columns)


def pushed(table: str, filter: Filter) -> dict[str, Any]:
    """Arguments of `Selection.of` that select at least the exchanges for which a filter holds; {} if there are none."""
    column = ".".join(getattr(filter, "attribute", ()))
    argument = _SELECTING.get((table, column))
    if argument is not None and isinstance(filter, EqualTo | In):
        values = [filter.value] if isinstance(filter, EqualTo) else list(filter.value)
        texts = [str(value) for value in values]
        if None in values or not texts or any(c in text for text in texts for c in _WILDCARDS):
            return {}
        found: dict[str, Any] = {argument: texts}
        try:
            Selection.of(**found)
        except ValueError:  # no API of that name
            return {}
        return found
    value = getattr(filter, "value", None)
    if (table, column) == ("exchanges", "request_first") and isinstance(value, datetime):
        moment = _moment(value)
        if isinstance(filter, GreaterThan | GreaterThanOrEqual):
            return {"start": moment}
        if isinstance(filter, LessThan | LessThanOrEqual):  # the selection ends before its end
            return {"end": replace(moment, ns=moment.ns + 1_000)}
    return {}


def _moment(time: datetime) -> Moment:
    since = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return Moment(((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000, text=str(time))
