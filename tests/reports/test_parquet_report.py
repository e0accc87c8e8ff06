"""Tables of reports as Parquet have the rows of their JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from tests.cli.running import kafkatap

SECTIONS = "latency,throttle,errors,clients,timeline,files,auth"


def test_sections_are_written_beside_the_tables(samples: Path, tmp_path: Path) -> None:
    capture = samples / "apache-4.3.pcap.zst"
    ran = kafkatap("report", "--sections", SECTIONS, "--json", "--parquet", str(tmp_path), str(capture))
    assert ran.code == 0, ran.err
    reports = json.loads(ran.out)["reports"]
    assert "latency" in reports
    for name, rows in reports.items():
        if name in ("ledger", "summary"):
            continue
        table = pq.read_table(tmp_path / "sections" / f"{name}.parquet")
        assert table.num_rows == len(rows), name
        for read, row in zip(table.to_pylist(), rows, strict=True):
            for column, value in row.items():
                if column in ("first", "last", "start", "rate_at"):
                    assert (read[column] is None) == (value is None)
                else:
                    assert read[column] == value, (name, column)


def test_without_chosen_sections_there_are_only_tables(samples: Path, tmp_path: Path) -> None:
    ran = kafkatap("report", "--parquet", str(tmp_path), str(samples / "live-4.4.pcap.zst"))
    assert ran.code == 0, ran.err
    assert not (tmp_path / "sections").exists()
