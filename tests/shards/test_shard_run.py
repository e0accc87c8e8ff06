"""Engines that share connections find what one engine finds, whatever the packets are and wherever blocks end."""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatap.__main__ import main
from kafkatap.captures.capture_bytes import CaptureBytes
from kafkatap.library import Analysis
from kafkatap.shards import blocks, shard_run
from kafkatap.shards.shard import ShardTask
from kafkatap.shards.shard_run import count_with_shards
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import KAFKATAP, environment, kafkatap
from tests.shards.processes import children_of, is_running, until
from tests.splits.join_talks import TALKS, busy
from tests.support.captures import Packet, PcapRecords, block, pcap_bytes, pcapng_bytes, read_capture, unpacked
from tests.support.encapsulation import KINDS, encapsulate, fragment, link_type_of
from tests.support.sweeps import seeds
from tests.support.tcp import encode
from tests.tls.real_endpoints import FOLDER, without_resumed
from tests.ways.reports import Whole, assert_same, in_shards, one_engine
from tests.wire.test_unreachable import asking, icmp, ip_of

SHARDS = (2, 3, 7)


def compare(folder: Path, data: bytes, shards: Sequence[int] = SHARDS) -> Whole:
    path = folder / "x.pcap"
    path.write_bytes(data)
    wanted = one_engine([path], by="connection")
    for count in shards:
        assert_same(in_shards([path], count, by="connection"), wanted)
    return wanted


def talk() -> list[Packet]:
    return encode(busy(3))


@pytest.mark.parametrize("kind", KINDS)
def test_packets_in_layers(tmp_path: Path, kind: str) -> None:
    packets = encapsulate(talk(), kind)
    compare(tmp_path, pcap_bytes(packets, link_type_of(kind), nanoseconds=True), (3,))


@pytest.mark.parametrize("order", ["forward", "shuffled"])
def test_fragments(tmp_path: Path, order: str) -> None:
    pieces = fragment(talk(), 200, order)
    compare(tmp_path, pcap_bytes(pieces, nanoseconds=True))
    del pieces[::17]
    compare(tmp_path, pcap_bytes(pieces, nanoseconds=True))


@pytest.mark.parametrize("family", [4, 6])
def test_refused_connections(tmp_path: Path, family: int) -> None:
    packets: list[Packet] = []
    for port in range(40_000, 40_012):
        (syn, *rest) = asking(family, port).segments
        refused = icmp(ip_of(syn), syn.time_ns + 1_000)
        packets += [*encode([syn]), refused] if port % 3 else encode([syn, *rest])
    found = compare(tmp_path, pcap_bytes(sorted(packets, key=lambda packet: packet.time_ns), nanoseconds=True))
    assert found["capture"]["connections"] in (4, 12)


@pytest.mark.parametrize("seed", seeds(4, 1))
def test_blocks_that_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Also with records that are longer than a block, and than the room in front of it."""
    monkeypatch.setattr(blocks, "_ROOM", 700)
    for module in (blocks, shard_run):
        monkeypatch.setattr(module, "BLOCK_SIZE", 512 + 97 * seed)
    for name in ("pipelined", "large"):
        packets = encode(TALKS[name]() if name == "pipelined" else busy(2 * seed + 1))  # others need one engine
        compare(tmp_path, pcap_bytes(packets, nanoseconds=True), (2, 5))
        compare(tmp_path, pcapng_bytes(packets), (3,))


def test_a_block_of_something_else_that_is_long(tmp_path: Path) -> None:
    """It does not fit into the room in front of the next block."""
    whole = pcapng_bytes(talk())
    at = len(whole) // 2
    starts, place = [], 0
    while place < len(whole):
        starts.append(place)
        place += struct.unpack_from("<I", whole, place + 4)[0]
    at = starts[len(starts) // 2]
    compare(tmp_path, whole[:at] + block(0x0BAD, bytes(9 << 20)) + whole[at:])


def test_damage(tmp_path: Path, samples: Path) -> None:
    data = pcap_bytes(read_capture(samples / "apache-2.8.pcap.zst").packets)
    for cut in (0, 3, 20, 24, 30, len(data) // 2, len(data) - 1):
        path = tmp_path / "cut.pcap"
        path.write_bytes(data[:cut])
        one, two = (kafkatap("report", "--json", "--jobs", jobs, path) for jobs in ("1", "2"))
        assert (two.code, two.out, two.err) == (one.code, one.out, one.err), cut
    packed = bytearray((samples / "apache-2.8.pcap.zst").read_bytes())
    packed[len(packed) // 2] ^= 0x55
    path = tmp_path / "damaged.pcap.zst"
    path.write_bytes(packed)
    one, two = (kafkatap("report", "--json", "--jobs", jobs, path) for jobs in ("1", "3"))
    assert (two.code, two.out, two.err) == (one.code, one.out, one.err)


# ---------------------------------------------------------------- processes


def test_an_engine_that_fails(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    monkeypatch.setattr(shard_run, "BLOCK_SIZE", 4_096)  # so that the others wait for it
    before, children = len(os.listdir("/proc/self/fd")), set(children_of(os.getpid()))

    def fail(self: ShardTask, mine: int, place: Any) -> Any:
        if mine == 1:
            raise OSError("no such disk")
        return read(self, mine, place)

    read = ShardTask.__call__
    monkeypatch.setattr(ShardTask, "__call__", fail)
    with pytest.raises(OSError, match="no such disk"):
        in_shards([path], 3)
    assert set(children_of(os.getpid())) <= children
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_reader_that_fails(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines do not take that for the end of the capture."""
    path = unpacked(samples, "apache-4.3", tmp_path)
    monkeypatch.setattr(shard_run, "BLOCK_SIZE", 4_096)
    read, calls = CaptureBytes.readinto, []

    def fail(self: CaptureBytes, view: memoryview) -> int:
        calls.append(len(view))
        if len(calls) > 5:
            raise ValueError("a defect")
        return read(self, view)

    monkeypatch.setattr(CaptureBytes, "readinto", fail)
    with pytest.raises(ValueError, match="a defect"):
        in_shards([path], 2)


@pytest.mark.parametrize("stop_at", [1, 3])
def test_engines_end_behind_the_same_block(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    monkeypatch.setattr(shard_run, "BLOCK_SIZE", 10_000)
    read, calls = CaptureBytes.readinto, []

    def slow(self: CaptureBytes, view: memoryview) -> int:
        calls.append(len(view))
        time.sleep(0.05 if len(calls) > stop_at else 0)
        return read(self, view)

    monkeypatch.setattr(CaptureBytes, "readinto", slow)
    found = count_with_shards([str(path)], 3, RunOptions(), watch=lambda done: True)
    assert found.interrupted
    [report] = found.files
    assert 0 < report.packets < 5_822
    assert report.damage is None
    part = tmp_path / "part.pcap"
    part.write_bytes(PcapRecords(path).slice(0, report.packets))
    wanted = Analysis([str(part)])
    requests = found.context.ledger["requests"]
    assert requests["total"] == sum(
        row["count"] for row in wanted.ledger.to_pylist() if (row["section"], row["part"]) == ("requests", "total")
    )


def limited(jobs: int, kind: int, most: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A report by so many engines in a process that has a limit."""
    return subprocess.run(
        [*KAFKATAP, "report", "--jobs", str(jobs), *map(str, arguments)],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=100,
        preexec_fn=lambda: resource.setrlimit(kind, (most, most)),  # no thread runs here
    )  # fmt: skip


def test_limits_of_the_machine(samples: Path, tmp_path: Path) -> None:
    """An engine has three open files, and a fourth for tables. The message of more says what helps."""
    path = samples / "apache-2.8.pcap.zst"
    assert limited(12, resource.RLIMIT_NOFILE, 3 * 12 + 16, path).returncode == 0
    for options in ([], ["--parquet", tmp_path / "tables"]):
        found = limited(40, resource.RLIMIT_NOFILE, 30, *options, path)
        assert found.returncode == 2
        assert found.stderr == "kafkatap: too many open files for 40 processes; try again with --jobs 20\n"


def test_no_more_processes(samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    children = set(children_of(os.getpid()))
    fork, forks = os.fork, []

    def fail() -> int:
        forks.append(1)
        if len(forks) == 3:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", fail)
    assert main(["report", "--jobs", "4", str(samples / "apache-2.8.pcap.zst")]) == 2
    expected = "kafkatap: resource temporarily unavailable for 4 processes; try again with --jobs 2\n"
    assert capsys.readouterr().err == expected
    assert set(children_of(os.getpid())) <= children


def test_an_engine_without_memory(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: ShardTask, mine: int, place: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(ShardTask, "__call__", fail)
    assert main(["report", "--jobs", "4", str(samples / "apache-2.8.pcap.zst")]) == 2
    expected = "kafkatap: cannot allocate memory for 4 processes; try again with --jobs 2\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_engine_outlives_the_command(number: int) -> None:
    command = [*KAFKATAP, "report", "--jobs", "3", "-"]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(pcap_bytes(talk()))
        process.stdin.flush()
        engines = until(lambda: len(found := children_of(process.pid)) == 3 and found)
        process.send_signal(number)
        process.wait(20)
        until(lambda: not any(map(is_running, engines)))


def test_ctrl_c_ends_a_pipe(samples: Path) -> None:
    """The report covers what was read before, as with one process."""
    data = pcap_bytes(read_capture(samples / "apache-4.3.pcap.zst").packets)
    command = [*KAFKATAP, "report", "--jobs", "2", "-"]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(data[: len(data) // 2])
        process.stdin.flush()
        until(lambda: len(children_of(process.pid)) == 2)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: the report covers only what was read before" in err.decode()
    assert "Latency by API" in out.decode()


def test_a_filter_on_topics_needs_one_engine(samples: Path) -> None:
    """Some connections have only the ids of topics, and others tell their names."""
    path = samples / "live-4.4.pcap.zst"
    one, three = (kafkatap("report", "--json", "--jobs", jobs, "--topic", "o*", path) for jobs in ("1", "3"))
    assert (three.code, three.out) == (one.code, one.out) == (0, one.out)
    assert "one process reads this input: topics are selected" in three.err


@pytest.mark.parametrize("way", ["file", "standard input"])
def test_sessions_that_connections_of_other_engines_resume(way: str, tmp_path: Path) -> None:
    """Secrets are those of the full handshake, which another connection has."""
    path, fewer = FOLDER / "matrix.pcap.zst", tmp_path / "fewer.keys.log"
    fewer.write_text(without_resumed((FOLDER / "matrix.keys.log").read_text()))
    name, data = ("-", path.read_bytes()) if way == "standard input" else (path, None)
    one, three = (
        kafkatap("report", "--json", "--keylog", fewer, "--jobs", jobs, name, stdin=data) for jobs in ("1", "7")
    )
    assert (three.code, three.out) == (one.code, one.out)
    assert "one process reads this input: " in three.err
    assert "resume TLS sessions of others" in three.err
    whole = kafkatap("report", "--json", "--keylog", FOLDER / "matrix.keys.log", "--jobs", "7", path)
    assert (whole.code, whole.err) == (0, "")
