"""Counts of sections over facts keep few rows, and each section answers a question."""

from __future__ import annotations

from pathlib import Path

from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING
from kafkatap.reports.section_parts.registry import OVER_FACTS, load_sections, needs_of, section_list, section_names
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.run import Run

WANTED = tuple(OVER_FACTS)


def test_more_rows_than_the_limit_become_other(samples: Path) -> None:
    """With very few names, each form keeps that many rows, and the sums stay but for rows of single seconds."""
    path = samples / "apache-4.3.pcap.zst"

    def counted(names: int) -> SectionCounts:
        engine = engine_for(EVERYTHING, tables=False, **needs_of(WANTED)._asdict())
        sections = SectionCounts(WANTED, names, lambda: engine.dissector.strings.other)
        for batch in Run([str(path)], engine).batches():
            sections.add(batch)
            sections.finish()
        return sections

    few, many = counted(64), counted(1 << 20)
    for name, form in many.forms.items():
        if not len(form):
            continue
        if len(form) > 64:
            assert len(few.forms[name]) <= 64, name
        first = next(iter(form.form.values))
        if form.form.values[first] == 0 and "second" not in form.form.keys:
            assert int(form.values()[first].sum()) == int(few.forms[name].values()[first].sum()), name


def test_each_section_answers_a_question() -> None:
    lines = section_list().splitlines()
    assert [line.split()[0] for line in lines] == section_names()
    assert all(line.endswith("?") for line in lines)
    for section in load_sections(WANTED):
        assert section.columns or not section.question, section.name
        assert all(form.name.startswith(section.name.split("-")[0]) for form in section.forms), section.name
