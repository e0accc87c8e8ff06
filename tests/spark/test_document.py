"""Every command and every Python block of docs/spark.md runs, in an environment that is made of the wheel.

Each test runs some blocks as they are written, but for the places in them: local folders instead of stores and of HDFS,
free ports, local masters.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.spark.output.delta import read_table
from tests.support.spark_clusters import SHORT_LIVED
from tests.support.wheel import ROOT, environment

DOCUMENT = ROOT / "docs" / "spark.md"
SAMPLES = ("live-4.3", "apache-2.8")
#: This is what the fixture `python` does, from the wheel instead of a registry.
INSTALLED = "pip install '.[spark]'"
#: The blocks that run, by the first command or line of each.
COMMAND = "kafkatap spark 'captures/**/*.pcap.zst' -o tables"
SUBMIT = 'spark-submit --master yarn "$(python -m kafkatap.spark --path)" hdfs:///captures -o hdfs:///tables'
TABLES = "from kafkatap.spark import exchanges, read_captures"
STREAM = "kafkatap spark 's3://captures/*.pcap' -o DIR --checkpoint CHECKPOINT"
SOURCE = "from kafkatap.spark import register"
SQL = """spark.sql("CREATE TABLE results USING kafkatap OPTIONS (path 'captures/2026-11-*/*.pcap', table 'results')")"""
ARRIVING = (
    'arriving = spark.readStream.format("kafkatap").option("stateLocation", "states/exchanges").load("captures/")'
)
SESSION = "from kafkatap.spark import exchanges"
STANDALONE = "export SPARK_HOME=$(python -c 'import pyspark; print(pyspark.__path__[0])') SPARK_LOCAL_IP=127.0.0.1"
CONNECT = 'SPARK_NO_DAEMONIZE=1 "$SPARK_HOME"/sbin/start-connect-server.sh --master spark://127.0.0.1:7077'
WITH_PYTHON = "kafkatap spark captures/ -o tables --master spark://head:7077"
PACK = "python -m kafkatap.spark.pack kafkatap.tar.gz"
ARCHIVES = "spark-submit --archives kafkatap.tar.gz#kafkatap-archive"
ARTIFACTS = 'spark.addArtifacts("kafkatap.tar.gz#kafkatap-archive", archive=True)'
LAKE = "kafkatap lake verify tables"
REPORT = "kafkatap report tables"
SECTIONS = "kafkatap lake sections tables"
RUN = (
    COMMAND, LAKE, REPORT, SECTIONS, SUBMIT, TABLES, STREAM, SOURCE, SQL, ARRIVING, SESSION, STANDALONE, CONNECT,
    WITH_PYTHON, PACK, ARCHIVES, ARTIFACTS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the document. `lines`: commands, with those that follow them on the next line; or lines of Python."""

    language: str
    lines: tuple[str, ...]

    @property
    def first(self) -> str:
        return self.lines[0].split("  #")[0].split(" --conf")[0].rstrip()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def blocks(text: str) -> dict[str, Block]:
    """The blocks of a document, by their first command or line."""
    found = []
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = re.sub(r" \\\n +", " ", body).splitlines()
        if language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        found.append(Block(language, tuple(lines)))
    by_first = {block.first: block for block in found}
    assert len(by_first) == len(found)
    return by_first


@pytest.fixture(scope="module")
def document() -> dict[str, Block]:
    return blocks(DOCUMENT.read_text(encoding="utf-8"))


def test_each_block_is_known(document: Mapping[str, Block]) -> None:
    assert sorted(document) == sorted((*RUN, INSTALLED))


# ---------------------------------------------------------------- the places


@pytest.fixture(scope="module")
def python(java: None, built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("environment") / "venv", built[1], frozenset({"spark"}))


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with captures, in which the blocks of a test run. `environment`: variables of the commands."""

    folder: Path
    environment: dict[str, str]

    def start(self, command: str, **replaced: str) -> subprocess.Popen[str]:
        """Start a command, with these words replaced in it."""
        for word, by in replaced.items():
            assert word in command, word
            command = command.replace(word, by)
        return subprocess.Popen(
            ["bash", "-ec", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, command: str, replaced: Mapping[str, str] | None = None) -> str:
        """Run a command; its output."""
        process = self.start(command, **(replaced or {}))
        try:
            said, _ = process.communicate(timeout=200)
        finally:
            stop(process)
        assert process.returncode == 0, f"{command}\n{said}"
        return said

    def rows(self, out: str) -> int:
        return int(read_table(str(self.folder / out), "exchanges").num_rows)


def stop(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


@pytest.fixture
def desk(python: Path, samples: Path, tmp_path: Path) -> Desk:
    for name in SAMPLES:
        captures = tmp_path / "captures"
        captures.mkdir(exist_ok=True)
        shutil.copy(samples / f"{name}.pcap.zst", captures)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK", "KAFKATAP"))}
    options = tmp_path / "conf"
    options.mkdir()
    (options / "spark-defaults.conf").write_text(
        f"spark.driver.extraJavaOptions {SHORT_LIVED}\nspark.executor.extraJavaOptions {SHORT_LIVED}\n"
        "spark.ui.enabled false\nspark.master.rest.enabled false\n"
    )
    own = {
        "PATH": f"{python.parent}:{kept['PATH']}", "SPARK_CONF_DIR": str(options), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED, "HOME": str(tmp_path), "SPARK_LOG_DIR": str(tmp_path / "logs"),
        "SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_PID_DIR": str(tmp_path), "KAFKATAP_CACHE": "/nonexistent",
    }  # fmt: skip
    return Desk(tmp_path, kept | own)


@pytest.fixture(scope="module")
def exchanges(samples: Path) -> int:
    """Of the captures on a desk, as the local engine counts them."""
    return int(analyze([samples / f"{name}.pcap.zst" for name in SAMPLES]).exchanges.num_rows)


# ---------------------------------------------------------------- one machine


def test_commands_on_one_machine(document: Mapping[str, Block], desk: Desk, exchanges: int) -> None:
    said = desk.run(document[COMMAND].text)
    assert "Produce" in said
    assert desk.rows("tables") == exchanges
    whole, hours, clients = (desk.run(f"{line} || test $? = 1") for line in document[REPORT].lines[:3])
    of_one = {" --cluster prod": "", "2026-11-22": "2026-11-21"}  # the samples are of one day, and no cluster
    for line in document[REPORT].lines[3:]:
        desk.run(f"{line} || test $? = 3", {word: by for word, by in of_one.items() if word in line})
    assert f"requests    {exchanges:,} by " in whole
    assert "only        --from 2026-11-21T08:00Z --to 2026-11-22T00:00Z" in hours
    assert "only        --client billing-* --api Produce,Fetch\n" in clients.replace("'", "")
    assert "/sections: 1 day written" in desk.run(document[SECTIONS].text)
    local = {"yarn": "'local[2]'", "hdfs:///captures": "captures", "hdfs:///tables": "$PWD/others"}
    verify, forget, compact = (line.split("  #")[0] for line in document[LAKE].lines)
    desk.run(f"{verify} || test $? = 3\n{compact}")  # hours lie between the samples
    desk.run(f"cp -r tables few; {forget}", {"'captures/2026-10-*/*'": "'captures/*'", "forget tables": "forget few"})
    assert desk.rows("tables") == exchanges
    assert desk.rows("few") < exchanges
    said = desk.run(f"{document[SUBMIT].text} --progress", local)
    assert "kafkatap: publish: 0 of " in said
    assert "Latency by API" in said
    assert desk.rows("others") == exchanges
    of_command, of_submit = (
        json.loads((desk.folder / out / "report.json").read_text()) for out in ("tables", "others")
    )
    assert of_submit["reports"] == of_command["reports"]


def test_python_on_one_machine(document: Mapping[str, Block], desk: Desk, exchanges: int) -> None:
    tables, source = document[TABLES].text, document[SOURCE].text
    places = {"s3://captures/2026-11-21/*.pcap": "captures/*.zst", "captures/2026-11-*/*.pcap": "captures/*.zst"}
    for place, local in places.items():
        assert place in tables + source
        tables, source = tables.replace(place, local), source.replace(place, local)
    lines = (
        "from kafkatap.spark.cluster.session import open_session", 'spark = open_session("local[2]")', tables,
        'print("results", captures.table("results").count())', source, 'print("source", exchanges.count())',
        document[SQL].text.replace("captures/2026-11-*/*.pcap", f"{desk.folder}/captures/*.zst"),
        document[ARRIVING].text.replace("option(", 'option("quiet", "0s").option(', 1),
        'print("arrived", spark.read.parquet("exchanges").count())',
    )  # fmt: skip
    (desk.folder / "blocks.py").write_text("\n".join(lines))
    said = desk.run("python blocks.py")
    assert "|Produce" in said.replace(" ", "")
    assert f"source {exchanges}" in said
    assert "|error_code" in said.replace(" ", "")
    assert 0 < int(re.findall(r"arrived (\d+)", said)[0]) <= exchanges
    assert int(re.findall(r"results (\d+)", said)[0]) > exchanges // 2


def test_captures_that_arrive(document: Mapping[str, Block], desk: Desk, exchanges: int) -> None:
    """`--follow` reads a capture that comes while it waits, and ends with Ctrl-C. `--finish` reads the last one."""
    once, follow, finish = (line.split("  #")[0] for line in document[STREAM].lines)
    assert "--follow" in follow
    assert "--finish" in finish
    places = {"s3://captures/*.pcap": "arrived/*.zst", "CHECKPOINT": "state"}
    waiting = list((desk.folder / "captures").rglob("*.zst"))
    arrived = desk.folder / "arrived"
    arrived.mkdir()
    desk.run(once, places)
    _arrive(waiting.pop(), arrived)
    process = desk.start(follow, **places)
    try:
        end = time.monotonic() + 120
        while not list((desk.folder / "DIR" / "files" / "_delta_log").glob("*.json")):
            if process.poll() is not None or time.monotonic() > end:
                stop(process)
                pytest.fail(process.communicate()[0])
            time.sleep(0.2)
        stop(process, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        stop(process)
        process.communicate()
    assert process.returncode == 130, said
    _arrive(waiting.pop(), arrived)
    assert "Produce" in desk.run(finish, places)
    assert desk.rows("DIR") == exchanges


def _arrive(capture: Path, folder: Path) -> None:
    path = folder / capture.name
    shutil.copy(capture, folder / ".arriving")
    os.utime(folder / ".arriving", (path.parent.stat().st_mtime - 3_600,) * 2)
    (folder / ".arriving").rename(path)


# ---------------------------------------------------------------- clusters


def _free_ports() -> tuple[str, str]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1]), str(two.getsockname()[1])


@contextmanager
def running(desk: Desk, commands: Sequence[str], port: str) -> Iterator[None]:
    """Run commands of a block that end with &, until the `with` block ends. It begins when a port listens."""
    process = desk.start("\n".join((*commands, "wait")))
    try:
        end = time.monotonic() + 90
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            if process.poll() is not None or time.monotonic() > end:
                stop(process)
                pytest.fail(process.communicate()[0])
            time.sleep(0.1)
        yield
    finally:
        stop(process, signal.SIGTERM)
        time.sleep(0.2)
        stop(process)
        process.communicate()


def _lines(document: Mapping[str, Block], first: str, ports: tuple[str, str]) -> list[str]:
    """The lines of a block, with free ports of a master and of Spark Connect, on this machine."""
    master, connect = ports
    found = []
    for line in document[first].lines:
        text = re.sub(r"(127\.0\.0\.1|head):7077", f"127.0.0.1:{master}", line)
        text = text.replace("--port 7077", f"--port {master}").replace("127.0.0.1:15002", f"127.0.0.1:{connect}")
        text = text.replace("s3://captures/", "captures/")
        found.append(text.replace(_BINDING, f"{_BINDING} --conf spark.connect.grpc.binding.port={connect}"))
    return found


_BINDING = "--conf spark.connect.grpc.binding.address=127.0.0.1"
_OPENED = "spark = SparkSession.builder.getOrCreate()"
_COUNT = f"""
from pyspark.sql import SparkSession
from kafkatap.spark import exchanges
{_OPENED}
print("counted", exchanges(spark, "captures/**/*.zst").count())
"""


def test_on_a_cluster(document: Mapping[str, Block], desk: Desk, exchanges: int) -> None:
    """A standalone master with a worker, then Spark Connect in front of it. Both have the package installed."""
    ports = _free_ports()
    home, *servers, job = _lines(document, STANDALONE, ports)
    with running(desk, [home, *servers], ports[0]):
        desk.run(job)
        assert desk.rows("tables") == exchanges
        server, job = _lines(document, CONNECT, ports)
        with running(desk, [home, server], ports[1]):
            desk.run(job, {"-o tables": "-o connected"})
            assert desk.rows("connected") == exchanges


@pytest.mark.long
def test_the_package_on_executors(document: Mapping[str, Block], desk: Desk, python: Path, exchanges: int) -> None:
    """Installed or sent along, on a standalone cluster and through Spark Connect."""
    ports = _free_ports()
    home, *servers, _ = _lines(document, STANDALONE, ports)
    with running(desk, [home, *servers], ports[0]):
        (command,) = _lines(document, WITH_PYTHON, ports)
        desk.run(command, {"/opt/kafkatap/bin/python": str(python)})
        assert desk.rows("tables") == exchanges
        pack, job = _lines(document, PACK, ports)
        assert re.search(r"^kafkatap.tar.gz: \d+ MB, for Python 3\.\d+ on \w+$", desk.run(pack), re.MULTILINE)
        desk.run(job, {"-o tables": "-o packed"})
        assert desk.rows("packed") == exchanges
        own = [*_lines(document, SESSION, ports), 'print(spark.conf.get("spark.sql.execution.pyspark.python"))']
        (desk.folder / "session.py").write_text("\n".join(own))
        said = desk.run("python session.py")
        assert "|Produce" in said.replace(" ", "")
        assert "./kafkatap-archive/bin/python" in said
        (desk.folder / "submitted.py").write_text(_COUNT)
        (command,) = _lines(document, ARCHIVES, ports)
        said = desk.run(command, {"…": f"--master spark://127.0.0.1:{ports[0]} submitted.py"})
        assert f"counted {exchanges}" in said
        server, _ = _lines(document, CONNECT, ports)
        with running(desk, [home, server], ports[1]):
            remote = f'spark = SparkSession.builder.remote("sc://127.0.0.1:{ports[1]}").getOrCreate()'
            own = [remote, *_lines(document, ARTIFACTS, ports)]
            (desk.folder / "artifacts.py").write_text(_COUNT.replace(_OPENED, "\n".join(own)))
            assert f"counted {exchanges}" in desk.run("python artifacts.py")
