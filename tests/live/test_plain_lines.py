"""`--plain`: lines for logs, whose numbers add up to the report's."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.breakdown import Row, total_row
from kafkatap.live.screen.plain_lines import Plain
from kafkatap.live.sink import Sink
from kafkatap.reports.counting.counts import ReportCounts
from tests.support.captures import pcap_bytes, read_capture

from .support import SECOND, FileSource

SAMPLES = sorted(Path("samples").glob("*.pcap*"))
KEYS = (
    "time", "level", "requests_s", "packets_s", "mb_s", "p50_ms", "p99_ms", "slowest", "slowest_p99_ms", "throttled",
    "throttle_wait_ms", "failed", "error_codes", "error", "unanswered", "connections", "waiting",
    "longest_wait_ms", "opened", "refused", "no_answer", "resets", "retransmitted", "zero_windows", "rtt_ms", "drops",
    "cpu", "events_late_s",
)  # fmt: skip
NUMBER = re.compile(r"\d+(\.\d+)?|-")


class Counted(Sink):
    """The counts of each second as rows, with the time at which it ended. The last one is shorter."""

    def __init__(self) -> None:
        self.seconds: list[tuple[int, Row | None]] = []

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        self.seconds.append((now, total_row(counts, SECOND)))


def watched(
    path: Path, interval: int, utc: bool = True, step: int = SECOND // 10, is_json: bool = False
) -> tuple[Monitor, list[dict[str, str]], Counted]:
    source, file, counted = FileSource(str(path), step), io.StringIO(), Counted()
    monitor = Monitor(source, Engine(all_results=True), sinks=[counted], clock=source.clock, governor=Governor(None))
    monitor.sinks.append(Plain(monitor, interval, file, utc, is_json))
    monitor.run(lambda: source.over)
    lines = file.getvalue().splitlines()
    if is_json:
        return monitor, [json.loads(line) for line in lines], counted
    return monitor, [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines], counted


def ended(line: dict[str, str]) -> int:
    """The end of a line's interval, seconds since the epoch."""
    return int(datetime.fromisoformat(line["time"]).timestamp())


@pytest.mark.parametrize("seconds", [1, 7])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_lines_add_up_to_the_counts(path: Path, seconds: int) -> None:
    """What comes within a second after the last line has no line."""
    _, lines, counted = watched(path, seconds * SECOND)
    assert all(tuple(line) == KEYS for line in lines)
    rows = [row for _, row in counted.seconds]
    if (last := ended(lines[-1])) == ended(lines[-2]) + seconds and counted.seconds[-1][0] // SECOND == last:
        rows.pop()
    rows = [row for row in rows if row is not None]
    for key in ("throttled", "failed", "error_codes", "unanswered"):
        assert sum(int(line[key]) for line in lines) == sum(getattr(row, key) for row in rows)
    waited = sum(row.throttle_wait for row in rows)
    assert sum(float(line["throttle_wait_ms"]) for line in lines) == pytest.approx(waited / 1e6, abs=0.01)
    for line in lines:
        assert {line["level"], line["drops"]} == {"full", "0"}
        assert (line["error"] == "-") == (line["error_codes"] == "0") == (line["failed"] == "0")
        assert (line["slowest"] == "-") == (line["slowest_p99_ms"] == "-")
        assert line["slowest"] not in ("Fetch", "Fetch_(long_poll)", "JoinGroup", "SyncGroup")
        assert all(NUMBER.fullmatch(line[key]) for key in KEYS if key not in ("time", "level", "slowest", "error"))
        if line["slowest"] != "-":
            assert float(line["slowest_p99_ms"]) >= float(line["p99_ms"]) >= float(line["p50_ms"])


@pytest.mark.parametrize("seconds", [1, 10])
def test_no_interval_is_shorter_than_a_second(seconds: int) -> None:
    """The capture ends 0.3 s after a line, with requests that nothing answers."""
    for step in (SECOND // 10, 3 * SECOND // 10):
        _, lines, _ = watched(SAMPLES[0], seconds * SECOND, step=step)
        assert len(lines) > 5
        assert all(ended(b) - ended(a) >= 1 for a, b in pairwise(lines))


def test_a_short_run_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    path.write_bytes(pcap_bytes(read_capture(SAMPLES[0]).packets[:40], nanoseconds=True))
    monitor, (line,), _ = watched(path, 10 * SECOND)
    assert float(line["requests_s"]) > 0
    assert 0 < float(line["packets_s"]) <= 40 == monitor.engine.packets


def test_the_traffic_of_whole_intervals() -> None:
    monitor, lines, _ = watched(SAMPLES[0], 10 * SECOND)
    rates = [float(line["requests_s"]) for line in lines[:-1]]
    total = total_row(monitor.windows.start, SECOND)
    assert total is not None
    assert 0 < 10 * sum(rates) < total.requests + len(rates)
    starts = [time.strptime(line["time"], "%Y-%m-%dT%H:%M:%SZ").tm_sec for line in lines[:-1]]
    assert {(b - a) % 60 for a, b in pairwise(starts)} == {10}
    assert sum(float(line["packets_s"]) for line in lines) > 0
    assert sum(float(line["mb_s"]) for line in lines) > 0


def test_local_time_says_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        _, lines, _ = watched(SAMPLES[0], 10 * SECOND, utc=False)
    finally:
        monkeypatch.undo()
        time.tzset()
    _, utc, _ = watched(SAMPLES[0], 10 * SECOND)
    assert all(line["time"].endswith("+05:30") for line in lines)
    assert lines[0]["time"][14:16] != utc[0]["time"][14:16]


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_file_that_cannot_be_written_to_ends_the_run() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    monitor.sinks.append(Plain(monitor, SECOND, Full()))
    with pytest.raises(OSError, match="No space left"):
        monitor.run(lambda: source.over)
    source.close()


def test_the_documented_line_is_one() -> None:
    line = next(line for line in Path("docs/live.md").read_text().splitlines() if line.startswith("time="))
    assert tuple(pair.split("=")[0] for pair in line.split(" ")) == KEYS


@pytest.mark.parametrize("path", SAMPLES[:3], ids=lambda p: p.name)
def test_lines_are_the_same_as_json(path: Path) -> None:
    _, texts, _ = watched(path, SECOND)
    _, objects, _ = watched(path, SECOND, is_json=True)
    assert len(texts) == len(objects) > 2
    for text, made in zip(texts, objects, strict=True):
        assert tuple(made) == ("time", "kind", *KEYS[1:])
        assert made["kind"] == "status"
        assert ended(made) == ended(text)
        for key in KEYS[1:]:
            value: object = made[key]
            if value is None:
                assert text[key] == "-"
            elif isinstance(value, str):
                assert text[key] == value.replace(" ", "_")
            else:
                assert key == "cpu" or float(text[key]) == value
