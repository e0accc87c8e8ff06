"""Decompression of record batches, with a limit on the size of the result.

Each codec is a generator of pieces, none of which exceeds the rest of the limit by more than one byte. `decompress`
joins them and stops above the limit. So the sizes that a batch declares are never trusted. The pieces before a failure
are kept, since their records can be read.

Dialects: gzip in several members or as bare zlib; snappy as one raw block or in xerial's framing (a magic, two
versions, then blocks with their sizes); lz4 frames, in message sets of magic 0 with a header checksum over too many
bytes (KIP-57), and the older legacy frames; zstd in several frames (KIP-110).

The libraries are imported by the first batch that needs them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Buffer = bytes | memoryview

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(len(CODECS))

DONE, CORRUPT, TOO_LARGE, UNKNOWN = range(4)

MIB = 1 << 20
#: Pieces begin small, as most batches are, and grow to this.
_LARGEST_PIECE = MIB
#: More gzip members than this are refused as an attack, and so are more snappy or lz4 blocks of fewer bytes than
#: _BLOCK on average. Real writers use 1 KiB and more.
_MEMBERS = 1_000
_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limit on the decompressed size of a batch: `ratio` times its size, at least `floor`, at most `absolute`."""

    absolute: int = 64 * MIB
    ratio: int = 4_096
    floor: int = 8 * MIB

    def of(self, size: int) -> int:
        return min(self.absolute, max(self.floor, self.ratio * size))


@dataclass(frozen=True, slots=True)
class Unpacked:
    """`data` is the decompressed part, also if `problem` is CORRUPT; empty if it is TOO_LARGE or UNKNOWN."""

    data: bytes | bytearray
    problem: int = DONE


class Corrupt(Exception):
    """The bytes are corrupt. Never leaves this module."""


def decompress(codec: int, magic: int, data: Buffer, bounds: Bounds) -> Unpacked:
    """Decompress a batch's records, or the value of a message of magic 0 or 1. It never raises."""
    unpack = _UNPACK.get(codec)
    if unpack is None:
        return Unpacked(b"", UNKNOWN)
    limit = bounds.of(len(data))
    found: bytes | bytearray = b""
    problem = DONE
    try:
        for piece in unpack(memoryview(data), magic, limit):
            if len(found) + len(piece) > limit:
                return Unpacked(b"", TOO_LARGE)
            if not found:
                found = piece
                continue
            if isinstance(found, bytes):
                found = bytearray(found)
            found += piece
    except Exception:  # five libraries with errors of their own; on hostile bytes any of them
        problem = CORRUPT
    return Unpacked(found, problem)


def _piece_sizes(first: int, limit: int) -> Iterator[int]:
    """The sizes of pieces to request: together one byte more than the limit."""
    size = max(4_096, min(4 * first, _LARGEST_PIECE))
    left = limit + 1
    while left > 0:
        yield min(size, left)
        left -= min(size, left)
        size = min(2 * size, _LARGEST_PIECE)


def _gzip(data: memoryview, magic: int, limit: int) -> Iterator[bytes]:
    import zlib

    left = limit + 1
    for _ in range(_MEMBERS):
        stream = zlib.decompressobj(wbits=47)  # a header of gzip or of zlib
        piece = stream.decompress(data, left)
        yield piece
        left -= len(piece)
        if left <= 0:
            return
        if not stream.eof:
            raise Corrupt
        rest = stream.unused_data
        if rest[:2] != b"\x1f\x8b":
            return
        data = data[len(data) - len(rest) :]
    raise Corrupt


_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
#: An element of three bytes copies 64: no block grows more than this.
_SNAPPY_RATIO = 22


def _snappy(data: memoryview, magic: int, limit: int) -> Iterator[bytes]:
    # A raw block never begins with these bytes: they would make it begin with a copy.
    if bytes(data[:8]) != _XERIAL:
        yield _snappy_block(data, limit)
        return
    at, left = 0, _MEMBERS + len(data) // _BLOCK
    while at < len(data):
        if bytes(data[at : at + 8]) == _XERIAL:  # also where one stream follows another
            if at + _XERIAL_HEADER > len(data):
                raise Corrupt
            at += _XERIAL_HEADER
            continue
        left -= 1
        if left < 0 or at + 4 > len(data):
            raise Corrupt
        (size,) = struct.unpack_from(">I", data, at)
        at += 4
        if size > len(data) - at:
            raise Corrupt
        if size:
            yield _snappy_block(data[at : at + size], limit)
        at += size


def _snappy_block(block: memoryview, limit: int) -> bytes:
    import snappy

    length = 0
    for k, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            break
    if length > _SNAPPY_RATIO * len(block):
        raise Corrupt
    if length > limit:
        return bytes(limit + 1)  # too large, without doing it
    done: bytes = snappy.uncompress(block)
    return done


_LZ4_MAGIC, _LZ4_LEGACY = b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18"
_LEGACY_BLOCK = 8 * MIB


_LZ4_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}


def _lz4(data: memoryview, magic: int, limit: int) -> Iterator[bytes]:
    import cramjam

    if bytes(data[:4]) == _LZ4_LEGACY:
        yield from _lz4_legacy(data, limit)
        return
    if magic == 0:
        data = _with_header_checksum(data)
    frame, most, is_whole = _lz4_frame(data)
    if most > limit:  # what its blocks could become
        room = np.empty(limit + 1, np.uint8)
        try:
            yield room[: cramjam.lz4.decompress_into(frame, room.data)].tobytes()
        except cramjam.DecompressionError as error:
            yield bytes(limit + 1) if "whole buffer" in str(error) else b""
            raise Corrupt from error
    else:
        reader = cramjam.lz4.Decompressor()
        try:
            reader.decompress(frame)
        except cramjam.DecompressionError as error:
            yield bytes(reader.flush())  # the blocks before
            raise Corrupt from error
        yield bytes(reader.flush())
    if not is_whole:
        raise Corrupt


def _lz4_frame(data: memoryview) -> tuple[bytes, int, bool]:
    """The frame without what follows it, what its blocks can become at most, and whether it is whole. One that was cut
    ends with its last whole block."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise Corrupt
    flags, size = data[4], _LZ4_SIZES.get(data[5] >> 4 & 7)
    first = at = _lz4_checksum_at(flags) + 1
    if size is None or at > len(data):
        raise Corrupt
    most, checks = 0, 4 if flags & 16 else 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from("<I", data, at)
        end = at + 4 + (length & 0x7FFFFFFF) + checks
        if not length:
            end = at + 4 + (4 if flags & 4 else 0)
            if end <= len(data):
                return bytes(data[:end]), most, True
            break
        if end > len(data):
            break
        most += size
        at = end
    head = bytes((flags & 0xF0, data[5]))  # neither its size nor a checksum of all
    check = bytes((xxh32(head) >> 8 & 0xFF,))
    return b"".join((_LZ4_MAGIC, head, check, data[first:at], bytes(4))), most, False


def _lz4_checksum_at(flags: int) -> int:
    """Where a frame's header has its checksum, the last byte: behind the size of the content and a dictionary's id."""
    return 6 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)


def _with_header_checksum(data: memoryview) -> memoryview:
    """The frame with a header checksum that lz4 accepts."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise Corrupt
    end = _lz4_checksum_at(data[4])
    if end >= len(data):
        raise Corrupt
    fixed = bytearray(data)
    fixed[end] = xxh32(bytes(data[4:end])) >> 8 & 0xFF
    return memoryview(fixed)


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0, of less than 16 bytes."""
    mask = 0xFFFFFFFF
    h = (374761393 + len(data)) & mask
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: 4 * words]):
        h = _rotated(h + word * 3266489917 & mask, 17) * 668265263 & mask
    for byte in data[4 * words :]:
        h = _rotated(h + byte * 374761393 & mask, 11) * 2654435761 & mask
    h = (h ^ h >> 15) * 2246822519 & mask
    h = (h ^ h >> 13) * 3266489917 & mask
    return h ^ h >> 16


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF


def _lz4_legacy(data: memoryview, limit: int) -> Iterator[bytes]:
    """Blocks with their sizes, each of at most 8 MiB when decompressed, to the end of the data."""
    import cramjam

    at, left = 4, _MEMBERS + len(data) // _BLOCK
    while at < len(data):
        left -= 1
        if left < 0:
            raise Corrupt
        if at + 4 > len(data):
            raise Corrupt
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if size > len(data) - at:
            raise Corrupt
        room = min(_LEGACY_BLOCK, 255 * size + 16)  # what so many bytes can become
        block = np.empty(room, np.uint8)
        done = cramjam.lz4.decompress_block_into(data[at : at + size], block.data, output_len=room)
        yield block[:done].tobytes()
        at += size


def _zstd(data: memoryview, magic: int, limit: int) -> Iterator[bytes]:
    reader = _zstd_context().stream_reader(data, read_across_frames=True)
    for size in _piece_sizes(len(data), limit):
        piece = reader.read(size)
        if not piece:
            return
        yield piece


_context: Any = None


def _zstd_context() -> Any:
    """One for all batches: to make one costs ten times what a small batch costs."""
    global _context
    if _context is None:
        import zstandard

        _context = zstandard.ZstdDecompressor()
    return _context


_UNPACK: dict[int, Callable[[memoryview, int, int], Iterator[bytes]]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
