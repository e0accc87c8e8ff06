"""Record clients on long paths whose settings or MTU cost time, and the same set right: samples in pairs.

    python samples/advice/make_paths.py [FOLDER]        (as root: it makes network namespaces)

- `receive-buffer`, `receive-buffer-right`: a reader 40 ms away, with receive.buffer.bytes=16384, and with the system's.
- `send-buffer`, `send-buffer-right`: a producer 40 ms away, with send.buffer.bytes=8192, and with the system's.
  It is recorded at its host.
- `black-hole`, `black-hole-right`: a router drops packets of more than 1,000 bytes, and says nothing. A reader,
  recorded at the broker. `black-hole-producer`: a producer, recorded at its host. Right: the router reduces the MSS.

The delays come from a TUN device (tests.support.namespaces). Truth: `ss -ti` in the sender's namespace, and what the
router dropped.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402
from tests.support.sockets import sampled  # noqa: E402

SIZE = 50_000
FILTER = f"tcp port {PORT}"
#: Packets of more bytes than this are dropped on the path with the black hole, and the MSS that fits.
LARGEST, MSS = 1000, 900


def write_truth(folder: Path, name: str, truth: dict[str, Any]) -> None:
    (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def record_receive_buffer(folder: Path, work: Path, cluster: Cluster, broker: Host, far: Host) -> None:
    for name, options in (("receive-buffer", {"socket.receive.buffer.bytes": 16_384}), ("receive-buffer-right", {})):
        settings = {"topic": "images", "count": 12, "seconds": 12, "fetch.message.max.bytes": 2 * SIZE, **options}
        with recorded_at(broker, work, FILTER) as raw, sampled(broker, PORT) as samples:
            seen = client(far, "consume", cluster.bootstrap, "thumbnailer", settings)
        publish(folder, name, raw)
        rows = [row for (_, peer), row in samples.items() if peer.startswith(far.address)]
        write_truth(folder, name, {"settings": options, "connections": rows, "client": seen})


def record_send_buffer(folder: Path, work: Path, cluster: Cluster, far: Host) -> None:
    for name, options in (("send-buffer", {"socket.send.buffer.bytes": 8192}), ("send-buffer-right", {})):
        settings = {"topic": "uploads", "count": 12, "size": SIZE, "seconds": 20, "linger.ms": 0, **options}
        with recorded_at(far, work, FILTER) as raw, sampled(far, PORT, side="dport") as samples:
            seen = client(far, "produce", cluster.bootstrap, "uploader", settings)
        publish(folder, name, raw)
        write_truth(folder, name, {"settings": options, "connections": list(samples.values()), "client": seen})


def rules(router: Host, action: str, kind: str) -> None:
    """Add (-A) or delete (-D) the rules of the router: `hole` drops large packets, `clamp` reduces the MSS."""
    if kind == "hole":
        words = ["FORWARD", "-p", "tcp", "-m", "length", "--length", f"{LARGEST + 1}:65535", "-j", "DROP"]
    else:
        words = ["FORWARD", "-p", "tcp", "--tcp-flags", "SYN", "SYN", "-j", "TCPMSS", "--set-mss", str(MSS)]
    router.run(["iptables", action, *words])


def dropped(router: Host) -> int:
    """The packets that the first rule of the router dropped."""
    lines = router.run(["iptables", "-L", "FORWARD", "-v", "-x", "-n"]).splitlines()
    return sum(int(line.split()[0]) for line in lines if " DROP " in line)


def record_black_hole(folder: Path, work: Path, cluster: Cluster, broker: Host, near: Host, router: Host) -> None:
    reading = {"topic": "images", "count": 3, "seconds": 6, "fetch.message.max.bytes": 2 * SIZE}
    writing = {"topic": "uploads", "count": 3, "size": 3000, "seconds": 6, "linger.ms": 0}
    rules(router, "-A", "hole")
    for suffix in ("", "-right"):
        if suffix:
            rules(router, "-A", "clamp")
        with recorded_at(broker, work, FILTER) as raw, sampled(broker, PORT) as samples:
            seen = client(near, "consume", cluster.bootstrap, "thumbnailer", reading)
        publish(folder, f"black-hole{suffix}", raw)
        connections = [row for (_, peer), row in samples.items() if peer.startswith(near.address)]
        write_truth(folder, f"black-hole{suffix}",
                    {"dropped": dropped(router), "connections": connections, "client": seen})  # fmt: skip
        with recorded_at(near, work, FILTER) as raw, sampled(near, PORT, side="dport") as sent:
            seen = client(near, "produce", cluster.bootstrap, "uploader", writing)
        publish(folder, f"black-hole-producer{suffix}", raw)
        write_truth(folder, f"black-hole-producer{suffix}",
                    {"dropped": dropped(router), "connections": list(sent.values()), "client": seen})  # fmt: skip


def record(folder: Path) -> None:
    """Start the broker, fill its topic, then record each pair."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        broker = network.host("broker", "10.77.0.1")
        far = network.distant("far", "10.78.1.2", delay_ms=20)
        near = network.distant("near", "10.78.2.2")
        router = next(host for host in network.hosts if host.name == "r-near")
        # The broker's own buffer of 100 KiB would be the next limit.
        properties = {"socket.receive.buffer.bytes": "-1"}
        with Cluster.start(work / "cluster", [broker], properties=properties) as cluster:
            for topic in ("images", "uploads"):
                client(broker, "create", cluster.bootstrap, "ops-admin", {"topic": topic, "replicas": [[1]]})
            fill = {"topic": "images", "count": 12, "size": SIZE, "linger.ms": 0}
            client(broker, "produce", cluster.bootstrap, "filler", fill)
            record_receive_buffer(folder, work, cluster, broker, far)
            record_send_buffer(folder, work, cluster, far)
            record_black_hole(folder, work, cluster, broker, near, router)


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
