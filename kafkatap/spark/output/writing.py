"""Write the rows of a run as Parquet files, on executors and on the driver.

    writer = TableWriter(out, run)                      # can be sent to other processes
    with writer.open(split) as files:
        files.write("exchanges", rows)
        files.write("results", rows)
    written = files.written

A file is OUT/TABLE/date=2026-11-21/part-RUN-SPLIT-N-UUID.parquet. No reader of a Delta table sees it before the driver
commits it (`publication`). So a failed attempt of a task only leaves a file that nobody reads.

Every row gets `capture`, the identity of the capture file in which it begins. Times are in microseconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from kafkatap.kernels.arrays import groups_of
from kafkatap.reports.counting.hour_counts import HOUR, HourCounts
from kafkatap.reports.rollup_tables import FORMS, rollup_table
from kafkatap.reports.section_parts.stored import STORED_TABLE, connection_parts, kept_table

from ...parquet.partitions import date_of, days, exchange_begins, exchange_days, in_microseconds, nullable_inside
from ...splits.executor import HERE, Place
from ...splits.tasks import GROUP_BYTES
from .folders import Folder
from .parquet_file import FileStats, ParquetFile

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.reports.batch import Context, Names
    from kafkatap.reports.counting.parts import Part

    from ...splits.capture_ledgers import CaptureIndex

Array = np.ndarray[Any, Any]
_FIRST_PACKETS, _NONE = ("request_packet_first", "response_packet_first"), np.iinfo(np.int64).max
#: Tables of which `rollup` and so on are counts.
COUNTED = ("exchanges", "connections")
#: The tables with these counts.
OF_COUNTS = (*FORMS, STORED_TABLE)
#: Tables without the partition column `date`: they are small.
UNPARTITIONED = ("files", "ledger")
#: A file is closed when it has this many bytes.
FILE_SIZE = 256 << 20
#: Files that a split has open at once, and bytes of rows that wait for their row groups.
_OPEN_FILES, _WAITING = 64, 128 << 20
#: One split writes a table to at most this many dates. Rows of other dates get the date 1970-01-01: a damaged or
#: crafted capture can have any times.
MOST_DATES = 256
OTHER_DATES = "1970-01-01"


@dataclass(frozen=True, slots=True)
class Written:
    """A closed file. `path`: below OUT/TABLE; `stats`: the Delta statistics of its columns, as JSON."""

    table: str
    path: str
    size: int
    rows: int
    date: str | None
    stats: str

    @property
    def name(self) -> str:
        """Its name below OUT."""
        return f"{self.table}/{self.path}"


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes rows of the tables below `out` for a run. `captures`: in which rows can begin; None if all rows have a
    column `capture`. `is_private`: as of `Folder`. `number`: the run number of all rows; None: they
    have none. `counts_only`: rows are only counted, for `rollup` and so on. `clusters`: of captures, for these. `only`:
    the table of which rows are written; None: of all."""

    out: str
    run: str
    captures: CaptureIndex | None = None
    is_private: bool = False
    number: int | None = None
    counts_only: bool = False
    clusters: Mapping[int, str | None] = field(default_factory=dict)
    only: str | None = None

    def with_captures(self, captures: CaptureIndex) -> TableWriter:
        return replace(self, captures=captures)

    def open(self, split: int | str, place: Place = HERE) -> SplitFiles:
        """The files of a split, and of those of its group."""
        return SplitFiles(self, split)

    def spill(self, data: bytes) -> str:
        """Keep bytes until the run ends; return their name. What a killed run leaves, `compact` deletes."""
        name = f"{STORED_TABLE}/{files_of_run(self.run)}{uuid.uuid4().hex[:12]}.counts"
        Folder(self.out, self.is_private).write(name, data)
        return name

    def fetch(self, name: str) -> bytes:
        """The bytes of that name. OSError if they are gone."""
        data = Folder(self.out, self.is_private).read(name)
        if data is None:
            raise OSError(f"{self.out}/{name} is gone; another program deleted it")
        return data

    def drop(self, names: Iterable[str]) -> None:
        """Delete what was kept."""
        Folder(self.out, self.is_private).delete_all(names)

    def delete(self, written: Iterable[Written]) -> None:
        """Delete files that no reader sees yet."""
        Folder(self.out, self.is_private).delete_all([one.name for one in written])


def files_of_run(run: str) -> str:
    """The start of the names of a run's files."""
    return f"part-{run}-"


def with_capture(rows: pa.Table, captures: Array) -> pa.Table:
    """Rows with a column `capture`, int64 (n,), at the end."""
    import pyarrow as pa

    return rows.append_column(pa.field("capture", pa.int64(), nullable=False), pa.array(captures, pa.int64()))


class SplitFiles:
    """The files of one attempt to write a group of splits. At the end of the `with` statement they are closed, and
    `written` names them; after an exception they are deleted."""

    group_bytes: ClassVar[int] = GROUP_BYTES

    def __init__(self, writer: TableWriter, split: int | str) -> None:
        self.written: list[Written] = []
        self._folder = Folder(writer.out, writer.is_private)
        name = f"{split:05d}" if isinstance(split, int) else split
        self._start = f"{files_of_run(writer.run)}{name}"
        self._captures, self._number = writer.captures, writer.number
        self._counts_only, self._clusters, self._only = writer.counts_only, writer.clusters, writer.only
        self._files: dict[tuple[str, str | None], ParquetFile] = {}
        self._dates: dict[str, set[int]] = {}
        self._exchanges = _Places()
        self._last: tuple[Array, Array] | None = None  # the days and captures of rows that were written last
        self._hours = HourCounts()
        self._count = 0

    def write(self, table: str, rows: pa.Table, first_packets: Array | None = None) -> None:
        """Write rows of a table (of the schemas in reports/tables.py, with or without `capture`).

        Exchanges come before their results and records. `first_packets`: the number of each connection's first packet,
        for connections without `capture`.
        """
        if not rows.num_rows or (self._counts_only and table not in COUNTED):
            return
        if table in UNPARTITIONED:
            self._add(table, None, rows)
            return
        found, captures = self._placed(table, rows, first_packets)
        found = self._limited(table, found)
        if captures is not None:
            rows = with_capture(rows, captures)
        if table in COUNTED:
            self._last = found, rows["capture"].to_numpy()
        if not self._counts_only:
            self._add_by_day(table, rows, found)

    @property
    def keeper(self) -> SplitFiles:
        """Itself."""
        return self

    def count(self, table: str, rows: Array, context: Context, results: Array | None = None) -> None:
        """Add the rows of exchanges (with their results) or connections that were written last to the rollup.
        `context`: what the numbers in them mean."""
        assert self._last is not None, "rows are counted after they are written"
        days_of, captures = self._last
        begins = rows["first"] if results is None else exchange_begins(rows)
        hours = begins // HOUR
        hours = np.where(hours // 24 == days_of, hours, days_of * 24)  # rows of other dates
        if results is None:
            self._hours.add_connections(rows, captures, hours, context)
            places, of_rows = np.unique(np.stack((captures, hours), axis=1), axis=0, return_inverse=True)
            parts = connection_parts(rows, of_rows.reshape(-1).astype(np.int64), context)
            self.keep(places, *parts, np.zeros(len(places), np.int64))
        else:
            self._hours.add(rows, results, captures, hours, context)

    def places_of(self, exchanges: Array) -> tuple[Array, Array]:
        """As of `CountKeeper`."""
        assert self._captures is not None, "exchanges need an index of captures"
        packets = [np.where(exchanges[name], exchanges[name], _NONE) for name in _FIRST_PACKETS]
        hours = exchange_begins(exchanges) // HOUR
        days_of = self._limited(STORED_TABLE, hours // 24)
        return self._captures.captures_of(np.minimum(*packets)), np.where(hours // 24 == days_of, hours, days_of * 24)

    def hour_of(self, time: int) -> int:
        """As of `CountKeeper`."""
        hour = time // HOUR
        day = int(self._limited(STORED_TABLE, np.array([hour // 24]))[0])
        return hour if hour // 24 == day else day * 24

    def keep(self, places: Array, parts: Iterable[tuple[Part, Array]], names: Names, exchanges: Array) -> None:
        """As of `CountKeeper`."""
        rows, captures = kept_table(places, parts, names, exchanges)
        if rows.num_rows:
            self._add_by_day(STORED_TABLE, with_capture(rows, captures), days(rows["hour"]))

    def _write_rollup(self) -> None:
        """Write what was counted."""
        for table, form in FORMS.items():
            if len(self._hours[form.name]):
                rows = rollup_table(table, self._hours)
                self._add_by_day(table, rows, days(rows["hour"]))

    def _add_by_day(self, table: str, rows: pa.Table, found: Array) -> None:
        """Add rows in the order of their days (int64), and of a day in their own order."""
        import pyarrow as pa

        for [day], chosen in groups_of(found):
            self._add(table, date_of(day), rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen)))

    def _placed(self, table: str, rows: pa.Table, first_packets: Array | None) -> tuple[Array, Array | None]:
        """The day and the capture of each row. The captures are None if the rows have them already."""
        has_capture = "capture" in rows.schema.names
        if table in ("results", "records"):
            return self._exchanges.of(rows["exchange"].to_numpy(), is_latest=table == "results")
        if table == "connections":
            found = days(rows["connection_first"])
            if has_capture:
                return found, None
            assert self._captures is not None, "connections need `capture` or an index"
            assert first_packets is not None, "connections need `capture` or their first packets"
            return found, self._captures.captures_of(first_packets)
        assert self._captures is not None, "exchanges need an index of captures"
        found = exchange_days(rows)
        captures = self._captures.captures_of(_first_packets(rows))
        self._exchanges.add(rows["exchange"].to_numpy(), found, captures)
        return found, captures

    def _limited(self, table: str, found: Array) -> Array:
        """Days, of which a table has at most MOST_DATES."""
        known = self._dates.setdefault(table, set())
        distinct = set(np.unique(found).tolist())
        if distinct <= known:
            return found
        for day in sorted(distinct - known):
            if len(known) < MOST_DATES:
                known.add(day)
        return found if distinct <= known else np.where(np.isin(found, list(known)), found, 0)

    def _add(self, table: str, date: str | None, rows: pa.Table) -> None:
        import pyarrow as pa

        if self._only not in (None, table):
            return
        rows = rows.cast(nullable_inside(in_microseconds(rows.schema)), safe=False)
        if table in OF_COUNTS:
            rows = rows.append_column("cluster", self._clusters_of(rows["capture"]))
        if self._number is not None:
            rows = rows.append_column("run_number", pa.array(np.full(rows.num_rows, self._number)))
        file = self._files.get((table, date))
        if file is None:
            if len(self._files) >= _OPEN_FILES:
                self._close(next(iter(self._files)))
            file = self._files[table, date] = self._new_file(table, date, rows.schema)
        file.write(rows)
        if file.size >= FILE_SIZE:
            self._close((table, date))
        elif sum(other.waiting for other in self._files.values()) > _WAITING:
            for other in self._files.values():
                other.flush()

    def _clusters_of(self, captures: Any) -> Any:
        import pyarrow as pa

        found = captures.combine_chunks().dictionary_encode()
        names = pa.array([self._clusters.get(capture) for capture in found.dictionary.to_pylist()], pa.string())
        return names.take(found.indices)

    def _new_file(self, table: str, date: str | None, schema: pa.Schema) -> ParquetFile:
        name = f"{self._start}-{self._count}-{uuid.uuid4().hex[:12]}.parquet"
        self._count += 1
        return ParquetFile(self._folder, f"{table}/{name}" if date is None else f"{table}/date={date}/{name}", schema)

    def _close(self, key: tuple[str, str | None]) -> None:
        file = self._files.pop(key)
        self.written.append(closed(file, *key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self._write_rollup()
                for key in list(self._files):
                    self._close(key)
                return
        except BaseException:
            self._abort()
            raise
        self._abort()

    def _abort(self) -> None:
        """Delete all files."""
        for file in self._files.values():
            file.abort()
        for written in self.written:
            with suppress(OSError):
                self._folder.delete(written.name)


def closed(file: ParquetFile, table: str, date: str | None) -> Written:
    """Close a file. OSError names it."""
    try:
        stats: FileStats = file.close()
    except BaseException:
        file.abort()
        raise
    return Written(table, file.name.partition("/")[2], stats.size, stats.rows, date, stats.json)


def _first_packets(exchanges: pa.Table) -> Array:
    """The number of the first packet of each exchange."""
    request, response = (exchanges[name].fill_null(_NONE).to_numpy() for name in _FIRST_PACKETS)
    found: Array = np.minimum(request, response)
    return found


class _Places:
    """The day and the capture of each exchange of a split: those of its results and records."""

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []
        self._sorted: tuple[Array, Array, Array] | None = None
        self._only: tuple[int, int] | None = None  # the day and the capture of all exchanges

    def add(self, exchanges: Array, found: Array, captures: Array) -> None:
        order = np.argsort(exchanges, kind="stable")
        same = (found == found[0]).all() and (captures == captures[0]).all()
        here = (int(found[0]), int(captures[0])) if same else None
        self._only = here if not self._parts or here == self._only else None
        self._parts.append((exchanges[order], found[order], captures[order]))
        self._sorted = None

    def of(self, exchanges: Array, is_latest: bool) -> tuple[Array, Array]:
        """The days and the captures of these exchanges. `is_latest`: all are in the part that was added last."""
        if self._only is not None:
            day, capture = self._only
            return np.full(len(exchanges), day, np.int64), np.full(len(exchanges), capture, np.int64)
        if is_latest:
            keys, found, captures = self._parts[-1]
        else:
            if self._sorted is None:
                whole = [np.concatenate(columns) for columns in zip(*self._parts, strict=True)]
                order = np.argsort(whole[0], kind="stable")
                self._sorted = whole[0][order], whole[1][order], whole[2][order]
            keys, found, captures = self._sorted
        at = np.minimum(np.searchsorted(keys, exchanges), len(keys) - 1)
        assert (keys[at] == exchanges).all(), "results and records need their exchanges before them"
        return found[at], captures[at]
