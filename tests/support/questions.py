"""What the scripts in samples/questions/ share: a broker with its log, Java clients that a script drives, the files.

    with scene("groups", folder, features=...) as made:      # a broker, tcpdump, Java clients
        made.clients.do("checkout", "producer")              # see samples/questions/java/ClientShell.java
        made.truth["snapshots"] = [...]
    # NAME.pcap.zst and NAME.truth.json are in the folder

    with stage() as made:                                    # several recordings of one broker
        with made.recording("fetch-wait", folder): ...

The broker has a second listener, OPS, for the tools and the set-up. The recording does not hold its port.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from .broker import KafkaBroker, fetch_jars, fetch_logger, free_ports, java_command, run_class
from .captures import write_capture
from .recording import cannot_record, recorded

FOLDER = Path(__file__).resolve().parent.parent.parent / "samples" / "questions"
SOURCES = FOLDER / "java"
#: Before the text of a line of the group coordinator.
_MANAGER = r"^\w+ \S+\.GroupMetadataManager - \[GroupCoordinator id=1 topic=__consumer_offsets partition=\d+\] "
LOG_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSZ"


class ClientError(RuntimeError):
    """A line of a Java client failed; the text is the exception's class and message."""


@dataclass(slots=True)
class Answer:
    """The answer to a line, when it comes. Times are in ms since the epoch, on this machine's clock."""

    sent_ms: int
    ready: threading.Event = field(default_factory=threading.Event)
    done_ms: int = 0
    text: str = ""
    failed: bool = False

    def result(self, timeout: float = 60) -> str:
        """The text; ClientError where the line failed."""
        if not self.ready.wait(timeout):
            raise ClientError(f"no answer within {timeout:.0f} s")
        if self.failed:
            raise ClientError(self.text)
        return self.text


class JavaClients:
    """One Java process with the clients of samples/questions/java/ClientShell.java. `within`: a command that runs
    another one, such as `ip netns exec NAME`."""

    def __init__(self, jars: Path, classes: Path, bootstrap: str, log: Path, within: Sequence[str] = ()) -> None:
        command = [*within, *java_command(jars, "ClientShell", [bootstrap], classes=classes)]
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        #: Assignments of consumers: time in ms, client, "assigned", "revoked" or "lost", partitions.
        self.events: list[tuple[int, str, str, str]] = []
        self._answers: dict[str, Answer] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, client: str, verb: str, options: Mapping[str, Any] | None = None, **more: Any) -> Answer:
        """Send a line and return its answer to come."""
        assert self.process.stdin is not None
        number = str(len(self._answers))
        answer = self._answers[number] = Answer(now_ms())
        named = {**(options or {}), **more}
        words = [number, client, verb, *(f"{name}={value}" for name, value in named.items())]
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        return answer

    def do(self, client: str, verb: str, options: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Send a line and wait for its result."""
        return self.start(client, verb, options, **more).result()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, number, *rest = line.rstrip("\n").split("\t")
            if kind == "event":
                self.events.append((int(number), *([*rest, ""][:3])))  # type: ignore[arg-type]
                continue
            answer = self._answers[number]
            answer.done_ms, answer.text, answer.failed = now_ms(), "\t".join(rest), kind == "failed"
            answer.ready.set()

    def stop(self) -> None:
        """End the process by the end of its input, or with SIGKILL after 10 s. Clients do not close."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill(self) -> None:
        """End the process with SIGKILL: its clients leave no word."""
        self.process.kill()
        self.process.wait(10)


@dataclass(slots=True)
class Scene:
    """A broker whose client port is recorded, and the truth to be written."""

    work: Path
    broker: KafkaBroker
    ops: str
    classes: Path
    #: The recorded listeners: name -> port.
    ports: dict[str, int]
    also: tuple[int, ...] = ()
    truth: dict[str, Any] = field(default_factory=dict)
    #: More files beside the capture: suffix -> text.
    files: dict[str, str] = field(default_factory=dict)
    _started: list[JavaClients] = field(default_factory=list)

    def java_clients(self, name: str = "clients", bootstrap: str | None = None) -> JavaClients:
        """Start another Java process for clients. Its log is NAME.log in the work folder."""
        address = bootstrap or self.broker.bootstrap
        made = JavaClients(self.broker.jars, self.classes, address, self.work / f"{name}.log")
        self._started.append(made)
        return made

    def tool(self, name: str, *arguments: str, timeout: float = 60) -> str:
        """Run one of Kafka's tools on the listener that is not recorded."""
        return run_class(self.broker.jars, name, ["--bootstrap-server", self.ops, *arguments], timeout=timeout)

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics (name -> partitions) on the listener that is not recorded."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.ops, "log_level": 0})
        new = [NewTopic(name, partitions, 1) for name, partitions in topics.items()]
        for future in admin.create_topics(new).values():
            future.result(20)

    def note_coordinator(self, events: str = "", since: int = 0) -> None:
        """Write the lines of the broker's group coordinator from a time on (ms) that match `events` beside the
        recording: `NAME.coordinator.tsv`, without what comes before their texts."""
        lines = log_lines(self.broker.folder / "broker.log", _MANAGER)
        texts = [(at, re.sub(_MANAGER, "", text)) for at, text in lines if at >= since]
        chosen = [f"{at}\t{text}\n" for at, text in texts if re.search(events, text)]
        self.files["coordinator.tsv"] = "".join(chosen)

    @contextmanager
    def recording(self, name: str, folder: Path) -> Iterator[None]:
        """Record the clients' ports; write `NAME.pcap.zst`, `NAME.truth.json` and more files after the block."""
        with recorded(self.work, *self.ports.values(), *self.also) as raw:
            yield
        target = write_capture(folder / f"{name}.pcap.zst", raw.read_bytes())
        (folder / f"{name}.truth.json").write_text(as_json(self.truth))
        for suffix, text in self.files.items():
            (folder / f"{name}.{suffix}").write_text(text)
        print(f"{target}: {target.stat().st_size} bytes, {raw.stat().st_size} unpacked")
        self.truth, self.files = {}, {}

    def stop(self) -> None:
        """Stop the Java processes that still run."""
        for clients in self._started:
            clients.stop()


@contextmanager
def stage(
    *,
    loggers: Mapping[str, str] | None = None,
    client_loggers: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    features: Sequence[str] = ("share.version=1",),
    listeners: Mapping[str, str] | None = None,
    advertised: int = 0,
    also: Sequence[int] = (),
    jvm: Sequence[str] = (),
) -> Iterator[Scene]:
    """Start a broker; record with `Scene.recording`.

    `loggers`: levels of the broker's loggers by name; broker.log has their lines. `listeners`: name
    -> security protocol, if not one of PLAINTEXT. `advertised`: the port that the broker tells the clients of the first
    listener, where a proxy has another one. `also`: more ports to record. `jvm`: further
    options of the broker's Java.
    """
    with tempfile.TemporaryDirectory() as named:
        work = Path(named)
        classes = class_folder(work / "clients", client_loggers or {})
        protocols = dict(listeners or {"CLIENTS": "PLAINTEXT"}) | {"OPS": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        ports = dict(zip(protocols, free_ports(len(protocols)), strict=True))
        told = {name: port for name, port in ports.items() if name != "CONTROLLER"}
        first = next(iter(ports))
        told[first] = advertised or told[first]
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in told.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "OPS",
            "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        }
        broker_classes = class_folder(work / "server", loggers or {})
        with KafkaBroker.start(
            work / "broker", port=ports[first], properties=settings | dict(properties or {}), features=features,
            classes=broker_classes, jvm=jvm,
        ) as broker:  # fmt: skip
            clients = {name: port for name, port in ports.items() if name not in ("OPS", "CONTROLLER")}
            made = Scene(work, broker, f"127.0.0.1:{ports['OPS']}", classes, clients, tuple(also))
            try:
                yield made
            finally:
                made.stop()


@contextmanager
def scene(name: str, folder: Path, **options: Any) -> Iterator[Scene]:
    """One recording of a broker. `options`: of `stage`."""
    with stage(**options) as made, made.recording(name, folder):
        yield made
        made.stop()


def record_groups(
    folder: Path,
    recordings: Mapping[str, Callable[[Scene], None]],
    *,
    topics: Mapping[str, int],
    filler: int,
    events: str,
    rest: float,
    **options: Any,
) -> None:
    """Record what plays with the groups of one broker, and write the lines of its group coordinator that match `events`
    beside it: `NAME.coordinator.tsv`. `filler`: records that are sent to the first topic before, as many each time.
    `rest`: seconds after each, in which the sessions of killed members end. `options`: of `stage`."""
    with stage(**options) as made:
        made.create_topics(topics)
        for name, play in recordings.items():
            sender = made.java_clients(f"{name}-filler", bootstrap=made.ops)
            sender.do("filler", "producer")
            sender.do("filler", "send", topic=next(iter(topics)), count=filler, bytes=60)
            sender.stop()
            began = now_ms()
            with made.recording(name, folder):
                play(made)
                made.note_coordinator(events, began)
            time.sleep(rest)


def class_folder(folder: Path, loggers: Mapping[str, str]) -> Path:
    """A folder for a class path: the shell's classes, a logger that writes to standard error, and its levels."""
    folder.mkdir(parents=True)
    jar = next(fetch_logger().glob("slf4j-simple-*.jar"))
    with zipfile.ZipFile(jar) as packed:
        packed.extractall(folder)
    source = str(SOURCES / "ClientShell.java")
    subprocess.run(["javac", "-cp", f"{fetch_jars()}/*", "-d", str(folder), source], check=True, timeout=120)
    prefix = "org.slf4j.simpleLogger"
    lines = [f"{prefix}.defaultLogLevel=warn", f"{prefix}.showDateTime=true", f"{prefix}.dateTimeFormat={LOG_TIME}"]
    lines += [f"{prefix}.log.{name}={level}" for name, level in loggers.items()]
    (folder / "simplelogger.properties").write_text("".join(f"{line}\n" for line in lines))
    return folder


def log_lines(log: Path, pattern: str) -> list[tuple[int, str]]:
    """The lines of a log (level, logger and text) that match, each with its time in ms since the epoch."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        stamp, _, text = line.partition(" ")
        text = re.sub(r"^\[[^]]*\] ", "", text)  # the thread
        if re.match(r"\d{4}-\d\d-\d\dT", stamp) and re.search(pattern, text):
            found.append((log_time_ms(stamp), text))
    return found


def log_time_ms(stamp: str) -> int:
    """The time of a log's line in ms since the epoch."""
    return round(datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * 1000)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def as_json(value: Any) -> str:
    """JSON with a line for each innermost object or list, to be read in a diff."""
    text = json.dumps(value, indent=1)
    inner = re.compile(r"[\[{]\n\s+[^][{}]*?\n\s+[\]}]")
    return inner.sub(lambda found: re.sub(r"\n\s+", " ", found.group()), text) + "\n"


def question_main(record: Callable[[Path], None], arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """The main function of a script that records: at most a folder as an argument. `folder`: the default one."""
    script = os.path.basename(sys.argv[0])
    if len(arguments) > 1:
        print(f"usage: python samples/{folder.name}/{script} [FOLDER]", file=sys.stderr)
        return 2
    if why := cannot_record():
        print(f"{script}: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else folder)
    return 0
