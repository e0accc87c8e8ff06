"""Spark's own servers for tests: a standalone master and worker, and Spark Connect, of the pip package.

They cannot import this project: they have an empty environment, another home, and `bare_python`, which has only numpy,
pyarrow and llvmlite. They listen only on 127.0.0.1 and end with the `with` block.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

#: For Java processes that live for seconds. Optimising code that runs once would take half of their time.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The packages of the executors' Python.
BARE = ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "llvmlite")
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_DEPLOY = "org.apache.spark.deploy"
_WAIT_S = 120


def bare_python(folder: Path) -> Path:
    """Make a virtual environment with links to the packages of BARE; return its `python`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    spec = find_spec("numpy")
    assert spec is not None
    assert spec.origin is not None
    for name in BARE:
        package = Path(spec.origin).parents[1] / name
        if package.exists():
            (site / name).symlink_to(package)
    return folder / "bin" / "python"


def spark_home(folder: Path) -> Path:
    """Make a home of Spark with links to the pip package. local-cluster writes to the folder `work` of its home."""
    import pyspark

    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (folder / path.name).symlink_to(path)
    return folder


class Place:
    """The folder in which servers run, and the Python on their PATH."""

    def __init__(self, folder: Path, python: Path) -> None:
        import pyspark

        self.folder = folder
        self.home = Path(pyspark.__file__).parent
        self.environment = {
            "PATH": f"{python.parent}:/usr/bin:/bin",
            "HOME": str(folder / "no-home"),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
            "TMPDIR": str(folder),
        }
        if "JAVA_HOME" in os.environ:
            self.environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        folder.mkdir()

    @contextmanager
    def run(self, name: str, arguments: Sequence[str | Path], ready: str) -> Iterator[None]:
        """Run one of Spark's classes until the block ends. The block begins when the log contains `ready`."""
        log = self.folder / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [self.home / "bin" / "spark-class", *arguments],
                env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        try:
            end = time.monotonic() + _WAIT_S
            while ready not in log.read_text(errors="replace"):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)


@contextmanager
def standalone(place: Place) -> Iterator[str]:
    """A master and a worker with two cores; yields their address, spark://127.0.0.1:PORT."""
    port = str(_free_port())
    url = f"spark://127.0.0.1:{port}"
    at = ("--host", "127.0.0.1", "--webui-port", "0")
    master = (f"{_DEPLOY}.master.Master", *at, "--port", port)
    worker = (f"{_DEPLOY}.worker.Worker", *at, "--cores", "2", "--memory", "2g", "--work-dir", place.folder, url)
    with ExitStack() as stack:
        stack.enter_context(place.run("master", master, "New state: ALIVE"))
        stack.enter_context(place.run("worker", worker, "Successfully registered with master"))
        yield url


@contextmanager
def connect_server(place: Place, master: str) -> Iterator[str]:
    """Spark Connect in front of a master; yields its address, sc://127.0.0.1:PORT."""
    port = str(_free_port())
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.executor.memory": "1g",
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command = (f"{_DEPLOY}.SparkSubmit", "--class", _CONNECT, "--master", master, *conf)
    with place.run("connect", command, "Spark Connect server started at"):
        yield f"sc://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
