"""Record sets of every magic, codec and framing in Fetch responses hold the records that they were made of."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkatap import analyze
from tests.support.captures import pcap_bytes
from tests.support.record_talk import fetch
from tests.support.records import (
    CONTROL,
    DELETE_HORIZON,
    DIALECTS,
    GZIP,
    LOG_APPEND_TIME,
    NONE,
    SNAPPY,
    TRANSACTIONAL,
    Record,
    batch,
    compressed,
    encoded_record,
    message,
    message_set,
)
from tests.support.sweeps import seeds
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk

T = 1_704_067_200_000
#: Offset, timestamp (ms), key, value, headers.
Row = tuple[int, int | None, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
Cases = dict[str, tuple[bytes, list[Row]]]


def rows(records: Sequence[Record], first: int = 0, magic: int = 2, at: int | None = None) -> list[Row]:
    """What is expected of records with offsets from `first` on; `at`: the log append time."""
    return [
        (first + n, (at or r.timestamp) if magic else None, r.key, r.value, r.headers if magic == 2 else ())
        for n, r in enumerate(records)
    ]


def random_records(source: random.Random, count: int, longest: int) -> list[Record]:
    def piece() -> bytes | None:
        return None if source.random() < 0.1 else source.randbytes(source.randint(0, 9)) * source.randint(0, longest)

    return [
        Record(piece(), piece(), T + source.randint(-(2**33), 2**33), ((b"h", piece()),) * source.randint(0, 2))
        for _ in range(count)
    ]


def compressed_cases(source: random.Random) -> Cases:
    """A few records and many in each dialect of each codec and magic."""
    found: Cases = {}
    for name, (codec, compress, magics) in {"none": (NONE, bytes, (0, 1, 2)), **DIALECTS}.items():
        for magic in magics:
            for count, longest in ((source.randint(1, 5), 1), (250, 60)):
                records, first = random_records(source, count, longest), source.randrange(2**40)
                if magic == 2:
                    plain = [encoded_record(r, n, records[0].timestamp) for n, r in enumerate(records)]
                    data = batch(records, codec, offset=first, payload=compress(b"".join(plain)))
                else:
                    inner = compress(message_set(records, magic, offset=first * (magic == 0)))
                    data = message_set(records, magic, codec, offset=first, payload=inner)
                found[f"{name}, magic {magic}, {count} records"] = data, rows(records, first, magic)
    return found


SOME = [Record(b"a", b"1", T), Record(None, b"2", T + 5, ((b"h", None), ("ö".encode(), b""))), Record(b"", None, T - 9)]
ONE = SOME[:1]
FAR = Record(b"a", b"b", T + 2**40)
UNTIMED = Record(b"a", b"b", -1)
MANY_HEADERS = [Record(b"a", b"b", T, tuple((b"h%d" % n, b"%d" % n) for n in range(300)))]
MARKERS = [Record(b"\0\0\0" + bytes([kind]), bytes(6), T) for kind in (0, 1)]
SPARSE = b"".join(message(r, 1, offset=n) for n, r in zip((0, 3, 4), SOME, strict=True))


def sparse_rows(*offsets: int) -> list[Row]:
    return [(offset, *row[1:]) for offset, row in zip(offsets, rows(SOME, magic=1), strict=True)]


SPECIAL: Cases = {
    "a compacted set": (
        message_set(SOME, 1, GZIP, wrapper_offset=1_004, payload=compressed(SPARSE, GZIP)),
        sparse_rows(1_000, 1_003, 1_004),
    ),
    "a compacted batch": (
        batch(payload=encoded_record(ONE[0], 2, 0) + encoded_record(ONE[0], 7, 0), count=2, offset=100),
        rows(ONE, 102) + rows(ONE, 107),
    ),
    "append time of a set": (
        message_set(SOME, 1, GZIP, attributes=LOG_APPEND_TIME, timestamp=T + 777),
        rows(SOME, magic=1, at=T + 777),
    ),
    "append time of a message": (message(ONE[0], 1, attributes=LOG_APPEND_TIME), rows(ONE, magic=1)),
    "append time of a batch": (
        batch(SOME, attributes=LOG_APPEND_TIME, max_timestamp=T + 4_444),
        rows(SOME, at=T + 4_444),
    ),
    "no time": (batch([UNTIMED], max_timestamp=-1), [(0, None, b"a", b"b", ())]),
    "no time in a message": (message(UNTIMED, 1), [(0, None, b"a", b"b", ())]),
    "a far time": (batch([SOME[0], FAR]), rows([SOME[0], FAR])),
    "offsets near 2^62": (batch(SOME, offset=2**62), rows(SOME, 2**62)),
    "two sets": (
        message_set(ONE, 1, GZIP, offset=11) + message_set(ONE, 1, SNAPPY, offset=13),
        rows(ONE, 11, 1) + rows(ONE, 13, 1),
    ),
    "three magics": (
        message(ONE[0], 0, offset=1) + message(ONE[0], 1, offset=2) + batch(ONE, offset=3),
        rows(ONE, 1, 0) + rows(ONE, 2, 1) + rows(ONE, 3),
    ),
    "a partial batch": (batch(SOME) + batch(SOME, offset=4)[:50], rows(SOME)),
    "11 bytes of a batch": (batch(SOME) + batch(SOME, offset=4)[:11], rows(SOME)),
    "a partial message": (message(ONE[0], 1) + message(ONE[0], 1)[:-1], rows(ONE, magic=1)),
    "an empty batch": (batch(offset=9) + batch(ONE, offset=10), rows(ONE, 10)),
    "transactional": (batch(SOME, attributes=TRANSACTIONAL, producer=(42, 3, 2**31 - 1)), rows(SOME)),
    "markers": (batch(MARKERS, attributes=CONTROL | TRANSACTIONAL, producer=(1, 0, -1)), rows(MARKERS)),
    "a delete horizon": (batch(SOME, attributes=DELETE_HORIZON), rows(SOME)),
    "many batches": (b"".join(batch(ONE, offset=n) for n in range(300)), rows(ONE * 300)),
    "many headers": (batch(MANY_HEADERS), rows(MANY_HEADERS)),
}


@pytest.mark.parametrize("seed", seeds(8, short=1))
def test_records_are_those_that_were_written(tmp_path: Path, seed: int) -> None:
    cases = {**SPECIAL, **compressed_cases(random.Random(seed))}
    talk = KafkaTalk()
    talk.tcp.open()
    for number, (name, (data, _)) in enumerate(cases.items()):
        fetch(talk, number, 4, data, topic=name)
    talk.tcp.close()
    (tmp_path / "records.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    records = analyze(tmp_path / "records.pcap").records
    assert {(row["status"], row["crc_ok"]) for row in records.select(["status", "crc_ok"]).to_pylist()} == {
        ("ok", True)
    }
    found = found_rows(records)
    assert found.keys() == cases.keys()
    assert [name for name, (_, wanted) in cases.items() if found[name] != wanted] == []


def found_rows(records: pa.Table) -> dict[str, list[Row]]:
    table = records.select(["topic", "offset", "timestamp", "key", "value", "headers"])
    table = table.set_column(2, "timestamp", table["timestamp"].cast(pa.int64()))
    found: dict[str, list[Any]] = defaultdict(list)
    for topic, *numbers, headers in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found[topic].append((*numbers, tuple((each["key"].encode(), each["value"]) for each in headers)))
    return found
