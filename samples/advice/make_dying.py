"""Record consumers that die at a record again and again: `dying.pcap.zst`, and `dying-right.pcap.zst`.

    python samples/advice/make_dying.py [FOLDER]        (as root: tcpdump records loopback)

Groups `label-print`, and `customs` of the new protocol (KIP-848), read three partitions of `shipments` with a process
for each member. A record of partition 1 is no JSON. The process that reads it dies, with no LeaveGroup, and is started
again; meanwhile another member has the partition, and dies too. In the second recording members skip the record. The
last member of each group, `label-3` and `customs-2`, is stopped and started again once, also without a LeaveGroup. The
truth has where the bad record is, and for each member its assignments, its deaths (partition and offset), and when it
was killed, all in ms since the epoch; and the committed offsets of the groups at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Consumer, Message, Producer, TopicPartition  # noqa: E402

from tests.support.questions import Scene, now_ms, question_main, stage  # noqa: E402

SESSION_MS, HEARTBEAT_MS, RESTART = 2000, 500, 3.0
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
USUAL: dict[str, Any] = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 1000,
    "enable.auto.offset.store": False,
    "fetch.wait.max.ms": 5000,
}
CLASSIC: dict[str, Any] = {
    "group.id": "label-print",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
}
NEXT: dict[str, Any] = {"group.id": "customs", "group.protocol": "consumer"}
MEMBERS = {"label-1": CLASSIC, "label-2": CLASSIC, "label-3": CLASSIC, "customs-1": NEXT, "customs-2": NEXT}
RESTARTED = ("label-3", "customs-2")


class Supervisor:
    """A thread that starts a member's process again after it has ended."""

    def __init__(self, bootstrap: str, name: str, skips: bool) -> None:
        consumer = USUAL | MEMBERS[name] | {"client.id": name}
        settings = {"topic": "shipments", "skips": skips, "consumer": consumer}
        self.command = [sys.executable, "-m", "tests.support.record_reader", bootstrap, json.dumps(settings)]
        self.lines: list[Any] = []
        self.is_over = False
        self.process: subprocess.Popen[str] | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, cwd=FOLDER.parents[1])
            assert self.process.stdout is not None
            self.lines += [json.loads(line) for line in self.process.stdout]
            self.process.wait()
            time.sleep(0 if self.is_over else RESTART)

    def kill(self) -> None:
        """End the process with SIGKILL, which leaves no word. It is started again."""
        if self.process is not None and self.process.poll() is None:
            self.lines.append([now_ms(), "killed", []])
            self.process.kill()


def produce(made: Scene, values: list[bytes]) -> None:
    """Write records to each partition. The recording does not have them."""
    producer = Producer({"bootstrap.servers": made.ops, "log_level": 0})
    for value in values:
        for partition in range(3):
            producer.produce("shipments", value, partition=partition)
    producer.flush(20)


def poison(made: Scene) -> list[int]:
    """Write half of a record to partition 1: the partition and the offset."""
    found: list[int] = []
    producer = Producer({"bootstrap.servers": made.ops, "log_level": 0})

    def written(_: Any, message: Message) -> None:
        found.extend((message.partition() or 0, message.offset() or 0))

    producer.produce("shipments", b'{"parcel": "4711', partition=1, on_delivery=written)
    producer.flush(20)
    return found


def committed(made: Scene, group: str) -> list[int]:
    """The committed offset of each partition."""
    consumer = Consumer({"bootstrap.servers": made.ops, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition("shipments", n) for n in range(3)], 20)
    consumer.close()
    return [each.offset for each in found]


def play(made: Scene, skips: bool) -> None:
    members = {name: Supervisor(made.broker.bootstrap, name, skips) for name in MEMBERS}
    time.sleep(4)
    produce(made, [b'{"parcel": "%d"}' % n for n in range(5)])
    time.sleep(2)
    for name in RESTARTED:
        members[name].kill()
    time.sleep(5)
    made.truth["poison"] = poison(made)
    produce(made, [b'{"parcel": "%d"}' % n for n in range(5)])
    time.sleep(11)
    for member in members.values():
        member.is_over = True
    for member in members.values():
        member.kill()
    for member in members.values():
        member.thread.join(10)
    made.truth["committed"] = {group: committed(made, group) for group in ("label-print", "customs")}
    made.truth["members"] = {name: sorted(member.lines) for name, member in members.items()}


def record(folder: Path) -> None:
    for name, skips in (("dying", False), ("dying-right", True)):
        with stage(properties=PROPERTIES) as made:
            made.create_topics({"shipments": 3})
            produce(made, [b'{"parcel": "%d"}' % n for n in range(5)])
            with made.recording(name, folder):
                play(made, skips)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
