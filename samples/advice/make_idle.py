"""Record clients whose idle connections a firewall forgets, and the same with connections that are closed before.

    python samples/advice/make_idle.py [FOLDER]        (as root: it makes network namespaces)

The router in front of the clients' host is a stateful firewall (conntrack). It drops what belongs to no connection that
it knows, without RST, and forgets those that carry nothing for 9 s. `point-of-sale` writes a record each 11 s, and
`loyalty` each 13 s, with socket.timeout.ms=3000; `sensor` writes one each 7.5 s, and `web` more than one a second.
`idle-dropped-right`: all with connections.max.idle.ms=8000. Both are recorded at the clients' host. Truth: the packets
that the firewall dropped, and what the clients delivered, with the sum of the latencies of their records, and the
longest one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

#: Seconds without a packet after which the firewall forgets a connection.
TIMEOUT = 9
#: By client: records, and seconds from the answer to one until the next.
CLIENTS = {"point-of-sale": (4, 11.0), "loyalty": (3, 13.0), "sensor": (6, 7.5), "web": (60, 0.7)}
FORGETS = "net.netfilter.nf_conntrack_tcp_timeout_established"


def packets_dropped(router: Host) -> int:
    """How many the firewall has dropped so far."""
    lines = router.run(["iptables", "-L", "FORWARD", "-v", "-x", "-n"]).splitlines()
    return sum(int(line.split()[0]) for line in lines if " DROP " in line)


def play(site: Host, bootstrap: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run all clients at once; what they saw."""
    given = {"topic": "sales", "size": 300, "linger.ms": 0, "seconds": 60, "socket.timeout.ms": 3000,
             "request.timeout.ms": 3000, **settings}  # fmt: skip
    with ThreadPoolExecutor() as pool:
        running = {
            name: pool.submit(
                client, site, "produce", bootstrap, name, given | {"count": count, "bursts": count, "rest": pause}
            )
            for name, (count, pause) in CLIENTS.items()
        }
        return {name: done.result() for name, done in running.items()}


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work, Network() as network:
        broker = network.host("broker", "10.77.0.1")
        site = network.distant("site", "10.78.1.21")
        router = next(host for host in network.hosts if host.name == "r-site")
        router.set("net.netfilter.nf_conntrack_tcp_loose", "0")
        router.run(["iptables", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"])
        with Cluster.start(Path(work) / "cluster", [broker]) as cluster:
            client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": "sales", "replicas": [[1]]})
            router.set(FORGETS, str(TIMEOUT))
            before = packets_dropped(router)
            right = {"connections.max.idle.ms": 8000}
            for name, settings in (("idle-dropped-right", right), ("idle-dropped", {})):
                with recorded_at(site, Path(work), f"tcp port {PORT}") as raw:
                    seen = play(site, cluster.bootstrap, settings)
                publish(folder, name, raw)
                dropped, before = packets_dropped(router) - before, packets_dropped(router)
                truth = {"settings": settings, "idle_timeout_s": TIMEOUT, "packets_dropped": dropped, "clients": seen}
                (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
