"""What a user of the library meets at a prompt, and that tables join by their keys."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pandas as pd
import pytest

import kafkatap
from kafkatap import analyze


def test_the_version_is_the_installed_one() -> None:
    assert kafkatap.__version__ == importlib.metadata.version("kafkatap")
    assert "__version__" in dir(kafkatap)


def test_an_analysis_at_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", *range(9)):
        Path(f"{name}.pcap").touch()
    assert repr(analyze("a.pcap")) == "<Analysis of 'a.pcap'>"
    some = analyze([f"{n}.pcap" for n in range(9)], filter="api == Fetch")
    assert repr(some) == "<Analysis of '0.pcap', '1.pcap', '2.pcap', …, --filter 'api == Fetch'>"


def test_a_capture_that_does_not_exist(samples: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^nosuch\.pcap: there is no such capture$"):
        analyze([samples / "apache-0.8.2.pcap.zst", "nosuch.pcap"])


def test_a_report_by_what_there_is_not_reads_nothing() -> None:
    with pytest.raises(ValueError, match=r"by must be one of api, client, .*, not 'foo'"):
        analyze("-").report(by="foo")


def test_sections_of_a_report(samples: Path) -> None:
    analysis = analyze(samples / "questions" / "groups.pcap.zst")
    report = analysis.report(sections=["groups", "errors"])
    assert {"groups", "rebalances", "errors"} < {table.name for table in report.tables}
    groups = [row[0] for row in report.table("groups").rows]
    assert {"billing", "shipping", "slow"} <= set(groups)
    with pytest.raises(ValueError, match="no section is called 'foo'"):
        analysis.report(sections=["foo"])
    with pytest.raises(KeyError, match=r"no table 'slowest'; it has .*groups.* with report\(sections=\[\.\.\.\]\)"):
        report["slowest"]


def test_tables_join_by_their_keys(samples: Path) -> None:
    """`exchange` and `connection` are keys, whatever the order of rows: each is there once, and what two tables say of
    it agrees."""
    found = analyze([samples / "apache-0.10.2.pcap.zst", samples / "apache-2.8.pcap.zst"])
    exchanges, results = found.exchanges.to_pandas(), found.results.to_pandas()
    connections, records = found.connections.to_pandas(), found.records.to_pandas()
    assert exchanges.exchange.is_unique
    assert connections.connection.is_unique
    assert not exchanges.exchange.eq(pd.Series(range(len(exchanges)))).all()

    ends = ["client_ip", "client_port", "broker_ip", "broker_port"]
    both = exchanges.merge(connections, on="connection", validate="many_to_one", suffixes=("", "_of_connection"))
    assert len(both) == len(exchanges)
    for name in ends:
        assert both[name].eq(both[f"{name}_of_connection"]).all()
    assert (both.connection_first <= both.request_first.fillna(both.response_first)).all()

    codes = results[results.error_code != 0].groupby(["exchange", "error_code"]).size()
    listed = {
        (key, error["code"]): error["count"]
        for key, errors in zip(exchanges.exchange, exchanges.errors, strict=True)
        for error in errors
    }
    assert codes.to_dict() == listed
    assert results.exchange.isin(exchanges.exchange).all()

    carried = records.merge(exchanges, on="exchange", validate="many_to_one")
    assert len(carried) == len(records) > 0
    assert set(zip(carried.direction, carried.api_name, strict=True)) == {("produce", "Produce"), ("fetch", "Fetch")}
    begins = carried.request_first.where(carried.direction.eq("produce"), carried.response_first)
    assert pd.Series(begins.eq(carried.message_first)).all()


def test_sections_are_chosen_as_on_the_command_line(samples: Path) -> None:
    analysis = analyze(samples / "questions" / "groups.pcap.zst")
    wanted = list(analysis.report(sections=["groups"]))
    assert list(analysis.report(sections="groups")) == list(analysis.report(sections="Groups,")) == wanted
    assert len(list(analysis.report(sections="all"))) > 40
    with pytest.raises(ValueError, match="did you mean groups"):
        analysis.report(sections="gruops")


def test_rows_of_a_table(samples: Path) -> None:
    table = analyze(samples / "questions" / "groups.pcap.zst", client="*", api=["Fetch", "Produce"]).report()["latency"]
    assert len(table) == len(table.rows) > 1
    assert table[0]["api"] == "Produce"
    assert [row["api"] for row in table] == [row["api"] for row in table.named_rows()]
    assert table.head(1).rows == table.rows[:1]
    assert table.head(0)
