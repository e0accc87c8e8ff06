"""Findings as the rows of a report's table: the summary, and sections that are lists of findings."""

from __future__ import annotations

from ..batch import Context
from ..commands import command
from ..findings import Finding
from ..model import Column, Value

#: The columns of `finding_row`, by name.
COLUMNS = (
    Column("finding", "id", "text", "what kind of finding it is: stable, for programs", 9),
    Column("severity", "severity", "text", "error, warning or note", 9),
    Column("label", "finding", "text", "the finding in one or two words"),
    Column("text", "what was found", "text", "a sentence, made of the numbers"),
    Column("time_lost_ns", "time\nlost", "ns", "summed time of exchanges that it cost; 0: none, or unknown", 1),
    Column("begin", "begin", "time", "when it began", 2),
    Column("end", "end", "time", "when it ended; null: it lasts, or took no time", 2),
    Column("numbers", "numbers", "numbers", "the numbers that it rests on, with their units in their names", 9),
    Column("packets", "packets", "packets", "packets that show it", 9),
    Column("parties", "parties", "parties", "whom it is on, the most important first", 9),
    Column("setting", "setting", "text", "the setting to change", 9),
    Column("remedy", "remedy", "text", "what to do", 9),
    Column("cause", "follows from", "text", "the finding that it follows from: its kind", 9),
    Column("command", "more", "text", "command that shows more"),
)


def finding_row(finding: Finding, context: Context, selected: str | None) -> tuple[Value, ...]:
    """The values of COLUMNS. `selected`: the selection of the report as the user wrote it."""
    return (
        finding.id, finding.severity, finding.label, finding.text, finding.time_lost_ns, finding.begin, finding.end,
        tuple(finding.numbers.items()), finding.packets, tuple((p.kind, p.name) for p in finding.parties),
        finding.setting or None, finding.remedy or None, None if finding.cause is None else str(finding.cause[0]),
        command(context, selected, finding.options, finding.command) if finding.command else None,
    )  # fmt: skip
