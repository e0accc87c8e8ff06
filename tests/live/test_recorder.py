"""The flight recorder: what it writes is what came, byte for byte, and an incident's file holds what was around it."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkatap
from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.commands.command_parser import build_parser
from kafkatap.engine.engine import Engine, engine_for
from kafkatap.engine.selection import EVERYTHING, Selection, incident_selection
from kafkatap.live import background
from kafkatap.live.export.metrics import Metrics
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.recording import recording_files
from kafkatap.live.recording.capture_file import CaptureFile
from kafkatap.live.recording.packet_ring import SEGMENT, PacketRing
from kafkatap.live.recording.recorder import LEAST_LIMIT, Recorder
from kafkatap.reassembly import pcap_writer as writer
from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reports import units
from tests.support.captures import (
    ETHERNET,
    RAW,
    SLL2,
    Capture,
    Interface,
    Packet,
    pcap_bytes,
    pcapng_bytes,
    read_capture,
)
from tests.support.tcp import START_NS, Segment, encode, merge
from tests.wire.kafkatalk import FIND_COORDINATOR, METADATA, MS, KafkaTalk

from .support import SECOND, FileSource
from .watched import ticking

FORMS = ["x.pcap", "x.pcapng"]


def condition(text: str) -> Selection:
    return Selection.of(filter=text)


def record(path: Path, recorder: Recorder, step: int = SECOND // 10, engine: Engine | None = None) -> Engine:
    """A capture through a monitor with this recorder, as if it came now."""
    source = FileSource(str(path), step)
    engine = engine or engine_for(recorder.selection or EVERYTHING)
    monitor = Monitor(source, engine, sinks=[recorder], clock=source.clock, governor=Governor(None))
    monitor.run(lambda: over(source, recorder))
    return engine


def over(source: FileSource, recorder: Recorder) -> bool:
    """Whether a capture is over. It comes faster than in reality: so it waits for the disk here."""
    recorder.settle()
    return source.over


def same(one: Capture, other: list[Packet]) -> bool:
    """Whether a capture holds these packets; interfaces do not count."""
    return [replace(p, interface=0) for p in one.packets] == [replace(p, interface=0) for p in other]


def many(samples: Path, path: Path, times: int) -> list[Packet]:
    """A sample several times over, each a minute and a half after the one before, as a new capture."""
    once = read_capture(samples / "apache-4.3.pcap.zst").packets
    packets = [replace(p, time_ns=p.time_ns + n * 90 * SECOND + 7) for n in range(times) for p in once]
    path.write_bytes(pcap_bytes(packets, nanoseconds=True))
    return packets


def place(packets: list[Packet], part: list[Packet]) -> int:
    """Where `part`, which has to be a run of `packets`, begins."""
    first = next(n for n, p in enumerate(packets) if p == replace(part[0], interface=0))
    assert packets[first : first + len(part)] == [replace(p, interface=0) for p in part]
    return first


# ---------------------------------------------------------------- everything


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("sample", ["apache-4.3.pcap.zst", "apache-4.3-two-interfaces.pcapng"])
def test_what_is_written_is_what_came(samples: Path, tmp_path: Path, name: str, sample: str) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path / name, notify=told.append)
    record(samples / sample, recorder)
    wanted = read_capture(samples / sample)
    assert same(read_capture(tmp_path / name), wanted.packets)
    assert told == []
    assert recorder.bytes == (tmp_path / name).stat().st_size
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    ours, theirs = kafkatap.analyze(tmp_path / name), kafkatap.analyze(samples / sample)
    assert ours.exchanges.equals(theirs.exchanges)
    assert ours.results.equals(theirs.results)
    assert ours.files["damage"].to_pylist() == [None]


@pytest.mark.parametrize("name", FORMS)
def test_a_recording_without_packets_is_a_capture(tmp_path: Path, name: str) -> None:
    Recorder(tmp_path / name, links={RAW: "tun0"}).close(Engine())
    assert read_capture(tmp_path / name) == Capture([RAW])
    Recorder(tmp_path / name).close(Engine())
    assert read_capture(tmp_path / name).packets == []


def test_packets_are_on_disk_after_a_second(samples: Path, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "x.pcap")
    reader = CaptureReader(str(samples / "apache-4.3.pcap.zst"))
    assert reader.fill()
    recorder.add_packets(reader.buffer, reader.packets, 100)
    recorder.end_second(0, None, Engine())  # type: ignore[arg-type]
    recorder.settle()
    assert len(read_capture(tmp_path / "x.pcap").packets) == 100
    recorder.close(Engine())
    reader.close()


# ---------------------------------------------------------------- link types


def mixed(path: Path) -> list[Packet]:
    packets = [Packet(SECOND * n, bytes([n]) * (60 + n), 100 + n, n % 3 // 2) for n in range(40)]
    path.write_bytes(pcapng_bytes(packets, [Interface(ETHERNET, 9), Interface(RAW, 9)]))
    return packets


def test_pcapng_has_an_interface_for_each_link_type(tmp_path: Path) -> None:
    packets = mixed(tmp_path / "mixed.pcapng")
    recorder = Recorder(tmp_path / "x.pcapng", links={SLL2: "any", RAW: "tun0"})
    record(tmp_path / "mixed.pcapng", recorder)
    found = read_capture(tmp_path / "x.pcapng")
    assert found.link_types == [SLL2, RAW, ETHERNET]
    assert [replace(p, interface=2 - p.interface) for p in packets] == found.packets


def test_a_pcap_takes_one_link_type_and_says_so(tmp_path: Path) -> None:
    packets = mixed(tmp_path / "mixed.pcapng")
    told: list[str] = []
    record(tmp_path / "mixed.pcapng", Recorder(tmp_path / "x.pcap", notify=told.append))
    found = read_capture(tmp_path / "x.pcap")
    assert found.link_types == [ETHERNET]
    assert same(found, [p for p in packets if p.interface == 0])
    assert len(told) == 2
    assert "name it x.pcapng" in told[0]
    assert told[1].startswith(f"{sum(p.interface for p in packets)} packets")
    with pytest.raises(ValueError, match=r"one link type, not those of eth0 \(Ethernet\), tun0 \(raw IP\)"):
        Recorder(tmp_path / "x.pcap", links={ETHERNET: "eth0", RAW: "tun0"})


# ---------------------------------------------------------------- incidents


def test_error_or_latency_finds_what_the_table_of_exchanges_has(samples: Path) -> None:
    path = samples / "apache-4.3.pcap.zst"
    on = condition("error or latency > 1s")
    engine, reader, found = engine_for(on), CaptureReader(str(path)), []
    while reader.fill():
        batches = [*engine.take(reader.buffer, reader.packets, reader.position, reader.count), *engine.finish()]
        found += [n for b in on.apply(batches, engine) for n in b.exchanges["key"].tolist()]
        reader.position = reader.count
    reader.close()
    rows = kafkatap.analyze(path).exchanges.select(["exchange", "errors", "total_ns"]).to_pylist()
    wanted = [r["exchange"] for r in rows if r["errors"] or (r["total_ns"] or 0) > SECOND]
    assert sorted(found) == sorted(wanted)
    assert 0 < len(wanted) < len(rows)


@pytest.mark.parametrize("name", FORMS)
def test_an_incident_is_recorded_with_what_was_before_and_after(samples: Path, tmp_path: Path, name: str) -> None:
    packets = many(samples, tmp_path / "in.pcap", 4)
    told: list[str] = []
    exchanges = kafkatap.analyze(tmp_path / "in.pcap").exchanges.sort_by("request_packet_first")
    # The packets are there four times, so only the connection distinguishes their exchanges.
    only = " and ".join(f"{name} == {exchanges[name][3999].as_py()}" for name in ("exchange", "connection"))
    recorder = Recorder(tmp_path / name, on=condition(only), size=2 * SEGMENT, notify=told.append)
    record(tmp_path / "in.pcap", recorder)
    (path,) = recorder.files
    found = read_capture(path)
    first = place(packets, found.packets)
    assert first > 0, "the ring holds less than the capture"
    (row,) = kafkatap.analyze(tmp_path / "in.pcap", filter=only).exchanges.to_pylist()
    assert first < row["request_packet_first"] - 1
    end = row["response_last"].value
    assert found.packets[-1].time_ns >= end + 5 * SECOND
    assert found.packets[-1].time_ns < end + 20 * SECOND
    held = sum(16 + len(p.data) for p in packets[first : row["response_packet_last"]])
    assert SEGMENT < held < 2 * SEGMENT + 20_000
    begins, ends = told
    assert begins.startswith(f"{path.name} begins: exchange {row['exchange']} {row['api_name']} v{row['api_version']} ")
    assert row["response_last"].strftime("%Y%m%dT%H%M%S") in path.name
    assert ends.startswith(f"{path.name} ends: ")
    assert ends.endswith("1 exchange matched")


def test_incidents_in_a_row_repeat_no_packet(samples: Path, tmp_path: Path) -> None:
    packets = many(samples, tmp_path / "in.pcap", 3)
    recorder = Recorder(tmp_path / "x.pcap", on=condition("error"), after=SECOND // 2)
    record(tmp_path / "in.pcap", recorder)
    assert len(recorder.files) > 6
    assert recorder.files == sorted(recorder.files) == sorted(tmp_path.glob("x-*.pcap"))
    before = 0
    for path in recorder.files:
        found = read_capture(path).packets
        first = place(packets, found)
        assert first >= before
        before = first + len(found)
    assert before <= len(packets)
    assert sum(path.stat().st_size for path in recorder.files) == recorder.bytes
    # Each exchange with an error is in a file whole.
    failed = [r for r in kafkatap.analyze(tmp_path / "in.pcap").exchanges.to_pylist() if r["errors"]]
    times = {p.time_ns for path in recorder.files for p in read_capture(path).packets}
    assert all(r["request_first"].value in times and r["response_last"].value in times for r in failed)


def test_a_condition_may_look_into_messages_beside_another_one(samples: Path, tmp_path: Path) -> None:
    shown = condition("Fetch.request.MaxWaitMs > 0")
    on = condition("CreateTopics.request.Topics.NumPartitions > 1").beside(shown)
    inspectors = (*shown.engine_options.inspectors, *on.engine_options.inspectors)
    assert len(inspectors) == 2
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcap", on=on, notify=told.append)
    record(samples / "apache-4.3.pcap.zst", recorder, engine=Engine(inspectors=inspectors))
    alone = Recorder(tmp_path / "y.pcap", on=condition("CreateTopics.request.Topics.NumPartitions > 1"))
    record(samples / "apache-4.3.pcap.zst", alone)
    assert [p.name[1:] for p in recorder.files] == [p.name[1:] for p in alone.files]
    assert recorder.incidents == alone.incidents > 0
    assert " CreateTopics v" in told[0]


def test_what_tells_an_incident_needs_a_file_and_sense() -> None:
    parse = build_parser().parse_args
    with pytest.raises(ValueError, match="needs --write-pcap"):
        incident_selection(parse(["live", "--on", "error"]), EVERYTHING)
    with pytest.raises(ValueError, match="did you mean latency"):
        incident_selection(parse(["live", "--write-pcap", "x.pcap", "--on", "latncy > 1s"]), EVERYTHING)
    assert incident_selection(parse(["live", "--write-pcap", "x.pcap"]), EVERYTHING) is None
    assert incident_selection(parse(["live", "--write-pcap", "x.pcap", "--on", "error"]), EVERYTHING) is not None


def test_an_incident_during_silence_ends_by_the_clock(samples: Path, tmp_path: Path) -> None:
    on = condition("request_packet_first == 1")
    told: list[str] = []
    recorder, engine = Recorder(tmp_path / "x.pcap", on=on, notify=told.append), engine_for(on)
    reader = CaptureReader(str(samples / "apache-4.3.pcap.zst"))
    assert reader.fill()
    recorder.add_packets(reader.buffer, reader.packets, 200)
    for batch in engine.take(reader.buffer, reader.packets, 0, 200):
        recorder.add_batch(batch, engine)
    for second in range(100, 105):
        recorder.end_second(second * SECOND, None, engine)  # type: ignore[arg-type]
        recorder.settle()
        assert not any("ends" in text for text in told)
    recorder.end_second(105 * SECOND, None, engine)  # type: ignore[arg-type]
    recorder.settle()
    assert [text.split(" ")[1] for text in told] == ["begins:", "ends:"]
    assert len(read_capture(recorder.files[0]).packets) == 200
    reader.close()


# ---------------------------------------------------------------- other tools


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="needs Wireshark's capinfos and tshark")
def test_wireshark_reads_what_is_written(samples: Path, tmp_path: Path) -> None:
    counted = iter(range(10_000))
    recorder = Recorder(
        tmp_path / "x.pcapng", on=condition("latency > 1s"), links={ETHERNET: "eth0, eth1"},
        counters=lambda: (1000, next(counted) + 17),
    )  # fmt: skip
    record(samples / "apache-2.8.pcap.zst", recorder)
    (path,) = recorder.files
    packets = read_capture(path).packets
    said = ran("capinfos", str(path))
    assert f"Number of packets:   {len(packets)}\n" in said
    assert "File timestamp precision:  nanoseconds (9)" in said
    assert "Name = eth0, eth1" in said
    assert "Strict time order:   True" in said
    assert "Capture comment:     exchange " in said
    assert "Number of stat entries = 1" in said
    assert read_capture(path).drops >= 17
    shown = ran("tshark", "-r", str(path), "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len").splitlines()
    wanted = [f"{p.time_ns // SECOND}.{p.time_ns % SECOND:09d}\t{p.wire_length}" for p in packets]
    assert shown == wanted


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="needs tcpdump")
def test_tcpdump_reads_what_is_written(samples: Path, tmp_path: Path) -> None:
    record(samples / "apache-2.8.pcap.zst", Recorder(tmp_path / "x.pcap"))
    lines = ran("tcpdump", "-n", "-tt", "--nano", "-r", str(tmp_path / "x.pcap")).splitlines()
    times = [f"{p.time_ns // SECOND}.{p.time_ns % SECOND:09d}" for p in read_capture(tmp_path / "x.pcap").packets]
    assert [line.partition(" ")[0] for line in lines] == times


def ran(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


# ---------------------------------------------------------------- bounds


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 2**62), st.integers(-5, 400), st.integers(-5, 300_000), st.integers(-5, 2**31 - 1),
            st.sampled_from([ETHERNET, RAW, 5_000]),
        ),
        max_size=30,
    ),
    st.sampled_from([writer.CLASSIC, writer.NEXT_GENERATION]),
)  # fmt: skip
def test_no_packet_is_read_beyond_its_buffer(rows: list[tuple[int, ...]], form: int) -> None:
    """Whatever rows say, at most the buffer's bytes are written, and all records are whole."""
    buffer = np.arange(300, dtype=np.uint8)
    packets = np.zeros(len(rows), PACKET)
    for packet, (ts, at, captured, original, link) in zip(packets, rows, strict=True):
        packet["ts"], packet["at"], packet["captured"], packet["original"], packet["link_type"] = (
            ts % 2**61, at, captured, original, link,
        )  # fmt: skip
    refused: list[int] = []
    ring = PacketRing(form, 2 * SEGMENT, {}, lambda: (0, 0), refused.append)
    assert ring.pack(buffer, packets, 0, len(rows)) == len(rows)
    head = blocks.section_header("test") if form == writer.NEXT_GENERATION else b""
    data = head + ring.descriptions(0) + ring.read(0, ring.head).tobytes()
    found = read_capture(data)
    wanted = []
    for ts, at, captured, original, link in rows:
        if link not in ring.links:
            continue
        start = at if 0 <= at <= len(buffer) else 0
        length = max(captured, 0) if start == at else 0
        bytes_ = buffer[start : start + length].tobytes()
        moment = max(ts % 2**61, 0)
        moment = moment if form == writer.NEXT_GENERATION else moment % (2**32 * SECOND)
        wanted.append(Packet(moment, bytes_, max(original, 0), ring.links.index(link)))
    assert found.packets == wanted
    assert ring.left_out == len(rows) - len(wanted)
    assert len(refused) == len(set(refused))


@pytest.mark.parametrize("form", [writer.CLASSIC, writer.NEXT_GENERATION])
def test_the_ring_holds_the_last_packets_and_no_more_than_its_size(form: int) -> None:
    buffer = np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8)
    packets = np.zeros(200, PACKET)
    ring = PacketRing(form, 3 * SEGMENT + 5, {ETHERNET: "eth0"}, lambda: (0, 0), lambda link: None)
    sent: list[Packet] = []
    for turn in range(60):
        packets["ts"] = turn * SECOND + np.arange(len(packets))
        packets["captured"] = packets["original"] = np.random.default_rng(turn).integers(0, 1 << 11, len(packets))
        packets["at"] = np.arange(len(packets)) * 300
        packets["link_type"] = ETHERNET
        done = 0
        while (done := ring.pack(buffer, packets, done, len(packets))) < len(packets):
            ring.turn()
        sent += [
            Packet(int(p["ts"]), buffer[p["at"] : p["at"] + p["captured"]].tobytes(), int(p["original"]))
            for p in packets
        ]
        assert ring.head - ring.oldest <= 3 * SEGMENT
        kept, at = b"", ring.oldest
        while at < ring.head:
            kept += ring.read(at, ring.head).tobytes()
            at = ring.oldest + len(kept)
        head = blocks.section_header("test") if form == writer.NEXT_GENERATION else b""
        found = read_capture(head + ring.descriptions(0) + kept).packets
        assert found == sent[len(sent) - len(found) :]
    assert ring.head > 8 * SEGMENT
    assert ring.head - ring.oldest > 2 * SEGMENT - 5_000


def test_a_ring_of_no_size_is_refused(tmp_path: Path) -> None:
    for size in (0, -1, 1, 2 * SEGMENT - 1):
        with pytest.raises(ValueError, match="at least 2 MiB"):
            Recorder(tmp_path / "x.pcap", on=condition("error"), size=size)
    assert list(tmp_path.iterdir()) == []


def test_names_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not compressed"):
        Recorder(tmp_path / "x.pcap.gz")
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "none" / "x.pcap")
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "none" / "x.pcap", on=condition("error"))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("limit", [1, 100, 100_000, 3_000_000])
def test_no_more_is_written_than_the_limit(samples: Path, tmp_path: Path, name: str, limit: int) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path / name, on=condition("error"), after=SECOND // 10, limit=limit, notify=told.append)
    record(samples / "apache-4.3.pcap.zst", recorder)
    files = list(tmp_path.iterdir())
    headers = 400 * len(files)
    assert sum(f.stat().st_size for f in files) == recorder.bytes <= limit + headers
    for file in files:
        read_capture(file)
        assert kafkatap.analyze(file).files["damage"].to_pylist() == [None]
    assert any("which is the limit" in text for text in told) == (limit < 1_000_000)


@pytest.mark.parametrize("name", FORMS)
def test_the_newest_packets_are_kept(samples: Path, tmp_path: Path, name: str) -> None:
    """In about eight files, over two runs."""
    packets = many(samples, tmp_path / "in.pcap", 6)
    told: list[str] = []
    folder = tmp_path / "there"
    folder.mkdir()
    for _ in range(2):
        recorder = Recorder(folder / name, limit=LEAST_LIMIT, notify=told.append)
        record(tmp_path / "in.pcap", recorder)
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        assert files[-1].name == name
        assert all(re.fullmatch(rf"x-\d{{8}}T\d{{6}}\.\d{{3}}Z(-\d+)?{files[-1].suffix}", p.name) for p in files[:-1])
        assert sum(path.stat().st_size for path in files) == recorder.bytes <= LEAST_LIMIT
        assert recorder.bytes > LEAST_LIMIT * 3 // 4
        found = [replace(p, interface=0) for path in files for p in read_capture(path).packets]
        twice = packets * 2
        assert found == twice[len(packets) - len(found) : len(packets)] or found == twice[-len(found) :]
        assert told == [f"8.0 MiB are on disk in {folder}: the oldest files are removed"]
        told.clear()
    assert recorder.files == files[-len(recorder.files) :]


def test_files_of_earlier_runs_count_and_nothing_else(samples: Path, tmp_path: Path) -> None:
    """Also a link of such a name is no file of ours, nor is one in a folder below."""
    folder, far = tmp_path / "there", tmp_path / "far.pcap"
    (folder / "below").mkdir(parents=True)
    far.write_bytes(b"precious" * 100_000)
    old = "x-20261121T174501.123Z.pcap"
    others = [folder / "x.pcapng", folder / "y-20261121T174501.123Z.pcap", folder / "x-1.pcap", folder / "below" / old]
    for other in others:
        other.write_bytes(bytes(300_000))
    (folder / "x-20261121T174501.124Z.pcap").symlink_to(far)
    ours = [folder / old, folder / "x-20261121T174501.123Z-2.pcap", folder / "x-20261122T174501.123Z.pcap"]
    for age, path in zip((50, 40, 5), ours, strict=True):
        path.write_bytes(bytes(300_000))
        os.utime(path, (time.time() - age, time.time() - age))
    recorder = Recorder(folder / "x.pcap", on=condition("error"), limit=1_000_000, age=45 * SECOND)
    assert recorder.bytes == 900_000
    record(samples / "apache-2.8.pcap.zst", recorder)
    assert [path.exists() for path in ours] == [False, False, True]
    assert recorder.files
    assert recorder.bytes <= 1_000_000
    assert all(other.stat().st_size == 300_000 for other in others)
    assert far.stat().st_size == 800_000
    assert (folder / "x-20261121T174501.124Z.pcap").is_symlink()


def test_a_file_of_all_packets_ends_with_its_age(samples: Path, tmp_path: Path) -> None:
    """And is removed when its last packet is too old."""
    recorder = Recorder(tmp_path / "x.pcap", age=SECOND)
    source = FileSource(str(samples / "apache-4.3.pcap.zst"), SECOND)
    monitor = Monitor(source, Engine(), sinks=[recorder], clock=source.clock, governor=Governor(None))
    most = 0
    while not over(source, recorder) and most < 3:
        source.wait(0.1)
        monitor.step()
        time.sleep(0.05)
        most = max(most, len(list(tmp_path.glob("x-*.pcap"))))
    assert most == 3
    time.sleep(1.1)
    recorder.end_second(source.now, None, monitor.engine)  # type: ignore[arg-type]
    recorder.settle()
    assert not list(tmp_path.glob("x-*.pcap"))
    monitor.finish()
    source.close()


def test_a_file_without_the_right_to_another_name_is_not_overwritten(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: CaptureFile, path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(CaptureFile, "rename", refuse)
    recorder = Recorder(tmp_path / "x.pcap", limit=8 << 20, size=2 << 20, notify=(told := []).append)
    packets = many(samples, tmp_path / "long.pcap", 4)
    record(tmp_path / "long.pcap", recorder)
    kept = read_capture(tmp_path / "x.pcap").packets
    assert 100 < len(kept) < len(packets)
    assert same(read_capture(tmp_path / "x.pcap"), packets[: len(kept)])
    assert told == [
        f"{tmp_path / 'x.pcap'}: Permission denied: it cannot be renamed, so further packets are not recorded",
        f"{units.size(recorder.unwritten()['packet_bytes'])} of packets were not recorded: Permission denied",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name != "long.pcap"] == ["x.pcap"]


def test_no_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").write_bytes(b"precious")
    (tmp_path / "x.pcap").symlink_to(tmp_path / "far")
    with pytest.raises(OSError, match=r"this is a symbolic link to .*far; name"):
        Recorder(tmp_path / "x.pcap")
    assert (tmp_path / "far").read_bytes() == b"precious"


def test_a_pipe_has_all_packets(samples: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as cat:
        recorder = Recorder(tmp_path / "pipe")
        found: list[bytes] = []
        assert cat.stdout is not None
        reader = Thread(target=lambda: found.append(cat.stdout.read()))
        reader.start()
        record(samples / "apache-4.3.pcap.zst", recorder)
        reader.join()
    assert same(read_capture(found[0]), read_capture(samples / "apache-4.3.pcap.zst").packets)


def failing(seconds: int, other: int, every: int = 100) -> list[Segment]:
    """A client whose Metadata requests fail all the time, and another one that gets another error in one second."""
    talk, second = KafkaTalk(client_id="bad"), KafkaTalk(client=("10.0.0.7", 1), client_id="good")
    for each in (talk, second):
        each.tcp.open()
    for number in range(seconds * 1000 // every):
        asked = talk.request(METADATA, 4, number, Topics=[{"Name": "no"}])
        talk.respond(asked, Topics=[{"Name": "no" * 500, "ErrorCode": 29}])
        talk.tcp.wait(every * MS - 4 * talk.tcp.step_ns)
    second.tcp.wait(other * SECOND)
    second.respond(second.request(FIND_COORDINATOR, 1, 1, Key="x"), ErrorCode=15)
    return merge(talk.segments, second.segments)


def test_one_cause_does_not_fill_the_disk_nor_hide_another(tmp_path: Path) -> None:
    """An error ten times a second, for a minute and a half: a file a cool-down, and one of the error that is new."""
    (tmp_path / "in.pcap").write_bytes(pcap_bytes(encode(failing(90, 33)), nanoseconds=True))
    recorder = Recorder(
        tmp_path / "x.pcap", on=condition("error"), size=2 * SEGMENT, after=5 * SECOND, cool_down=30 * SECOND
    )  # fmt: skip
    record(tmp_path / "in.pcap", recorder)
    began = [read_capture(path).packets[-1].time_ns - START_NS for path in recorder.files]
    assert [round(at / SECOND) for at in began] == [5, 38, 65]
    codes = [
        {error["code"] for errors in kafkatap.analyze(path).exchanges["errors"].to_pylist() for error in errors}
        for path in recorder.files
    ]
    assert codes == [{29}, {29, 15}, {29}]


def test_the_newest_incidents_are_kept(tmp_path: Path) -> None:
    (tmp_path / "in.pcap").write_bytes(pcap_bytes(encode(failing(120, 33)), nanoseconds=True))
    told: list[str] = []
    recorder = Recorder(
        tmp_path / "x.pcap", on=condition("error"), size=2 * SEGMENT, after=2 * SECOND, cool_down=10 * SECOND,
        limit=400_000, notify=told.append,
    )  # fmt: skip
    record(tmp_path / "in.pcap", recorder)
    assert recorder.incidents == 13
    assert 1 < len(recorder.files) < recorder.incidents
    assert sorted(tmp_path.glob("x-*")) == recorder.files
    assert sum(path.stat().st_size for path in recorder.files) == recorder.bytes <= 400_000
    assert read_capture(recorder.files[-1]).packets[-1].time_ns > START_NS + 110 * SECOND
    assert sum("the oldest files are removed" in text for text in told) == 1
    assert not any("no more are written" in text for text in told)


def test_a_request_that_is_never_answered_is_an_incident_when_its_connection_ends(tmp_path: Path) -> None:
    """Once, although its final row comes later."""
    talk = KafkaTalk(client_id="app")
    talk.tcp.open()
    talk.request(METADATA, 4, 1, Topics=[])
    talk.tcp.reset(1)
    (tmp_path / "in.pcap").write_bytes(pcap_bytes(encode(merge(talk.segments, ticking(20))), nanoseconds=True))
    told: list[str] = []
    recorder = Recorder(
        tmp_path / "x.pcap", on=condition("outcome == unanswered"), size=2 * SEGMENT, after=SECOND, notify=told.append
    )
    record(tmp_path / "in.pcap", recorder)
    (path,) = recorder.files
    assert read_capture(path).packets[-1].time_ns < START_NS + 4 * SECOND
    key = kafkatap.analyze(tmp_path / "in.pcap", filter="api == Metadata").exchanges["exchange"][0].as_py()
    assert f"begins: exchange {key} Metadata" in told[0]
    assert told[1].endswith("1 exchange matched")


# ---------------------------------------------------------------- failing disks


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes beyond it fail, as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("on", [None, "latency > 3s or request_packet_first == 436"])
def test_a_full_disk_is_told_once_and_leaves_whole_records(samples: Path, tmp_path: Path, on: str | None) -> None:
    packets = many(samples, tmp_path / "in.pcap", 3)
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcap", on=condition(on) if on else None, notify=told.append)
    with no_file_larger_than(700_000):
        record(tmp_path / "in.pcap", recorder)
    assert sum("the capture continues" in text for text in told) == 1
    (left_out,) = [text for text in told if text.endswith(" of packets were not recorded: File too large")]
    files = [f for f in tmp_path.glob("x*") if f.stat().st_size]
    assert files
    for file in files:
        assert kafkatap.analyze(file).files["damage"].to_pylist() == [None]
        place(packets, read_capture(file).packets)
    if on is None:  # all that came is written, or counted
        size = sum(16 + len(p.data) for p in packets) - sum(file.stat().st_size - 24 for file in files)
        assert recorder.unwritten() == {"packet_bytes": size}
        assert left_out.startswith(f"{units.size(size)} of packets")


def test_what_a_full_disk_leaves_out_is_counted_at_once(samples: Path, tmp_path: Path) -> None:
    """In the metrics, while it is full: what the ring overwrites is lost."""
    many(samples, tmp_path / "in.pcap", 16)
    recorder, metrics = Recorder(tmp_path / "x.pcap", size=2 * SEGMENT), Metrics()
    other = Recorder(tmp_path / "y.pcap", size=2 * SEGMENT)
    source = FileSource(str(tmp_path / "in.pcap"))
    monitor = Monitor(source, Engine(), sinks=[recorder, other, metrics], clock=source.clock, governor=Governor(None))
    with no_file_larger_than(100), pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_files, "_RETRY", 0.0)
        while not over(source, recorder):
            source.wait(0.1)
            monitor.step()
    families = {family.metric.name: family for family in metrics.families(monitor.status)}
    (point,) = families["kafkatap_unwritten_packet_bytes_total"].points
    assert point.value == monitor.status.unwritten["packet_bytes"] > SEGMENT
    assert point.value == recorder.unwritten()["packet_bytes"] + other.unwritten()["packet_bytes"]
    assert other.unwritten()["packet_bytes"] > 0
    assert not families["kafkatap_unwritten_rows_total"].points
    monitor.finish()


def test_incidents_that_a_full_disk_leaves_out_do_not_begin(samples: Path, tmp_path: Path) -> None:
    many(samples, tmp_path / "in.pcap", 2)
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcap", on=condition("error"), after=SECOND // 2, notify=told.append)
    with no_file_larger_than(100):
        record(tmp_path / "in.pcap", recorder)
    assert recorder.incidents > 6
    first, left_out = told[:-1]
    assert first.rpartition(": ")[2] == "packets are not recorded; the capture continues"
    assert (
        left_out == f"{units.size(recorder.unwritten()['packet_bytes'])} of packets were not recorded: File too large"
    )
    assert told[-1] == f"{recorder.incidents} incidents were not recorded"
    assert list(tmp_path.glob("x-*")) == []


def test_a_folder_that_vanishes_is_told_once_and_tried_again(samples: Path, tmp_path: Path) -> None:
    many(samples, tmp_path / "in.pcap", 2)
    folder = tmp_path / "there"
    folder.mkdir()
    told: list[str] = []
    on = condition("error")
    recorder, engine = Recorder(folder / "x.pcap", on=on, after=SECOND, notify=told.append), engine_for(on)
    source = FileSource(str(tmp_path / "in.pcap"))
    monitor = Monitor(source, engine, sinks=[recorder], clock=source.clock, governor=Governor(None))
    begin = source.now

    def steps(seconds: int) -> None:
        while not over(source, recorder) and source.now < begin + seconds * SECOND:
            source.wait(0.1)
            monitor.step()

    steps(20)
    shutil.rmtree(folder)
    steps(100)
    assert not folder.exists()
    folder.mkdir()
    steps(1000)
    monitor.finish()
    assert len([text for text in told if "the capture continues" in text]) == 1
    gone = next(n for n, text in enumerate(told) if "the capture continues" in text)
    first = next(n for n, text in enumerate(told[gone:], gone) if "ends" in text)
    assert not any("begins" in text for text in told[gone:first])
    assert list(folder.iterdir())
    assert told[-1].endswith("incidents were not recorded")
    assert engine.packets == len(read_capture(tmp_path / "in.pcap").packets)


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_a_file_that_is_removed_is_not_written_to(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """But later another one is."""
    monkeypatch.setattr(recording_files, "_RETRY", patience)
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcap", notify=told.append)
    recorder.settle()
    (tmp_path / "x.pcap").unlink()
    record(samples / "apache-4.3.pcap.zst", recorder)
    assert len(told) == 1 + (patience > 0)  # what was not written is counted
    assert "it was removed" in told[0]
    if patience:
        assert list(tmp_path.iterdir()) == []
    else:
        assert same(read_capture(tmp_path / "x.pcap"), read_capture(samples / "apache-4.3.pcap.zst").packets)


def test_a_file_that_is_removed_is_closed(samples: Path, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "x.pcap")
    reader = CaptureReader(str(samples / "apache-4.3.pcap.zst"))
    assert reader.fill()
    recorder.add_packets(reader.buffer, reader.packets, 100)
    recorder.end_second(0, None, Engine())  # type: ignore[arg-type]
    recorder.settle()
    (tmp_path / "x.pcap").unlink()
    recorder.end_second(SECOND, None, Engine())  # type: ignore[arg-type]
    recorder.settle()
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if path.startswith(str(tmp_path))]
    recorder.close(Engine())
    reader.close()


def test_a_disk_that_waits_stops_nothing(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring goes on without it. What it overwrites is missing, and the file's records are whole."""
    packets = many(samples, tmp_path / "in.pcap", 4)
    waits, write = Event(), CaptureFile.write

    def slow(file: CaptureFile, data: bytes) -> None:
        if file.size > 500_000:
            waits.wait(30)
        write(file, data)

    monkeypatch.setattr(CaptureFile, "write", slow)
    told: list[str] = []
    recorder = Recorder(tmp_path / "x.pcap", size=2 * SEGMENT, notify=told.append)
    source = FileSource(str(tmp_path / "in.pcap"))
    monitor = Monitor(source, Engine(), sinks=[recorder], clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
        if recorder.bytes < 500_000:
            recorder.settle()
    waits.set()
    monitor.finish()
    assert monitor.engine.packets == len(packets)
    found = read_capture(tmp_path / "x.pcap").packets
    last = next(n for n in range(len(found), 0, -1) if found[n - 1] == packets[n - 1])
    assert found[last:] == packets[len(packets) - len(found) + last :]
    missing = sum(16 + len(p.data) for p in packets[last : last + len(packets) - len(found)])
    assert missing > SEGMENT
    assert told == [
        f"{tmp_path / 'x.pcap'}: the disk is slower than packets arrive: some are not recorded",
        f"{units.size(missing)} of packets were not recorded, because the disk is too slow",
    ]


def test_the_end_waits_for_no_disk(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FAREWELL", 0.1)
    monkeypatch.setattr(background, "LEAST_FAREWELL", 0.1)
    waits = Event()
    recorder = Recorder(tmp_path / "x.pcap", notify=(told := []).append)
    recorder.settle()
    monkeypatch.setattr(CaptureFile, "write", lambda file, data: waits.wait(30))
    source = FileSource(str(samples / "apache-4.3.pcap.zst"))
    monitor = Monitor(source, Engine(), sinks=[recorder], clock=source.clock, governor=Governor(None))
    monitor.run(lambda: source.over)
    assert told == [f"{tmp_path / 'x.pcap'}: the disk does not answer: the last packets are not recorded"]
    waits.set()
    recorder.settle()


CHILD = """
import sys, time
from kafkatap.engine.engine import Engine
from kafkatap.live.recording.recorder import Recorder
from kafkatap.captures.capture_reader import CaptureReader

path, out = sys.argv[1:]
reader = CaptureReader(path)
reader.fill()
recorder = Recorder(out)
engine = Engine()
sent = 0
while True:
    for _ in range(7):
        recorder.add_packets(reader.buffer, reader.packets[: reader.count], reader.count)
        sent += reader.count
    recorder.end_second(time.time_ns(), None, engine)
    recorder.settle()
    print(sent, flush=True)
"""


@pytest.mark.parametrize("name", FORMS)
def test_a_killed_run_leaves_what_was_written(samples: Path, tmp_path: Path, name: str) -> None:
    sample = samples / "live-4.3.pcap.zst"
    command = [sys.executable, "-c", CHILD, str(sample), str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(4)]
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split("\n")
    sent = int(rest[-2]) if len(rest) > 1 else told[-1]
    found = read_capture(tmp_path / name).packets
    once = read_capture(sample).packets
    assert len(found) >= sent
    assert same(Capture([], found), [once[n % len(once)] for n in range(len(found))])
    assert kafkatap.analyze(tmp_path / name).files["packets"].to_pylist() == [len(found)]
