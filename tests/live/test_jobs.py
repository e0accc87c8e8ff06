"""`kafkatap live --jobs`: several engines say what one does."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.key_log_threads import share_key_log
from kafkatap.live.export.metrics import Metrics
from kafkatap.live.governor import Governor, Priority
from kafkatap.live.joined_engine import JoinedEngine
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor
from kafkatap.live.sink import Sink
from kafkatap.reports.build import build_report
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from tests.cli.running import kafkatap
from tests.support.captures import read_capture
from tests.support.tcp import encode
from tests.ways.reports import made
from tests.wire.kafkatalk import small_talk

from . import network
from .metered import by_name
from .running import Live, Tcpdump, wait_for
from .shared_source import SharedFile, joined
from .support import FileSource
from .test_live_equals_report import Lines, said

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
WANTED = counted_sections(None)
needs_network = pytest.mark.skipif(
    bool(network.missing("tcpdump", admin=True)), reason=network.missing("tcpdump", admin=True)
)
SO_TIMESTAMPNS = 35


def monitor_of(path: Path, engines: int, *sinks: Sink, limits: MemoryLimits | None = None) -> Monitor:
    """A monitor that has seen a capture, to the end of its last second."""
    options = needs_of(None)._asdict() | {"all_results": True}
    source = FileSource(str(path)) if engines == 1 else SharedFile(str(path), engines)
    engine = Engine(**options) if engines == 1 else joined(engines, **options)
    monitor = Monitor(
        source, engine, sinks=sinks, clock=source.clock, sections=WANTED, governor=Governor(watch=None), limits=limits
    )  # fmt: skip
    over_at = 0
    while not source.over or source.now // 10**9 < over_at + 2:
        over_at = over_at if source.over else source.now // 10**9
        source.wait(0.1)
        monitor.step()
    source.close()
    return monitor


@pytest.mark.parametrize("name", ["hang", "storm", "firewall", "kill", "two-brokers/still-hung"])
def test_events_are_told_once_and_in_the_same_second(name: str) -> None:
    path = SAMPLES / f"events/{name}.pcap.zst"
    told = []
    for engines in (1, 2, 3):
        lines = Lines()
        monitor_of(path, engines, lines).finish()
        told.append(sorted(str(said(*event)) for event in lines.events))
    assert told[0]
    assert told[1:] == [told[0], told[0]]


@pytest.mark.parametrize("name", ["live-4.4", "events/quota", "apache-4.3"])
def test_metrics_are_those_of_one_engine(name: str) -> None:
    found = []
    for engines in (1, 2):
        metrics = Metrics()
        monitor = monitor_of(SAMPLES / f"{name}.pcap.zst", engines, metrics)
        monitor.finish()
        families = by_name(metrics, monitor)
        found.append({
            metric: sorted((point.labels, point.value) for point in family.points)
            for metric, family in families.items() if not any(word in metric for word in ("cpu", "memory", "started"))
        })  # fmt: skip
    assert found[0] == found[1]


def test_names_that_nothing_uses_are_forgotten_in_all_engines() -> None:
    reports, names = [], []
    for limits in (None, MemoryLimits(strings=20, addresses=4, topic_names=4)):
        monitor = monitor_of(SAMPLES / "apache-4.3.pcap.zst", 2, limits=limits)
        names.append(len(monitor.engine.strings))
        monitor.finish()
        reports.append(made(build_report(monitor.windows.start, monitor.context()))["reports"])
    assert names[1] < names[0]
    for name in ("clients", "errors", "latency"):
        assert reports[0][name] == reports[1][name]


class _Failing:
    """The packets of an engine that fails."""

    def parts(self, assembly: object) -> Iterator[Any]:
        raise MemoryError("no memory")
        yield


def test_an_engine_that_fails_ends_the_run() -> None:
    engine = joined(2)
    assert isinstance(engine, JoinedEngine)
    with pytest.raises(MemoryError, match="no memory"):
        list(engine.rounds([_Failing(), _Failing()]))


def test_exchanges_of_all_engines_have_numbers_of_their_own() -> None:
    numbers: list[int] = []

    class Numbers(Sink):
        def add_batch(self, batch: Any, engine: Engine) -> None:
            numbers.extend(batch.exchanges["exchange"].tolist())
            assert set(batch.results["exchange"].tolist()) <= set(batch.exchanges["exchange"].tolist())

    monitor_of(SAMPLES / "apache-4.3.pcap.zst", 3, Numbers()).finish()
    assert len(set(numbers)) == len(numbers) > 500


def test_counts_begin_anew_in_all_engines() -> None:
    monitor = monitor_of(SAMPLES / "live-4.4.pcap.zst", 2)
    monitor.reset()
    monitor.step()
    monitor.finish()
    context = monitor.context()
    assert (context.packets, context.first) == (0, None)
    assert all(sum(parts.values()) == 2 * parts["total"] for parts in context.ledger.values())


def test_threads_take_turns_with_a_key_log(tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    path.write_text(f"CLIENT_RANDOM {bytes(32).hex()} {bytes(48).hex()}\n")
    key_log = KeyLog([str(path)], is_growing=True)
    share_key_log(key_log)
    key_log.begin_run()
    failed: list[BaseException] = []

    def use(first: int) -> None:
        try:
            for number in range(first, first + 300):
                key_log.issue(b"session %d" % number, b"%032d" % number)
                key_log.resume(b"x%031d" % number, [b"session %d" % (600 - number)])
                key_log.poll()
                key_log.issued_sessions()
                list(key_log.traffic_secrets())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(first,)) for first in (0, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert key_log.secrets(bytes(32)) is not None
    assert key_log.resume(b"y" * 32, [b"session 7"]), "another engine's connection got it"


def test_the_threads_of_all_engines_get_the_niceness() -> None:
    engine = joined(3)
    assert isinstance(engine, JoinedEngine)
    threads = engine.native_threads()
    assert len(set(threads)) == 3
    assert Priority(others=engine.native_threads)._others() == threads


def without_places(found: Any) -> Any:
    """A report without numbers of packets, which each engine counts for itself, and without what runs differ in."""
    if isinstance(found, dict):
        return {
            name: without_places(value) for name, value in found.items()
            if not ("packet" in name and (name != "packets" or isinstance(value, list)))
        }  # fmt: skip
    return [without_places(each) for each in found] if isinstance(found, list) else found


def _told(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("time", "event", "what", "party"))


@needs_network
@pytest.mark.parametrize("name", ["live-4.4", "apache-4.3", "events/hang", "questions/rebalances", "tls/libraries"])
def test_the_report_is_that_of_one_engine_and_of_a_file(name: str, tmp_path: Path) -> None:
    packets = sorted(read_capture(SAMPLES / f"{name}.pcap.zst").packets, key=lambda packet: packet.time_ns)
    frames = [packet.data for packet in packets]
    with ExitStack() as stack, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as clock:
        clock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # packets have one time, whoever reads them
        veth = stack.enter_context(network.veth_pair(65_535))
        options = ("-i", veth.far, "--json", "--plain", "--max-cpu", "0", "--sections", "all")
        lives = [stack.enter_context(Live(*options, "--jobs", str(jobs))) for jobs in (1, 2, 3)]
        dump = stack.enter_context(Tcpdump(veth.far, tmp_path / "dump.pcap", "tcp"))
        for each in (*lives, dump):
            each.wait_ready()
        with network.Wire(veth.near) as wire:
            for first in range(0, len(frames), 50):
                wire.send(frames[first : first + 50])
                time.sleep(0.01)
        time.sleep(0.5)
        dump.end()
        dumped, lost = dump.counts()
        done = [live.end() for live in lives]
    assert [each.code for each in done] == [0, 0, 0]
    one, *others = (json.loads(each.out) for each in done)
    assert one["capture"]["drops"] == lost == 0
    assert one["capture"]["packets"] == len(frames) == dumped
    wanted = without_places(one)
    for other in others:
        assert without_places(other) == wanted
    read = without_places(json.loads(kafkatap("report", "--json", "--sections", "all", dump.file).out)["reports"])
    for section in ("errors", "first_errors", "groups", "topics", "apis", "twins"):
        assert (section, wanted["reports"].get(section)) == (section, read.get(section))
    assert [_told(row) for row in wanted["reports"]["events"]] == [_told(row) for row in read["events"]]


@needs_network
def test_packets_are_recorded_in_order(tmp_path: Path) -> None:
    talks = [small_talk(6, client=(f"10.0.0.{n}", 40_000 + n)) for n in range(1, 9)]
    frames = [packet.data for talk in talks for packet in encode(talk.segments)]
    with network.veth_pair(9_000) as veth, Live(
        "-i", veth.far, "--plain", "--jobs", "2", "--json", "--write-pcap", tmp_path / "x.pcap"
    ) as live:  # fmt: skip
        live.wait_ready()
        with network.Wire(veth.near) as wire:
            wire.send(frames)
        time.sleep(0.5)
        done = live.end()
    assert done.code == 0, done.err
    assert [packet.data for packet in read_capture(tmp_path / "x.pcap").packets] == frames
    assert json.loads(done.out)["capture"]["packets"] == len(frames)


@needs_network
def test_what_happens_to_an_interface_is_said_once() -> None:
    with network.veth_pair() as veth, Live("-i", veth.far, "--plain", "--jobs", "2", "--no-report") as live:
        live.wait_ready()
        network.ip("link", "set", veth.far, "down")
        wait_for(lambda: "network is down" in live.err(), 10, live.err)
        network.ip("link", "set", veth.far, "up")
        wait_for(lambda: "is up again" in live.err(), 10, live.err)
        done = live.end()
    lines = [line for line in done.err.splitlines() if veth.far in line]
    assert lines == [
        f"kafkatap: {veth.far}: network is down; packets are captured again once it is up; with --jobs not if it is "
        "made anew",
        f"kafkatap: {veth.far} is up again",
    ]


def test_a_filter_cannot_name_packets() -> None:
    with Live("--jobs", "2", "--plain", "--filter", "packet == 7") as live:
        done = live.finish()
    assert (done.code, done.err) == (2, "kafkatap: with --jobs packets have no numbers that a filter could name\n")
