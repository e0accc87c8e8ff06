"""What `kafkatap keys` costs a busy broker: turns with and without it.

    python -m benchmarks.keys_agent [--turns 10] [--seconds 180] [--rate 2000]        (Java, Maven)

Each turn is a run of Kafka's own ProducerPerformance over TLS 1.3, with 20 handshakes a second of other clients beside
it. In every second turn the secrets are taken for the whole turn. Prints a Markdown table: the latency that
ProducerPerformance reports, the duration of handshakes, the broker's safepoints by its own log, and its threads and
classes at the end of the turn by jcmd; then how many exceptions are in the broker's log, and the medians of both kinds.
"""

from __future__ import annotations

import argparse
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.authority import Authority  # noqa: E402
from tests.support.broker import KafkaBroker, free_ports, java_command  # noqa: E402

_LATENCIES = re.compile(
    r"([\d.]+) ms avg latency, ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th"
)
_SAFEPOINT = re.compile(r"Total: +(\d+) ns")
#: Seconds between handshakes.
_PAUSE = 0.05


class Turn(NamedTuple):
    """Times in ms."""

    has_keys: bool
    p50: float
    p99: float
    most: float
    handshake_p50: float
    handshake_p99: float
    safepoints: int
    longest_safepoint: float
    threads: int
    classes: int
    lines: int


class Handshakes(threading.Thread):
    """Connects again and again, and times each handshake."""

    def __init__(self, port: int, trusted: Path) -> None:
        super().__init__(daemon=True)
        self._port, self._context = port, ssl.create_default_context(cafile=str(trusted))
        self.is_over = threading.Event()
        self.times: list[float] = []

    def run(self) -> None:
        while not self.is_over.wait(_PAUSE):
            with socket.create_connection(("127.0.0.1", self._port), timeout=20) as plain:
                began = time.perf_counter()
                with self._context.wrap_socket(plain, server_hostname="localhost"):
                    self.times.append(1e3 * (time.perf_counter() - began))


@contextmanager
def keys_taken(pid: int, seconds: int, out: Path, is_wanted: bool) -> Iterator[None]:
    if not is_wanted:
        yield
        return
    command = [sys.executable, "-m", "kafkatap", "keys", "--pid", str(pid), "--duration", f"{seconds + 60}s", "--yes"]
    taking = subprocess.Popen([*command, "-o", str(out)], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        taking.send_signal(signal.SIGINT)
        _, said = taking.communicate(timeout=30)
        if taking.returncode:
            raise SystemExit(said)


def turn(
    broker: KafkaBroker, work: Path, port: int, trusted: Path, options: argparse.Namespace, has_keys: bool
) -> Turn:
    """Run one turn."""
    safepoints = work / "safepoints.log"
    before = safepoints.stat().st_size
    secrets = work / "keys.log"
    secrets.unlink(missing_ok=True)
    shaking = Handshakes(port, trusted)
    arguments = [
        "--topic", "orders", "--num-records", str(options.rate * options.seconds), "--record-size", "500",
        "--throughput", str(options.rate), "--producer.config", str(work / "client.properties"),
    ]  # fmt: skip
    with keys_taken(broker.process.pid, options.seconds, secrets, has_keys):
        shaking.start()
        command = java_command(broker.jars, "org.apache.kafka.tools.ProducerPerformance", arguments)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.seconds + 120, check=True, stdin=subprocess.DEVNULL
        )
        shaking.is_over.set()
        shaking.join(30)
    found = _LATENCIES.findall(done.stdout)[-1]
    stops = [int(ns) / 1e6 for ns in _SAFEPOINT.findall(safepoints.read_text()[before:])]
    times = sorted(shaking.times)
    return Turn(
        has_keys, float(found[2]), float(found[4]), float(found[1]), statistics.median(times),
        times[int(0.99 * (len(times) - 1))], len(stops), max(stops, default=0.0),
        sum(line.startswith('"') for line in _jcmd(broker, "Thread.print").splitlines()), _classes(broker),
        len(secrets.read_text().splitlines()) if has_keys else 0,
    )  # fmt: skip


def _jcmd(broker: KafkaBroker, *words: str) -> str:
    command = ["jcmd", str(broker.process.pid), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _classes(broker: KafkaBroker) -> int:
    found = re.search(r"([\d,]+) classes", _jcmd(broker, "VM.metaspace"))
    return int(found[1].replace(",", "")) if found else -1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keys-agent-") as name:
        work = Path(name)
        authority = Authority(work)
        plain, tls, controller = free_ports(3)
        listeners = f"PLAIN://127.0.0.1:{plain},TLS://localhost:{tls}"
        properties = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}", "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}", "inter.broker.listener.name": "PLAIN",
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
            "auto.create.topics.enable": "true",
        } | authority.key_store("made-up-4711")  # fmt: skip
        (work / "client.properties").write_text(
            f"bootstrap.servers=localhost:{tls}\nsecurity.protocol=SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={authority.certificate}\nssl.endpoint.identification.algorithm=\n"
        )
        jvm = [f"-Xlog:safepoint:file={work}/safepoints.log"]
        with KafkaBroker.start(work / "broker", port=plain, properties=properties, jvm=jvm) as broker:
            short = argparse.Namespace(**{**vars(options), "seconds": 10})
            turn(broker, work, tls, authority.certificate, short, False)  # compiles the broker's code
            turn(broker, work, tls, authority.certificate, short, True)
            turns = []
            print("| keys | p50 | p99 | max | handshake p50 | p99 | safepoints | longest | threads | classes | lines |")
            print("|---|---|---|---|---|---|---|---|---|---|---|")
            for number in range(options.turns):
                turns.append(turn(broker, work, tls, authority.certificate, options, bool(number % 2)))
                print(_row(turns[-1]), flush=True)
            exceptions = [line for line in broker.log().splitlines() if "xception" in line]
    print()
    for has_keys in (False, True):
        same = [each for each in turns if each.has_keys == has_keys]
        medians = [statistics.median(values) for values in zip(*(each[1:] for each in same), strict=True)]
        print(f"median {'with' if has_keys else 'without'}:", _row(Turn(has_keys, *medians)))
    print(f"{len(exceptions)} exceptions in the broker's log")
    return 0


def _row(turn: Turn) -> str:
    cells = [f"{value:.2f}" if isinstance(value, float) else f"{value:,}" for value in turn[1:]]
    return f"| {'yes' if turn.has_keys else 'no'} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
