"""Rewritten records: same sizes, offsets, times and codecs, right CRCs, and nothing of the contents."""

from __future__ import annotations

import random
import struct

import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.anonymize.exact_compression import recompressed
from kafkatap.anonymize.names import Names
from kafkatap.anonymize.record_batches import RecordRewriter
from kafkatap.dissector.batch_headers import count_records
from kafkatap.dissector.records.checksums import crc_of
from kafkatap.dissector.records.codecs import DONE, GZIP, LZ4, SNAPPY, ZSTD, Bounds, decompress
from tests.support.records import Record, batch, compressed, message, varint

NAMES = Names(b"a key of 16 bytes")
CODECS = {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
WORDS = b"invoice customer 4711 amount due street payment order item colour number delivered".split()


def _records(count: int, seed: int = 1) -> list[Record]:
    source = random.Random(seed)
    return [
        Record(
            b"key-%06d" % source.randrange(1 << 19), b" ".join(source.choices(WORDS, k=20)), 1_000 + n,
            ((b"trace-id", b"%032x" % source.getrandbits(128)),),
        )
        for n in range(count)
    ]  # fmt: skip


def _plain(raw: bytes, codec: int) -> bytes:
    found = decompress(codec, 2, raw[61:], Bounds()) if codec else None
    assert found is None or found.problem == DONE
    return raw[61:] if found is None else bytes(found.data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 5, 300])
def test_a_batch_keeps_its_sizes_and_loses_its_contents(codec: str, count: int) -> None:
    number = CODECS[codec]
    old = batch(_records(count), number, offset=17, producer=(5, 1, 9))
    rewriter = RecordRewriter(Names(b"a key of 16 bytes"))
    new = rewriter.rewrite(old)
    assert (len(new), rewriter.unfitted) == (len(old), 0)
    assert new[:17] + new[21:61] == old[:17] + old[21:61]
    assert crc_of(2, memoryview(new)) == int.from_bytes(new[17:21], "big")
    was, now = _plain(old, number), _plain(new, number)
    assert len(now) == len(was)
    for secret in (*WORDS, b"key-", b"trace-id"):
        assert len(secret) < 4 or (secret not in now and secret not in new)


@pytest.mark.parametrize(("codec", "seed"), [(SNAPPY, 226), (LZ4, 254), (ZSTD, 56)])
def test_a_batch_that_no_try_fits_counts_once(codec: int, seed: int) -> None:
    source = random.Random(seed)
    values = [bytes([source.randrange(256)]) * source.randrange(1, 40) for _ in range(source.randrange(1, 6))]
    records = [Record(None, value, 1_000) for value in values]
    rewriter = RecordRewriter(Names(b"a key of 16 bytes"))
    rewriter.rewrite(batch(records, codec, offset=17, producer=(5, 1, seed)))
    assert (rewriter.batches, rewriter.unfitted) == (1, 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_message_sets_keep_their_sizes(magic: int, codec: str) -> None:
    inner = b"".join(message(record, magic, offset=n) for n, record in enumerate(_records(20)))
    value = compressed(inner, CODECS[codec], magic)
    old = inner if codec == "none" else message(Record(None, value, 1_000), magic, attributes=CODECS[codec])
    rewriter = RecordRewriter(Names(b"a key of 16 bytes"))
    new = rewriter.rewrite(old)
    assert (len(new), rewriter.unfitted) == (len(old), 0)
    size = int.from_bytes(new[8:12], "big") + 12
    assert crc_of(magic, memoryview(new)[:size]) == int.from_bytes(new[12:16], "big")
    assert new != old
    assert not any(word in new for word in WORDS if len(word) > 5)
    if codec != "none":
        at = 30 if magic else 22
        found = decompress(CODECS[codec], magic, new[at + 4 :], Bounds())
        assert found.problem == DONE
        assert len(found.data) == len(inner)


def test_a_wrong_crc_stays_wrong_and_a_cut_batch_keeps_its_header() -> None:
    rewriter = RecordRewriter(Names(b"a key of 16 bytes"))
    wrong = rewriter.rewrite(batch(_records(3), crc=123))
    assert crc_of(2, memoryview(wrong)) != int.from_bytes(wrong[17:21], "big")
    whole = batch(_records(3))
    cut = rewriter.rewrite(whole[:100])
    assert cut[:17] + cut[21:61] == whole[:17] + whole[21:61]
    assert b"key-" not in cut
    for size in range(len(whole)):
        assert len(rewriter.rewrite(whole[:size])) == size
    assert rewriter.rewrite(whole[:30])[:17] == whole[:17]


@pytest.mark.parametrize("magic", [3, 128, 255])
def test_batches_behind_one_of_an_unknown_magic_stay(magic: int) -> None:
    """Of that batch only the size stays, so that readers of the copy find the next one."""
    first, second = bytearray(batch(_records(3))), batch(_records(2, seed=2))
    first[16] = magic
    old = bytes(first) + second
    new = RecordRewriter(Names(b"a key of 16 bytes")).rewrite(old)
    assert new[: len(first)] == b"x" * 8 + old[8:12] + b"x" * (len(first) - 12)
    assert new[len(first) :][:17] == second[:17]
    assert count_records(new, 0, len(new), len(new)) == count_records(old, 0, len(old), len(old)) == 2


@given(st.binary(max_size=200), st.integers(0, 5))
def test_hostile_records_never_leak(junk: bytes, codec: int) -> None:
    rewriter = RecordRewriter(Names(b"a key of 16 bytes"))
    old = batch(codec=codec, payload=junk + b"SECRET-of-somebody") + junk + b"SECRET-of-somebody"
    new = rewriter.rewrite(old)
    assert len(new) == len(old)
    assert b"SECRET" not in new


@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.integers(60, 60_000), st.integers(0, 1 << 30))
def test_streams_have_exactly_the_wanted_size(codec: int, size: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size)
    old = compressed(data, codec)
    new = recompressed(codec, 2, old, b"x" * size)
    assert new is not None
    assert len(new) == len(old)
    assert bytes(decompress(codec, 2, new, Bounds()).data) == b"x" * size


@pytest.mark.parametrize("size", [49, 300])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_text_is_no_header(size: int, magic: int) -> None:
    """Only the size and the magic byte of a batch are right; its other bytes are text."""
    text = b"PASSWORD=hunter2;user=bob@corp.example;token=abcdefghijk"
    fake = b"LEAKHEAD" + struct.pack(">i", size) + text[:4] + bytes((magic,)) + text[4:48]
    rewriter = RecordRewriter(NAMES)
    for offset in (fake[:8], bytes(8)):
        old = offset + fake[8:]
        new = rewriter.rewrite(old)
        assert len(new) == len(old)
        assert set(new) <= set(b"x\0")
    assert rewriter.implausible == 2


def test_a_header_with_one_strange_number_is_no_header() -> None:
    good = batch(_records(3), producer=(5, 1, 9))[:80]
    assert RecordRewriter(NAMES).rewrite(good)[21:61] == good[21:61]
    strange = {0: b"\1", 12: b"\7", 21: b"\x80", 23: b"\x01", 27: b"text", 35: b"text", 43: b"text", 57: b"\1"}
    for at, value in strange.items():
        bad = good[:at] + value + good[at + len(value) :]
        assert set(RecordRewriter(NAMES).rewrite(bad)) == set(b"x"), at


def test_of_a_cut_record_only_plausible_numbers_stay() -> None:
    payload = varint(5_000) + b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(60)
    for text in (
        b"acaceaceaceaces",
        b"SECRETCOMSECRETWAS",
        b"\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\xc3\xa4\xc3\xb6\xc3\xbc",
    ):
        whole = bytearray(batch([Record(b"k", b"v")], payload=payload + text))
        whole[8:12] = struct.pack(">i", 5_000)
        assert not _alike(bytes(whole[61:]), RecordRewriter(NAMES).rewrite(bytes(whole))[61:], 5)


def _alike(old: bytes, new: bytes, longest: int) -> bool:
    """Whether more than so many bytes that follow one another stayed, but for zeros and filler."""
    run = 0
    for a, b in zip(old, new, strict=True):
        run = run + 1 if a == b and a not in b"\0\1x" else 0
        if run > longest:
            return True
    return False


@pytest.mark.parametrize(("key", "value", "key_stays", "value_stays"), [
    (b"\0\0\0\1", b"\0\0\0\0\0\7", True, True), (b"\0\0\0\0", b"MARKER", True, False),
    (b"\0\0EV", b"MARKER", False, False),
    (b"EVIL", b"\0\0\0\0\0\7", False, False), (b"\0\0\0\1", b"\0\0MARK", True, False),
])  # fmt: skip
def test_control_records_keep_markers_only(key: bytes, value: bytes, key_stays: bool, value_stays: bool) -> None:
    new = RecordRewriter(NAMES).rewrite(batch([Record(key, value)], attributes=0x20))
    assert (key in new[61:], value in new[61:]) == (key_stays, value_stays)


def test_of_xerial_snappy_nothing_of_the_header_is_copied() -> None:
    block = snappy.compress(b"v" * 300)
    framed = b"\x82SNAPPY\0LEAKXER1" + struct.pack(">I", len(block)) + block + b"\x82SNAPPY\0LEAKXER2"
    new = recompressed(SNAPPY, 2, framed, b"x" * 300)
    assert new is not None
    assert len(new) == len(framed)
    assert b"LEAK" not in new
    assert bytes(decompress(SNAPPY, 2, new[:-16], Bounds()).data) == b"x" * 300
