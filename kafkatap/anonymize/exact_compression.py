"""Compression into exactly a given number of bytes, so that a batch keeps its compressed and its decompressed size.

Each codec allows a stream whose first bytes are stored and whose others are compressed. The more are stored, the longer
it gets. `recompressed` searches the split that has the wanted size. Where sizes jump, paddings that a codec allows fill
the last bytes: a file name in a gzip header, empty blocks and a dictionary id of 0 in zstd, shorter literals in snappy,
a content size and more blocks in lz4.

Formats: RFC 1951, 1952, 8878; the format descriptions of snappy and lz4.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial

from kafkatap.dissector.records.codecs import GZIP, LZ4, SNAPPY, ZSTD, xxh32

#: Makes a stream of `data` whose first `stored` bytes are stored, with `padding` more bytes than without; None if it
#: cannot have so many.
_Encode = Callable[[bytes, int, int], bytes | None]
_TRIES, _NEAR = 12, 24
_XERIAL, _XERIAL_HEADER = b"\x82SNAPPY\x00", 16
#: The version that all of its implementations write, and the one it is compatible with.
_XERIAL_VERSIONS = b"\0\0\0\1\0\0\0\1"


def recompressed(codec: int, magic: int, old: bytes, data: bytes) -> bytes | None:
    """A stream of `data` with as many bytes as `old`, the original stream; None if there is none."""
    if codec == SNAPPY and old.startswith(_XERIAL):
        return _xerial(old, data)
    if codec == LZ4 and magic == 0:
        return _fitted(partial(_lz4, kafka_0_8=True), data, len(old))
    encode = _ENCODERS.get(codec)
    return None if encode is None else _fitted(encode, data, len(old))


def _fitted(encode: _Encode, data: bytes, size: int) -> bytes | None:
    stored, tried = 0, set()
    for _ in range(_TRIES):
        if stored in tried:
            break
        tried.add(stored)
        made = encode(data, stored, 0)
        missing = size - len(made or b"")
        if missing < 0 and not stored:
            break
        found = made if not missing else _padded(encode, data, stored, missing, size, len(data))
        if found is not None:
            return found
        stored = min(max(stored + missing, 0), len(data))
    around = sorted({*range(max(stored - _NEAR, 0), min(stored + _NEAR, len(data)) + 1), len(data)})
    for stored in around:
        made = encode(data, stored, 0)
        missing = size - len(made or b"")
        found = made if not missing else _padded(encode, data, stored, missing, size, 0)
        if found is not None:
            return found
    return None


def _padded(encode: _Encode, data: bytes, stored: int, missing: int, size: int, most: int) -> bytes | None:
    """The stream with a padding, unless more could be stored in place of most of it."""
    if missing <= 0 or (stored < most and missing > _NEAR):
        return None
    made = encode(data, stored, missing)
    return made if made is not None and len(made) == size else None


def _gzip(data: bytes, stored: int, padding: int) -> bytes | None:
    name = b"x" * (padding - 1) + b"\0" if padding else b""
    parts = [b"\x1f\x8b\x08", b"\x08" if padding else b"\0", bytes(4), b"\0\xff", name]
    for at in range(0, stored, 65_535):
        piece = data[at : min(at + 65_535, stored)]
        parts += [struct.pack("<BHH", 0, len(piece), len(piece) ^ 0xFFFF), piece]
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    parts += [packer.compress(data[stored:]), packer.flush()]
    parts.append(struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF))
    return b"".join(parts)


_ZSTD_BLOCK, _ZSTD_WINDOW = 1 << 17, 17


def _zstd(data: bytes, stored: int, padding: int) -> bytes | None:
    import zstandard

    exponent = max(_ZSTD_WINDOW, len(data).bit_length()) - 10
    empty, dictionary = divmod(padding, 3)
    parts = [b"\x28\xb5\x2f\xfd", bytes((dictionary,)), bytes((exponent << 3,)), bytes(dictionary)]
    parts.append(bytes(3 * empty))
    for at in range(0, stored, _ZSTD_BLOCK):
        piece = data[at : min(at + _ZSTD_BLOCK, stored)]
        parts += [(len(piece) << 3).to_bytes(3, "little"), piece]
    if stored == len(data):
        parts.append(b"\1\0\0")
        return b"".join(parts)
    packed = zstandard.ZstdCompressor(level=9, write_content_size=False, write_checksum=False).compress(data[stored:])
    parameters = zstandard.frame_header_size(packed)
    return b"".join((*parts, packed[parameters:]))


#: The size of blocks that all clients of Kafka use, and its number in a header.
_LZ4_BLOCK, _LZ4_KIND = 1 << 16, 4


def _lz4_packed(piece: bytes) -> bytes:
    """A block of up to 64 KiB: the first of a frame, after a header of seven bytes and its length. (The function of
    cramjam for blocks does not compress well, whatever its level.)"""
    import cramjam

    frame = bytes(cramjam.lz4.compress(piece, level=9))
    length = int.from_bytes(frame[7:11], "little")
    return piece if length >> 31 else frame[11 : 11 + length]


def _lz4(data: bytes, stored: int, padding: int, kafka_0_8: bool = False) -> bytes | None:
    has_size = padding >= 8
    more, rest = divmod(padding - 8 * has_size, 4)
    if rest or more >= max(stored, 1):
        return None
    most = _LZ4_BLOCK
    head = bytes((0x68 if has_size else 0x60, _LZ4_KIND << 4)) + (len(data).to_bytes(8, "little") if has_size else b"")
    magic = b"\x04\x22\x4d\x18"
    if kafka_0_8:
        head = head[:2]
        if has_size:
            return None
    check = xxh32((magic + head if kafka_0_8 else head)[:15]) >> 8 & 0xFF
    parts = [magic, head, bytes((check,))]
    ends = [*range(1, more + 1), *range(more + most, stored, most), stored] if stored else []
    at = 0
    for end in ends:
        parts += [(end - at | 1 << 31).to_bytes(4, "little"), data[at:end]]
        at = end
    for at in range(stored, len(data), most):
        piece = data[at : at + most]
        packed = _lz4_packed(piece)
        if len(packed) < len(piece):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(piece) | 1 << 31).to_bytes(4, "little"), piece]
    parts.append(bytes(4))
    return b"".join(parts)


def _snappy(data: bytes, stored: int, padding: int) -> bytes | None:
    import snappy

    if padding > stored:
        return None
    parts = [_varint(len(data))]
    parts += [b"\0" + data[at : at + 1] for at in range(padding)]
    for at in range(padding, stored, 65_536):
        piece = data[at : min(at + 65_536, stored)]
        parts += [_literal(len(piece)), piece]
    if stored < len(data):
        packed = snappy.compress(data[stored:])
        parts.append(packed[len(_varint(len(data) - stored)) :])
    return b"".join(parts)


def _literal(size: int) -> bytes:
    """The tag of a literal of `size` bytes."""
    size -= 1
    if size < 60:
        return bytes((size << 2,))
    return bytes((60 << 2, size)) if size < 256 else bytes((61 << 2, size & 255, size >> 8))


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _xerial(old: bytes, data: bytes) -> bytes | None:
    """Snappy in xerial's framing: each block anew, in as many bytes as before."""
    made, at, place = bytearray(), 0, 0
    while at < len(old):
        if old.startswith(_XERIAL, at):
            made += (_XERIAL + _XERIAL_VERSIONS)[: len(old) - at]
            at += _XERIAL_HEADER
            continue
        size = int.from_bytes(old[at : at + 4], "big")
        block = old[at + 4 : at + 4 + size]
        length = 0
        for k, byte in enumerate(block[:5]):
            length |= (byte & 127) << 7 * k
            if byte < 128:
                break
        packed = _fitted(_snappy, data[place : place + length], size) if size else b""
        if packed is None or len(block) != size:
            return None
        made += old[at : at + 4] + packed
        at, place = at + 4 + size, place + length
    return bytes(made) if place == len(data) and len(made) == len(old) else None


_ENCODERS: dict[int, _Encode] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
