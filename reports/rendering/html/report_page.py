"""`render_report`: the page of a report, with its charts and with the commands of its rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from kafkatap.installation import own_version
from kafkatap.output_file import check_file, write_whole
from kafkatap.replaceable import HTML

from ... import kinds, units
from ...commands import with_captures, with_captures_in
from ...findings import ERROR, NOTE, WARNING
from ...model import Report, ReportTable, Row, as_number
from ...sections.row_commands import RowCommander, conditions_of
from ..plots import draw, height_of
from ..text import finding_text, first_lines, heading_facts, ledger_line, mild_rows
from .page import PageFigure, PageFinding, PagePicture, render_page
from .sequence import Sequences
from .svg import themed_svg

#: Captures in the title.
_NAMED = 2


#: Tables by what they are on.
GROUPS = (
    ("Time", (
        "latency", "slowest", "slow_connections", "timeline", "timeline_by", "broker_times", "timeouts",
    )),
    ("Errors", ("error_totals", "errors", "error_meanings", "first_errors", "not_decoded")),
    ("Quotas", ("throttle", "throttle_obedience", "quota_rates")),
    ("Events and advice", ("events", "advice")),
    ("Clients", (
        "clients", "client_activity", "upgrade", "auth", "auth_mechanisms", "auth_messages", "auth_sessions",
    )),
    ("Topics", (
        "topics", "topic_clients", "transactions", "retried_batches", "replication", "replication_writers", "zones",
        "zone_readers",
    )),
    ("Groups", (
        "groups", "group_lag", "group_partitions", "group_members", "group_errors", "rebalances",
    )),
    ("Connections", ("connections",)),
    ("TLS", (
        "tls", "tls_failures", "tls_estimates", "tls_estimated_connections", "tls_software", "tls_certificates",
    )),
    ("Captures", ("files", "ledger")),
)  # fmt: skip
#: Exchanges, and packets of findings, whose packets the page shows.
_SLOW, _SHOWN_BY = 12, 24


def packets_shown(report: Report) -> list[tuple[int, int]]:
    """The first and the last packet of what the page shows as sequences of packets: the slowest exchanges, and what
    findings name. The last one is 0 if it is not known."""
    slowest = next((t.named_rows()[:_SLOW] for t in report.tables if t.name == "slowest"), [])
    found = [(int(as_number(row["packet"])), int(as_number(row["response_packet"]))) for row in slowest]
    known = {first for first, _ in found}
    return found + [(n, 0) for n in dict.fromkeys(map(_packet, _shown(report))) if n and n not in known][:_SHOWN_BY]


def render_report(
    report: Report, figures: Sequence[PageFigure] = (), *, captures: Sequence[str] = (), utc: bool = False,
    version: str = "", sequences: Sequences = MappingProxyType({}),
) -> str:  # fmt: skip
    """The page as HTML. `captures`: their names in commands. `figures`: its charts (`chart_figures`). `sequences`: of
    `packets_shown`."""
    heading = report.heading.named_rows()[0]
    first, last = heading["first"], heading["last"]
    commander = RowCommander(report, captures)
    return render_page(
        f"Kafka traffic in {_title(captures)}" if captures else "Kafka traffic",
        [*(with_captures_in(t, captures) for t in report.tables if t.name != "summary"), report.ledger],
        findings=_findings(report, captures, utc),
        facts=heading_facts(report.heading, utc),
        figures=figures,
        picture=_picture(report, commander, utc, sequences),
        groups=GROUPS,
        warnings=report.warnings,
        ledger=ledger_line(report.ledger).removesuffix("; --ledger shows every part"),
        notes=(f"Times are {units.zone(first, utc)}.",) if isinstance(first, int) else (),
        commands=commander.commands,
        utc=utc,
        first=first if isinstance(first, int) else None,
        last=last if isinstance(last, int) else None,
        version=version,
    )


def write_page(report: Report, path: str, utc: bool = False, overwrite: bool = False) -> None:
    """Write the page of a report, with what its `source` has. Errors are those of `Report.page`."""
    captures, read_packets = report.source
    check_file("the page", path, HTML, captures, overwrite)
    page = render_report(
        report,
        chart_figures(report, utc),
        captures=captures,
        utc=utc,
        version=own_version(),
        sequences={} if read_packets is None else read_packets(packets_shown(report), _brokers(report)),
    )
    write_whole(path, page, overwrite)


def _brokers(report: Report) -> frozenset[str]:
    """The brokers of the report, by address and port."""
    named, traffic = report.heading.named_rows()[0]["brokers"], report.curves.traffic
    found = [*(named if isinstance(named, tuple) else ()), *(() if traffic is None else traffic.brokers)]
    return frozenset(map(str, found))


def _title(captures: Sequence[str]) -> str:
    names = ["standard input" if path == "-" else PurePath(path).name or path for path in captures]
    left = len(names) - _NAMED
    return " and ".join(names) if left <= 0 else f"{', '.join(names[:_NAMED])} and {left:,} more"


def _picture(report: Report, commander: RowCommander, utc: bool, sequences: Sequences) -> PagePicture:
    traffic = report.curves.traffic
    if traffic is None:
        return PagePicture(None, sequences=sequences)
    offset = 0 if utc else time.localtime(traffic.first // units.SECOND).tm_gmtoff
    return PagePicture(traffic, 1000 * offset, commander.template(), conditions_of(traffic), sequences)


def _shown(report: Report) -> list[Row]:
    """The findings at the top of the page."""
    table = next((t for t in report.tables if t.name == "summary"), None)
    return [] if table is None else [*first_lines(table, whole=True)[0], *mild_rows(table)]


def _findings(report: Report, captures: Sequence[str], utc: bool) -> list[PageFinding]:
    return [_finding(row, report.heading, captures, utc) for row in _shown(report)]


def _packet(row: Row) -> int:
    """The number of the first packet that shows a finding, 0: none."""
    packets = row["packets"]
    return int(as_number(packets[0])) if isinstance(packets, tuple) and packets else 0  # type: ignore[arg-type]


_TONES = {ERROR: "bad", WARNING: "warn", NOTE: "note"}


def _finding(row: Row, heading: ReportTable, captures: Sequence[str], utc: bool) -> PageFinding:
    command = with_captures(str(row["command"] or ""), captures)
    style = "good" if row["finding"] == kinds.NOTHING else _TONES[str(row["severity"])]
    kind = str(row["finding"])
    table = "clients" if kind.startswith("slow_") else kinds.TABLES.get(kind, "advice" if row["setting"] else "events")
    begin, end = row["begin"], row["end"]
    return PageFinding(
        str(row["label"]), finding_text(row, heading, utc), (command,), style, table,
        word="" if style == "good" else str(row["severity"]),
        begin=begin if isinstance(begin, int) else None,
        end=end if isinstance(end, int) else None,
        whom=tuple(units.safe(name) for kind, name in cast("Any", row["parties"]) if kind in ("client", "broker")),
        packet=_packet(row),
    )  # fmt: skip


class _Chart(NamedTuple):
    """`name`: as in `plots.PLOTS`. `beside`: the table above which it stands. `height`: in inches; 0: what it needs."""

    name: str
    beside: str
    height: float


#: Inches. A page has the title beside the plot, which needs less height.
_WIDTH, _HEAD = 11.5, 0.5
_CHARTS = (
    _Chart("latency", "latency", 3.9),
    _Chart("topic-matrix", "topic_clients", 0.0),
    _Chart("rebalances", "rebalances", 0.0),
)


def chart_figures(report: Report, utc: bool) -> Sequence[PageFigure]:
    """The charts of a report with curves: the plots that it has data for, as SVG. None without matplotlib."""
    if find_spec("matplotlib") is None:
        return ()
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
