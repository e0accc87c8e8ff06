"""The columns of `connections` that TCP measures make do not depend on how the table was made, nor on other options.

Tables that Spark writes are compared with those of the library in `tests/spark`, in all columns.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkatap
from kafkatap.commands.command_parser import parse
from kafkatap.commands.live.command import _engine
from kafkatap.commands.values import read_options
from kafkatap.reports.section_parts.registry import needs_of
from tests.cli.running import kafkatap as command
from tests.support.captures import read_bytes

SAMPLE = "apache-2.8.pcap.zst"
MEASURED = [
    f"{end}_{name}"
    for end in ("client", "broker")
    for name in (
        "window_max", "in_flight_max", "zero_window_ns", "rtt_count", "rtt_sum_ns", "retransmission_wait_sum_ns",
        "retransmission_wait_max_ns", "retransmissions", "retransmission_timeouts",
    )
]  # fmt: skip


def assert_measured(table: pa.Table) -> None:
    assert table.num_rows
    assert {name: table[name].null_count for name in MEASURED} == dict.fromkeys(MEASURED, 0)
    for end in ("client", "broker"):
        counts = table[f"{end}_rtt_count"].to_pylist()
        for name in ("min", "max"):
            assert [value is None for value in table[f"{end}_rtt_{name}_ns"].to_pylist()] == [n == 0 for n in counts]
        assert any(counts)


@pytest.mark.parametrize("before", ["nothing", "exchanges"])
def test_the_library_measures(samples: Path, before: str) -> None:
    """Whether the table is read alone or with others."""
    found = kafkatap.analyze(samples / SAMPLE)
    if before == "exchanges":
        assert found.exchanges.num_rows
    assert_measured(found.connections)


@pytest.mark.parametrize("options", [(), ("--jobs", "2"), ("--sections", "latency")])
def test_reports_with_tables_measure(samples: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "sample.pcap"
    path.write_bytes(read_bytes(samples / SAMPLE))
    done = command("report", path, "--parquet", tmp_path / "tables", *options)
    assert done.code == 0, done.err
    found = pq.read_table(tmp_path / "tables" / "connections.parquet")
    assert_measured(found)
    wanted = kafkatap.analyze(path).connections
    assert found.sort_by("connection").equals(wanted.sort_by("connection"))


def test_live_tables_are_measured(tmp_path: Path) -> None:
    for options, is_measured in ((["--parquet", str(tmp_path)], True), ([], False)):
        given = parse(["live", "-i", "lo", "--plain", *options])
        assert _engine(given, [], read_options(given)).assembler.is_measured == is_measured


def test_reports_alone_do_not() -> None:
    """It takes longer."""
    assert not needs_of(None).measures
    assert needs_of(("connections",)).measures
