"""Sessions have the settings that matter. What Spark lacks is reported in a few lines, with what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.spark.cluster import executors, session
from kafkatap.spark.cluster import java as java_module
from kafkatap.spark.cluster.executors import checked, setup_error
from kafkatap.spark.cluster.failures import explain, marked
from kafkatap.spark.cluster.java import SetupError, require_java
from kafkatap.spark.cluster.session import SETTINGS, open_session
from kafkatap.spark.cluster.shared_folders import SharedFolders, shared_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(folder: Path, says: str, code: int = 0) -> Path:
    """A `java` that answers `-version` as a real one did, in a folder as JAVA_HOME names one."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    command.chmod(0o755)
    return command


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_a_java_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    command = fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == java_module.Java(command, version)
    assert require_java().output.startswith(says.splitlines()[0])
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    assert require_java() == java_module.Java(command, version)


@pytest.mark.parametrize(("says", "version"), [('java version "1.8.0_412"', 8), ('openjdk version "11.0.2"', 11)])
def test_an_old_java_is_reported_with_its_version_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    command = fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="needs Java 17 or later") as refused:
        require_java()
    assert f"{command} (found by JAVA_HOME) is Java {version}." in str(refused.value)
    assert "apt-get install openjdk-17" in str(refused.value)


def test_no_java_is_reported_with_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no java on PATH, and JAVA_HOME is not set") as refused:
        require_java()
    assert all(word in str(refused.value) for word in ("apt-get install", "dnf install", "brew install"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SetupError, match=r"JAVA_HOME is .*gone, and there is no .*gone/bin/java"):
        require_java()


def test_a_java_that_is_none_is_reported_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "The operation couldn't be completed. Unable to locate a Java Runtime.", 1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="Unable to locate a Java Runtime"):
        require_java()


def test_what_is_missing_is_reported_without_a_traceback_of_java(tmp_path: Path) -> None:
    """A whole process each: without Java, with a Java that does not start, without an archive."""
    fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    broken = fake_java(
        tmp_path / "broken", 'openjdk version "17.0.2"\nError: Could not create the Java Virtual Machine.'
    )
    code = (
        "from kafkatap.spark.cluster.session import SetupError, open_session\n"
        "try: open_session('local[1]', archive={archive!r})\n"
        "except SetupError as error: print(error)"
    )
    for home, archive, text in (
        (tmp_path / "old", None, "is Java 11."),
        (broken.parents[1], None, "Spark did not start: "),
        (tmp_path, "gone.tar.gz", "gone.tar.gz: there is no such archive"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code.format(archive=archive)],
            env=os.environ | {"JAVA_HOME": str(home)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert text in done.stdout, done.stderr
        assert done.stderr == ""


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "sc://127.0.0.1:1/;token=x", "spark://[::1]:1,127.0.0.1:1"])
def test_a_server_that_is_not_there_is_reported_at_once(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SetupError, match=r"nothing answers there \(Connection refused\)"):
        session._require_master(master)
    session._require_master("local[2]")
    session._require_master("yarn")
    session._require_master("k8s://https://cluster:6443")
    with pytest.raises(SetupError, match="locals: there is no such master"):
        session._require_master("locals")


def test_the_settings_that_matter_are_set(spark: SparkSession) -> None:
    for key, value in SETTINGS.items():
        assert spark.sparkContext.getConf().get(key) == value
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"


def test_a_running_session_is_taken_as_it_is(spark: SparkSession) -> None:
    before = spark.sparkContext.getConf().getAll()
    assert open_session("local[1]", name="another", config={"spark.sql.session.timeZone": "CET"}) is spark
    assert spark.sparkContext.getConf().getAll() == before
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


# ---------------------------------------------------------------- settings of jobs

SEEN = """\
from kafkatap.spark.cluster.session import open_session
from kafkatap.spark.cluster.executors import checked
import json, sys
spark = open_session('local[1]', config=json.loads(sys.argv[1]), for_jobs=True)
runtime = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
names = ('spark.sql.adaptive.enabled', 'spark.sql.codegen.wholeStage', 'spark.sql.codegen.factoryMode')
count = spark.range(0, 4, 1, 2).mapInArrow(checked(iter), 'id long').toArrow().num_rows
print(json.dumps([list(runtime.getInputArguments()), [spark.conf.get(name) for name in names], count]))
spark.stop()
"""


def seen(tmp_path: Path, config: dict[str, str]) -> tuple[list[str], list[str]]:
    """The options of Java and the settings of a session for jobs, in a process of its own."""
    environment = os.environ | {"SPARK_CONF_DIR": str(tmp_path), "KAFKATAP_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SEEN, json.dumps(config)], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    java, settings, count = json.loads(done.stdout.splitlines()[-1])
    assert count == 4
    return java, settings


def test_a_session_for_jobs_prepares_for_nothing_longer(java: None, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.sql.adaptive.enabled  true\n")
    options, settings = seen(tmp_path, {"spark.sql.codegen.wholeStage": "true"})
    assert {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} <= set(options)
    assert settings == ["true", "true", "NO_CODEGEN"]  # the user's own come first


def test_a_collector_of_the_user_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start with two. Options of the file and of the call count alike."""
    for name in session._ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    collector = "-XX:+UseParallelGC -Da=b"
    chosen = session._java_settings({"spark.driver.extraJavaOptions": collector})
    assert chosen == {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions={collector}\n")
    assert session._java_settings({}) == chosen
    settings = session._settings(for_jobs=True)
    assert {settings[f"spark.sql.{name}"] for name in ("adaptive.enabled", "codegen.wholeStage")} == {"false"}


def test_a_running_session_keeps_its_settings(spark: SparkSession) -> None:
    assert open_session("local[1]", for_jobs=True) is spark
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"


def failing(how: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function of a task that goes wrong."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        yield from ()
        if how == "raises":
            raise ValueError("what \x1b[31m went wrong\nand more of it")
        if how == "chained":
            try:
                _ = {}["missing"]
            except KeyError as error:
                raise OSError("cannot read s3://bucket/one.pcap") from error
        if how == "import":
            import kafkatap.nothing_of_this_name  # noqa: F401
        os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSEGV)

    return fail


@pytest.mark.parametrize(
    ("how", "first", "then"),
    [
        ("raises", "ValueError: what \\x1b[31m went wrong", "and more of it"),
        ("chained", "OSError: cannot read s3://bucket/one.pcap", "  in fail, "),
        ("import", "The executors' Python has no kafkatap.", "pack"),
        ("killed", "The Python process of a task ended early: it was killed", "memory"),
        ("crashed", "The Python process of a task ended early: Segmentation fault", ""),
    ],
)
def test_a_failed_task_is_reported_by_its_python_cause(spark: SparkSession, how: str, first: str, then: str) -> None:
    with pytest.raises(Exception, match=r".") as raised:
        spark.range(0, 1, 1, 1).mapInArrow(failing(how), "id long").collect()
    text = explain(raised.value)
    assert text.startswith(first)
    assert then in text
    assert len(text.splitlines()) <= 4
    assert "org.apache" not in text
    assert ".java" not in text


def test_errors_of_queries_are_told_in_spark_s_words(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r".") as raised:
        spark.read.parquet(str(tmp_path / "gone"))
    assert explain(raised.value) == f"Path does not exist: file:{tmp_path}/gone."
    with pytest.raises(Exception, match=r".") as raised:
        spark.sql("select raise_error('so it is')").collect()
    assert explain(raised.value) == "so it is"


def test_errors_that_are_not_spark_s_keep_their_words() -> None:
    assert explain(ValueError("a\nb")) == "a\nb"
    assert explain(KeyError()) == "KeyError"
    version = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, no"
    assert explain(RuntimeError(version)).startswith("The executors run Python 3.12, the driver Python 3.11:")
    source = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):\n"
        "  File \"worker.py\", line 1, in main\nModuleNotFoundError: No module named 'kafkatap'\n SQLSTATE: 38000"
    )
    assert "(through Spark Connect: the server's) has no kafkatap." in explain(RuntimeError(source))
    program = 'java.io.IOException: Cannot run program "python9": error=2, No such file or directory'
    assert explain(RuntimeError(program)).startswith("There is no Python python9 on an executor:")


# ---------------------------------------------------------------- the check of executors


def doubled(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"id": [2 * n for n in batch["id"].to_pylist()]})


def run_checked(spark: SparkSession, folders: SharedFolders | None = None) -> list[int]:
    found: list[int] = (
        spark.range(0, 4, 1, 2).mapInArrow(checked(doubled, folders), "id long").toArrow()["id"].to_pylist()
    )
    return found


def refused(spark: SparkSession, folders: SharedFolders | None = None) -> str:
    with pytest.raises(Exception, match=r".") as raised:
        run_checked(spark, folders)
    error = setup_error(raised.value)
    assert isinstance(error, SetupError)
    assert explain(raised.value) == str(error)
    assert len(str(error).splitlines()) == 1
    return str(error)


def test_a_checked_task_does_its_work(spark: SparkSession) -> None:
    assert run_checked(spark) == [0, 2, 4, 6]


def test_a_checked_task_needs_nothing_of_the_package_before_the_check(tmp_path: Path) -> None:
    """A Python that cannot import kafkatap unpickles the task and says so."""
    import pyspark
    from pyspark import cloudpickle

    pickled = tmp_path / "task"
    pickled.write_bytes(cloudpickle.dumps(checked(doubled)))
    code = f"import pickle; list(pickle.load(open({str(pickled)!r}, 'rb'))(iter(())))"
    packages = Path(pyspark.__path__[0]).parent
    for name in ("pyspark", "py4j"):
        (tmp_path / name).symlink_to(packages / name)
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert f"The executors' Python on {os.uname().nodename} has no kafkatap. Install it" in (marked(done.stderr) or "")


def test_another_copy_of_the_package_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "fingerprint", lambda: "0.1+other")
    assert "have another copy of kafkatap (" in refused(spark)
    monkeypatch.setattr(executors, "python_version", lambda: "2.6")
    assert f"runs Python {sys.version_info[0]}.{sys.version_info[1]}, the driver Python 2.6" in refused(spark)


def test_folders_that_executors_do_not_see_are_named(spark: SparkSession, tmp_path: Path) -> None:
    captures = [tmp_path / f"{name}.pcap" for name in ("a", "b")]
    for path in captures:
        path.touch()
    out = tmp_path / "out"
    with shared_folders([*map(str, captures), "s3://bucket/c.pcap"], str(out)) as shared:
        assert [p.name for p in out.iterdir()] == [shared.token]
        assert run_checked(spark, shared) == [0, 2, 4, 6]
        captures[0].unlink()  # one may go meanwhile
        assert run_checked(spark, replace(shared, token=shared.token)) == [0, 2, 4, 6]
        elsewhere = replace(shared, token="_driver-elsewhere")
        assert f"sees another folder at {out} than the driver. Executors must see it under" in refused(spark, elsewhere)
        gone = replace(shared, captures=((str(tmp_path / "gone" / "c.pcap"),),))
        assert f"does not see {tmp_path}/gone/c.pcap. " in refused(spark, gone)
    assert list(out.iterdir()) == []
