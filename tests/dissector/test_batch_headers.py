"""Headers of record batches: one number of records for a field, whoever reads it.

Each case is a field and the number of records in it by its headers. All are produced and fetched in one capture. The
table of results, the facts, the report section `topics`, `kafkatap show` and `kafkatap records` agree on it.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.__main__ import main
from kafkatap.dissector import batch_headers as h
from kafkatap.dissector.batch_headers import batch_header, count_records, records_in_field
from kafkatap.dissector.programs.fact_kinds import BATCH, FETCHED_BATCH
from kafkatap.engine.engine import Engine
from kafkatap.reports.batch import Batch
from kafkatap.run import Run
from tests.support import records as made
from tests.support.captures import pcap_bytes, read_capture, write_capture
from tests.support.damage import cut, numbered, packets_of
from tests.support.record_talk import fetch, produce
from tests.support.records import Record, batch, message, message_set
from tests.support.section_runs import rows, section_tables
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk

T = 1_704_067_200_000
SOME = tuple(Record(b"k", b"value-%d" % n * 10, T + n) for n in range(4))
PRODUCED, FETCHED = "produce", "fetch"


def changed(field: bytes, at: int, value: bytes) -> bytes:
    return field[:at] + value + field[at + len(value) :]


def with_magic(field: bytes, magic: int) -> bytes:
    return changed(field, 16, bytes((magic,)))


def with_size(field: bytes, size: int) -> bytes:
    return changed(field, 8, struct.pack(">i", size))


#: The records of a field, -1 if its headers do not say.
FIELDS: dict[str, tuple[bytes, int]] = {
    "batches": (batch(SOME) + batch(SOME[:1]), 5),
    "no batch": (b"", 0),
    "no records": (batch([]), 0),
    "-1 records": (batch(SOME[:1], count=-1), 0),
    "-2147483648 records": (batch(SOME[:1], count=-(2**31)) + batch(SOME), 4),
    "cut off": (batch(SOME) + batch(SOME)[:-1], 4),
    "cut off in a header": (batch(SOME) + batch(SOME)[:60], 4),
    "cut off before a magic": (batch(SOME) + batch(SOME)[:16], 4),
    "a marker": (batch(SOME) + batch(SOME[:1], attributes=made.CONTROL | made.TRANSACTIONAL) + batch(SOME), 8),
    "unknown magic": (with_magic(batch(SOME), 3) + batch(SOME[:2]), 2),
    "negative magic": (with_magic(batch(SOME), 0x80) + with_magic(batch(SOME), 0xFF) + batch(SOME[:2]), 2),
    "unknown magic, too long": (batch(SOME) + with_magic(with_size(batch(SOME), 2**31 - 1), 3), 4),
    "too short for magic 2": (batch(SOME) + with_size(batch(SOME), 48) + batch(SOME), 4),
    "too short for magic 1": (message(SOME[0], 1) + with_size(message(SOME[1], 1), 21), 1),
    "too short for magic 0": (message(SOME[0], 0) + with_size(message(SOME[1], 0), 13), 1),
    "size 0": (batch(SOME) + with_size(batch(SOME), 0), 4),
    "size -1": (batch(SOME) + with_size(batch(SOME), -1), 4),
    "messages of magic 0": (message_set(SOME, 0), 4),
    "messages of magic 1": (message_set(SOME, 1), 4),
    "messages cut off": (message_set(SOME, 1)[:-1], 3),
    "messages cut off in a header": (message_set(SOME[:2], 1) + message(SOME[0], 1)[:17], 2),
    "messages, then batches": (message_set(SOME, 0) + message_set(SOME, 1) + batch(SOME), 12),
    "compressed messages": (message_set(SOME, 1, made.GZIP), -1),
    "compressed messages, one cut off": (message_set(SOME, 1) + message_set(SOME, 1, made.GZIP)[:-1], 4),
}  # fmt: skip


def expected() -> dict[tuple[str, str], int]:
    """The records of each case, by its topic and direction."""
    return {(name, side): count for name, (_, count) in FIELDS.items() for side in (PRODUCED, FETCHED)}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    talk = KafkaTalk()
    talk.tcp.open()
    for number, (name, (field, _)) in enumerate(FIELDS.items()):
        produce(talk, 2 * number, 8, field, topic=name)
        fetch(talk, 2 * number + 1, 5, field, topic=name)
    talk.tcp.close()
    return write_capture(tmp_path_factory.mktemp("headers") / "fields.pcap", pcap_bytes(encode(talk.segments)))


def batches_of(path: Path) -> list[tuple[Engine, Batch]]:
    engine = Engine(all_results=True, facts=(BATCH, FETCHED_BATCH))
    return [(engine, batch) for batch in Run([str(path)], engine).batches() if isinstance(batch, Batch)]


def in_results(path: Path) -> dict[tuple[str, str], int]:
    """By the table of results."""
    found = {}
    for engine, each in batches_of(path):
        api_keys = dict(zip(each.exchanges["exchange"].tolist(), each.exchanges["api_key"].tolist(), strict=True))
        for row in each.results:
            topic = engine.strings[int(row["topic"])] or b""
            found[topic.decode(), (PRODUCED, FETCHED)[api_keys[int(row["exchange"])]]] = int(row["records"])
    return found


def in_facts(path: Path) -> dict[tuple[str, str], int]:
    """By facts: a row of -1 does not say."""
    found: Counter[tuple[str, str]] = Counter()
    for engine, each in batches_of(path):
        assert each.facts is not None
        for row in each.facts[np.isin(each.facts["kind"], (BATCH, FETCHED_BATCH))]:
            topic = engine.strings[int(row["topic"])] or b""
            found[topic.decode(), PRODUCED if row["kind"] == BATCH else FETCHED] += int(row["v1"])
    return found


def shown(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], int]:
    """By `kafkatap show`: null does not say."""
    capsys.readouterr()
    assert main(["show", "--json", str(path)]) == 0
    found = {}
    for line in capsys.readouterr().out.splitlines():
        said = json.loads(line)
        if (said["api_name"], said["direction"]) in (("Produce", "request"), ("Fetch", "response")):
            count = said["records"]["count"] if said.get("records") else 0
            found[said["topics"][0]["topic"], said["api_name"].lower()] = -1 if count is None else count
    return found


def test_all_readers_count_the_same(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_results(capture) == expected()
    facts = in_facts(capture)
    assert {place: facts[place] for place in expected()} == expected()
    assert shown(capture, capsys) == expected()


def test_the_section_topics_counts_the_same(capture: Path) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows(section_tables([capture], "topics")["topic_clients"]):
        found[row["topic"], PRODUCED if row["role"] == "writes" else FETCHED] += row["records"] or 0
    assert {place: found[place] for place in expected()} == {p: max(count, 0) for p, count in expected().items()}


def test_these_records_are_read(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compressed messages hold what their headers do not say. A producer's batch that goes on behind its field is
    malformed; the records in it are there."""
    capsys.readouterr()
    main(["records", "--json", str(capture)])
    found: Counter[tuple[str, str]] = Counter()
    for line in capsys.readouterr().out.splitlines():
        row: dict[str, Any] = json.loads(line)
        if row["status"] == "ok" and not row["is_control"]:
            found[row["topic"], row["direction"]] += 1
    for (name, side), count in expected().items():
        if side == FETCHED or "cut off" not in name:
            assert found[name, side] == (4 if count < 0 else count), (name, side)


@pytest.mark.parametrize("snap_length", [150, 200, 250, 300])
def test_a_snap_length_changes_all_numbers_alike(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], snap_length: int
) -> None:
    """Batches count whose headers were captured."""
    packets = packets_of(cut(numbered(read_capture(capture).packets), snap_length))
    path = write_capture(tmp_path / "cut.pcap", pcap_bytes(packets))
    results, facts, said = in_results(path), in_facts(path), shown(path, capsys)
    places = [place for place in results if place[0]]
    assert len(places) > len(FIELDS)
    assert sum(results[place] for place in places) < sum(expected().values())
    for place in places:
        assert said[place] == results[place], place
        assert facts[place] == results[place] or results[place] < 0, place


def test_batches_shorter_than_their_headers_make_no_rows(tmp_path: Path) -> None:
    """Tables have room for a row for each 61 bytes of a field."""
    short = batch(SOME)[:8] + struct.pack(">i", 14) + batch(SOME)[12:26]
    talk = KafkaTalk()
    talk.tcp.open()
    produce(talk, 0, 8, short * 40_000 + batch(SOME), topic="short")
    path = write_capture(tmp_path / "short.pcap", pcap_bytes(encode(talk.segments)))
    assert sum(len(each.facts) for _, each in batches_of(path) if each.facts is not None) == 0
    assert in_results(path) == {("short", PRODUCED): 0}


@pytest.mark.parametrize("name", FIELDS)
def test_compiled_and_plain(name: str) -> None:
    """The kernel, and its source as Python, on bytes and at each place where the capture may end."""
    field, count = FIELDS[name]
    padded = b"\xee" * 7 + field
    buffer = np.frombuffer(padded + b"\xee" * 3, np.uint8).copy()
    assert records_in_field(buffer, 7, len(padded), len(padded)) == count
    for captured in range(7, len(padded) + 1):
        compiled = records_in_field(buffer, 7, captured, len(padded))
        assert compiled == count_records(padded[:captured], 7, captured, len(padded))


def test_what_is_found() -> None:
    whole = batch(SOME)
    size = len(whole)
    assert batch_header(whole, 0, size, size) == (0, h.THERE, 2, size)
    assert batch_header(whole, 0, 61, size) == (0, h.THERE, 2, size)
    assert batch_header(whole, 0, 60, size) == (0, h.HEADER_CUT, 2, size)
    assert batch_header(whole, 0, 16, size) == (0, h.HEADER_CUT, -1, size)
    assert batch_header(whole, 0, size, size - 1) == (0, h.TOO_LONG, 2, size - 1)
    assert batch_header(whole, 0, size, h.UNKNOWN_END) == (0, h.THERE, 2, size)
    assert batch_header(with_magic(whole, 255), 0, size, size) == (0, h.OTHER_MAGIC, -1, size)
    assert batch_header(with_size(whole, 48), 0, size, size) == (0, h.NO_BATCH, 2, size)
    old = message(SOME[0], 1)
    assert batch_header(old, 0, 18, len(old)) == (0, h.THERE, 1, len(old))
    assert batch_header(old, 0, 17, len(old)) == (0, h.HEADER_CUT, 1, len(old))
