"""Reports as text: the findings that people see first, the heading, tables, sentences on losses, and the ledger.

This module lays out lines as spans of (text, style). With colours, rich writes them; it knows terminals and NO_COLOR,
and is imported only then. Without colours they are plain text. All texts from the wire are escaped. Only a terminal
has a width, unless the user chooses one: in a file or pipe, only cells beyond the limits of `text_tables` are cut.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TextIO

from .. import kinds, units
from ..commands import CAPTURE, kept_words, with_captures, with_captures_in
from ..encryption import MUCH
from ..finding_words import ALL_ALONG
from ..findings import ERROR, NOTE, WARNING
from ..model import Report, ReportTable, Row, Value, as_number
from ..sections.summary import SHOWN
from .text_tables import LONGEST_COMMAND, LONGEST_SENTENCE, PLAIN_WIDTH, Line, Span, cell_text, render_table, wrapped

__all__ = ["PLAIN_WIDTH", "Line", "Span", "render_table", "render_text", "text_width", "write_lines", "write_text"]

#: The tables of a short report.
BRIEF = ("latency", "throttle", "error_totals", "clients", "not_decoded", "tls_estimates", "tls", "tls_failures")
#: By table that a brief report leaves out, the section to ask for.
SECTION_OF = {
    "throttle": "throttle", "error_totals": "errors", "errors": "errors", "timeline": "timeline", "events": "events",
    "advice": "advice",
}  # fmt: skip
#: Notes of a brief report.
_NOTES = 3

_LABEL = 12  #: width of the labels of the summary and the heading
_ALIGNED = 96  #: Commands of the summary begin in one column, if their texts are not longer than this.
#: The colours of labels, by severity.
_STYLES = {ERROR: "bold red", WARNING: "bold yellow", NOTE: "bold cyan"}
#: Lines of one kind of finding, so that many of one kind do not hide the others.
_OF_A_KIND = 3
#: A setting is so all the time. What it does shows when it began, if that was after this share of the capture.
_LATER = 0.05


def render_text(
    report: Report,
    width: int | None,
    *,
    top: int = 12,
    utc: bool = False,
    whole_ledger: bool = False,
    captures: Sequence[str] = (),
    brief: Collection[str] = (),
) -> Iterator[Line]:
    """The lines of a report, without line ends.

    `top`: the number of rows of a table, 0 for all. `width`: as in `render_table`. `whole_ledger`: the ledger
    as a table instead of one line. `captures`: their names in commands. `brief`: only these tables, if they have
    rows, a line for the others, and of what was lost one sentence each; (): everything.
    """
    tables = [table for table in report.tables if table.name != "summary"]
    others = []
    if brief:
        others = [table for table in tables if table.name not in brief or not table.rows]
        tables = [table for table in tables if table.name in brief and table.rows]
    for table in report.tables:
        if table.name == "summary":
            yield from _summary(table, report.heading, width, captures, utc, top == 0)
            yield []
    yield from _heading(report.heading, width, utc)
    first = report.heading.named_rows()[0]["first"]
    for table in tables:
        if len(table.rows) >= table.shown_from:
            yield []
            named = with_captures_in(table, captures)
            yield from render_table(named, width, top, utc, first if isinstance(first, int) else None, bool(brief))
    for table in report.tables:
        if table.name == "summary":
            yield from _notes(table, report.heading, width, utc, SHOWN if not brief else _NOTES, top == 0)
    if report.warnings or not brief:
        yield []
    for warning in report.warnings:
        text = warning if whole_ledger or not brief else _first_sentence(warning)
        yield from wrapped(f"! {units.safe(text)}", width, "yellow", "  ")
    if whole_ledger:
        yield from [[]] if report.warnings else []
        yield from render_table(report.ledger, width, 0, utc)
    elif not (brief and report.heading.named_rows()[0]["requests"]):
        line = ledger_line(report.ledger)
        yield from [[(line, "dim")]] if width is None else wrapped(line, width, "dim", "  ")
    if others:
        yield []
        yield from _rest(report, others, width, captures)


def _first_sentence(text: str) -> str:
    first, end, _ = text.partition(". ")
    return first + end.strip()


def _rest(report: Report, tables: Sequence[ReportTable], width: int | None, captures: Sequence[str]) -> Iterator[Line]:
    """What a brief report leaves out: what was looked at in vain, and the command that shows the others."""
    empty = {SECTION_OF[table.name]: table for table in reversed(tables) if table.name in SECTION_OF and not table.rows}
    heading = report.heading.named_rows()[0]
    if empty and as_number(heading["encrypted_share"]) < MUCH:
        found = "; ".join(f"{section}: {table.empty}" for section, table in reversed(empty.items()))
        yield from wrapped(f"Looked at as well: {found}", width, "dim", "  ")
    sizes = {SECTION_OF[table.name]: len(table.rows) for table in tables if table.name in SECTION_OF and table.rows}
    sections = ",".join(sizes) or "all"
    selected = heading["filters"]
    words = ["kafkatap report", *([str(selected)] if selected else []), f"--sections {sections}"]
    command = with_captures(" ".join((*words, *kept_words(report.options, "report", tuple(sizes)), CAPTURE)), captures)
    rows = ", ".join(f"{section} ({count:,})" for section, count in sizes.items())
    yield from wrapped(
        f"More: {rows}{'; ' if rows else ''}--sections help lists all, -n all shows all rows", width, "dim", "  "
    )
    yield [("  " + command, "dim")]


def _summary(
    table: ReportTable, heading: ReportTable, width: int | None, captures: Sequence[str], utc: bool, whole: bool
) -> Iterator[Line]:
    """A line for each finding. The command that shows more is at its end if the terminal is that wide, else below."""
    shown, left = first_lines(table, whole)
    rows = []
    for row in shown:
        command = with_captures(str(row["command"] or ""), captures)
        rows.append((
            str(row["label"]), finding_text(row, heading, utc), command if len(command) <= LONGEST_COMMAND else "",
        ))  # fmt: skip
    label_width = max(_LABEL, *(len(label) + 2 for label, _, _ in rows))
    longest = max((units.cells(text) for _, text, _ in rows), default=0)
    commands = max((units.cells(command) for _, _, command in rows), default=0)
    beside = width is not None and label_width + longest + 2 + commands <= width
    for (label, text, command), style in zip(rows, (_style(row) for row in shown), strict=True):
        line, *rest = _labelled(label, style, text, label_width, width)
        if command and beside:
            line += [(" " * (max(min(longest, _ALIGNED) - units.cells(text), 0) + 2), ""), (command, "dim")]
        yield from (line, *rest)
        if command and not beside:
            yield [(" " * label_width + command, "dim")]
    if left:
        yield [
            (
                f"… and {left:,} more finding{'' if left == 1 else 's'} (-n all shows {'it' if left == 1 else 'them'})",
                "dim",
            )
        ]


def _style(row: Row) -> str:
    """The colour of a label, by severity."""
    return "bold green" if row["finding"] == kinds.NOTHING else _STYLES[str(row["severity"])]


def _notes(
    table: ReportTable, heading: ReportTable, width: int | None, utc: bool, most: int, whole: bool
) -> Iterator[Line]:
    """What is worth a word, and nobody's trouble: `most` of it, or the `whole`."""
    found = mild_rows(table)
    shown = found if whole else found[:most]
    if not shown:
        return
    yield []
    yield [("Notes", "bold")]
    indent = max(_LABEL, *(len(str(row["label"])) + 2 for row in shown))
    for row in shown:
        yield from _labelled(str(row["label"]), _style(row), finding_text(row, heading, utc), indent, width)
    if len(found) > len(shown):
        yield [(f"… and {len(found) - len(shown):,} more (-n all shows them)", "dim")]


def _labelled(label: str, style: str, text: str, indent: int, width: int | None) -> list[Line]:
    """A text behind its label, which stands out to the left."""
    first, *rest = [text] if width is None else _wrapped_text(text, max(width - indent, 20))
    return [[(f"{label:<{indent}}", style), (first, "")], *([(" " * indent + each, "")] for each in rest)]


def _wrapped_text(text: str, width: int) -> list[str]:
    return ["".join(t for t, _ in line) for line in wrapped(text, width, "")] or [""]


def ledger_line(table: ReportTable) -> str:
    """Each section's total and its largest part: `1,784 packets (100 % TCP), ...`."""
    sections: dict[str, list[tuple[int, str]]] = {}
    totals: dict[str, int] = {}
    for row in table.named_rows():
        section, count = str(row["section"]), int(as_number(row["count"]))
        if row["part"] == "total":
            totals[section] = count
        else:
            sections.setdefault(section, []).append((count, str(row["meaning"])))
    parts = []
    for section, total in totals.items():
        if section not in ("packets", "payload bytes", "requests", "responses"):
            continue
        text = f"{units.size(total)} of payload" if section == "payload bytes" else f"{total:,} {section}"
        largest = max(sections.get(section, ()), default=None)
        parts.append(f"{text} ({units.share(largest[0] / total)} {largest[1]})" if largest and total else text)
    return f"Ledger: {', '.join(parts) or 'nothing was read'}; --ledger shows every part"


def heading_facts(table: ReportTable, utc: bool) -> list[tuple[str, str]]:
    """What a report is about, as (name, text): when it was captured, the input, connections and so on. Unescaped."""
    (h,) = table.named_rows()
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
        files = f"live from {cell_text(h['interfaces'])}"
    else:
        files = f"{h['files']} {'file' if h['files'] == 1 else 'files'}, {units.size(int(as_number(h['bytes'])))}"
    drops = "" if h["drops"] is None else f", {as_number(h['drops']):,} dropped"
    link = f", {cell_text(h['link_types'])}" if h["link_types"] else ""
    facts.append(("input", f"{files}, {as_number(h['packets']):,} packets{drops}{link}"))
    kinds = [
        f"{as_number(h[name]):,} {label}"
        for name, label in (
            ("kafka_connections", "Kafka"),
            ("tls_connections", "TLS"),
            ("foreign_connections", "other"),
            ("decrypted_connections", "decrypted"),
        )
        if h[name]
    ]
    known = f" ({', '.join(kinds)})" if kinds else ""
    shares = [
        f", {units.share(as_number(h[f'{name}_share']))} {name}"
        for name in ("decrypted", "encrypted")
        if h[f"{name}_share"]
    ]
    facts.append(("connections", f"{as_number(h['connections']):,}{known}{''.join(shares)}"))
    if h["decrypted_share"]:
        facts.append(("encryption", str(h["encryption"])))
    if h["filters"]:
        facts.append(("only", str(h["filters"])))
    people = as_number(h["client_count"])
    failed = ""
    if h["failed_exchanges"]:
        codes = as_number(h["error_codes"])
        failed = f", {as_number(h['failed_exchanges']):,} failed with {codes:,} error code{'' if codes == 1 else 's'}"
        failed += " in total"
    if h["in_flight"]:
        failed += f", {as_number(h['in_flight']):,} in flight at the end"
    facts.append(("requests", f"{as_number(h['requests']):,} by {people:,} client{'' if people == 1 else 's'}{failed}"))
    if h["brokers"]:
        hosts, named = h.get("broker_hosts"), h["brokers"]
        if isinstance(hosts, tuple) and isinstance(named, tuple):
            named = tuple(f"{end} ({host})" if host else str(end) for end, host in zip(named, hosts, strict=True))
        facts.append(("brokers", f"{h['broker_count']}: {cell_text(named)}"))
    return facts


def _heading(table: ReportTable, width: int | None, utc: bool) -> Iterator[Line]:
    for name, text in heading_facts(table, utc):
        shown = units.safe(text)
        yield [
            (f"{name:<{_LABEL}}", "bold cyan"),
            (shown if width is None else units.cut(shown, max(width - _LABEL, 20)), ""),
        ]


def write_text(
    report: Report,
    file: TextIO,
    *,
    top: int = 12,
    utc: bool = False,
    color: bool | None = None,
    width: int | None = None,
    whole_ledger: bool = False,
    captures: Sequence[str] = (),
    brief: Collection[str] = (),
) -> None:
    """Write a report. `color` None: use colours if `file` is a terminal. `width`: as of `text_width`."""

    def render(columns: int | None) -> Iterator[Line]:
        return render_text(report, columns, top=top, utc=utc, whole_ledger=whole_ledger, captures=captures, brief=brief)

    write_lines(render, file, color=color, width=width)


def write_lines(
    render: Callable[[int | None], Iterator[Line]],
    file: TextIO,
    *,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write the lines that `render` makes for a width. `color`, `width`: as in `write_text`."""
    terminal = file.isatty()
    width = text_width(width, terminal)
    if color if color is not None else terminal:
        _write_rich(render, file, width, forced=bool(color) and not terminal)
        return
    encoding = file.encoding or "utf-8"
    for line in render(width):
        text = "".join(t for t, _ in line).rstrip() + "\n"
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))


def text_width(width: int | None, is_terminal: bool) -> int | None:
    """The columns to fit text to: `width`, or those of the terminal, or COLUMNS, or else PLAIN_WIDTH. None, for a width
    of 0: no column is dropped, and no text of a usual length is cut."""
    if width is None and is_terminal:
        from shutil import get_terminal_size

        width = get_terminal_size((PLAIN_WIDTH, 24)).columns
    return (_columns_wanted() if width is None else width) or None


def _columns_wanted() -> int:
    """What COLUMNS says; PLAIN_WIDTH without it."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() and len(text) < 7 else PLAIN_WIDTH


def _write_rich(render: Callable[[int | None], Iterator[Line]], file: TextIO, width: int | None, forced: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    class Lines(Console):
        def on_broken_pipe(self) -> None:
            raise

    console = Lines(
        file=file, markup=False, emoji=False, highlight=False, force_terminal=True if forced else None,
        width=width or PLAIN_WIDTH,
    )  # fmt: skip
    for line in render(width):
        console.print(Text.assemble(*line), no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def _own_rows(table: ReportTable) -> tuple[list[Row], list[Row]]:
    """The findings that follow from no other one: the lines at the top, and the notes below the tables."""
    rows = table.named_rows()
    explained = {row["cause"] for row in rows if row["severity"] != NOTE}
    parts: tuple[list[Row], list[Row]] = [], []
    for row in rows:
        if row["cause"] is None:
            is_mild = row["severity"] == NOTE and row["finding"] not in kinds.ALONE | explained
            parts[is_mild].append(row)
    return parts


def mild_rows(table: ReportTable) -> list[Row]:
    """The notes. Topics that are created and deleted are none: the events have them."""
    return [row for row in _own_rows(table)[1] if row["finding"] not in kinds.TOPICS]


def first_lines(table: ReportTable, whole: bool = False) -> tuple[list[Row], int]:
    """The rows to show, by column name, and the number of those left out. Notes, and what follows from another finding,
    are left out, and do not count. What was not checked is always shown. `whole`: show all others."""
    own, _ = _own_rows(table)
    if whole:
        return own, 0
    seen: Counter[Value] = Counter()
    place = []
    for n, row in enumerate(own):
        seen[row["finding"]] += 1
        place.append((seen[row["finding"]] > _OF_A_KIND, seen[row["finding"]] > 1, n))
    last = [n for n, row in enumerate(own) if row["finding"] == kinds.NOT_CHECKED]
    others = sorted(each for each in place if each[-1] not in last)
    room = SHOWN - len(last)
    room += len(others) == room + 1  # no line says that one more is left
    chosen = [*(n for is_hidden, _, n in others[:room] if not is_hidden), *last]
    return [own[n] for n in sorted(chosen)], len(own) - len(chosen)


def finding_text(row: Row, heading: ReportTable, utc: bool) -> str:
    """The sentence of a finding, escaped, with the time when it began and the setting to change."""
    text = units.safe(cell_text(row["text"], LONGEST_SENTENCE))
    if row["setting"]:
        text += f"; change {units.safe(str(row['setting']))}"
    when = _when(row, heading, utc)
    return f"{when} {text}" if when else text


def _when(row: Row, heading: ReportTable, utc: bool) -> str:
    """`04:36:44.6`; with the date if the capture has several."""
    found: Mapping[str, Any] = heading.named_rows()[0]
    begin, first, last = row["begin"], found["first"], found["last"]
    if not isinstance(begin, int) or first is None or last is None:
        return ""
    if row["setting"] and begin - first <= _LATER * (last - first):
        return ""
    end = int(as_number(row["end"])) if row["end"] is not None else begin
    if end - begin >= ALL_ALONG * (last - first):
        return ""
    days = units.clock(first, utc, 0, True)[:10] != units.clock(last, utc, 0, True)[:10]
    return units.clock(begin, utc, 1, days)
