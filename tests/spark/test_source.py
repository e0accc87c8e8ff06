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

from pyspark.sql.datasource import EqualTo, In, IsNull

from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.source import pushed, register


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


def test_filters_are_pushed_down(session: SparkSession, capture: Path) -> None:
    frame = load(session, str(capture), splitSize="256k")
    wanted = analyze(capture).exchanges.to_pandas()
    produced = frame.where("api_name = 'Produce' and broker_ns > 0").count()
    assert produced == ((wanted.api_name == "Produce") & (wanted.broker_ns > 0)).sum() > 0
    middle = wanted.request_first.median().floor("us")
    later = frame.where(f"request_first >= timestamp '{middle}'").count()
    assert later == (wanted.request_first >= middle).sum()
    assert frame.where(f"request_first < timestamp '{middle}'").count() == (wanted.request_first < middle).sum()
    until = frame.where(f"request_first <= timestamp '{middle}'").count()
    assert until == (wanted.request_first.dt.floor("us") <= middle).sum() > len(wanted) - later
    clients = tuple(wanted.client_id.dropna().unique()[:2])
    assert frame.where(frame.client_id.isin(*clients)).count() == wanted.client_id.isin(clients).sum()
    assert frame.where("client_id is null").count() == wanted.client_id.isna().sum()


def test_a_pushed_filter_leaves_bodies_undecoded(session: SparkSession, capture: Path) -> None:
    """Results of other APIs are not made: the selection reaches the tasks."""
    from kafkatap.spark.source import CapturesReader, KafkatapSource

    reader = KafkatapSource({"path": str(capture)}).reader(KafkatapSource({}).schema())
    assert isinstance(reader, CapturesReader)
    assert list(reader.pushFilters([EqualTo(("api_name",), "Produce")])) == [EqualTo(("api_name",), "Produce")]
    read = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])
    assert set(read["api_name"].to_pylist()) == {"Produce"}


def test_what_is_pushed() -> None:
    assert pushed("exchanges", EqualTo(("api_name",), "Produce")) == {"apis": ["Produce"]}
    assert pushed("exchanges", In(("api_key",), (0, 1))) == {"apis": ["0", "1"]}
    assert pushed("exchanges", EqualTo(("api_name",), "Prodigal")) == {}
    assert pushed("exchanges", EqualTo(("client_id",), "star*")) == {}
    assert pushed("exchanges", EqualTo(("client_id",), None)) == {}
    assert pushed("exchanges", IsNull(("client_id",))) == {}
    assert pushed("results", EqualTo(("api_name",), "Produce")) == {}
    assert pushed("results", EqualTo(("topic",), "orders")) == {"topics": ["orders"]}


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
        ({"table": "packets"}, "there is no table 'packets'"),
        ({"splitSize": "much"}, "'much' is not a size"),
        ({"filter": "latency >"}, "latency"),
        ({"tabel": "results"}, "there is no option 'tabel'; there are table, filter, splitSize, ports and keylog"),
    ],
)
def test_wrong_options(session: SparkSession, capture: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        load(session, str(capture), **options).count()
