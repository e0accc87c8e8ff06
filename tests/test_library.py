"""What a user of the library meets at a prompt, and that tables join by their keys."""

from __future__ import annotations

import importlib.metadata
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kafkatap
from kafkatap import analyze
from kafkatap.reports.model import NO_SOURCE
from tests.cli.running import kafkatap as kafkatap_command
from tests.support.captures import pcap_bytes


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


@pytest.mark.parametrize("start", [
    "2026-11-21T04:44:01.5Z", "1795236241.5", 1795236241.5, np.float64(1795236241.5), "1795236241500000000",
    1795236241500000000, np.int64(1795236241500000000), 1795236241.5e9, np.datetime64("2026-11-21T04:44:01.5"),
    pd.Timestamp(1795236241500000000, tz="UTC"), datetime(2026, 11, 21, 4, 44, 1, 500_000, UTC),
], ids=repr)  # fmt: skip
def test_a_time_is_the_same_as_text_and_number(start: Any, samples: Path) -> None:
    path = samples / "apache-4.3.pcap.zst"
    found, whole = analyze(path, start=start).exchanges, analyze(path).exchanges
    first = found["request_first"].cast("int64").to_pylist()
    wanted = [ns for ns in whole["request_first"].cast("int64").to_pylist() if ns >= 1795236241500000000]
    assert sorted(first) == sorted(wanted)
    if isinstance(start, str):  # the command line has the same
        done = kafkatap_command("report", "--json", "--sections", "latency", "--from", start, path)
        assert json.loads(done.out)["capture"]["requests"] == len(wanted)


@pytest.mark.parametrize("start", ["foo", 4.3, -1, True, 1795236241500, None, [1]])
def test_what_is_no_time(start: Any, samples: Path) -> None:
    if start is None:
        assert analyze(samples / "apache-0.8.2.pcap.zst", start=None).selection.text is None
        return
    with pytest.raises(ValueError, match="is not a time"):
        analyze(samples / "apache-0.8.2.pcap.zst", start=start)


@pytest.mark.parametrize(("arguments", "kind", "reason"), [
    ({"captures": []}, ValueError, "no capture is named"),
    ({"captures": "nosuch*.pcap"}, FileNotFoundError, r"nosuch\*.pcap: no file matches"),
    ({"keylog": "nosuch.log"}, FileNotFoundError, "there is no such key log"),
    ({"keylog": "folder"}, IsADirectoryError, "this is a folder"),
    ({"keylog": "empty.log"}, ValueError, "this key log is empty"),
    ({"keylog": "text.log"}, ValueError, "this is no key log"),
    ({"keylog": "word.log"}, ValueError, "this is no key log"),
    ({"keylog": "capture.pcap"}, ValueError, "this is a capture"),
    ({"filter": "latncy > 1ms"}, ValueError, "did you mean latency"),
    ({"start": "+5s", "end": "+1s"}, ValueError, "the window ends before it begins"),
    ({"api": "Fetsch"}, ValueError, "did you mean Fetch"),
    ({"broker": "broker-1"}, ValueError, "'broker-1' is no IP address"),
    ({"connection": "10.0.0.1"}, ValueError, "is not the address and port of a client"),
    ({"ports": "9092"}, ValueError, "'9092' is not a port number"),
    ({"ports": [0]}, ValueError, "0 is not a port number"),
    ({"definitions": "nosuch"}, FileNotFoundError, "nosuch"),
])  # fmt: skip
def test_wrong_arguments(
    arguments: dict[str, Any], kind: type[Exception], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/library.md says, before anything is read."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("empty.log").touch()
    Path("text.log").write_text("this is\nno key log\n")
    Path("word.log").write_text("word")
    Path("capture.pcap").write_bytes(pcap_bytes([]))
    with pytest.raises(kind, match=reason):
        analyze(**{"captures": "capture.pcap", **arguments})


@pytest.mark.parametrize("read", [
    lambda a: a.exchanges, lambda a: a.files, lambda a: a.records, lambda a: a.report(), lambda a: list(a.messages()),
    lambda a: list(a.record_tables()), lambda a: a.extract("copy.pcapng"),
])  # fmt: skip
def test_what_is_no_capture(read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.pcap").write_text("this is no capture")
    with pytest.raises(kafkatap.UnreadableCaptureError, match=r"text\.pcap: not a pcap or pcapng capture"):
        read(analyze("text.pcap"))


def test_the_page_of_a_report(samples: Path, tmp_path: Path) -> None:
    path = samples / "apache-0.10.2.pcap.zst"
    page, by_command = tmp_path / "page.html", tmp_path / "command.html"
    report = analyze(path).report(sections="all")
    report.page(page)
    kafkatap_command("report", "--sections", "all", "--html", by_command, path)
    assert page.read_text("utf-8") == by_command.read_text("utf-8")
    report.page(page, utc=True)
    analyze(path).report(curves=False).page(str(page))
    assert report == report.replace(source=NO_SOURCE)
    other = tmp_path / "other.html"
    other.write_text("mine")
    with pytest.raises(FileExistsError, match="an HTML page does not replace it"):
        report.page(other)
    with pytest.raises(ValueError, match="is a directory"):
        report.page(tmp_path)
