"""Random valid Kafka messages and their bytes, from the schema's model and a separate encoder.

A value is what `tests.support.reference` decodes: dicts by field name, tagged fields only where they are
sent, unknown tags under `UNKNOWN_TAGS`. Bytes begin at the header's tag section, as `decode_message` takes them.
"""

from __future__ import annotations

import random
import struct as binary
from dataclasses import dataclass
from typing import Any

from kafkatap.dissector.layouts.schema import Field, MessageLayout, Struct
from tests.support.reference import UNKNOWN_TAGS

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: Bits of positive numbers; 47 bits of milliseconds are still a date.
_TAME_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 47}
_FORMATS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
_EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False, "float64": 0.0}
_SHORT_WORDS = ("", "orders", "größe", "a b", "host-1")
_WORDS = ("", "orders", "größe-ñ", "主题", "🦜 tape", "x" * 127, "y" * 300, "-")


@dataclass(frozen=True, slots=True)
class Repeated:
    """The value of an array: one element, so many times."""

    element: Any
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True)
class Taste:
    """The values of random messages. `tame`: values that any parser accepts, such as positive numbers and known codes.
    `short`: few elements, short texts and small numbers, for human readers."""

    nulls: bool = True
    unknown_tags: bool = True
    tame: bool = False
    short: bool = False


def generate_message(
    message: MessageLayout, version: int, seed: int | random.Random, taste: Taste | None = None
) -> tuple[bytes, dict[str, Any]]:
    """A random valid message of this version, the same for the same seed: (bytes, value)."""
    source = seed if isinstance(seed, random.Random) else random.Random(seed)
    maker = _Maker(source, version, version in message.flexible, taste or Taste())
    value = maker.struct(message.body, 0)
    header_tags = maker.unknown_tags() if message.has_header_tags(version) else []
    return encode_message(message, version, value, header_tags), value


def emptiest_message(message: MessageLayout, version: int) -> tuple[bytes, dict[str, Any]]:
    """The shortest message of this version: zeros, empty strings and arrays, null structs where allowed."""
    value = emptiest_value(message.body, version)
    return encode_message(message, version, value), value


def emptiest_value(struct: Struct, version: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for item in struct.fields:
        if version not in item.versions or version in item.tagged:
            continue
        if item.is_array:
            value[item.name] = []
        elif item.struct is not None:
            value[item.name] = None if version in item.nullable else emptiest_value(item.struct, version)
        else:
            value[item.name] = emptiest_element(item)
    return value


def emptiest_element(item: Field) -> Any:
    """The shortest value of a field, or of an element of its array."""
    return _EMPTY.get(item.type, 0)


def encode_message(
    message: MessageLayout, version: int, value: dict[str, Any], header_tags: list[tuple[int, bytes]] | None = None
) -> bytes:
    """The bytes of `value`, from the header's tag section on. KeyError when an untagged field is missing."""
    flexible = version in message.flexible
    head = _tags(dict(header_tags or ())) if message.has_header_tags(version) else b""
    return head + _encode_struct(message.body, version, flexible, value)


class _Maker:
    def __init__(self, source: random.Random, version: int, flexible: bool, taste: Taste) -> None:
        self.source, self.version, self.flexible, self.taste = source, version, flexible, taste

    def struct(self, struct: Struct, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for item in struct.fields:
            if self.version not in item.versions:
                continue
            if self.version in item.tagged and self.source.random() < 0.4:
                continue
            value[item.name] = self.field(item, depth)
        if self.flexible and (unknown := self.unknown_tags()):
            value[UNKNOWN_TAGS] = unknown
        return value

    def unknown_tags(self) -> list[tuple[int, bytes]]:
        if not self.taste.unknown_tags or self.source.random() < 0.85:
            return []
        tags = sorted(self.source.sample((100, 127, 128, 20_000, 2**31 - 1), self.source.randrange(1, 4)))
        return [(tag, self.source.randbytes(self.source.choice((0, 1, 9, 200)))) for tag in tags]

    def field(self, item: Field, depth: int) -> Any:
        if self.version in item.nullable and self.taste.nulls and self.source.random() < 0.3:
            return None
        if not item.is_array:
            return self.one(item, depth)
        if self.taste.short:
            return [self.one(item, depth + 1) for _ in range(self.source.choice((0, 1, 1, 2) if depth else (1, 1, 2)))]
        count = self.source.choice((0, 1, 1, 2, 3) if depth < 2 else (0, 1, 1, 2))
        if item.struct is None and self.source.random() < 0.05:
            count = 130  # as a varint, this count has two bytes
        return [self.one(item, depth + 1) for _ in range(count)]

    def one(self, item: Field, depth: int) -> Any:
        source = self.source
        if item.struct is not None:
            return self.struct(item.struct, depth)
        if item.type == "string":
            return source.choice(_SHORT_WORDS if self.taste.short else _WORDS)
        if item.type in ("bytes", "records"):
            return source.randbytes(source.choice((0, 1, 5) if self.taste.short else (0, 1, 5, 126, 127, 128, 300)))
        if item.type == "bool":
            return source.random() < 0.5
        if item.type == "uuid":
            return source.randbytes(16)
        if item.type == "float64":
            return source.uniform(-1e9, 1e9)
        if self.taste.short and self.source.random() < 0.8:
            return source.randrange(5)
        if self.taste.tame:
            return source.randrange(100) if item.role == "error_code" else source.getrandbits(_TAME_BITS[item.type])
        return self.integer(item.type)

    def integer(self, type_name: str) -> int:
        if type_name.startswith("uint"):
            bits = int(type_name[4:])
            return self.source.choice((0, 1, 2**bits - 1, self.source.getrandbits(bits)))
        low, high = -(2 ** (_BITS[type_name] - 1)), 2 ** (_BITS[type_name] - 1) - 1
        return self.source.choice((0, 1, -1, low, high, self.source.randint(low, high)))


def unsigned_varint(value: int) -> bytes:
    """Seven bits a byte, the least significant first, the top bit set on all but the last."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_struct(struct: Struct, version: int, flexible: bool, value: dict[str, Any]) -> bytes:
    out = []
    tags: dict[int, bytes] = {}
    for item in struct.fields:
        if version not in item.versions:
            continue
        if version not in item.tagged:
            out.append(_encode_field(item, version, flexible, value[item.name]))
        elif item.name in value:
            tags[item.tag] = _encode_field(item, version, flexible, value[item.name])
    if flexible:
        out.append(_tags(tags | dict(value.get(UNKNOWN_TAGS, ()))))
    return b"".join(out)


def _tags(tags: dict[int, bytes]) -> bytes:
    parts = [unsigned_varint(tag) + unsigned_varint(len(payload)) + payload for tag, payload in sorted(tags.items())]
    return unsigned_varint(len(parts)) + b"".join(parts)


def _encode_field(item: Field, version: int, flexible: bool, value: Any) -> bytes:
    compact = flexible and item.flexible
    if item.is_array:
        if value is None:
            return _length(None, 4, compact)
        if isinstance(value, Repeated):
            one = _encode_one(item, version, flexible, compact, value.element)
            return _length(len(value), 4, compact) + len(value) * one
        elements = [_encode_one(item, version, flexible, compact, element) for element in value]
        return _length(len(value), 4, compact) + b"".join(elements)
    if item.struct is not None and version in item.nullable:
        return b"\xff" if value is None else b"\x01" + _encode_struct(item.struct, version, flexible, value)
    return _encode_one(item, version, flexible, compact, value)


def _encode_one(item: Field, version: int, flexible: bool, compact: bool, value: Any) -> bytes:
    if item.struct is not None:
        return _encode_struct(item.struct, version, flexible, value)
    if item.type in ("string", "bytes", "records"):
        width = 2 if item.type == "string" else 4
        if value is None:
            return _length(None, width, compact)
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return _length(len(raw), width, compact) + raw
    if item.type == "bool":
        return b"\1" if value else b"\0"
    if item.type == "uuid":
        assert len(value) == 16
        return bytes(value)
    return binary.pack(_FORMATS[item.type], value)


def _length(length: int | None, width: int, compact: bool) -> bytes:
    """The length before a string (width 2), bytes or array (width 4); None for null."""
    if compact:
        return unsigned_varint(0 if length is None else length + 1)
    return (-1 if length is None else length).to_bytes(width, "big", signed=True)
