"""`--plain`: lines for logs, whose numbers add up to the report's."""

from __future__ import annotations

import io
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from kafkatap.engine import Engine
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.breakdown import total_row
from kafkatap.live.screen.plain import Plain

from .support import SECOND, FileSource

SAMPLES = sorted(Path("samples").glob("*.pcap*"))
KEYS = (
    "time", "level", "requests_s", "packets_s", "mb_s", "p50_ms", "p99_ms", "slowest", "slowest_p99_ms", "throttled",
    "quota_ms", "errors", "error", "unanswered", "connections", "waiting", "opened", "refused", "no_answer", "resets",
    "retransmitted", "zero_windows", "rtt_ms", "drops", "cpu",
)  # fmt: skip
NUMBER = re.compile(r"\d+(\.\d+)?|-")


def watched(path: Path, interval: int, utc: bool = True) -> tuple[Monitor, list[dict[str, str]]]:
    source, file = FileSource(str(path)), io.StringIO()
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None))
    monitor.sinks.append(Plain(monitor, interval, file, utc))
    monitor.run(lambda: source.over)
    lines = file.getvalue().splitlines()
    return monitor, [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]


@pytest.mark.parametrize("seconds", [1, 7])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_lines_add_up_to_the_total(path: Path, seconds: int) -> None:
    monitor, lines = watched(path, seconds * SECOND)
    assert all(tuple(line) == KEYS for line in lines)
    total = total_row(monitor.windows.start, SECOND)
    assert total is not None
    for key, wanted in (("throttled", total.throttled), ("errors", total.errors), ("unanswered", total.unanswered)):
        assert sum(int(line[key]) for line in lines) == wanted
    assert sum(float(line["quota_ms"]) for line in lines) == pytest.approx(total.throttle_wait / 1e6, abs=0.01)
    for line in lines:
        assert {line["level"], line["drops"]} == {"full", "0"}
        assert (line["error"] == "-") == (line["errors"] == "0")
        assert (line["slowest"] == "-") == (line["slowest_p99_ms"] == "-")
        assert line["slowest"] not in ("Fetch", "Fetch_(long_poll)", "JoinGroup", "SyncGroup")
        assert all(NUMBER.fullmatch(line[key]) for key in KEYS if key not in ("time", "level", "slowest", "error"))
        if line["slowest"] != "-":
            assert float(line["slowest_p99_ms"]) >= float(line["p99_ms"]) >= float(line["p50_ms"])


def test_the_traffic_of_whole_intervals() -> None:
    monitor, lines = watched(SAMPLES[0], 10 * SECOND)
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
        _, lines = watched(SAMPLES[0], 10 * SECOND, utc=False)
    finally:
        monkeypatch.undo()
        time.tzset()
    _, utc = watched(SAMPLES[0], 10 * SECOND)
    assert all(line["time"].endswith("+05:30") for line in lines)
    assert lines[0]["time"][14:16] != utc[0]["time"][14:16]


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_file_that_cannot_be_written_to_ends_the_run() -> None:
    source = FileSource(str(SAMPLES[0]))
    monitor = Monitor(source, Engine(True), clock=source.clock, governor=Governor(None))
    monitor.sinks.append(Plain(monitor, SECOND, Full()))
    with pytest.raises(OSError, match="No space left"):
        monitor.run(lambda: source.over)
    source.close()


def test_the_documented_line_is_one() -> None:
    line = next(line for line in Path("docs/live.md").read_text().splitlines() if line.startswith("time="))
    assert tuple(pair.split("=")[0] for pair in line.split(" ")) == KEYS
