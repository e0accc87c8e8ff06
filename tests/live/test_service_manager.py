"""What systemd hears of a capture: by a socket of its kind, from the process."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.export.service_manager import ServiceManager

from . import network
from .running import READY_S, Live
from .test_signals import on_loopback, talking

needs_capture = pytest.mark.skipif(bool(network.missing()), reason=network.missing())


@needs_capture
def test_it_hears_the_beginning_each_second_and_the_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard, talking() as talk:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(READY_S)
        arguments = on_loopback(talk, "--plain", "--user", "root")
        with Live(*arguments, NOTIFY_SOCKET=str(tmp_path / "notify")) as live:
            first = heard.recv(200).decode()
            assert first == f"READY=1\nMAINPID={live.process.pid}"
            assert [heard.recv(200) for _ in range(2)] == [b"WATCHDOG=1"] * 2
            assert live.end().code == 0
        heard.setblocking(False)
        rest = [heard.recv(200)]
        while rest[-1] != b"STOPPING=1":
            rest.append(heard.recv(200))
        with pytest.raises(BlockingIOError):
            heard.recv(200)


def test_nobody_has_to_listen(tmp_path: Path) -> None:
    """Neither at the start nor later: nothing waits, and nothing fails."""
    ServiceManager(str(tmp_path / "nobody")).close(Engine())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0kafkatap-test-" + tmp_path.name)
        manager = ServiceManager("@kafkatap-test-" + tmp_path.name)
        for second in range(10_000):
            manager.end_second(second, None, Engine.__new__(Engine))  # type: ignore[arg-type]
        assert heard.recv(200).startswith(b"READY=1")
        manager.close(Engine())


@needs_capture
def test_a_run_under_nohup_goes_on() -> None:
    with talking() as talk, Live(*on_loopback(talk, "--plain"), before=["nohup"]) as live:
        live.wait_ready()
        live.send(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            live.process.wait(2)
        assert live.end(signal.SIGTERM).code == 0
