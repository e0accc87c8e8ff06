"""`live --keep`: the last minutes on disk, for their owner only, within a budget, over all runs, without passwords."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kafkatap.captures.capture_reader import measure_packets
from kafkatap.engine.engine import Engine
from kafkatap.live.recording import recording_files
from kafkatap.live.recording.kept_names import begin_of, names_between
from kafkatap.live.recording.kept_packets import keeper, make_folder
from kafkatap.live.recording.recorder import Recorder
from tests.cli.running import kafkatap
from tests.support.captures import read_capture
from tests.support.tcp import frame
from tests.wire.kafkatalk import SASL_AUTHENTICATE, SASL_HANDSHAKE, request, response

from . import network
from .running import Live, wait_for
from .support import SECOND, FileSource
from .test_signals import Talk, _receive, on_loopback, talking

WHY_NOT = network.missing()
live_only = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
PASSWORD = b"correct-horse-battery"


def kept_by(folder: Path, age: int = 3600 * SECOND, limit: int = 1 << 30, **options: bool) -> Recorder:
    make_folder(str(folder))
    return keeper(
        str(folder), age, limit, only_headers=options.get("only_headers", False),
        with_secrets=options.get("with_secrets", False), size=8 << 20, links={}, counters=lambda: (0, 0),
        notify=lambda text: None,
    )  # fmt: skip


def run_through(folder: Path, sample: Path, monkeypatch: pytest.MonkeyPatch, **options: bool) -> None:
    """Keep the packets of a capture, as if it came now; the clock is that of the packets."""
    source = FileSource(str(sample), SECOND // 2)
    monkeypatch.setattr(recording_files.time, "time_ns", lambda: source.now)
    recorder = kept_by(folder, **options)
    while not source.over:
        source.wait(0)
        for buffer, packets, count in source.blocks():
            recorder.add_packets(buffer, packets, count)
        recorder.end_second(source.now, None, Engine())  # type: ignore[arg-type]
        recorder.settle()
    recorder.close(Engine())


def test_files_of_half_a_minute_have_the_names_of_their_times(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = samples / "apache-4.3.pcap.zst"
    run_through(tmp_path / "kept", sample, monkeypatch, with_secrets=True)
    files = sorted((tmp_path / "kept").iterdir())
    packets = [packet for file in files for packet in read_capture(file).packets]
    assert [p.data for p in packets] == [p.data for p in read_capture(sample).packets]
    assert len(files) == 2
    for file in files:
        first, last = (read_capture(file).packets[n].time_ns for n in (0, -1))
        begin = begin_of(file.name)
        assert begin is not None
        assert abs(first - begin) < 2 * SECOND
        assert last - first < 33 * SECOND
        assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    names = [file.name for file in files]
    middle = read_capture(files[1]).packets[0].time_ns + 15 * SECOND
    assert names_between(names, middle, middle + SECOND) == names[1:2]
    assert names_between([*names, "notes.txt", "kept-1.pcapng"], 0, 1 << 62) == names
    assert names_between(names, 0, middle - 60 * SECOND) == []


def test_only_headers(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = samples / "apache-4.3.pcap.zst"
    run_through(tmp_path / "kept", sample, monkeypatch, only_headers=True)
    packets = [packet for file in sorted((tmp_path / "kept").iterdir()) for packet in read_capture(file).packets]
    original = read_capture(sample).packets
    assert [p.wire_length for p in packets] == [p.wire_length for p in original]
    assert sum(len(p.data) for p in packets) < sum(len(p.data) for p in original) * 0.6


def test_files_of_earlier_runs_count_and_expire(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    make_folder(str(folder))
    names = [f"kept-20261121T1{n}0000.000Z.pcapng" for n in range(4)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(bytes(3 << 20))
        os.utime(folder / name, (time.time() - 400 + 100 * number,) * 2)
    (folder / "mine.txt").write_bytes(bytes(9 << 20))
    os.utime(folder / "mine.txt", (1, 1))
    recorder = kept_by(folder, age=350 * SECOND, limit=8 << 20)
    reader = FileSource(str(samples / "apache-4.3.pcap.zst"), 1 << 62)
    reader.wait(0)
    for buffer, packets, count in reader.blocks():
        recorder.add_packets(buffer, packets, min(count, 500))
    recorder.close(Engine())
    left = sorted(file.name for file in folder.iterdir())
    assert left[-1] == "mine.txt"
    assert [name for name in left if name in names] == names[2:]  # the first is too old, the second too much
    assert len(left) == 4


def test_nobody_else_may_enter_the_folder(tmp_path: Path) -> None:
    make_folder(str(tmp_path / "a" / "kept"))
    assert (tmp_path / "a" / "kept").stat().st_mode & 0o777 == 0o700
    make_folder(str(tmp_path / "a" / "kept"))
    (tmp_path / "open").mkdir(0o755)
    with pytest.raises(ValueError, match="others may enter"):
        make_folder(str(tmp_path / "open"))
    (tmp_path / "link").symlink_to(tmp_path / "a" / "kept")
    with pytest.raises(NotADirectoryError):
        make_folder(str(tmp_path / "link"))


def login(talk: Talk) -> None:
    """SASL PLAIN on a connection, with a password."""
    for ours, theirs in (
        (request(SASL_HANDSHAKE, 1, 1, Mechanism="PLAIN"), response(SASL_HANDSHAKE, 1, 1, Mechanisms=["PLAIN"])),
        (request(SASL_AUTHENTICATE, 2, 2, AuthBytes=b"\0alice\0" + PASSWORD), response(SASL_AUTHENTICATE, 2, 2)),
        (request(SASL_HANDSHAKE, 0, 3, Mechanism="PLAIN"), response(SASL_HANDSHAKE, 0, 3, Mechanisms=["PLAIN"])),
        (frame(b"\0alice\0" + PASSWORD), frame(b"")),
    ):
        talk.client.sendall(ours)
        _receive(talk.broker, len(ours))
        talk.broker.sendall(theirs)
        _receive(talk.client, len(theirs))


@live_only
def test_a_live_capture_keeps_packets_through_kills_and_no_password(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = "--plain", "--no-report", "--keep", "10m", "--keep-dir", folder
    with talking() as talk:
        for run in range(2):
            with Live(*on_loopback(talk, *options)) as live:
                live.wait_ready()
                login(talk)
                talk.request(5, first=10 * run + 10)

                def is_kept(run: int = run) -> bool:
                    files = sorted(folder.iterdir())
                    return len(files) == run + 1 and measure_packets(str(files[-1]))[0] >= 18

                wait_for(is_kept, 20, live.err)
                live.send(signal.SIGKILL)
                live.process.wait(20)
    files = sorted(folder.iterdir())
    assert len(files) == 2
    for file in files:
        data = file.read_bytes()
        assert b"knocker" in data
        assert PASSWORD not in data
        assert PASSWORD[:6] not in data
        assert file.stat().st_mode & 0o777 == 0o600
    told = kafkatap("report", "--json", *files)
    assert '"requests": 16' in told.out, told.out[:2000]


@live_only
def test_with_secrets_only_if_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = "--plain", "--no-report", "--keep", "10m", "--keep-dir", folder, "--keep-secrets"
    with talking() as talk, Live(*on_loopback(talk, *options)) as live:
        live.wait_ready()
        login(talk)
        done = live.end()
    assert done.code == 0, done.err
    (file,) = folder.iterdir()
    assert PASSWORD in file.read_bytes()
    assert b"with tokens of SASL" in file.read_bytes()


@live_only
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(0o755)
    done = kafkatap("live", "-i", "lo", "--plain", "--keep", "1m", "--keep-dir", tmp_path / "open")
    assert done.code == 2
    assert "others may enter this folder; chmod 700" in done.err
