"""The reference decoder: slow and obvious, it walks the layout field by field. Tests compare the machine with it.

A value is a dict of field name → value for the fields that the version has (a tagged field only when it was there):
int, bool, float, str (UTF-8; other bytes kept as surrogates), bytes (also for uuid, 16 of them), None, list, dict.
Unknown tags are kept under `UNKNOWN_TAGS` as (tag, bytes).

What is malformed, the same for the machine:
- a read past the end of the message, or past the end of the tag that it lies in; bytes left over in a known tag;
- a length or count below -1; a varint of more than five bytes or above 2^32 - 1;
- a count of elements that, each as short as it can be, would not fit into the bytes left (so no loop outruns its data);
- the same for the number of tags, of which each takes at least two bytes.
A null where the schema forbids one is decoded as None and counted; only `strict` makes it malformed. A nullable struct
is null when the byte before it is negative, else present. Bytes left after a whole message are `trailing`.
"""

from __future__ import annotations

import struct as binary
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kafkatap.dissector.dtypes import INCOMPLETE, MALFORMED, OK, TRAILING_BYTES, UNKNOWN_API, UNKNOWN_VERSION
from kafkatap.dissector.layouts.schema import FIXED_WIDTHS, REQUEST, RESPONSE, Field, MessageLayout, Struct

#: The key of a dict under which tags that the schema does not know are kept: list of (tag, bytes).
UNKNOWN_TAGS = "unknown tags"

_FORMATS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
_APIVERSIONS = 18
_UNSUPPORTED_VERSION = 35


@dataclass(slots=True)
class Decoded:
    """What came of one message. `status` is one of `rows.STATUSES` by number.

    `value`: the body, as far as it was read; `header_tags`: the unknown tags of a flexible header. `error`, `path`
    ("Topics[3].Partitions[0].Records") and `offset` (bytes from the start of the data) say where and why decoding
    stopped. `nulls`: how many nulls stood where the schema forbids them; `trailing`: bytes after the body.
    """

    status: int = OK
    value: dict[str, Any] = field(default_factory=dict)
    header_tags: list[tuple[int, bytes]] = field(default_factory=list)
    error: str = ""
    path: str = ""
    offset: int = -1
    nulls: int = 0
    trailing: int = 0


@dataclass(slots=True)
class DecodedFrame:
    """A frame without its size field: the header's fields, and the message. `api_version` is the one decoded with."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    message: Decoded


#: What was read, by names and indices from the top (`("Topics", "[0]", "Name")`, `("tag 7",)`), and its bytes: from
#: where, to where in the data. A tagged field's begin with its tag's number.
Traced = tuple[tuple[str, ...], int, int]


def decode_message(
    message: MessageLayout,
    version: int,
    data: bytes,
    *,
    strict: bool = False,
    missing: int = 0,
    header_tags: bool = True,
    trace: list[Traced] | None = None,
) -> Decoded:
    """One message from where its header's tag section begins: after a request's client_id, a response's correlation_id.

    `missing` bytes of the frame were not captured after `data`: running into them is `incomplete`, not malformed.
    With `header_tags` False, `data` begins with the body itself. `trace` is given every field, element and tag that was
    read whole, those inside before those around them.
    """
    decoded = Decoded()
    if version not in message.versions:
        decoded.status = UNKNOWN_VERSION
        return decoded
    reader = _Reader(data, len(data) + missing)
    walk = _Walk(reader, version, version in message.flexible, strict, decoded, trace)
    try:
        if header_tags and message.has_header_tags(version):
            walk.path.append("header tags")
            decoded.header_tags = walk.tag_section({}, {})
            walk.path.pop()
        walk.struct(message.body, decoded.value)
    except _StopError as stop:
        decoded.status, decoded.error, decoded.offset = stop.status, str(stop), reader.position
        decoded.path = ".".join(walk.path).replace(".[", "[")
        return decoded
    decoded.trailing = reader.limit - reader.position
    decoded.status = TRAILING_BYTES if decoded.trailing else OK
    return decoded


def decode_request(
    messages: Mapping[tuple[int, int], MessageLayout], frame: bytes, *, strict: bool = False
) -> DecodedFrame:
    """A request frame (without its size field), header and body. ValueError when the header itself is cut short."""
    reader = _Reader(frame, len(frame))
    try:
        api_key, version, correlation_id = (reader.fixed(name) for name in ("int16", "int16", "int32"))
        message = messages.get((api_key, REQUEST))
        client_id = None
        if message is None or message.header_version(version) > 0:
            length = reader.fixed("int16")
            client_id = None if length < 0 else _text(reader.take(length))
    except _StopError as stop:
        raise ValueError(f"the request's header is cut short: {stop}") from None
    if message is None:
        return DecodedFrame(api_key, version, correlation_id, client_id, Decoded(UNKNOWN_API))
    decoded = decode_message(message, version, frame[reader.position :], strict=strict)
    return DecodedFrame(api_key, version, correlation_id, client_id, decoded)


def decode_response(message: MessageLayout, version: int, frame: bytes, *, strict: bool = False) -> DecodedFrame:
    """A response frame (without its size field) to a request of this version. ValueError when it has no whole header.

    An ApiVersions response with UNSUPPORTED_VERSION is in the format of version 0, whatever was asked (KIP-511).
    """
    if len(frame) < 4:
        raise ValueError("the response's header is cut short")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    error = int.from_bytes(frame[4:6], "big", signed=True)
    if message.api_key == _APIVERSIONS and message.direction == RESPONSE and error == _UNSUPPORTED_VERSION:
        version = 0
    decoded = decode_message(message, version, frame[4:], strict=strict)
    return DecodedFrame(message.api_key, version, correlation_id, None, decoded)


class _StopError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Reader:
    """Bounded reads. `limit` is the end of what may be read: of the frame, or of the tag within it."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.data, self.limit, self.position = data, limit, 0

    def left(self) -> int:
        return self.limit - self.position

    def take(self, size: int) -> bytes:
        if size > self.left():
            raise _StopError(MALFORMED, f"{size} bytes expected, {self.left()} left")
        if self.position + size > len(self.data):
            raise _StopError(INCOMPLETE, f"{size} bytes expected, {len(self.data) - self.position} captured")
        self.position += size
        return self.data[self.position - size : self.position]

    def fixed(self, type_name: str) -> Any:  # int, bool, float or bytes
        raw = self.take(FIXED_WIDTHS[type_name])
        if type_name == "bool":
            return raw != b"\0"
        if type_name == "uuid":
            return raw
        return binary.unpack(_FORMATS[type_name], raw)[0]

    def unsigned_varint(self) -> int:
        start, value = self.position, 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 2**32:
                    break
                return value
        self.position = start
        raise _StopError(MALFORMED, "a varint that does not fit into 32 bits")


class _Walk:
    """One walk over a schema in one version."""

    def __init__(
        self, reader: _Reader, version: int, flexible: bool, strict: bool, decoded: Decoded, trace: list[Traced] | None
    ) -> None:
        self.reader, self.version, self.flexible, self.strict, self.decoded = reader, version, flexible, strict, decoded
        self.trace = trace
        self.path: list[str] = []

    def note(self, start: int) -> None:
        """What the path leads to was read, from `start` to here."""
        if self.trace is not None:
            self.trace.append((tuple(self.path), start, self.reader.position))

    def struct(self, struct: Struct, value: dict[str, Any]) -> dict[str, Any]:
        """Reads into `value`, so that what was read before an error is kept."""
        tagged: dict[int, Field] = {}
        for item in struct.fields:
            if self.version in item.versions:
                if self.version in item.tagged:
                    tagged[item.tag] = item
                else:
                    self.path.append(item.name)
                    start = self.reader.position
                    self.field(item, value)
                    self.note(start)
                    self.path.pop()
        if self.flexible:
            self.path.append("tags")
            unknown = self.tag_section(tagged, value)
            self.path.pop()
            if unknown:
                value[UNKNOWN_TAGS] = unknown
        return value

    def tag_section(self, tagged: dict[int, Field], value: dict[str, Any]) -> list[tuple[int, bytes]]:
        reader = self.reader
        unknown: list[tuple[int, bytes]] = []
        section = self.path[-1]
        for _ in range(self.count(reader.unsigned_varint(), 2)):
            start = reader.position
            tag, size = reader.unsigned_varint(), reader.unsigned_varint()
            if size > reader.left():
                raise _StopError(MALFORMED, f"tag {tag} of {size} bytes, {reader.left()} left")
            if tag not in tagged:
                unknown.append((tag, reader.take(size)))
                self.path[-1] = f"tag {tag}"
                self.note(start)
                self.path[-1] = section
                continue
            outer, reader.limit = reader.limit, reader.position + size
            self.path[-1] = tagged[tag].name
            self.field(tagged[tag], value)
            if reader.left():
                raise _StopError(MALFORMED, f"{reader.left()} bytes left over in the tag")
            self.note(start)
            self.path[-1] = section
            reader.limit = outer
        return unknown

    def field(self, item: Field, value: dict[str, Any]) -> None:
        """Reads one field into `value[item.name]`."""
        nullable = self.version in item.nullable
        if item.is_array:
            self.array(item, nullable, value)
        elif item.struct is None:
            value[item.name] = self.scalar(item, nullable)
        elif nullable and self.reader.fixed("int8") < 0:
            value[item.name] = None
        else:
            value[item.name] = {}
            self.struct(item.struct, value[item.name])

    def array(self, item: Field, nullable: bool, value: dict[str, Any]) -> None:
        count = self.length("int32", item.flexible, nullable)
        if count is None:
            value[item.name] = None
            return
        self.count(count, least_element(item, self.version, self.flexible))
        elements: list[Any] = []
        value[item.name] = elements
        for index in range(count):
            self.path.append(f"[{index}]")
            start = self.reader.position
            if item.struct is None:
                elements.append(self.scalar(item, nullable=False))
            else:
                elements.append({})
                self.struct(item.struct, elements[-1])
            self.note(start)
            self.path.pop()

    def scalar(self, item: Field, nullable: bool) -> Any:
        """One value of the field's type: itself, or an element of its array."""
        if item.type in FIXED_WIDTHS:
            return self.reader.fixed(item.type)
        length = self.length("int16" if item.type == "string" else "int32", item.flexible, nullable)
        if length is None:
            return None
        raw = self.reader.take(length)
        return _text(raw) if item.type == "string" else raw

    def length(self, prefix: str, flexible: bool, nullable: bool) -> int | None:
        """The length or count before a string, bytes or array; None for null."""
        reader = self.reader
        start = reader.position
        length = reader.unsigned_varint() - 1 if self.flexible and flexible else reader.fixed(prefix)
        if length >= 0:
            return int(length)
        reason = f"a length of {length}"
        if length == -1:
            if nullable:
                return None
            self.decoded.nulls += 1
            if not self.strict:
                return None
            reason = "null where it is not allowed"
        reader.position = start
        raise _StopError(MALFORMED, reason)

    def count(self, count: int, least: int) -> int:
        if count * least > self.reader.left():
            raise _StopError(MALFORMED, f"{count} elements of at least {least} bytes, {self.reader.left()} bytes left")
        return count


@cache
def least_element(item: Field, version: int, flexible: bool) -> int:
    """The least number of bytes that one value of this field takes: an element's, if the field is an array."""
    if item.struct is not None:
        return least_struct(item.struct, version, flexible)
    if item.type in FIXED_WIDTHS:
        return FIXED_WIDTHS[item.type]
    if flexible and item.flexible:
        return 1
    return 2 if item.type == "string" else 4


@cache
def least_struct(struct: Struct, version: int, flexible: bool) -> int:
    """The least number of bytes that a struct takes, its tag section included."""
    least = int(flexible)
    for item in struct.fields:
        if version not in item.versions or version in item.tagged:
            continue
        if item.is_array:
            least += 1 if flexible and item.flexible else 4
        elif item.struct is not None and version in item.nullable:
            least += 1
        else:
            least += least_element(item, version, flexible)
    return least


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
