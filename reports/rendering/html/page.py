"""`render_page`: one page with tables, figures and findings, which needs nothing besides itself.

The page has its style and its script in it, and a Content-Security-Policy that allows only these two, by their hashes.
Rows are data: JSON in a script element that browsers do not run. The page's script makes cells of it with textContent.
All other texts pass through jinja2's autoescape. `safe` escapes control characters and those that reorder text, as on
a terminal.

Texts of cells are formatted here, as in the text report, so the script has no units of its own. A column of counts has
only values to sort by, and a column of texts has only texts. Times are relative to the earliest one of their column: a
double has not enough digits for nanoseconds since the epoch. `start` is that time in ms since the epoch.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ... import units
from ...model import Column, ReportTable, Traffic, Value
from ...sections.row_commands import PLACE
from ..text_tables import (
    BAD,
    FOR_PROGRAMS,
    LONGEST_COMMAND,
    RIGHT,
    SENTENCES,
    cell,
    chosen_rows,
    clock_form,
    columns_for_people,
)
from .sequence import Sequences, sequence_data
from .svg import TimeSpan

_FOLDER = Path(__file__).parent
#: They are one script of the page, in this order.
_SCRIPTS = ("script.js", "sequence.js", "picture.js")
#: Cells of the text of a mark in the picture.
_TOLD = 300
#: Rows of a table at most. A browser opens a page with ten such tables at once.
MOST_ROWS = 10_000
#: Commands of a row, the most specific first: `kafkatap show ...` or nothing.
RowCommands = Callable[[ReportTable, tuple[Value, ...]], Sequence[str]]
_TEXTS = ("text", "texts", "versions", "numbers", "parties", "packets")
#: Columns whose words have a colour.
_WORDS = frozenset(("verdict", "evidence", "fault"))


class PageFinding(NamedTuple):
    """One line at the top of the page. `tone`: good, bad, warn, note or empty. `word`: says the tone to those who do
    not see colours. `commands`: show more, each with a button to copy it. `table`: the name of the table that shows
    more; without that table on the page there is no link.

    `begin`, `end`: when it was, ns since the epoch; the picture marks it. `whom`: names of clients and brokers.
    `packet`: the number of the packet whose sequence shows it, 0: none.
    """

    label: str
    text: str
    commands: tuple[str, ...] = ()
    tone: str = "bad"
    table: str = ""
    word: str = ""
    begin: int | None = None
    end: int | None = None
    whom: tuple[str, ...] = ()
    packet: int = 0


class PageFigure(NamedTuple):
    """A chart. `svg`: an SVG element that `themed_svg` made, and `css` its styles. `note`: a sentence below it.

    `beside`: the name of the table above which it stands; without that table it stands in a section of its own.
    `span`: its time axis, on which a span of time can be chosen.
    """

    name: str
    title: str
    svg: str
    css: str = ""
    note: str = ""
    beside: str = ""
    span: TimeSpan | None = None


class PageGroup(NamedTuple):
    """Sections under one title. `title`: "" without groups. `empty`: tables without rows."""

    name: str
    title: str
    sections: list[PageSection]
    empty: list[ReportTable]


class PagePicture(NamedTuple):
    """What the page begins with. `traffic`: its data. `utc_offset`: of the times that the page shows, ms. `command`:
    prints exchanges, with PLACE for their condition; "": there is none. `conditions`: of each API, client and broker of
    `traffic`; None: it cannot be selected. `sequences`: packets, by the number of one of them."""

    traffic: Traffic | None
    utc_offset: int = 0
    command: str = ""
    conditions: tuple[tuple[str | None, ...], ...] = ((), (), ())
    sequences: Sequences = MappingProxyType({})


NO_PICTURE = PagePicture(None)


class PageSection(NamedTuple):
    """A place in the navigation: an id, a title, figures, and tables."""

    name: str
    title: str
    figures: list[PageFigure]
    tables: list[ReportTable]

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to show."""
        return not self.figures and not any(table.rows for table in self.tables)


def render_page(
    title: str,
    tables: Sequence[ReportTable],
    *,
    subtitle: str = "",
    findings: Sequence[PageFinding] = (),
    facts: Sequence[tuple[str, str]] = (),
    figures: Sequence[PageFigure] = (),
    picture: PagePicture = NO_PICTURE,
    groups: Sequence[tuple[str, Collection[str]]] = (),
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    ledger: str = "",
    commands: RowCommands | None = None,
    utc: bool = False,
    first: int | None = None,
    last: int | None = None,
    version: str = "",
) -> str:
    """A whole HTML page. Texts are unescaped.

    `tables`: a section each, in this order, without those that `ReportTable.shown_from` hides. `groups`: titles with
    the names of their tables; those in no group come last. `picture`: what the page begins with. `facts`: names and
    texts below the title. `findings`, `warnings`: above the tables. `notes`: sentences at the end of the page.
    `ledger`: a line above the notes. `commands`: the commands of a table's row, if it has any. `utc`: show times in
    UTC. `first`: the time of the first packet, ns: times of its day need no date. `last`: that of the last
    packet. With both, a span of time can be chosen on figures with a time axis. `version`: that of kafkatap.
    """
    shown = [_bounded(table) for table in tables if len(table.rows) >= table.shown_from]
    found = _linked(findings, shown)
    data = {
        "tables": [table_data(table, utc, first, commands) for table in shown],
        "picture": picture_data(picture, first, last),
        "marks": [
            {"n": n, "begin": each.begin / 1e6, "end": None if each.end is None else each.end / 1e6, "tone": each.tone,
             "label": each.label, "text": units.safe(units.cut(each.text, _TOLD))}
            for n, each in enumerate(findings) if each.begin is not None
        ],
        "whom": [list(each.whom) for each in findings],
        "packets": [each.packet for each in findings],
        "sequences": {number: sequence_data(one) for number, one in picture.sequences.items()},
    }  # fmt: skip
    style = (_FOLDER / "style.css").read_text("utf-8") + "\n".join(dict.fromkeys(f.css for f in figures if f.css))
    script = "".join((_FOLDER / name).read_text("utf-8") for name in _SCRIPTS)
    return str(
        _template().render(
            title=title,
            subtitle=subtitle,
            facts=facts,
            findings=found,
            has_picture=picture.traffic is not None,
            warnings=warnings,
            notes=notes,
            ledger=ledger,
            alone=[PageSection(f"figure-{f.name}", f.title, [f], []) for f in _alone(shown, figures)],
            groups=_groups(shown, figures, groups),
            style=_verbatim(style, "style"),
            script=_verbatim(script, "script"),
            policy="; ".join((
                "default-src 'none'",
                f"script-src '{_hash(script)}'",
                f"style-src '{_hash(style)}'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
            )),
            data=_verbatim(script_json(data), "script"),
            time_axis=_time_axis(figures, picture, first, last),
            version=version,
        )
    )  # fmt: skip


def _time_axis(
    figures: Sequence[PageFigure], picture: PagePicture, first: int | None, last: int | None
) -> tuple[float, float] | None:  # fmt: skip
    """The times of the first and the last packet, ms, if a span of time can be chosen."""
    can_choose = picture.traffic is not None or any(figure.span for figure in figures)
    if first is None or last is None or last <= first or not can_choose:
        return None
    return first / 1e6, last / 1e6


def _linked(findings: Sequence[PageFinding], tables: Sequence[ReportTable]) -> list[dict[str, object]]:
    """Findings with the section of their table, "" if the page has none or it is empty."""
    filled = {table.name for table in tables if table.rows}
    return [{**each._asdict(), "section": f"table-{each.table}" if each.table in filled else ""} for each in findings]


def _bounded(table: ReportTable) -> ReportTable:
    """The table with at most MOST_ROWS rows: a page of all clients of a hostile capture would be too large to open."""
    if len(table.rows) <= MOST_ROWS:
        return table
    note = f"The page has {MOST_ROWS:,} of {len(table.rows):,} rows. --json and --csv have all of them."
    return table.replace(rows=chosen_rows(table, MOST_ROWS), notes=(*table.notes, note))


def _alone(tables: Sequence[ReportTable], figures: Sequence[PageFigure]) -> list[PageFigure]:
    """The figures without their table."""
    names = {table.name for table in tables}
    return [figure for figure in figures if figure.beside not in names]


def _groups(
    tables: Sequence[ReportTable], figures: Sequence[PageFigure], titles: Sequence[tuple[str, Collection[str]]]
) -> list[PageGroup]:
    """The sections of the page in groups: tables with rows, or with figures beside them."""
    known = {name for _, names in titles for name in names}
    rest = [table.name for table in tables if table.name not in known]
    groups = []
    for title, names in (*titles, ("Other" if titles else "", rest)):
        place = {name: n for n, name in enumerate(names)}
        mine = sorted((table for table in tables if table.name in place), key=lambda table: place[table.name])
        sections = [
            PageSection(f"table-{table.name}", table.title, [f for f in figures if f.beside == table.name], [table])
            for table in mine
        ]
        if mine:
            filled = [section for section in sections if not section.is_empty]
            empty = [section.tables[0] for section in sections if section.is_empty]
            groups.append(PageGroup(f"group-{title.lower().replace(' ', '-')}", title, filled, empty))
    return groups


def script_json(value: Any) -> str:
    r"""A value as JSON in ASCII that can stand in a script element: no `<`, `>` or `&` is left in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _verbatim(text: str, element: str) -> Any:
    """The content of a style or script element, which has no escapes. ValueError if it would end the element."""
    from markupsafe import Markup

    if f"</{element}" in text.lower() or "<!--" in text:
        raise ValueError(f"the content of a {element} element must not end it")
    return Markup(text)


def _svg(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["safe_text"] = units.safe
    environment.filters["verbatim_svg"] = _svg
    return environment.get_template("page.html.jinja")


def picture_data(picture: PagePicture, first: int | None, last: int | None) -> dict[str, Any] | None:
    """The picture as JSON for the script. Cells are a text of numbers: those of names, and then sums."""
    traffic = picture.traffic
    if traffic is None:
        return None
    start = traffic.first if first is None else first
    return {
        "start": traffic.first / 1e6, "interval": traffic.interval / 1e6, "edges": list(traffic.edges),
        "first": start / 1e6, "last": (start if last is None else last) / 1e6, "offset": picture.utc_offset,
        "names": [
            [cell(_CLIENT, name, False, 0, False) for name in names]
            for names in (traffic.apis, traffic.clients, traffic.brokers)
        ],
        "conditions": picture.conditions, "command": picture.command, "place": PLACE,
        "cells": _packed(traffic.cells),
    }  # fmt: skip


#: Names of clients, brokers and APIs are written as in its cells.
_CLIENT = Column("client_id", "client", "text", "")


def _packed(cells: Sequence[Sequence[int]]) -> str:
    """Numbers with spaces between them, rows with commas. An empty place is what the row before has there: zeros and
    equal numbers are the most."""
    rows = []
    before: Sequence[int] = ()
    for row in cells:
        rows.append(" ".join("" if before and value == before[n] else str(value) for n, value in enumerate(row)))
        before = row
    return ",".join(rows)


def table_data(table: ReportTable, utc: bool, first: int | None, commands: RowCommands | None = None) -> dict[str, Any]:
    """The table as JSON for the script. `first`: the time of the capture's first packet. `commands`: those of a row."""
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
