"""Record brokers that freeze or are slow, and hosts that are: a capture for each scene, and its truth.

    python samples/events/make_freezes.py [FOLDER [SCENE ...]]        (as root: it makes network namespaces)

Two brokers of Kafka 4.3 (broker 1 is the controller), two hosts with clients, and a host that is far away. The capture
is of the bridge between them, without the replication.

freezes         broker 2 freezes 10 times for 0.3 to 0.8 s (SIGSTOP); three clients write to it, two to broker 1
freezes-alone   the same, and one client only writes to broker 2
freezes-follow  the same; it only follows. Writers with acks=all wait at broker 1, those with acks=1 do not
slow-broker     broker 2 freezes for 150 ms of each 250 ms
slow-cluster    so do both
far-host        packets to and from host `branch` take 60 ms, and messages are large; two of four clients run there

SCENE.truth.json has the script's clock (seconds since the epoch): `frozen` when each freeze began and ended, `broker`
whose it was, `steps` the begin and end of the scene.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from samples.events.make_events import PROPERTIES, Stage  # noqa: E402
from tests.support.broker import missing_compiler  # noqa: E402
from tests.support.cluster import PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, cannot_build, recorded_at  # noqa: E402
from tests.support.question_scripts import publish  # noqa: E402

TIMES, SPAN = 10, 20.0
#: Of messages that take several round trips.
LARGE = {"size": 150_000, "pause": 0.8}
#: The topics, with the brokers of their only partition, the leader first.
TOPICS = {"orders": [2], "views": [1], "ledger": [1, 2]}


#: Clients: their host, acks, and the topic of each.
Group = tuple[Host, str, dict[str, str]]


class Freezes(Stage):
    """`frozen`: when each freeze began and ended."""

    def __init__(self, work: Path, network: Network, cluster: Cluster) -> None:
        super().__init__(work, network, cluster)
        self.branch = network.distant("branch", "10.78.1.1", delay_ms=60)
        self.frozen: list[tuple[float, float]] = []

    @contextmanager
    def writers(self, *groups: Group, **settings: Any) -> Iterator[None]:
        """`settings`: of all."""
        with ExitStack() as stack:
            for host, acks, produce in groups:
                stack.enter_context(self.clients(host, produce=produce, acks=acks, **{"pause": 0.15, **settings}))
            time.sleep(4)
            yield

    def freeze(self, seconds: float, *numbers: int) -> None:
        began = time.time()
        for number in numbers:
            self.broker(number).process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for number in numbers:
            self.broker(number).process.send_signal(signal.SIGCONT)
        self.frozen.append((round(began, 6), round(time.time(), 6)))


def now_and_then(stage: Freezes) -> None:
    lengths = [0.3 + 0.5 * n / (TIMES - 1) for n in range(TIMES)]
    random.Random(1).shuffle(lengths)
    for length in lengths:
        time.sleep(SPAN / TIMES - length)
        stage.freeze(length, 2)
    time.sleep(1)


def all_the_time(stage: Freezes, *numbers: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        stage.freeze(0.15, *numbers)
        time.sleep(0.1)


Scene = tuple[Callable[[Freezes], list[Group]], Callable[[Freezes], None], str]
SCENES: dict[str, Scene] = {
    "freezes": (
        lambda s: [(s.shop, "1", {"checkout": "orders", "billing": "views"}),
                   (s.office, "1", {"viewer": "orders", "clicks": "orders", "audit": "views"})],
        now_and_then, "",
    ),
    "freezes-alone": (
        lambda s: [(s.shop, "1", {"checkout": "orders", "billing": "views"}), (s.office, "1", {"audit": "views"})],
        now_and_then, "",
    ),
    "freezes-follow": (
        lambda s: [(s.shop, "all", {"checkout": "ledger", "billing": "ledger"}), (s.office, "all", {"audit": "ledger"}),
                   (s.office, "1", {"viewer": "views"})],
        now_and_then, "and host 10.77.0.1",
    ),
    "slow-broker": (
        lambda s: [(s.shop, "1", {"checkout": "orders", "billing": "views"}),
                   (s.office, "1", {"viewer": "orders", "clicks": "orders", "audit": "views"})],
        lambda s: all_the_time(s, 2), "",
    ),
    "slow-cluster": (
        lambda s: [(s.shop, "1", {"checkout": "orders", "billing": "views"}),
                   (s.office, "1", {"viewer": "orders", "audit": "views"})],
        lambda s: all_the_time(s, 1, 2), "",
    ),
    "far-host": (
        lambda s: [(s.shop, "1", {"checkout": "orders"}), (s.office, "1", {"audit": "views"}),
                   (s.branch, "1", {"viewer": "orders", "clicks": "views"})],
        lambda s: time.sleep(7), "",
    ),
}  # fmt: skip


def record(folder: Path, scenes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name, Network("freeze") as network:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2)]
        with Cluster.start(work / "cluster", hosts, properties=PROPERTIES) as cluster:
            stage = Freezes(work, network, cluster)
            create_topics(stage)
            for scene in scenes:
                print(scene, flush=True)
                stage.steps, stage.frozen = {}, []
                writers, happens, condition = SCENES[scene]
                clients = f"host {stage.shop.address} or host {stage.office.address} or host {stage.branch.address}"
                with (
                    stage.writers(*writers(stage), **(LARGE if scene == "far-host" else {})),
                    recorded_at(stage.bridge, work, f"tcp port {PORT} and ({clients}) {condition}", "lan") as raw,
                ):
                    stage.step("began")
                    happens(stage)
                    stage.step("ended")
                publish(folder, scene, raw)
                truth: dict[str, Any] = {"steps": stage.steps, "frozen": stage.frozen}
                (folder / f"{scene}.truth.json").write_text(json.dumps(truth) + "\n")


def create_topics(stage: Freezes) -> None:
    code = (
        "import json, sys; from confluent_kafka.admin import AdminClient, NewTopic\n"
        "admin = AdminClient({'bootstrap.servers': sys.argv[1]})\n"
        "topics = json.loads(sys.argv[2]).items()\n"
        "made = admin.create_topics([NewTopic(name, 1, replica_assignment=[at]) for name, at in topics])\n"
        "[future.result(20) for future in made.values()]"
    )
    stage.shop.run([sys.executable, "-c", code, stage.cluster.bootstrap, json.dumps(TOPICS)])


def main(arguments: list[str]) -> int:
    if why := cannot_build() or missing_compiler():
        print(f"make_freezes: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else FOLDER / "freezes", arguments[1:] or list(SCENES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
