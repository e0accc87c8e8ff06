"""`--table`: the tables of a lake in a catalog of Spark. A session with Delta's package is none that tests have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatap.__main__ import main
from kafkatap.spark.catalog import Catalog
from tests.spark.rows import TABLES_MADE, run


class Session:
    """Has the statements that it got. `places`: where tables of other names are."""

    def __init__(self, out: Path, extensions: str | None = None) -> None:
        self.statements: list[str] = []
        self.place = f"file:{out}".replace(" ", "%20")
        self.conf = SimpleNamespace(get=lambda name, usual: extensions if name == "spark.sql.extensions" else usual)

    def sql(self, statement: str) -> Any:
        self.statements.append(statement)
        table = statement.rpartition("`")[0].rpartition("`")[2]
        return SimpleNamespace(collect=lambda: [{"location": f"{self.place}/{table}"}])


def test_each_table_that_is_there_is_added(tmp_path: Path) -> None:
    out = tmp_path / "a lake's"
    run(out, {1: (0,)}, 1)
    session: Any = Session(out)
    Catalog("spark_catalog.kafka").add(session, str(out))
    assert session.statements[0] == "CREATE SCHEMA IF NOT EXISTS `spark_catalog`.`kafka`"
    made = [one for one in session.statements if one.startswith("CREATE TABLE")]
    assert len(made) == len(TABLES_MADE)
    place = str(out).replace("'", "\\'")
    assert f"CREATE TABLE IF NOT EXISTS `spark_catalog`.`kafka`.`files` USING DELTA LOCATION '{place}/files'" in made


def test_a_table_of_another_folder(tmp_path: Path) -> None:
    run(tmp_path / "lake", {1: (0,)}, 1)
    session: Any = Session(tmp_path / "other")
    with pytest.raises(ValueError, match=r"kafka.exchanges is a table in file:.*/other/exchanges already; name"):
        Catalog("kafka").add(session, str(tmp_path / "lake"))


def test_a_session_without_delta(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--table needs Delta's package in Spark: --conf spark\.jars"):
        Catalog("kafka").check(Session(tmp_path))  # type: ignore[arg-type]
    Catalog("kafka").check(Session(tmp_path, "io.delta.sql.DeltaSparkSessionExtension"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a.b.c", "kafka;drop", "a b", "`x`"])
def test_wrong_names(name: str, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(samples / "apache-4.3.pcap.zst")
    assert main(["spark", sample, "-o", str(tmp_path / "out"), f"--table={name}"]) == 2
    assert "name a schema, such as kafka or spark_catalog.kafka" in capsys.readouterr().err
