"""Findings as the rows of a report's table: the summary, and sections that are lists of findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..batch import Context
from ..commands import command
from ..findings import Finding
from ..model import Column, Row, Value, in_columns

#: The columns of `finding_rows`.
COLUMNS = (
    Column("finding", "finding", "text", "what kind of finding it is: stable, for programs", 9),
    Column("severity", "severity", "text", "error, warning or note", 9),
    Column("label", "label", "text", "the finding in one or two words"),
    Column("text", "text", "text", "a sentence, made of the numbers", end="sentence"),
    Column("time_lost_ns", "lost,\nsum", "ns", "summed time of exchanges that it cost; 0: none, or unknown", 1),
    Column("begin", "begin", "time", "when it began", 2),
    Column("end", "end", "time", "when it ended; null: it lasts, or took no time", 2),
    Column("numbers", "numbers", "numbers", "the numbers that it rests on, with their units in their names", 9),
    Column("packets", "packets", "packets", "packets that show it", 9),
    Column("parties", "parties", "parties", "whom it is on, the most important first", 9),
    Column("setting", "setting", "text", "the setting to change", 9),
    Column("remedy", "remedy", "text", "what to do", 9),
    Column("cause", "follows from", "text", "the finding that it follows from: its kind", 9),
    Column("command", "command", "text", "command that shows more"),
)


def finding_rows(
    findings: Iterable[Finding], context: Context, selected: str | None, whole: Collection[tuple[Any, ...]] = ()
) -> list[tuple[Value, ...]]:
    """Findings as rows of COLUMNS. `selected`: the selection of the report as the user wrote it. `whole`: the keys of
    those whose evidence may be outside of it."""
    return in_columns(COLUMNS, (_row(f, context, None if f.key in whole else selected) for f in findings))


def _row(finding: Finding, context: Context, selected: str | None) -> Row:
    return {
        "finding": finding.id, "severity": finding.severity, "label": finding.label, "text": finding.text,
        "time_lost_ns": finding.time_lost_ns, "begin": finding.begin, "end": finding.end,
        "numbers": tuple(finding.numbers.items()), "packets": finding.packets,
        "parties": tuple((p.kind, p.name) for p in finding.parties),
        "setting": finding.setting or None, "remedy": finding.remedy or None,
        "cause": None if finding.cause is None else str(finding.cause[0]),
        "command": command(context, selected, finding.options, finding.command) if finding.command else None,
    }  # fmt: skip
