"""The live screen in a real terminal (tmux): keys, sizes, colours, hostile names, and every way to end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kafkatap
from kafkatap.engine.engine import Engine
from kafkatap.kernels import store
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.drawing import Drawing, screen_lines
from kafkatap.live.screen.look import Kept, Live
from kafkatap.live.screen.page_sections import sections
from kafkatap.live.screen.pages import Page, Shown
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from tests.cli.running import KAFKATAP, ROOT, environment
from tests.support.captures import pcap_bytes
from tests.support.tcp import encode
from tests.support.tcp import frame as kafka_frame
from tests.wire.kafkatalk import METADATA, KafkaTalk, body

from . import network
from .on_screen import step_of
from .pane import PATIENCE, Pane, pane, until_gone
from .support import FileSource
from .test_signals import Talk

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="drives the screen in tmux, which is not installed"
)

SAMPLE = Path("samples/apache-4.3.pcap.zst")
FAST, SLOW = 60, 2
COLOR = re.compile(r"\x1b\[[0-9;]*\b[349][0-7]m")


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Kernels are there before anybody waits for a screen."""
    store.prepare()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Pane]:
    with pane(tmp_path) as made:
        yield made


def play(
    terminal: Pane, capture: Path = SAMPLE, speed: float = FAST, size: tuple[int, int] = (80, 24), redirect: str = "",
    **variables: str,
) -> None:  # fmt: skip
    """Start the screen with the clock of a capture."""
    command = [sys.executable, "-W", "error", "-m", "tests.live.on_screen", str(capture), str(speed), "utc"]
    settings = [f"{name}={value}" for name, value in variables.items()]
    terminal.start(shlex.join(["env", *settings, *command]) + " " + redirect, *size)
    terminal.until_shown("kafkatap live")


@cache
def expected() -> Callable[..., list[str]]:
    """What is on the screen once the whole capture was played, as lines of the middle."""
    kept, source = Kept(), FileSource(str(SAMPLE), step_of(FAST))
    engine = Engine(all_results=True, **needs_of(None)._asdict())
    monitor = Monitor(
        source, engine, sinks=kept.sinks, clock=source.clock, governor=Governor(None),
        sections=counted_sections(None),
    )  # fmt: skip
    while not source.over:
        source.wait(0)
        monitor.step()

    def drawn(page: Page, width: int = 80, height: int = 24, **how: Any) -> list[str]:
        shown = Shown(**{"window": 10, "utc": True, "word": how.get("filter", ""), **how})
        parts = sections(page, Live(monitor, kept), shown)
        lines = screen_lines(Drawing(page, 1, shown, monitor.status, parts), width, height)
        return ["".join(text for text, _ in line).rstrip() for line in lines[4:-1]]

    return drawn


def until_middle(terminal: Pane, wanted: list[str]) -> None:
    terminal.until(lambda lines: lines[4 : 4 + len(wanted)] == wanted)


def test_views_sorting_and_windows(terminal: Pane) -> None:
    draw = expected()
    play(terminal)
    until_middle(terminal, draw(Page("table", "api")))
    views = ("2", "client"), ("3", "topic"), ("4", "broker"), ("1", "api"), ("Tab", "client"), ("Left", "api")
    for key, by in (*views, ("Right", "client")):
        terminal.press(key)
        until_middle(terminal, draw(Page("table", by)))
    sorts = ("s", "p50", False), ("s", "p99", False), ("r", "p99", True), ("<", "p50", True), ("r", "p50", False)
    for keys, sort, reverse in (*sorts, (">", "p99", False)):
        terminal.press(keys)
        until_middle(terminal, draw(Page("table", "client"), sort=sort, reverse=reverse))
    page = Page("table", "client")  # names that were shown keep their room
    draw(page, sort="p99")
    for seconds, said in ((60, "w last 1 min"), (None, "w all"), (10, "w last 10 s")):
        terminal.press("w")
        terminal.until_shown(said)
        until_middle(terminal, draw(page, sort="p99", window=seconds))


def test_the_filter(terminal: Pane) -> None:
    draw = expected()
    play(terminal)
    until_middle(terminal, draw(Page("table", "api")))
    terminal.press("2", "w", "w", "/")
    terminal.press("A", "I", "q", "BSpace", "o")
    assert "/AIo" in terminal.until_shown("/AIo", "keep")[3]
    page = Page("table", "client")
    draw(page, window=None)
    filtered = draw(page, window=None, filter="aio")
    assert 1 < len([line for line in filtered if line]) < 7
    until_middle(terminal, filtered)
    terminal.press("Enter")
    terminal.until_shown("only /AIo", "quit")
    terminal.press("Escape")
    until_middle(terminal, draw(Page("table", "client"), window=None))
    terminal.press("/", "x", "y", "q")
    terminal.until_shown("no requests that match /xyq")
    terminal.press("Escape")
    until_middle(terminal, draw(Page("table", "client"), window=None))


def test_an_expression_as_a_filter(terminal: Pane) -> None:
    """It is wrong, and says where; then it holds for what is opened too, until esc."""
    play(terminal)
    until_middle(terminal, expected()(Page("table", "api")))
    terminal.press("w", "w", "/")
    terminal.press(*"api", "Space", *"==", "Space", *"Produc")
    lines = terminal.until_shown("no API is called")
    assert lines[3] == "/api == Produc▏"
    assert lines[4].startswith("        ^^^^^^ no API is called")
    terminal.press("Enter")
    terminal.until_shown("no API is called", "keep")
    terminal.press("e", "Enter")
    lines = terminal.until_shown("only api == Produce", "quit")
    assert [line.split()[0] for line in lines[5:21] if line] == ["Produce"]
    terminal.press("2", "Enter")
    terminal.until_shown("only api == Produce", "APIs, since the start")
    terminal.press("Escape")
    terminal.until_shown("only api == Produce", "[2 client]")
    terminal.press("Escape")
    terminal.until(lambda lines: "only" not in lines[3])


def test_the_views_of_trouble(terminal: Pane) -> None:
    draw = expected()
    play(terminal)
    until_middle(terminal, draw(Page("table", "api")))
    for key, by in (("6", "waiting"), ("7", "events"), ("8", "groups"), ("9", "errors")):
        terminal.press(key)
        until_middle(terminal, draw(Page("table", by)))
    terminal.press("7", "Enter")
    terminal.until_shown("severity", "began", "esc back")
    terminal.press("Escape")
    terminal.until_shown("[7 events]")
    terminal.press("8", "w", "w", "Enter")
    terminal.until_shown("members", "rebalances, the last first")
    terminal.press("9", "Enter")
    terminal.until_shown("APIs, since the start", "clients, since the start")
    terminal.press("d")
    terminal.until_shown("no packets are in memory: --write-pcap FILE")


def test_drilling_down(terminal: Pane) -> None:
    draw = expected()
    play(terminal)
    until_middle(terminal, draw(Page("table", "api")))
    terminal.press("2", "w", "w", "Down", "Down", "Up")
    rows = draw(Page("table", "client"), window=None)
    name = rows[2].split()[0]
    terminal.press("Enter")
    scope = (("client", name),)
    until_middle(terminal, draw(Page("detail", scope=scope), window=None))
    lines = terminal.until_shown(f"client {name}", "APIs, since the start", "connections of the last", "esc back")
    terminal.press("Tab", "Enter")
    found = terminal.until_shown(f"last messages: client {name} > connection 10.")
    assert found[4].split()[:2] == ["began", "request"]
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} \w+ v\d", found[5])
    terminal.press("Escape")
    terminal.until_shown("APIs, since the start")
    terminal.press("Home", "l")
    api = lines[6].split()[0]
    shown = terminal.until_shown(f"last messages: client {name} > API {api}")
    assert {line.split()[1] for line in shown[5:20] if line} == {api}
    terminal.press("BSpace")
    terminal.until_shown("APIs, since the start")
    terminal.press("Escape")
    terminal.until_shown("[2 client]")
    terminal.press("l")
    rows = draw(Page("messages", scope=scope), window=None)
    until_middle(terminal, rows)
    terminal.press("Down", "Enter")
    shown = terminal.until_shown("correlation id", "throttle_time_ms of the response")
    assert rows[2].split()[0] in shown[7]
    terminal.press("Escape")
    until_middle(terminal, rows)


def test_help_and_unknown_keys(terminal: Pane) -> None:
    play(terminal)
    terminal.press("x", "F5", "é", "?")
    terminal.until_shown("Keys", "1 2 3 4")
    terminal.press("NPage")
    terminal.until_shown("Columns", "p50  p99")
    terminal.press("End")
    terminal.until_shown("Head", "TLS, and was not decrypted")
    terminal.press("Home")
    terminal.until_shown("Keys")
    terminal.press("Escape")
    terminal.until_shown("[1 API]")


def test_hold_and_zero(terminal: Pane) -> None:
    play(terminal, speed=SLOW)
    clock = re.compile(r"(\d\d:\d\d:\d\d) UTC")

    def time_on(lines: list[str]) -> str:
        found = clock.search(lines[0])
        return found[1] if found else ""

    before = terminal.until(lambda lines: lines[5] != "" and "req/s" in lines[4])
    terminal.until(lambda lines: time_on(lines) > time_on(before))
    terminal.press("p")
    held = terminal.until_shown("HELD at")
    assert terminal.until_still(25) == held
    terminal.press("2")
    assert time_on(terminal.until_shown("[2 client]", "HELD at")) == time_on(held)
    terminal.press("Space")
    terminal.until(lambda lines: "HELD" not in lines[3] and time_on(lines) > time_on(held))
    since = re.compile(r"counts since (\d\d:\d\d:\d\d)")
    started = since.search(terminal.lines()[0])
    assert started is not None
    terminal.press("z")
    terminal.until(lambda lines: (found := since.search(lines[0])) is not None and found[1] > started[1])


def test_sizes(terminal: Pane) -> None:
    draw = expected()
    play(terminal)
    until_middle(terminal, draw(Page("table", "api")))
    terminal.press("2")
    for width, height in ((60, 15), (200, 50), (30, 8), (10, 3), (80, 24)):
        terminal.resize(width, height)
        if height >= 14:
            until_middle(terminal, draw(Page("table", "client"), width, height))
        else:
            first = draw(Page("table", "client"), width, 24)[1]
            terminal.until(lambda lines, first=first, height=height: first in lines and len(lines) == height + 1)
        terminal.resize(80, 24)
        until_middle(terminal, draw(Page("table", "client")))


@pytest.mark.parametrize(
    "variables",
    [{"NO_COLOR": "1"}, {"TERM": "vt100"}, pytest.param({"TERM": "xterm-mono"}, marks=pytest.mark.long), {}],
)
def test_colours_only_where_they_are_wanted(terminal: Pane, variables: dict[str, str]) -> None:
    play(terminal, **variables)
    until_middle(terminal, expected()(Page("table", "api")))
    shown = terminal.text(attributes=True)
    assert bool(COLOR.search(shown)) == (not variables)
    assert "\x1b[7m" in shown or "\x1b[0;7m" in shown  # the chosen row
    assert terminal.lines()[3].startswith("[1 API]")


NASTY = "\x1b[31m\x1b]0;title\x07\x1b[2J[bold red]x[/]\r\n\t\x9b2J\u202eevil\u200b\ufeff"


def test_hostile_names(terminal: Pane, tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    raw = NASTY.encode()
    talk.exchange(METADATA, 1, 1000)
    for n in range(60):
        head = struct.pack(">hhih", METADATA, 1, n, len(raw)) + raw
        talk.tcp.send(0, kafka_frame(head + body(METADATA, 1, 0, Topics=[{"Name": NASTY}])))
        topic = {"Name": NASTY, "ErrorCode": 5120}
        talk.tcp.wait(100_000_000)
        talk.tcp.send(1, kafka_frame(struct.pack(">i", n) + body(METADATA, 1, 1, Topics=[topic])))
    path = tmp_path / "nasty.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    play(terminal, path, FAST // 4, (200, 30))
    title = terminal.told("pane_title")
    escaped = r"\x1b[31m\x1b]0;title\x07\x1b[2J[bold red]x"
    terminal.press("w", "w", "2")
    terminal.until_shown(escaped, "5120 (no name)", "[2 client]")
    terminal.press("3")
    terminal.until_shown(escaped, "[3 topic]")
    terminal.press("2", "Enter")
    terminal.until_shown("client " + escaped + r"[/]\x0d\x0a\x09\x9b2J\u202eevil\u200b\ufeff", "Metadata v1")
    terminal.press("l")
    terminal.until_shown("last messages: client " + escaped)
    assert terminal.told("pane_title") == title


@pytest.mark.parametrize("key", ["q", "C-c", pytest.param("C-q", marks=pytest.mark.long)])
def test_quitting_restores_the_terminal(terminal: Pane, key: str) -> None:
    play(terminal)
    assert terminal.told("alternate_on") == "1"
    terminal.press(key)
    assert terminal.until_ended() == 0
    assert terminal.told("alternate_on") == "0"
    assert terminal.told("cursor_flag") == "1"
    terminal.until_shown("the screen has ended")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_end_it_and_restore_the_terminal(terminal: Pane, name: str) -> None:
    play(terminal)
    os.kill(terminal.pid, getattr(signal, name))
    assert terminal.until_ended() == 0
    assert terminal.told("alternate_on") == "0"
    terminal.until_shown("the screen has ended")


@pytest.mark.parametrize("ignored", [False, True])
def test_when_the_terminal_is_gone_it_ends_without_a_word(terminal: Pane, tmp_path: Path, ignored: bool) -> None:
    """Also where nobody hears the SIGHUP."""
    said = tmp_path / "said"
    play(terminal, speed=SLOW, redirect=f"2>{said}", **({"IGNORE_SIGHUP": "1"} if ignored else {}))
    terminal.until(lambda lines: lines[5] != "")
    terminal.tmux("kill-server")
    until_gone(terminal.pid)
    assert said.read_text() == "the screen has ended\n"


def test_a_terminal_that_takes_nothing_keeps_nobody_from_ending_it() -> None:
    """As with a session whose network is away: all is written, and nothing read."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 500, 0, 0))
    command = [sys.executable, "-m", "tests.live.on_screen", str(SAMPLE), str(SLOW * 5), "utc"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment(), cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        assert select.select([ours], [], [], PATIENCE)[0]  # it began to write
        for _ in range(20):  # and went on until nothing more was taken
            time.sleep(0.1)
        process.terminate()
        assert process.communicate(timeout=PATIENCE) == (None, b"the screen has ended\n")
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def test_suspending(terminal: Pane) -> None:
    """Ctrl-Z gives the terminal back to the shell, `fg` brings the screen back."""
    command = shlex.join([sys.executable, "-m", "tests.live.on_screen", str(SAMPLE), str(FAST), "utc"])
    terminal.start("bash --norc -i", 80, 24)
    terminal.press(command, "Enter")
    terminal.until_shown("kafkatap live", "[1 API]")
    terminal.press("C-z")
    terminal.until_shown("Stopped")
    assert terminal.told("alternate_on") == "0"
    terminal.press("fg", "Enter")
    terminal.until_shown("kafkatap live", "[1 API]")
    terminal.press("q")
    terminal.until_shown("the screen has ended")


@pytest.mark.skipif(bool(network.missing(admin=True)), reason=network.missing(admin=True))
def test_what_is_told_meanwhile_is_shown_and_said_again_at_the_end(terminal: Pane) -> None:
    with network.veth_pair() as veth:
        command = [sys.executable, "-m", "kafkatap", "live", "-i", veth.far, "--no-report"]
        terminal.start(shlex.join(command), 100, 24)  # the line fits, however long the interface's name
        terminal.until_shown("kafkatap live", "[1 API]")
        network.ip("link", "set", veth.far, "down")
        told = f"{veth.far}: network is down; packets are captured again once it is back"
        lines = terminal.until_shown(told)
        assert lines[22].rstrip() == told
        assert lines[23].startswith("1-9 view")
        network.ip("link", "set", veth.far, "up")
        terminal.until_shown(f"{veth.far} is up again")
        terminal.press("q")
        assert terminal.until_ended() == 0
        terminal.until_shown(f"kafkatap: {told}", f"kafkatap: {veth.far} is up again")


@pytest.mark.skipif(bool(network.missing()), reason=network.missing())
def test_the_packets_of_a_row_are_saved_while_others_are_captured(terminal: Pane, tmp_path: Path) -> None:
    recording = tmp_path / "x.pcap"
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [server.getsockname()[1] for server in servers]
        words = [
            *KAFKATAP,
            "live",
            "-i",
            "lo",
            "--user",
            "root",
            "--write-pcap",
            str(recording),
            "--on",
            "latency > 1h",
        ]
        terminal.start(shlex.join([*words, " or ".join(f"tcp port {port}" for port in ports)]), 120, 24)
        terminal.until_shown("kafkatap live", "level full")
        terminal.press("4")
        terminal.until_shown("[4 broker]")
        for server, port, count in zip(servers, ports, (60, 5), strict=True):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            Talk(port, client, stack.enter_context(server.accept()[0])).request(count)
        lines = terminal.until_shown(*(f"127.0.0.1:{port}" for port in ports))
        assert next(line for line in lines if line.startswith("127.0.0.1:")).startswith(f"127.0.0.1:{ports[0]}")
        terminal.press("d")
        terminal.until(lambda lines: "x-saved-" in "".join(lines) and f"127.0.0.1:{ports[0]}, of" in " ".join(lines))
    (saved,) = tmp_path.glob("x-saved-*.pcapng")
    assert saved.stat().st_mode & 0o777 == 0o600
    rows = kafkatap.analyze(saved).exchanges
    assert set(rows["broker_port"].to_pylist()) == {ports[0]}
    assert len(rows) == 60
    terminal.press("q")
    assert terminal.until_ended() == 0
