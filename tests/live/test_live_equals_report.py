"""Live says at each second what a report on the packets so far says, over recordings cut at every second.

Each recording is read as it is, and as the host of each of its brokers sees it.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.event_signs import Signs
from kafkatap.live.event_watch import follows_only
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.sink import Sink
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.findings import Finding
from kafkatap.reports.kinds import AT_END
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from kafkatap.reports.sections.event_answers import ANSWERS
from kafkatap.reports.sections.events import findings
from tests.support.captures import Packet, pcap_bytes, read_capture
from tests.support.copies import places
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, encode, merge
from tests.wire.kafkatalk import METADATA, MS, PRODUCE, KafkaTalk

from .support import SECOND, FileSource
from .watched import TOPIC, ticking

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
WANTED = counted_sections(None)
#: Of the recordings beside `events`, those whose cuts every run has: outages, errors, rebalances and none of these.
SHORT = ("advice/black-hole", "advice/expelled-session", "questions/in-flight", "questions/rebalances", "live-4.4")


def recordings() -> list[object]:
    """All of them by name. Every run has the short ones."""
    found = [
        path for folder in ("events", "advice", "questions") for path in sorted(SAMPLES.glob(f"{folder}/**/*.zst"))
    ]
    names = [str(path.relative_to(SAMPLES)).removesuffix(".pcap.zst") for path in [*found, *SAMPLES.glob("*.pcap.zst")]]
    return [
        name if name.startswith("events/") or name in SHORT else pytest.param(name, marks=pytest.mark.long)
        for name in names
    ]


@cache
def packets_of(name: str) -> tuple[int, list[Packet]]:
    """The link type, and the packets in order of time."""
    capture = read_capture(SAMPLES / f"{name}.pcap.zst")
    return capture.link_types[0], sorted(capture.packets, key=lambda packet: packet.time_ns)


def of_host(packets: list[Packet], link: int, address: str) -> list[Packet]:
    """The packets that the host of an address sends or gets."""
    wanted, found = ip_address(address).packed, []
    for packet in packets:
        at = places(packet.data, link)
        if at is not None:
            size = len(wanted)
            source = at.ip + (12 if size == 4 else 8)
            if wanted in (packet.data[source : source + size], packet.data[source + size : source + 2 * size]):
                found.append(packet)
    return found


class Lines(Sink):
    """The seconds of a monitor, and the events with the second of each."""

    def __init__(self) -> None:
        self.seconds: list[int] = []
        self.events: list[tuple[int, Finding]] = []

    def add_event(self, finding: Finding) -> None:
        self.events.append((len(self.seconds), finding))

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        self.seconds.append(now)


def live(path: Path) -> Lines:
    """A monitor over a capture, up to the end of its last second."""
    source, lines = FileSource(str(path)), Lines()
    engine = Engine(**needs_of(None)._asdict())
    monitor = Monitor(
        source, engine, sinks=[lines], clock=source.clock, sections=WANTED, governor=Governor(watch=None)
    )  # fmt: skip
    ended = len(lines.seconds)
    while not source.over or len(lines.seconds) == ended:
        if not source.over:
            ended = len(lines.seconds)
        source.wait(0.1)
        monitor.step()
    return lines


def said(second: int, finding: Finding) -> tuple[object, ...]:
    """What live and the report have to agree on: when they say what."""
    return second, *finding.key, finding.severity, finding.text


def compare(packets: list[Packet], link: int, folder: Path) -> int:
    """Compare live with a report on each cut; return the number of events."""
    path, cut = folder / "whole.pcap", folder / "cut.pcap"
    path.write_bytes(pcap_bytes(packets, link))
    lines, times = live(path), [packet.time_ns // 1000 * 1000 for packet in packets]
    wanted: dict[tuple[object, ...], tuple[object, ...]] = {}
    for second, now in enumerate(lines.seconds):
        count = bisect_right(times, now)
        cut.write_bytes(pcap_bytes(packets[:count], link))
        for finding in findings(section_input(cut, WANTED)) if count else ():
            if finding.id not in AT_END and not follows_only(finding, times[count - 1]):
                wanted.setdefault(finding.key, said(second, finding))
    assert sorted(map(str, (said(*event) for event in lines.events))) == sorted(map(str, wanted.values()))
    return len(wanted)


@pytest.mark.parametrize("name", recordings())
def test_live_says_what_a_report_on_the_packets_so_far_says(name: str, tmp_path: Path) -> None:
    link, packets = packets_of(name)
    compare(packets, link, tmp_path)
    given = section_input(tmp_path / "whole.pcap", WANTED)
    brokers = {given.context.address(int(number)) for number in given.keys(ANSWERS.name)["broker_ip"]}
    for address in sorted(filter(None, brokers)) if len(brokers) > 1 else ():
        compare(of_host(packets, link, address), link, tmp_path)


@pytest.mark.parametrize(("name", "host"), [("hang", "10.77.0.3"), ("two-brokers/still-hung", "10.99.0.1")])
def test_the_hang_of_the_only_broker_is_announced(name: str, host: str, tmp_path: Path) -> None:
    link, packets = packets_of(f"events/{name}")
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(of_host(packets, link, host), link))
    assert [finding.id for _, finding in live(path).events][:1] == ["broker_hung"]


def test_bursts_of_several_errors_at_once_are_several_events(tmp_path: Path) -> None:
    talk = KafkaTalk(client_id="app", time_ns=START_NS + 7 * SECOND)
    talk.tcp.open()
    for number in range(12):
        asked = talk.request(PRODUCE, 3, 2 * number, Acks=1, TimeoutMs=1000, TopicData=TOPIC)
        talk.respond(asked, Responses=[{"Name": "orders", "PartitionResponses": [{"Index": 0, "ErrorCode": 6}]}])
        asked = talk.request(METADATA, 1, 2 * number + 1, Topics=[{"Name": "orders"}])
        talk.respond(asked, Topics=[{"ErrorCode": 5, "Name": "orders", "IsInternal": False, "Partitions": []}],
                     Brokers=[], ControllerId=1)  # fmt: skip
        talk.tcp.wait(100 * MS)
    assert compare(encode(merge(talk.segments, ticking(12))), 1, tmp_path) == 2


def test_rows_of_connections_are_made_for_those_that_had_packets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = [KafkaTalk(client=(f"10.0.1.{n}", 40_000), client_id="idle") for n in range(1, 200)]
    for talk in talks:
        talk.tcp.open()
        talk.exchange(18, 0, 0)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(talk.segments for talk in talks), ticking(8)))))
    source, made = FileSource(str(path)), list[int]()

    class Counting(Engine):
        def open_rows(self, connections):  # type: ignore[no-untyped-def]
            made.append(len(connections))
            return super().open_rows(connections)

    monkeypatch.setattr(Signs, "are_there", lambda *_: True)
    monitor = Monitor(
        source, Counting(**needs_of(None)._asdict()), clock=source.clock, sections=WANTED, governor=Governor(watch=None)
    )  # fmt: skip
    while not source.over:
        source.wait(0.1)
        monitor.step()
    assert sum(made) >= 200
    assert set(made[2:]) == {1}
