"""Record a broker whose disk gets full: `full-disk.pcap.zst`, and its truth.

    python samples/events/make_disk.py [FOLDER]        (as root: it makes network namespaces, and mounts a tmpfs)

Three brokers of Kafka 4.3. Broker 3 has its log directory on a file system of 48 MiB, most of which is taken, and leads
a partition of `bulk`, to which `loader` writes until it is full: then the broker ends. `checkout` writes to `orders`,
which it leads as well. The capture is of the host of the clients, 3.5 s before the broker ended to 9.5 s after it. The
truth has the lines of the brokers' logs, and when broker 3 ended by the script's clock.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parents[1]), str(FOLDER)]

from samples.events.make_events import PROPERTIES  # noqa: E402
from tests.support.broker import missing_compiler  # noqa: E402
from tests.support.captures import pcap_bytes, read_capture  # noqa: E402
from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Network, cannot_build, recorded_at  # noqa: E402
from tests.support.question_scripts import client, publish  # noqa: E402

LINES = re.compile(r"No space left|Stopping serving logs|Shutdown broker because|Fencing broker|log dir.*failed")
BEFORE_S, AFTER_S = 3.5, 9.5
SIZE, LEFT = "48m", 2_000_000


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        disk = work / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], check=True)
        try:
            hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2, 3)]
            shop = network.host("shop", "10.77.0.21")

            def each(number: int) -> dict[str, str]:
                return {"log.dirs": str(disk / "logs")} if number == 3 else {}

            made = PROPERTIES | {"log.index.size.max.bytes": "65536", "log.segment.bytes": "1048576"}
            with Cluster.start(work / "cluster", hosts, properties=made, each=each, request_log=True) as cluster:
                for topic, replicas in (("bulk", [[3]]), ("orders", [[3, 1], [1, 3]])):
                    client(shop, "create", cluster.bootstrap, "ops-admin", {"topic": topic, "replicas": replicas})
                began = time.time()
                free = shutil.disk_usage(disk).free
                (disk / "filler").write_bytes(bytes(max(free - LEFT, 0)))
                with recorded_at(shop, work, f"tcp port {PORT}") as raw:
                    runs = []
                    for who, topic, size, pause in (("loader", "bulk", 20_000, 0.05), ("checkout", "orders", 60, 0.2)):
                        settings = {"topic": topic, "count": 100_000, "size": size, "pause": pause, "seconds": 25}
                        settings |= {"bootstrap.servers": cluster.bootstrap, "client.id": who}
                        settings |= {"compression.type": "none", "message.timeout.ms": 5000}
                        words = [sys.executable, "-m", "tests.support.run_client", "produce", json.dumps(settings)]
                        run = subprocess.Popen(
                            shop.command(words), cwd=FOLDER.parents[1], stdout=subprocess.PIPE, text=True
                        )
                        runs.append((who, run))
                    ended = None
                    while any(run.poll() is None for _, run in runs):
                        if ended is None and cluster.brokers[2].process.poll() is not None:
                            ended = round(time.time(), 3)
                            print(f"broker 3 ended at {ended}")
                        time.sleep(0.05)
                    seen = {who: json.loads(run.communicate()[0]) for who, run in runs}
                if ended is not None:
                    packets = read_capture(raw).packets
                    near = [p for p in packets if ended - BEFORE_S <= p.time_ns / 1e9 < ended + AFTER_S]
                    raw.write_bytes(pcap_bytes(near))
                publish(folder, "full-disk", raw)
                lines = []
                for broker in cluster.brokers:
                    for line in broker.log().splitlines():
                        if LINES.search(line):
                            lines.append([broker.number, line[:200]])
                truth = {"began": began, "ended": ended, "clients": seen, "log": lines[:40]}
                (folder / "full-disk.truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        finally:
            subprocess.run(["umount", str(disk)], check=False)


def main(arguments: list[str]) -> int:
    if why := cannot_build() or missing_compiler():
        print(f"make_disk: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else FOLDER / "disk")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
