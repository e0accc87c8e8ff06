"""`lake compact` sorts rows by client, broker and time, and loses and changes none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from kafkatap.spark.output import clustering, delta
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import open_table, read_table
from kafkatap.spark.output.publication import open_publication
from tests.spark.rows import HOUR, HOUR_4, index_of, made, run

CLIENTS = 40


def rows_of_run(seed: int, count: int) -> Any:
    """Exchanges of clients in any order."""
    rng = np.random.default_rng(seed)
    return made(
        "exchanges",
        [
            {
                "exchange": 1_000_000 * seed + n, "client_id": None if client == 7 else f"client-{client:03}",
                "broker_ip": f"10.0.0.{n % 3}", "broker_port": 9092, "topics": [f"t{n % 5}"],
                "request_first": HOUR_4 + n * HOUR // count, "request_packet_first": 1,
            }
            for n, client in enumerate(rng.integers(0, CLIENTS, count).tolist())
        ],
    )  # fmt: skip


def write(out: Path, seeds: range, count: int = 400) -> None:
    for seed in seeds:
        with open_publication(str(out)) as publication:
            with publication.writer.with_captures(index_of([seed])).open(0) as files:
                files.write("exchanges", rows_of_run(seed, count))
            publication.publish(files.written, ["exchanges"], [seed])


def committed(out: Path) -> Any:
    return read_table(str(out), "exchanges").sort_by("exchange")


def paths(out: Path) -> list[str]:
    return sorted(open_table(str(out), "exchanges").file_uris())


def skipped(out: Path, client: str) -> tuple[int, int]:
    """Files whose statistics leave out a client, and all files."""
    stats = [
        json.loads(action["add"]["stats"])
        for name in sorted((out / "exchanges" / "_delta_log").glob("*.json"))[-1:]
        for action in map(json.loads, name.read_text().splitlines())
        if "add" in action
    ]
    ranges = [(one["minValues"]["client_id"], one["maxValues"]["client_id"]) for one in stats]
    return sum(not low <= client <= high for low, high in ranges), len(ranges)


@pytest.mark.parametrize("buckets", [1, 7])
def test_rows_are_sorted_by_client_broker_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int
) -> None:
    write(tmp_path, range(1, 6))
    before, size = committed(tmp_path), sum(Path(path).stat().st_size for path in paths(tmp_path))
    monkeypatch.setattr(clustering, "_BUCKET", -(-size // buckets))
    list(compact(str(tmp_path)))
    [path] = paths(tmp_path)
    found = pq.read_table(path, partitioning=None)
    keys = [tuple(row.values()) for row in found.select(clustering.KEYS["exchanges"]).to_pylist()]
    assert keys == sorted(keys, key=lambda key: (key[0] or "", *key[1:]))
    assert committed(tmp_path).equals(before)
    assert found.schema.field("client_id").nullable


def test_queries_skip_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkatap.spark.output import compaction

    write(tmp_path, range(1, 6), 2000)
    monkeypatch.setattr(clustering, "_BUCKET", 20_000)
    monkeypatch.setattr(clustering, "_ROWS", 500)
    monkeypatch.setattr(compaction, "TARGET_SIZE", 20_000)
    monkeypatch.setattr("kafkatap.spark.output.parquet_file.GROUP_ROWS", 500)
    before = committed(tmp_path)
    list(compact(str(tmp_path)))
    skips, files = skipped(tmp_path, "client-021")
    assert files >= 5
    assert skips >= files - 2
    assert committed(tmp_path).equals(before)


def test_sorted_files_are_not_sorted_again(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    list(compact(str(tmp_path)))
    once = paths(tmp_path)
    list(compact(str(tmp_path)))
    assert paths(tmp_path) == once
    write(tmp_path, range(4, 5))
    before = committed(tmp_path)
    list(compact(str(tmp_path)))
    assert len(paths(tmp_path)) == 1
    assert paths(tmp_path) != once
    assert committed(tmp_path).equals(before)


def test_a_file_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, range(1, 4))
    inner = clustering._sorted_files

    def meanwhile(*arguments: Any) -> Any:
        found = inner(*arguments)
        write(tmp_path, range(2, 3), 50)
        return found

    monkeypatch.setattr(clustering, "_sorted_files", meanwhile)
    with pytest.raises(OSError, match="another run has replaced its files meanwhile; repeat the command"):
        list(compact(str(tmp_path)))
    assert committed(tmp_path).num_rows == 850
    assert not list(tmp_path.rglob("sorted-*"))


def test_a_run_commits_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It adds rows, which stay."""
    write(tmp_path, range(1, 4))
    inner, done = delta.open_table, []

    def meanwhile(out: str, table: str) -> Any:
        found = inner(out, table)
        if list(tmp_path.rglob("sorted-*")) and not done:
            done.append(table)
            write(tmp_path, range(4, 5))
        return found

    monkeypatch.setattr(delta, "open_table", meanwhile)
    list(compact(str(tmp_path)))
    assert done
    assert committed(tmp_path).num_rows == 1600


def test_runs_replace_rows_of_sorted_files(tmp_path: Path) -> None:
    run(tmp_path, {1: (0, 1), 2: (0,)}, 1)
    run(tmp_path, {3: (0,)}, 1)
    list(compact(str(tmp_path)))
    run(tmp_path, {2: (0, 1)}, 2)
    rows = read_table(str(tmp_path), "exchanges", ["capture", "correlation_id"]).to_pylist()
    assert sorted((row["capture"], row["correlation_id"]) for row in rows) == [(1, 1), (1, 1), (2, 2), (2, 2), (3, 1)]
