"""Filters on what is in records: `records` and `show` find what a look at each record finds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.engine.selection import Selection
from kafkatap.reports.expressions import Condition, ExpressionError, parse_expression
from tests.cli.running import kafkatap
from tests.support import record_talk
from tests.support.captures import pcap_bytes
from tests.support.records import GZIP, Record, batch
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk

Row = dict[str, Any]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_talk.write_talk(tmp_path_factory.mktemp("records") / "all.pcap")


def headers(row: Row, name: str) -> list[bytes | None]:
    return [header["value"] for header in row["headers"] if header["key"] == name]


def final_offset(row: Row) -> int:
    """The base offset of all produced batches is 100. Of message sets, and without a response, it is not known."""
    is_known = row["direction"] == "produce" and row["magic"] == 2 and row["topic"] != "orders"
    offset: int = row["offset"]
    return offset + 100 * is_known


#: A filter, and the same of a row of the table `records` in Python.
FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ('record.key == "user-1"', lambda row: row["key"] == b"user-1"),
    ("record.key == 0x0001", lambda row: row["key"] == b"\0\1"),
    ("record.key in (gone, 0x00_01)", lambda row: row["key"] in (b"gone", b"\0\1")),
    ("record.key != gone", lambda row: row["key"] != b"gone"),
    ("record.key", lambda row: row["key"] is not None),
    ("record.value == null", lambda row: row["value"] is None),
    ('record.value contains "Jörg"', lambda row: "Jörg".encode() in (row["value"] or b"")),
    ("record.value contains 0x1b5b", lambda row: b"\x1b[" in (row["value"] or b"")),
    ('record.value ~ "J[ö]r."', lambda row: "Jör" in (row["value"] or b"").decode("utf-8", "replace")),
    ('record.value matches "^plain"', lambda row: (row["value"] or b"").startswith(b"plain")),
    ("record.value ~ '^\\x00\\x01'", lambda row: (row["value"] or b"").startswith(b"\0\1")),
    ("record.header.trace == 0x0001ff", lambda row: b"\0\1\xff" in headers(row, "trace")),
    ('record.header."trace"', lambda row: b"\0\1\xff" in headers(row, "trace")),
    ("record.header.empty", lambda row: False),
    ("record.header.Trace", lambda row: False),
    ("kafka.message_key eq gone", lambda row: row["key"] == b"gone"),
    ('not (record.key == gone or record.value ~ "^plain")',
     lambda row: not (row["key"] == b"gone" or (row["value"] or b"").startswith(b"plain"))),
    ("api == Fetch and record.key == gone", lambda row: row["direction"] == "fetch" and row["key"] == b"gone"),
    ('api == Metadata or record.key == "user-1"', lambda row: row["key"] == b"user-1"),
    ("record.key == gone and packet >= 100", lambda row: row["key"] == b"gone" and row["packet"] >= 100),
]  # fmt: skip


@pytest.mark.parametrize(("text", "holds"), FILTERS, ids=[text for text, _ in FILTERS])
def test_records_that_match(capture: Path, text: str, holds: Callable[[Row], bool]) -> None:
    rows = analyze(capture).records.to_pylist()
    wanted = [row for row in rows if row["status"] == "ok" and holds(row)]
    done = kafkatap("records", "--json", "--values", "base64", "-f", text, capture)
    found = [json.loads(line) for line in done.out.splitlines()]
    places = [(row["topic"], row["partition"], row["offset"], row["packet"]) for row in found]
    assert places == [(row["topic"], row["partition"], final_offset(row), row["packet"]) for row in wanted]
    assert [len(row["headers"]) for row in found] == [len(row["headers"]) for row in wanted]
    shown = kafkatap("show", "--json", "--brief", "-f", text, capture)
    keys = {json.loads(line)["exchange"] for line in shown.out.splitlines()}
    metadata = {str(row["exchange"]) for row in analyze(capture).exchanges.to_pylist() if row["api_name"] == "Metadata"}
    assert keys == {str(row["exchange"]) for row in wanted} | (metadata if "Metadata" in text else set())


def test_no_value_is_printed_for_a_filter_alone(capture: Path, tmp_path: Path) -> None:
    text = "record.value contains name and record.key == 'user-1'"
    done = kafkatap("records", "-f", text, "-n", "2", "--utc", capture)
    assert done.out.splitlines()[0] == (
        "     4  00:00:00.000  produce  writer  orders-none-3@+0  key=(6 bytes)  value=(26 bytes)"
    )
    assert "unless --values auto says so" in done.err
    for options in (("--json",), ("-o", tmp_path / "records.csv")):
        assert "rg" not in kafkatap("records", "-f", text, *options, capture).out
    assert "rg" not in (tmp_path / "records.csv").read_text()
    assert "Jörg" in kafkatap("records", "-f", text, "--values", "auto", capture).out
    assert "user-1" not in kafkatap("show", "--tree", "-f", text, capture).out
    assert "user-1" in kafkatap("show", "--tree", "--records", "-f", text, capture).out


def test_what_could_not_be_compared_is_said(tmp_path: Path) -> None:
    talk = KafkaTalk(client_id="writer")
    talk.tcp.open()
    record_talk.fetch(talk, 0, 13, batch([Record(b"k", b"v")]), batch(payload=b"no gzip", count=1, attributes=GZIP))
    talk.tcp.close()
    path = tmp_path / "corrupt.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments), nanoseconds=True))
    records = kafkatap("records", "-f", "record.key == k", path)
    assert (records.code, len(records.out.splitlines())) == (1, 1)
    assert "kafkatap: not all could be read and compared: 1 batch corrupt" in records.err
    shown = kafkatap("show", "-f", "record.key != k", path)
    assert (shown.code, shown.out) == (1, "")
    assert "kafkatap: not all records could be read and compared: 1 batch corrupt" in shown.err


def test_numbers_and_the_last_ones(capture: Path) -> None:
    text = ("--only", "responses", "-f", "record.key == gone")
    ids = [line.split()[0] for line in kafkatap("show", *text, capture).out.splitlines()]
    assert [line.split()[0] for line in kafkatap("show", "-n", "3", *text, capture).out.splitlines()] == ids[:4]
    assert [line.split()[0] for line in kafkatap("show", "--tail", "2", *text, capture).out.splitlines()][1:] == ids[
        -2:
    ]


def test_a_pipe_is_read_once(capture: Path) -> None:
    piped = kafkatap("records", "-f", "record.key == gone", "-", stdin=capture.read_bytes())
    from_file = kafkatap("records", "-f", "record.key == gone", capture)
    # In a pipe, records come before the response that has their base offset.
    assert [re.sub(r"@\+?1?0?", "@", line) for line in piped.out.splitlines()] == [
        re.sub(r"@\+?1?0?", "@", line) for line in from_file.out.splitlines()
    ]
    refused = kafkatap("records", "-f", "record.key == gone and api == Fetch", "-", stdin=capture.read_bytes())
    assert (refused.code, "--topic, --from, --to and record.* alone" in refused.err) == (2, True)
    for words in (("show", "-"), ("show", "--stream", capture)):
        refused = kafkatap(*words, "-f", "record.key == gone", stdin=capture.read_bytes())
        assert (refused.code, "record.*: `kafkatap show` looks into the records of files alone" in refused.err) == (
            2,
            True,
        )


@pytest.mark.parametrize("words", [("report",), ("extract", "-o", "none.pcapng")])
def test_other_commands_name_those_that_can(capture: Path, words: tuple[str, ...]) -> None:
    done = kafkatap(*words, "-f", "record.key == gone", capture)
    assert done.code == 2
    assert done.err == "kafkatap: record.*: only `kafkatap records` and `kafkatap show` look into records\n"
    with pytest.raises(ValueError, match="kafkatap records"):
        analyze(capture, filter="record.key == gone")


@pytest.mark.parametrize(("text", "reason"), [
    ("record.key < a", "< is for numbers, record.key is bytes"),
    ("record.key == 0x123", "0x123 is no whole number of bytes"),
    ("record.value ~ '(a'", "this regular expression is wrong"),
    ("record.offset == 1", "there is no name 'record.offset'"),
])  # fmt: skip
def test_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(reason)):
        parse_expression(text)


def test_at_most_six() -> None:
    text = " or ".join(f"record.key == k{number}" for number in range(7))
    with pytest.raises(ExpressionError, match="more than 6 comparisons of records"):
        Condition(parse_expression(text))
    assert Selection.of(filter=text.rpartition(" or ")[0], reads_records=True).is_of_records_alone


@pytest.mark.parametrize("name", ["apache-4.3", "apache-2.8", "live-4.4"])
def test_offsets_of_produced_records_are_those_of_the_broker(name: str, samples: Path) -> None:
    """Where its response was captured: the base offset of that topic and partition. Fetched records are unchanged."""
    path = samples / f"{name}.pcap.zst"
    analysis = analyze(path)
    api = {row["exchange"]: row["api_name"] for row in analysis.exchanges.to_pylist()}
    bases = {
        (row["exchange"], row["topic"], row["partition"]): row["offset"]
        for row in analysis.results.to_pylist()
        if api[row["exchange"]] == "Produce" and row["offset"] is not None and row["offset"] >= 0
    }
    done = kafkatap("records", "--json", "-f", "record.value != nothing", path)
    found = [json.loads(line) for line in done.out.splitlines()]
    rows = [row for row in analysis.records.to_pylist() if row["status"] == "ok"]
    moved = 0
    for row, its in zip(rows, found, strict=True):
        base = bases.get((row["exchange"], row["topic"], row["partition"]))
        is_final = row["direction"] == "produce" and row["magic"] == 2 and base is not None
        moved += is_final
        assert its["offset"] == row["offset"] + (base or 0) * is_final
        assert its["offset_is_relative"] == (row["direction"] == "produce" and not is_final)
    assert moved > 10
