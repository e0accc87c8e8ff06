"""The parts of each exchange's time sum to its total: in every sample, in splits, in Spark's tasks, and live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.dissector.time_parts import DURATIONS, parts_of
from kafkatap.live.export.parquet_files import ParquetLog
from tests.live.logged import log
from tests.shards.test_tables import write
from tests.splits.join_support import cut_evenly, join
from tests.support.captures import read_bytes

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
CAPTURES = sorted(path for path in SAMPLES.rglob("*.pcap*") if "cut" not in path.name)
#: Samples in which transfers stall: by loss in front of and behind the capture point, a mute, Nagle.
STALLED = [f"account/{name}.pcap.zst" for name in ("firewall-client", "lossy-broker", "late-client", "muted-broker")]
STALLED.append("advice/nagle.pcap.zst")


def check(rows: pa.Table) -> None:
    """Check the parts of exchanges."""
    columns = {name: rows[name].fill_null(0).to_numpy() for name in DURATIONS}
    parts = parts_of(columns)
    assert all((part >= 0).all() for part in parts.values())
    assert (sum(parts.values()) == columns["total_ns"]).all()
    assert (columns["nagle_ns"] <= columns["sender_ns"]).all()
    first, last = (rows[name].cast("int64").fill_null(0).to_numpy() for name in ("request_first", "response_last"))
    is_answered = np.array(rows["outcome"].to_pylist()) == "answered"
    unit = 1_000 if rows.schema.field("request_first").type.unit == "us" else 1
    assert (columns["total_ns"][is_answered] >= (unit * (last - first) - unit + 1)[is_answered]).all()


def durations(rows: pa.Table) -> list[tuple[int | None, ...]]:
    """The durations of each exchange."""
    names = ("client_port", "correlation_id", *DURATIONS)
    found = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return sorted(found, key=lambda row: [-1 if value is None else value for value in row])


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_the_parts_sum_to_the_total(capture: Path) -> None:
    check(analyze(capture).exchanges)


@pytest.mark.parametrize("name", STALLED)
def test_in_splits_in_sparks_tasks_and_live(name: str, tmp_path: Path) -> None:
    """They are those of one process as well."""
    path = tmp_path / "x.pcap"
    path.write_bytes(read_bytes(SAMPLES / name))
    wanted = durations(analyze(path).exchanges)
    assert any(row[2 + DURATIONS.index(part)] for row in wanted for part in ("loss_ns", "throttle_wait_ns", "nagle_ns",
                                                                             "path_ns"))  # fmt: skip
    write([path], tmp_path / "jobs", 3)
    live = tmp_path / "live"
    live.mkdir()
    log(path, ParquetLog(live, rotate=60_000_000_000, notify=lambda text: None))
    for rows in (
        pq.read_table(tmp_path / "jobs" / "exchanges.parquet"),
        join(cut_evenly(path, 3)).tables["exchanges"],
        pq.read_table(live / "exchanges"),
    ):
        check(rows)
        assert durations(rows) == wanted
