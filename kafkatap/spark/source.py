"""The data source "pcap": packets of captures as rows, from a batch of files or as they arrive.

    register(spark)
    spark.read.format("pcap").option("splitSize", "64m").load("captures/*.pcap")
    spark.readStream.format("pcap").schema("file string, ts timestamp, captured int").load("captures/")

One partition for each split (`kafkatap.captures.splits`). The driver reads no more than the heads of files: where a
split begins is found where it is read, and to where, too: neighbours put the same question to the same bytes, and get
the same answer. A boundary of which the bytes around it are not sure is no boundary: the split before goes on past it.
And a reader that does not come out exactly where the next split begins is an error, not rows that nobody took.

Columns that are not asked for (`schema`) are not made. Options: `splitSize` (bytes, or as 64m; 0: whole files), `mode`
(`permissive`: a damaged file gives what comes before the damage, and of later splits what can be read; `failfast`: it
is an error); for streams also `quiet` (seconds, 60) and `maxFilesPerTrigger`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)  # fmt: skip

from ..captures.splits import SPLIT_SIZE, Found, Split, SplitReader, cut, find_record, first_descriptions, plan_splits
from ..captures.storage import File, expand, find, open_input

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

log = logging.getLogger("kafkatap")


class UnreadableSplitError(Exception):
    """A capture that cannot be read in splits (and not as a whole, in mode failfast); the message says why."""


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("pcap")` and `spark.readStream.format("pcap")` known to a session."""
    spark.dataSource.register(PcapSource)


class PcapSource(DataSource):
    """The data source that `register` makes known."""

    @classmethod
    def name(cls) -> str:
        return "pcap"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> PcapReader:
        return PcapReader(schema, Options.of(self.options))

    def streamReader(self, schema: StructType) -> PcapStream:  # noqa: N802
        return PcapStream(schema, Options.of(self.options))


@dataclass(frozen=True, slots=True)
class Options:
    """What `option(...)` says; ValueError for what cannot be meant."""

    patterns: tuple[str, ...]
    split_size: int
    strict: bool
    quiet: float
    files_a_batch: int | None

    @classmethod
    def of(cls, options: Any) -> Options:
        mode = str(options.get("mode", "permissive")).lower()
        if mode not in ("permissive", "failfast"):
            raise ValueError(f"mode is {mode!r}, and may be permissive or failfast")
        most = options.get("maxFilesPerTrigger")
        return cls(
            _patterns(options),
            parse_size(str(options.get("splitSize", SPLIT_SIZE))),
            mode == "failfast",
            float(options.get("quiet", 60)),
            None if most is None else max(int(most), 1),
        )


def _patterns(options: Any) -> tuple[str, ...]:
    import json

    if options.get("paths"):
        return tuple(json.loads(options["paths"]))
    if not options.get("path"):
        raise ValueError("no capture is named: load(PATH), a folder, a glob or a list of these")
    return (str(options["path"]),)


def parse_size(text: str) -> int:
    """Bytes, as `67108864`, `64m` or `64 MiB`; ValueError for anything else."""
    parts = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if parts is None:
        raise ValueError(f"a size is a number of bytes, or as 64m, not {text!r}")
    return int(parts[1]) * _UNITS[parts[2]]


# ---------------------------------------------------------------- partitions


class Part(InputPartition):
    """One split to read. `given`: bytes of the file (uncompressed) whose packets were read by an earlier batch."""

    def __init__(self, split: Split, given: int = 0) -> None:
        super().__init__((split, given))
        self.split = split
        self.given = given


class PcapReader(DataSourceReader):
    """All captures that there are."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._columns = _columns(schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [Part(split) for split in plan_splits(expand(self._options.patterns), self._options.split_size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._columns, self._options.strict)


def read_part(part: Any, columns: pa.Schema, strict: bool = False) -> Iterator[pa.RecordBatch]:
    """The packets of a `Part` as Arrow batches of these columns."""
    split: Split = part.split
    begins: int | None = None
    if part.given:
        begins = _already_read(split, part.given)
    elif split.parts > 1:
        range_ = _range(split)
        if range_ is None:
            return
        begins, ends = range_
        split = replace(split, end=ends)
    reader = SplitReader(split, _BLOCK, begins)
    with closing(reader):
        while reader.fill():
            yield _batch(reader, columns)
            reader.position = reader.count
    if reader.report.damage is not None:
        message = f"{split.path}: {reader.report.damage}"
        if strict:
            raise UnreadableSplitError(message)
        log.warning("%s", message)
    else:
        _check(reader, part.split)


def _range(split: Split) -> tuple[int, int | None] | None:
    """Where the records begin and end that this split is to give; None where another one gives them."""
    with closing(open_input(split.path)) as file:
        begins = find_record(file, split)
        if not begins.sure or begins.place is None:
            return None
        ends: int | None = None
        for number in range(split.number + 1, split.parts):
            found: Found = find_record(file, split, split.start_of(number))
            if found.sure:
                ends = found.place
                break
    return None if begins.place == ends else (begins.place, ends)


def _check(reader: SplitReader, split: Split) -> None:
    """Raise where this split and those after it cannot both be right."""
    wanted = reader.split.end
    advice = "read such a capture as a whole (option splitSize=0)"
    if wanted is not None and reader.ends != wanted:
        what = "the capture ends before" if reader.ends is None else "a packet reaches over"
        raise UnreadableSplitError(f"{split.path}: {what} byte {wanted}, where a record seemed to begin; {advice}")
    told = reader.interfaces_told
    known = split.interfaces if split.number or not told else first_descriptions(split.path)
    if wanted is not None and told not in known:
        raise UnreadableSplitError(
            f"{split.path}: interfaces are described in the middle of the capture, which later splits do not know; "
            f"{advice}"
        )


def _already_read(split: Split, given: int) -> int | None:
    """Where the first record begins that was not whole when the file held `given` bytes."""
    if not split.head:
        raise UnreadableSplitError(
            f"{split.path}: this compressed capture grew after it was read; a longer quiet time (option quiet) "
            "waits until its program is done with it"
        )
    with closing(SplitReader(replace(split, size=given), _BLOCK)) as reader:
        while reader.fill():
            reader.position = reader.count
    return reader.reached


# ---------------------------------------------------------------- rows


def _columns(schema: StructType) -> pa.Schema:
    """The columns asked for, as Spark wants them of Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    asked = to_arrow_schema(schema, timezone="UTC")
    ours = {field.name: field.type for field in to_arrow_schema(SCHEMA, timezone="UTC")}
    for field in asked:
        if ours.get(field.name) != field.type:
            there = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in SCHEMA)
            raise ValueError(f"there is no column {field.name} {field.type}; there are: {there}")
    return asked


def _batch(reader: SplitReader, columns: pa.Schema) -> pa.RecordBatch:
    rows = reader.packets[reader.position : reader.count]
    return pa.RecordBatch.from_arrays([_column(reader, rows, field) for field in columns], schema=columns)


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


# ---------------------------------------------------------------- streams


def series(path: str) -> str:
    """What the names of one program's rotated files have in common."""
    return re.sub(r"\d+", "", path)


def complete(files: Sequence[File], quiet: float, now: float) -> list[File]:
    """The files that nobody writes any more: the next of the same `series` was begun, or nothing was written for
    `quiet` s. `now`: s since the epoch. In the order in which they were last written."""
    newest: dict[str, File] = {}
    for file in files:
        known = newest.get(series(file.path))
        if known is None or (known.modified, known.path) < (file.modified, file.path):
            newest[series(file.path)] = file
    done = [f for f in files if newest[series(f.path)] is not f or f.modified <= (now - quiet) * 1e9]
    return sorted(done, key=lambda f: (f.modified, f.path))


class PcapStream(DataSourceStreamReader):
    """Captures as they arrive. An offset holds the name of each file that was taken with the bytes that it had then; of
    a file that has grown since, the rest is taken. Files that are gone are forgotten."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._columns = _columns(schema)
        self._options = options

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.files_a_batch
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        try:
            files = find(self._options.patterns)
        except FileNotFoundError:  # nothing has arrived, or nothing is left
            files = []
        done = complete(files, self._options.quiet, time.time())
        more = [f for f in done if f.size > start.get(f.path, -1)]
        if isinstance(limit, ReadMaxFiles):
            more = more[: limit.max_files]
        if not more:
            return start
        there = {f.path for f in files}
        kept = {path: size for path, size in start.items() if path in there}
        return dict(sorted((kept | {f.path: f.size for f in more}).items()))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        parts: list[InputPartition] = []
        for path, size in end.items():
            given = start.get(path, 0)
            if size > given:
                whole = Split(path, size=size)
                step = size if given else min(self._options.split_size or size, size)
                parts += [Part(split, given) for split in cut(whole, step)]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._columns, self._options.strict)
