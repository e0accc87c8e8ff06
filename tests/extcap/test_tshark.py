"""tshark lists our interfaces, and captures the traffic of a real client and broker through them.

tshark heeds WIRESHARK_EXTCAP_DIR only for users other than root, so it runs as nobody, with the capability to capture.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cli.running import ROOT, environment
from tests.live import network
from tests.live.running import Capturing, wait_for
from tests.live.test_capability import cache_of, privileges, reading
from tests.support.broker import KafkaBroker

WHY_NOT = network.missing("tshark", "dumpcap", "setpriv")
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def tshark() -> Iterator[list[str]]:
    """The beginning of a command line of tshark, with our program in its extcap folder and nothing installed."""
    before = privileges("nobody", "net_raw", *reading("nobody"))
    # pytest's own temporary folder is for its user alone.
    with tempfile.TemporaryDirectory() as made, cache_of("nobody") as cache:
        home, extcap = Path(made, "home"), Path(made, "extcap")
        for path, mode in ((Path(made), 0o755), (home, 0o777), (extcap, 0o755)):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        program = extcap / "kafkatap-extcap"
        script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kafkatap extcap "$@"\n'
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)
        names = {"HOME": home, "XDG_CONFIG_HOME": home, "WIRESHARK_EXTCAP_DIR": extcap, "KAFKATAP_CACHE": cache,
                 "PYTHONPATH": ROOT, "TMPDIR": home}  # fmt: skip
        yield [*before, "env", *(f"{name}={value}" for name, value in names.items()), "tshark"]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tshark_lists_the_interfaces(tshark: list[str]) -> None:
    assert "kafkatap-lo (Kafka exchanges on lo)" in run(*tshark, "-D")


@pytest.mark.parametrize("only", ["all", "failed"])
def test_tshark_captures_kafka(tshark: list[str], only: str, kafka_broker: KafkaBroker) -> None:
    """On the broker's port, whatever it is. It ends by itself after its packets, and so does our program."""
    port = kafka_broker.bootstrap.rpartition(":")[2]
    fields = ["-T", "fields", "-e", "tcp.port", "-e", "frame.comment", "-E", "separator=|"]
    command = [*tshark, "-l", "-i", "kafkatap-lo", "-o", f"extcap.kafkatap_lo.exchanges:{only}", "-c", "20", *fields]
    with Capturing(command) as capturing:
        wait_for(lambda: "Capturing on" in capturing.err(), 60, capturing.err)
        end = time.monotonic() + 60
        while capturing.process.poll() is None and time.monotonic() < end:
            producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "client.id": "extcap"})
            # A topic that is not there: the response has an error code.
            producer.list_topics(f"missing-{time.monotonic_ns()}", timeout=20)
            time.sleep(0.2)
        done = capturing.finish(20)
    assert done.code == 0, done.err
    lines = [line.split("|") for line in done.out.splitlines() if line]
    assert len(lines) == 20
    assert any(port in ports.split(",") for ports, _ in lines)
    comments = [text for _, text in lines if text]
    assert comments
    assert all(text.startswith("kafkatap: ") for text in comments)
    if only == "failed":
        assert any("UNKNOWN_TOPIC_OR_PARTITION" in text for text in comments)
        assert "BrokerHeartbeat" not in "".join(comments)
