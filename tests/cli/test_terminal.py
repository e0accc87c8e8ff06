"""On a terminal: width, progress, colours, and Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import termios
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkatap import run as run_module
from kafkatap.__main__ import main
from kafkatap.commands.report import command as cli
from kafkatap.engine.engine import Engine
from tests.support.captures import read_bytes

from .running import KAFKATAP, ROOT, environment, kafkatap, on_terminal, without_compiling

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(sample: Path, columns: int) -> None:
    code, shown = on_terminal("report", sample, columns=columns)
    assert code == 0
    assert "\x1b[" in shown
    lines = ESCAPES.sub("", shown).splitlines()
    tables = [line for line in lines if line.startswith("─")]
    assert len(tables) == 4
    assert max(len(line) for line in lines if not line.lstrip().startswith("kafkatap ")) <= columns


def test_no_color_on_a_terminal(sample: Path) -> None:
    _, shown = on_terminal("report", sample, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown)


def test_progress_is_shown_on_long_work(captures: Path) -> None:
    slow = f"head -c 900000 {captures}/whole.pcap; sleep 0.8; tail -c +900001 {captures}/whole.pcap"
    for more, shown_there in (((), True), (("--no-progress",), False)):
        with subprocess.Popen(["bash", "-c", slow], stdout=subprocess.PIPE) as feed:
            code, shown = on_terminal("report", "-", "--json", *more, columns=100, stdin=feed.stdout)
        assert code == 0
        assert bool(re.search(r"reading .*MB", ESCAPES.sub("", shown))) == shown_there
    assert "reading" not in kafkatap("report", captures / "whole.pcap").err


def interrupt(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Ctrl-C, so many times, while the third part of the capture is worked on."""
    dissect, calls = Engine.dissect, []

    def dissect_and_press(self: Engine, part: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        yield from dissect(self, part)

    monkeypatch.setattr(Engine, "dissect", dissect_and_press)
    monkeypatch.setattr(cli, "Run", partial(run_module.Run, block_size=100_000))


def test_interrupted_it_reports_what_was_read(
    captures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch, 1)
    assert main(["report", str(captures / "whole.pcap"), "--json"]) == 130
    out, err = capsys.readouterr()
    assert err == "kafkatap: interrupted: the report covers only what was read before\n"
    report = json.loads(out)
    assert 0 < report["capture"]["packets"] < 5000
    assert report["capture"]["interrupted"] is True
    assert report["warnings"][0].startswith("Interrupted: this report covers only what was read before")


def test_interrupted_twice_it_ends_at_once(
    captures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupt(monkeypatch, 2)
    assert main(["report", str(captures / "whole.pcap"), "--json"]) == 130
    assert capsys.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupted_while_it_waits_for_a_pipe(sample: Path) -> None:
    whole = read_bytes(sample)
    process = subprocess.Popen(
        [*KAFKATAP, "report", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    os.write(process.stdin.fileno(), whole[:24])
    os.write(process.stdin.fileno(), whole[24:60_000])
    while fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)) != bytes(4):  # not all read
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert without_compiling(err.decode()) == "kafkatap: interrupted: the report covers only what was read before\n"
    assert re.search(r"requests    \d", out.decode())
    assert "! Interrupted: this report covers only what was read before" in out.decode()


def test_interrupted_before_there_is_anything() -> None:
    process = subprocess.Popen(
        [*KAFKATAP, "report", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    os.write(process.stdin.fileno(), b"\xd4\xc3\xb2\xa1")
    while fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)) != bytes(4):
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
