"""Record one load before and after a change: `*.pcap.zst` in this folder, and `changes.truth.json`.

    python samples/compare/make_changes.py [FOLDER]        (as root: it makes network namespaces)

Two producers (checkout, metrics) and two readers (billing, audit) of librdkafka run at one broker of Kafka 4.3.0. Each
recording begins some seconds after the clients, so that it holds a steady load.

    before     the load
    quota      the same, with a quota on the producer metrics
    batching   the same without the quota; metrics collects records for 200 ms instead of 5 ms
    steady     the load for longer, to compare its halves

Then three brokers, of which the third is stopped:

    three-brokers, two-brokers

All captures are of the clients' interface. The truth has what was changed and what the clients saw.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at, stop  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

WARM_UP, SECONDS, LONG = 4, 20, 34
QUOTA = 6_000  # bytes/s
LINGER_MS = 200
#: Settings of the clients, with their messages each second.
RATES = {"checkout": 15, "metrics": 30}
Truth = dict[str, Any]


def produce(host: Host, at: str, name: str, seconds: float, settings: dict[str, Any]) -> dict[str, Any]:
    """A producer for some seconds."""
    usual = {"topic": name, "size": 400, "linger.ms": 5, "acks": "all", "seconds": seconds, "pause": 1 / RATES[name]}
    return client(host, "produce", at, name, usual | {"count": round(seconds * RATES[name])} | settings)


def consume(host: Host, at: str, name: str, topic: str, seconds: float, partitions: int) -> dict[str, Any]:
    """A reader of all partitions for some seconds."""
    settings = {"topic": topic, "count": 10**6, "seconds": seconds, "partitions": partitions, "fetch.wait.max.ms": 250}
    return client(host, "consume", at, name, settings)


def phase(
    host: Host, at: str, folder: Path, name: str, seconds: float = SECONDS, partitions: int = 1, **metrics: Any
) -> dict[str, Any]:
    """Run the load, record it at the clients, write NAME.pcap.zst; what the clients saw. `metrics`: settings of it."""
    whole = WARM_UP + seconds + 3
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(4) as pool:
        jobs = {
            "checkout": pool.submit(produce, host, at, "checkout", whole, {}),
            "metrics": pool.submit(produce, host, at, "metrics", whole, metrics),
            "billing": pool.submit(consume, host, at, "billing", "checkout", whole, partitions),
            "audit": pool.submit(consume, host, at, "audit", "metrics", whole, partitions),
        }
        time.sleep(WARM_UP)
        with recorded_at(host, Path(work), f"tcp port {PORT}") as raw:
            time.sleep(seconds)
        publish(folder, name, raw)
        return {who: job.result() for who, job in jobs.items()}


def one_broker(folder: Path) -> Truth:
    """The load at one broker, and its changes."""
    seen: Truth = {"quota": {"metrics": QUOTA}, "linger_ms": {"metrics": [5, LINGER_MS]}}
    with tempfile.TemporaryDirectory() as work, Network() as network:
        broker, clients = network.host("broker1", "10.77.0.1"), network.host("clients", "10.77.0.11")
        with Cluster.start(Path(work) / "cluster", [broker], memory="320m") as cluster:
            at = cluster.bootstrap
            for topic in RATES:
                client(broker, "create", at, "ops-admin", {"topic": topic, "replicas": [[1]]})
            phase(clients, at, Path(work), "warm-up", 5)  # the broker compiles its code
            for name in ("steady", "before"):
                seen[name] = phase(clients, at, folder, name, LONG if name == "steady" else SECONDS)
            seen["batching"] = phase(clients, at, folder, "batching", **{"linger.ms": LINGER_MS})
            quota = ["--alter", "--add-config", f"producer_byte_rate={QUOTA}", "--entity-type", "clients"]
            cluster.tool("kafka.admin.ConfigCommand", *quota, "--entity-name", "metrics")
            seen["quota-set"] = phase(clients, at, folder, "quota")
    return seen


def three_brokers(folder: Path) -> Truth:
    """The load at three brokers, of which the third is stopped."""
    seen: Truth = {}
    with tempfile.TemporaryDirectory() as work, Network() as network:
        brokers = [network.host(f"broker{n}", f"10.77.0.{n}") for n in (1, 2, 3)]
        clients = network.host("clients", "10.77.0.11")
        with Cluster.start(Path(work) / "cluster", brokers, memory="256m") as cluster:
            at = cluster.bootstrap
            for topic in RATES:
                client(brokers[0], "create", at, "ops-admin", {"topic": topic, "replicas": [[1, 2], [2, 1], [3, 2]]})
            phase(clients, at, Path(work), "warm-up", 5, 3)
            seen["three-brokers"] = phase(clients, at, folder, "three-brokers", partitions=3)
            seen["stopped"] = f"{brokers[2].address}:{PORT}"
            stop(cluster.brokers[2].process)
            seen["two-brokers"] = phase(clients, at, folder, "two-brokers", partitions=3)
    return seen


def record(folder: Path) -> None:
    """Record everything."""
    truth = one_broker(folder) | three_brokers(folder)
    (folder / "changes.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
