"""Reports as text: tables that fit the terminal, with the most important rows and the number of rows left out.

This module lays out lines as spans of (text, style). With colours, rich writes them; it knows terminals and NO_COLOR,
and is imported only then. Without colours they are plain text. All texts from the wire are escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from .. import units
from ..model import Column, Report, ReportTable, Value, as_number

Span = tuple[str, str]  #: text and a rich style ("" for plain)
Line = list[Span]

PLAIN_WIDTH = 120
#: Widths of texts. LONGEST is the maximum. On a narrow terminal texts are cut to NARROW before columns are dropped, and
#: to SOFTEST after all possible columns are dropped. Only then texts of _FIRM are cut as well, down to SHORTEST.
LONGEST, NARROW, SOFTEST, SHORTEST = 40, 20, 13, 9
#: Widths of texts if the output is not a terminal. A topic has at most 249 characters.
LONGEST_WHOLE, LONGEST_LINE = 250, 100_000
#: Columns whose texts are cut last.
_FIRM = frozenset(("error", "api", "verdict", "section", "meaning"))
_GAP = "  "
_TEXTS = frozenset(("text", "texts", "versions"))
_RIGHT = frozenset(("count", "ns", "ms", "bytes", "share", "packet"))
_VERDICTS = {"network": "magenta", "broker": "red", "client": "yellow", "throttled": "cyan", "-": "dim"}
#: Columns whose values above zero are a problem.
_BAD = {
    "failed_exchanges": "red", "error_codes": "red", "unanswered": "red", "throttled": "yellow",
    "throttle_wait_sum_ns": "yellow", "drops": "red",
}  # fmt: skip


def render_text(
    report: Report, width: int = PLAIN_WIDTH, top: int = 12, utc: bool = False, whole: bool = False
) -> Iterator[Line]:
    """The lines of a report, without line ends.

    `top`: the number of rows of a table, 0 for all. `width` decides which columns are shown. `whole`: do not cut texts,
    so that lines can be longer than `width`.
    """
    yield from _heading(report.heading, LONGEST_LINE if whole else width, utc)
    for warning in report.warnings:
        for n, part in enumerate(textwrap.wrap(units.safe(warning), max(width - 2, 20), break_on_hyphens=False)):
            yield [("  " if n else "! ", "bold yellow"), (part, "yellow")]
    first = _heading_value(report.heading, "first")
    for table in (*report.tables, report.ledger):
        if len(table.rows) < table.shown_from:
            continue
        yield []
        yield from render_table(table, width, top, utc, whole, first if isinstance(first, int) else None)


def _heading_value(heading: ReportTable, name: str) -> Value:
    return heading.rows[0][next(i for i, c in enumerate(heading.columns) if c.name == name)]


def render_table(
    table: ReportTable, width: int, top: int, utc: bool, whole: bool = False, first: int | None = None
) -> Iterator[Line]:
    """The lines of one table: title, columns that fit, most important rows, notes. `first`: the time of the capture's
    first packet."""
    if not table.rows:
        yield [(table.title, "bold"), (f": {table.empty}", "")]
        return
    yield [(table.title, "bold")]
    rows = table.rows if table.whole or not top else _chosen_rows(table, top)
    digits, date = _clock_form(table, rows, first, utc)
    cells: list[list[str]] = []
    columns = [i for i, c in enumerate(table.columns) if c.rank < 9 and (c.rank == 0 or _has_values(table, i))]
    texts = {i: [_cell(table.columns[i], row[i], utc, digits, date) for row in rows] for i in columns}
    shown, widths = _fit(table, columns, texts, width, whole)
    for i, limit in zip(shown, widths, strict=True):
        cells.append([units.cut(t, limit) for t in texts[i]])
    heads = [table.columns[i].title.split("\n") for i in shown]
    height = max(len(h) for h in heads)
    for level in range(height):
        parts = [h[level - height + len(h)] if level >= height - len(h) else "" for h in heads]
        yield [(_joined(table, shown, parts, widths), "bold cyan")]
    yield [(_GAP.join("─" * w for w in widths), "dim")]
    for n, row in enumerate(rows):
        line: Line = []
        for at, i in enumerate(shown):
            column = table.columns[i]
            padded = _pad(cells[at][n], widths[at], column, last=at == len(shown) - 1)
            line += [(_GAP, "")] * (at > 0) + [(padded, _style(column, row[i], table, row))]
        yield line
    left = len(table.rows) - len(rows)
    if left:
        fewer = f" with as many {table.chosen_by} or fewer" if table.chosen_by else ""
        rest = f"… and {left:,} more {'row' if left == 1 else 'rows'}{fewer} (--top {len(table.rows)} shows all)"
        yield [(rest, "dim")]
    names = {table.columns[i].name for i in shown}
    for note in (*table.notes, *(text for name, text in table.column_notes if name in names)):
        for part in textwrap.wrap(note, width, break_on_hyphens=False):
            yield [(part, "dim")]


def _chosen_rows(table: ReportTable, top: int) -> list[tuple[Value, ...]]:
    """The first `top` rows, or the rows with the largest values in `chosen_by`, in the order of the table."""
    if table.chosen_by is None:
        return table.rows[:top]
    at = next(i for i, c in enumerate(table.columns) if c.name == table.chosen_by)
    most = sorted(range(len(table.rows)), key=lambda n: (-as_number(table.rows[n][at]), n))[:top]
    return [table.rows[n] for n in sorted(most)]


def _heading(table: ReportTable, width: int, utc: bool) -> Iterator[Line]:
    h = dict(zip((c.name for c in table.columns), table.rows[0], strict=True))
    first, last = h["first"], h["last"]
    facts: list[tuple[str, str]] = []
    if isinstance(first, int) and isinstance(last, int):
        same_day = units.clock(first, utc, 0, True)[:10] == units.clock(last, utc, 0, True)[:10]
        facts.append((
            "captured",
            f"{units.clock(first, utc, 3, True)} to {units.clock(last, utc, 3, not same_day)} "
            f"{units.zone(first, utc)} ({units.duration(last - first)})",
        ))  # fmt: skip
    if h["interfaces"]:
        files = f"live from {_cell_text(h['interfaces'])}"
    else:
        files = f"{h['files']} {'file' if h['files'] == 1 else 'files'}, {units.size(int(as_number(h['bytes'])))}"
    drops = "" if h["drops"] is None else f", {as_number(h['drops']):,} dropped"
    link = f", {_cell_text(h['link_types'])}" if h["link_types"] else ""
    facts.append(("input", f"{files}, {as_number(h['packets']):,} packets{drops}{link}"))
    kinds = [
        f"{as_number(h[name]):,} {label}"
        for name, label in (
            ("kafka_connections", "Kafka"),
            ("tls_connections", "TLS"),
            ("foreign_connections", "other"),
        )
        if h[name]
    ]
    known = f" ({', '.join(kinds)})" if kinds else ""
    encrypted = f", {units.share(as_number(h['encrypted_share']))} encrypted" if h["encrypted_share"] else ""
    facts.append(("connections", f"{as_number(h['connections']):,}{known}{encrypted}"))
    if h["filters"]:
        facts.append(("only", str(h["filters"])))
    people = as_number(h["client_count"])
    failed = ""
    if h["failed_exchanges"]:
        codes = as_number(h["error_codes"])
        failed = f", {as_number(h['failed_exchanges']):,} failed ({codes:,} error code{'' if codes == 1 else 's'})"
    facts.append(("requests", f"{as_number(h['requests']):,} by {people:,} client{'' if people == 1 else 's'}{failed}"))
    if h["brokers"]:
        facts.append(("brokers", f"{h['broker_count']}: {_cell_text(h['brokers'])}"))
    for name, text in facts:
        yield [(f"{name:<12}", "bold cyan"), (units.cut(units.safe(text), max(width - 12, 20)), "")]


def _cell_text(value: Value) -> str:
    """Texts and versions as one text."""
    return units.joined(value) if isinstance(value, tuple) else str(value)


def _has_values(table: ReportTable, i: int) -> bool:
    return any(row[i] not in (None, 0, False, ()) for row in table.rows)


def _clock_form(
    table: ReportTable, rows: Sequence[tuple[Value, ...]], first: int | None, utc: bool
) -> tuple[int, bool]:  # fmt: skip
    """(Digits of the seconds, whether times have a date). A time without a date is on the day of the first packet, so
    that --from and --to accept every time as it is printed."""
    times = [row[i] for i, c in enumerate(table.columns) if c.kind == "time" for row in rows]
    known = [t for t in times if isinstance(t, int)]
    whole = all(t % units.SECOND == 0 for t in known)
    days = {units.clock(t, utc, 0, True)[:10] for t in (known if first is None else [first, *known])}
    return (0 if whole else 3), len(days) > 1


def _cell(column: Column, value: Value, utc: bool, digits: int, date: bool) -> str:
    if value is None or value == ():
        return "(none)" if column.name == "client_id" else "-"
    if isinstance(value, str | tuple):
        return units.safe(_cell_text(value))
    if column.kind == "flag":
        return "yes" if value else "no"
    if column.kind == "share":
        return units.share(float(value))
    number = int(value)
    if column.kind == "time":
        return units.clock(number, utc, digits, date)
    if column.kind == "ns":
        return units.duration(number)
    if column.kind == "ms":
        return units.duration(number * 1_000_000)
    if column.kind == "bytes":
        return units.size(number)
    return str(number) if column.kind == "packet" else f"{number:,}"


def _fit(
    table: ReportTable, columns: list[int], texts: dict[int, list[str]], width: int, whole: bool
) -> tuple[list[int], list[int]]:
    """The shown columns and their widths. Columns of the highest rank go first, then texts are cut, unless `whole`."""
    shown = columns
    widest = {i: max(map(units.cells, texts[i]), default=0) for i in columns}
    while True:
        natural = [_width(table.columns[i], widest[i], LONGEST) for i in shown]
        floors = [_floor(table.columns[i], n) for i, n in zip(shown, natural, strict=True)]
        ranks = [table.columns[i].rank for i in shown]
        if sum(floors) + len(_GAP) * (len(shown) - 1) <= width or max(ranks, default=0) == 0:
            break
        worst = max(i for i in shown if table.columns[i].rank == max(ranks))
        shown = [i for i in shown if i != worst]
    if whole:
        return shown, [_width(table.columns[i], widest[i], LONGEST_WHOLE) for i in shown]
    widths = natural
    while sum(widths) + len(_GAP) * (len(shown) - 1) > width:
        # Cut the widest text first. The texts of _FIRM (an error, an API) are cut after all others are short.
        texts_at = [n for n, i in enumerate(shown) if table.columns[i].kind in _TEXTS and widths[n] > SHORTEST]
        soft = [n for n in texts_at if table.columns[shown[n]].name not in _FIRM and widths[n] > SOFTEST]
        if not texts_at:
            break
        widths[max(soft or texts_at, key=lambda n: widths[n])] -= 1
    return shown, widths


def _width(column: Column, widest: int, longest: int) -> int:
    """The width of a column whose widest text has so many cells."""
    if column.kind in _TEXTS:
        widest = min(widest, longest)
    return max(widest, *map(len, column.title.split("\n")))


def _floor(column: Column, natural: int) -> int:
    """The width below which another column is dropped rather than this one cut."""
    return natural if column.kind not in _TEXTS or column.name in _FIRM else min(natural, NARROW)


def _pad(text: str, width: int, column: Column, last: bool = False) -> str:
    space = " " * (width - units.cells(text))
    if column.kind in _RIGHT:
        return space + text
    return text if last else text + space


def _joined(table: ReportTable, shown: list[int], parts: list[str], widths: list[int]) -> str:
    padded = [_pad(p, w, table.columns[i]) for i, p, w in zip(shown, parts, widths, strict=True)]
    return _GAP.join(padded).rstrip()


def _style(column: Column, value: Value, table: ReportTable, row: tuple[Value, ...]) -> str:
    if column.name == "verdict":
        return _VERDICTS.get(str(value), "")
    if value is None or value == 0:
        return "dim"
    if column.name in _BAD:
        return _BAD[column.name]
    if column.name == "error":
        return "red"
    if column.name in ("broker_p99_ns", "total_p99_ns"):
        return "bold"
    if table.name == "ledger" and row[1] == "total":
        return "bold"
    return ""


def write_text(
    report: Report,
    file: TextIO,
    *,
    top: int = 12,
    utc: bool = False,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write a report.

    `color` None: use colours if `file` is a terminal. `width` None: use the width of the terminal. If `file` is not a
    terminal, choose columns for 120 columns and do not cut texts, so that programs find whole names.
    """
    whole = width is None and not file.isatty()
    write_lines(lambda columns: render_text(report, columns, top, utc, whole), file, color=color, width=width)


def write_lines(
    render: Callable[[int], Iterator[Line]], file: TextIO, *, color: bool | None = None, width: int | None = None
) -> None:
    """Write the lines that `render` makes for a width. `color`, `width`: as in `write_text`."""
    terminal = file.isatty()
    if color if color is not None else terminal:
        _write_rich(render, file, width, forced=bool(color) and not terminal)
        return
    if width is None and terminal:
        from shutil import get_terminal_size

        width = get_terminal_size((PLAIN_WIDTH, 24)).columns
    if width is None:
        width = PLAIN_WIDTH
    encoding = file.encoding or "utf-8"
    for line in render(width):
        text = "".join(t for t, _ in line).rstrip() + "\n"
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _write_rich(render: Callable[[int], Iterator[Line]], file: TextIO, width: int | None, forced: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=file, markup=False, emoji=False, highlight=False, force_terminal=True if forced else None,
        width=width or (PLAIN_WIDTH if forced else None),
    )  # fmt: skip
    for line in render(console.width):
        console.print(Text.assemble(*line), no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
