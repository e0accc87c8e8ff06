"""A monitor that counts sections reports what a run over the same packets reports, after names were forgotten.

`tests/ways` has monitors that forget none.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine, engine_for
from kafkatap.engine.selection import EVERYTHING
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import ReportTable, Value
from kafkatap.reports.section_parts.registry import OVER_FACTS, needs_of
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.run import Run
from tests.live.support import FileSource
from tests.support.captures import read_bytes

WANTED = tuple(OVER_FACTS)
#: Tables whose columns depend on when connections end: a monitor ends silent ones.
LATER = ("connections", "slow_connections")


def offline(path: Path, *, is_counted: bool = False) -> dict[str, object]:
    """The rows of each table. `is_counted`: also those of usual sections, which are over no facts."""
    engine = engine_for(EVERYTHING, tables=False, **needs_of(WANTED)._asdict())
    sections = SectionCounts(WANTED, engine.limits.names, lambda: engine.dissector.strings.other)
    engine.on_connections(sections.add_connections)
    run, counts = Run([str(path)], engine), ReportCounts()
    for batch in run.batches():
        sections.add(batch)
        if is_counted:
            counts.add(batch)
    report = build_report(counts, run.context(), sections=WANTED, over_facts=sections)
    return {table.name: without_commands(table) for table in report.tables}


def without_commands(table: ReportTable) -> list[tuple[Value, ...]]:
    """The rows of a table. Commands of a live report name no capture."""
    kept = [number for number, column in enumerate(table.columns) if column.name != "command"]
    return [tuple(row[number] for number in kept) for row in table.rows]


@pytest.mark.parametrize("name", ["apache-4.3", "apache-2.8"])
def test_a_monitor_has_the_sections_of_a_report(
    samples: Path, tmp_path: Path, name: str
) -> None:  # fmt: skip
    limits = replace(MemoryLimits(), text=3_000)
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    source = FileSource(str(path))
    engine = Engine(all_results=True, **needs_of(WANTED)._asdict())
    monitor = Monitor(source, engine, limits=limits, clock=source.clock, sections=WANTED)
    monitor.run(lambda: source.over)
    assert monitor.sections is not None
    report = build_report(ReportCounts(), monitor.context(), sections=WANTED, over_facts=monitor.sections)
    wanted = offline(path)
    for table in report.tables:
        if table.name not in LATER:
            assert without_commands(table) == wanted[table.name], table.name
