"""A table as JSON for the page's script: for each column the values to sort by, and the texts to show.

Texts are formatted here, as in the text report. So the script has no units of its own. A column of counts has only
values, and a column of texts has only texts. Times are relative to the earliest one of their column: a double has not
enough digits for nanoseconds since the epoch. `start` is that time in ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...model import Column, ReportTable, Value
from ..text_tables import BAD, FOR_PROGRAMS, LONGEST_COMMAND, RIGHT, SENTENCES, cell, clock_form, columns_for_people

#: Commands of a row, the most specific first: `kafkatap show ...` or nothing.
RowCommands = Callable[[ReportTable, tuple[Value, ...]], Sequence[str]]
_TEXTS = ("text", "texts", "versions", "numbers", "parties", "packets")
#: Columns whose words have a colour.
_WORDS = frozenset(("verdict", "evidence", "fault"))


def table_data(table: ReportTable, utc: bool, first: int | None, commands: RowCommands | None = None) -> dict[str, Any]:
    """The table for the script. `first`: the time of the capture's first packet. `commands`: those of a row."""
    digits, date = clock_form(table, table.rows, first, utc)
    for_people = columns_for_people(table)
    columns = [_column(table, i, i in for_people, utc, digits, date) for i in range(len(table.columns))]
    made: dict[str, Any] = {"name": table.name, "rows": len(table.rows), "columns": columns}
    if commands is not None and table.rows:
        found = [[each for each in commands(table, row) if len(each) <= LONGEST_COMMAND] for row in table.rows]
        if any(found):
            made["commands"] = found
    return made


def _column(
    table: ReportTable, i: int, is_for_people: bool, utc: bool, digits: int, date: bool
) -> dict[str, Any]:  # fmt: skip
    column = table.columns[i]
    values = [row[i] for row in table.rows]
    made: dict[str, Any] = {
        "name": column.name,
        "title": column.plain_title,
        "note": column.note,
        "kind": column.kind,
        "rank": column.rank if is_for_people else FOR_PROGRAMS,
    }
    if column.kind in RIGHT or column.kind == "time":
        made["right"] = True
    if column.name in SENTENCES:
        made["sentence"] = True
    if column.name in BAD or column.name == "error":
        made["bad"] = BAD.get(column.name, "red")
    if column.name in _WORDS:
        made["words"] = True
    if column.kind == "time":
        made["start"] = _earliest(values) / 1e6
    if column.kind not in _TEXTS:
        made["values"] = _numbers(column, values)
    if column.kind not in ("count", "packet"):
        made["texts"] = [cell(column, value, utc, digits, date) for value in values]
    return made


def _numbers(column: Column, values: Sequence[Value]) -> list[int | float | None]:
    """Numbers to sort by."""
    numbers = [value if isinstance(value, int | float) else None for value in values]
    if column.kind == "flag":
        return [None if value is None else int(value) for value in numbers]
    if column.kind == "time":
        start = _earliest(numbers)
        return [None if value is None else value - start for value in numbers]
    return numbers


def _earliest(values: Sequence[Value]) -> int:
    return min((value for value in values if isinstance(value, int)), default=0)
