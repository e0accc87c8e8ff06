"""The data source "kafkatap": its rows are those of the library, however captures are cut and rows are selected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkatap import analyze
from kafkatap.reports.tables import TABLES
from tests.support.captures import read_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.cluster.failures import OptionError, explain
from kafkatap.spark.source import KafkatapSource, register


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture(scope="module")
def capture(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "sample.pcap"
    path.write_bytes(read_bytes(samples / "apache-4.3.pcap.zst"))
    return path


def load(session: SparkSession, path: Any, **options: Any) -> DataFrame:
    return session.read.format("kafkatap").options(**options).load(path)


def rows(table: pa.Table) -> list[str]:
    """Rows as texts, without numbers that differ between runs."""
    names = table.column_names
    return sorted(map(str, to_microseconds(table.select(names)).to_pylist()))


@pytest.mark.parametrize("name", list(TABLES))
def test_each_table_of_a_capture_in_splits(session: SparkSession, capture: Path, name: str) -> None:
    found = load(session, str(capture), table=name, splitSize=str(capture.stat().st_size // 3)).toArrow()
    assert rows(found) == rows(getattr(analyze(capture), name))


@pytest.mark.parametrize("is_pushed", ["true", "false"])
def test_queries_of_a_frame_do_not_change_each_other(session: SparkSession, capture: Path, is_pushed: str) -> None:
    """Spark keeps the plan of a filtered query for the next ones if filters are pushed down to the source."""
    frame = load(session, str(capture), splitSize="256k")
    frame.createOrReplaceTempView("requests")
    wanted = analyze(capture).exchanges.to_pandas()
    names = wanted.api_name.value_counts()
    middle = wanted.request_first.median().floor("us")
    session.conf.set("spark.sql.python.filterPushdown.enabled", is_pushed)
    try:
        assert frame.where("api_name = 'Produce'").count() == names["Produce"]
        assert frame.count() == len(wanted)
        later = frame.where(f"request_first >= timestamp '{middle}'").count()
        assert later == (wanted.request_first >= middle).sum()
        counts = [f"(select count(*) from requests where api_name = '{name}')" for name in ("Produce", "Fetch")]
        both = session.sql(f"select {counts[0]}, {counts[1]}, (select count(*) from requests)").collect()[0]
        assert tuple(both) == (names["Produce"], names["Fetch"], len(wanted))
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_filter_leaves_bodies_undecoded(capture: Path) -> None:
    """The selection reaches the tasks."""
    source = KafkatapSource({"path": str(capture), "filter": "api == Produce"})
    reader = source.reader(source.schema())
    read = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])
    assert set(read["api_name"].to_pylist()) == {"Produce"}


def test_columns_and_sql(session: SparkSession, capture: Path) -> None:
    frame = session.read.format("kafkatap").schema("api_name string, total_ns long").load(str(capture))
    assert frame.columns == ["api_name", "total_ns"]
    assert frame.count() == len(analyze(capture).exchanges)
    frame.createOrReplaceTempView("exchanges")
    found = session.sql("select api_name, count(*) n from exchanges group by api_name").toArrow().to_pylist()
    wanted = analyze(capture).exchanges.to_pandas().groupby("api_name").size()
    assert {row["api_name"]: row["n"] for row in found} == wanted.to_dict()


def test_several_captures(session: SparkSession, samples: Path) -> None:
    paths = [str(samples / "apache-0.8.2.pcap.zst"), str(samples / "apache-4.3.pcap.zst")]
    assert rows(load(session, paths).toArrow()) == rows(analyze(paths).exchanges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "packets"}, "there is no table 'packets'; there are " + ", ".join(TABLES)),
        ({"splitSize": "much"}, "'much' is not a size (such as 64m, 512k, 1g, or 0)"),
        ({"splitSize": "100"}, "'100' is less than 4k, the smallest split (0 keeps files whole)"),
        (
            {"filter": "latency >"},
            "filter: a value (a number, a word or a text in quotes) is missing, at character 10 of 'latency >' "
            "(docs/filters.md)",
        ),
        ({"filter": " "}, "the filter is empty: leave the option out to select everything (--filter help)"),
        ({"ports": "9092,kafka"}, "ports: 'kafka' is not a port (1 to 65535, such as 9092,9093)"),
        (
            {"tabel": "results"},
            "there is no option 'tabel'; there are table, filter, splitSize, ports, keylog and hosts",
        ),
        ({"path": ""}, "no capture is named: load(PATH), a folder, a glob or a list of these"),
    ],
)
def test_wrong_options(capture: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        KafkatapSource({"path": str(capture)} | options)
    assert str(raised.value) == message


def test_errors_of_the_source_come_through_spark(session: SparkSession) -> None:
    """From where options are read, and from where captures are searched."""
    for options, message in (
        ({"path": "x", "table": "packets"}, "there is no table 'packets'; there are " + ", ".join(TABLES)),
        ({"path": "/no/such.pcap"}, "/no/such.pcap: there is no such file or folder"),
    ):
        with pytest.raises(Exception, match="Traceback") as raised:
            session.read.format("kafkatap").options(**options).load().count()
        assert explain(raised.value) == message


def test_a_column_that_a_table_lacks(session: SparkSession, capture: Path) -> None:
    with pytest.raises(Exception, match="Traceback") as raised:
        session.read.format("kafkatap").schema("api_nmae string").load(str(capture)).count()
    assert explain(raised.value) == "exchanges has no column 'api_nmae' (docs/tables.md)"


def test_a_column_of_another_type(session: SparkSession, capture: Path) -> None:
    with pytest.raises(Exception, match="Traceback") as raised:
        session.read.format("kafkatap").schema("api_name int").load(str(capture)).count()
    assert explain(raised.value) == "exchanges has the column 'api_name' as string, not as int"


def test_tables_and_views_of_sql(session: SparkSession, capture: Path, tmp_path: Path) -> None:
    """Spark gives the source no options when it reads a table of its catalog."""
    place = tmp_path / "a b"
    place.mkdir()
    path = place / "sample.pcap"
    path.symlink_to(capture)
    wanted = len(analyze(capture).results)
    options = f"(path '{path}', table 'results', header 'true')"
    session.sql("DROP TABLE IF EXISTS kafkatap_results")
    try:
        session.sql(f"CREATE TABLE kafkatap_results USING kafkatap OPTIONS {options}")
        assert session.sql("SELECT count(*) FROM kafkatap_results").collect()[0][0] == wanted
        assert session.sql("SELECT count(*) FROM kafkatap_results WITH (splitSize '64k')").collect()[0][0] == wanted
    finally:
        session.sql("DROP TABLE IF EXISTS kafkatap_results")
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW kafkatap_view USING kafkatap OPTIONS {options}")
    assert session.sql("SELECT count(*) FROM kafkatap_view").collect()[0][0] == wanted
    with pytest.raises(Exception, match="Traceback") as raised:
        session.sql(f"CREATE TABLE other USING kafkatap OPTIONS (path '{path}', tabel 'results')")
    assert explain(raised.value).startswith("there is no option 'tabel'; there are table, filter")
