"""A diagnosis as text: the findings, what was checked, and the better capture commands."""

from __future__ import annotations

from collections.abc import Iterator

from kafkatap.reports import units
from kafkatap.reports.finding_words import counted
from kafkatap.reports.findings import ERROR, NOTE, WARNING
from kafkatap.reports.model import Report, Value
from kafkatap.reports.rendering.text_tables import Line, render_table, wrapped

_STYLES = {ERROR: "bold red", WARNING: "bold yellow", NOTE: "bold"}
#: Checks whose problems another capture command solves.
BY_CAPTURING = ("files", "content", "link types", "snap length", "drops", "gaps", "directions", "copies", "clock")
_LABEL = 10  #: width of the labels of lines


def diagnosis_lines(
    report: Report, width: int | None, *, utc: bool = False, is_whole: bool = False, top: int | None = None
) -> Iterator[Line]:
    """The lines of a diagnosis, without line ends. `width`: as in `render_table`. `is_whole`: with all tables, and
    the remedies of notes. `top`: rows of a table at most, 0: all; None: 5 connections with gaps, or 20 if `is_whole`,
    and all rows of the others."""
    findings = report.table("findings").named_rows()
    for row in findings:
        severity = str(row["severity"])
        yield from _paragraph(severity, f"{row['check']}: {row['what']}", width, _STYLES[severity])
        for label in ("evidence", "effect", "remedy") if is_whole or severity != NOTE else ("evidence", "effect"):
            yield from _paragraph("", f"{label}: {row[label]}", width, "")
        yield []
    yield from _sentence(_verdict(report), width, "bold")
    names = ", ".join(str(row["check"]) for row in report.table("checks").named_rows())
    yield from _sentence(f"checked: {names}", width, "dim")
    noted = {row["check"] for row in findings if row["severity"] != NOTE}
    is_better, is_encrypted = not noted.isdisjoint(BY_CAPTURING), "encryption" in noted
    if is_whole or is_better or is_encrypted:
        yield []
        yield [("This would capture better:" if is_better else "To capture the same brokers:", "bold")]
        for row in report.table("capture_commands").named_rows():
            yield [(f"  {units.safe(str(row['command']))}", "")]
    if is_whole:
        for name in ("checks", "gap_connections", "interfaces", "capture_point", "files"):
            yield []
            yield from render_table(
                report.table(name), width, (20 if name == "gap_connections" else 0) if top is None else top, utc
            )
        yield []
        yield from render_table(report.ledger, width, 0, utc)
    elif report.table("gap_connections").rows:
        yield []
        yield from render_table(report.table("gap_connections"), width, 5 if top is None else top, utc)


def _verdict(report: Report) -> str:
    (values,) = report.heading.named_rows()
    severities = [str(row["severity"]) for row in report.table("findings").named_rows()]
    problems = [
        counted(severities.count(severity), severity)
        for severity in (ERROR, WARNING) if severity in severities
    ]  # fmt: skip
    notes = f", {counted(severities.count(NOTE), 'note')}" if NOTE in severities else ""
    head = f"{' and '.join(problems)}{notes}" if problems else f"no problem found{notes}"
    span = values["span_ns"]
    return (
        f"{head}: {counted(_int(values['packets']), 'packet')} in "
        f"{units.duration(_int(span))}, {counted(_int(values['kafka_connections']), 'Kafka connection')}, "
        f"{counted(_int(values['requests']), 'request')}"
    )


def _int(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _sentence(text: str, width: int | None, style: str) -> Iterator[Line]:
    """A text, wrapped on a terminal only."""
    if width is None:
        yield [(text, style)]
    else:
        yield from wrapped(text, width, style, "  ")


def _paragraph(label: str, text: str, width: int | None, style: str) -> Iterator[Line]:
    """A label, and a text beside it."""
    shown = units.safe(text)
    lines = [shown] if width is None else [
        "".join(part for part, _ in line) for line in wrapped(shown, max(width - _LABEL, 20), "")
    ]  # fmt: skip
    yield [(f"{label:<{_LABEL}}", style), (lines[0] if lines else "", "")]
    for line in lines[1:]:
        yield [(" " * _LABEL + line, "")]
