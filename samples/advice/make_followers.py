"""Record three brokers at the leader: `slow-follower.pcap.zst`, `slow-follower-right.pcap.zst`, `hot-leader.pcap.zst`
and `hot-leader-right.pcap.zst`.

    python samples/advice/make_followers.py [FOLDER]        (as root: it makes network namespaces)

Broker 1 leads the topic orders, with replicas on 1, 2 and 3. checkout writes to it with acks=all, one batch at a time.
In the first recording, of broker 1's interface, broker 3 is stopped (SIGSTOP) for 0.3 s of each half second; in the
second one it is not. Then clicks (six partitions, one replica each) is written to: in the third recording, of the
bridge, broker 1 leads all partitions; in the fourth one, of the topic views, each broker leads two.

The truth has the times at which the broker was stopped, and the Produce requests of the leader's request log
(remoteTimeMs is the wait for followers); and the leader of each partition.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Broker, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish, requests_of  # noqa: E402

ORDERS = {"topic": "orders", "size": 120, "max.in.flight": 1, "linger.ms": 0, "acks": "all"}
LEADERS = {"clicks": [[1]] * 6, "views": [[1], [2], [3], [1], [2], [3]]}
Stops = list[tuple[float, float]]


def stopped_often(broker: Broker, count: int) -> Stops:
    """Stop a broker's process for 0.3 s of each half second."""
    stops: Stops = []
    for _ in range(count):
        began = time.time()
        broker.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(0.3)
        finally:
            broker.process.send_signal(signal.SIGCONT)
            stops.append((round(began, 6), round(time.time(), 6)))
        time.sleep(0.2)
    return stops


def slow_follower(cluster: Cluster, checkout: Host, work: Path, folder: Path, name: str, stops: int) -> None:
    leader = cluster.brokers[0]
    before = len(list(requests_of(leader)))
    with recorded_at(leader.host, work, f"tcp port {PORT}") as raw, ThreadPoolExecutor(1) as pool:
        settings = ORDERS | {"count": 60 if not stops else 1000, "pause": 0.05, "seconds": 6}
        writing = pool.submit(client, checkout, "produce", cluster.bootstrap, "checkout", settings)
        time.sleep(1.5)
        truth: dict[str, object] = {"follower": 3, "stops": stopped_often(cluster.brokers[2], stops)}
        truth["client"] = writing.result()
    columns = ("client", "correlation_id", "localTimeMs", "remoteTimeMs", "totalTimeMs")
    rows = list(requests_of(leader))[before:]
    mine = [row for row in rows if row["api"] == "PRODUCE" and row["client_id"] == "checkout"]
    truth |= {"columns": columns, "produces": [[row[column] for column in columns] for row in mine]}
    save(folder, name, raw, truth)


def hot_leader(cluster: Cluster, network: Network, checkout: Host, work: Path, folder: Path, name: str) -> None:
    topic = {"hot-leader": "clicks", "hot-leader-right": "views"}[name]
    settings = {"topic": topic, "size": 400, "count": 300, "pause": 0.01, "linger.ms": 0, "acks": 1, "seconds": 8}
    settings |= {"partitioner": "random", "sticky.partitioning.linger.ms": 0}
    with recorded_at(network.bridge(), work, f"tcp port {PORT} and host {checkout.address}", "lan") as raw:
        seen = client(checkout, "produce", cluster.bootstrap, "shop", settings)
    save(folder, name, raw, {"leaders": {topic: [replicas[0] for replicas in LEADERS[topic]]}, "client": seen})


def save(folder: Path, name: str, raw: Path, truth: dict[str, object]) -> None:
    publish(folder, name, raw)
    text = re.sub(r"\n {3,}|\n  (?=\])", " ", json.dumps(truth, indent=1))
    (folder / f"{name}.truth.json").write_text(text + "\n")


def record(folder: Path) -> None:
    """Start the cluster, record the clients, write the samples."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2, 3)]
        checkout = network.host("checkout", "10.77.0.21")
        with Cluster.start(work / "cluster", hosts, request_log=True) as cluster:
            for topic, replicas in {"orders": [[1, 2, 3]], **LEADERS}.items():
                client(checkout, "create", cluster.bootstrap, "ops-admin", {"topic": topic, "replicas": replicas})
            slow_follower(cluster, checkout, work, folder, "slow-follower", 8)
            slow_follower(cluster, checkout, work, folder, "slow-follower-right", 0)
            for sample in ("hot-leader", "hot-leader-right"):
                hot_leader(cluster, network, checkout, work, folder, sample)


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
