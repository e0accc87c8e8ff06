"""Record producers whose settings cost time or records, and the same with better ones: four pairs of samples.

    python samples/advice/make_producers.py [FOLDER]        (as root: it makes network namespaces)

- `nagle`, `nagle-right`: a client on plain sockets writes the head and the body of each Produce request apart, with
  Nagle's algorithm, and with TCP_NODELAY. Truth: for each request, how long its second piece waited in the kernel, and
  when its response came (tests.support.piecewise_client).
- `single-records`, `single-records-right`: librdkafka sends some hundred records a second with linger.ms=0, and
  with linger.ms=100. Truth: the batches of the log, by DumpLogSegments.
- `one-connection`, `one-connection-right`: bursts of records, as many requests in flight on one connection, and as a
  few large ones. The broker syncs the topic's log after each append (flush.messages=1). Truth: the times of each
  Produce in the broker's request log, and the client's own latencies.
- `refused-produce`, `refused-produce-right`: librdkafka sends a record of 6 kB after each 19 small ones with acks=0, to
  a topic with max.message.bytes=4096, and to one with 65536. Truth: the broker's log of connections that it closed, and
  the records of the log, by DumpLogSegments.

The captures are of the broker's interface.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.dumped_logs import dumped  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish, requests_of  # noqa: E402

TOPICS: dict[str, dict[str, str]] = {
    "orders": {}, "clicks": {}, "prices": {"flush.messages": "1"}, "catalog": {"max.message.bytes": "4096"},
    "catalog-large": {"max.message.bytes": "65536"},
}  # fmt: skip
NAGLE = {"client_id": "order-service", "topic": "orders", "count": 25, "pause": 0.02, "size": 300}
CLICKS: dict[str, Any] = {"topic": "clicks", "count": 400, "size": 60, "pause": 0.003, "seconds": 20}
PRICES: dict[str, Any] = {"topic": "prices", "count": 900, "size": 400, "seconds": 20, "bursts": 3}
CATALOG: dict[str, Any] = {
    "acks": "0", "linger.ms": 0, "size": 200, "large": [20, 6_000], "count": 120, "pause": 0.05, "seconds": 20,
}  # fmt: skip
CLOSING = re.compile(r"Closing connection due to error during produce request.*client id (\S+) with ack=0")


def write_truth(folder: Path, name: str, truth: dict[str, Any]) -> None:
    text = json.dumps(truth, indent=1)
    (folder / f"{name}.truth.json").write_text(text.replace("\n   ", " ").replace("\n  ]", " ]") + "\n")


def times_of(cluster: Cluster, name: str) -> list[list[float]]:
    """totalTimeMs, requestQueueTimeMs and localTimeMs of each Produce of a client, in the broker's request log."""
    columns = ("totalTimeMs", "requestQueueTimeMs", "localTimeMs")
    return [
        [row[column] for column in columns]
        for row in requests_of(cluster.brokers[0])
        if row["client_id"] == name and row["api"] == "PRODUCE"
    ]


def batches(cluster: Cluster, topic: str, since_ms: int) -> Counter[int]:
    """How many batches with how many records a topic got since a time."""
    rows = dumped(cluster.jars, cluster.brokers[0].folder / "logs", [topic]).splitlines()
    names = rows[0].split("\t")
    found = [dict(zip(names, row.split("\t"), strict=True)) for row in rows[1:]]
    return Counter(int(row["records"]) for row in found if int(row["time_ms"]) >= since_ms)


def record_nagle(folder: Path, work: Path, broker: Host, host: Host) -> None:
    for name, nodelay in (("nagle", False), ("nagle-right", True)):
        with recorded_at(broker, work, f"tcp port {PORT}") as raw:
            given = json.dumps(NAGLE | {"nodelay": nodelay})
            seen = json.loads(host.python("tests.support.piecewise_client", broker.address, str(PORT), given))
        publish(folder, name, raw)
        write_truth(folder, name, seen)


def record_single_records(folder: Path, work: Path, cluster: Cluster, broker: Host, host: Host) -> None:
    for name, linger in (("single-records", 0), ("single-records-right", 100)):
        began = time.time_ns() // 1_000_000
        with recorded_at(broker, work, f"tcp port {PORT}") as raw:
            seen = client(host, "produce", cluster.bootstrap, "click-tracker", CLICKS | {"linger.ms": linger})
        publish(folder, name, raw)
        sizes = batches(cluster, "clicks", began)
        write_truth(
            folder, name, {"linger_ms": linger, "delivered": seen["delivered"], "batches": sorted(sizes.items())}
        )


def record_one_connection(folder: Path, work: Path, cluster: Cluster, broker: Host, host: Host) -> None:
    settings = {
        "one-connection": {"batch.num.messages": 4, "linger.ms": 5, "max.in.flight.requests.per.connection": 1000},
        "one-connection-right": {
            "batch.num.messages": 1000,
            "linger.ms": 20,
            "max.in.flight.requests.per.connection": 5,
        },
    }
    for name, options in settings.items():
        client_id = f"price-feed{'-2' if name.endswith('right') else ''}"
        with recorded_at(broker, work, f"tcp port {PORT}") as raw:
            seen = client(host, "produce", cluster.bootstrap, client_id, PRICES | options)
        publish(folder, name, raw)
        write_truth(folder, name, {"settings": options, **seen, "request_log": times_of(cluster, client_id)})


def closings(cluster: Cluster, client_id: str) -> list[str]:
    """When the broker closed a connection because it refused a request, by its log: times of the day."""
    found = ((line, CLOSING.search(line)) for line in cluster.brokers[0].log().splitlines())
    return [line for line, match in found if match and match[1] == client_id]


def record_refused_produce(folder: Path, work: Path, cluster: Cluster, broker: Host, host: Host) -> None:
    for name, topic in (("refused-produce", "catalog"), ("refused-produce-right", "catalog-large")):
        client_id = f"{topic}-feed"
        began = time.time_ns() // 1_000_000
        with recorded_at(broker, work, f"tcp port {PORT}") as raw:
            seen = client(host, "produce", cluster.bootstrap, client_id, CATALOG | {"topic": topic})
        publish(folder, name, raw)
        kept = sum(size * many for size, many in batches(cluster, topic, began).items())
        write_truth(
            folder, name, {"config": TOPICS[topic], **seen, "closed": closings(cluster, client_id), "records": kept}
        )


def record(folder: Path) -> None:
    """Start the broker, then record each pair."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        broker, host = network.host("broker", "10.77.0.1"), network.host("shop", "10.77.0.11")
        with Cluster.start(work / "cluster", [broker], request_log=True) as cluster:
            for topic, config in TOPICS.items():
                settings = {"topic": topic, "replicas": [[1]], "config": config}
                client(broker, "create", cluster.bootstrap, "ops-admin", settings)
            record_nagle(folder, work, broker, host)
            record_single_records(folder, work, cluster, broker, host)
            record_one_connection(folder, work, cluster, broker, host)
            record_refused_produce(folder, work, cluster, broker, host)


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
