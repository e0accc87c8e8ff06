"""What is asked for restricts the rows of its own tables, and no number is 0 because its messages were left out.

Rows on the selected thing have the numbers of the whole report, or none.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze, compare
from kafkatap.reports.model import Report
from kafkatap.reports.section_parts.registry import section_names

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "apache-4.3.pcap.zst"
TOPIC, GROUP, CLIENT, BROKER = "small43.orders", "small43-etl", "svc-4-zstd", "10.77.0.1:9092"
#: By what is asked for: the columns of rows on it, its name, and the options that ask for it.
ASKED: dict[str, tuple[tuple[str, ...], str, tuple[dict[str, Any], ...]]] = {
    "topic": (("topic",), TOPIC, ({"topic": [TOPIC]}, {"filter": f'topic == "{TOPIC}"'})),
    "group": (
        ("group",),
        GROUP,
        ({"filter": f'group == "{GROUP}"'}, {"filter": f'api != Metadata and group ~ "^{GROUP}$"'}),
    ),
    "client": (("client_id",), CLIENT, ({"client": [CLIENT]}, {"filter": f'client_id == "{CLIENT}"'})),
    "broker": (("broker",), BROKER, ({"broker": [BROKER]}, {"filter": f"broker == {BROKER}"})),
    "api": (("api",), "Produce", ({"api": ["Produce"]}, {"filter": "api == Produce"})),
}
CASES = [
    pytest.param(asked, options, id=f"{asked}-{n}")
    for asked, (_, _, ways) in ASKED.items() for n, options in enumerate(ways)
]  # fmt: skip


@cache
def whole() -> Report:
    return analyze(SAMPLE).report(sections=section_names())


@pytest.mark.parametrize(("asked", "options"), CASES)
def test_rows_are_on_what_is_asked_for(asked: str, options: dict[str, Any]) -> None:
    columns, name, _ = ASKED[asked]
    report = analyze(SAMPLE, **options).report(sections=section_names())
    seen = 0
    for table in report.tables:
        for row in table.named_rows():
            for column in columns:
                seen += row.get(column) == name
                assert row.get(column) in (None, name), table.name
            if asked in ("topic", "group") and "kind" in row and row["kind"] in (asked, "partition"):
                assert row["name"] == name
    assert seen


@pytest.mark.parametrize(("asked", "options"), [case for case in CASES if case.values[0] not in ("group", "broker")])
def test_numbers_of_the_row_are_those_of_the_whole_report(asked: str, options: dict[str, Any]) -> None:
    """Those of the table of topics for a topic, and so on."""
    tables = {"topic": "topics", "client": "client_activity", "api": "latency"}
    key = ASKED[asked][0][0]
    name, table = ASKED[asked][1], tables[asked]
    (expected,) = (row for row in whole().table(table).named_rows() if row[key] == name)
    found = analyze(SAMPLE, **options).report(sections=[table if table != "client_activity" else "clients"])
    (row,) = (row for row in found.table(table).named_rows() if row[key] == name)
    assert {n: value for n, value in row.items() if value is not None} == {
        n: value for n, value in expected.items() if row[n] is not None
    }


@pytest.mark.parametrize(
    ("options", "unknown", "known"),
    [
        ({"api": ["Produce"]}, ("consumers", "out_bytes", "delays"), ("producers", "in_bytes")),
        ({"api": ["Fetch"]}, ("producers", "in_bytes", "produces", "sampled"), ("out_bytes", "out_records")),
        (
            {"filter": "api in (Fetch, ShareFetch, Produce)"},
            (),
            ("producers", "consumers", "in_bytes", "out_bytes", "delays"),
        ),
    ],
    ids=str,
)
def test_numbers_of_other_messages_are_not_0(
    options: dict[str, Any], unknown: tuple[str, ...], known: tuple[str, ...]
) -> None:
    rows = list(analyze(SAMPLE, **options).report(sections=["topics"]).table("topics").named_rows())
    assert rows
    expected = {row["topic"]: row for row in whole().table("topics").named_rows()}
    for row in rows:
        assert not any(row[name] is not None for name in unknown)
        assert {name: row[name] for name in known} == {name: expected[row["topic"]][name] for name in known}


def test_error_codes_are_those_of_the_topic() -> None:
    """A Metadata response on 16 topics without a leader has its code once for each partition of this one."""
    named = [row for row in whole().table("errors").named_rows() if row["name"] == TOPIC]
    expected = sum(int(str(row["count"])) for row in named)
    report = analyze(SAMPLE, topic=[TOPIC]).report(sections=["errors", "clients", "slowest", "timeline"])
    (heading,) = report.heading.named_rows()
    assert 0 < expected == heading["error_codes"]
    for table, column in (("error_totals", "count"), ("clients", "error_codes"), ("timeline", "error_codes")):
        assert sum(int(str(row[column])) for row in report.table(table).named_rows()) == expected, table
    assert {row["name"] for row in report.table("first_errors").named_rows()} == {TOPIC}
    assert [row["names"] for row in report.table("error_totals").named_rows()] == [1]


def test_an_empty_table_says_that_the_selection_leaves_others_out() -> None:
    report = analyze(SAMPLE, topic=[TOPIC]).report(sections=["groups", "auth", "tls", "connections"])
    for table in ("rebalances", "auth"):
        assert whole().table(table).rows
        assert not report.table(table).rows
        assert report.table(table).empty.endswith(" (the selection leaves out others)")
    assert "selection" not in report.table("tls").empty  # all connections, whatever is selected


def test_groups_of_a_topic() -> None:
    """Heartbeats and joins name no topic, and the lag is that of the topic."""
    report = analyze(SAMPLE, topic=[TOPIC]).report(sections=["groups"])
    (row,) = (row for row in report.table("groups").named_rows() if row["group"] == GROUP)
    assert [row[name] for name in ("heartbeats", "rebalances", "members")] == [None] * 3
    (lag,) = (row for row in report.table("group_lag").named_rows() if row["group"] == GROUP)
    assert (lag["topic"], row["committed_lag"]) == (TOPIC, lag["committed_lag"])


def test_a_group_has_the_numbers_of_its_own_messages() -> None:
    report = analyze(SAMPLE, filter=f'group == "{GROUP}"').report(sections=["groups"])
    (row,) = report.table("groups").named_rows()
    (expected,) = (row for row in whole().table("groups").named_rows() if row["group"] == GROUP)
    for name in ("members", "rebalances", "commits", "heartbeats", "ever_members"):
        assert row[name] == expected[name]
    assert all(row[name] in (None, expected[name]) for name in ("lag", "committed_lag"))


def test_connections_are_those_of_the_clients_that_are_asked_for() -> None:
    found = analyze(SAMPLE, client=[CLIENT]).report(sections=["connections"])
    assert {row["client_id"] for row in found.table("slow_connections").named_rows()} <= {CLIENT}
    (address,) = {row["client_ip"] for row in found.table("connections").named_rows()}
    assert address in {row["address"] for row in whole().table("clients").named_rows() if row["client_id"] == CLIENT}


def test_a_comparison_names_no_other_topic() -> None:
    split = "2026-11-21 04:44:17 UTC"
    others = {row["topic"] for row in whole().table("topics").named_rows()} - {TOPIC}
    found = str(compare(analyze(SAMPLE, topic=[TOPIC]), split=split))
    assert any(str(topic) in str(compare(SAMPLE, split=split)) for topic in others)
    assert not any(f"topic {topic}" in found for topic in others)
