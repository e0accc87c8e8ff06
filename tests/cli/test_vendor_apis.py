"""A vendor's own APIs: counted under their keys, and decoded by --definitions like Kafka's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector.layouts import catalog
from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.engine.engine import open_definitions
from kafkatap.engine.read_options import ReadOptions
from kafkatap.splits.run_options import RunOptions
from tests.support.captures import pcap_bytes
from tests.support.tcp import TcpConversation, encode, request_frame, response_frame
from tests.support.vendor import (
    APPEND,
    APPEND_VERSION,
    BROKER,
    CLIENT,
    METADATA,
    PING,
    ROLES,
    UNKNOWN,
    api_versions,
    vendor_capture,
    vendor_segments,
    write_vendor_definitions,
)
from tests.ways.reports import assert_same, one_engine, over_splits

from .running import kafkatap


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    catalog.forget_names()


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vendor") / "vendor.pcap"
    path.write_bytes(vendor_capture(6))
    return path


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vendor_definitions(tmp_path_factory.mktemp("definitions"))


def report(*arguments: str | Path) -> dict[str, Any]:
    done = kafkatap("report", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    whole: dict[str, Any] = json.loads(done.out)
    return whole


def counts(whole: dict[str, Any], section: str = "latency") -> dict[str, int]:
    return {row["api"]: row["count"] for row in whole["reports"][section]}


NAMED = {"ApiVersions": 1, "API 10001": 6, "API 32767": 1, "Metadata": 1, "API 7777": 1, "DescribeRedpandaRoles": 1}


def test_they_count_under_their_keys(capture: Path) -> None:
    whole = report(capture)
    assert counts(whole) == NAMED
    rows = {(row["api_key"], row["api_version"]): row for row in whole["reports"]["not_decoded"]}
    assert [(row["api"], row["vendor"]) for row in (rows[PING, 0], rows[UNKNOWN, 0], rows[ROLES, 0])] == [
        ("API 10001", "Confluent"), ("API 7777", None), ("DescribeRedpandaRoles", "Redpanda")
    ]  # fmt: skip
    assert "API 10001 v0 (3 requests, a key of Confluent)" in whole["warnings"][-1]
    rows_of_table = analyze(capture).exchanges.to_pylist()
    assert {(row["api_key"], row["api_name"]) for row in rows_of_table} == {
        (18, "ApiVersions"), (PING, "API 10001"), (APPEND, "API 32767"), (METADATA, "Metadata"), (UNKNOWN, "API 7777"),
        (ROLES, "DescribeRedpandaRoles"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--api", "10001,describe-redpanda-roles"), {"API 10001", "DescribeRedpandaRoles"}),
        (("--api", "API 10001"), {"API 10001"}),
        (("--filter", "api == 10001"), {"API 10001"}),
        (("--filter", 'api == "API 10001" or api == DescribeRedpandaRoles'), {"API 10001", "DescribeRedpandaRoles"}),
        (("--filter", 'api ~ "^API" and api_key != 7777'), {"API 10001", "API 32767"}),
        (("--filter", "api > 10000"), {"API 10001", "API 32767", "DescribeRedpandaRoles"}),
    ],
)
def test_filters_name_them(capture: Path, arguments: tuple[str, ...], names: set[str]) -> None:
    assert counts(report(capture, *arguments)) == {name: NAMED[name] for name in names}


def test_definitions_decode_them(capture: Path, definitions: Path) -> None:
    table = analyze(capture, definitions=definitions).exchanges
    rows = {(row["api_key"], row["api_version"]): row for row in table.to_pylist()}
    assert {key: row["api_name"] for key, row in rows.items() if key[0] > 18} == {
        (PING, 0): "VendorPing", (PING, 1): "VendorPing", (APPEND, APPEND_VERSION): "VendorAppend",
        (UNKNOWN, 0): "API 7777", (ROLES, 0): "DescribeRedpandaRoles",
    }  # fmt: skip
    for key in ((PING, 0), (PING, 1), (APPEND, APPEND_VERSION), (METADATA, 99)):
        assert (rows[key]["request_status"], rows[key]["response_status"]) == ("ok", "ok"), key
    assert rows[PING, 1]["throttle_time_ms"] == 40
    assert rows[METADATA, 99]["throttle_time_ms"] == 7
    assert rows[APPEND, APPEND_VERSION]["topics"] == ["orders"]


def test_the_report_by_definitions(capture: Path, definitions: Path) -> None:
    whole = report(capture, "--definitions", definitions)
    assert counts(whole) == {
        "ApiVersions": 1, "VendorPing": 6, "VendorAppend": 1, "Metadata": 1, "API 7777": 1, "DescribeRedpandaRoles": 1
    }  # fmt: skip
    assert [(row["api"], row["name"], row["error"], row["count"]) for row in whole["reports"]["errors"]] == [
        ("VendorPing", "line", "COORDINATOR_NOT_AVAILABLE", 2)
    ]
    throttled = {row["api"]: row["throttled"] for row in whole["reports"]["throttle"] if row["throttled"]}
    assert throttled == {"VendorPing": 6, "Metadata": 1}
    found = counts(report(capture, "--definitions", definitions, "--filter", "VendorPing.request.GroupId == 'line'"))
    assert found == {"VendorPing": 6}


def test_their_records(capture: Path, definitions: Path) -> None:
    """Those of topics, and those in a field of their own."""
    done = kafkatap("records", capture, "--definitions", definitions, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["topic"], row["partition"], row["offset"], row["value"]["data"]) for row in rows] == [
        ("orders", 4, 0, "hello"), ("orders", 4, 1, "world"), (None, None, 0, "hello"), (None, None, 1, "world")
    ]  # fmt: skip
    assert kafkatap("records", capture).out == ""


def test_show_prints_their_fields(capture: Path, definitions: Path) -> None:
    done = kafkatap("show", capture, "--definitions", definitions, "--api", "VendorPing", "--json")
    first = json.loads(done.out.splitlines()[0])
    assert (first["api_key"], first["api_name"], first["body"]["GroupId"]) == (PING, "VendorPing", "line")
    assert "API 10001 v0" in kafkatap("show", capture, "--api", "10001").out
    tree = kafkatap("show", capture, "--api", "10001", "--tree").out
    assert "ApiKey: 10001 (API 10001)" in tree
    assert "<- API 10001 is not in these definitions" in tree


@pytest.mark.parametrize("syn", [True, False])
@pytest.mark.parametrize("named", [False, True])
def test_splits_of_a_capture_make_the_same_report(tmp_path: Path, definitions: Path, named: bool, syn: bool) -> None:
    """The broker's list of APIs passes from split to split."""
    segments = vendor_segments(30)[0 if syn else 9 :]
    path = tmp_path / "vendor.pcap"
    path.write_bytes(pcap_bytes(encode(segments)))
    known = open_definitions(definitions) if named else None
    options = RunOptions(ReadOptions(definitions=known))
    wanted = one_engine([path], options, "version")
    for count in (2, 5, 12):
        assert_same(over_splits([path], count, options, "version"), wanted)


def test_a_version_between_those_that_are_known(tmp_path: Path, definitions: Path) -> None:
    tcp = TcpConversation(CLIENT, BROKER)
    tcp.open()
    tcp.client(request_frame(18, 0, 0, "app"))
    tcp.server(response_frame(0, api_versions(METADATA)))
    for number, version in ((1, 50), (2, 120)):
        tcp.client(request_frame(METADATA, version, number, "app", b"\0" * 3))
        tcp.server(response_frame(number, b"\0" * 9))
    path = tmp_path / "between.pcap"
    path.write_bytes(pcap_bytes(encode(tcp.segments)))
    rows = report(path, "--definitions", definitions)["reports"]["not_decoded"]
    newest = max(load_messages()[METADATA, 0].versions)
    assert [(row["api_version"], row["status"], row["known_from"], row["known_to"]) for row in rows] == [
        (50, "newer_version", 0, newest), (120, "newer_version", 0, 99)
    ]  # fmt: skip
