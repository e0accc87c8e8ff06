"""`render_report`: the page of a report, with its charts and with the commands of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from ... import kinds, units
from ...commands import with_captures, with_captures_in
from ...findings import ERROR, NOTE, WARNING
from ...model import Report, ReportTable, Row
from ...sections.row_commands import RowCommander
from ..plots import draw, height_of
from ..text import finding_text, first_lines, heading_facts, ledger_line, mild_rows
from .page import PageFigure, PageFinding, render_page
from .svg import themed_svg

#: Captures in the title.
_NAMED = 2


def render_report(
    report: Report, figures: Sequence[PageFigure] = (), *, captures: Sequence[str] = (), utc: bool = False,
    version: str = "",
) -> str:  # fmt: skip
    """The page as HTML. `captures`: their names in commands. `figures`: its charts (`chart_figures`)."""
    heading = report.heading.named_rows()[0]
    first, last = heading["first"], heading["last"]
    commander = RowCommander(report, captures)
    return render_page(
        f"Kafka traffic in {_title(captures)}" if captures else "Kafka traffic",
        [*(with_captures_in(t, captures) for t in report.tables if t.name != "summary"), report.ledger],
        findings=_findings(report, captures, utc),
        facts=heading_facts(report.heading, utc),
        figures=figures,
        warnings=report.warnings,
        ledger=ledger_line(report.ledger).removesuffix("; --ledger shows every part"),
        notes=(f"Times are {units.zone(first, utc)}.",) if isinstance(first, int) else (),
        commands=commander.commands,
        utc=utc,
        first=first if isinstance(first, int) else None,
        last=last if isinstance(last, int) else None,
        version=version,
    )


def _title(captures: Sequence[str]) -> str:
    names = ["standard input" if path == "-" else PurePath(path).name or path for path in captures]
    left = len(names) - _NAMED
    return " and ".join(names) if left <= 0 else f"{', '.join(names[:_NAMED])} and {left:,} more"


def _findings(report: Report, captures: Sequence[str], utc: bool) -> list[PageFinding]:
    table = next((t for t in report.tables if t.name == "summary"), None)
    if table is None:
        return []
    rows = [*first_lines(table, whole=True)[0], *mild_rows(table)]
    return [_finding(row, report.heading, captures, utc) for row in rows]


_TONES = {ERROR: "bad", WARNING: "warn", NOTE: "note"}


def _finding(row: Row, heading: ReportTable, captures: Sequence[str], utc: bool) -> PageFinding:
    command = with_captures(str(row["command"] or ""), captures)
    style = "good" if row["finding"] == kinds.NOTHING else _TONES[str(row["severity"])]
    kind = str(row["finding"])
    table = "clients" if kind.startswith("slow_") else kinds.TABLES.get(kind, "advice" if row["setting"] else "events")
    return PageFinding(str(row["label"]), finding_text(row, heading, utc), (command,), style, table)


class _Chart(NamedTuple):
    """`name`: as in `plots.PLOTS`. `beside`: the table above which it stands. `height`: in inches; 0: what it needs."""

    name: str
    beside: str
    height: float


#: Inches. A page has the title beside the plot, which needs less height.
_WIDTH, _HEAD = 11.5, 0.5
_CHARTS = (
    _Chart("latency-heat-map", "latency", 3.9),
    _Chart("latency", "latency", 3.9),
    _Chart("throttle-over-time", "throttle", 3.4),
    _Chart("errors-over-time", "error_totals", 3.4),
    _Chart("latency-over-time", "timeline", 3.4),
    _Chart("topic-matrix", "topic_clients", 0.0),
    _Chart("rebalances", "rebalances", 0.0),
)


def chart_figures(report: Report, utc: bool) -> Sequence[PageFigure]:
    """The charts of a report with curves: the plots that it has data for, as SVG. It needs matplotlib."""
    figures = []
    for chart in _CHARTS:
        height = chart.height or height_of(chart.name, report) - _HEAD
        plot = draw(chart.name, report, utc, size=(_WIDTH, height), has_head=False)
        if plot is None:
            continue
        title = plot.head["title"]
        svg = themed_svg(plot, chart.name, title)
        figures.append(PageFigure(
            chart.name, f"{title}, {plot.head['note']}", svg.element, svg.css, beside=chart.beside, span=svg.span
        ))  # fmt: skip
    return figures
