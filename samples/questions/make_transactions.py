"""Record transactions: `transactions.pcap.zst`, with the batches and markers of the broker's log beside it.

    python samples/questions/make_transactions.py [FOLDER]        (as root: tcpdump records loopback)

`settlement` commits three transactions and aborts one. `holder` keeps one open for four seconds, so `ledger`, which
reads committed records, waits. `payout-old` is fenced in its transaction by `payout-new`, with the same transactional
id. `forgetful` never ends its transaction: the coordinator aborts it after two seconds. `librd-settlement` is
librdkafka, which adds partitions by AddPartitionsToTxn. `loader` is idempotent without transactions.
`transactions.log.tsv` has the batches of the log; `transactions.truth.json` the steps and their results, and the output
of kafka-transactions while `holder` and `forgetful` keep theirs open.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Producer  # noqa: E402

from tests.support.dumped_logs import dumped  # noqa: E402
from tests.support.questions import ClientError, Scene, now_ms, question_main, scene  # noqa: E402

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "inter.broker.listener.name": "CLIENTS",  # so that WriteTxnMarkers, from the broker to itself, are recorded
}
TOPICS = ("orders", "refunds")


class Steps:
    """The steps of the Java clients: start and end in ms, client, verb, result or error."""

    def __init__(self, made: Scene) -> None:
        self.shell = made.java_clients()
        self.noted: list[tuple[int, int, str, str, str]] = []

    def do(self, client: str, verb: str, options: dict[str, Any] | None = None, **more: Any) -> None:
        answer = self.shell.start(client, verb, options, **more)
        try:
            text = answer.result()
        except ClientError as error:
            text = str(error)
        self.noted.append((answer.sent_ms, answer.done_ms, client, verb, text))

    def transaction(self, client: str, end: str, topic: str = "orders", count: int = 3) -> None:
        self.do(client, "begin")
        self.do(client, "send", topic=topic, count=count, bytes=60)
        self.do(client, end)


def librdkafka(made: Scene) -> list[tuple[int, int, str, str, str]]:
    """A committed and an aborted transaction of librdkafka."""
    producer = Producer(
        {
            "bootstrap.servers": made.broker.bootstrap, "client.id": "librd-settlement",
            "transactional.id": "librd-settlement",
        }
    )  # fmt: skip
    producer.init_transactions(20)
    noted = []
    for end in (producer.commit_transaction, producer.abort_transaction):
        start = now_ms()
        producer.begin_transaction()
        for number in range(4):
            producer.produce("refunds", b"z" * 50, str(number).encode())
        producer.flush(10)
        end(20)
        noted.append((start, now_ms(), "librd-settlement", end.__name__.partition("_")[0], ""))
    return noted


def play(made: Scene) -> None:
    made.create_topics({"orders": 2, "refunds": 1})
    steps = Steps(made)
    reading = {"isolation.level": "read_committed", "group.id": "ledger", "topics": "orders,refunds"}
    steps.do("ledger", "consumer", reading)
    for client, transactional_id in (
        ("settlement", "settlement"), ("holder", "holder"), ("payout-old", "payout"), ("forgetful", "forgetful"),
    ):  # fmt: skip
        options = {"transactional.id": transactional_id}
        if client == "forgetful":
            options["transaction.timeout.ms"] = "2000"
        steps.do(client, "producer", options)
        steps.do(client, "init")
    steps.do("loader", "producer")
    steps.do("loader", "send", topic="orders", count=5, bytes=60)
    steps.transaction("settlement", "commit")
    steps.transaction("settlement", "abort", "refunds")
    for client in ("holder", "forgetful"):
        steps.do(client, "begin")
        steps.do(client, "send", topic="orders", count=2, bytes=60, partition=0)
    opened = time.monotonic()
    steps.transaction("settlement", "commit")
    made.truth["open"] = {"from_ms": now_ms(), "list": made.tool(COMMAND, "list"), "to_ms": now_ms()}
    steps.transaction("settlement", "commit", "refunds")
    steps.do("payout-old", "begin")
    steps.do("payout-old", "send", topic="refunds", count=1, bytes=60)
    steps.do("payout-new", "producer", {"transactional.id": "payout"})
    steps.do("payout-new", "init")
    steps.do("payout-old", "send", topic="refunds", count=1, bytes=60)
    steps.do("payout-old", "commit")
    steps.transaction("payout-new", "commit", "refunds")
    steps.noted += librdkafka(made)
    time.sleep(max(0.0, opened + 4 - time.monotonic()))
    steps.do("holder", "commit")
    steps.do("forgetful", "commit")
    time.sleep(1)
    for client in ("settlement", "holder", "forgetful", "payout-old", "payout-new", "loader", "ledger"):
        steps.do(client, "close")
    made.truth["steps"] = sorted(steps.noted)
    made.files["log.tsv"] = dumped(made.broker.jars, made.broker.folder / "logs", TOPICS)


def record(folder: Path) -> None:
    with scene("transactions", folder, properties=PROPERTIES) as made:
        play(made)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
