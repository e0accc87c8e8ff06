"""Record two brokers that advertise one address: `same-address.pcap.zst`, and `same-address-right.pcap.zst`.

    python samples/advice/make_same_address.py [FOLDER]        (as root: it makes network namespaces)

Two brokers have a listener COPIED, for which broker 2 has the `advertised.listeners` of broker 1, and a listener OWN.
`shop` writes to two partitions, of which each broker leads one, through COPIED, and in the second recording through
OWN. The truth has what each listener of both advertises, and what the client delivered.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import CONTROLLER_PORT, PORT, Cluster  # noqa: E402
from tests.support.namespaces import Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

ADDRESSES = {1: "10.77.0.1", 2: "10.77.0.2"}
COPIED, OWN = 9192, 9292
#: What each listener advertises, by broker.
ADVERTISED = {
    "same-address": dict.fromkeys(ADDRESSES, f"{ADDRESSES[1]}:{COPIED}"),
    "same-address-right": {number: f"{address}:{OWN}" for number, address in ADDRESSES.items()},
}


def properties(number: int) -> dict[str, str]:
    ports = {"PLAINTEXT": PORT, "COPIED": COPIED, "OWN": OWN} | ({"CONTROLLER": CONTROLLER_PORT} if number == 1 else {})
    told = {
        "PLAINTEXT": f"{ADDRESSES[number]}:{PORT}", "COPIED": ADVERTISED["same-address"][number],
        "OWN": ADVERTISED["same-address-right"][number],
    }  # fmt: skip
    return {
        "listeners": ",".join(f"{name}://{ADDRESSES[number]}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{address}" for name, address in told.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*told, "CONTROLLER")),
        "inter.broker.listener.name": "PLAINTEXT",
    }


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as named, Network() as network:
        work = Path(named)
        hosts = [network.host(f"broker{number}", address) for number, address in ADDRESSES.items()]
        shop = network.host("shop", "10.77.0.21")
        with Cluster.start(work / "cluster", hosts, each=properties) as cluster:
            client(shop, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[1], [2]]})
            for name, port in (("same-address", COPIED), ("same-address-right", OWN)):
                settings = {"topic": "orders", "count": 20, "size": 100, "pause": 0.2, "seconds": 8, "linger.ms": 0}
                settings |= {"partitioner": "random", "message.timeout.ms": 6000, "sticky.partitioning.linger.ms": 0}
                with recorded_at(shop, work, f"tcp port {port}") as raw:
                    seen = client(shop, "produce", f"{ADDRESSES[1]}:{port}", "shop", settings)
                publish(folder, name, raw)
                truth = {"advertised": ADVERTISED[name], "client": seen}
                (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
