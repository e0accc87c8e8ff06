"""A producer and a consumer of an old kafka-python: old_python_client.py BOOTSTRAP NAME TOPIC COUNT [VERSION]

VERSION is kafka-python's `api_version`, such as 0.10; without it the client finds out. The output is a JSON object. It
runs with an interpreter that has that kafka-python, and so imports nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

#: Seconds for each part: an old client waits for ever for a broker that does not answer its versions.
LONGEST = 6


def give_up(*_: object) -> None:
    raise TimeoutError


def main(bootstrap: str, name: str, topic: str, count: int, version: str = "") -> dict[str, Any]:
    from kafka import KafkaConsumer, KafkaProducer

    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_id": name, "api_version_auto_timeout_ms": 5000}
    if version:
        settings["api_version"] = tuple(int(number) for number in version.split("."))
    seen: dict[str, Any] = {"sent": 0, "read": 0, "errors": []}
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    try:
        producer = KafkaProducer(**settings, max_block_ms=4000, request_timeout_ms=4000, retries=1)
        for _ in range(count):
            producer.send(topic, b"generated").get(4)
            seen["sent"] += 1
        producer.close(1)
    except Exception as error:
        seen["errors"].append(f"produce: {type(error).__name__}")
    signal.alarm(LONGEST)
    try:
        consumer = KafkaConsumer(
            topic, **settings, group_id=f"{name}-group", auto_offset_reset="earliest", consumer_timeout_ms=4000
        )
        for _ in consumer:
            seen["read"] += 1
            if seen["read"] == count:
                break
        consumer.close()
    except Exception as error:
        seen["errors"].append(f"consume: {type(error).__name__}")
    signal.alarm(0)
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])), flush=True)
    os._exit(0)  # the threads of a client that got no answer do not end
