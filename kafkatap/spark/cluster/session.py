"""`open_session`: Spark sessions with the settings that this package needs.

A running session is returned as it is. A new one has the settings below, unless the caller, spark-submit or
spark-defaults.conf set others. The output of Spark's Java process goes to a file, not to the terminal.

`for_jobs` is for sessions that run only jobs of this package, as the command does. Their work is done in Python, so
Java and Spark spend less on preparing for long computations of their own (JOB_SETTINGS, `_light_options`).

Executors get the package in one of two ways (docs/spark.md). It is installed for their Python, which
`spark.pyspark.python` names. Or an archive made by `pack` is sent along, with a `python` of its own. Both ways set
`spark.sql.execution.pyspark.python`, which applies to tasks only: a Python data source is planned beside the driver,
under the driver's Python.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...installation import install_command
from .java import SetupError, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOB_SETTINGS", "SETTINGS", "SetupError", "open_session"]

#: The settings of every session that is started here.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # What the event log must not show: Spark's own, and the keys of Azure.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|account[.]?key|[.]sas[.]",
}
#: More settings of sessions that run only jobs of this package: no code generation and no adaptive plans.
JOB_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: The folder, beside each task, of the unpacked archive, and the Python in it. The name cannot be imported.
UNPACKED = "kafkatap-archive"
PACKED_PYTHON = f"./{UNPACKED}/bin/python"
WORKER_PYTHON = "spark.sql.execution.pyspark.python"
#: Compile hot code once, simply. (A setting of the user that comes later overrides it.)
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
#: A garbage collector of one thread. Java does not start with two collectors, so the user's must not be another one.
ONE_COLLECTOR = "-XX:+UseSerialGC"
#: Settings of stores. They have secrets, so no command line of Java and no Connect server gets them.
_OF_STORES = "spark.hadoop.fs."
_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def open_session(
    master: str | None = None,
    *,
    name: str = "kafkatap",
    config: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    archive: str | os.PathLike[str] | None = None,
    log: str | os.PathLike[str] | None = None,
    for_jobs: bool = False,
) -> SparkSession:
    """The running session, or a new one on `master`.

    `master`: `local[*]` (the default, unless spark-submit sets one), `spark://HOST:PORT`, `yarn`, `k8s://…`, or
    `sc://HOST:PORT` for Spark Connect, which needs no Java here. `config`: Spark's own settings, which override ours.
    `archive`: a file made by `pack`, for executors without this package. `log`: a file for the messages of Spark's Java
    process; by default they are dropped. `for_jobs`: the session runs only jobs of this package. SetupError if pyspark
    or Java is missing or too old, or Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise SetupError(f"Spark needs pyspark for {sys.executable}: {install_command('spark')}") from error

    # pyspark warns of a newer pandas whenever it converts anything; pandas is not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    chosen = dict(config)
    if archive is not None and not re.match(r"\w+://", os.fspath(archive)) and not os.path.isfile(archive):
        raise SetupError(f"{os.fspath(archive)}: there is no such archive (python -m kafkatap.spark.pack makes one)")
    if master is None:
        master = chosen.pop("spark.master", None) or chosen.pop("spark.remote", None) or os.environ.get("SPARK_REMOTE")
    _require_master(master or "")
    if master is not None and master.startswith("sc://"):
        return _connected(master, name, _settings(for_jobs), chosen, archive)
    return _started(master, name, _settings(for_jobs), chosen, archive, log, for_jobs)


def _settings(for_jobs: bool) -> dict[str, str]:
    return SETTINGS | JOB_SETTINGS if for_jobs else dict(SETTINGS)


def _require_master(master: str) -> None:
    """SetupError if `master` is no master, or if nothing listens at a server: Spark itself would try for minutes."""
    kind, found, place = master.partition("://")
    if master and not found and not re.match(r"(local|local-cluster)(\[|$)|yarn$", master):
        raise SetupError(
            f"{master}: there is no such master (local[*], spark://HOST:PORT, yarn, k8s://…, sc://HOST:PORT)"
        )
    default = {"spark": 7077, "sc": 15002}.get(kind)
    proxies = ("grpc_proxy", "https_proxy", "http_proxy") if kind == "sc" else ()
    if not found or default is None or any(os.environ.get(name) for name in proxies):
        return
    why: OSError | None = None
    for server in place.partition("/")[0].split(","):
        named = re.fullmatch(r"\[?([^\[\]]+?)\]?(?::(\d+))?", server)
        host, port = named.groups() if named else (server, None)
        try:
            socket.create_connection((host, int(port or default)), timeout=10).close()
            return
        except OSError as error:
            why = error
    raise SetupError(f"{master}: nothing answers there ({why.strerror or why if why else 'no server is named'})")


def _connected(master: str, name: str, ours: dict[str, str], chosen: dict[str, str], archive: Any) -> SparkSession:
    """A session of a Spark Connect server. The settings apply to this session only."""
    try:
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise SetupError(
            f"Spark Connect needs more packages for {sys.executable}: {install_command('spark')} "
            f"({str(error).splitlines()[0]})"
        ) from error
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as pyspark's builder does: use Connect's functions
    try:
        session = SparkSession.builder.remote(master).appName(name).getOrCreate()
        settings = {key: value for key, value in ours.items() if key.startswith("spark.sql.")}
        settings |= {key: value for key, value in chosen.items() if not key.startswith(_OF_STORES)}
        if "spark.pyspark.python" in settings:
            settings[WORKER_PYTHON] = settings.pop("spark.pyspark.python")
        if archive is not None:
            session.addArtifacts(f"{os.fspath(archive)}#{UNPACKED}", archive=True)
            settings.setdefault(WORKER_PYTHON, PACKED_PYTHON)
        for key, value in settings.items():
            session.conf.set(key, value)
    except Exception as error:
        from .failures import explain

        raise SetupError(f"{master}: {explain(error)}") from error
    return session  # type: ignore[return-value]  # it has the methods of the classic one


def _started(
    master: str | None, name: str, ours: dict[str, str], chosen: dict[str, str], archive: Any, log: Any, for_jobs: bool
) -> SparkSession:
    """A session whose driver is this process, with a Java process beside it."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started Java and sets the master
    if not submitted:
        require_java()
        _launch((_java_settings(chosen) if for_jobs else {}) | chosen, log)
    conf = SparkConf()  # includes the settings that Java was started with, and spark-defaults.conf
    for key, value in chosen.items():
        conf.set(key, value)
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", name)
    master = str(conf.get("spark.master"))
    for key, value in (ours | _of_master(master)).items():
        conf.setIfMissing(key, value)
    if for_jobs:
        conf.setIfMissing("spark.executor.defaultJavaOptions", _light_options(dict(conf.getAll()), "executor"))
    python = conf.get("spark.pyspark.python", None)
    if archive is not None and not re.match(r"local(\[|$)", master):
        archives = conf.get("spark.archives", "")
        conf.set("spark.archives", ",".join(filter(None, (archives, f"{os.fspath(archive)}#{UNPACKED}"))))
        python = python or PACKED_PYTHON
    if python:
        conf.setIfMissing(WORKER_PYTHON, python)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        from .failures import explain

        raise SetupError(f"{master}: {explain(error)}") from error


def _of_master(master: str) -> dict[str, str]:
    """Settings for masters on this machine: no port on the network, and a partition for each core."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
    if local:
        cores = (os.cpu_count() or 1) if local.group(1) == "*" else int(local.group(1) or 1)
    elif cluster:
        cores = int(cluster.group(1)) * int(cluster.group(2))
    else:
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
    }


def _java_settings(chosen: Mapping[str, str]) -> dict[str, str]:
    """Options for the Java process of the driver, which Spark puts before those of the user."""
    theirs = defaults_file() | dict(chosen)
    if "spark.driver.defaultJavaOptions" in theirs:
        return {}
    return {"spark.driver.defaultJavaOptions": _light_options(theirs, "driver")}


def defaults_file() -> dict[str, str]:
    """The settings of spark-defaults.conf, which Java itself reads too late for its own options."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = (re.match(r"\s*([^#\s=:]+)\s*[\s=:]\s*(.*)", line) for line in lines)
    return {line.group(1): line.group(2).strip() for line in found if line}


def _launch(chosen: Mapping[str, str], log: Any) -> None:
    """Start Spark's Java process. Its output goes to `log`, or to an unnamed temporary file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return  # a session before this one started it
    conf = SparkConf(loadDefaults=False)
    shell = "spark.ui.showConsoleProgress"  # Java assumes a shell, which has another default
    for key, value in ({shell: SETTINGS[shell]} | dict(chosen)).items():
        if not key.startswith(_OF_STORES):  # a command line shows them
            conf.set(key, value)
    with tempfile.TemporaryFile() if log is None else open(Path(log), "ab+") as file:
        begin = file.seek(0, os.SEEK_END)
        try:
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
        except Exception as error:
            file.seek(begin)
            output = file.read().decode(errors="replace").splitlines()
            raise SetupError("Spark did not start: " + "\n".join(output[-8:] or [str(error)])) from error
    SparkContext._ensure_initialized(gateway=gateway)


def _light_options(settings: Mapping[str, str], of: str) -> str:
    """Options for the Java of `driver` or `executor`, given the user's settings.

    A job of this package needs Java for seconds. By default Java compiles its hot code twice, the second time for hours
    of use, and runs a garbage collector with several threads. Both take more time than the job.
    """
    theirs = [settings.get(f"spark.{of}.extraJavaOptions", ""), *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    has_collector = any(word.startswith("-XX:+Use") and word.endswith("GC") for text in theirs for word in text.split())
    return ONE_COMPILER if has_collector else f"{ONE_COMPILER} {ONE_COLLECTOR}"


def cores_of(spark: SparkSession) -> int | None:
    """The cores that run tasks; None if the session does not show them, as through Spark Connect."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    known = spark.conf.get("spark.default.parallelism", None)
    return int(known) if known else None
