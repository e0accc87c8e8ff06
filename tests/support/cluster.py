"""Brokers of one KRaft cluster in network namespaces (tests.support.namespaces), for samples.

    with Network() as network:
        hosts = [network.host(f"broker{n}", f"10.77.0.{n}") for n in (1, 2, 3)]
        with Cluster.start(folder, hosts) as cluster:
            ...  # cluster.bootstrap, cluster.brokers[0].process

Each broker listens at its host's address, port 9092. The first one is the controller as well, at port 9095.
`request_log` makes brokers write one JSON object a request (Kafka's logger kafka.request.logger) to `requests.log` in
their folder.
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .broker import KAFKA_VERSION, BrokerError, _fetch, fetch_jars, jars_folder, java_command, run_class
from .namespaces import Host, stop

PORT = 9092
CONTROLLER_PORT = 9095

_LOG4J2 = """<Configuration status="error">
  <Appenders>
    <File name="requests" fileName="{folder}/requests.log"><PatternLayout pattern="%m%n"/></File>
    <Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="kafka.request.logger" level="{level}" additivity="false"><AppenderRef ref="requests"/></Logger>
    <Root level="info"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


@dataclass
class Broker:
    """One broker of a cluster."""

    number: int
    host: Host
    folder: Path
    process: subprocess.Popen[bytes]

    def log(self) -> str:
        """The output of the broker so far."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def request_log(self) -> list[str]:
        """The lines of the request log, JSON objects."""
        lines = (self.folder / "requests.log").read_text(errors="replace").splitlines()
        return [line[line.index("{") :] for line in lines if "{" in line]


class Cluster:
    """Running brokers: a context manager, returned by `start`."""

    def __init__(self, jars: Path, brokers: Sequence[Broker]) -> None:
        self.jars = jars
        self.brokers = list(brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{broker.host.address}:{PORT}" for broker in self.brokers)

    @classmethod
    def start(
        cls,
        folder: Path,
        hosts: Sequence[Host],
        *,
        version: str = KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        each: Callable[[int], Mapping[str, str]] = lambda number: {},
        request_log: bool = False,
        classes: Path | None = None,
        options: Sequence[str] = (),
        memory: str = "384m",
        timeout: float = 120,
    ) -> Cluster:
        """Format and start a broker at each host, and wait until all listen. `each`: more properties by broker's
        number, from 1. `options`: of Java."""
        jars = fetch_jars(version)
        identity = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        if request_log and not version.startswith("4."):
            raise BrokerError("request logs need log4j2, and so Kafka 4")
        cluster = cls(jars, [])
        try:
            for number, host in enumerate(hosts, 1):
                home = folder / f"broker{number}"
                home.mkdir(parents=True)
                config = home / "server.properties"
                settings = _settings(home, number, host, hosts) | dict(properties or {}) | dict(each(number))
                config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
                run_class(jars, "kafka.tools.StorageTool", ["format", "-t", identity, "-c", str(config)], timeout=60)
                words = java_command(jars, "kafka.Kafka", [str(config)], memory=memory, classes=classes)
                if version.startswith("4."):
                    words = _with_log(words, home, "debug" if request_log else "off")
                words[1:1] = options
                process = host.start(words, home / "broker.log")
                cluster.brokers.append(Broker(number, host, home, process))
            for broker in cluster.brokers:
                _wait(broker, timeout)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def tool(self, name: str, *arguments: str, timeout: float = 60) -> str:
        """Run one of Kafka's own command-line classes against this cluster, at the first broker's host."""
        words = java_command(self.jars, name, ["--bootstrap-server", self.bootstrap, *arguments])
        return self.brokers[0].host.run(words, timeout)

    def stop(self) -> None:
        for broker in reversed(self.brokers):
            stop(broker.process)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _wait(broker: Broker, timeout: float) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if broker.process.poll() is not None:
            raise BrokerError(f"a broker ended with {broker.process.returncode}:\n{broker.log()[-2000:]}")
        if broker.host.run(["ss", "-Htln", f"sport = :{PORT}"]):
            return
        time.sleep(0.3)
    raise BrokerError(f"a broker did not listen within {timeout:.0f} s:\n{broker.log()[-2000:]}")


def _with_log(words: list[str], home: Path, level: str) -> list[str]:
    """A Java command line with a log configuration, and what binds Kafka's log to log4j2."""
    binding = _fetch(
        jars_folder().with_name("kafka-log-binding"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", ""),
    )
    config = home / "log4j2.xml"
    config.write_text(_LOG4J2.format(folder=home, level=level))
    at = words.index("-cp") + 1
    words[at] = f"{words[at]}:{binding}/log4j-slf4j-impl-2.25.4.jar"
    return [words[0], f"-Dlog4j2.configurationFile={config}", *words[1:]]


def _settings(home: Path, number: int, host: Host, hosts: Sequence[Host]) -> dict[str, str]:
    listeners = f"PLAINTEXT://{host.address}:{PORT}"
    if number == 1:
        listeners += f",CONTROLLER://{host.address}:{CONTROLLER_PORT}"
    replicas = str(min(3, len(hosts)))
    return {
        "process.roles": "broker,controller" if number == 1 else "broker",
        "node.id": str(number),
        "controller.quorum.voters": f"1@{hosts[0].address}:{CONTROLLER_PORT}",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{host.address}:{PORT}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(home / "logs"),
        "num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
