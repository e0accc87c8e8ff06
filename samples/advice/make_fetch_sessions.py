"""Record readers that get no fetch session: `fetch-sessions.pcap.zst`, and `fetch-sessions-right.pcap.zst`.

    python samples/advice/make_fetch_sessions.py [FOLDER]        (as root: tcpdump records loopback)

`map-1` and `map-2` read `positions`, of 24 partitions, each alone in its group, while `tracker` writes a record each
0.5 s. The broker has no room for fetch sessions (max.incremental.fetch.session.cache.slots=0), and in the second
recording Kafka's 1,000. The truth has the slots, the partitions and the readers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.questions import Scene, question_main, stage  # noqa: E402

TOPIC, PARTITIONS = "positions", 24
READERS = ("map-1", "map-2")
RECORDS, INTERVAL_MS = 20, 500


def play(made: Scene, name: str) -> None:
    shell = made.java_clients(name)
    shell.do("tracker", "producer", {"linger.ms": 0})
    for client in READERS:
        options = {
            "group.protocol": "classic",
            "auto.offset.reset": "latest",
            "fetch.max.wait.ms": 400,
            "topics": TOPIC,
        }
        shell.do(client, "consumer", options, **{"group.id": client, "processing_ms": 0})
    time.sleep(2)
    shell.do(
        "tracker", "send", {"topic": TOPIC, "count": RECORDS, "bytes": 30, "interval_ms": INTERVAL_MS}, partition=0
    )
    for client in READERS:
        shell.do(client, "close")


def record(folder: Path) -> None:
    for name, slots in (("fetch-sessions", 0), ("fetch-sessions-right", 1000)):
        with stage(properties={"max.incremental.fetch.session.cache.slots": str(slots)}) as made:
            made.create_topics({TOPIC: PARTITIONS})
            with made.recording(name, folder):
                play(made, name)
                made.truth.update(slots=slots, partitions=PARTITIONS, readers=list(READERS))


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
