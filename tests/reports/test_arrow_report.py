"""Tables of reports as Arrow: every section converts, libraries read it without pandas, and nulls and integers last."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from io import StringIO
from pathlib import Path

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pytest

from kafkatap import analyze
from kafkatap.reports.model import Column, Report, ReportTable
from kafkatap.reports.rendering.json_report import write_json
from kafkatap.reports.section_parts.registry import section_names

TYPES = {
    "text": "string", "texts": "list<item: string>", "count": "int64", "ns": "int64", "ms": "int64", "bytes": "int64",
    "packet": "int64", "share": "double", "number": "double", "time": "timestamp[ns, tz=UTC]", "flag": "bool",
    "versions": "list<item: struct<api: string, versions: list<item: int16>>>", "numbers": "string",
    "parties": "list<item: struct<kind: string, name: string>>", "packets": "list<item: int64>",
}  # fmt: skip
MADE = ReportTable(
    "made", "Made", tuple(Column(kind, kind, kind, "") for kind in TYPES),
    [
        ("<b>\x1b", ("a", "b"), 1, 2**60, 3, 4, 5, 0.5, 2.0, 1_700_000_000_123_456_789, True, (("Fetch", (1, 2)),),
         (("p99_ns", 5), ("api", "Fetch")), (("client", "billing"),), (7, 9)),
        (None,) * 15,
        ("", (), 0, 0, 0, 0, 0, 1, 3, 0, False, (), (), (), ()),
    ],
)  # fmt: skip


@pytest.fixture(scope="module")
def report(samples: Path) -> Report:
    """All sections of a capture with much in it."""
    return analyze(samples / "apache-4.3.pcap.zst").report(sections=section_names())


def test_types_follow_the_kind_of_a_column() -> None:
    table = MADE.to_arrow()
    assert {field.name: str(field.type) for field in table.schema} == TYPES
    assert table.schema == MADE.replace(rows=[]).to_arrow().schema
    assert table["text"].to_pylist() == ["<b>\x1b", None, ""]
    assert table["texts"].to_pylist() == [["a", "b"], None, []]
    assert table["versions"].to_pylist() == [[{"api": "Fetch", "versions": [1, 2]}], None, []]
    assert table["time"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789, None, 0]
    assert table["share"].to_pylist() == [0.5, None, 1.0]


def test_libraries_read_a_table_as_it_is() -> None:
    arrow, frame = pa.table(MADE), polars.DataFrame(MADE)
    assert arrow == MADE.to_arrow()
    assert frame.equals(polars.from_arrow(arrow))
    assert frame["ns"].to_list() == [2**60, None, 0]
    made = MADE
    read = duckdb.sql("SELECT ns, texts, epoch_ns(time) FROM made")
    assert made is MADE
    assert read.fetchall()[:2] == [(2**60, ["a", "b"], 1_700_000_000_123_456_789), (None, None, None)]
    assert list(pd.DataFrame.from_arrow(MADE)["count"].dropna()) == [1, 0] if hasattr(pd.DataFrame, "from_arrow") else 1


def test_pandas_keeps_integers_and_nulls() -> None:
    frame = MADE.to_pandas()
    assert frame["ns"].dtype == pd.Int64Dtype()
    assert frame["ns"][0] == 2**60
    assert frame["ns"][1] is pd.NA
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["time"][0].nanosecond == 789
    assert frame["flag"].dtype == pd.BooleanDtype()
    assert str(MADE.to_pandas(types_mapper=pd.ArrowDtype)["ns"].dtype) == "int64[pyarrow]"


def test_every_section_converts(report: Report) -> None:
    written = StringIO()
    write_json(report, written, "test")
    rows = json.loads(written.getvalue())["reports"]
    assert len(report) > 30
    for name, table in report.items():
        arrow = table.to_arrow()
        assert arrow.num_rows == len(table.rows) == len(table.to_pandas()), name
        assert [str(field.type) for field in arrow.schema] == [TYPES[column.kind] for column in table.columns], name
        for column in table.columns:
            if name in rows and column.kind != "time":
                values = arrow[column.name].to_pylist()
                values = [json.loads(value) for value in values] if column.kind == "numbers" else values
                assert values == [row[column.name] for row in rows[name]], (name, column)


def test_a_report_is_a_mapping_of_its_tables(report: Report) -> None:
    assert report["latency"] is report.table("latency")
    names = list(report)
    assert (names[0], names[-1], len(names)) == ("heading", "ledger", len(report))
    assert dict(report)["errors"].name == "errors"
    assert "latency" in report
    assert "nothing" not in report
    with pytest.raises(KeyError, match=r"this report has no table 'nothing'; it has heading, summary, latency"):
        report["nothing"]
    assert pickle.loads(pickle.dumps(report)) == report


def test_without_pandas_the_error_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise ImportError('not here')")
    code = (
        "from kafkatap.reports.model import Column, ReportTable\n"
        "table = ReportTable('t', 'T', (Column('n', 'n', 'count', ''),), [(1,), (None,)])\n"
        "print(table.to_arrow()['n'].to_pylist())\n"
        "table.to_pandas()\n"
    )
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[1, None]\n"
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: to_pandas() needs pandas (")
    assert last.endswith("[pandas]'); to_arrow() works without it")
