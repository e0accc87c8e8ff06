"""Message sets and batches, down to single records: every version and codec, damaged ones, and hostile ones.

Invariant: whatever a field holds, reading it ends, raises nothing, and gives all records before what is wrong, one row
that says what it is, and the batches behind it wherever the next one can still be found.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import kio.records.readers
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.codecs import Bounds
from tests.support import records as made
from tests.support.records import CODECS, Record, batch, message, message_set
from tests.support.sweeps import examples

from .record_support import Row, collect, read

ROOT = Path(__file__).resolve().parents[2]
T = 1_704_067_200_000

SOME = (
    Record(b"a", b"one", T),
    Record(None, b"two" * 50, T + 5, ((b"h", b"1"), (b"h", None), (b"", b""))),
    Record(b"", None, T - 3),
    Record(b"k" * 300, b"", T + 70_000),
)


def plain(rows: list[Row]) -> list[Record]:
    """The rows as records; all of them are to be whole."""
    assert {row["status"] for row in rows} <= {"ok"}
    return [Record(row["key"], row["value"], row["timestamp"], row["headers"]) for row in rows]


def statuses(rows: list[Row]) -> list[str]:
    return [row["status"] for row in rows]


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_batches_of_magic_2(codec: int) -> None:
    rows = read(batch(SOME, codec, offset=1_000, producer=(77, 3, 2**31 - 2)))
    assert plain(rows) == list(SOME)
    assert [row["offset"] for row in rows] == [1_000, 1_001, 1_002, 1_003]
    # The sequence wraps as Kafka's does.
    assert [row["producer"] for row in rows] == [(77, 3, s) for s in (2**31 - 2, 2**31 - 1, 0, 1)]
    assert {(row["magic"], row["codec"], row["crc"]) for row in rows} == {(2, codec, b.CRC_RIGHT)}


@pytest.mark.parametrize("codec", range(4), ids=CODECS[:4])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets(magic: int, codec: int) -> None:
    """Compressed messages of magic 1 tell offsets relative to the last one, whose offset is the wrapper's."""
    rows = read(message_set(SOME, magic, codec, offset=500))
    times = [record.timestamp if magic else b.UNKNOWN_NUMBER for record in SOME]
    assert [(r["key"], r["value"]) for r in rows] == [(record.key, record.value) for record in SOME]
    assert [r["timestamp"] for r in rows] == times
    assert [r["offset"] for r in rows] == [500, 501, 502, 503]
    assert {(r["magic"], r["codec"], r["crc"], r["status"]) for r in rows} == {(magic, codec, b.CRC_RIGHT, "ok")}
    assert [r["batch"] for r in rows] == ([0, 1, 2, 3] if codec == made.NONE else [0, 0, 0, 0])


def test_a_producer_that_leaves_the_wrapper_s_offset_at_0() -> None:
    rows = read(message_set(SOME, 1, made.GZIP, wrapper_offset=0), fetch=False)
    assert [r["offset"] for r in rows] == [0, 1, 2, 3]


def test_a_compacted_message_set_keeps_the_gaps_between_offsets() -> None:
    inner = b"".join(message(record, 1, offset=n) for n, record in zip((0, 4, 9), SOME, strict=False))
    rows = read(message_set(SOME[:3], 1, made.GZIP, wrapper_offset=109, payload=made.compressed(inner, made.GZIP)))
    assert [r["offset"] for r in rows] == [100, 104, 109]


def test_log_append_time_is_the_batch_s() -> None:
    rows = read(batch(SOME, made.ZSTD, attributes=made.LOG_APPEND_TIME, max_timestamp=T + 999))
    assert {row["timestamp"] for row in rows} == {T + 999}
    rows = read(message_set(SOME, 1, made.SNAPPY, attributes=made.LOG_APPEND_TIME, timestamp=T + 999))
    assert {row["timestamp"] for row in rows} == {T + 999}
    rows = read(message_set(SOME, 1, made.NONE, attributes=made.LOG_APPEND_TIME))
    assert [row["timestamp"] for row in rows] == [record.timestamp for record in SOME]


def test_control_batches() -> None:
    keys = [struct.pack(">hh", 0, kind) for kind in (0, 1, 2, 99)]
    markers = [Record(key, b"\0\0\0\0\0\1", T) for key in (*keys, b"\0", None)]
    rows = read(batch(markers, attributes=made.CONTROL | made.TRANSACTIONAL))
    assert [row["control"] for row in rows] == [0, 1, 2, 99, -1, -1]
    assert {row["attributes"] for row in rows} == {made.CONTROL | made.TRANSACTIONAL}
    assert {row["control"] for row in read(batch(markers))} == {-1}


def test_batches_of_one_field_and_of_many() -> None:
    field = batch(SOME[:2], offset=0) + batch(SOME[2:], made.LZ4, offset=2) + batch([], offset=4)
    rows, collector = collect([field, batch(SOME), b"", message_set(SOME, 0) + batch(SOME, made.GZIP)])
    assert [(row["exchange"], row["batch"]) for row in rows] == [
        *[(0, 0)] * 2, *[(0, 1)] * 2, *[(1, 0)] * 4, *[(3, n) for n in range(4)], *[(3, 4)] * 4,
    ]  # fmt: skip
    assert collector.tally.batches.tolist() == [9, *[0] * 10]
    assert (collector.tally.records, collector.tally.wrong_crc) == (16, 0)


@pytest.mark.parametrize(("field", "count"), [(batch(SOME, crc=1), 4), (message_set(SOME, 1, made.GZIP), 4)])
def test_a_wrong_crc_is_told_and_the_records_are_there(field: bytes, count: int) -> None:
    damaged = bytearray(field)
    damaged[17 if field[16] == 2 else 12] ^= 1
    rows, collector = collect([bytes(damaged)])
    assert len(rows) == count
    assert {(row["crc"], row["status"]) for row in rows} == {(b.CRC_WRONG, "ok")}
    assert collector.tally.wrong_crc == 1


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_a_batch_cut_short(codec: int) -> None:
    """By the broker: usual, and nothing is told. By the capture: what is there, and that the rest is not. By a
    producer: wrong."""
    whole = batch(SOME, codec, offset=10)
    for end in range(len(whole) + 1, len(whole) + len(whole)):
        field = (whole + whole)[:end]
        assert statuses(read(field)) == ["ok"] * 4
        told = read(field, cut=True)[4:]
        assert [row["value"] for row in told[:-1]] == [record.value for record in SOME[: len(told) - 1]]
        assert told[-1]["status"] == "not_captured"
        assert told[-1]["offset"] == (10 if end - len(whole) >= 8 else b.UNKNOWN_NUMBER)
        assert statuses(read(field, fetch=False))[-1] == "malformed"


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_cut_short(magic: int) -> None:
    whole = message(SOME[1], magic)
    for end in range(1, len(whole)):
        assert statuses(read(whole + whole[:end])) == ["ok"]
        assert statuses(read(whole + whole[:end], cut=True)) == ["ok", "not_captured"]


def raw_batch(payload: bytes, count: int) -> bytes:
    return batch(payload=payload, count=count)


RECORD = made.encoded_record(SOME[0], 0)
LONG = b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (RECORD, 2),
        (RECORD, 2**31 - 1),
        (RECORD + b"\0", 2),
        (RECORD + made.varint(-5) + bytes(20), 2),
        (RECORD + made.varint(2**31 - 1) + bytes(20), 2),
        (RECORD + made.varint(500) + bytes(20), 2),
        (RECORD + LONG + bytes(20), 2),
        (RECORD + b"\xff\xff\xff\xff\x7f" + bytes(20), 2),  # 35 bits
        (RECORD + made.varint(16) + b"\0" + LONG + bytes(5), 2),
        (RECORD + made.varint(7) + b"\0\0\0" + made.varint(-2) + bytes(3), 2),  # a key of -2 bytes
        (RECORD + made.varint(7) + b"\0\0\0\0" + made.varint(60) + bytes(2), 2),
        (RECORD + made.varint(8) + b"\0\0\0\0\0" + made.varint(2**31 - 1)[:3], 2),  # headers
        (RECORD + made.varint(7) + b"\0\0\0\0\0" + made.varint(-1) + b"\0", 2),
        (RECORD + made.varint(9) + b"\0\0\0\0\0" + made.varint(1) + made.varint(-1) + bytes(2), 2),  # a null header
        (RECORD + made.varint(7) + b"\0\0\0\0\0\0\0", 2),  # a byte more than it holds
    ],
)
def test_records_that_cannot_be(payload: bytes, count: int) -> None:
    """What is before stays, the batch is marked, and the next one is read."""
    rows = read(raw_batch(payload, count) + batch(SOME[1:2], offset=50))
    assert statuses(rows) == ["ok", "malformed", "ok"]
    assert (rows[0]["value"], rows[2]["value"], rows[2]["offset"]) == (b"one", SOME[1].value, 50)
    assert (rows[1]["key"], rows[1]["value"], rows[1]["headers"]) == (None, None, ())


def test_counts_that_cannot_be() -> None:
    assert statuses(read(raw_batch(RECORD, -1) + batch(SOME))) == ["malformed", *["ok"] * 4]
    assert statuses(read(raw_batch(RECORD, 0) + batch(SOME))) == ["trailing_bytes", *["ok"] * 4]
    assert statuses(read(raw_batch(RECORD + b"x", 1) + batch(SOME))) == ["ok", "trailing_bytes", *["ok"] * 4]


@pytest.mark.parametrize("size", [0, -1, 13, 48, -(2**31)])
def test_a_size_that_cannot_be_ends_its_field(size: int) -> None:
    wrong = batch(SOME)
    wrong = wrong[:8] + struct.pack(">i", size) + wrong[12:]
    rows, _ = collect([batch(SOME) + wrong, batch(SOME)])
    assert statuses(rows) == [*["ok"] * 4, "malformed", *["ok"] * 4]


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_magic_is_stepped_over(magic: int) -> None:
    wrong = bytearray(batch(SOME))
    wrong[16] = magic
    assert statuses(read(bytes(wrong) + batch(SOME))) == ["unknown_magic", *["ok"] * 4]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec(codec: int) -> None:
    rows = read(batch(payload=RECORD, count=1, attributes=codec) + batch(SOME))
    assert statuses(rows) == ["unknown_codec", *["ok"] * 4]


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_a_payload_that_cannot_be_decompressed(codec: int) -> None:
    """What comes out before the failure is read; of a message set nothing, as its offsets hang on its end."""
    many = [Record(b"%d" % n, np.random.default_rng(n).bytes(400), T) for n in range(2_000)]
    whole = made.compressed(b"".join(made.encoded_record(r, n, T) for n, r in enumerate(many)), codec)
    rows = read(batch(payload=whole[: len(whole) // 2], count=2_000, attributes=codec) + batch(SOME))
    assert statuses(rows[-5:]) == [statuses(rows)[-5], *["ok"] * 4]
    assert statuses(rows)[-5] in ("corrupt", "malformed")
    assert [row["key"] for row in rows[:-5]] == [record.key for record in many[: len(rows) - 5]]
    rows = read(batch(payload=b"\xff" * 50, count=3, attributes=codec) + batch(SOME))
    assert statuses(rows) == ["corrupt", *["ok"] * 4]
    if codec != made.ZSTD:
        half = made.compressed(message_set(SOME, 1), codec)[:-20]
        assert statuses(read(message_set(SOME, 1, codec, payload=half) + batch(SOME))) == ["corrupt", *["ok"] * 4]


def wrapped(inner: bytes, magic: int, codec: int, offset: int) -> bytes:
    return message_set((), magic, codec, payload=made.compressed(inner, codec, magic), wrapper_offset=offset)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_within_message_sets(magic: int) -> None:
    """Their records have the offsets and the order of one set; with magic 1 each wrapper's offset is relative."""
    base = 0 if magic else 500
    deep = message_set(SOME[1:3], magic, made.SNAPPY, offset=base, wrapper_offset=base + 2)
    if magic == 0:
        deep = message_set(SOME[1:3], magic, made.SNAPPY, offset=501)
    deeper = wrapped(message(SOME[0], magic, offset=base) + deep, magic, made.GZIP, base + 2)
    inner = deeper + message(SOME[3], magic, offset=base + 3)
    field = wrapped(inner, magic, made.LZ4, 503)
    rows, collector = collect([field + batch(SOME)])
    assert statuses(rows) == ["ok"] * 8
    assert [row["value"] for row in rows[:4]] == [record.value for record in SOME]
    assert [row["offset"] for row in rows[:4]] == [500, 501, 502, 503]
    assert {row["crc"] for row in rows} == {b.CRC_RIGHT}
    assert (collector.tally.wrong_messages, collector.tally.records) == (0, 8)


def test_wrappers_that_stay_are_marked_and_counted() -> None:
    """Too deep, a codec that nobody has, a payload that cannot be decompressed, a wrong CRC, more than is allowed."""
    deep = message(SOME[0], 1)
    for _ in range(10):
        deep = wrapped(deep, 1, made.GZIP, 0)
    damaged = bytearray(wrapped(message(SOME[0], 1), 1, made.GZIP, 0))
    damaged[12] ^= 1
    for wrong in (deep, message(SOME[0], 1, attributes=7), message(SOME[0], 1, attributes=made.GZIP), bytes(damaged)):
        rows, collector = collect([wrapped(message(SOME[0], 1) + wrong + message(SOME[0], 1), 1, made.GZIP, 0)])
        assert statuses(rows) == ["ok", "nested", "ok"]
        assert collector.tally.batches[b.NESTED] == 1
        assert [row["crc"] == b.CRC_WRONG for row in rows] == [False, wrong == bytes(damaged), False]
    bounds = Bounds(absolute=1 << 20, ratio=1_000, floor=100_000)
    bomb = wrapped(message(Record(b"k", bytes(90_000)), 1), 1, made.GZIP, 0)
    rows = read(wrapped(bomb * 3, 1, made.GZIP, 0), bounds=bounds)
    assert statuses(rows) == ["ok", "nested", "nested"]


def test_many_wrappers_cost_no_more_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    import kafkatap.dissector.records.nested_sets as nested

    monkeypatch.setattr(nested, "WRAPPERS", 3)
    one = wrapped(message(SOME[0], 0) * 2, 0, made.GZIP, 0)
    assert statuses(read(wrapped(one * 5, 0, made.GZIP, 0))) == [*["ok"] * 6, "nested", "nested"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [made.NONE, made.GZIP])
def test_damage_of_one_message_is_counted(magic: int, codec: int) -> None:
    at = 26 if magic else 18
    wrong = bytearray(message(SOME[0], magic, offset=1))
    wrong[at : at + 4] = struct.pack(">i", 50)
    wrong[12:16] = zlib.crc32(wrong[16:]).to_bytes(4)
    plain = message(SOME[0], magic) + wrong + message(SOME[0], magic, offset=2)
    field = plain if codec == made.NONE else wrapped(plain, magic, codec, 2)
    rows, collector = collect([field])
    assert statuses(rows) == ["ok", "malformed", "ok"]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert collector.tally.batches[b.MALFORMED] == 1


def test_a_wrong_crc_within_a_compressed_message() -> None:
    inner = message(SOME[0], 1) + message(SOME[1], 1, offset=1, crc=5) + message(SOME[2], 1, offset=2)
    rows, collector = collect([wrapped(inner, 1, made.GZIP, 2)])
    assert [row["crc"] for row in rows] == [b.CRC_RIGHT, b.CRC_WRONG, b.CRC_RIGHT]
    assert (statuses(rows), collector.tally.wrong_messages, collector.tally.wrong_crc) == (["ok"] * 3, 1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        message(SOME[0], 1)[:-1],
        message(SOME[0], 1) + bytes(25),
        b"\0" * 8 + struct.pack(">i", -1) + bytes(40),
        b"\0" * 8 + struct.pack(">i", 14) + bytes(4) + b"\2\0" + bytes(20),
    ],
)
def test_a_message_set_that_goes_wrong_inside(wrong: bytes) -> None:
    inner = message(SOME[0], 1) + wrong
    rows = read(message_set(SOME, 1, made.GZIP, payload=made.compressed(inner, made.GZIP)) + batch(SOME))
    assert statuses(rows)[0] == "ok"
    assert statuses(rows)[-5:] == ["malformed", *["ok"] * 4]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_without_its_end_hides_relative_offsets(magic: int) -> None:
    """The last message has the wrapper's offset. If it is not there, nobody knows the others'."""
    whole = [message(record, magic, offset=n) for n, record in enumerate(SOME[:3])]
    field = wrapped(b"".join(whole)[:-1], magic, made.GZIP, 12)
    unknown = b.UNKNOWN_NUMBER
    for nested in (False, True):
        rows = read(wrapped(field, magic, made.GZIP, 12) if nested else field)
        if nested and magic == 1:
            assert (statuses(rows), rows[0]["offset"]) == (["nested"], 12)
        else:
            assert statuses(rows) == ["ok", "ok", "malformed"]
            assert [row["offset"] for row in rows] == ([unknown] * 3 if magic else [0, 1, unknown])
    produced = read(wrapped(b"".join(whole)[:-1], magic, made.GZIP, 0), fetch=False)
    assert [row["offset"] for row in produced] == [0, 1, unknown]


def test_a_last_message_of_an_unknown_magic_has_the_wrapper_s_offset() -> None:
    last = bytearray(message(SOME[2], 1, offset=2))
    last[16] = 9
    field = message_set(SOME[:2], 1) + last
    for levels in (wrapped(field, 1, made.GZIP, 12), wrapped(wrapped(field, 1, made.GZIP, 5), 1, made.GZIP, 12)):
        found = [(row["status"], row["offset"]) for row in read(levels)]
        assert found == [("ok", 10), ("ok", 11), ("unknown_magic", 12)]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_whose_key_or_value_cannot_be(magic: int) -> None:
    at = 26 if magic else 18
    for length in (-2, 2**31 - 1, -(2**31), 50):
        wrong = bytearray(message(SOME[0], magic))
        wrong[at : at + 4] = struct.pack(">i", length)
        assert statuses(read(bytes(wrong) + batch(SOME))) == ["malformed", *["ok"] * 4]
        compressed = bytearray(message_set(SOME, magic, made.GZIP))
        compressed[at : at + 4] = struct.pack(">i", length)
        assert statuses(read(bytes(compressed) + batch(SOME))) == ["malformed", *["ok"] * 4]
    longer = bytearray(message(SOME[0], magic) + b"xx")
    longer[8:12] = struct.pack(">i", len(longer) - 12)
    assert statuses(read(bytes(longer))) == ["trailing_bytes"]
    null = message(Record(None, None), magic, attributes=made.GZIP)
    assert statuses(read(null)) == ["malformed"]


def test_offsets_and_times_wrap_as_kafka_s_do() -> None:
    top = 2**63 - 1
    field = batch(payload=made.encoded_record(Record(b"", b"", 5), 3, 0), count=1, offset=top, max_timestamp=0)
    field = field[:27] + struct.pack(">q", top) + field[35:]
    (row,) = read(field)
    assert (row["offset"], row["timestamp"]) == (-(2**63) + 2, -(2**63) + 4)
    inner = message(SOME[0], 1, offset=-(2**63)) + message(SOME[0], 1, offset=3)
    rows = read(message_set(SOME, 1, made.GZIP, wrapper_offset=top, payload=made.compressed(inner, made.GZIP)))
    assert [row["offset"] for row in rows] == [-(2**63) + top - 3, top]


def test_more_records_and_headers_than_a_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk ends and the batch goes on in the next; a record that needs more headers than there can be is wrong."""
    import kafkatap.dissector.records.record_inspector as records

    for name, size in (("BATCHES", 3), ("RECORDS", 5), ("HEADERS", 4)):
        monkeypatch.setattr(records, name, size)
    many = [Record(b"%d" % n, b"v", T, ((b"h", b"x"),) * (n % 4)) for n in range(40)]
    fields = [batch(many, codec) for codec in range(5)] + [message_set(many, magic) for magic in (0, 1)]
    fields += [message_set(many, 1, made.GZIP)]
    rows, _ = collect(fields)
    assert [row["key"] for row in rows] == [record.key for record in many] * 8
    assert [len(row["headers"]) for row in rows] == [n % 4 for n in range(40)] * 5 + [0] * 120
    too_many = Record(b"k", b"v", T, ((b"h", b"x"),) * 5)
    assert statuses(read(batch([SOME[0], too_many, SOME[0]]) + batch(SOME))) == ["ok", "malformed", *["ok"] * 4]
    rows = read(raw_batch(RECORD * 5, 6) + raw_batch(RECORD * 4, 5))
    assert statuses(rows) == [*["ok"] * 5, "malformed", *["ok"] * 4, "malformed"]


def test_what_is_decompressed_is_given_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    import kafkatap.dissector.records.record_inspector as records

    monkeypatch.setattr(records, "HELD", 50_000)
    big = batch([Record(b"k", bytes(30_000), T)] * 2, made.ZSTD)
    rows, collector = collect([big * 30, batch(SOME), big])
    assert len(rows) == 66
    assert len(collector._arena) < 1 << 21
    assert [row["exchange"] for row in rows] == [0] * 60 + [1] * 4 + [2] * 2


def test_a_chunk_names_no_more_than_arrow_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import kafkatap.dissector.records.record_inspector as records

    fields = [batch(SOME, codec) for codec in range(5)]
    whole, _ = collect(fields)
    monkeypatch.setattr(records, "LARGEST", 310)
    rows, collector = collect(fields)
    assert rows == whole
    assert collector.tally.records == 20


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_a_bomb_is_marked_and_the_rest_is_read(codec: int) -> None:
    bounds = Bounds(absolute=1 << 20, ratio=1_000, floor=100_000)
    payload = made.compressed(bytes(4 << 20), codec)
    rows = read(batch(payload=payload, count=1, attributes=codec) + batch(SOME, codec), bounds=bounds)
    assert statuses(rows) == ["too_large", *["ok"] * 4]


def test_kio_reads_the_same() -> None:
    for offset, horizon in ((0, 0), (2**40, made.DELETE_HORIZON)):
        field = batch(SOME, offset=offset, attributes=horizon, producer=(9, 1, 5), max_timestamp=T + 70_000)
        theirs, size = kio.records.readers.read_batch(field, 0)
        assert size == len(field)
        # Not the timestamps: kio takes their differences for microseconds.
        assert [(r["offset"], r["key"], r["value"], list(r["headers"])) for r in read(field)] == [
            (r.offset, r.key, r.value, [(h.key, h.value) for h in r.headers]) for r in theirs.records
        ]


pieces = st.one_of(st.none(), st.binary(max_size=40))
records = st.builds(
    Record,
    pieces,
    pieces,
    st.integers(-(2**62), 2**62),
    st.lists(st.tuples(st.binary(max_size=9), pieces), max_size=3).map(tuple),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(records, min_size=1, max_size=8), st.integers(0, 4), st.integers(0, 2**63 - 9))
def test_what_is_written_is_read(wanted: list[Record], codec: int, offset: int) -> None:
    rows = read(batch(wanted, codec, offset=offset))
    assert plain(rows) == wanted
    assert [row["offset"] for row in rows] == list(range(offset, offset + len(wanted)))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.data())
def test_damaged_fields_do_no_harm(data: Any) -> None:
    field = bytearray(
        data.draw(
            st.sampled_from(
                [
                    batch(SOME, codec) + message_set(SOME, magic, min(codec, 3)) + batch(SOME)
                    for codec in range(5)
                    for magic in (0, 1)
                ]
            )
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(field) - 1))
        field[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, data.draw(st.integers(0, 255))]))
    end = data.draw(st.integers(0, len(field)))
    rows = read(bytes(field[:end]), fetch=data.draw(st.booleans()), cut=data.draw(st.booleans()))
    assert len(rows) <= len(field) + 1


def test_kernels_as_python_give_the_same() -> None:
    """The tests of this file, with the kernels as the Python that they are: no overflow, no index out of bounds."""
    if os.environ.get("NUMBA_DISABLE_JIT"):
        pytest.skip("this is that run")
    chosen = "not test_kernels_as_python and not cannot_be_decompressed and not cut_short"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", chosen],
        cwd=ROOT, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:]
