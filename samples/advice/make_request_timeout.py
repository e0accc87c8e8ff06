"""Record clients that give up before the broker answers: `request-timeout.pcap.zst`, `request-timeout-right.pcap.zst`.

    python samples/advice/make_request_timeout.py [FOLDER]        (as root: tcpdump records loopback)

`report` reads the empty topic `alerts` with fetch.max.wait.ms=3000 and request.timeout.ms=1000: no Fetch is answered in
time. `checkout` writes to `orders` with request.timeout.ms=800 while the broker stops (SIGSTOP) for 1.5 s four times;
`billing` does so with 30 s. In the second recording all have request.timeout.ms=30000. `*.client.log.tsv` has the
clients' lines about timeouts (time in ms, text), the truth the times of the stops in ms.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.questions import Scene, log_lines, now_ms, question_main, stage  # noqa: E402

PRODUCER = {"linger.ms": 0, "retry.backoff.ms": 100, "delivery.timeout.ms": 120_000}
LINES = r"due to request timeout"


def stopped(made: Scene, seconds: float) -> list[int]:
    """Stop the broker's process for a while: from, to."""
    start = now_ms()
    made.broker.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        made.broker.process.send_signal(signal.SIGCONT)
    return [start, now_ms()]


def play(made: Scene, name: str, reader_ms: int, writer_ms: int) -> None:
    shell = made.java_clients(name)
    reading = {"topics": "alerts", "request.timeout.ms": reader_ms, "fetch.max.wait.ms": 3000}
    shell.do("report", "consumer", reading | {"default.api.timeout.ms": 30_000})
    shell.do("checkout", "producer", PRODUCER | {"request.timeout.ms": writer_ms})
    shell.do("billing", "producer", PRODUCER | {"request.timeout.ms": 30_000})
    for client in ("checkout", "billing"):
        shell.do(client, "send", topic="orders", bytes=60)
    time.sleep(7)
    writing = [
        shell.start(client, "send", topic="orders", count=24, bytes=60, interval_ms=500)
        for client in ("checkout", "billing")
    ]
    stops = []
    for _ in range(4):
        stops.append(stopped(made, 1.5))
        time.sleep(1.5)
    for answer in writing:
        answer.result()
    for client in ("checkout", "billing", "report"):
        shell.do(client, "close")
    shell.stop()
    lines = log_lines(shell.log, LINES)
    made.files["client.log.tsv"] = "".join(f"{at}\t{text}\n" for at, text in lines)
    made.truth.update(stops=stops, reader_ms=reader_ms, writer_ms=writer_ms)


def record(folder: Path) -> None:
    with stage(client_loggers={"org.apache.kafka.clients": "info"}) as made:
        made.create_topics({"orders": 1, "alerts": 1})
        for name, reader_ms, writer_ms in (
            ("request-timeout", 1000, 800), ("request-timeout-right", 30_000, 30_000)
        ):  # fmt: skip
            with made.recording(name, folder):
                play(made, name, reader_ms, writer_ms)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
