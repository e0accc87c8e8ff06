"""A real Apache Kafka broker for tests and samples: one KRaft node on loopback, started from Maven's jars.

    with KafkaBroker.start(folder) as broker:
        ...  # broker.bootstrap is "127.0.0.1:PORT"

`missing()` names what this machine lacks (Java, Maven), or returns "". A cache folder keeps the jars:
KAFKATAP_TEST_CACHE, or the user's cache folder. Every wait has a limit, and each process is stopped by its own id. The
pytest fixture `kafka_broker` (tests/conftest.py) skips where something is missing.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

KAFKA_VERSION = "4.3.0"
#: The newest release. Its kafka-tools are not published: it runs with the API of the earlier ones, without commands.
NEWEST_KAFKA = "4.4.0"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafkatap</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{rest}"
    "</dependency>"
)
_WITHOUT_TOOLS = (
    "<exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>"
    "</exclusions>"
)
#: An artifact without those that it needs.
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class BrokerError(RuntimeError):
    """The broker could not be fetched, formatted or started; the text says why."""


def missing() -> str:
    """The programs for a broker that this machine lacks, as a sentence; "" where it lacks none."""
    if shutil.which("java") is None:
        return "needs a real Kafka broker, and Java is not installed (Debian: apt-get install default-jre-headless)"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < 17:
        return (
            f"needs a real Kafka broker, and this Java is older than 17: {said.splitlines()[0] if said else 'unknown'}"
        )
    if not _have_jars(jars_folder()) and shutil.which("mvn") is None:
        return "needs a real Kafka broker, and Maven, which fetches its jars, is not installed (apt-get install maven)"
    return ""


def missing_compiler() -> str:
    """The programs that this machine lacks to run Java sources with Kafka's jars, as a sentence; "" where none."""
    if shutil.which("javac") is None:
        return "runs Java sources, and there is no Java compiler (Debian: apt-get install default-jdk-headless)"
    return missing()


def jars_folder(version: str = KAFKA_VERSION) -> Path:
    """The cache folder for the jars of a release."""
    named = os.environ.get("KAFKATAP_TEST_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(named) if named else base / "kafkatap-tests") / f"kafka-{version}"


def _have_jars(folder: Path) -> bool:
    return (folder / "complete").exists()


def fetch_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with the jars of a broker. Maven fetches them the first time (54 MB)."""
    if version == NEWEST_KAFKA:
        return _fetch(
            jars_folder(version),
            ("org.apache.kafka", "kafka_2.13", version, _WITHOUT_TOOLS),
            ("org.apache.kafka", "kafka-tools-api", KAFKA_VERSION, ""),
        )
    return _fetch(
        jars_folder(version),
        ("org.apache.kafka", "kafka_2.13", version, ""),
        ("org.apache.kafka", "kafka-tools", version, ""),
    )


def fetch_client_jars(version: str) -> Path:
    """The folder with the jars of a release's clients, and those that its JSON converters need."""
    return _fetch(
        jars_folder(version).with_name(f"kafka-clients-{version}"),
        ("org.apache.kafka", "kafka-clients", version, ""),
        ("com.fasterxml.jackson.core", "jackson-databind", "2.19.2", ""),
    )


def fetch_logger() -> Path:
    """The folder with a logger for Kafka's classes that a properties file on the class path sets up."""
    return _fetch(jars_folder().with_name("slf4j-simple-1.7.36"), ("org.slf4j", "slf4j-simple", "1.7.36", ""))


def fetch_agent() -> Path:
    """The Java agent that writes the secrets of TLS connections to a key log."""
    folder = jars_folder().with_name("extract-tls-secrets-4.0.0")
    return _fetch(folder, ("name.neykov", "extract-tls-secrets", "4.0.0", _ALONE)) / "extract-tls-secrets-4.0.0.jar"


def _fetch(folder: Path, *dependencies: tuple[str, str, str, str]) -> Path:
    """The folder with these jars and the jars that they need. `dependencies`: group, name, version, and more XML."""
    if _have_jars(folder):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = (_DEPENDENCY.format(group=g, name=n, version=v, rest=rest) for g, n, v, rest in dependencies)
    (folder / "pom.xml").write_text(_POM.format(dependencies="\n".join(texts)))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise BrokerError(f"Maven could not fetch {folder.name}:\n{(done.stdout + done.stderr)[-2000:]}")
    (folder / "complete").touch()
    return folder


def free_ports(count: int) -> list[int]:
    """Different free TCP ports of loopback."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


class KafkaBroker:
    """One running broker (and controller) in its own folder: a context manager, returned by `start`."""

    def __init__(
        self,
        folder: Path,
        jars: Path,
        port: int,
        process: subprocess.Popen[bytes],
        classes: Path | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.jars = jars
        self.port = port
        self.process = process
        self.classes = classes
        self.jvm = jvm

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        features: Sequence[str] = ("share.version=1",),
        classes: Path | None = None,
        jvm: Sequence[str] = (),
        timeout: float = 90,
    ) -> KafkaBroker:
        """Format a new log folder, start a broker and wait until it listens. `properties` go into its file. `classes`:
        a folder of further classes for it. `jvm`: further options of its Java."""
        why = missing()
        if why:
            raise BrokerError(why)
        jars = fetch_jars(version)
        folder.mkdir(parents=True, exist_ok=True)
        found, controller_port = free_ports(2)
        port = port or found
        settings = _settings(folder, port, controller_port) | dict(properties or {})
        config = folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        # An id never begins with a dash: the tool would read it as an option.
        cluster = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        arguments = ["format", "-t", cluster, "-c", str(config)]
        arguments += [word for feature in features for word in ("--feature", feature)]
        run_class(jars, "kafka.tools.StorageTool", arguments, timeout=60, classes=classes)
        broker = cls(folder, jars, port, _run_broker(folder, jars, classes, jvm), classes, jvm)
        broker._listen(timeout)
        return broker

    def restart(self, *, timeout: float = 90) -> None:
        """End the broker with SIGKILL, start it again with the same folder and wait until it listens."""
        self.process.kill()
        self.process.wait(10)
        self.process = _run_broker(self.folder, self.jars, self.classes, self.jvm)
        self._listen(timeout)

    def _listen(self, timeout: float) -> None:
        try:
            self._wait(timeout)
        except BaseException:
            self.stop()
            raise

    def _wait(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise BrokerError(f"the broker ended with {self.process.returncode}:\n{self.log()[-2000:]}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.2)
        raise BrokerError(f"the broker did not listen within {timeout:.0f} s:\n{self.log()[-2000:]}")

    def log(self) -> str:
        """The output of the broker so far."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def tool(self, name: str, *arguments: str, timeout: float = 60) -> str:
        """Run one of Kafka's own command-line classes, such as "kafka.admin.ConfigCommand", against this broker."""
        return run_class(self.jars, name, ["--bootstrap-server", self.bootstrap, *arguments], timeout=timeout)

    def stop(self) -> None:
        """Stop the broker: SIGTERM, then SIGKILL after 20 s."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _run_broker(folder: Path, jars: Path, classes: Path | None, jvm: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the broker of a folder; its output is added to broker.log."""
    command = java_command(jars, "kafka.Kafka", [str(folder / "server.properties")], memory="512m", classes=classes)
    command[1:1] = jvm
    with open(folder / "broker.log", "ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder)


def java_command(
    jars: Path, name: str, arguments: Sequence[str], memory: str = "256m", classes: Path | None = None
) -> list[str]:
    """A Java command line for one of Kafka's classes, or one in the folder `classes`.

    The serial collector and the first compiler start fastest.
    """
    options = [f"-Xmx{memory}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
    path = f"{jars}/*" if classes is None else f"{jars}/*:{classes}"
    return ["java", *options, "-cp", path, name, *arguments]


def run_class(jars: Path, name: str, arguments: Sequence[str], timeout: float, classes: Path | None = None) -> str:
    """Run a class to its end and return its output; BrokerError where it fails."""
    command = java_command(jars, name, arguments, classes=classes)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise BrokerError(f"{name} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _settings(folder: Path, port: int, controller_port: int) -> dict[str, str]:
    one = "1"
    return {
        "process.roles": "broker,controller",
        "node.id": one,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "logs"),
        "num.partitions": one,
        "offsets.topic.num.partitions": one,
        "offsets.topic.replication.factor": one,
        "transaction.state.log.num.partitions": one,
        "transaction.state.log.replication.factor": one,
        "transaction.state.log.min.isr": one,
        "share.coordinator.state.topic.num.partitions": one,
        "share.coordinator.state.topic.replication.factor": one,
        "share.coordinator.state.topic.min.isr": one,
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # Without an ACL everything is allowed.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        # Short quota windows: a client is throttled soon after it exceeds its quota.
        "quota.window.num": "3",
        "quota.window.size.seconds": one,
    }
