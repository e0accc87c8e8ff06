"""Live beside `ss`, and beside a real broker: what it says is there is there, within an interval."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from tests.support import broker as kafka
from tests.support.tcp import request_frame

from . import network
from .running import Live, wait_for
from .test_signals import Talk, lines_of, on_loopback

WHY_NOT = network.missing("ss")
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

METADATA = 3


def established(port: int) -> int:
    """Connections that a broker on this port has, as the system says."""
    command = ["ss", "-Htn", "state", "established", "sport", "=", f":{port}"]
    return len(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines())


def parsed(live: Live) -> list[dict[str, str]]:
    """All lines so far."""
    return [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines_of(live.out())]


def last(live: Live) -> dict[str, str]:
    """The newest line."""
    return (parsed(live) or [{}])[-1]


def summed(live: Live, key: str) -> int:
    return sum(int(line[key]) for line in parsed(live))


def until(live: Live, what: Callable[[dict[str, str]], bool], seconds: float = 15.0) -> None:
    """Until a line says so. Lines come every second; a busy machine may take longer."""
    wait_for(lambda: bool(line := last(live)) and what(line), seconds, lambda: f"last: {last(live)}")


@contextmanager
def connected(server: socket.socket, count: int) -> Iterator[list[Talk]]:
    with ExitStack() as stack:
        talks = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(server.getsockname()))
            accepted = stack.enter_context(server.accept()[0])
            talks.append(Talk(server.getsockname()[1], client, accepted))
        yield talks


def test_connections_and_what_waits_are_those_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, connected(server, 24) as talks:
        port = talks[0].port
        with Live(*on_loopback(talks[0], "--plain", "--no-report")) as live:
            live.wait_ready()
            for talk in talks:
                talk.request(2)
            until(live, lambda line: line["connections"] == "24" == str(established(port)))
            for talk in talks[:7]:
                talk.client.sendall(request_frame(METADATA, 0, 9, "waits", bytes(4)))
            until(live, lambda line: line["waiting"] == "7")
            for talk in talks[:3]:  # one end closes, then the other
                talk.client.close()
                talk.broker.close()
            reset = talks[3].client
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            reset.close()
            until(live, lambda line: line["connections"] == "20" == str(established(port)))
            until(live, lambda line: line["waiting"] == "3")
            assert summed(live, "unanswered") == 4
            assert summed(live, "resets") >= 1
            done = live.end()
    assert done.code == 0


def test_an_outage_shows_within_an_interval() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, connected(server, 1) as talks:
        (talk,) = talks
        with Live(*on_loopback(talk, "--plain", "--no-report")) as live:
            live.wait_ready()
            talk.request(3)
            until(live, lambda line: line["connections"] == "1")
            server.close()
            for _ in range(5):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", talk.port))
            asked = time.time()
            wait_for(lambda: summed(live, "refused") == 5, 15, live.out)
            told = [line for line in parsed(live) if line["refused"] != "0"]
            assert datetime.fromisoformat(told[-1]["time"]).timestamp() - asked < 2.5
            live.end()


@pytest.mark.skipif(bool(kafka.missing()), reason=kafka.missing() or "")
def test_a_real_broker_its_producers_without_acks_and_its_end(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    with kafka.KafkaBroker.start(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("sensors", 1, 1)])["sensors"].result(20)
        del admin  # its connection would be there, and never heard of
        arguments = ["-i", "lo", "--plain", "--no-report", "--interval", "1s", f"tcp port {broker.port}"]
        with Live(*arguments) as live:
            live.wait_ready()
            producer = Producer({
                "bootstrap.servers": broker.bootstrap, "acks": 0, "linger.ms": 0, "batch.num.messages": 1,
                "client.id": "sensor", "log_level": 0, "reconnect.backoff.max.ms": 200,
            })  # fmt: skip
            producer.produce("sensors", b"first")
            producer.flush(20)
            sent, end = 0, time.monotonic() + 6
            rates = []
            while time.monotonic() < end:
                producer.produce("sensors", b"reading")
                sent += 1
                producer.poll(0)
                time.sleep(0.01)
                if time.monotonic() > end - 4:
                    rates.append(float(last(live).get("requests_s", 0)))
            producer.flush(10)
            assert min(rates) > 0.5 * sent / 6
            assert int(last(live)["waiting"]) <= 2
            until(live, lambda line: line["connections"] == str(established(broker.port)))
            broker.stop()  # librdkafka tries again and again
            stopped = len(parsed(live))
            wait_for(lambda: any(line["refused"] != "0" for line in parsed(live)[stopped:]), 15, live.out)
            del producer
            live.end()
