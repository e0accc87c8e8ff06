"""Options of limits, as `kafkatap live` uses them."""

from __future__ import annotations

import json
import mmap
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import parse
from kafkatap.commands.live.command import _engine
from kafkatap.commands.values import read_options
from kafkatap.live.memory_limits import MemoryLimits, memory_limits
from tests.support.tcp import frame
from tests.wire.kafkatalk import API_VERSIONS, METADATA, body, raw_request
from tests.wire.worst_messages import named_worst

from .network import missing
from .running import Live


def test_the_defaults_of_the_monitor_are_below_those_of_the_engine() -> None:
    """So that names are forgotten before new ones are refused."""
    options = parse(["live"])
    assert (options.max_connections, options.max_waiting, options.max_names) == (None, None, None)
    assert memory_limits(None, None, None) == MemoryLimits()
    assert MemoryLimits().strings < _engine(options, [], read_options(options)).limits.names


def test_options_set_the_limits_of_both() -> None:
    options = parse(
        ["live", "--max-names", "4000", "--max-waiting", "70", "--max-connections", "8", "--max-held", "1m"]
    )
    engine = _engine(options, [], read_options(options))
    limits = memory_limits(options.max_connections, options.max_waiting, options.max_names)
    assert (limits.strings, limits.addresses, limits.rows) == (4_000, 4_000, 200)
    assert limits.strings < engine.limits.names
    assert (limits.waiting, limits.connections) == (70, 8)
    assert (engine.limits.waiting, engine.limits.connections, engine.limits.held) == (70, 8, 1 << 20)


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_memory_comes_back_after_the_worst_message() -> None:
    """A process captures a response with 1.6 million partitions, beside small ones."""
    worst = named_worst("Metadata v13 response Topics.Partitions").body(40_000_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            Live("-i", "lo", "--plain", "--json", "--buffer-size", "64m", "tcp", "port", port) as live,
            socket.create_connection(("127.0.0.1", port)) as client,
            server.accept()[0] as broker,
        ):
            live.wait_ready()

            def exchange(api_key: int, version: int, number: int, answer: bytes) -> None:
                client.sendall(raw_request(api_key, version, number, body(api_key, version, 0)))
                broker.recv(4_096)
                reader = threading.Thread(target=client.recv, args=(len(answer) + 8, socket.MSG_WAITALL))
                reader.start()
                whole = memoryview(frame(struct.pack("!i", number) + answer))
                for at in range(0, len(whole), 1 << 20):  # a small buffer has room for it
                    broker.sendall(whole[at : at + (1 << 20)])
                    time.sleep(0.02)
                reader.join()

            for number in range(30):
                exchange(API_VERSIONS, 0, number, body(API_VERSIONS, 0, 1))
            before = peak = rss(live.process.pid)
            exchange(METADATA, 13, 30, worst)
            end = time.monotonic() + 12
            while time.monotonic() < end:
                peak = max(peak, now := rss(live.process.pid))
                if peak > 1.2 * before and now < 1.15 * before:
                    break
                time.sleep(0.02)
            report = json.loads(live.end().out)
    assert report
    assert peak > 1.2 * before, "the message takes memory"
    assert now <= 1.2 * before


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_json_report_counts_the_connections_that_it_left_out() -> None:
    """Of 30 connections, one after the other, it keeps rows of about the last three."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        arguments = ["-i", "lo", "--plain", "--json", "--max-connections", "3", "tcp", "port", port]
        with Live(*arguments) as live:
            live.wait_ready()
            for _ in range(30):
                socket.create_connection(("127.0.0.1", port)).close()
                server.accept()[0].close()
                time.sleep(0.1)
            done = live.end()
    report = json.loads(done.out)
    left_out = report["capture"]["left_out_connections"]
    assert left_out > 0
    assert report["capture"]["connections"] + left_out == 30
    assert (
        f"{left_out} more connections ended first, and are in no number of connections of this report."
        in (report["warnings"])
    )
    assert "ended first" not in done.err
