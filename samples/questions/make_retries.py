"""Record retries of unanswered Produce requests: `retries.pcap.zst`, with the batches of the broker's log beside it.

    python samples/questions/make_retries.py [FOLDER]        (as root: tcpdump records loopback)

A proxy between the clients and the broker cuts connections (tests/support/cutting_proxy.py). The recording is of the
broker's port, so the proxy's connections are the clients. `idempotent` loses a response and is reset before another:
its retries have the same sequence and the broker deduplicates them. `plain` (enable.idempotence=false) has the same
cuts: its retries are appended twice. `careless` (retries=0) reports a failure, and its record is in the log. In the
end the broker is killed with SIGKILL and restarted while `steady` and `plain-steady` write.
`retries.log.tsv` has the batches of the log; `retries.truth.json` the cuts, and what each client was answered;
`retries.client.log.tsv` the clients' own lines about requests without a response.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.cutting_proxy import CuttingProxy  # noqa: E402
from tests.support.dumped_logs import dumped  # noqa: E402
from tests.support.questions import Answer, ClientError, Scene, log_lines, now_ms, question_main, scene  # noqa: E402

PLAIN = {"enable.idempotence": "false", "acks": "1", "retries": 5, "max.in.flight.requests.per.connection": 1}
CLIENTS: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "plain": PLAIN,
    "careless": PLAIN | {"retries": 0},
    "steady": {"max.in.flight.requests.per.connection": 5},
    "plain-steady": PLAIN,
}
TOPICS = {"orders": 1, "audit": 1, "refunds": 1, "payments": 1, "shipments": 1}
#: Lines of the clients' logs: a request without a response, and what the producer does then.
CUT_OFF = r"Cancelled in-flight PRODUCE|Got error produce response"
TOPIC_OF = dict(zip(CLIENTS, TOPICS, strict=True))


def play(made: Scene, proxy: CuttingProxy) -> None:
    made.create_topics(TOPICS)
    shell = made.java_clients(bootstrap=f"127.0.0.1:{proxy.port}")
    sent: list[tuple[str, Answer]] = []

    def send(client: str, **options: Any) -> Answer:
        answer = shell.start(client, "send", topic=TOPIC_OF[client], bytes=60, partition=0, **options)
        sent.append((client, answer))
        return answer

    for client, options in CLIENTS.items():
        shell.do(client, "producer", {"retry.backoff.ms": 100, "linger.ms": 0, **options})
        send(client, count=2).ready.wait(30)
    for kind in ("response", "reset", "request"):
        for client in ("idempotent", "plain", "careless"):
            proxy.cut(client, kind)
            send(client).ready.wait(30)
            send(client).ready.wait(30)
    for client in ("steady", "plain-steady"):
        send(client, count=500, interval_ms=4)
    time.sleep(1)
    made.truth["killed_ms"] = now_ms()
    made.broker.restart()
    made.truth["restarted_ms"] = now_ms()
    for _, answer in sent:
        answer.ready.wait(60)
    for client in CLIENTS:
        shell.do(client, "close")
    made.truth["clients"] = {client: {"topic": TOPIC_OF[client]} | options for client, options in CLIENTS.items()}
    made.truth["cuts"] = proxy.cuts
    made.truth["sent"] = [(a.sent_ms, a.done_ms, client, offsets_of(a)) for client, a in sent]
    made.files["client.log.tsv"] = "".join(f"{at}\t{text}\n" for at, text in log_lines(shell.log, CUT_OFF))
    made.files["log.tsv"] = dumped(made.broker.jars, made.broker.folder / "logs", list(TOPICS))


def offsets_of(answer: Answer) -> str:
    """The offsets that a client was answered, with runs as FIRST-LAST, or its error."""
    try:
        offsets = [int(word.partition(":")[2]) for word in answer.result().split()]
    except ClientError as error:
        return str(error)
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def record(folder: Path) -> None:
    loggers = {"org.apache.kafka.clients": "info", "org.apache.kafka.clients.producer.ProducerConfig": "warn"}
    with CuttingProxy() as proxy, scene("retries", folder, client_loggers=loggers, advertised=proxy.port) as made:
        proxy.broker_port = made.broker.port
        play(made, proxy)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
