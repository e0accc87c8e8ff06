"""Record traffic between zones: `zones.pcap.zst`, `zones.zones.txt`, and `zones.truth.json`.

    python samples/questions/make_zones.py [FOLDER]        (as root: it makes network namespaces)

Three brokers with a rack each (a, b, c) select replicas by rack (RackAwareReplicaSelector). The zones have networks of
their own: 10.77.1.0/24, 10.77.2.0/24, 10.77.3.0/24. Zone b holds the producer checkout and the reader local-reader,
which names its rack. Zone c holds billing (a reader without a rack) and java-reader (with one). The topic audit has no
replica in zone c. The capture is of the bridge: it holds each packet between two hosts once.

The truth has the IP packets and bytes of each pair of addresses, by counters of iptables in the brokers' namespaces.
`zones.zones.txt` is the file of networks for `kafkatap report --zones`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.broker import java_command  # noqa: E402
from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

RACKS = "abc"
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
CLIENTS = {
    "checkout": "10.77.2.21", "local-reader": "10.77.2.11", "billing": "10.77.3.11", "java-reader": "10.77.3.12",
}  # fmt: skip
TOPICS = {"orders": [[1, 2, 3], [2, 3, 1], [3, 1, 2]], "audit": [[1, 2]]}
MESSAGES, SIZE = 300, 500


def count_pairs(brokers: Sequence[Host], others: Sequence[Host]) -> None:
    """Counters of the Kafka packets of each pair of addresses, in the broker's namespace."""
    for at, broker in enumerate(brokers):
        # A pair of brokers counts at one of them.
        for other in (*brokers[at + 1 :], *others):
            for chain, flag in (("INPUT", "-s"), ("OUTPUT", "-d")):
                for port in ("--dport", "--sport"):
                    broker.run(["iptables", "-A", chain, flag, other.address, "-p", "tcp", port, str(PORT)])


def pairs(brokers: Sequence[Host]) -> list[dict[str, object]]:
    """The counters: packets and bytes (of IP) by broker, other address, direction and port."""
    rows: list[dict[str, object]] = []
    for broker in brokers:
        for line in broker.run(["iptables-save", "-c"]).splitlines():
            found = re.match(
                r"\[(\d+):(\d+)\] -A (INPUT|OUTPUT) -[sd] ([\d.]+)/32 -p tcp -m tcp --(dport|sport) \d+", line
            )
            if found and int(found[1]):
                source, target = (broker.address, found[4])[:: 1 if found[3] == "OUTPUT" else -1]
                end = "target" if found[5] == "dport" else "source"
                row = {"source": source, "target": target, "port_at": end}
                rows.append(row | {"packets": int(found[1]), "bytes": int(found[2])})
    return rows


def play(cluster: Cluster, hosts: dict[str, Host]) -> dict[str, object]:
    """Write both topics, then run the readers beside each other."""
    at = cluster.bootstrap
    seen: dict[str, object] = {}
    for topic in TOPICS:
        settings = {"topic": topic, "count": MESSAGES, "size": SIZE, "linger.ms": 20, "acks": "all"}
        seen[f"checkout {topic}"] = client(hosts["checkout"], "produce", at, "checkout", settings)
    settings = {"topic": "orders", "count": 10_000, "partitions": 3, "seconds": 6}
    with ThreadPoolExecutor(4) as pool:
        work: dict[str, Future[object]] = {
            "local-reader": pool.submit(
                client, hosts["local-reader"], "consume", at, "local-reader", settings | {"client.rack": "b"}
            ),
            "billing": pool.submit(client, hosts["billing"], "consume", at, "billing", settings),
            "billing audit": pool.submit(
                client, hosts["billing"], "consume", at, "billing", settings | {"topic": "audit", "partitions": 1}
            ),
            "java-reader": pool.submit(java_read, cluster, hosts["java-reader"]),
        }
        return seen | {name: done.result() for name, done in work.items()}


def java_read(cluster: Cluster, host: Host) -> str:
    arguments = ["--topic", "orders", "--num-records", str(MESSAGES), "--bootstrap-server", cluster.bootstrap]
    arguments += ["--command-property", "client.id=java-reader", "--command-property", "client.rack=c"]
    arguments += ["--hide-header", "--timeout", "15000"]
    return host.run(java_command(cluster.jars, "org.apache.kafka.tools.ConsumerPerformance", arguments)).strip()


def record(folder: Path) -> None:
    """Start the cluster, record the clients, write the sample."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        brokers = [network.host(f"broker{number}", f"10.77.{number}.1") for number in (1, 2, 3)]
        hosts = {name: network.host(name, address) for name, address in CLIENTS.items()}
        racks = lambda number: {"broker.rack": RACKS[number - 1]}  # noqa: E731
        with Cluster.start(work / "cluster", brokers, properties=SELECTOR, each=racks) as cluster:
            for topic, replicas in TOPICS.items():
                client(brokers[0], "create", cluster.bootstrap, "ops-admin", {"topic": topic, "replicas": replicas})
            with recorded_at(network.bridge(), work, f"tcp port {PORT}", interface="lan") as raw:
                count_pairs(brokers, list(hosts.values()))
                seen = play(cluster, hosts)
                found = pairs(brokers)
            truth = {"brokers": [broker.address for broker in brokers], "hosts": CLIENTS, "clients": seen}
            publish(folder, "zones", raw)
            text = json.dumps(truth | {"pairs": found}, indent=1)
            (folder / "zones.truth.json").write_text(re.sub(r"\n {3,}|\n  (?=[}\]])", " ", text) + "\n")
            lines = [f"10.77.{number}.0/24 {rack}\n" for number, rack in enumerate(RACKS, 1)]
            (folder / "zones.zones.txt").write_text("# network zone\n" + "".join(lines))


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
