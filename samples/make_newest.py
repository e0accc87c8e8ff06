"""Record a sample of Kafka 4.4: `live-4.4.pcap.zst`, and `live-4.4.exchanges.tsv` as Kafka's own parsers read it.

    python samples/make_newest.py [FOLDER]        (as root: tcpdump records loopback)

The clients are java/NewestClients.java. They use what 4.4 added: ApiVersions 5 with the cluster's id, transactions with
ids of topics (TxnOffsetCommit 6), error messages of DeleteGroups 3, and topologies of streams groups.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from tests.support.broker import NEWEST_KAFKA, KafkaBroker, fetch_jars, run_class  # noqa: E402
from tests.support.captures import write_capture  # noqa: E402
from tests.support.kafka_truth import truth_of  # noqa: E402
from tests.support.recording import cannot_record, recorded  # noqa: E402

NAME = "live-4.4"
PLUGIN = {"group.streams.topology.description.plugin.class": "NewestClients$TopologyStore"}


def record(folder: Path) -> None:
    """Compile the clients, start the broker and tcpdump, run the clients, stop both, write the sample."""
    jars = fetch_jars(NEWEST_KAFKA)
    with tempfile.TemporaryDirectory() as name:
        work, classes = Path(name), Path(name) / "classes"
        source = str(FOLDER / "java" / "NewestClients.java")
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), source], check=True, timeout=120)
        features = ("share.version=1", "streams.version=1")
        with KafkaBroker.start(
            work / "broker", version=NEWEST_KAFKA, properties=PLUGIN, features=features, classes=classes
        ) as broker:
            with recorded(work, broker.port) as raw:
                print(run_class(jars, "NewestClients", [broker.bootstrap], timeout=120, classes=classes))
            target = write_capture(folder / f"{NAME}.pcap.zst", raw.read_bytes())
            (folder / f"{NAME}.exchanges.tsv").write_text(truth_of(raw, broker.port, NEWEST_KAFKA))
            print(f"{target}: {target.stat().st_size} bytes, {raw.stat().st_size} unpacked")


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        print("usage: python samples/make_newest.py [FOLDER]", file=sys.stderr)
        return 2
    if why := cannot_record():
        print(f"make_newest: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
