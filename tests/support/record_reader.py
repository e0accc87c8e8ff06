"""A consumer that dies at the first record that is no JSON, as a program: for samples.

    python -m tests.support.record_reader BOOTSTRAP SETTINGS

SETTINGS is a JSON object: `skips` (it skips such a record instead), `topic`, and `consumer`, the settings of the
consumer. It dies with status 1 and leaves no word: no LeaveGroup, no commit. Each line of the output is a JSON array:
the time in ms since the epoch, "assigned", "skipped" or "died", and the partitions, or the partition and the offset of
the record.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition


def say(word: str, numbers: list[int | None]) -> None:
    print(json.dumps([time.time_ns() // 1_000_000, word, numbers]), flush=True)


def main(bootstrap: str, given: str) -> None:
    settings: dict[str, Any] = json.loads(given)
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings["consumer"]})

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        say("assigned", [each.partition for each in partitions])

    consumer.subscribe([settings["topic"]], on_assign=assigned)
    while True:
        message = consumer.poll(1)
        if message is None or message.error() is not None:
            continue
        try:
            json.loads(message.value() or b"")
        except ValueError:
            if not settings["skips"]:
                say("died", [message.partition(), message.offset()])
                os._exit(1)
            say("skipped", [message.partition(), message.offset()])
        consumer.store_offsets(message)


if __name__ == "__main__":
    main(*sys.argv[1:])
