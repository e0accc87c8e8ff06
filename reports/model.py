"""A report before rendering: tables of plain values, and columns that describe the values.

A value is an int, float, str, bool, None (no value), or a tuple of texts, versions, packets or pairs. Texts are
unescaped: each renderer escapes them for its output. Rows are complete and sorted by importance. Only renderers leave
out rows or columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: An API's name, and versions of it, ascending.
Versions = tuple[str, tuple[int, ...]]
Scalar = int | float | str | bool | None
Value = Scalar | tuple[str, ...] | tuple[int, ...] | tuple[Versions, ...] | tuple[tuple[str, Scalar], ...]
#: A row of a table by the names of its columns.
Row = Mapping[str, Value]

#: A distribution: label, count, ascending broker times in ns, and the share of exchanges at or below each time.
Curve = tuple[str, int, list[int], list[float]]

#: Kinds of column values: text; texts (several); versions (of APIs); count; ns and ms (durations); bytes; share (0 to
#: 1); number (a float); time (ns since the epoch); packet (its number); flag (true or false). Of findings:
#: numbers (pairs of a name, with its unit at the end, and a number or text); parties (pairs of a kind and a name);
#: packets (several).
KINDS = (
    "text", "texts", "versions", "count", "ns", "ms", "bytes", "share", "number", "time", "packet", "flag", "numbers",
    "parties", "packets",
)  # fmt: skip


def as_number(value: Value) -> int | float:
    """The value if it is a number, or else 0."""
    return value if isinstance(value, int | float) else 0


def _renderer(name: str) -> Any:
    """A module of `rendering`, which is above this one."""
    from importlib import import_module

    return import_module(f".rendering.{name}", __package__)


class Column(NamedTuple):
    """`name` is for programs. `title` is for people and may contain a line break. `note` explains the column.

    `rank`: columns of rank 0 are always shown. On a narrow terminal, high ranks go first. Rank 9 is for programs only.
    `apis`: keys of APIs without whose exchanges the value is not known. `end`: what addresses are in it, for their
    names (`hosts.named_tables.ENDS`). `of`: its value in a row (`in_columns`): an
    attribute or a key of the row, or a function of it; "": the one with its own name.
    """

    name: str
    title: str
    kind: str
    note: str
    rank: int = 0
    apis: tuple[int, ...] = ()
    end: str = ""
    of: str | Callable[[Any], Value] = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Tables that go to other processes have their values. Functions cannot go there."""
        return Column, self[:-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and self[:-1] == other[:-1]

    def __hash__(self) -> int:
        return hash(self[:-1])

    @property
    def plain_title(self) -> str:
        """The title on one line."""
        return self.title.replace("-\n", "").replace("\n", " ")

    def plain(self, value: Value) -> Any:
        """A value as numbers, texts, lists and dicts, as JSON and Arrow have it. Times stay integers."""
        if not isinstance(value, tuple):
            return value
        if self.kind == "versions":
            return [{"api": api, "versions": list(some)} for api, some in cast("tuple[Versions, ...]", value)]
        if self.kind == "numbers":
            return dict(cast("tuple[tuple[str, Scalar], ...]", value))
        if self.kind == "parties":
            return [dict(zip(("kind", "name"), v, strict=True)) for v in cast("tuple[tuple[str, str], ...]", value)]
        return list(value)

    @property
    def arrow_type(self) -> pa.DataType:
        """Its type in Arrow: durations int64, times timestamp[ns, UTC], shares double, `numbers` JSON."""
        import pyarrow as pa

        versions = pa.list_(pa.struct([("api", pa.string()), ("versions", pa.list_(pa.int16()))]))
        parties = pa.list_(pa.struct([("kind", pa.string()), ("name", pa.string())]))
        types = {
            "numbers": pa.string(), "parties": parties, "packets": pa.list_(pa.int64()),
            "text": pa.string(), "texts": pa.list_(pa.string()), "versions": versions, "share": pa.float64(),
            "number": pa.float64(), "time": pa.timestamp("ns", "UTC"), "flag": pa.bool_(),
        }  # fmt: skip
        return types.get(self.kind, pa.int64())


def in_columns(
    columns: Sequence[Column], rows: Iterable[Any], key: Callable[[Any], Any] | None = None
) -> list[tuple[Value, ...]]:
    """Rows of a table with these columns, of rows by name or of objects: each column says its value (`Column.of`). If
    none of them does, a row by name has a value for every column, and no other one.

    `key`: of a row, for the order of the rows. Rows with the same key keep their order.
    """
    in_order = list(rows) if key is None else sorted(rows, key=key)
    by_name = bool(in_order) and isinstance(in_order[0], Mapping)
    names = [column.name for column in columns]
    if by_name and not any(column.of for column in columns):
        for row in in_order:
            if len(row) != len(names):
                raise ValueError(f"no such columns: {', '.join(row.keys() - set(names))}")
    get = itemgetter if by_name else attrgetter
    values = [column.of if callable(column.of) else get(column.of or column.name) for column in columns]
    return [tuple(value(row) for value in values) for row in in_order]


def in_rows(columns: Sequence[Column], values: Mapping[str, Sequence[Value]]) -> list[tuple[Value, ...]]:
    """The rows of a table with these columns, of which `values` has the values from the first row to the last."""
    if values.keys() != {column.name for column in columns}:
        raise ValueError(f"no such columns: {', '.join(values.keys() ^ {column.name for column in columns})}")
    return list(zip(*(values[column.name] for column in columns), strict=True))


def largest_first(
    columns: Sequence[Column], rows: Iterable[tuple[Value, ...]], *numbers: str, then: Sequence[str] = ()
) -> list[tuple[Value, ...]]:
    """The rows of a table by these numbers, the largest first, and then by the text of some columns, or of all."""
    names = [column.name for column in columns]
    first, texts = (list(map(names.index, some)) for some in (numbers, then or names))
    return sorted(rows, key=lambda row: (*(-as_number(row[i]) for i in first), str(tuple(row[i] for i in texts))))


class ReportTable:
    """One table of a report.

    `notes`: sentences below the table, two at most. `whole`: show all rows, whatever `-n` says. Otherwise show the
    first rows, or the rows with the largest values in the column `chosen_by`. `shown_from`: a table with fewer rows
    than this is not shown to people, because the report has the same facts elsewhere. `empty`: the text for a table
    without rows. `order`: a sentence on the order of rows. `bars`: columns whose values have a bar beside them.

    Tables are not changed once they are made. It is no tuple, so that libraries that take Arrow data take it as a table
    (`__arrow_c_stream__`), and no dataclass, because reports start without that module.
    """

    __slots__ = (
        "bars", "chosen_by", "columns", "empty", "name", "notes", "order", "rows", "shown_from",
        "title", "whole",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        title: str,
        columns: tuple[Column, ...],
        rows: list[tuple[Value, ...]],
        notes: tuple[str, ...] = (),
        whole: bool = False,
        empty: str = "nothing to report",
        shown_from: int = 0,
        chosen_by: str | None = None,
        order: str = "",
        bars: tuple[str, ...] = (),
    ) -> None:
        self.name: Final = name
        self.title: Final = title
        self.columns: Final = columns
        self.rows: Final = rows
        self.notes: Final = notes
        self.whole: Final = whole
        self.empty: Final = empty
        self.shown_from: Final = shown_from
        self.chosen_by: Final = chosen_by
        self.order: Final = order
        self.bars: Final = bars

    def named(self, row: tuple[Value, ...]) -> Row:
        """A row by the names of its columns."""
        return dict(zip((column.name for column in self.columns), row, strict=True))

    def named_rows(self, *with_any: str) -> list[Row]:
        """The rows by the names of their columns. `with_any`: only those with a value besides zero in one of these."""
        at = [i for i, column in enumerate(self.columns) if column.name in with_any]
        return [self.named(row) for row in self.rows if not at or any(row[i] for i in at)]

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Row]:
        """The rows by the names of their columns."""
        return map(self.named, self.rows)

    def __getitem__(self, at: int) -> Row:
        """A row by the names of its columns."""
        return self.named(self.rows[at])

    def head(self, count: int = 5) -> ReportTable:
        """The table with its first rows."""
        return self.replace(rows=self.rows[:count])

    def replace(self, **changes: Any) -> ReportTable:
        """A copy with some fields changed."""
        return ReportTable(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def to_arrow(self) -> pa.Table:
        """The table for Arrow, with one column for each of its columns (`Column.arrow_type`). ImportError with what to
        install where pyarrow is missing."""
        import json

        try:
            import pyarrow as pa
        except ImportError as error:
            from kafkatap.installation import without_arrow

            raise ImportError(without_arrow("tables of Arrow need")) from error

        made = []
        for place, column in enumerate(self.columns):
            values = [column.plain(row[place]) for row in self.rows]
            if column.kind == "numbers":
                values = [None if value is None else json.dumps(value) for value in values]
            made.append(pa.array(values, column.arrow_type))
        return pa.Table.from_arrays(made, [column.name for column in self.columns])

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The table for pandas. Integers and flags are of pandas' own nullable types, unless `types_mapper` is in the
        options (of `pyarrow.Table.to_pandas`).

        ImportError with what to install where pandas is missing.
        """
        try:
            import pandas as pd
        except ImportError as error:
            from kafkatap.installation import install_command

            raise ImportError(
                f"to_pandas() needs pandas ({install_command('pandas')}); to_arrow() works without it"
            ) from error
        import pyarrow as pa

        nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        return self.to_arrow().to_pandas(**{"types_mapper": nullable.get} | options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReportTable):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        return f"<ReportTable {self.name}: {rows} of {len(self.columns)} columns>"

    def _repr_html_(self) -> str:
        return str(_renderer("html.notebook").table_html(self))


class PageSource(NamedTuple):
    """What a report's page has from elsewhere. `captures`: their names in commands. `read_packets`: reads the captures
    once more for sequences of packets, by first and last packets and the addresses of brokers; None: it cannot."""

    captures: tuple[str, ...] = ()
    read_packets: Callable[[list[tuple[int, int]], frozenset[str]], Mapping[int, Any]] | None = None


NO_SOURCE = PageSource()


class Report(Mapping[str, ReportTable]):
    """A whole report: a mapping of its tables by name, the heading first and the ledger last.

    `warnings`: sentences on what was lost, damaged or not decoded. `options`: as of `Context`, for commands. `source`:
    for its page.
    """

    __slots__ = ("curves", "heading", "ledger", "options", "source", "tables", "warnings")

    def __init__(
        self,
        heading: ReportTable,
        tables: tuple[ReportTable, ...],
        ledger: ReportTable,
        warnings: tuple[str, ...],
        curves: Curves,
        options: tuple[tuple[str, str], ...] = (),
        source: PageSource = NO_SOURCE,
    ) -> None:
        self.source: Final = source
        self.heading: Final = heading
        self.options: Final = options
        self.tables: Final = tables
        self.ledger: Final = ledger
        self.warnings: Final = warnings
        self.curves: Final = curves

    def replace(self, **changes: Any) -> Report:
        """A copy with some fields changed."""
        return Report(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def table(self, name: str) -> ReportTable:
        """One of the tables, the heading or the ledger, by name. KeyError for an unknown name."""
        for table in (self.heading, *self.tables, self.ledger):
            if table.name == name:
                return table
        raise KeyError(
            f"this report has no table {name!r}; it has {', '.join(self)}. Other tables need their section: make the "
            "report with report(sections=[...]); `kafkatap report --sections help` lists them"
        )

    def page(self, path: str | os.PathLike[str], *, utc: bool = False, overwrite: bool = False) -> None:
        """Write the page of `kafkatap report --html` (docs/page.md) with the tables of this report.

        `utc`: show times in UTC instead of local time. `overwrite`: replace a page that kafkatap did not write.
        ValueError or OSError if the file cannot be written. Without matplotlib three charts are left out.
        """
        _renderer("html.report_page").write_page(self, os.fspath(path), utc, overwrite)

    @property
    def findings(self) -> ReportTable:
        """The findings that begin the report, with their numbers, times, packets and parties: the table `summary`."""
        return self.table("summary")

    def __getitem__(self, name: str) -> ReportTable:
        return self.table(name)

    def __iter__(self) -> Iterator[str]:
        return (table.name for table in (self.heading, *self.tables, self.ledger))

    def __len__(self) -> int:
        return len(self.tables) + 2

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "source")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Report of {', '.join(f'{t.name} ({len(t.rows):,})' for t in (*self.tables, self.ledger))}>"

    def _repr_html_(self) -> str:
        return str(_renderer("html.notebook").report_html(self))


class HeatMap(NamedTuple):
    """Counts of exchanges by time and by broker time. `cells`: (column, row, count) of those with a count, ascending.

    Column n begins at `first` + n * `interval`, ns. Row n holds times from `edges[n]` up to `edges[n + 1]`, ns. `what`:
    which exchanges count.
    """

    first: int
    interval: int
    edges: tuple[int, ...]
    cells: tuple[tuple[int, int, int], ...]
    what: str

    def __repr__(self) -> str:
        return f"<HeatMap of {sum(count for *_, count in self.cells):,} exchanges>"


class Traffic(NamedTuple):
    """Requests and broker times over time. `apis`, `clients`, `brokers`: names, unescaped; None: no client_id. `cells`:
    (slot, API, client, broker, level, requests, bytes, failed, unanswered, throttled), ascending: numbers of names,
    and sums.

    Slot n begins at `first` + n * `interval`, ns. Level n holds broker times, without waits for data and members, from
    `edges[n]` up to `edges[n + 1]`, ns; -1: there was no response, or nothing but a wait.
    """

    first: int
    interval: int
    edges: tuple[int, ...]
    apis: tuple[str | None, ...]
    clients: tuple[str | None, ...]
    brokers: tuple[str | None, ...]
    cells: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        return f"<Traffic of {sum(cell[5] for cell in self.cells):,} requests>"


class Mark(NamedTuple):
    """An event in charts over time. `begin`, `end`: ns since the epoch; `end` None: it lasts, or took no time. `text`:
    unescaped."""

    begin: int
    end: int | None
    label: str
    text: str


class Curves(NamedTuple):
    """Data for plots. `latency`: a curve for each row of the latency table, the most frequent first. `heat`: broker
    time over time. `marks`: events, in order of time. `traffic`: requests and broker times over time."""

    latency: tuple[Curve, ...] = ()
    heat: HeatMap | None = None
    marks: tuple[Mark, ...] = ()
    traffic: Traffic | None = None

    def __repr__(self) -> str:
        return f"<Curves of {', '.join(label for label, *_ in self.latency) or 'nothing'}>"
