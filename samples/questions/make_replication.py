"""Record acks=all behind slow followers at the leader: `replication.pcap.zst`, and `replication.truth.json`.

    python samples/questions/make_replication.py [FOLDER]        (as root: it makes network namespaces)

Three brokers; broker 1 leads the topic orders. checkout writes to it with acks=all, one batch at a time, and metrics
with acks=1. Broker 2, then broker 3, is stopped (SIGSTOP) for a part of each half second. At the end broker 3 stops
for so long that the leader removes it from the in-sync replicas. The capture is of broker 1's interface.

The truth has the times at which brokers were stopped, the Produce requests of the leader's request log (remoteTimeMs
is the wait for followers), and its lines about in-sync replicas.
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
from tests.support.namespaces import Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish, requests_of  # noqa: E402

LAG = {"replica.lag.time.max.ms": "3000"}
Stops = list[tuple[int, float, float]]


def stopped(broker: Broker, seconds: float, stops: Stops) -> None:
    """Stop a broker's process for some time."""
    began = time.time()
    broker.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        broker.process.send_signal(signal.SIGCONT)
        stops.append((broker.number, round(began, 6), round(time.time(), 6)))


def slow_down(cluster: Cluster) -> Stops:
    """Slow the followers in turns: 3 s each, then one long stop."""
    stops: Stops = []
    time.sleep(2)
    for broker, seconds in ((cluster.brokers[1], 0.15), (cluster.brokers[2], 0.3)):
        for _ in range(6):
            stopped(broker, seconds, stops)
            time.sleep(0.5 - seconds)
        time.sleep(1)
    stopped(cluster.brokers[2], 6, stops)
    return stops


def record(folder: Path) -> None:
    """Start the cluster, record the clients, write the sample."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2, 3)]
        checkout, metrics = network.host("checkout", "10.77.0.21"), network.host("metrics", "10.77.0.22")
        with Cluster.start(work / "cluster", hosts, properties=LAG, request_log=True) as cluster:
            at, leader = cluster.bootstrap, cluster.brokers[0]
            for topic, replicas in (("orders", [[1, 2, 3]]), ("load", [[1, 2]])):
                client(checkout, "create", at, "ops-admin", {"topic": topic, "replicas": replicas})
            settings = {"topic": "orders", "size": 300, "max.in.flight": 1, "linger.ms": 0, "seconds": 18}
            with recorded_at(leader.host, work, f"tcp port {PORT}") as raw, ThreadPoolExecutor(3) as pool:
                work_all = pool.submit(
                    client, checkout, "produce", at, "checkout", settings | {"count": 700, "pause": 0.02, "acks": "all"}
                )
                work_one = pool.submit(
                    client, metrics, "produce", at, "metrics",
                    settings | {"topic": "load", "count": 150, "pause": 0.1, "acks": 1},
                )  # fmt: skip
                stops = slow_down(cluster)
                seen = {"checkout": work_all.result(), "metrics": work_one.result()}
            truth = {"clients": seen, "stops": stops} | log_of(leader)
            publish(folder, "replication", raw)
            text = json.dumps(truth, indent=1)
            (folder / "replication.truth.json").write_text(re.sub(r"\n {3,}|\n  (?=\])", " ", text) + "\n")


def log_of(leader: Broker) -> dict[str, object]:
    """The Produce requests of the leader's log, and what it says about in-sync replicas."""
    columns = ("client_id", "client", "correlation_id", "localTimeMs", "remoteTimeMs", "totalTimeMs")
    produces = [
        [*(row[name] for name in columns), row["request"]["acks"]]
        for row in requests_of(leader)
        if row["api"] == "PRODUCE" and row["client_id"] in ("checkout", "metrics")
    ]
    lines = [line for line in leader.log().splitlines() if "ISR" in line and "orders-0" in line]
    return {"columns": [*columns, "acks"], "produces": produces, "in_sync": [line[:200] for line in lines]}


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
