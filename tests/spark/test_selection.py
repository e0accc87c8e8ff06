"""A selection selects the same exchanges on Spark as in one process, with the same counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkatap import analyze
from kafkatap.__main__ import main
from kafkatap.parquet.partitions import to_microseconds
from tests.splits.join_support import compared, differences, local, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tables_and_reports_of_a_session(spark: SparkSession, samples: Path) -> None:
    from kafkatap.spark import read_captures

    path = samples / "apache-4.3-two-interfaces.pcapng"
    options = {"filter": "latency > 1ms", "start": "+1s"}
    captures = read_captures(spark, str(path), split_size=200_000, **options)
    found = {name: captures.table(name).toArrow() for name in ("exchanges", "results", "connections", "records")}
    whole = local(path, records=True, **options)
    assert 0 < whole["exchanges"].num_rows < analyze(path).exchanges.num_rows
    lines = differences(compared(found), compared({name: to_microseconds(whole[name]) for name in found}))
    assert not lines, "\n".join(lines)
    assert [t.rows for t in captures.report("client").tables] == [
        t.rows for t in analyze(path, **options).report("client").tables
    ]


def test_the_command_selects(spark: SparkSession, samples: Path, tmp_path: Path, capsys: Any) -> None:
    """Its report is that of `kafkatap report` with the same options, and its tables have the selected exchanges. Both
    count all sections: what else is decoded finds more errors of requests that are not selected."""
    path, out = samples / "apache-4.3-two-interfaces.pcapng", tmp_path / "out"
    options = ["-f", "latency > 1ms", "--api", "Fetch,Produce", "--client", "*", "--from", "+1s", "--json"]
    assert main(["spark", str(path), "-o", str(out), "--split-size", "200k", "--no-progress", *options]) == 0
    of_spark = json.loads(capsys.readouterr().out)
    assert main(["report", str(path), *options, "--utc", "--sections", "all"]) == 0
    of_one = json.loads(capsys.readouterr().out)
    for table, rows in of_spark["reports"].items():
        if table != "summary":
            assert rows == of_one["reports"][table], table
    texts = [[row["text"] for row in each["reports"]["summary"]] for each in (of_spark, of_one)]
    assert set(texts[0]) <= set(texts[1])
    wanted = analyze(path, filter="latency > 1ms", api=["Fetch", "Produce"], client="*", start="+1s")
    assert published(out, ["results"])["results"].num_rows == wanted.results.num_rows > 0


def test_nothing_is_left(spark: SparkSession, samples: Path, tmp_path: Path, capsys: Any) -> None:
    path = samples / "apache-0.8.2.pcap.zst"
    assert main(["spark", str(path), "-o", str(tmp_path), "--client", "nobody", "--no-progress"]) == 0
    assert "kafkatap: no request matches --client nobody" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["-f", "latncy > 1"], ["--api", "Fetsch"], ["--from", "soon"]])
def test_wrong_options_are_refused_before_spark_starts(wrong: list[str], tmp_path: Path, capsys: Any) -> None:
    try:
        code = main(["spark", str(tmp_path), "-o", str(tmp_path / "out"), *wrong])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert not (tmp_path / "out").exists()
    said = capsys.readouterr().err
    assert any(word in said for word in ("latency", "Fetch", "soon"))
