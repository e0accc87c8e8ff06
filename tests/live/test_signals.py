"""How `kafkatap live` ends, begins anew, and survives what it writes to: as a process, on loopback."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.running import KAFKATAP, ROOT, environment, kafkatap
from tests.support.tcp import request_frame, response_frame

from . import network
from .running import READY_S, Live, catches, wait_for

WHY_NOT = network.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

API_VERSIONS = 18
#: ApiVersions v0: no error, and one API.
_ANSWER = bytes.fromhex("0000 00000001 0012 0000 0004")


@dataclass(frozen=True, slots=True)
class Talk:
    """One connection on loopback on which a client asks for ApiVersions."""

    port: int
    client: socket.socket
    broker: socket.socket

    def request(self, times: int, first: int = 1) -> None:
        """So many requests, each answered before the next."""
        for number in range(first, first + times):
            request = request_frame(API_VERSIONS, 0, number, client_id="knocker")
            self.client.sendall(request)
            _receive(self.broker, len(request))
            answer = response_frame(number, _ANSWER)
            self.broker.sendall(answer)
            _receive(self.client, len(answer))


def _receive(link: socket.socket, count: int) -> None:
    while count:
        count -= len(link.recv(count))


@contextmanager
def talking() -> Iterator[Talk]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            broker, _ = server.accept()
            with broker:
                yield Talk(port, client, broker)


def on_loopback(talk: Talk, *arguments: str | Path) -> list[str]:
    return ["-i", "lo", "--interval", "1s", *map(str, arguments), f"tcp port {talk.port}"]


def requests_of(json_text: str) -> int:
    return int(json.loads(json_text)["capture"]["requests"])


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("time=")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_ends_it_with_the_report(number: signal.Signals) -> None:
    with talking() as talk, Live(*on_loopback(talk, "--plain", "--utc")) as live:
        live.wait_ready()
        talk.request(7)
        done = live.end(number)
    assert done.code == 0
    assert done.err == ""
    assert lines_of(done.out)
    assert "requests    7 by 1 client" in done.out
    assert "ApiVersions" in done.out
    assert "Traceback" not in done.out


def test_a_service_begins_new_files(tmp_path: Path) -> None:
    """SIGHUP without a terminal. A terminal's ends it (below)."""
    recording, tables = tmp_path / "all.pcap", tmp_path / "tables"
    outputs = "--write-pcap", recording, "--parquet", tables
    with talking() as talk, Live(*on_loopback(talk, "--plain", "--json", *outputs), before=["setsid"]) as live:
        live.wait_ready()
        talk.request(3)
        wait_for(lambda: recording.exists() and recording.stat().st_size > 500, 20, live.err)
        live.send(signal.SIGHUP)
        wait_for(lambda: len(list(tmp_path.glob("all*.pcap"))) == 2, 20, live.err)
        wait_for(lambda: list(tables.glob("exchanges/*/*.parquet")), 20, live.err)
        lines = live.err().count("time=")
        live.send(signal.SIGHUP)  # nothing is new
        wait_for(lambda: live.err().count("time=") > lines + 1, 20, live.err)
        talk.request(2)
        done = live.end()
    assert done.code == 0
    assert requests_of(done.out) == 5
    (earlier,) = tmp_path.glob("all-*.pcap")
    assert [requests_of(kafkatap("report", "--json", path).out) for path in (earlier, recording)] == [3, 2]
    assert [pq.read_metadata(path).num_rows for path in sorted(tables.glob("exchanges/*/*.parquet"))] == [3, 2]


def test_its_terminal_may_be_gone() -> None:
    """As after a dropped session: SIGHUP, and nothing can be written any more. It ends, and takes nothing with it."""
    with talking() as talk:
        ours, theirs = pty.openpty()
        command = [*KAFKATAP, "live", *on_loopback(talk, "--plain")]
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment(), start_new_session=True
        )
        os.close(theirs)
        shown: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(ours, shown))
        reader.start()
        try:
            wait_for(lambda: catches(process.pid, signal.SIGUSR1), READY_S, lambda: f"not ready: {b''.join(shown)!r}")
            talk.request(3)
            wait_for(lambda: b"time=" in b"".join(shown), 20, lambda: f"no line: {b''.join(shown)!r}")
            os.kill(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        finally:
            _hang_up(ours, reader)
        process.send_signal(signal.SIGHUP)
        try:
            code = process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    assert b"Traceback" not in b"".join(shown)
    assert code == 0


def _read_all(ours: int, shown: list[bytes]) -> None:
    import select

    while True:
        try:
            if select.select([ours], [], [], 0.2)[0]:
                data = os.read(ours, 65_536)
                if not data:
                    return
                shown.append(data)
        except (OSError, ValueError):
            return


def _hang_up(ours: int, reader: threading.Thread) -> None:
    os.close(ours)
    reader.join(5)


def test_sigusr1_starts_the_counts_anew() -> None:
    with talking() as talk, Live(*on_loopback(talk, "--json")) as live:
        live.wait_ready()
        talk.request(20)
        wait_for(lambda: "requests_s=0.0" not in live.err() and lines_of(live.err()), 20, live.err)
        time.sleep(0.3)
        live.send(signal.SIGUSR1)
        time.sleep(0.5)
        talk.request(5, first=100)
        done = live.end()
    assert done.code == 0
    assert requests_of(done.out) == 5
    report = json.loads(done.out)
    (latency,) = report["reports"]["latency"]
    assert (latency["api"], latency["count"]) == ("ApiVersions", 5)
    assert {row["part"]: row["count"] for row in report["reports"]["ledger"] if row["section"] == "requests"}[
        "total"
    ] == 5


def test_a_second_ctrl_c_ends_at_once() -> None:
    """While it is still busy ending: here because nobody reads what it prints."""
    with talking() as talk:
        reading, writing = os.pipe()
        command = [*KAFKATAP, "live", *on_loopback(talk, "--plain")]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=environment()
        )
        try:
            wait_for(lambda: catches(process.pid, signal.SIGUSR1), READY_S, lambda: "not ready")
            talk.request(3)
            _fill(writing)
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            assert process.poll() is None
            err = _interrupted(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
            os.close(reading)
            os.close(writing)
    assert process.returncode == 130
    assert b"Traceback" not in err


def _interrupted(process: subprocess.Popen[bytes]) -> bytes:
    """Send SIGINT until the process ends; return its standard error. On a busy machine two signals may become one."""
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=5)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("it does not end")


def _fill(writing: int) -> None:
    """Fill a pipe, through an end of our own: not to block is a property of ends."""
    ours = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(ours, b"\n" * 4096)
    except BlockingIOError:
        return
    finally:
        os.close(ours)


def test_it_ends_after_its_duration() -> None:
    with talking() as talk, Live(*on_loopback(talk, "--json", "--duration", "1500ms")) as live:
        live.wait_ready()
        began = time.monotonic()
        talk.request(4)
        done = live.finish()
        lasted = time.monotonic() - began
    assert done.code == 0
    assert requests_of(done.out) == 4
    assert lasted < 20
    assert lasted > 0.5


def test_no_report() -> None:
    with talking() as talk, Live(*on_loopback(talk, "--plain", "--no-report")) as live:
        live.wait_ready()
        talk.request(4)
        done = live.end()
    assert done.code == 0
    assert lines_of(done.out) == done.out.splitlines()


def test_a_closed_pipe_ends_it() -> None:
    """As with `| head -1`: the next line tells it."""
    with talking() as talk:
        command = [*KAFKATAP, "live", *on_loopback(talk, "--plain")]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
            env=environment(),
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            first = process.stdout.readline()
            process.stdout.close()
            code = process.wait(READY_S)
            err = process.stderr.read()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
            process.stderr.close()
    assert first.startswith(b"time=")
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err
    assert b"kafkatap:" not in err
    assert code == 0
