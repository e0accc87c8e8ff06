"""Executors that have nothing of this project get it, and count what the driver counts: on local-cluster, on a
standalone master and worker, and through Spark Connect; each way of docs/spark.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kafkatap.kernels import store
from kafkatap.library import Analysis
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark import pack as pack_module
from kafkatap.spark.cluster.package import package_files
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.pack import pack
from tests.splits.join_support import compared, differences, local, published
from tests.support.spark_clusters import BARE, SHORT_LIVED, Place, bare_python, connect_server, spark_home, standalone

DRIVER = Path(__file__).with_name("driver.py")
CAPTURE = "apache-4.3-two-interfaces.pcapng"


@pytest.fixture(scope="module")
def archive(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pack` makes for the executors of these tests."""
    out = tmp_path_factory.mktemp("pack") / "kafkatap.tar.gz"
    lines: list[str] = []
    packed = pack(out, [name for name in BARE if not name.endswith(".libs")], level=1, watch=lines.append)
    assert packed == out.stat().st_size
    compiling = [] if store.made_ahead() else ["compiling"]  # a checkout whose kernels have changed
    wanted = ["copying", *compiling, "compressing:"]
    assert [line.split()[0] for line in lines[: len(wanted)]] == wanted
    assert " kafkatap, " in lines[0]
    assert lines[len(wanted) - 1].startswith("compressing: 0% of ")
    return out


@pytest.fixture(scope="module")
def site(archive: Path) -> Path:
    """The package as the archive has it: for the drivers, so that both have the same copy while files here change."""
    folder = archive.with_name("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "site"


@pytest.fixture(scope="module")
def bare(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executors' Python."""
    python = bare_python(tmp_path_factory.mktemp("bare") / "venv")
    code = "import importlib.util as u; print(*[n for n in ('numpy', 'numba', 'kafkatap') if u.find_spec(n)])"
    done = subprocess.run([python, "-c", code], cwd="/", env={}, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["numpy"]
    return python


@pytest.fixture(scope="module")
def master(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone(Place(tmp_path_factory.mktemp("standalone") / "place", bare)) as url:
        yield url


@pytest.fixture(scope="module")
def connect(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(Place(tmp_path_factory.mktemp("connect") / "place", bare), "local[2]") as url:
        yield url


def drive(site: Path, capture: Path, work: Path, **session: Any) -> dict[str, Any]:
    """Run a driver, away from the project; what it tells."""
    short = {
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.executor.memory": "1g",
    }
    if not session["master"].startswith("sc:"):
        session["config"] = short | session.get("config", {})
    home = work / "spark"
    if not home.exists():
        spark_home(home)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK", "KAFKATAP"))}
    done = subprocess.run(
        [sys.executable, "-P", DRIVER, json.dumps({"capture": str(capture), **session})],
        env=environment | {"PYTHONPATH": str(site), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=work, capture_output=True, text=True, timeout=400, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def exchanges(samples: Path) -> int:
    """What the local engine counts."""
    count = Analysis([samples / CAPTURE]).exchanges.num_rows
    assert count > 100
    return int(count)


def check_shipped(answer: dict[str, Any], exchanges: int, bare: Path) -> None:
    """The job ran under the bare Python, on kernels that came compiled, and counted what the local engine counts."""
    assert answer.get("refused") is None
    assert (answer["count"], answer["rows"]) == (exchanges, exchanges)
    assert Path(answer["prefix"]) == bare.parents[1]
    assert answer["kernels"] == answer["shipped"]
    assert answer["numba"] is False


def test_local_cluster_with_an_archive(
    archive: Path, site: Path, bare: Path, samples: Path, tmp_path: Path, exchanges: int
) -> None:
    """An executor that is killed in the middle of a job changes nothing in what the job writes."""
    config = {"spark.executorEnv.KAFKATAP_PYTHON": str(bare)}
    cluster, out = "local-cluster[2,1,1024]", tmp_path / "out"
    answer = drive(site, samples / CAPTURE, tmp_path, master=cluster, archive=str(archive), config=config, out=str(out))
    check_shipped(answer, exchanges, bare)
    assert Path(answer["kernels"]).is_relative_to(tmp_path)
    assert answer["killed"], "no executor was killed while the job ran"
    wanted = {name: to_microseconds(table) for name, table in local(samples / CAPTURE).items()}
    assert not differences(compared(published(out, wanted)), compared(wanted))


@pytest.mark.long
def test_standalone_with_an_archive_and_relative_paths(
    archive: Path, site: Path, bare: Path, master: str, samples: Path, tmp_path: Path, exchanges: int
) -> None:
    """Executors run elsewhere, and get absolute paths."""
    (tmp_path / "in").mkdir()
    shutil.copy(samples / CAPTURE, tmp_path / "in")
    answer = drive(site, Path("in") / CAPTURE, tmp_path, master=master, archive=str(archive), out="out")
    check_shipped(answer, exchanges, bare)
    assert read_table(str(tmp_path / "out"), "exchanges").num_rows == exchanges
    paths = read_table(str(tmp_path / "out"), "files").column("path").to_pylist()
    assert paths == [str(tmp_path / "in" / CAPTURE)]
    check_progress(answer)


@pytest.mark.long
def test_connect_with_an_archive(
    archive: Path, site: Path, bare: Path, connect: str, samples: Path, tmp_path: Path, exchanges: int
) -> None:
    """Told first that executors do not have it; then it is sent."""
    answer = drive(site, samples / CAPTURE, tmp_path, master=connect)
    assert answer["refused"].startswith("The executors' Python on ")
    assert " has no kafkatap. Install it for " in answer["refused"]
    out = str(tmp_path / "out")
    answer = drive(site, samples / CAPTURE, tmp_path, master=connect, archive=str(archive), out=out)
    check_shipped(answer, exchanges, bare)
    assert read_table(out, "exchanges").num_rows == exchanges
    check_progress(answer)


def check_progress(answer: dict[str, Any]) -> None:
    """The stages in order, each to its end, and what came to the driver."""
    begun = [stage for stage, done, *_ in answer["progress"] if done == 0]
    ended = [stage for stage, done, total, *_ in answer["progress"] if done == total]
    assert list(dict.fromkeys(begun)) == list(dict.fromkeys(ended)) == ["survey", "decode", "publish"]
    assert answer["to_driver"] > 1_000


def test_connect_where_the_package_is_installed_for_another_python(
    site: Path, bare: Path, connect: str, samples: Path, tmp_path: Path, exchanges: int
) -> None:
    other = bare_python(tmp_path / "installed")
    (packages,) = other.parents[1].glob("lib/python*/site-packages")
    (packages / "installed.pth").write_text(f"{site}\n")
    config = {"spark.pyspark.python": str(other)}
    answer = drive(site, samples / CAPTURE, tmp_path, master=connect, config=config)
    check_shipped(answer, exchanges, other)


def test_a_split_is_read_by_kept_kernels_where_nothing_is_decoded(samples: Path) -> None:
    code = (
        "import sys\nfrom kafkatap.captures.splits import SplitReader, plan_splits\n"
        "from kafkatap.captures.storage import find\n"
        f"splits = plan_splits(find([{str(samples / CAPTURE)!r}]), 100_000)\n"
        "print([SplitReader(split).begins is None for split in splits], 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("False] False\n")
    assert "True" not in done.stdout


def test_an_archive_holds_all_that_is_imported_but_the_compiler(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
    assert {name.split("/")[0] for name in entries} == {"bin", "site"}
    assert entries["bin/python"].mode == 0o755
    packages = {name.split("/")[1] for name in entries if name.startswith("site/")}
    assert {"kafkatap", "lark", "rich", "zstandard", "cramjam", "crc32c"} <= packages
    assert not packages & {"numba", "llvmlite", "pyspark", "pandas", "pytest", "numpy", "pyarrow"}
    ours = {name for name in package_files() if name.endswith((".kmsg", ".tsv", "__init__.py", "py.typed"))}
    assert {f"site/{name}" for name in ours} <= set(entries)
    assert "site/kafkatap/kernels/compiled/results.programs" in entries
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries.values()} == {
        (0, 0, "", pack_module._TIME)
    }


def test_what_is_packed_is_what_the_package_needs() -> None:
    needed = {d.name.lower() for d in pack_module._needed("kafkatap", {"crc32c"})}
    assert {"kafkatap", "numpy", "pyarrow", "lark", "rich", "pygments"} <= needed
    assert not needed & {"crc32c", "numba", "llvmlite", "pyspark", "matplotlib", "pytest"}
    files = {name for name, _ in pack_module._files_of(metadata.distribution("numpy"))}
    assert "numpy/__init__.py" in files
    assert not any("/tests/" in name or name.startswith("..") for name in files)


def test_the_packed_python_refuses_another_version(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "python"
    script.parent.mkdir()
    script.write_text(pack_module._PYTHON.format(version="2.6"))
    script.chmod(0o755)
    done = subprocess.run([script, "-V"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert done.stderr.startswith("kafkatap: this archive is for Python 2.6, and ")
