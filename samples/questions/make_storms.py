"""Record clients that connect too often or badly: `storms.pcap.zst`, and `storms.truth.json`.

    python samples/questions/make_storms.py [FOLDER]        (as root: it makes network namespaces)

- billing: an ordinary reader, whose connections last.
- reconnector: 200 connections, each for one ApiVersions.
- wrong-password: 30 connections whose SASL PLAIN fails.
- crasher: 25 connections that the client resets.
- idler: 3 connections that the broker closes after 4 s of silence (connections.max.idle.ms).
- half-open: the broker's SYN-ACK does not reach it (iptables in the client's namespace).
- scanner: SYNs to a closed port and to a filtered one (iptables DROP in the broker's namespace).

The capture is of the broker's interface. The truth has what each client saw, and what the kernel of the broker's
namespace and the broker's log counted.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

SASL_PORT, CLOSED_PORT, FILTERED_PORT = 9093, 9098, 9099
#: Clients in the order they run: kind, port, connections.
CLIENTS = {
    "reconnector": ("reconnect", PORT, 200),
    "wrong-password": ("password", SASL_PORT, 30),
    "crasher": ("reset", PORT, 25),
    "idler": ("idle", PORT, 3),
    "half-open": ("knock", PORT, 5),
    "scanner": ("knock", CLOSED_PORT, 20),
}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="generated";'


def properties(address: str) -> Mapping[str, str]:
    """A second listener with SASL, and an idle time that a recording can wait for."""
    return {
        "listeners": f"PLAINTEXT://{address}:{PORT},SASL://{address}:{SASL_PORT},CONTROLLER://{address}:9095",
        "advertised.listeners": f"PLAINTEXT://{address}:{PORT},SASL://{address}:{SASL_PORT}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN,
        "connections.max.idle.ms": "4000",
    }


def counters(host: Host) -> dict[str, int]:
    """The TCP counters of a namespace."""
    found: dict[str, int] = {}
    for path in ("/proc/net/snmp", "/proc/net/netstat"):
        lines = host.run(["cat", path]).splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            if names.startswith("Tcp"):
                found |= dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    wanted = ("PassiveOpens", "AttemptFails", "EstabResets", "OutRsts", "TCPTimeouts", "TCPSynRetrans")
    return {name: found[name] for name in wanted}


def play(cluster: Cluster, network: Network, broker: Host) -> dict[str, object]:
    """Run the clients one after another."""
    hosts = {name: network.host(name, f"10.77.0.{20 + at}") for at, name in enumerate(("billing", *CLIENTS))}
    hosts["half-open"].run(["iptables", "-A", "INPUT", "-p", "tcp", "-j", "DROP"])
    broker.run(["iptables", "-A", "INPUT", "-p", "tcp", "--dport", str(FILTERED_PORT), "-j", "DROP"])
    seen: dict[str, object] = {}
    settings = {"topic": "orders", "count": 10_000, "seconds": 3}
    seen["billing"] = client(hosts["billing"], "consume", cluster.bootstrap, "billing", settings)
    for name, (kind, port, count) in CLIENTS.items():
        seen[name] = storm(hosts[name], kind, broker, port, count)
    seen["scanner, filtered port"] = storm(hosts["scanner"], "knock", broker, FILTERED_PORT, 5)
    return {"hosts": {name: host.address for name, host in hosts.items()}, "clients": seen}


def storm(host: Host, kind: str, broker: Host, port: int, count: int) -> object:
    seen = json.loads(host.python("tests.support.storm_client", kind, broker.address, str(port), str(count)))
    print(f"{host.name}: {seen}")
    return seen


def record(folder: Path) -> None:
    """Start the broker, record the clients, write the sample."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        broker = network.host("broker", "10.77.0.1")
        with Cluster.start(work, [broker], properties=properties(broker.address)) as cluster:
            client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[1]]})
            client(broker, "produce", cluster.bootstrap, "filler", {"topic": "orders", "count": 50, "size": 100})
            before = counters(broker)
            with recorded_at(broker, work, "tcp and not port 9095") as raw:
                truth = play(cluster, network, broker)
            after = counters(broker)
            truth["kernel"] = {name: after[name] - before[name] for name in after}
            truth["failed_authentications"] = cluster.brokers[0].log().count("Failed authentication")
            publish(folder, "storms", raw)
            (folder / "storms.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
