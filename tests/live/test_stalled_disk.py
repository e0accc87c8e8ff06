"""Neither a disk that stalls nor a pipe that nobody reads stops the capture, or its end."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.captures import read_capture

from . import network
from .running import READY_S, Live, catches, wait_for
from .test_signals import Talk, lines_of, on_loopback, talking

WHY_NOT = network.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
_PROGRAMS = ("fsfreeze", "mkfs.ext4", "mount", "umount", "losetup")
#: Such as in a container without loop devices.
NO_DISK = ", ".join(name for name in _PROGRAMS if shutil.which(name) is None)


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of its own."""
    image, place = folder / "image", folder / "disk"
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=60)
    mounted = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True, timeout=60)
    if mounted.returncode:
        pytest.skip(f"needs a loop device: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=60)


@contextmanager
def frozen(place: Path) -> Iterator[None]:
    """Every write waits."""
    subprocess.run(["fsfreeze", "-f", place], check=True, timeout=60)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", place], check=True, timeout=60)


@contextmanager
def requests_all_the_time(talk: Talk) -> Iterator[list[int]]:
    """A list with the number of requests so far."""
    over, asked = Event(), [0]

    def ask() -> None:
        while not over.wait(0.002):
            talk.request(1, asked[0] + 1)
            asked[0] += 1

    thread = Thread(target=ask)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
@pytest.mark.skipif(bool(NO_DISK), reason=f"needs the programs {NO_DISK}, which are not installed")
def test_a_frozen_disk_stops_neither_the_capture_nor_its_end(tmp_path: Path) -> None:
    with disk(tmp_path) as place, talking() as talk, requests_all_the_time(talk) as asked:
        arguments = on_loopback(
            talk, "--plain", "--write-pcap", place / "x.pcap", "--parquet", place / "tables", "--rotate", "1s"
        )
        with Live(*arguments) as live:
            wait_for(lambda: len(lines_of(live.out())) > 2, READY_S, live.err)
            with frozen(place):
                before, first = len(lines_of(live.out())), asked[0]
                wait_for(lambda: len(lines_of(live.out())) > before + 4, 20, live.err)
                lines = lines_of(live.out())[before + 1 :]
                while_frozen = asked[0] - first
                live.send(signal.SIGTERM)
                wait_for(lambda: report(live.out()), 25, live.err)
                wait_for(lambda: "does not answer" in live.err(), 1, live.err)
            done = live.finish()
        assert done.code == 0
        assert while_frozen > 300
        assert all(" drops=0 " in line for line in lines)
        assert all(float(line.split(" requests_s=")[1].split(" ")[0]) > 20 for line in lines)
        assert "x.pcap: the disk does not answer: the last packets are not recorded" in done.err
        assert "tables: the disk does not answer: the last rows of tables are missing" in done.err
        assert len(read_capture(place / "x.pcap").packets) > 100


def report(text: str) -> str:
    """What comes after the lines."""
    return text.rpartition("time=")[2].partition("\n")[2]


def test_a_reader_that_does_not_read_stops_neither_the_capture_nor_its_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    with talking() as talk, requests_all_the_time(talk) as asked:
        arguments = on_loopback(talk, "--plain", "--write-pcap", tmp_path / "x.pcap")
        with Live(*arguments, stdout=writing) as live:
            wait_for(
                lambda: catches(live.process.pid, signal.SIGTERM) and (tmp_path / "x.pcap").exists(), READY_S, live.err
            )
            first = asked[0]
            time.sleep(3)
            requests = asked[0] - first
            done = live.end(signal.SIGTERM, 25)
    os.close(writing)
    os.close(reading)
    assert done.code == 0
    assert "nobody reads standard output: the report is left out" in done.err
    assert len(read_capture(tmp_path / "x.pcap").packets) > 2 * requests > 500
