"""A section of the report over captures, with what its tables are made of, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import ReportTable
from kafkatap.reports.section_parts.registry import load_sections, needs_of
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.run import Run

#: The captures for questions, with the truth beside each.
QUESTIONS = Path(__file__).resolve().parent.parent.parent / "samples" / "questions"
Row = dict[str, Any]


def section_input(
    captures: Path | Sequence[Path],
    sections: str | Sequence[str],
    options: Mapping[str, Any] | None = None,
    selection: Selection = EVERYTHING,
    most: int | None = None,
) -> SectionInput:
    """What the tables of sections are made of: captures read in this process. `most`: the most rows of their counts."""
    paths = [captures] if isinstance(captures, Path) else captures
    names = [sections] if isinstance(sections, str) else sections
    engine = engine_for(selection, all_results=True, tables=False, **needs_of(names)._asdict())
    made = SectionCounts(names, most or engine.limits.names, lambda: engine.dissector.strings.other,
                         selection.learning)  # fmt: skip
    engine.on_connections(made.add_connections)
    run = Run([str(path) for path in paths], engine)
    run.start()
    counts = ReportCounts()
    for batch in selection.apply(run.batches(), engine, made):
        counts.add(batch)
        made.add(batch)
    made.finish()
    context = run.context()
    return SectionInput(made, counts, context, options or {}, selection.shown(context.first))


def section_tables(
    captures: Sequence[Path],
    name: str,
    options: Mapping[str, Any] | None = None,
    selection: Selection = EVERYTHING,
) -> dict[str, ReportTable]:
    """The tables of a section, by name."""
    given = section_input(captures, [name], options, selection)
    return {table.name: table for section in load_sections([name]) for table in section.tables(given)}


def rows(table: ReportTable) -> list[dict[str, Any]]:
    """The rows by the names of columns."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def section_rows(
    captures: Path | Sequence[Path],
    name: str,
    options: Mapping[str, Any] | None = None,
    selection: Selection = EVERYTHING,
    most: int | None = None,
) -> dict[str, list[Row]]:
    """The rows of a section's tables, by table and column."""
    given = section_input(captures, name, options, selection, most)
    return {table.name: rows(table) for section in load_sections([name]) for table in section.tables(given)}


def truth_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file of tab-separated values with a heading."""
    lines = path.read_text().splitlines()
    heading = lines[0].split("\t")
    return [dict(zip(heading, line.split("\t"), strict=True)) for line in lines[1:]]
