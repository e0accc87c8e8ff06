"""`kafkatap report --request-log`: with other outputs, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from jsonschema import validate

from kafkatap.reports.rendering.json_report import schema

from .running import ROOT, kafkatap

CAPTURE, LOG = ROOT / "samples" / "apache-4.3.pcap.zst", ROOT / "samples" / "apache-4.3.request.log.zst"
TABLES = {"broker_times", "broker_time_differences", "request_log_unmatched", "request_logs"}


def test_the_section_is_added_to_the_usual_ones(tmp_path: Path) -> None:
    done = kafkatap("report", "--request-log", LOG, "--utc", CAPTURE)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    usual = kafkatap("report", "--utc", CAPTURE).out.splitlines()
    assert lines[: usual.index("Latency by API")] == usual[: usual.index("Latency by API")]
    titles = ("Throttling by client and API", "Error codes", "Clients", "Timeline, 5 s each", "Events", "Advice")
    assert not set(titles) - set(lines)
    assert "Broker times by API, from the brokers' request logs" in lines


def test_other_outputs(tmp_path: Path) -> None:
    done = kafkatap(
        "report", "--sections", "broker-times", "--by", "client", "--request-log", LOG, "--json", "--csv",
        tmp_path / "csv", "--parquet", tmp_path / "parquet", CAPTURE,
    )  # fmt: skip
    assert done.code == 0, done.err
    made = json.loads(done.out)
    validate(made, schema())
    assert set(made["reports"]) == {*TABLES, "broker_times_by_client", "ledger"}
    produce = next(row for row in made["reports"]["broker_times"] if row["api"] == "Produce")
    assert (produce["joined"], produce["dominant"]) == (393, "remote")
    clients = made["reports"]["broker_times_by_client"]
    assert sum(row["joined"] for row in clients if row["api"] == "Produce") == 393
    with open(tmp_path / "csv" / "broker_times.csv", newline="") as file:
        assert {row["api"]: row["joined"] for row in csv.DictReader(file)}["Produce"] == "393"
    assert (tmp_path / "parquet" / "sections" / "broker_times.parquet").exists()


def test_with_a_page(tmp_path: Path) -> None:
    """The page has all sections; the text has the usual ones and this one."""
    done = kafkatap("report", "--request-log", LOG, "--html", tmp_path / "page.html", "--json", CAPTURE)
    assert done.code == 0, done.err
    assert {"latency", *TABLES} <= set(json.loads(done.out)["reports"])
    assert "groups" not in json.loads(done.out)["reports"]
    assert "Broker times by API" in (tmp_path / "page.html").read_text()


def test_a_filter_selects_what_is_joined() -> None:
    done = kafkatap("report", "--sections", "broker-times", "--request-log", LOG, "--api", "Produce", "--json", CAPTURE)
    assert [row["api"] for row in json.loads(done.out)["reports"]["broker_times"]] == ["Produce"]


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("nothing\n")
    for words, reason in (
        (["--request-log", tmp_path / "none"], "no such file"),
        (["--request-log", tmp_path / "server.log"], "kafka.request.logger"),
        (["--request-log", LOG, "--jobs", "2"], "--jobs"),
        (["--request-log", LOG, "--follow"], "--follow"),
        (["--request-log", LOG, "--sections", "latency"], "add --sections broker-times"),
    ):
        done = kafkatap("report", *words, CAPTURE)
        assert done.code == 2
        assert reason in done.err
    without = kafkatap("report", "--sections", "broker-times", CAPTURE)
    assert without.code == 0
    assert "--request-log FILE" in without.out
