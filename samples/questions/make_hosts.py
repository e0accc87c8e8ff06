"""Record pods that move: `hosts.pcap.zst`, `hosts.hosts.csv`, `hosts.pods.json`, and `hosts.truth.json`.

    python samples/questions/make_hosts.py [FOLDER]        (as root: it makes network namespaces)

A pod is a client with its own client_id, which is its name. Two addresses, 10.77.0.11 and 10.77.0.12, change their pods
while the recording runs: payments and orders swap them, then another pod takes one over. Two pods share the address of
their node, 10.77.0.20, at the same time.

`hosts.hosts.csv` has who had an address from when to when, by the clock of the script; `hosts.pods.json` the node and
its pods as kubectl lists them. Both are for `kafkatap report --hosts`. The truth is in the rows themselves: the name of
an address is the client_id. `hosts.truth.json` has how many messages each pod sent.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

BROKER, NODE = "10.77.0.1", "10.77.0.20"
#: Who has 10.77.0.11 and 10.77.0.12, one pair after the other.
TURNS = (("payments-7f9", "orders-1b2"), ("orders-1b2", "payments-7f9"), ("audit-c41", "payments-7f9"))
SHARED = ("log-shipper", "metrics")
MESSAGES = 40


def clock(ns: int) -> str:
    """UTC with nanoseconds."""
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z"


def play(cluster: Cluster, hosts: list[Host], node: Host) -> tuple[list[str], dict[str, int]]:
    """The lines of the CSV, and the messages that each pod sent."""
    lines, sent = ["address,name,labels,from,to"], dict[str, int]()

    def send(host: Host, name: str) -> None:
        settings = {"topic": "orders", "count": MESSAGES, "size": 200, "pause": 0.02, "seconds": 20, "linger.ms": 0}
        sent[name] = sent.get(name, 0) + client(host, "produce", cluster.bootstrap, name, settings)["delivered"]

    def have_turn(host: Host, name: str) -> None:
        begin = time.time_ns()
        send(host, name)
        lines.append(f"{host.address},{name},app={name.partition('-')[0]},{clock(begin)},{clock(time.time_ns())}")

    with ThreadPoolExecutor(4) as pool:
        shared = [pool.submit(send, node, name) for name in SHARED]
        for turn in TURNS:
            for done in [pool.submit(have_turn, host, name) for host, name in zip(hosts, turn, strict=True)]:
                done.result()
        for done in shared:
            done.result()
    return [*lines, f"{BROKER},kafka-1,zone=a,,", "10.77.0.0/16,somebody,,,"], sent


def listed() -> dict[str, object]:
    """The node and its pods as kubectl has them."""
    pods = [
        {
            "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"nodeName": "node-1", "hostNetwork": True},
            "status": {"phase": "Running", "hostIP": NODE, "podIP": NODE, "podIPs": [{"ip": NODE}]},
        }
        for name in SHARED
    ]  # fmt: skip
    node = {
        "kind": "Node", "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": "b"}},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE}]},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": [*pods, node]}


def record(folder: Path) -> None:
    """Start the broker, record the pods, write the sample."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        broker, node = network.host("broker", BROKER), network.host("node", NODE)
        hosts = [network.host(f"pod{number}", f"10.77.0.{number}") for number in (11, 12)]
        with Cluster.start(work / "cluster", [broker]) as cluster:
            client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[1]]})
            with recorded_at(broker, work, f"tcp port {PORT} and not host 127.0.0.1") as raw:
                lines, sent = play(cluster, hosts, node)
            publish(folder, "hosts", raw)
            (folder / "hosts.hosts.csv").write_text("\n".join(lines) + "\n")
            (folder / "hosts.pods.json").write_text(json.dumps(listed(), indent=1) + "\n")
            (folder / "hosts.truth.json").write_text(json.dumps(sent, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
