"""A clock that is set back an hour silences nothing: intervals, rotation and cool-downs go on."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.selection import Selection
from kafkatap.live.export.parquet_files import ParquetLog
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.recording.recorder import Recorder
from kafkatap.live.screen.plain_lines import Plain
from kafkatap.live.sink import Elapsed
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from tests.support.captures import pcap_bytes
from tests.support.tcp import encode

from .support import SECOND, FileSource
from .test_plain_lines import ended
from .watched import ticking

HOUR = 3_600 * SECOND


class SetBack(FileSource):
    """A capture of 20 s. After 10 s its clock, and that of its packets, goes back an hour."""

    def __init__(self, path: Path) -> None:
        packets = encode(ticking(20))
        first = packets[0].time_ns
        path.write_bytes(pcap_bytes(packets))
        super().__init__(str(path))
        self._from = first + 10 * SECOND

    def clock(self) -> int:
        return self.now - (HOUR if self.now >= self._from else 0)

    def blocks(self):  # type: ignore[no-untyped-def]
        for buffer, packets, count in super().blocks():
            packets = packets.copy()
            packets["ts"][packets["ts"] >= self._from] -= HOUR
            yield buffer, packets, count


def test_time_that_passes_never_goes_back() -> None:
    elapsed = Elapsed()
    assert [elapsed.at(now) for now in (5, 9, 2, 3, 20, 1, 1)] == [5, 9, 9, 10, 27, 27, 27]
    assert elapsed.steps == 2


def test_lines_tables_and_recordings_go_on(tmp_path: Path) -> None:
    source, file = SetBack(tmp_path / "in.pcap"), io.StringIO()
    told: list[str] = []
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    monitor.sinks += [
        Plain(monitor, 2 * SECOND, file, utc=True),
        ParquetLog(tmp_path / "tables", rotate=4 * SECOND, notify=told.append),
        Recorder(
            tmp_path / "x.pcap", on=Selection.of(filter="api == ApiVersions"), after=SECOND // 4, cool_down=4 * SECOND,
            notify=told.append,
        ),
    ]  # fmt: skip
    monitor.run(lambda: source.over)
    lines = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in file.getvalue().splitlines()]
    times = [ended(line) for line in lines]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps.count(2) >= 7
    assert [step for step in steps if step < 0] == [pytest.approx(-3_598, abs=2)]
    assert sum(float(line["requests_s"]) for line in lines) * 2 == pytest.approx(200, abs=15)
    parts = sorted((tmp_path / "tables" / "exchanges").rglob("*.parquet"))
    assert len(parts) >= 5
    begun = [text for text in told if " begins: " in text]
    assert len(begun) >= 4


def test_the_time_for_looks_is_not_spent_by_it(tmp_path: Path) -> None:
    source = SetBack(tmp_path / "in.pcap")
    monitor = Monitor(
        source, Engine(**needs_of(None)._asdict()), clock=source.clock, sections=counted_sections(None)
    )  # fmt: skip
    monitor.run(lambda: source.over)
    assert monitor.status.events_late == 0
