"""Record clients beyond their quotas: `throttle.pcap.zst`, and `throttle.truth.json`.

    python samples/questions/make_throttle.py [FOLDER]        (as root: it makes network namespaces)

Three producers of Kafka's Java client (kafka.tools.ProducerPerformance) and three of librdkafka have quotas of 10,
30 and 100 kB/s and send four times as fast. A reader of each kind has a quota of 50 kB/s. The broker keeps Kafka's
default windows: 11 of 1 s. The capture is of the broker's interface.

The truth has the quotas and windows, the clients' own metrics (Java: produce-throttle-time, fetch-throttle-time;
librdkafka: each time that its throttle callback was called with), and the throttle time of each request in the
broker's request log.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.broker import java_command  # noqa: E402
from tests.support.clients import LINE  # noqa: E402
from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish, requests_of  # noqa: E402

RATES = {"10k": 10_000, "30k": 30_000, "100k": 100_000}
READ_RATE = 50_000
SIZE, SECONDS = 1000, 16
WINDOWS = {"quota.window.num": "11", "quota.window.size.seconds": "1"}


def set_quotas(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Give each client its quota."""
    quotas = {f"{kind}-{name}": {"producer_byte_rate": rate} for kind in ("java", "rd") for name, rate in RATES.items()}
    quotas |= {f"{kind}-reader": {"consumer_byte_rate": READ_RATE} for kind in ("java", "rd")}
    with ThreadPoolExecutor(2) as pool:
        for change in [
            ["--alter", "--add-config", f"{kind}={rate}", "--entity-type", "clients", "--entity-name", name]
            for name, quota in quotas.items()
            for kind, rate in quota.items()
        ]:
            pool.submit(cluster.tool, "kafka.admin.ConfigCommand", *change)
    return quotas


def java_produce(host: Host, cluster: Cluster, name: str, rate: int, payload: Path) -> dict[str, float]:
    arguments = [
        "--topic",
        "orders",
        "--num-records",
        str(rate * SECONDS // SIZE),
        "--throughput",
        str(4 * rate // SIZE),
    ]
    arguments += ["--payload-file", str(payload), "--print-metrics", "--bootstrap-server", cluster.bootstrap]
    arguments += [
        "--command-property",
        f"client.id={name}",
        "batch.size=5000",
        "linger.ms=5",
        "enable.idempotence=false",
    ]
    return java(host, cluster, "ProducerPerformance", arguments, "produce-throttle-time")


def java_read(host: Host, cluster: Cluster, name: str) -> dict[str, float]:
    arguments = [
        "--topic",
        "orders",
        "--num-records",
        "1200",
        "--print-metrics",
        "--bootstrap-server",
        cluster.bootstrap,
    ]
    arguments += ["--fetch-size", "20000", "--group", name, "--timeout", "20000"]
    for setting in (f"client.id={name}", "fetch.max.bytes=20000"):
        arguments += ["--command-property", setting]
    return java(host, cluster, "ConsumerPerformance", arguments, "fetch-throttle-time")


def java(host: Host, cluster: Cluster, tool: str, arguments: list[str], metric: str) -> dict[str, float]:
    """Run one of Kafka's performance tools; its metrics of throttling, in ms."""
    text = host.run(java_command(cluster.jars, f"org.apache.kafka.tools.{tool}", arguments), timeout=120)
    found = re.findall(rf"{metric}-(avg|max)\S*\s*: ([\d.]+)", text)
    print(tool, arguments, found)
    return {f"{metric}-{which}": float(value) for which, value in found}


def play(cluster: Cluster, hosts: dict[str, Host], payload: Path) -> dict[str, object]:
    """Run the producers of each kind beside each other, then the readers."""
    seen: dict[str, object] = {}
    with ThreadPoolExecutor(3) as pool:
        work = {
            f"java-{name}": pool.submit(java_produce, hosts["java"], cluster, f"java-{name}", rate, payload)
            for name, rate in RATES.items()
        }
        seen |= {name: done.result() for name, done in work.items()}
        settings = {"topic": "orders", "size": SIZE, "batch.size": 5000, "linger.ms": 5, "seconds": 40}
        work = {
            f"rd-{name}": pool.submit(
                client, hosts["rd"], "produce", cluster.bootstrap, f"rd-{name}",
                settings | {"count": rate * SECONDS // SIZE, "pause": SIZE / rate / 4},
            )
            for name, rate in RATES.items()
        }  # fmt: skip
        seen |= {name: done.result() for name, done in work.items()}
        settings = {"topic": "orders", "count": 1200, "fetch.message.max.bytes": 20000, "fetch.max.bytes": 20000}
        settings |= {"seconds": 40, "receive.message.max.bytes": 100_000, "queued.max.messages.kbytes": 20}
        settings |= {"message.max.bytes": 20000}
        readers = [
            pool.submit(java_read, hosts["java"], cluster, "java-reader"),
            pool.submit(client, hosts["rd"], "consume", cluster.bootstrap, "rd-reader", settings),
        ]
        seen |= {name: done.result() for name, done in zip(("java-reader", "rd-reader"), readers, strict=True)}
    return seen


def record(folder: Path) -> None:
    """Start the broker, record the clients, write the sample."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        payload = work / "payload"
        payload.write_text((LINE * (SIZE // len(LINE) + 1))[:SIZE] + "\n")
        broker = network.host("broker", "10.77.0.1")
        hosts = {"java": network.host("java", "10.77.0.11"), "rd": network.host("rd", "10.77.0.12")}
        with Cluster.start(work / "cluster", [broker], properties=WINDOWS, request_log=True) as cluster:
            client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[1]]})
            quotas = set_quotas(cluster)
            with recorded_at(broker, work, f"tcp port {PORT}") as raw:
                seen = play(cluster, hosts, payload)
            rows = [
                [row["client_id"], row["client"], row["api"], row["correlation_id"], row["throttleTimeMs"]]
                for row in requests_of(cluster.brokers[0])
                if row["client_id"] in quotas and row["throttleTimeMs"] > 0
            ]
            publish(folder, "throttle", raw)
            truth = {"windows": WINDOWS, "quotas": quotas, "clients": seen, "throttled": rows}
            text = json.dumps(truth, indent=1)
            (folder / "throttle.truth.json").write_text(re.sub(r"\n {3,}", " ", text) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
