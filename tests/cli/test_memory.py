"""What `report` takes of memory for large messages and many connections, as the kernel counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peak_memory import peak

MAKE = Path(__file__).parents[2] / "benchmarks" / "make_traffic.py"
MIB = 1 << 20


def make(path: Path, *arguments: str) -> Path:
    subprocess.run([sys.executable, str(MAKE), arguments[0], str(path), *arguments[1:]], check=True)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> int:
    """A report's memory for 40 MB of small messages."""
    path = make(tmp_path_factory.mktemp("small") / "small.pcap", "connections", "--count", "1000", "--requests", "200")
    peak("report", path)  # fills the kernel store
    return peak("report", path)


def test_a_large_message_takes_at_most_twice_its_size(base: int, tmp_path: Path) -> None:
    path = make(tmp_path / "large.pcap", "produce", "--megabytes", "60")
    assert peak("report", path) - base < 2 * 60 + 32
    assert peak("report", path, "--max-frame", "10m") - base < 30
    assert peak("report", path, "-f", "api == Metadata") - base < 40, "only its head is asked for"


def test_large_messages_at_once_take_at_most_twice_their_size(base: int, tmp_path: Path) -> None:
    path = make(tmp_path / "large.pcap", "produce", "--megabytes", "20", "--interleaved", "4")
    assert peak("report", path) - base < 2 * 80 + 48  # with the facts of Produce


@pytest.mark.parametrize("end", [["--fin"], []])
def test_connections_are_given_back(end: list[str], base: int, tmp_path: Path) -> None:
    """Those that end at once; of those that do not end, the ones that are silent while many others come."""
    path = make(tmp_path / "many.pcap", "connections", "--count", "300000", "--hosts", "16", *end)
    assert peak("report", path) - base < (190 if end else 500)


def test_tables_are_written_as_they_come(base: int, tmp_path: Path) -> None:
    """600,000 exchanges and 300,000 connections, of which the rows alone are 240 MB."""
    path = make(tmp_path / "long.pcap", "connections", "--count", "1000", "--requests", "600")
    assert peak("report", path, "--parquet", tmp_path / "tables") - base < 150
    path = make(tmp_path / "many.pcap", "connections", "--count", "300000", "--hosts", "16", "--fin")
    assert peak("report", path, "--parquet", tmp_path / "tables") - base < 320


def test_tables_are_written_without_pandas(tmp_path: Path) -> None:
    """`pyarrow.array` imports it where it is installed, which takes 40 MB."""
    path = make(tmp_path / "small.pcap", "connections", "--count", "2", "--requests", "2")
    script = (
        "import sys\nfrom kafkatap.__main__ import main\n"
        "assert main(sys.argv[1:]) == 0\nassert 'pyarrow' in sys.modules\nassert 'pandas' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, "report", str(path), "--parquet", str(tmp_path / "tables")],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def test_lone_syns_are_given_back(base: int, tmp_path: Path) -> None:
    path = make(tmp_path / "syns.pcap", "syns", "--count", "400000", "--hosts", "16")
    assert peak("report", path) - base < 190


def test_a_limit_below_the_head_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    from kafkatap.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main(["report", "--max-frame", "100", "x.pcap"])
    assert ended.value.code == 2
    assert "'100' is less than 64k" in capfd.readouterr().err
