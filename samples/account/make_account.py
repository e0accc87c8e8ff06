"""Record clients whose requests lose time for one cause each: the truth of the account of time.

    python samples/account/make_account.py [FOLDER]        (as root: it makes network namespaces)

- `firewall`: a router drops a producer's packets for 2.5 s, and later for 5 s, and says nothing.
- `lossy`: a relay 15 ms away drops 4 % of the segments with data, of Produces and Fetches of 30 kB.
- `late`: the delay of a relay jumps from 5 to 400 ms while requests are under way: timers fire, though nothing is lost.
- `muted`: a producer of 1 MB batches beyond its quota, which sends the next one at once.

Each is recorded at the client (`NAME-client`) and at the broker (`NAME-broker`). Clients are on plain sockets
(tests.support.timed_client). Truth: their clock, the broker's request log, the kernel's counters and `ss -ti` at the
client's host, and the relay's log of what it dropped.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish, requests_of  # noqa: E402
from tests.support.relay import dropped, set_relay  # noqa: E402
from tests.support.sockets import sampled  # noqa: E402

COUNTERS = (
    "TcpRetransSegs",
    "TcpExtTCPDSACKRecv",
    "TcpExtTCPDSACKOfoRecv",
    "TcpExtTCPTimeouts",
    "TcpExtTCPLostRetransmit",
)
#: When the firewall begins to drop, and for how long, s.
FIREWALL = ((1.0, 2.5), (6.0, 5.0))
#: Delays of the relay, one way, and when the longer one begins and ends, s.
NEAR_MS, FAR_MS = 5, 400
JUMPS = ((1.05, 2.6), (5.05, 6.6))
QUOTA = 1_000_000


@dataclass(frozen=True)
class Place:
    """Where a recording is made."""

    folder: Path
    work: Path
    cluster: Cluster
    broker: Host


def counters(host: Host) -> dict[str, int]:
    """TCP's counters of a namespace."""
    lines = host.run(["nstat", "-asz", *COUNTERS]).splitlines()[1:]
    return {line.split()[0]: int(line.split()[1]) for line in lines}


@contextmanager
def at_times(steps: list[tuple[float, Callable[[], object]]]) -> Iterator[list[float]]:
    """Do each step so many seconds after the block began, beside it. The list has when they were done, ms."""
    done: list[float] = []
    ended = threading.Event()

    def work() -> None:
        began = time.monotonic()
        for after, step in steps:
            if ended.wait(max(0.0, began + after - time.monotonic())):
                return
            step()
            done.append(round(1000 * time.time(), 1))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def played(
    place: Place, name: str, host: Host, settings: dict[str, Any], steps: list[tuple[float, Callable[[], object]]]
) -> dict[str, Any]:
    """Record a client at both ends, and what it, the kernel and the broker say."""
    before = {end.name: counters(end) for end in (host, place.broker)}
    condition = f"tcp port {PORT} and host {host.address}"
    with (
        recorded_at(place.broker, place.work, condition) as far,
        recorded_at(host, place.work, condition) as near,
        sampled(host, PORT, side="dport") as samples,
        at_times(steps) as done,
    ):
        seen = json.loads(
            host.python("tests.support.timed_client", place.broker.address, str(PORT), json.dumps(settings))
        )
    publish(place.folder, f"{name}-client", near)
    publish(place.folder, f"{name}-broker", far)
    log = [
        [int(row["client"].rsplit(":", 1)[1]), row["correlation_id"], row["totalTimeMs"], row["throttleTimeMs"]]
        for row in requests_of(place.cluster.brokers[0])
        if row["client_id"] == settings["client_id"] and row["api"] != "API_VERSIONS"
    ]
    return {
        "settings": settings, "steps_ms": done, **seen, "request_log": log, "connections": list(samples.values()),
        "counters": {
            name: {counter: number - before[end.name][counter] for counter, number in counters(end).items()}
            for name, end in (("client", host), ("broker", place.broker))
        },
    }  # fmt: skip


def write_truth(place: Place, name: str, truth: dict[str, Any]) -> None:
    text = json.dumps(truth, indent=1)
    (place.folder / f"{name}.truth.json").write_text(re.sub(r"\n {3,}", " ", text).replace("\n  ]", "]") + "\n")


def record_firewall(place: Place, host: Host, router: Host) -> None:
    rule = ["FORWARD", "-s", host.address, "-j", "DROP"]
    steps: list[tuple[float, Callable[[], object]]] = []
    for begin, seconds in FIREWALL:
        steps.append((begin, lambda: router.run(["iptables", "-A", *rule])))
        steps.append((begin + seconds, lambda: router.run(["iptables", "-D", *rule])))
    settings = {"client_id": "billing", "topic": "orders", "kind": "produce", "count": 10, "size": 2000, "pause": 0.4}
    write_truth(place, "firewall", played(place, "firewall", host, settings, steps))


def record_lossy(place: Place, host: Host, control: Path) -> None:
    settings = {"client_id": "images", "topic": "images", "kind": "both", "count": 6, "connections": 9, "size": 30_000,
                "pause": 0.1}  # fmt: skip
    set_relay(control, delay_ms=15, loss=0.04, seed=7)
    truth = played(place, "lossy", host, settings, [])
    write_truth(place, "lossy", truth | {"dropped": dropped(control)})


def record_late(place: Place, host: Host, control: Path) -> None:
    set_relay(control, delay_ms=NEAR_MS)
    time.sleep(0.1)
    steps: list[tuple[float, Callable[[], object]]] = []
    for begin, end in JUMPS:
        steps.append((begin, lambda: set_relay(control, delay_ms=FAR_MS)))
        steps.append((end, lambda: set_relay(control, delay_ms=NEAR_MS)))
    settings = {"client_id": "sensors", "topic": "orders", "kind": "produce", "count": 12, "connections": 3,
                "size": 2000, "pause": 0.1}  # fmt: skip
    write_truth(place, "late", played(place, "late", host, settings, steps))


def record_muted(place: Place, host: Host) -> None:
    for end in (place.broker, host):
        end.run(["ethtool", "-K", "eth0", "sg", "on", "tx", "on", "tso", "on", "gso", "on", "gro", "on"])
    quota = ["--alter", "--add-config", f"producer_byte_rate={QUOTA}", "--entity-type", "clients", "--entity-name"]
    place.cluster.tool("kafka.admin.ConfigCommand", *quota, "bulk")
    settings = {"client_id": "bulk", "topic": "images", "kind": "produce", "count": 6, "size": 1_000_000, "pause": 0}
    write_truth(place, "muted", played(place, "muted", host, settings, []))


def record(folder: Path) -> None:
    """Start the broker, then record each client."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        (work / "cluster").mkdir()
        control = work / "relay.json"
        set_relay(control, delay_ms=5)
        broker, bulk = network.host("broker", "10.77.0.1"), network.host("bulk", "10.77.0.11")
        near, far = network.distant("near", "10.78.1.2"), network.distant("far", "10.78.2.2", control=control)
        router = next(host for host in network.hosts if host.name == "r-near")
        # A request fits into the first congestion window, so what it takes longer than others is what loss cost.
        far.run(["ip", "route", "replace", "default", "via", "10.78.2.254", "initcwnd", "60"])
        broker.run(["ip", "route", "replace", "10.78.2.0/24", "via", "10.77.254.2", "initcwnd", "60"])
        for host in (broker, far):
            host.set("net.ipv4.tcp_no_metrics_save", "1")
        properties = {"socket.send.buffer.bytes": "-1", "quota.window.num": "2"}
        with Cluster.start(work / "cluster", [broker], properties=properties, request_log=True) as cluster:
            for topic in ("orders", "images"):
                # The records' time stamps are 0.
                made = {"topic": topic, "replicas": [[1]], "config": {"retention.ms": "-1"}}
                client(broker, "create", cluster.bootstrap, "ops-admin", made)
            place = Place(folder, work, cluster, broker)
            record_firewall(place, near, router)
            record_late(place, far, control)
            record_lossy(place, far, control)
            record_muted(place, bulk)


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
