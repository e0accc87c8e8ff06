"""Tables that another version of kafkatap made, or to which a user has added columns."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, TableFeatures
from deltalake.schema import Field

from kafkatap.__main__ import main
from kafkatap.reports import tables
from kafkatap.reports.table_columns import TableColumn
from kafkatap.reports.tables import TABLES
from kafkatap.spark.output import delta, delta_schema, parquet_file, run_tables, writing
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import active_files, check_tables, open_table, read_table
from kafkatap.spark.output.delta_schema import (
    CAPTURE,
    CHANGED,
    DATE,
    OF_FILES,
    SCHEMA,
    SCHEMA_PROPERTY,
    file_schema,
    table_schema,
)
from kafkatap.spark.output.publication import open_publication
from kafkatap.spark.output.run_tables import file_infos
from kafkatap.spark.verifying import verify
from tests.cli.running import ROOT
from tests.spark.rows import TABLES_MADE, exchanges, index_of, run, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKES = sorted(Path(ROOT / "samples" / "lakes").iterdir())
#: The rows of each.
COUNTS = {"exchanges": 98, "results": 146, "connections": 16, "files": 1, "records": 126}
#: A column that a version after this one has, and that is never null there.
LATER = TableColumn("later", "int32", "a number, as in [numbers](numbers.md)")


def use(monkeypatch: pytest.MonkeyPatch, table: str, columns: Sequence[Any]) -> None:
    """Be another version, in which a table has these columns."""
    monkeypatch.setitem(TABLES, table, tuple(columns))  # type: ignore[arg-type]


def fields(out: Path, table: str = "exchanges") -> dict[str, Any]:
    return {field.name: field for field in open_table(str(out), table).schema().fields}


def add_column(out: Path, table: str, field: Field, value: str | None = None) -> None:
    """Add a column as a user does. `value`: of all rows, in SQL."""
    open_table(str(out), table).alter.add_columns([field])
    if value is not None:
        open_table(str(out), table).update({field.name: value})


def column(out: Path, name: str, table: str = "exchanges") -> list[tuple[int, Any]]:
    """(exchange, value) of the committed rows."""
    rows = read_table(str(out), table, ["exchange", name])
    return sorted(zip(rows["exchange"].to_pylist(), rows[name].to_pylist(), strict=True))


def set_number(out: Path, number: str, table: str = "exchanges") -> None:
    delta_table = open_table(str(out), table)
    delta_table.alter.set_table_properties({SCHEMA_PROPERTY: number}, raise_if_not_exists=False)


# ---------------------------------------------------------------- columns that this version has, and the table lacks


def test_a_new_column_is_added_and_null_in_old_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, {1: (0, 1), 2: (0,)}, 1)
    use(monkeypatch, "exchanges", [*TABLES["exchanges"], LATER])
    assert column(tmp_path, "later") == [(100, None), (101, None), (200, None)]  # before any run of this version
    run(tmp_path, {3: (0,)}, 2)
    assert column(tmp_path, "later") == [(100, None), (101, None), (200, None), (300, 0)]
    made = fields(tmp_path)["later"]
    assert (made.type.type, made.nullable, made.metadata) == ("integer", True, {"comment": "a number, as in numbers"})
    assert [entry["operation"] for entry in open_table(str(tmp_path), "exchanges").history()].count("ADD COLUMN") == 1
    # Files with old rows are rewritten without those of a capture, and compacted.
    list(compact(str(tmp_path)))
    assert len(active_files(open_table(str(tmp_path), "exchanges"))) == 1
    run(tmp_path, {2: (0, 1)}, 3)
    run(tmp_path, {3: (0,)}, 3)
    assert column(tmp_path, "later") == [(100, None), (101, None), (200, 0), (201, 1), (300, 0)]
    assert "ADD COLUMN" not in {e["operation"] for e in open_table(str(tmp_path), "exchanges").history(3)}


def test_a_file_without_the_column_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_publication(str(tmp_path)) as publication:
        with publication.writer.with_captures(index_of([1, 2])).open(0) as files:
            for place in (0, 1):
                files.write("exchanges", exchanges(place, (0,), key=100 * (place + 1)))
        publication.publish(files.written, ["exchanges"], [1, 2])
    assert len(files.written) == 1
    use(monkeypatch, "exchanges", [LATER, *TABLES["exchanges"]])
    with open_publication(str(tmp_path)) as publication:
        publication.publish([], ["exchanges"], [1])
    assert column(tmp_path, "later") == [(200, None)]
    assert read_table(str(tmp_path), "exchanges").column_names[0] == "later"


def test_a_column_that_can_be_null_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, {1: (0,)}, 1)
    assert not fields(tmp_path, "ledger")["count"].nullable
    section, part, count = TABLES["ledger"]
    use(monkeypatch, "ledger", [section, part, TableColumn(count.name, count.type, count.doc, nullable=True)])
    run(tmp_path, {2: (0,)}, 2)
    assert fields(tmp_path, "ledger")["count"].nullable


def test_a_new_column_of_a_table_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_publication(str(tmp_path)) as publication:
        publication.publish([], ["exchanges"], [])
    use(monkeypatch, "exchanges", [*TABLES["exchanges"], LATER])
    run(tmp_path, {1: (0,)})
    assert column(tmp_path, "later") == [(100, 0)]


_LATER_RUN = """
import sys
from kafkatap.reports import tables
from kafkatap.reports.table_columns import TableColumn
from kafkatap.reports.tables import TABLES
from tests.spark.rows import run
out, n = sys.argv[1], int(sys.argv[2])
TABLES["exchanges"] = (*TABLES["exchanges"], TableColumn("later", "int32"), TableColumn(f"later_{n % 2}", "int32"))
run(out, {0: (0,), n: (0, 30)}, n)
"""


def test_runs_of_new_versions_at_the_same_time(tmp_path: Path) -> None:
    """Two have the same new columns, and the others have another one."""
    run(tmp_path, {0: (0,), 9: (0,)}, 1)
    runs = [subprocess.Popen([sys.executable, "-c", _LATER_RUN, tmp_path, str(n)], cwd=ROOT) for n in (1, 2, 3, 4)]
    assert [process.wait(120) for process in runs] == [0] * 4
    assert [row for row in seen(tmp_path)["exchanges"] if row[0]] == [
        *[(n, 100 * n + i, n) for n in (1, 2, 3, 4) for i in (0, 1)],
        (9, 900, 1),
    ]
    assert {"later", "later_0", "later_1"} <= fields(tmp_path).keys()
    shared = dict(column(tmp_path, "later_0"))
    assert [key for key in shared if key and shared[key] is None] == [100, 101, 300, 301, 900]


def test_another_run_adds_the_columns_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, {1: (0,)}, 1)
    use(monkeypatch, "exchanges", [*TABLES["exchanges"], LATER])
    changed, others = delta.changed_fields, []

    def meanwhile(out: str, table: str, found: DeltaTable) -> list[Field]:
        made = changed(out, table, found)
        if made and not others:
            others.append(table)
            open_table(out, table).alter.add_columns(made, commit_properties=CommitProperties(max_commit_retries=0))
        return made

    monkeypatch.setattr(delta, "changed_fields", meanwhile)
    run(tmp_path, {2: (0,)}, 2)
    assert others == ["exchanges"]
    assert column(tmp_path, "later") == [(100, None), (200, 0)]


# ---------------------------------------------------------------- columns that this version does not know


def test_columns_of_a_user_stay(tmp_path: Path) -> None:
    run(tmp_path, {1: (0, 1), 2: (0,)}, 1)
    list(compact(str(tmp_path)))
    add_column(tmp_path, "exchanges", Field("team", "string"), "'team ' || exchange")
    add_column(tmp_path, "exchanges", Field("seen", "timestamp_ntz"), "timestamp '2026-11-21 04:00:00'")
    run(tmp_path, {2: (0,), 3: (0,)}, 2)  # rewrites the file of captures 1 and 2
    wanted = [(100, "team 100"), (101, "team 101"), (200, None), (300, None)]
    assert column(tmp_path, "team") == wanted
    list(compact(str(tmp_path)))
    assert column(tmp_path, "team") == wanted
    assert [value is None for _, value in column(tmp_path, "seen")] == [False, False, True, True]
    assert read_table(str(tmp_path), "exchanges").column_names == file_schema("exchanges").names
    assert seen(tmp_path)["exchanges"] == [(1, 100, 1), (1, 101, 1), (2, 200, 2), (3, 300, 2)]


def test_rows_of_a_newer_version_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        use(newer, "exchanges", [LATER, *TABLES["exchanges"]])
        run(tmp_path, {1: (0,), 2: (1,)}, 1)
    list(compact(str(tmp_path)))
    assert not fields(tmp_path)["later"].nullable
    run(tmp_path, {2: (0,)}, 2)
    assert column(tmp_path, "later") == [(100, 0), (200, None)]


# ---------------------------------------------------------------- readers


@pytest.fixture
def evolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table with a column of a user and one of a later version, each in some of its files."""
    run(tmp_path, {1: (0,)}, 1)
    add_column(tmp_path, "exchanges", Field("team", "string"), "'a team'")
    use(monkeypatch, "exchanges", [*TABLES["exchanges"], LATER])
    run(tmp_path, {2: (0,)}, 2)
    return str(tmp_path / "exchanges")


#: (exchange, team, later)
EVOLVED = [(100, "a team", None), (200, None, 0)]


def test_other_readers_of_new_columns(evolved: str) -> None:
    import duckdb
    import polars

    names = ["exchange", "team", "later"]
    assert sorted(DeltaTable(evolved).to_pyarrow_dataset().to_table(columns=names).to_pylist(), key=repr) == [
        dict(zip(names, row, strict=True)) for row in EVOLVED
    ]
    assert polars.scan_delta(evolved).select(names).sort("exchange").collect().rows() == EVOLVED
    with duckdb.connect() as database:
        database.register("exchanges", DeltaTable(evolved).to_pyarrow_dataset())
        assert database.execute("select exchange, team, later from exchanges order by 1").fetchall() == EVOLVED


def test_spark_reads_new_columns(spark: SparkSession, evolved: str) -> None:
    table = DeltaTable(evolved)
    reader = spark.read.option("basePath", table.table_uri).option("mergeSchema", "true")
    frame = reader.parquet(*table.file_uris()).select("exchange", "team", "later").orderBy("exchange")
    assert [tuple(row) for row in frame.collect()] == EVOLVED


# ---------------------------------------------------------------- types and meanings


def test_a_column_of_another_type_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], samples: Path
) -> None:
    run(tmp_path, {1: (0,)}, 1)
    before = seen(tmp_path)
    section, part, count = TABLES["ledger"]
    use(monkeypatch, "ledger", [section, part, TableColumn(count.name, "int32", count.doc)])
    wanted = (
        f"{tmp_path}: the Delta table ledger has the column count as int64, and this version as int32; "
        "use another --output"
    )
    with pytest.raises(OSError) as refused:  # noqa: PT011
        run(tmp_path, {1: (0,)}, 2)
    assert str(refused.value) == wanted
    pytest.importorskip("pyspark")
    # The command refuses it before Spark starts.
    assert main(["spark", str(samples / "live-4.4.pcap.zst"), "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"kafkatap: {wanted}\n"
    monkeypatch.undo()
    assert seen(tmp_path) == before


def test_a_list_of_other_fields_is_another_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, {1: (0,)}, 1)
    columns = [TableColumn(c.name, "string") if c.name == "errors" else c for c in TABLES["exchanges"]]
    use(monkeypatch, "exchanges", columns)
    with pytest.raises(OSError, match=r"has the column errors as list<.*code: int16.*>, and this version as string"):
        check_tables(str(tmp_path))


def test_a_column_of_another_meaning_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "old", {1: (0,)}, 1)
    with monkeypatch.context() as next_version:
        number = SCHEMA + 1
        next_version.setattr(delta_schema, "SCHEMA", number)
        next_version.setattr(delta, "SCHEMA", number)
        broker, later = ("exchanges", "broker_ns"), ("exchanges", "later")
        next_version.setattr(delta_schema, "CHANGED", {**CHANGED, broker: number, later: number})
        use(next_version, "exchanges", [*TABLES["exchanges"], LATER])
        wanted = f"the column broker_ns with its meaning of schema 1, and this version of schema {number}; use another"
        with pytest.raises(OSError, match=wanted):
            run(tmp_path / "old", {2: (0,)}, 2)
        run(tmp_path / "new", {1: (0,)}, 1)
        run(tmp_path / "new", {2: (0,)}, 2)
        assert open_table(str(tmp_path / "new"), "exchanges").metadata().configuration[SCHEMA_PROPERTY] == str(number)
        # A column can come to a table of a number before that of the column.
        next_version.setattr(delta_schema, "CHANGED", {**CHANGED, later: number})
        for capture in (2, 3):
            run(tmp_path / "old", {capture: (0,)}, 2)
    run(tmp_path / "old", {4: (0,)}, 3)  # this version does not know the column
    use(monkeypatch, "exchanges", [*TABLES["exchanges"], LATER])
    with pytest.raises(
        OSError, match=f"the column later with its meaning of schema {number}, and this version of schema 1"
    ):
        run(tmp_path / "old", {4: (0,)}, 4)


@pytest.mark.parametrize("number", [str(SCHEMA + 1), "x"])
def test_a_table_of_a_newer_version_is_refused(tmp_path: Path, number: str) -> None:
    run(tmp_path, {1: (0,)}, 1)
    set_number(tmp_path, number)
    wanted = rf"a newer version of kafkatap made the Delta table exchanges \(schema {number}, .*\); upgrade kafkatap"
    for use_table in (
        lambda: run(tmp_path, {1: (0,)}, 2),
        lambda: read_table(str(tmp_path), "exchanges"),
        lambda: list(compact(str(tmp_path))),
        lambda: delta.transaction_version(str(tmp_path), "exchanges", "stream"),
        lambda: check_tables(str(tmp_path)),
    ):
        with pytest.raises(OSError, match=wanted):
            use_table()
    assert seen_ledger(tmp_path) == [(1, 1)]  # no other table changed


def seen_ledger(out: Path) -> list[tuple[int, int]]:
    rows = read_table(str(out), "ledger", ["capture", "count"])
    return sorted(zip(rows["capture"].to_pylist(), rows["count"].to_pylist(), strict=True))


def test_a_table_of_other_partitions_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "exchanges"), table_schema("exchanges"), partition_by=["capture"])
    with pytest.raises(OSError, match="exchanges is partitioned by capture; use another --output"):
        run(tmp_path, {1: (0,)})


# ---------------------------------------------------------------- comments


def test_columns_have_their_meaning_as_comment(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,)})
    for table in TABLES_MADE:
        found = fields(tmp_path, table)
        assert open_table(str(tmp_path), table).metadata().configuration[SCHEMA_PROPERTY] == str(SCHEMA)
        more = [c.name for c in OF_FILES] if table == "files" else []
        date = ["date"] * (table in TABLES_MADE[:3])
        assert list(found) == [*(c.name for c in TABLES[table]), "capture", *more, "run_number", *date]
        assert all(field.metadata["comment"] for field in found.values())
    assert fields(tmp_path, "files")["link_types"].metadata == {"comment": "link types of its packets"}


def test_the_columns_of_delta_tables_are_documented() -> None:
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert f"| `capture` | int64 | {CAPTURE.doc} |" in text
    assert f"| `date` | date | {DATE.doc} |" in text
    for column in OF_FILES:
        assert f"| `{column.name}` | {column.type.partition('[')[0]} | {column.doc} |" in text


def test_a_comment_of_a_user_stays(tmp_path: Path) -> None:
    table = tmp_path / "exchanges"
    mark = SCHEMA_PROPERTY.encode()
    marks = [{mark: f.metadata[mark]} if mark in (f.metadata or {}) else None for f in table_schema("exchanges")]
    plain = pa.schema([f.with_metadata(m) for f, m in zip(table_schema("exchanges"), marks, strict=True)])
    DeltaTable.create(str(table), plain, partition_by=["date"])
    open_table(str(tmp_path), "exchanges").alter.set_column_metadata("topics", {"comment": "ours", "tag": "1"})
    open_table(str(tmp_path), "exchanges").alter.set_column_metadata("api_name", {"tag": "2"})
    run(tmp_path, {1: (0,)})
    found = fields(tmp_path)
    assert list(found) == plain.names
    assert found["topics"].metadata == {"comment": "ours", "tag": "1"}
    assert found["api_name"].metadata["tag"] == "2"
    assert found["api_name"].metadata["comment"]
    assert not found["exchange"].nullable


# ---------------------------------------------------------------- lakes of earlier versions


@pytest.fixture(params=LAKES, ids=lambda path: path.name)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a lake that `samples/make_lake.py` made."""
    return shutil.copytree(request.param, tmp_path / "lake")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A copy of the latest one."""
    return shutil.copytree(LAKES[-1], tmp_path / "lake")


def names_of(out: Path) -> dict[str, list[str]]:
    """The columns in the files of each table."""
    return {table: [name for name in fields(out, table) if name != "date"] for table in TABLES}


def values(out: Path, names: dict[str, list[str]]) -> dict[str, list[str]]:
    """The rows of all tables in these columns."""
    return {table: sorted(map(repr, read_table(str(out), table, names[table]).to_pylist())) for table in TABLES}


def test_there_is_a_lake_of_each_number() -> None:
    assert [path.name for path in LAKES] == [f"schema-{n}" for n in range(1, SCHEMA + 1)]


def test_every_lake_is_read_and_compacted(any_lake: Path) -> None:
    before = values(any_lake, names_of(any_lake))
    assert {table: len(rows) for table, rows in before.items() if table != "ledger"} == COUNTS
    list(compact(str(any_lake)))
    assert values(any_lake, names_of(any_lake)) == before
    [info] = file_infos(read_table(str(any_lake), "files"))
    assert info.packets == 399


@pytest.mark.parametrize("earlier", LAKES[:-1], ids=lambda path: path.name)
def test_a_lake_of_an_earlier_number_gets_no_rows(earlier: Path, tmp_path: Path) -> None:
    """Its keys mean something else."""
    lake = shutil.copytree(earlier, tmp_path / "lake")
    before = values(lake, names_of(lake))
    (finding,) = verify(str(lake))
    assert (finding.kind, finding.amount) == ("schema", 1)
    assert finding.text.endswith("use another --output")
    for use_table in (lambda: check_tables(str(lake)), lambda: run(lake, {1: (0,)}, 7)):
        with pytest.raises(
            OSError, match=r"has the column \w+ with its meaning of schema 1, and .*; use another --output"
        ):
            use_table()
    assert values(lake, names_of(lake)) == before


def test_a_lake_gets_a_run(lake: Path) -> None:
    out, names = str(lake), names_of(lake)
    check_tables(out)
    before = values(lake, names)
    counts = {table: len(rows) for table, rows in before.items()}
    assert counts.pop("ledger") > 10
    assert counts == COUNTS
    run(lake, {1: (0, 1), 2: (0,)}, 7)
    list(compact(out))
    grown = {table: len(rows) - len(before[table]) for table, rows in values(lake, names).items()}
    assert grown == {"exchanges": 3, "results": 3, "connections": 2, "files": 2, "ledger": 2, "records": 0}
    with open_publication(out) as publication:  # rewrites the compacted files
        publication.publish([], tuple(TABLES), [1, 2])
    assert values(lake, names) == before
    files = read_table(out, "files")
    [info] = file_infos(files)
    assert (info.packets, info.link_types, info.path.rpartition("/")[2]) == (399, ("Ethernet",), "live-4.4.pcap.zst")
    with open_publication(out) as publication:
        publication.publish([], tuple(TABLES), files["capture"].to_pylist())
    assert not any(values(lake, names).values())


def test_a_stream_continues_in_a_lake(
    lake: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a user has added a column, and if the table `files` gets one that is null in its old rows."""
    pytest.importorskip("pyspark")
    from kafkatap.captures.identity import capture_head
    from kafkatap.spark.arrival_log import Arrival, ArrivalLog
    from kafkatap.spark.stream import StreamOptions, advance, finish_stream
    from kafkatap.splits.run_options import RunOptions

    add_column(lake, "exchanges", Field("team", "string"), "'a team'")
    capture = str(samples / "live-4.4.pcap.zst")
    other = str(samples / "live-4.3.pcap.zst")
    options = StreamOptions(str(lake), str(tmp_path / "checkpoint"), reading=RunOptions(records=True))
    log = ArrivalLog(options.checkpoint)
    for batch, path in enumerate([capture, other]):
        planned = [Arrival(path, Path(path).stat().st_size, batch, capture_head(path).identity, batch, 0)]
        log.write_plan(batch, planned)
        if batch == 1:
            columns = (*TABLES["files"], TableColumn("duplicates", "int64", "packets that were captured twice"))
            use(monkeypatch, "files", columns)
            monkeypatch.setattr(tables, "FILES", columns)
            monkeypatch.setattr(run_tables, "FILES", columns)
        advance(None, planned, batch, options)
    report = finish_stream(None, options).report
    assert report is not None
    rows = read_table(str(lake), "exchanges", ["capture", "team"])
    assert rows.num_rows > 98
    assert rows["team"].null_count == rows.num_rows  # the capture of the lake was read again
    files = read_table(str(lake), "files")
    assert sorted(map(str, files["duplicates"].to_pylist())) == ["0", "None"]
    assert [info.duplicates for info in file_infos(files)] == [0, 0]


# ---------------------------------------------------------------- what Delta Lake of Spark asks of a table


def strict_lake(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake of a version that had NOT NULL inside of lists, and fewer statistics."""
    with monkeypatch.context() as earlier:
        earlier.setattr(delta_schema, "nullable_inside", lambda schema: schema)
        earlier.setattr(writing, "nullable_inside", lambda schema: schema)
        for texts in ("_TEXTS", "_NUMBERS"):
            earlier.setattr(parquet_file, texts, ("capture", "run_number") if texts == "_NUMBERS" else ())
        run(out, {1: (0, 1)}, 1)


def inner_fields(out: Path) -> list[bool]:
    """Whether what is in the lists of exchanges can be null."""
    types = {name: field.type for name, field in fields(out).items()}
    errors = types["errors"]
    return [types["topics"].contains_null, errors.contains_null, *(f.nullable for f in errors.element_type.fields)]


@pytest.mark.parametrize("command", ["run", "compact"])
def test_lists_of_older_tables_become_nullable_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Delta Lake of Spark changes no table that has NOT NULL inside of lists."""
    strict_lake(tmp_path, monkeypatch)
    assert inner_fields(tmp_path) == [False] * 4
    rows = seen(tmp_path)
    if command == "run":
        run(tmp_path, {2: (0,)}, 1)
        run(tmp_path, {2: ()}, 1)
    else:
        list(compact(str(tmp_path)))
    assert inner_fields(tmp_path) == [True] * 4
    assert fields(tmp_path)["topics"].metadata["comment"]
    assert [row for row in seen(tmp_path)["exchanges"] if row[0] == 1] == rows["exchanges"]
    names = open_table(str(tmp_path), "exchanges").metadata().configuration["delta.dataSkippingStatsColumns"]
    assert {"capture", "client_id", "broker_ip", "request_first"} <= {*names.split(",")}


def test_statistics_of_a_user_stay(tmp_path: Path) -> None:
    name = "delta.dataSkippingStatsColumns"
    run(tmp_path, {1: (0,)}, 1)
    open_table(str(tmp_path), "exchanges").alter.set_table_properties({name: "acks,capture"})
    run(tmp_path, {2: (0,)}, 1)
    names = open_table(str(tmp_path), "exchanges").metadata().configuration[name].split(",")
    assert names[:2] == ["acks", "capture"]
    assert "client_id" in names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("feature", "name"),
    [(TableFeatures.DeletionVectors, "deletionVectors"), (TableFeatures.RowTracking, "rowTracking")],
)
def test_a_feature_that_is_unknown_is_refused_before_any_change(
    tmp_path: Path, feature: TableFeatures, name: str
) -> None:
    run(tmp_path, {1: (0,)}, 1)
    open_table(str(tmp_path), "results").alter.add_feature(feature, allow_protocol_versions_increase=True)
    versions = [DeltaTable(str(tmp_path / table)).version() for table in TABLES_MADE]
    wanted = f"the Delta table results has {name}, which kafkatap does not support, so it is not read or changed; drop"
    for command in (
        lambda: run(tmp_path, {2: (0,)}, 1),
        lambda: check_tables(str(tmp_path)),
        lambda: list(compact(str(tmp_path))),
        lambda: read_table(str(tmp_path), "results"),
        lambda: list(verify(str(tmp_path))),
    ):
        with pytest.raises(OSError, match=wanted):
            command()
    assert [DeltaTable(str(tmp_path / table)).version() for table in TABLES_MADE] == versions


def test_columns_with_other_names_are_refused(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,)}, 1)
    log = tmp_path / "exchanges" / "_delta_log"
    text = (log / f"{0:020}.json").read_text()
    (log / f"{0:020}.json").write_text(
        text.replace('"configuration":{', '"configuration":{"delta.columnMapping.mode":"name",')
    )
    with pytest.raises(OSError, match="exchanges has columnMapping, which kafkatap does not support"):
        run(tmp_path, {2: (0,)}, 1)


def test_statistics_of_texts() -> None:
    """Long ones are shortened to what is not above or below them. Without any in the file, there are none."""
    import io

    import pyarrow.parquet as pq

    schema = pa.schema([("client_id", pa.string()), ("topic", pa.string()), ("client_ip", pa.string())])
    rows = pa.table(
        {"client_id": ["b" * 40, "ä" * 40, None], "topic": ["x" * 9000, None, "y"], "client_ip": [None] * 3}
    )
    groups: list[Any] = []
    with pq.ParquetWriter(io.BytesIO(), schema, metadata_collector=groups) as writer:
        writer.write_table(rows.cast(schema))
    found = parquet_file._stats(groups[0], schema)
    assert found["minValues"] == {"client_id": "b" * 32}
    assert found["maxValues"] == {"client_id": "ä" * 32 + "\U0010ffff"}
    assert found["nullCount"] == {"client_id": 1, "topic": 1, "client_ip": 3}
