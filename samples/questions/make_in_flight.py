"""Record requests under way when a capture ends, and consumers that close while they poll: `in-flight.pcap.zst`.

    python samples/questions/make_in_flight.py [FOLDER]        (as root: tcpdump records a loopback of its own)

A broker of Kafka 4.3.0 has a plain listener and one with TLS. Consumers of the Java client, librdkafka and kafka-python
close at once while the broker holds their Fetch, which may take 2 s. Then, when tcpdump stops, these are under way: the
Fetch of `poller` and of `sleeper`, which may take 8 s; the JoinGroup of `joiner`, which waits for `sleeper`, a member
that does not poll; a Produce request of `writer` to the broker, whose process has stopped (SIGSTOP). After the
recording the broker continues and answers.

    in-flight.keys.log   the secrets of the TLS connections, by a Java agent in the broker
    in-flight.log.tsv    the broker's own request log: the client's port, correlation id, API, client, when it was
                         complete (ms since the epoch), how long it took (ms). It goes on after the recording.
    in-flight.truth.json the listeners' ports; when each consumer closed, and when the broker stopped and continued
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import kafka  # noqa: E402
from confluent_kafka import Consumer, TopicPartition  # noqa: E402

from tests.support.authority import Authority  # noqa: E402
from tests.support.broker import fetch_agent  # noqa: E402
from tests.support.questions import FOLDER, Scene, log_time_ms, now_ms, question_main, stage  # noqa: E402
from tests.support.tls_samples import own_loopback  # noqa: E402

PASSWORD = "made-up-4711"
LISTENERS = {"CLIENTS": "PLAINTEXT", "TLS": "SSL"}
POLL_MS, LONG_POLL_MS = 2_000, 8_000


class Play:
    def __init__(self, made: Scene, trusted: str) -> None:
        self.made = made
        self.at = {name: f"localhost:{port}" for name, port in made.ports.items()}
        self.trusted = trusted
        self.shell = made.java_clients()
        made.truth |= {"ports": made.ports, "closed": []}

    def closed(self, client: str, close: Any) -> None:
        """Close a consumer and note when."""
        began = now_ms()
        close()
        self.made.truth["closed"].append({"client": client, "from_ms": began, "to_ms": now_ms()})

    def java(self, client: str, listener: str, topic: str) -> None:
        settings: dict[str, Any] = {"topics": topic, "fetch.max.wait.ms": POLL_MS, "enable.metrics.push": "false"}
        if listener == "TLS":
            settings |= {
                "security.protocol": "SSL", "bootstrap.servers": self.at["TLS"], "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.trusted,
            }  # fmt: skip
        self.shell.do(client, "consumer", settings)
        time.sleep(1)
        self.closed(client, lambda: self.shell.do(client, "close", seconds=0))

    def librdkafka(self, client: str, listener: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.at[listener], "client.id": client, "group.id": client,
            "fetch.wait.max.ms": POLL_MS, "enable.metrics.push": False, "log_level": 0,
            "enable.auto.commit": False, "broker.address.family": "v4",
        }  # fmt: skip
        if listener == "TLS":
            settings |= {"security.protocol": "ssl", "ssl.ca.location": self.trusted}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("quiet", 0, 0)])
        consumer.poll(1)
        self.closed(client, consumer.close)

    def kafka_python(self, client: str, listener: str) -> None:
        more: dict[str, Any] = {}
        if listener == "TLS":
            more = {"security_protocol": "SSL", "ssl_cafile": self.trusted}
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.at[listener], client_id=client, fetch_max_wait_ms=POLL_MS, **more
        )
        consumer.assign([kafka.TopicPartition("quiet", 0)])
        consumer.seek_to_beginning()
        consumer.poll(timeout_ms=1000)
        self.closed(client, consumer.close)

    def under_way(self) -> None:
        """Bring the requests on their way that are so when the recording ends."""
        poll = {"enable.metrics.push": "false", "fetch.max.wait.ms": LONG_POLL_MS}
        group = {
            "group.id": "waiting",
            "topics": "quiet",
            "max.poll.interval.ms": 60_000,
            "heartbeat.interval.ms": 1000,
        }
        self.shell.do("sleeper", "consumer", poll | group)
        self.shell.do("writer", "producer", {"enable.metrics.push": "false", "linger.ms": 0})
        self.shell.do("writer", "send", topic="busy", count=1, bytes=60)
        time.sleep(2)
        self.shell.start("sleeper", "sleep", ms=14_000)
        self.shell.do("poller", "consumer", poll | {"topics": "quiet"})
        self.shell.do("joiner", "consumer", poll | group)
        time.sleep(2)
        self.made.broker.process.send_signal(signal.SIGSTOP)
        self.made.truth["stopped_ms"] = now_ms()
        self.shell.start("writer", "send", topic="busy", count=1, bytes=60)
        time.sleep(0.3)


def request_log(text: str, ports: dict[str, int]) -> str:
    """A line for each request of the recorded listeners."""
    lines = ["port\tcorrelation_id\tapi\tclient\tdone_ms\ttotal_ms\n"]
    for line in text.splitlines():
        begin = line.find("Completed request:{")
        if begin < 0:
            continue
        entry = json.loads(line[begin + len("Completed request:") :])
        broker, client = entry["connection"].split("-")[:2]
        if int(broker.rpartition(":")[2]) not in ports.values():
            continue
        head = entry["requestHeader"]
        values = (
            client.rpartition(":")[2], head["correlationId"], head["requestApiKeyName"], head["clientId"],
            log_time_ms(line[: line.index(" ")]), entry["totalTimeMs"],
        )  # fmt: skip
        lines.append("\t".join(map(str, values)) + "\n")
    return "".join(lines)


def record(folder: Path) -> None:
    agent = fetch_agent()  # while there is a network
    own_loopback()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        authority, secrets = Authority(work), work / "keys.log"
        with stage(
            loggers={"kafka.request.logger": "debug"}, properties=authority.key_store(PASSWORD), listeners=LISTENERS,
            jvm=[f"-javaagent:{agent}={secrets}"],
        ) as made:  # fmt: skip
            made.create_topics({"quiet": 1, "busy": 1})
            with made.recording("in-flight", folder):
                play = Play(made, str(authority.certificate))
                play.java("java-plain", "CLIENTS", "quiet")
                play.java("java-tls", "TLS", "quiet")
                play.librdkafka("librd-plain", "CLIENTS")
                play.librdkafka("librd-tls", "TLS")
                play.kafka_python("python-plain", "CLIENTS")
                play.kafka_python("python-tls", "TLS")
                play.under_way()
            made.broker.process.send_signal(signal.SIGCONT)
            truth = json.loads((folder / "in-flight.truth.json").read_text())
            truth["continued_ms"] = now_ms()
            (folder / "in-flight.truth.json").write_text(json.dumps(truth, indent=1) + "\n")
            time.sleep(16)
            (folder / "in-flight.log.tsv").write_text(request_log(made.broker.log(), made.ports))
            (folder / "in-flight.keys.log").write_text(secrets.read_text())


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
