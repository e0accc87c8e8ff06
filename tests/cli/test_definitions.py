"""A newer Kafka on the wire: what is said without its definitions, and what --definitions reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.dissector.layouts import catalog
from tests.support.newer import write_definitions

from .running import kafkatap

FETCH_20, FETCH_21, PEEK, REFUSED, NONSENSE = (1, 20), (1, 21), (100, 0), (18, 99), (999, 2)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.newer import newer_capture

    path = tmp_path_factory.mktemp("newer") / "newer.pcap"
    path.write_bytes(newer_capture())
    return path


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_definitions(tmp_path_factory.mktemp("definitions"))


def exchanges(capture: Path, definitions: Path | None = None) -> dict[tuple[int, int], dict[str, object]]:
    try:
        rows = analyze(capture, definitions=definitions).exchanges.to_pylist()
    finally:
        catalog.forget_names()
    return {(row["api_key"], row["api_version"]): row for row in rows}


def test_what_is_newer_is_paired_by_its_header(capture: Path) -> None:
    rows = exchanges(capture)
    assert {pair: (row["request_status"], row["response_status"]) for pair, row in rows.items()} == {
        REFUSED: ("unknown_version", "ok"),
        FETCH_20: ("unknown_version", "unknown_version"),
        FETCH_21: ("unknown_version", "unknown_version"),
        PEEK: ("unknown_api", "unknown_api"),
        NONSENSE: ("unknown_api", "unknown_api"),
    }
    assert {row["client_id"] for row in rows.values()} == {"newcomer"}
    assert [row["correlation_id"] for row in rows.values()] == [1, 2, 3, 4, 5]
    assert {row["outcome"] for row in rows.values()} == {"answered"}
    assert all(3_000_000 < row["total_ns"] < 4_000_000 for row in rows.values())
    assert rows[PEEK]["api_name"] == "API 100"
    assert rows[REFUSED]["errors"] == [{"code": 35, "count": 1}]
    assert rows[FETCH_21]["errors"] == []


def test_definitions_decode_it(capture: Path, definitions: Path) -> None:
    rows = exchanges(capture, definitions)
    assert {pair: (row["request_status"], row["response_status"]) for pair, row in rows.items()} == {
        REFUSED: ("unknown_version", "ok"),
        FETCH_20: ("ok", "ok"),
        FETCH_21: ("ok", "ok"),
        PEEK: ("ok", "ok"),
        NONSENSE: ("unknown_api", "unknown_api"),
    }
    for pair in (FETCH_20, FETCH_21):
        row = rows[pair]
        assert (row["max_wait_ms"], row["min_bytes"], row["throttle_time_ms"]) == (500, 1, 40)
        assert row["errors"] == [{"code": 6, "count": 1}]
        assert row["topics"] == ["AAECAwQFBgcICQoLDA0ODw"]
    assert (rows[PEEK]["api_name"], rows[PEEK]["errors"]) == ("QueuePeek", [{"code": 15, "count": 1}])


def test_the_report_says_what_is_newer(capture: Path) -> None:
    done = kafkatap("report", capture, "--json")
    assert done.code == 0
    whole = json.loads(done.out)
    assert whole["warnings"] == [
        "Fetch v20 (1 request, known up to v18), Fetch v21 (1 request, known up to v18) and ApiVersions v99 "
        "(1 request, known up to v5) are newer than these definitions. Requests are matched with responses, but bodies "
        "are not decoded. Load their definitions with --definitions PATH.",
        "API 100 v0 (1 request) and API 999 v2 (1 request) are not in these definitions. Requests are matched with "
        "responses, but bodies are not decoded. Load their definitions with --definitions PATH.",
    ]
    assert [tuple(row.values()) for row in whole["reports"]["not_decoded"]] == [
        ("Fetch", 1, 20, 1, "newer_version", 0, 18, None),
        ("Fetch", 1, 21, 1, "newer_version", 0, 18, None),
        ("ApiVersions", 18, 99, 1, "newer_version", 0, 5, None),
        ("API 100", 100, 0, 1, "unknown_api", None, None, None),
        ("API 999", 999, 2, 1, "unknown_api", None, None, None),
    ]


def test_the_report_with_definitions(capture: Path, definitions: Path) -> None:
    done = kafkatap("report", capture, "--definitions", definitions, "--api", "queuepeek", "--json")
    whole = json.loads(done.out)
    assert (done.code, whole["warnings"]) == (0, [])
    assert [(row["api"], row["count"]) for row in whole["reports"]["latency"]] == [("QueuePeek", 1)]
    assert [(row["name"], row["error"]) for row in whole["reports"]["errors"]] == [
        ("line", "COORDINATOR_NOT_AVAILABLE")
    ]
    done = kafkatap("report", capture, "--definitions", definitions)
    assert "! ApiVersions v99 (1 request) is newer than these definitions (up to v5)." in done.out
    assert "! API 999 v2 (1 request) is not in these definitions." in done.out
    assert "Not decoded" not in done.out


def test_a_table_where_sentences_would_be_too_long(capture: Path) -> None:
    assert "\nNot decoded\n" in kafkatap("report", capture).out


def test_a_new_name_is_unknown_without_definitions(capture: Path) -> None:
    done = kafkatap("report", capture, "--api", "QueuePeek")
    assert (done.code, done.err) == (2, "kafkatap: no API is called 'QueuePeek'\n")


def test_folders_that_cannot_be_used(capture: Path, definitions: Path, tmp_path: Path) -> None:
    missing, empty, file = tmp_path / "missing", tmp_path / "empty", tmp_path / "file.json"
    empty.mkdir()
    file.write_text("{}")
    bad = write_definitions(tmp_path / "bad")
    (bad / "FetchRequest.json").write_text("{")
    for folder, reason in (
        (missing, f"{missing}: no such file or directory"),
        (empty, f"{empty}: no Kafka message definitions (*.json) in it"),
        (file, f"{file}: there is no 'type'"),
        (bad, f"{bad}: FetchRequest.json: "),
    ):
        for command in (("report", capture), ("apis",)):
            done = kafkatap(*command, "--definitions", folder)
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
            assert done.err.startswith(f"kafkatap: {reason}")
