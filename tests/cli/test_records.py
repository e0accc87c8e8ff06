"""`kafkatap records` and `analyze(...).records` as a user meets them."""

from __future__ import annotations

import base64
import csv
import json
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.reports.table_columns import RECORDS
from kafkatap.reports.tables import TABLES, arrow_schema
from tests.support import record_talk
from tests.support.captures import pcap_bytes
from tests.support.records import CODECS, CONTROL, GZIP, TRANSACTIONAL, Record, batch, compressed, message, message_set
from tests.support.tcp import encode
from tests.wire.kafkatalk import FETCH, KafkaTalk

from .running import KAFKATAP, ROOT, Done, environment, kafkatap

GOLDEN = Path(__file__).with_name("records.txt")
DAMAGE = "kafkatap: 1 batch with a wrong CRC (marked)\nkafkatap: not all could be read: 1 batch corrupt\n"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_talk.write_talk(tmp_path_factory.mktemp("records") / "all.pcap")


def run(*arguments: str | Path, **options: Any) -> Done:
    return kafkatap("records", *arguments, **options)


def rows(*arguments: str | Path, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--json", *arguments, **options).out.splitlines()]


def test_golden_lines(capture: Path) -> None:
    """Every magic and codec, control records, a wrong CRC, what cannot be read; the file is written anew by hand."""
    done = run(capture, "--utc")
    assert (done.code, done.err) == (1, DAMAGE)
    assert done.out == GOLDEN.read_text(encoding="utf-8")


def test_json_tells_all(capture: Path) -> None:
    told = rows(capture)
    kinds = Counter((row["magic"], row["codec"], row["direction"]) for row in told if row["status"] == "ok")
    every = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS[: 5 if magic == 2 else 4]]
    assert {(m, c) for m, c, _ in kinds} == set(every)
    assert min(kinds.values()) == 4
    first = told[0]
    assert (first["topic"], first["topic_id"], first["partition"], first["batch"]) == ("orders-none", None, 3, 0)
    assert first["key"] == {"form": "utf8", "data": "user-1", "bytes": 6, "cut": False}
    assert first["value"]["form"] == "json"
    assert first["value"]["data"] == {"id": 1, "name": "Jörg"}
    assert first["timestamp"] is None
    assert told[2]["value"]["form"] == "base64"
    assert base64.b64decode(told[2]["value"]["data"]) == bytes(range(40))
    assert told[3]["value"] is None
    fetched = [row for row in told if row["topic_id"]]
    assert {row["topic"] for row in fetched} == {"orders", "EBESExQVFhcYGRobHB0eHw"}
    new = [row for row in told if row["magic"] == 2 and row["direction"] == "produce"]
    assert {(row["producer_id"], row["producer_epoch"]) for row in new} == {(1001, 2), (None, None)}
    assert [row["sequence"] for row in new[:4]] == [30, 31, 32, 33]
    assert new[0]["timestamp"] == "2024-01-01T00:00:00.000000000Z"
    assert new[1]["headers"] == [
        {"key": "trace", "value": {"form": "base64", "data": "AAH/", "bytes": 3, "cut": False}},
        {"key": "empty", "value": None},
    ]
    (control,) = (row for row in told if row["is_control"])
    assert (control["control_type"], control["is_transactional"]) == ("commit", True)
    assert [row["offset"] for row in told if row["crc_ok"] is False] == [112]
    (unread,) = (row for row in told if row["status"] != "ok")
    assert (unread["status"], unread["offset"], unread["value"], unread["crc_ok"]) == ("corrupt", 113, None, True)
    assert [row["offset"] for row in told].index(113) < [row["offset"] for row in told].index(118)


def test_json_is_as_its_schema_says(capture: Path) -> None:
    schema = json.loads((ROOT / "docs" / "records.schema.json").read_text())
    assert schema["required"] == list(schema["properties"]) == [column.name for column in RECORDS]
    for form in ("auto", "none", "hex"):
        for row in rows(capture, "--values", form, "--max-bytes", "20"):
            check(row, schema, schema)


def check(value: Any, wanted: dict[str, Any], schema: dict[str, Any]) -> None:
    """What of JSON Schema docs/records.schema.json uses."""
    if "$ref" in wanted:
        wanted = schema["$defs"][wanted["$ref"].rpartition("/")[2]]
    if "anyOf" in wanted:
        check(value, {"type": "null"} if value is None else wanted["anyOf"][0], schema)
        return
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
    allowed = wanted.get("type", [])
    allowed = allowed if isinstance(allowed, list) else [allowed]
    assert not allowed or type(value) in {kinds[name] for name in allowed}, (value, wanted)
    assert value in wanted.get("enum", [value])
    if "properties" in wanted:
        assert value.keys() == set(wanted["required"]) == wanted["properties"].keys()
        for name, inner in value.items():
            check(inner, wanted["properties"][name], schema)
    for inner in value if "items" in wanted else ():
        check(inner, wanted["items"], schema)


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("auto", {"form": "utf8", "data": "plain text, \x1b[31mnot red\x1b[0m"}),
        ("utf8", {"form": "utf8", "data": "plain text, \x1b[31mnot red\x1b[0m"}),
        ("hex", {"form": "hex", "data": b"plain text, \x1b[31mnot red\x1b[0m".hex()}),
        ("none", {"form": "none", "data": None}),
    ],
)
def test_forms_of_values(capture: Path, form: str, wanted: dict[str, Any]) -> None:
    value = rows(capture, "--values", form, "-n", "2")[1]["value"]
    if form == "auto":  # escapes are no text
        wanted = {"form": "base64", "data": base64.b64encode(b"plain text, \x1b[31mnot red\x1b[0m").decode()}
    assert value == {**wanted, "bytes": 28, "cut": False}


def test_values_are_cut_and_it_is_said(capture: Path) -> None:
    values = [row["value"] for row in rows(capture, "--max-bytes", "24", "-n", "4")]
    assert values[0] == {"form": "utf8", "data": '{"id": 1, "name": "Jörg', "bytes": 26, "cut": True}
    # A character that is cut in two is left out.
    assert rows(capture, "--max-bytes", "21", "-n", "1")[0]["value"]["data"] == '{"id": 1, "name": "J'
    assert (values[2]["bytes"], values[2]["cut"], len(base64.b64decode(values[2]["data"]))) == (40, True, 24)
    line = run(capture, "--max-bytes", "4", "-n", "1").out
    assert 'key="user"… (6 bytes)  value="{"id"… (26 bytes)' in line


def test_nothing_of_the_wire_acts_on_the_terminal(capture: Path) -> None:
    for form in ("auto", "utf8", "json"):
        out = run(capture, "--values", form).out
        assert all(c == "\n" or c.isprintable() for c in out)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["-n", "0"], 0),
        (["-n", "7"], 7),
        (["--topic", "orders-zstd"], 4),
        (["--topic", "orders-*", "--api", "Produce"], 52),
        (["--topic", "EBES*"], 1),
        (["--client", "nobody"], 0),
        (["--client", "writ*", "--api", "Produce"], 53),
        (["--broker", ":9092", "--api", "Fetch"], 60),
        (["--filter", "api == Produce and acks == 0"], 1),
        (["--from", "+1h"], 0),
    ],
)
def test_what_is_asked_for(capture: Path, arguments: list[str], count: int) -> None:
    assert len(rows(capture, *arguments)) == count


def test_a_window_of_time(capture: Path) -> None:
    whole = rows(capture)
    at = whole[60]["message_first"]
    before, after = rows(capture, "--to", at), rows(capture, "--from", at)
    assert before + after == whole
    assert 0 < len(before) <= 60


def test_parquet_is_the_table(capture: Path, tmp_path: Path) -> None:
    done = run(capture, "-o", tmp_path / "one.parquet")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"kafkatap: wrote 113 records to {tmp_path}/one.parquet\n{DAMAGE}"
    table = analyze(capture).records
    assert table.schema == arrow_schema(TABLES["records"])
    assert pq.read_table(tmp_path / "one.parquet").equals(table)
    assert [p.name for p in tmp_path.iterdir()] == ["one.parquet"]


def test_a_file_has_the_lines_of_standard_output(capture: Path, tmp_path: Path) -> None:
    for options in ([], ["--json"], ["--values", "hex", "-n", "3"]):
        printed, done = run(capture, *options), run(capture, *options, "-o", tmp_path / "records.txt", "--overwrite")
        assert (done.code, done.out) == (printed.code, "")
        assert (tmp_path / "records.txt").read_text() == printed.out != ""
        assert done.err.partition("\n")[2] == printed.err
        assert run(capture, *options, "-o", "-").out == printed.out


def test_a_file_is_what_its_name_says(capture: Path, tmp_path: Path) -> None:
    for name in ("records.json", "records.jsonl"):
        assert run(capture, "-o", tmp_path / name).code == 1
        assert (tmp_path / name).read_text() == run(capture, "--json").out
    assert run(capture, "-o", tmp_path / "records.csv").code == 1
    with (tmp_path / "records.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    told = rows(capture)
    assert len(found) == len(told) == 113
    for row, wanted in zip(found, told, strict=True):
        assert row["offset"] == str("" if wanted["offset"] is None else wanted["offset"])
        assert (row["topic"], row["status"]) == (wanted["topic"], wanted["status"])
        assert row["is_control"] == str(wanted["is_control"]).lower()
        assert row["value_form"] == (wanted["value"] or {"form": ""})["form"]
        if row["value_form"] == "json":
            assert json.loads(row["value"]) == wanted["value"]["data"]
    for name in ("records.tsv", "records.csv.gz", "records.xlsx"):
        done = run(capture, "-o", tmp_path / name)
        assert (done.code, (tmp_path / name).exists()) == (2, False)
        assert f"records are not written as .{name.rpartition('.')[2]}" in done.err
    assert run(capture, "--json", "-o", tmp_path / "x.csv").code == 2


def test_all_is_no_limit(capture: Path) -> None:
    assert run(capture, "-n", "all").out == run(capture).out
    assert run(capture, "-n", "0").code == 2


def test_no_file_is_written_if_nothing_matches(capture: Path, tmp_path: Path) -> None:
    for name in ("records.txt", "records.parquet"):
        done = run(capture, "--topic", "nowhere", "-o", tmp_path / name)
        assert (done.code, list(tmp_path.iterdir())) == (2, [])
        assert "no record matches --topic nowhere: nothing is written" in done.err


def test_the_library_gives_it_piece_by_piece_too(capture: Path) -> None:
    analysis = analyze(capture)
    assert pa.concat_tables(analysis.record_tables()).equals(analysis.records)
    assert set(analysis.records["exchange"].to_pylist()) <= set(analysis.exchanges["exchange"].to_pylist())
    value = analysis.records.slice(0, 1).to_pylist()[0]["value"]
    assert value == record_talk.RECORDS[0].value
    matching = analyze(capture, filter="api == Produce and acks == 0")
    assert matching.records.num_rows == 1
    assert pa.concat_tables(matching.record_tables()).equals(matching.records)
    assert pc.sum(pc.equal(analysis.records["crc_ok"], False)).as_py() == 1


def test_standard_input_is_read_once(capture: Path) -> None:
    whole = rows(capture)
    # The topic is named in the same block as its records.
    assert rows("-", stdin=capture.read_bytes()) == whole
    assert len(rows("-", "--topic", "orders-zstd", stdin=capture.read_bytes())) == 4
    until = whole[60]["message_first"]
    assert rows("-", "--to", until, stdin=capture.read_bytes()) == rows(capture, "--to", until)
    refused = run("-", "--client", "x", stdin=capture.read_bytes())
    assert (refused.code, refused.out) == (2, "")
    assert "piped in" in refused.err


def test_what_does_not_work(capture: Path, tmp_path: Path, samples: Path) -> None:
    (tmp_path / "no.pcap").write_bytes(b"no capture at all, and long enough to look at")
    assert run(tmp_path / "no.pcap").code == 2
    assert run(tmp_path / "missing.pcap").code == 2
    assert run(capture, "-o", tmp_path).code == 2
    assert run(capture, "-o", capture).code == 2
    assert run(capture, "-o", tmp_path / "no" / "x.parquet").code == 2
    assert run(capture, "--json", "-o", tmp_path / "x.parquet").code == 2
    assert run(capture, "--filter", "api ==").code == 2
    nothing = run(capture, "--client", "nobody")
    assert (nothing.code, nothing.err) == (0, "kafkatap: no record matches --client nobody\n")


def test_a_reader_that_goes_away(samples: Path) -> None:
    with subprocess.Popen(
        [*KAFKATAP, "records", str(samples / "apache-4.3.pcap.zst")], cwd=ROOT, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_damage_within_message_sets_is_reported(tmp_path: Path) -> None:
    """One message cannot be decoded, one has a wrong CRC, and one set ends in the middle of a message: what the offsets
    of the others are, its last one would say."""
    record = Record(b"k", b"v")
    bad = bytearray(message(record, 1, offset=1))
    bad[26:30] = b"\0\0\1\0"
    inner = bytes(bad) + message(record, 1, offset=2, crc=5)
    cut = message(record, 1) + message(record, 1, offset=1)[:-3]
    talk = KafkaTalk(client_id="reader")
    talk.tcp.open()
    for number, content in enumerate((inner, cut)):
        field = message_set((), 1, GZIP, payload=compressed(content, GZIP), wrapper_offset=12)
        record_talk.fetch(talk, number, 2, field, topic="old")
    talk.tcp.close()
    (tmp_path / "old.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    done = run(tmp_path / "old.pcap")
    assert [line.partition("old-0")[2] for line in done.out.splitlines()] == [
        "@11  time=1970-01-01 00:00:00.000  wrong CRC  this message of batch 0 cannot be decoded: malformed",
        '@12  time=1970-01-01 00:00:00.000  wrong CRC  key="k"  value="v"',
        '@?  time=1970-01-01 00:00:00.000  key="k"  value="v"',
        "@?  batch 0 cannot be decoded from here on: malformed",
    ]
    assert done.err == (
        "kafkatap: 2 records of compressed sets with a wrong CRC (marked)\n"
        "kafkatap: not all could be read: 2 batches malformed\n"
    )
    assert done.code == 1


def test_records_that_consumers_drop_are_marked(tmp_path: Path) -> None:
    """Producer 7 aborts twice, the second marker comes later, and commits between; a consumer fetches within a batch.
    No list of aborted transactions, READ_UNCOMMITTED, and a partition of a fetch session say nothing."""

    def sent(offset: int, producer: int, count: int = 1) -> bytes:
        return batch([Record(b"k")] * count, offset=offset, producer=(producer, 0, 0), attributes=TRANSACTIONAL)

    def marker(offset: int, producer: int, kind: int) -> bytes:
        key = struct.pack(">hh", 0, kind)
        return batch([Record(key)], offset=offset, producer=(producer, 0, -1), attributes=TRANSACTIONAL | CONTROL)

    field = sent(3, 7, 3) + sent(6, 8) + marker(7, 7, 0) + sent(8, 7) + marker(9, 7, 1) + sent(10, 7)
    field += batch([Record(b"k")], offset=11)
    aborted = [{"ProducerId": 7, "FirstOffset": first} for first in (10, 3)]
    talk = KafkaTalk(client_id="reader")
    talk.tcp.open()
    for number, (level, found, fetched) in enumerate([(1, aborted, [5]), (1, None, [5]), (0, [], [5]), (1, [], [])]):
        places = [{"Partition": 0, "FetchOffset": offset} for offset in fetched]
        asked = talk.request(FETCH, 11, number, IsolationLevel=level, Topics=[{"Topic": "t", "Partitions": places}])
        answer = {"PartitionIndex": 0, "Records": field, "AbortedTransactions": found}
        talk.respond(asked, Responses=[{"Topic": "t", "Partitions": [answer]}])
    talk.tcp.close()
    (tmp_path / "dropped.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    found = analyze(tmp_path / "dropped.pcap").records
    names = ("offset", "is_aborted", "is_before_fetch_offset")
    assert [tuple(row[name] for name in names) for row in rows(tmp_path / "dropped.pcap")] == list(
        zip(*(found[name].to_pylist() for name in names), strict=True)
    )
    offsets = [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert found["offset"].to_pylist() == offsets * 4
    is_aborted = [offset in (3, 4, 5, 10) for offset in offsets]
    assert found["is_aborted"].to_pylist() == [*is_aborted, *[None] * 18, *[False] * 9]
    assert found["is_before_fetch_offset"].to_pylist() == [*[offset < 5 for offset in offsets] * 3, *[None] * 9]
    lines = run(tmp_path / "dropped.pcap").out.splitlines()
    assert "  aborted  before the fetch offset  key=" in lines[0]
    assert [line.count("aborted") for line in lines[:9]] == [int(is_it) for is_it in is_aborted]


def test_packets_cut_short_give_what_is_there(capture: Path, tmp_path: Path) -> None:
    """A small snap length: records before the cut are read, the rest of their batch is not."""
    from tests.support.captures import Packet, pcap_bytes, read_capture

    packets = [Packet(p.time_ns, p.data[:230], len(p.data)) for p in read_capture(capture).packets]
    (tmp_path / "cut.pcap").write_bytes(pcap_bytes(packets, nanoseconds=True))
    told = rows(tmp_path / "cut.pcap")
    kinds = Counter(row["status"] for row in told)
    assert kinds["not_captured"] > 5
    assert kinds["ok"] > 10
    assert kinds.keys() <= {"ok", "not_captured", "corrupt", "malformed"}
    uncaptured = [row for row in told if row["status"] == "not_captured"]
    assert {row["crc_ok"] for row in uncaptured} == {None}
