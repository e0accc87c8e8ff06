"""Record clusters where nothing is wrong, each with its truth.

    python samples/events/make_healthy.py [FOLDER [SCENE ...]]        (as root: it makes network namespaces)

Three brokers of Kafka 4.3, each a controller as well, and at three hosts the clients of four libraries: producers with
acks=all, groups of two readers, and one that reads and writes in transactions.

steady    ten minutes. Published is one minute of host `bank` (Java)
rolling   each broker is restarted (SIGTERM), one after another, and the clients go on. Published is all of host `shop`
          (librdkafka)

SCENE.truth.json has the script's clock (seconds since the epoch) and the lines of the brokers' logs. SCENE.whole.pcap
is the capture of the bridge, with the replication and the controllers' messages: it is not published.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parents[1]), str(FOLDER)]

from samples.events.make_events import PROPERTIES, Stage  # noqa: E402
from tests.support.broker import missing_compiler  # noqa: E402
from tests.support.captures import pcap_bytes, read_capture  # noqa: E402
from tests.support.cluster import CONTROLLER_PORT, PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, cannot_build, recorded_at, run  # noqa: E402
from tests.support.question_scripts import publish  # noqa: E402

SECONDS = 600
#: The host, and the seconds from and of the capture.
PUBLISHED = {"steady": ("10.77.0.23", 100, 60), "rolling": ("10.77.0.21", 0, 600)}
TOPICS = ("orders", "readings", "mails", "payments", "ledger")


def steady(stage: Stage) -> None:
    time.sleep(SECONDS)


def rolling(stage: Stage) -> None:
    time.sleep(20)
    for number in (3, 2, 1):
        process = stage.broker(number).process
        stage.step(f"stopped {number}")
        process.send_signal(signal.SIGTERM)
        process.wait(90)
        stage.step(f"ended {number}")
        time.sleep(5)
        stage.step(f"started {number}")
        stage.start(number)
        stage.step(f"listens {number}")
        time.sleep(45)


SCENES: dict[str, Callable[[Stage], None]] = {"steady": steady, "rolling": rolling}


def part(whole: Path, work: Path, scene: str) -> Path:
    """What is published of a capture."""
    host, since, seconds = PUBLISHED[scene]
    found = work / f"{scene}.pcap"
    run(["tcpdump", "-r", str(whole), "-w", str(found), "host", host])
    packets = list(read_capture(found).packets)
    begin = packets[0].time_ns + since * 1_000_000_000
    chosen = [packet for packet in packets if 0 <= packet.time_ns - begin < seconds * 1_000_000_000]
    found.write_bytes(pcap_bytes(chosen))
    return found


def create_topics(host: Host, bootstrap: str) -> None:
    code = (
        "import sys; from confluent_kafka.admin import AdminClient, NewTopic\n"
        "admin = AdminClient({'bootstrap.servers': sys.argv[1]})\n"
        "config = {'min.insync.replicas': '2'}\n"
        "made = admin.create_topics([NewTopic(name, 6, 3, config=config) for name in sys.argv[2:]])\n"
        "[future.result(20) for future in made.values()]"
    )
    host.run([sys.executable, "-c", code, bootstrap, *TOPICS])


@contextmanager
def clients(stage: Stage, third: Host, classes: Path) -> Iterator[None]:
    """The clients of all libraries, until the end of the block."""
    bootstrap = stage.cluster.bootstrap
    module = [sys.executable, "-m", "tests.support.steady_clients"]
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
            f"{stage.cluster.jars}/*:{classes}", "SteadyClients", bootstrap]  # fmt: skip
    places = (
        (stage.shop, [*module, "confluent", bootstrap]), (stage.office, [*module, "kafka-python", bootstrap]),
        (stage.office, [*module, "aiokafka", bootstrap]), (third, java),
    )  # fmt: skip
    processes = []
    try:
        for number, (host, words) in enumerate(places):
            with open(stage.work / f"clients{number}.log", "ab") as log:
                processes.append(
                    subprocess.Popen(
                        host.command(words), stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=FOLDER.parents[1]
                    )
                )
        time.sleep(15)
        yield
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def record(folder: Path, scenes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2, 3)]
        voters = ",".join(f"{number}@{host.address}:{CONTROLLER_PORT}" for number, host in enumerate(hosts, 1))

        def each(number: int) -> dict[str, str]:
            address = hosts[number - 1].address
            return {
                "process.roles": "broker,controller", "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{address}:{PORT},CONTROLLER://{address}:{CONTROLLER_PORT}",
                "transaction.state.log.min.isr": "2", "offsets.topic.num.partitions": "6",
                "transaction.state.log.num.partitions": "3",
            }  # fmt: skip

        with Cluster.start(work / "cluster", hosts, properties=PROPERTIES, each=each, request_log=True) as cluster:
            classes = work / "classes"
            source = str(FOLDER.parent / "java" / "SteadyClients.java")
            subprocess.run(["javac", "-cp", f"{cluster.jars}/*", "-d", str(classes), source], check=True, timeout=120)
            for broker in cluster.brokers:
                words = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().rstrip(b"\0")
                (broker.folder / "command").write_bytes(words)
            stage = Stage(work, network, cluster)
            third = network.host("bank", "10.77.0.23")
            create_topics(stage.shop, cluster.bootstrap)
            for scene in scenes:
                print(scene, flush=True)
                stage.steps = {}
                began = time.time()
                with (
                    clients(stage, third, classes),
                    recorded_at(stage.bridge, work, f"tcp port {PORT} or tcp port {CONTROLLER_PORT}", "lan") as raw,
                ):
                    SCENES[scene](stage)
                whole = folder / f"{scene}.whole.pcap"
                whole.write_bytes(raw.read_bytes())
                publish(folder, scene, part(whole, work, scene))
                truth = {"steps": stage.steps, "log": stage.lines(began)}
                text = json.dumps(truth, indent=1)
                (folder / f"{scene}.truth.json").write_text(re.sub(r"\n {3,}|\n  (?=\])", " ", text) + "\n")


def main(arguments: list[str]) -> int:
    if why := cannot_build() or missing_compiler():
        print(f"make_healthy: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else FOLDER / "healthy", arguments[1:] or list(SCENES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
