"""Live events: the samples of events through a monitor, as if their packets came now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.engine.engine import Engine
from kafkatap.live.event_watch import EventNotices, EventWatch
from kafkatap.live.export.metrics import Metrics
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.recording.packet_ring import SEGMENT
from kafkatap.live.recording.recorder import Recorder
from kafkatap.live.sink import Sink
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.findings import ERROR, Finding, Party, Rule
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from tests.reports.test_events_section import events
from tests.support.captures import pcap_bytes, read_bytes, read_capture
from tests.support.tcp import START_NS, encode, merge
from tests.wire.kafkatalk import METADATA, MS, KafkaTalk

from .support import SECOND, FileSource

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "events"


class Events(Sink):
    """The events, each with the time at which it came."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self.found: list[tuple[int, Finding]] = []

    def add_event(self, finding: Finding) -> None:
        self.found.append((self._source.now, finding))


def play(
    scene: str, folder: Path, *sinks: Sink, source: type[FileSource] = FileSource
) -> tuple[Monitor, list[tuple[int, Finding]]]:
    """A scene through a monitor with these sinks."""
    path = folder / f"{scene}.pcap"
    path.write_bytes(read_bytes(FOLDER / f"{scene}.pcap.zst"))
    return play_file(path, *sinks, source=source)


def play_file(
    path: Path, *sinks: Sink, source: type[FileSource] = FileSource
) -> tuple[Monitor, list[tuple[int, Finding]]]:
    """A capture through a monitor with these sinks."""
    packets = source(str(path))
    seen = Events(packets)
    engine = Engine(**needs_of(None)._asdict())
    monitor = Monitor(
        packets, engine, sinks=[*sinks, seen], clock=packets.clock, sections=counted_sections(None),
        governor=Governor(watch=None),
    )  # fmt: skip
    monitor.run(lambda: packets.over)
    return monitor, seen.found


@pytest.mark.parametrize(
    ("scene", "name", "seconds"),
    [
        # An announcement comes with the next second. Silences have to last a second before.
        ("stop", "broker_stopped", 1),
        ("kill", "broker_stopped", 2),
        ("hang", "broker_hung", 2),
        ("topics", "topic_created", 1),
        ("quota", "quota_began", 1),
        ("storm", "connection_storm", 1),
    ],
)
def test_events_come_within_a_second(scene: str, name: str, seconds: int, tmp_path: Path) -> None:
    _, found = play(scene, tmp_path)
    mine = [(at, finding) for at, finding in found if finding.id == name]
    assert len(mine) == 1
    at, finding = mine[0]
    (wanted,) = events(scene, name)
    assert finding.parties[0] == wanted.parties[0]
    assert finding.begin == wanted.begin
    assert at - (finding.begin or 0) <= seconds * SECOND + SECOND // 5  # the file's clock has steps of 0.1 s


def test_no_silence_is_reported_where_packets_were_dropped(tmp_path: Path) -> None:
    """The kernel drops a packet while the broker hangs. (Without that, the hang is reported; above.)"""
    (hang,) = events("hang", "broker_hung")
    begin = hang.begin or 0

    class Dropping(FileSource):
        def counters(self) -> tuple[int, int]:
            return self.taken, int(self.now > begin + SECOND)

    _, found = play("hang", tmp_path, source=Dropping)
    seen = {finding.id for _, finding in found}
    assert "leaders_moved" in seen
    assert not seen & {"broker_hung", "broker_returned", "broker_unreachable", "hosts_cut_off"}


def test_a_return_comes_too(tmp_path: Path) -> None:
    _, found = play("stop", tmp_path)
    ((at, back),) = [(at, finding) for at, finding in found if finding.id == "broker_returned"]
    (wanted,) = events("stop", "broker_returned")
    assert back.begin == wanted.begin
    assert at - (back.begin or 0) <= SECOND + SECOND // 5


def test_a_stop_is_told_though_nothing_comes_after_it(tmp_path: Path) -> None:
    """On the host of a broker whose clients went to others, no packet comes until it starts again."""
    talks = [KafkaTalk(("10.0.0.1", 40_000 + number), time_ns=START_NS + number * MS) for number in range(4)]
    for talk in talks:
        talk.tcp.open()
        for number in range(10):
            talk.exchange(METADATA, 1, number)
            talk.tcp.wait(SECOND // 2)
        talk.request(METADATA, 1, 99)
        talk.tcp.close(1)
    stopped = talks[-1].segments[-1].time_ns
    later = KafkaTalk(("10.0.0.1", 50_000), time_ns=stopped + 20 * SECOND)
    later.tcp.open()
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in (*talks, later))))))
    ((at, finding),) = play_file(path)[1]
    assert finding.id == "broker_stopped"
    assert SECOND < at - stopped < 3 * SECOND


@pytest.mark.parametrize(("seconds", "is_over", "is_told"), [(9, False, False), (9, True, False), (11, False, True)])
def test_errors_that_follow_are_no_event_until_they_last(seconds: int, is_over: bool, is_told: bool) -> None:
    begin, now = 100 * SECOND, (100 + seconds) * SECOND
    burst = Rule("error_burst", "errors").found("x", Party("error", "A"), begin=begin, end=now if is_over else None)
    watch = EventWatch(Engine(**needs_of(None)._asdict()), Governor(watch=None).watch)
    assert list(watch._new([burst._replace(cause=("leaders_moved", "", begin))], now + is_over * 60 * SECOND)) == (
        [burst._replace(cause=("leaders_moved", "", begin))] * is_told
    )
    assert list(watch._new([burst], now)) == [burst] * (not is_told)


def test_lines_metrics_and_incidents(tmp_path: Path) -> None:
    lines: list[str] = []
    recorder, metrics = Recorder(tmp_path / "x.pcap", on_events=True), Metrics()
    monitor, found = play(
        "stop", tmp_path, recorder, metrics, EventNotices(lambda text, **_: lines.append(text), utc=True)
    )
    assert len(lines) == len(found)
    assert any("broker 3 (10.77.0.3:9092) began to shut down" in line for line in lines)
    assert recorder.incidents == 1
    assert len(recorder.files) == 1
    assert recorder.files[0].stat().st_size > 10_000
    text = {family.metric.name: family for family in metrics.families(monitor.status)}["kafkatap_events_total"]
    assert {point.labels: point.value for point in text.points}[("broker_stopped",)] == 1


@pytest.mark.parametrize(("scene", "name"), [("hang", "broker_hung"), ("kill", "broker_stopped")])
def test_a_recording_holds_what_was_before_the_event(scene: str, name: str, tmp_path: Path) -> None:
    """All packets since the start, as memory has room for them: the event is known seconds after it began."""
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcapng", on_events=True, notify=told.append)
    _, found = play(scene, tmp_path, recorder)
    begin, at = next((finding.begin or 0, at) for at, finding in found if finding.id == name)
    whole = read_capture(tmp_path / f"{scene}.pcap").packets
    kept = read_capture(recorder.files[0]).packets
    assert at > begin + SECOND
    assert [packet.data for packet in kept] == [packet.data for packet in whole[: len(kept)]]
    assert kept[0].time_ns < begin < at < kept[-1].time_ns
    assert not any("--ring-size" in line for line in told)


def test_a_recording_says_that_memory_does_not_reach_back(samples: Path, tmp_path: Path) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcap", on_events=True, size=2 * SEGMENT, notify=told.append)
    reader = CaptureReader(str(samples / "apache-4.3.pcap.zst"))
    assert reader.fill()
    packets = reader.packets[reader.position :]
    first = int(packets["ts"][0])
    for _ in range(30):
        recorder.add_packets(reader.buffer, packets, len(packets))
        packets["ts"] += SECOND
    hang = Finding("broker_hung", ERROR, "hang", "broker 1 hung", begin=first + SECOND)
    recorder.add_event(hang)
    recorder.close(Engine())
    reader.close()
    begins = next(line for line in told if "begins" in line)
    assert re.search(r"begins: broker 1 hung; the packets in memory begin [\d.]+ k?s later \(--ring-size\)", begins), (
        begins
    )


@pytest.mark.parametrize("name", ["live-4.4", "questions/zones"])
def test_an_ordinary_capture_has_no_outage(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(read_bytes(FOLDER.parent / f"{name}.pcap.zst"))
    source = FileSource(str(path))
    seen = Events(source)
    engine = Engine(**needs_of(None)._asdict())
    Monitor(source, engine, sinks=[seen], clock=source.clock, sections=counted_sections(None)).run(lambda: source.over)
    assert not [finding for _, finding in seen.found if finding.id.startswith(("broker_", "hosts_"))]


def test_a_storm_of_one_kind_is_a_few_lines() -> None:
    """A broker that hangs and works again for an hour, and another one that stops once."""
    lines: list[tuple[str, int]] = []
    notices = EventNotices(lambda text, times, **_: lines.append((text, times)), utc=True)
    hung, returned = (Rule(name, name).found for name in ("broker_hung", "broker_returned"))
    one, other = Party("broker", "10.0.0.1:9092"), Party("broker", "10.0.0.2:9092")
    told, counts, engine = {"hung": 0, "returned": 0}, ReportCounts(), Engine()
    for second in range(3_600):
        if second % 4 == 1:
            notices.add_event(hung("it hangs", one, begin=second * SECOND))
            told["hung"] += 1
        if second % 4 == 3:
            notices.add_event(returned("it works again", one, begin=second * SECOND))
            told["returned"] += 1
        if second == 30:
            notices.add_event(hung("another one hangs", other, begin=second * SECOND))
        notices.end_second((second + 1) * SECOND, counts, engine)
    notices.close(engine)
    texts = [text for text, _ in lines]
    assert [text.partition(" ")[2] for text in texts[:3]] == ["it hangs", "it works again", "another one hangs"]
    assert texts[3].endswith("it hangs (14 times since the last line)")
    assert len(texts) < 20
    for name, count in told.items():
        text = {"hung": "it hangs", "returned": "it works again"}[name]
        assert sum(times for line, times in lines if line.partition(" ")[2].startswith(text)) == count
    # A single one again, long after, is told at once.
    notices.end_second(20_000 * SECOND, counts, engine)
    notices.end_second(20_001 * SECOND, counts, engine)
    notices.add_event(hung("it hangs once more", one, begin=20_000 * SECOND))
    assert lines[-1][0].endswith("it hangs once more")
