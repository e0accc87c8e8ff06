"""`--sort COLUMN`: the tables that have a column, in the order of its values.

A column is named as in JSON, where the unit may be left out, or by its heading on one line.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Column, Report, ReportTable, Value

#: Kinds of columns whose values are texts.
_TEXTS = frozenset(("text", "texts", "versions"))
#: Columns that an error names at most.
_HINTS = 12
#: Ends of column names that may be left out.
_UNITS = ("_ns", "_ms", "_bytes")
#: Tables that keep their order: the summary, and the ledger, whose parts add up.
_FIXED = frozenset(("summary", "ledger"))


def sortable_columns() -> list[str]:
    """The names of all columns by which tables can be sorted."""
    return sorted({column.name for column in _columns()})


def _columns() -> list[Column]:
    from .json_report import all_columns

    return [c for table, columns in all_columns().items() if table not in _FIXED for c in columns]


def check_sort(name: str) -> None:
    """Raise ValueError unless a table of reports has the column."""
    if _named(_columns(), name) is None:
        raise ValueError(f"no table has a column {name!r}; {_hint(_plain(name))}")


def _hint(name: str) -> str:
    """The columns that were meant: those of a table of that name, those with the name in theirs, or names like it."""
    from difflib import get_close_matches

    from .json_report import all_columns

    if name in all_columns():
        columns = [c.name for c in all_columns()[name] if c.kind not in _TEXTS]
        return f"the table {name} has {', '.join(columns[:_HINTS])}; --sort help lists all"
    known = sortable_columns()
    within = sorted((column for column in known if name in column), key=len)
    near = within or get_close_matches(name, known, 4, 0.7)
    if not near:
        return "--sort total_p99, requests and broker_p99 are usual; --sort help lists all"
    return f"did you mean {', '.join(near[:_HINTS])}?"


#: Tables that have only some of what there is: which.
_CHOSEN = {
    "slowest": "the slowest of each API by total time: --filter finds others, such as 'broker_time > 1s'",
    "first_errors": "the first exchange with each error code",
}


def sort_report(report: Report, name: str) -> Report:
    """The report with sorted tables. Those without the column stay as they are."""
    return report.replace(
        tables=tuple(table if table.name in _FIXED else _sorted(table, name) for table in report.tables)
    )


def _sorted(table: ReportTable, name: str) -> ReportTable:
    column = _named(table.columns, name)
    if column is None:
        return table
    at = table.columns.index(column)
    with_value = [row for row in table.rows if row[at] not in (None, ())]
    without = [row for row in table.rows if row[at] in (None, ())]
    numbers = column.kind not in _TEXTS
    rows = sorted(with_value, key=lambda row: _order(row[at]), reverse=numbers)
    of_chosen = f", of {_CHOSEN[table.name]}" if table.name in _CHOSEN else ""
    order = f"Sorted by {column.plain_title} ({column.name}){of_chosen}."
    return table.replace(rows=rows + without, chosen_by=None, order=order)


def _order(value: Value) -> tuple[float, str]:
    """Numbers by size, texts and lists as texts."""
    return (value, "") if isinstance(value, int | float) else (0, str(value))


def _named(columns: Iterable[Column], name: str) -> Column | None:
    """The column of that name, or the first one whose name without its unit it is, or else whose heading."""
    wanted = _plain(name)
    short = headed = None
    for column in columns:
        if column.name == wanted:
            return column
        if short is None and any(column.name == wanted + unit for unit in _UNITS):
            short = column
        if headed is None and wanted == _plain(column.plain_title):
            headed = column
    return short or headed


def _plain(name: str) -> str:
    return "_".join(name.lower().replace("-", " ").replace("_", " ").replace(",", " ").split())


def sort_help() -> str:
    """The columns of each table: headings, and names in JSON."""
    from .json_report import all_columns

    lines = ["Columns by table: heading, and name in JSON, Parquet and CSV. --sort takes both."]
    for table, columns in all_columns().items():
        if table not in _FIXED:
            lines += ["", f"{table}:"]
            lines += [f"  {column.plain_title:24} {column.name}" for column in columns]
    return "\n".join(lines) + "\n"
