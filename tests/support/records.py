"""Record batches of every version and codec, written with plain struct. Nothing here uses the product.

    batch([Record(b"k", b"v")], codec=ZSTD)                  magic 2
    message_set([Record(b"k", b"v")], magic=1, codec=GZIP)   magic 0 and 1: plain messages, or one compressed message

The keywords `crc`, `count` and `records` make wrong batches; so does cutting the bytes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c
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
