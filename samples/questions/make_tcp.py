"""Record readers with different TCP connections: `tcp.pcap.zst`, and `tcp.ss.json` as the broker's kernel saw them.

    python samples/questions/make_tcp.py [FOLDER]        (as root: it makes network namespaces)

Five readers fetch the same topic, one after another, and a producer writes to it over a path that loses packets:

- billing: an ordinary reader on the broker's network.
- slow-reader: its receive buffer has 8 KiB, and it is 10 ms away.
- remote: 40 ms away.
- remote-unscaled: 40 ms away, without window scaling.
- remote-lossy: 10 ms away, behind a router that loses 2 % of the packets each way; remote-loader writes from there.

The capture is of the broker's interface. `ss -ti` runs in the broker's namespace ten times a second.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402
from tests.support.sockets import Samples, sampled  # noqa: E402

MESSAGES, SIZE = 1000, 1000


def hosts(network: Network) -> dict[str, Host]:
    found = {
        "billing": network.host("billing", "10.77.0.11"),
        "slow-reader": network.distant("slow-reader", "10.78.4.2", delay_ms=5),
        "remote": network.distant("remote", "10.78.1.2", delay_ms=20),
        "remote-unscaled": network.distant("unscaled", "10.78.2.2", delay_ms=20),
        "remote-lossy": network.distant("lossy", "10.78.3.2", delay_ms=5, loss=0.02),
    }
    found["remote-unscaled"].set("net.ipv4.tcp_window_scaling", "0")
    return found


def play(cluster: Cluster, found: dict[str, Host]) -> dict[str, object]:
    """Run the clients one after another."""
    seen: dict[str, object] = {}
    for name, host in found.items():
        options = {"socket.receive.buffer.bytes": 8192} if name == "slow-reader" else {}
        settings = {"topic": "orders", "count": 10 * MESSAGES, "seconds": 5} | options
        seen[name] = client(host, "consume", cluster.bootstrap, name, settings)
    settings = {"topic": "returns", "count": MESSAGES, "size": SIZE, "linger.ms": 20, "seconds": 30}
    seen["remote-loader"] = client(found["remote-lossy"], "produce", cluster.bootstrap, "remote-loader", settings)
    return seen


def record(folder: Path) -> None:
    """Start the broker, fill its topic, then record the readers."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        broker = network.host("broker", "10.77.0.1")
        broker.set("net.ipv4.tcp_congestion_control", "reno")
        found = hosts(network)
        with Cluster.start(work, [broker]) as cluster:
            for topic in ("orders", "returns"):
                client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": topic, "replicas": [[1]]})
            fill = {"topic": "orders", "count": MESSAGES, "size": SIZE, "linger.ms": 50}
            client(broker, "produce", cluster.bootstrap, "filler", fill)
            with recorded_at(broker, work, f"tcp port {PORT}") as raw, sampled(broker, PORT) as samples:
                seen = play(cluster, found)
            publish(folder, "tcp", raw)
            (folder / "tcp.ss.json").write_text(json.dumps(truth(samples, found, seen), indent=1) + "\n")


def truth(samples: Samples, found: dict[str, Host], seen: dict[str, object]) -> dict[str, object]:
    """The kernel's numbers of each connection, by the client's address and port."""
    names = {host.address: name for name, host in found.items()}
    rows = []
    for (_, peer), row in sorted(samples.items(), key=lambda item: float(item[1]["first_seen"])):
        address, port = peer.rsplit(":", 1)
        if address in names:
            rows.append({"host": names[address], "client_ip": address, "client_port": int(port), **row})
    return {"connections": rows, "clients": seen}


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
