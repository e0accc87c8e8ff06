"""Sections over facts are the same however exchanges are gathered, and however many processes read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.rendering.json_report import write_json
from kafkatap.reports.section_parts import section_counts
from kafkatap.reports.section_parts.registry import OVER_FACTS, load_sections, needs_of, section_list, section_names
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.run import Run
from kafkatap.splits.run_options import RunOptions
from tests.splits.local_report import count_with_jobs
from tests.splits.test_jobs import unpacked

SAMPLES = ("apache-4.3", "apache-2.8", "apache-0.10.2", "live-4.4")
WANTED = tuple(OVER_FACTS)


def as_json(counts: ReportCounts, context: Context, sections: SectionCounts, selection: Selection = EVERYTHING) -> str:
    text = io.StringIO()
    selected = selection.shown(context.first)
    write_json(build_report(counts, context, sections=WANTED, over_facts=sections, selected=selected), text, "0")
    return text.getvalue()


def one_process(path: Path, selection: Selection = EVERYTHING) -> str:
    engine = engine_for(selection, tables=False, **needs_of(WANTED)._asdict())
    run, counts = Run([str(path)], engine), ReportCounts()
    sections = SectionCounts(WANTED, engine.limits.names, lambda: engine.dissector.strings.other,
                             selection.learning)  # fmt: skip
    engine.on_connections(sections.add_connections)
    for batch in selection.apply(run.batches(), engine, sections):
        counts.add(batch)
        sections.add(batch)
    return as_json(counts, run.context(), sections, selection)


def several(path: Path, processes: int, selection: Selection = EVERYTHING) -> str:
    reading = RunOptions(selection=selection, wanted=WANTED)
    size = -(-os.path.getsize(path) // processes)
    found = count_with_jobs([str(path)], processes, reading, split_size=size)
    assert found.sections is not None
    return as_json(found.counts, found.context, found.sections, selection)


def same(one: str, other: str) -> None:
    assert one.splitlines() == other.splitlines()


@pytest.mark.parametrize("name", SAMPLES)
def test_any_number_of_processes(samples: Path, tmp_path: Path, name: str) -> None:
    path = unpacked(samples, name, tmp_path)
    whole = one_process(path)
    for processes in (2, 5):
        same(several(path, processes), whole)


def test_waits_for_lost_segments_are_those_of_one_process(samples: Path, tmp_path: Path) -> None:
    """In this capture a response waits for lost segments; the others have none."""
    path = unpacked(samples / "account", "lossy-client", tmp_path)
    whole = one_process(path)
    lost = [row["wait_loss_sum_ns"] for row in json.loads(whole)["reports"]["slow_connections"]]
    assert max(lost) > 500_000_000
    for processes in (2, 3, 8):
        same(several(path, processes), whole)


@pytest.mark.parametrize("name", SAMPLES)
def test_any_gathering(samples: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = samples / f"{name}.pcap.zst"
    whole = one_process(path)
    monkeypatch.setattr(section_counts, "_EXCHANGES", 1)
    same(one_process(path), whole)


def test_a_selection(samples: Path, tmp_path: Path) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    selection = Selection.of(clients=["*a*"])
    whole = one_process(path, selection)
    assert whole != one_process(path)
    same(several(path, 3, selection), whole)


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


def names_of(sections: Sequence[str]) -> list[str]:
    return [section.name for section in load_sections(sections)]


def test_each_section_answers_a_question() -> None:
    lines = section_list().splitlines()
    assert [line.split()[0] for line in lines] == section_names()
    assert all(line.endswith("?") for line in lines)
    for section in load_sections(WANTED):
        assert section.columns or not section.question, section.name
        assert all(form.name.startswith(section.name.split("-")[0]) for form in section.forms), section.name
