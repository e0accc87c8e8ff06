"""Record clients that a broker sends to addresses which they cannot reach: `advertised` and `advertised-right`.

    python samples/advice/make_advertised.py [FOLDER]        (as root: it makes network namespaces)

The broker has four listeners. Each client asks one of them, and is sent to what that listener advertises:

- checkout: 10.77.0.1:9999, where nothing listens.
- billing: 10.77.0.1:9998, whose packets a firewall drops.
- audit: 127.0.0.1:9392. It tries that on its own host, where the capture does not see it.
- ops: 10.77.0.1:9092, where the broker is.

In `advertised-right` all ask the last one. Truth: the packets that the firewall counted at the broker for each port,
and the clients' own errors. The capture is of the broker's interface.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import CONTROLLER_PORT, PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

BROKER = "10.77.0.1"
REFUSED, DROPPED, LOCAL = 9999, 9998, 9392
#: Listener -> its port, and what it advertises.
LISTENERS = {
    "PLAINTEXT": (PORT, f"{BROKER}:{PORT}"),
    "REFUSED": (9192, f"{BROKER}:{REFUSED}"),
    "DROPPED": (9292, f"{BROKER}:{DROPPED}"),
    "LOCAL": (LOCAL, f"127.0.0.1:{LOCAL}"),
}
CLIENTS = {"checkout": "REFUSED", "billing": "DROPPED", "audit": "LOCAL", "ops": "PLAINTEXT"}


def properties() -> dict[str, str]:
    controller = f"CONTROLLER://{BROKER}:{CONTROLLER_PORT}"
    names = [*LISTENERS, "CONTROLLER"]
    return {
        "listeners": ",".join([*(f"{name}://{BROKER}:{port}" for name, (port, _) in LISTENERS.items()), controller]),
        "advertised.listeners": ",".join(f"{name}://{told}" for name, (_, told) in LISTENERS.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": "PLAINTEXT",
    }


def firewall(broker: Host) -> None:
    """Drop what comes to one port, and count what comes to each of both."""
    for port, action in ((DROPPED, ["-j", "DROP"]), (REFUSED, [])):
        broker.run(["iptables", "-A", "INPUT", "-p", "tcp", "--dport", str(port), "--tcp-flags", "SYN", "SYN", *action])


def counted(broker: Host) -> dict[str, int]:
    """SYNs by port, as the firewall counted them."""
    lines = [line.split() for line in broker.run(["iptables", "-L", "INPUT", "-v", "-x", "-n"]).splitlines()]
    return {str(port): sum(int(words[0]) for words in lines if f"dpt:{port}" in words) for port in (REFUSED, DROPPED)}


def play(hosts: dict[str, Host], listeners: dict[str, str]) -> dict[str, Any]:
    """Run all clients at once, for some seconds."""
    settings = {"topic": "orders", "count": 5, "size": 100, "pause": 0.3, "seconds": 7, "message.timeout.ms": 6000}

    def one(name: str) -> dict[str, Any]:
        return client(hosts[name], "produce", f"{BROKER}:{LISTENERS[listeners[name]][0]}", name, settings)

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(one, hosts), strict=True))


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as named, Network() as network:
        work = Path(named)
        broker = network.host("broker", BROKER)
        hosts = {name: network.host(name, f"10.77.0.{number}") for number, name in enumerate(CLIENTS, 11)}
        with Cluster.start(work / "cluster", [broker], properties=properties()) as cluster:
            client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[1]]})
            firewall(broker)
            for name, listeners in (("advertised", CLIENTS), ("advertised-right", dict.fromkeys(CLIENTS, "PLAINTEXT"))):
                before = counted(broker)
                with recorded_at(broker, work, f"tcp and not port {CONTROLLER_PORT}") as raw:
                    seen = play(hosts, listeners)
                publish(folder, name, raw)
                syns = {port: count - before[port] for port, count in counted(broker).items()}
                advertised = {name_: LISTENERS[listener][1] for name_, listener in listeners.items()}
                truth = {"advertised": advertised, "syns": syns, "clients": seen}
                (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
