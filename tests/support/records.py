"""Record batches of every version and codec, written with plain struct. Nothing here uses the product.

    batch([Record(b"k", b"v")], codec=ZSTD)                  magic 2
    message_set([Record(b"k", b"v")], magic=1, codec=GZIP)   magic 0 and 1: plain messages, or one compressed message

`DIALECTS` are all ways to compress. The keywords `crc`, `count` and `records` make wrong batches; so does cutting the
bytes.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import crc32c
import lz4.block
import lz4.frame
import snappy
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 8, 16, 32, 64

XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


@dataclass(frozen=True, slots=True)
class Record:
    """`timestamp` and `offset` are relative to the batch's."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """A zigzag varint of 64 bits."""
    rest = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))


def _with_length(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def encoded_record(record: Record, offset: int, base_timestamp: int = 0) -> bytes:
    """A record of magic 2."""
    body = b"\0" + varint(record.timestamp - base_timestamp) + varint(offset)
    body += _with_length(record.key) + _with_length(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += _with_length(key) + _with_length(value)
    return varint(len(body)) + body


def compressed(data: bytes, codec: int, magic: int = 2) -> bytes:
    """Compressed as by Kafka's clients: snappy in xerial's framing, lz4 with the wrong checksum of magic 0."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return xerial(data)
    if codec == LZ4:
        whole: bytes = lz4.frame.compress(data, content_checksum=False, store_size=False)
        return with_wrong_checksum(whole) if magic == 0 else whole
    if codec == ZSTD:
        return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    return data


def xerial(data: bytes, size: int = 100) -> bytes:
    """Snappy in xerial's framing, in blocks of this size."""
    blocks = [snappy.compress(data[at : at + size]) for at in range(0, len(data), size)]
    return XERIAL + b"".join(struct.pack(">I", len(block)) + block for block in blocks)


def with_wrong_checksum(frame: bytes) -> bytes:
    """An lz4 frame whose header checksum covers the magic number too (KIP-57)."""
    at = 6 + (8 if frame[4] & 8 else 0)
    return frame[:at] + bytes([frame[at] ^ 0x5A]) + frame[at + 1 :]


def batch(
    records: Sequence[Record] = (),
    codec: int = NONE,
    *,
    offset: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 7,
    max_timestamp: int | None = None,
    payload: bytes | None = None,
    count: int | None = None,
    crc: int | None = None,
) -> bytes:
    """A batch of magic 2. `payload` replaces the records' bytes, compressed or not."""
    first = records[0].timestamp if records else 0
    if payload is None:
        plain = b"".join(encoded_record(record, n, first) for n, record in enumerate(records))
        payload = compressed(plain, codec)
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=0)
    number = len(records) if count is None else count
    rest = (
        struct.pack(">hiqqqhii", attributes | codec, max(len(records) - 1, 0), first, max_timestamp, *producer, number)
        + payload
    )
    checksum = crc32c.crc32c(rest) if crc is None else crc
    return struct.pack(">qiibI", offset, 9 + len(rest), leader_epoch, 2, checksum) + rest


def message(record: Record, magic: int, *, offset: int = 0, attributes: int = 0, crc: int | None = None) -> bytes:
    """One message of magic 0 or 1."""
    rest = struct.pack(">bb", magic, attributes)
    if magic == 1:
        rest += struct.pack(">q", record.timestamp)
    for part in (record.key, record.value):
        rest += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    checksum = zlib.crc32(rest) if crc is None else crc
    return struct.pack(">qiI", offset, 4 + len(rest), checksum) + rest


def message_set(
    records: Sequence[Record],
    magic: int,
    codec: int = NONE,
    *,
    offset: int = 0,
    attributes: int = 0,
    wrapper_offset: int | None = None,
    timestamp: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """Messages of magic 0 or 1. With a codec they lie in one wrapper message, whose offset is that of the last one, or
    `wrapper_offset`. With magic 1 the offsets inside count from 0."""
    if codec == NONE:
        return b"".join(
            message(record, magic, offset=offset + n, attributes=attributes) for n, record in enumerate(records)
        )
    first = 0 if magic == 1 else offset
    inner = b"".join(message(record, magic, offset=first + n) for n, record in enumerate(records))
    value = compressed(inner, codec, magic) if payload is None else payload
    last = offset + len(records) - 1 if wrapper_offset is None else wrapper_offset
    return message(Record(None, value, timestamp), magic, offset=last, attributes=attributes | codec)


def lz4_frame(data: bytes, **options: Any) -> bytes:
    whole: bytes = lz4.frame.compress(data, **options)
    return whole


def lz4_legacy(data: bytes) -> bytes:
    blocks = [lz4.block.compress(data[at : at + 4096], store_size=False) for at in range(0, len(data), 4096)]
    return b"\x02\x21\x4c\x18" + b"".join(struct.pack("<I", len(block)) + block for block in blocks)


def _gzip_named(data: bytes) -> bytes:
    file = io.BytesIO()
    with gzip.GzipFile("a name", "wb", fileobj=file, mtime=5) as packer:
        packer.write(data)
    return file.getvalue()


_EVERY, _OLDEST, _NEWEST = (2, 1, 0), (0,), (2,)
#: Every way to compress that readers accept: the codec, the function, and the magics that have it.
DIALECTS: dict[str, tuple[int, Callable[[bytes], bytes], tuple[int, ...]]] = {
    "gzip": (GZIP, gzip.compress, _EVERY),
    "gzip with a file name": (GZIP, _gzip_named, _EVERY),
    "gzip that only stores": (GZIP, lambda d: gzip.compress(d, 0), _EVERY),
    "gzip in members": (GZIP, lambda d: gzip.compress(d[:9]) + gzip.compress(b"") + gzip.compress(d[9:]), _EVERY),
    "gzip with something behind": (GZIP, lambda d: gzip.compress(d) + bytes(8), _EVERY),
    "zlib": (GZIP, zlib.compress, _EVERY),
    "snappy": (SNAPPY, snappy.compress, _EVERY),
    "xerial": (SNAPPY, xerial, _EVERY),
    "xerial, one block": (SNAPPY, lambda d: xerial(d, 1 << 30), _EVERY),
    "xerial of version 2": (SNAPPY, lambda d: XERIAL[:8] + struct.pack(">ii", 2, 2) + xerial(d)[16:], _EVERY),
    "xerial in streams": (SNAPPY, lambda d: xerial(d[:700]) + xerial(d[700:]), _EVERY),
    "xerial with empty blocks": (SNAPPY, lambda d: XERIAL + bytes(4) + xerial(d)[16:] + bytes(8), _EVERY),
    "lz4": (LZ4, lz4_frame, _EVERY),
    "lz4, linked blocks": (LZ4, lambda d: lz4_frame(d, block_linked=True, block_size=4), _EVERY),
    "lz4, independent blocks": (LZ4, lambda d: lz4_frame(d, block_linked=False, block_size=4), _EVERY),
    "lz4, all checksums": (LZ4, lambda d: lz4_frame(d, content_checksum=True, block_checksum=True), _EVERY),
    "lz4 without a size": (LZ4, lambda d: lz4_frame(d, store_size=False), _EVERY),
    "lz4 of magic 0": (LZ4, lambda d: with_wrong_checksum(lz4_frame(d, store_size=False)), _OLDEST),
    "lz4 of magic 0 with a size": (LZ4, lambda d: with_wrong_checksum(lz4_frame(d)), _OLDEST),
    "lz4 legacy": (LZ4, lz4_legacy, _EVERY[::-1]),
    "zstd": (ZSTD, zstandard.compress, _NEWEST),
    "zstd without a size": (ZSTD, lambda d: compressed(d, ZSTD), _NEWEST),
    "zstd with a checksum": (ZSTD, lambda d: zstandard.ZstdCompressor(write_checksum=True).compress(d), _NEWEST),
    "zstd in frames": (ZSTD, lambda d: zstandard.compress(d[:9]) + zstandard.compress(d[9:]), _NEWEST),
    "zstd behind a skippable frame": (
        ZSTD, lambda d: struct.pack("<II", 0x184D2A50, 5) + b"hello" + zstandard.compress(d), _NEWEST,
    ),
}  # fmt: skip
