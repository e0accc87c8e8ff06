"""The data source "pcap": the packets of captures as rows.

    register(spark)
    spark.read.format("pcap").option("splitSize", "64m").load("captures/*.pcap")

Each split of a capture (`kafkatap.captures.splits`) is a partition. The driver reads only the heads of files: a task
searches for the first record of its split, and of the next one. Neighbours search the same bytes and find the same
record. If a search is not sure, the split before reads on past that boundary. A reader that does not end exactly where
the next split begins raises an error, so that no packet is lost in silence.

Options: `splitSize` (bytes, or as 64m; 0: whole files), `mode` (`permissive`: a damaged capture yields what can be read
of its splits; `failfast`: it is an error). Columns that are not in `schema(...)` are not made.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)  # fmt: skip

from ..captures.splits import SPLIT_SIZE, Split, SplitReader, find_record, first_descriptions, plan_splits
from ..captures.storage import find, open_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: `file`, `offset`: the packet's bytes begin there in the (decompressed) file. `ts_ns`: ns since the epoch. `captured`,
#: `original`: bytes captured, and on the wire. `link_type` as LINKTYPE_ numbers it.
SCHEMA = StructType(
    [
        StructField("file", StringType(), False),
        StructField("offset", LongType(), False),
        StructField("ts", TimestampType(), False),
        StructField("ts_ns", LongType(), False),
        StructField("link_type", IntegerType(), False),
        StructField("captured", IntegerType(), False),
        StructField("original", IntegerType(), False),
        StructField("bytes", BinaryType(), False),
    ]
)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BLOCK = 4 << 20
_ADVICE = "read such a capture as a whole (option splitSize=0)"

log = logging.getLogger("kafkatap")


class UnreadableSplitError(Exception):
    """A capture cannot be read in splits, or is damaged in mode failfast. The message says why."""


def register(spark: SparkSession) -> None:
    """Add the format "pcap" to a session."""
    spark.dataSource.register(PcapSource)


class PcapSource(DataSource):
    """The data source that `register` adds."""

    @classmethod
    def name(cls) -> str:
        return "pcap"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> PcapReader:
        return PcapReader(schema, self.options)


def parse_size(text: str) -> int:
    """Bytes, as `67108864`, `64m` or `64 MiB`; ValueError for anything else."""
    parts = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if parts is None:
        raise ValueError(f"a size is a number of bytes, or as 64m, not {text!r}")
    return int(parts[1]) * _UNITS[parts[2]]


class SplitPartition(InputPartition):
    """One split to read."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class PcapReader(DataSourceReader):
    """`options` as `option(...)` sets them; ValueError for wrong ones."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self._columns = _columns(schema)
        mode = str(options.get("mode", "permissive")).lower()
        if mode not in ("permissive", "failfast"):
            raise ValueError(f"mode is {mode!r}, and may be permissive or failfast")
        self._strict = mode == "failfast"
        self._split_size = parse_size(str(options.get("splitSize", SPLIT_SIZE)))
        if not options.get("paths") and not options.get("path"):
            raise ValueError("no capture is named: load(PATH), a folder, a glob or a list of these")
        self._patterns = json.loads(options["paths"]) if options.get("paths") else [str(options["path"])]

    def partitions(self) -> list[InputPartition]:
        return [SplitPartition(split) for split in plan_splits(find(self._patterns), self._split_size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        split = partition.split
        begins: int | None = None
        if split.parts > 1:
            bounds = _bounds(split)
            if bounds is None:
                return
            begins, ends = bounds
            split = replace(split, end=ends)
        with closing(SplitReader(split, _BLOCK, begins)) as reader:
            while reader.fill():
                rows = reader.packets[reader.position : reader.count]
                columns = [_column(reader, rows, field) for field in self._columns]
                yield pa.RecordBatch.from_arrays(columns, schema=self._columns)
                reader.position = reader.count
        if reader.report.damage is None:
            _check(reader, partition.split)
            return
        message = f"{split.path}: {reader.report.damage}"
        if self._strict:
            raise UnreadableSplitError(message)
        log.warning("%s", message)


def _bounds(split: Split) -> tuple[int, int | None] | None:
    """Where this split's records begin and end; None if another split reads them."""
    with closing(open_input(split.path)) as file:
        begins = find_record(file, split)
        if not begins.sure or begins.place is None:
            return None
        ends: int | None = None
        for number in range(split.number + 1, split.parts):
            found = find_record(file, split, split.start_of(number))
            if found.sure:
                ends = found.place
                break
    return None if begins.place == ends else (begins.place, ends)


def _check(reader: SplitReader, split: Split) -> None:
    """Raise UnreadableSplitError if this split and those after it cannot both be right."""
    wanted = reader.split.end
    if wanted is None:
        return
    if reader.ends != wanted:
        what = "the capture ends before" if reader.ends is None else "a packet reaches over"
        raise UnreadableSplitError(f"{split.path}: {what} byte {wanted}, where a record seemed to begin; {_ADVICE}")
    described = reader.interfaces_read
    known = split.interfaces if split.number or not described else first_descriptions(split.path)
    if described not in known:
        raise UnreadableSplitError(
            f"{split.path}: interfaces are described in the middle of the capture, which later splits do not know; "
            f"{_ADVICE}"
        )


def _columns(schema: StructType) -> pa.Schema:
    """The columns of a schema as Arrow; ValueError if one is not in SCHEMA."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    ours = {field.name: field.type for field in to_arrow_schema(SCHEMA, timezone="UTC")}
    for field in wanted:
        if ours.get(field.name) != field.type:
            there = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in SCHEMA)
            raise ValueError(f"there is no column {field.name} {field.type}; there are: {there}")
    return wanted


def _column(reader: SplitReader, rows: np.ndarray[Any, Any], field: Any) -> Any:
    match field.name:
        case "file":
            return pa.repeat(reader.report.path, len(rows))
        case "offset":
            return pa.array(rows["at"] + reader.base)
        case "ts":
            return pa.array(rows["ts"] // 1_000).cast(field.type)
        case "ts_ns":
            return pa.array(np.ascontiguousarray(rows["ts"]))
        case "bytes":
            buffer = memoryview(reader.buffer.data)
            starts = rows["at"].tolist()
            ends = (rows["at"] + rows["captured"]).tolist()
            data = b"".join([buffer[a:b] for a, b in zip(starts, ends, strict=True)])
            offsets = np.zeros(len(rows) + 1, np.int32)
            np.cumsum(rows["captured"], out=offsets[1:])
            return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.array(np.ascontiguousarray(rows[field.name]))
