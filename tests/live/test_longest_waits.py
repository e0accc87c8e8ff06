"""A broker that hangs shows while it hangs: by the clock of the script that stopped it, in lines and in the metric."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import parse
from kafkatap.engine.engine import Engine
from kafkatap.engine.selection import EVERYTHING, Selection, incident_selection, selection_of
from kafkatap.live.export.status_metrics import status_points
from kafkatap.live.governor import Governor
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor
from kafkatap.live.recording.recorder import Recorder
from kafkatap.live.screen.drawing import Drawing, screen_lines
from kafkatap.live.screen.page_sections import sections
from kafkatap.live.screen.pages import Page, Shown
from kafkatap.live.screen.plain_lines import Plain
from tests.support.captures import pcap_bytes, read_capture
from tests.support.tcp import encode, merge
from tests.wire.kafkatalk import MS, KafkaTalk

from .support import SECOND, FileSource
from .test_drawing import live
from .test_plain_lines import ended, watched
from .test_recorder import over
from .watched import produce

EVENTS = Path("samples/events")
#: The broker that the script stopped.
THIRD = "10.77.0.3:9092"
#: Of apache-4.3, the last packets of two connections are left out, so their last requests wait.
SAMPLES = sorted(path for path in Path("samples").glob("*.pcap*") if path.name != "apache-4.3.pcap.zst")


def test_the_oldest_request_waits_while_the_broker_hangs() -> None:
    steps = json.loads((EVENTS / "hang.truth.json").read_text())["steps"]
    stopped, resumed = steps["hung"], steps["continued"]
    _, lines, _ = watched(EVENTS / "hang.pcap.zst", SECOND)
    waits = {ended(line): float(line["longest_wait_ms"].replace("-", "0")) / 1e3 for line in lines}
    during = {at: wait for at, wait in waits.items() if stopped + 3 < at < resumed}
    assert during
    for at, wait in during.items():
        assert at - stopped - 2.5 < wait < at - stopped + 2.5
    assert all(wait < 2.5 for at, wait in waits.items() if at < stopped or at > resumed + 5)


def test_the_metric_has_the_broker() -> None:
    source = FileSource(str(EVENTS / "hang.pcap.zst"), SECOND // 10)
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    found: dict[str, float] = {}
    while not source.over:
        source.wait(0.1)
        monitor.step()
        for point in status_points(monitor.status, 0)["kafkatap_longest_wait_seconds"]:
            found[point.labels[0]] = max(point.value, found.get(point.labels[0], 0))
    assert [broker for broker, seconds in found.items() if seconds > 5] == [THIRD]


@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_brokers_that_answer_let_nothing_wait(path: Path) -> None:
    """Long polls and rebalances are no waits."""
    _, lines, _ = watched(path, SECOND)
    assert all(float(line["longest_wait_ms"].replace("-", "0")) < 3_000 for line in lines)


def incident(expression: str) -> object:
    return incident_selection(parse(["live", "--write-pcap", "x.pcap", "--on", expression]), EVERYTHING)


@pytest.mark.parametrize(
    ("name", "begins", "ends", "seconds"), [("hang", "hung", "continued", 5), ("firewall", "dropped", "passed", 0.5)]
)
def test_a_recording_begins_while_requests_wait(
    name: str, begins: str, ends: str, seconds: float, tmp_path: Path
) -> None:
    """By the clock of the script; each request counts once, and the file has the packets from before the wait."""
    steps = json.loads((EVENTS / f"{name}.truth.json").read_text())["steps"]
    told: list[tuple[float, str]] = []
    source = FileSource(str(EVENTS / f"{name}.pcap.zst"), SECOND // 10)
    selection = incident(f"waiting > {int(seconds * 1000)}ms")
    recorder = Recorder(
        tmp_path / "x.pcap", on=selection, notify=lambda text: told.append((source.clock() / 1e9, text))
    )  # fmt: skip
    monitor = Monitor(source, Engine(all_results=True), sinks=[recorder], clock=source.clock, governor=Governor(None))
    monitor.run(lambda: over(source, recorder))
    at, text = told[0]
    assert steps[begins] + seconds < at < steps[ends]
    assert re.search(r"x-\S+ begins: exchange .*: waiting for \d", text)
    assert int(re.findall(r"([\d,]+) exchanges? matched", told[1][1])[0]) < 60
    first = read_capture(tmp_path / text.split()[0]).packets[0]
    assert first.time_ns < steps[begins] * 1e9


def test_a_line_has_the_longest_wait_whatever_is_selected() -> None:
    """As the metric has it; and none is left when the broker answers again."""
    file, source = io.StringIO(), FileSource(str(EVENTS / "hang.pcap.zst"), SECOND // 10)
    monitor = Monitor(
        source, Engine(all_results=True), selection=Selection.of(filter="api == Produce"), clock=source.clock,
        governor=Governor(None),
    )  # fmt: skip
    monitor.sinks.append(Plain(monitor, SECOND, file, utc=True))
    monitor.run(lambda: source.over)
    waits = [re.findall(r"longest_wait_ms=(\S+)", line)[0] for line in file.getvalue().splitlines()]
    _, lines, _ = watched(EVENTS / "hang.pcap.zst", SECOND)
    assert waits == [line["longest_wait_ms"] for line in lines]
    assert max(float(wait.replace("-", "0")) for wait in waits) > 8_000
    assert waits[-1] == "-"


def test_only_incidents_see_requests_wait() -> None:
    """Other filters see finished exchanges, and say so."""
    with pytest.raises(ValueError, match=r"waiting: filters see requests once they are answered .*--on"):
        selection_of(parse(["report", "-f", "waiting > 5s", "x.pcap"]))
    with pytest.raises(ValueError, match="waiting"):
        selection_of(parse(["live", "-f", "api == Produce and not waiting > 5s"]))
    assert not incident("latency > 5s").sees_waiting  # type: ignore[attr-defined]
    assert incident("error or waiting > 5s").sees_waiting  # type: ignore[attr-defined]


def test_requests_count_when_they_arrive_and_the_head_names_the_broker(tmp_path: Path) -> None:
    """20 clients whose requests a broker never answers."""
    talks = []
    for number in range(20):
        talk = KafkaTalk(client=("10.0.0.1", 40_000 + number), client_id="app")
        talk.tcp.open()
        talk.tcp.wait(1_100 * MS)
        produce(talk, 1, acks=1)
        talk.tcp.wait(9_000 * MS)
        talk.tcp.reset(0)
        talks.append(talk.segments)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*talks))))
    monitor, lines, _ = watched(path, SECOND)
    assert sum(float(line["requests_s"]) for line in lines) == 20
    source = FileSource(str(path), SECOND // 10)
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    while not source.over and monitor.status.longest_waits.get("10.0.0.2:9092", 0) < 5 * SECOND:
        source.wait(0.1)
        monitor.step()
    status = monitor.status
    monitor.run(lambda: source.over)  # to the end of the file, which closes it
    page, shown = Page("table", "api"), Shown()
    parts = sections(page, live(), shown)
    head = "\n".join("".join(text for text, _ in line) for line in screen_lines(
        Drawing(page, 1, shown, status, parts), 120, 24
    ))  # fmt: skip
    assert re.search(r"waiting 20 +NO ANSWER for 5.00 s at 10\.0\.0\.2:9092", head)


def test_brokers_keep_their_names_when_names_are_forgotten() -> None:
    """Every second: then the numbers of addresses change."""
    source = FileSource(str(EVENTS / "hang.pcap.zst"), SECOND // 10)
    limits = MemoryLimits(addresses=0)
    monitor = Monitor(
        source, Engine(all_results=True), clock=source.clock, governor=Governor(None), limits=limits
    )  # fmt: skip
    found: set[str] = set()
    while not source.over:
        source.wait(0.1)
        monitor.step()
        found |= {broker for broker, ns in monitor.status.longest_waits.items() if ns > 5 * SECOND}
    assert found == {THIRD}
