"""Record old and new clients at brokers of 3.9.1 and 4.3.0: `upgrade-3.9.pcap.zst`, `upgrade-4.3.pcap.zst`, and truth.

    python samples/questions/make_upgrade.py [FOLDER]        (as root: it makes network namespaces)

kafka-python 2.0.2 (with the versions of 0.10, and with those that it negotiates), kafka-clients 0.10.2, 1.1, 2.0 and
2.8, and today's librdkafka write to a topic and read it in a group. At 4.3.0 some of them fail.

The captures are of the broker's interface. `upgrade-VERSION.truth.json` has what each client saw, and the broker's own
counts (JMX): RequestsPerSec by API and version, and DeprecatedRequestsPerSec by API, version and the client's software.
A broker also counts what it sends to itself as controller.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.broker import BrokerError, _fetch, jars_folder, java_command  # noqa: E402
from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

BROKERS = {"3.9": "3.9.1", "4.3": "4.3.0"}
JAVA_CLIENTS = ("0.10.2.2", "1.1.1", "2.0.1", "2.8.2")
KAFKA_PYTHON = "2.0.2"
MESSAGES = 10
JMX_PORT = 9999
JMX = [
    f"-Dcom.sun.management.jmxremote.port={JMX_PORT}",
    f"-Dcom.sun.management.jmxremote.rmi.port={JMX_PORT}",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
    "-Djava.rmi.server.hostname=127.0.0.1",
]


def client_jars(version: str) -> Path:
    """The folder with the jars of an old release's clients."""
    folder = jars_folder(version).with_name(f"kafka-clients-only-{version}")
    return _fetch(folder, ("org.apache.kafka", "kafka-clients", version, ""))


def counts(cluster: Cluster, metric: str) -> list[dict[str, object]]:
    """The tags and the count of each metric of this name that is not zero."""
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{JMX_PORT}/jmxrmi"
    name = f"kafka.network:type=RequestMetrics,name={metric},*"
    arguments = ["--jmx-url", url, "--object-name", name, "--attributes", "Count", "--one-time"]
    words = java_command(cluster.jars, "org.apache.kafka.tools.JmxTool", [*arguments, "--report-format", "properties"])
    try:
        text = cluster.brokers[0].host.run(words)
    except BrokerError as error:
        print(f"no {metric}: {str(error)[-200:]}")  # a broker without deprecated requests has no such metric
        return []
    rows = []
    for tags, count in re.findall(rf"^kafka\.network:type=RequestMetrics,name={metric},(.+):Count=(\d+)$", text, re.M):
        row: dict[str, object] = dict(tag.split("=", 1) for tag in tags.split(","))
        if int(count):
            rows.append(row | {"count": int(count)})
    return sorted(rows, key=lambda row: (str(row["request"]), int(str(row["version"])), str(row)))


def play(cluster: Cluster, hosts: Mapping[str, Host], classes: Path, python: Path) -> dict[str, object]:
    """Run the clients one after another."""
    at = cluster.bootstrap
    seen: dict[str, object] = {}
    client(hosts["librdkafka"], "create", at, "ops-admin", {"topic": "orders", "replicas": [[1]]})
    for name, version in (("python-0.10", "0.10"), ("python-auto", "")):
        words = [str(python), str(ROOT / "tests/support/old_python_client.py"), at, name, "orders", str(MESSAGES)]
        seen[name] = json.loads(hosts[name].run([*words, *([version] if version else [])]))
        print(name, seen[name])
    for version in JAVA_CLIENTS:
        name = f"java-{version}"
        words = java_command(client_jars(version), "OldClient", [at, name, "orders", str(MESSAGES)], classes=classes)
        seen[name] = [line[:160] for line in hosts[name].run(words).splitlines()]
        print(name, seen[name])
    settings = {"topic": "orders", "count": MESSAGES, "size": 50, "seconds": 5}
    seen["librdkafka sent"] = client(hosts["librdkafka"], "produce", at, "librdkafka", settings)
    del settings["size"]
    seen["librdkafka read"] = client(hosts["librdkafka"], "consume", at, "librdkafka", settings)
    return seen


def record(folder: Path) -> None:
    """Compile the Java client, install kafka-python, then record each broker."""
    with tempfile.TemporaryDirectory() as name:
        work, classes = Path(name), Path(name) / "classes"
        source = str(FOLDER / "java" / "OldClient.java")
        oldest = client_jars(JAVA_CLIENTS[0])
        command = ["javac", "-nowarn", "-cp", f"{oldest}/*", "-d", str(classes), source]
        subprocess.run(command, check=True, timeout=120)
        venv.create(work / "venv", with_pip=True)
        python = work / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "-q", "install", f"kafka-python=={KAFKA_PYTHON}"], check=True, timeout=300)
        for short, version in BROKERS.items():
            record_one(folder, work / short, f"upgrade-{short}", version, classes, python)


def record_one(folder: Path, work: Path, name: str, version: str, classes: Path, python: Path) -> None:
    work.mkdir()
    clients = ["python-0.10", "python-auto", *(f"java-{release}" for release in JAVA_CLIENTS), "librdkafka"]
    with Network() as network:
        broker = network.host("broker", "10.77.0.1")
        hosts = {client: network.host(client, f"10.77.0.{number}") for number, client in enumerate(clients, 11)}
        with Cluster.start(work / "cluster", [broker], version=version, options=JMX) as cluster:
            with recorded_at(broker, work, f"tcp port {PORT}") as raw:
                seen = play(cluster, hosts, classes, python)
            truth = {
                "clients": seen,
                "hosts": {name: host.address for name, host in hosts.items()},
                "requests": counts(cluster, "RequestsPerSec"),
                "deprecated": counts(cluster, "DeprecatedRequestsPerSec"),
            }
            publish(folder, name, raw)
            text = json.dumps(truth, indent=1)
            (folder / f"{name}.truth.json").write_text(re.sub(r"\n {3,}|\n  (?=[}\]])", " ", text) + "\n")


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
