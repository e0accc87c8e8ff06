"""Decompression: all dialects, and bytes that were made to do harm.

Invariant: `decompress` raises nothing, never gives more than the bound, and ends.
"""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
from typing import Any

import lz4.block
import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector.records import codecs
from kafkatap.dissector.records.codecs import (
    CORRUPT,
    DONE,
    GZIP,
    LZ4,
    SNAPPY,
    TOO_LARGE,
    UNKNOWN,
    ZSTD,
    Bounds,
    Unpacked,
)
from tests.support.records import DIALECTS, XERIAL, compressed, lz4_frame, with_wrong_checksum, xerial
from tests.support.sweeps import examples

TEXT = b"What is compressed comes back as it was, byte by byte. " * 400
NOISE = random.Random(1).randbytes(300_000)


def unpack(codec: int, data: bytes, magic: int = 2, **bounds: int) -> Unpacked:
    return codecs.decompress(codec, magic, data, Bounds(**bounds))


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["nothing", "a byte", "text", "noise"])
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect(name: str, data: bytes) -> None:
    codec, compress, (magic, *_) = DIALECTS[name]
    assert unpack(codec, compress(data), magic) == Unpacked(data, DONE)


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
@pytest.mark.parametrize("name", DIALECTS)
def test_the_bound(name: str, data: bytes) -> None:
    """As much as the bound comes back, one byte more does not."""
    codec, compress, (magic, *_) = DIALECTS[name]
    packed = compress(data)
    size = len(data)
    assert unpack(codec, packed, magic, absolute=size, floor=size) == Unpacked(data, DONE)
    assert unpack(codec, packed, magic, absolute=size - 1, floor=size) == Unpacked(b"", TOO_LARGE)


@pytest.mark.parametrize("name", [n for n in DIALECTS if n != "gzip with something behind"])
def test_half_of_it(name: str) -> None:
    """What came before the end is kept where the codec gives it, and is never wrong."""
    codec, compress, (magic, *_) = DIALECTS[name]
    packed = compress(NOISE)
    for end in (0, 1, 3, 4, 6, 10, 17, len(packed) // 2, len(packed) - 1):
        half = unpack(codec, packed[:end], magic)
        assert NOISE.startswith(half.data), end
        # zstd's reader does not tell whether its frame was whole: then the records tell that they are too few.
        # A stream of several may end after any of them, and one of none is empty.
        several = "streams" in name or "members" in name or (codec == SNAPPY and end == 0)
        if codec != ZSTD and not several and not ("legacy" in name and end == 4):
            assert half.problem == CORRUPT or half.data == NOISE, end


def test_the_checksum_of_a_frame_counts_but_with_magic_0() -> None:
    wrong = with_wrong_checksum(lz4_frame(TEXT))
    assert unpack(LZ4, wrong, magic=0) == Unpacked(TEXT, DONE)
    assert unpack(LZ4, wrong, magic=1) == Unpacked(b"", CORRUPT)
    assert unpack(LZ4, wrong, magic=2) == Unpacked(b"", CORRUPT)


def test_unknown_codecs() -> None:
    assert [unpack(codec, TEXT) for codec in (0, 5, 7, -1)] == [Unpacked(b"", UNKNOWN)] * 4


def literal(size: int) -> bytes:
    """A raw snappy block that says it is of this size."""
    out = bytearray()
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])


HOSTILE = {
    "snappy that says 4 GiB": (SNAPPY, literal(2**32 - 1) + bytes(100)),
    "snappy that says more than its bytes can be": (SNAPPY, literal(60 << 20) + bytes(100)),
    "snappy without an end of its length": (SNAPPY, b"\xff" * 40),
    "snappy that copies from before its start": (SNAPPY, b"\x20\xfe\x01\x00" + bytes(10)),
    "xerial with a block of 4 GiB": (SNAPPY, XERIAL + b"\xff\xff\xff\xff" + bytes(50)),
    "xerial with half a length": (SNAPPY, XERIAL + b"\0\0"),
    "xerial with half a header": (SNAPPY, xerial(TEXT) + XERIAL[:12]),
    "zstd that says 2^62 bytes": (ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + bytes(20)),
    "zstd with a window of terabytes": (ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(20)),
    "lz4 that says 2^62 bytes": (LZ4, lz4_frame(b"")[:4] + b"\x68\x40" + struct.pack("<Q", 1 << 62) + bytes(20)),
    "lz4 legacy with a block of 4 GiB": (LZ4, b"\x02\x21\x4c\x18\xff\xff\xff\xff" + bytes(50)),
    "gzip of a thousand members and more": (GZIP, gzip.compress(b"") * 1_500),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes(name: str) -> None:
    codec, data = HOSTILE[name]
    for magic in (0, 2):
        tracemalloc.start()
        found = unpack(codec, data, magic)
        assert found.problem == CORRUPT
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
        tracemalloc.stop()


def test_xerial_with_nothing_but_empty_blocks_ends() -> None:
    assert unpack(SNAPPY, XERIAL + bytes(4_000)) == Unpacked(b"", DONE)
    assert unpack(SNAPPY, XERIAL + bytes(400_000)) == Unpacked(b"", CORRUPT)
    assert unpack(SNAPPY, XERIAL * 20_000) == Unpacked(b"", DONE)


def bomb(codec: int, size: int) -> bytes:
    if codec == SNAPPY:
        return bytes(snappy.compress(bytes(size)))
    return compressed(bytes(size), codec)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=codecs.CODECS[1:])
def test_bombs_take_no_more_memory_than_the_bound(codec: int) -> None:
    data = bomb(codec, 96 << 20)
    tracemalloc.start()
    assert unpack(codec, data, absolute=4 << 20, floor=1 << 20) == Unpacked(b"", TOO_LARGE)
    assert tracemalloc.get_traced_memory()[1] < 12 << 20
    tracemalloc.stop()


def test_the_bound_follows_the_size() -> None:
    bounds = Bounds(absolute=1_000, ratio=10, floor=50)
    assert [bounds.of(n) for n in (0, 5, 6, 99, 100, 101, 10**9)] == [50, 50, 60, 990, 1_000, 1_000, 1_000]


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.sampled_from(sorted(DIALECTS)), st.data())
def test_damage_raises_nothing_and_is_bounded(name: str, data: Any) -> None:
    codec, compress, (magic, *_) = DIALECTS[name]
    packed = bytearray(compress(TEXT[:3_000]))
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    found = unpack(codec, bytes(packed), magic, absolute=10_000, floor=10_000)
    assert len(found.data) <= 10_000


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.integers(0, 7), st.integers(0, 2), st.binary(max_size=200))
def test_any_bytes_raise_nothing(codec: int, magic: int, data: bytes) -> None:
    for head in (b"", XERIAL, b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\0"):
        assert len(unpack(codec, head + data, magic, absolute=50_000).data) <= 50_000


@pytest.mark.parametrize("codec", [SNAPPY, LZ4])
def test_blocks_that_hold_next_to_nothing_are_no_work(codec: int) -> None:
    """A stream of very many tiny blocks is given up, in time and memory that do not depend on their number; one of
    blocks as small as writers make them is read."""
    if codec == SNAPPY:
        tiny, usual = snappy.compress(b"a"), snappy.compress(bytes(range(256)) * 4)
        head, order = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1), ">I"
    else:
        tiny = lz4.block.compress(b"a", store_size=False)
        usual = lz4.block.compress(bytes(range(256)) * 4, store_size=False)
        head, order = b"\x02\x21\x4c\x18", "<I"
    blocks = (struct.pack(order, len(tiny)) + tiny) * 300_000
    tracemalloc.start()
    found = unpack(codec, head + blocks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.problem == CORRUPT
    assert len(found.data) < 100_000
    assert peak < 3 * len(blocks)
    many = (struct.pack(order, len(usual)) + usual) * 4_000
    assert unpack(codec, head + many).data == bytes(range(256)) * 16_000
