"""Random messages of Kafka's message definitions, with the JSON that `show --json` has to make of them.

The definitions (JSON with comments) and KIP-482 alone say what their bytes are. Nothing here uses the product or its
schema, as `tests.support.messages` does, so these messages check the layouts too.

Names of values (`<Field>_name`) are left out. Records are random record batches, of which only the size is expected.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .captures import pcap_bytes
from .messages import unsigned_varint
from .records import Record, batch
from .tcp import Endpoint, TcpConversation, encode, frame

Json = dict[str, Any]
CLIENT_ID = "random"
ENVELOPE, PRODUCE, CONTROLLED_SHUTDOWN, API_VERSIONS = 58, 0, 7, 18

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_FORMATS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q"}
#: Extreme numbers and their JSON, which has no numbers that are not finite.
_FLOATS = {0.0: 0.0, -2.25: -2.25, 1e300: 1e300, math.nan: "NaN", math.inf: "Infinity", -math.inf: "-Infinity"}
_TEXTS = ("", "é漢字😀", "x" * 126, "x" * 127, "y" * 16_383, 'quoted "\\\t\x1b\x00')
#: Tags that no definition has.
_TAGS = (5_000, 2**14, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Message:
    """A frame without its size field, and the `header` and `body` that are expected of it."""

    frame: bytes
    header: Json
    body: Json


@dataclass(frozen=True, slots=True)
class Exchange:
    api_key: int
    version: int
    request: Message
    response: Message


def read_definitions(folder: Path) -> list[tuple[Json, Json]]:
    """The definitions of each request and its response, by api key."""
    found: dict[int, dict[str, Json]] = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        definition = json.loads(_COMMENT.sub(lambda match: match[1] or "", path.read_text(encoding="utf-8")))
        if "apiKey" in definition:
            found[definition["apiKey"]][definition["type"]] = definition
    return [(found[key]["request"], found[key]["response"]) for key in sorted(found)]


def random_exchanges(definitions: Sequence[tuple[Json, Json]], seed: int) -> Iterator[Exchange]:
    """Two exchanges of each version: one of usual values, one of nulls, empty values, extremes and unknown tags."""
    source = random.Random(seed)
    inner = None
    for request, response in definitions:
        low, high = _range(request["validVersions"])
        for version in range(low, high + 1):
            for is_extreme in (False, True):
                made = _exchange((request, response), version, source, is_extreme, inner)
                yield made
                inner = made if made.api_key != ENVELOPE else inner


def write_exchanges(path: Path, exchanges: Sequence[Exchange]) -> dict[str, Exchange]:
    """Write a capture with a connection for each exchange; the exchanges by their clients."""
    packets, clients = [], {}
    for number, exchange in enumerate(exchanges):
        client: Endpoint = (f"10.1.{number >> 8}.{number & 255}", 40_000)
        talk = TcpConversation(client, ("10.0.0.2", 9_092))
        talk.open()
        talk.client(frame(exchange.request.frame))
        talk.server(frame(exchange.response.frame))
        talk.close()
        packets += encode(talk.segments)
        clients[f"{client[0]}:{client[1]}"] = exchange
    path.write_bytes(pcap_bytes(packets))
    return clients


def _exchange(
    definitions: tuple[Json, Json], version: int, source: random.Random, is_extreme: bool, inner: Exchange | None
) -> Exchange:
    request, response = definitions
    key, correlation_id = request["apiKey"], source.randrange(-(2**31), 2**31)
    head = struct.pack(">hhi", key, version, correlation_id)
    header: Json = {"ApiKey": key, "ApiVersion": version, "CorrelationId": correlation_id}
    if (key, version) != (CONTROLLED_SHUTDOWN, 0):
        head += struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID.encode()
        header["ClientId"] = CLIENT_ID
    ask = _Maker(request, version, source, is_extreme, inner.request if inner else None)
    answer = _Maker(response, version, source, is_extreme, inner.response if inner else None)
    return Exchange(
        key,
        version,
        ask.message(head, header, ask.is_flexible),
        answer.message(head[4:8], {"CorrelationId": correlation_id}, answer.is_flexible and key != API_VERSIONS),
    )


def _range(versions: str) -> tuple[int, int]:
    """`3+`, `3-5`, `3` or `none` as the lowest and highest version."""
    if versions == "none":
        return 1, 0
    low, _, high = versions.rstrip("+").partition("-")
    return int(low), 2**15 if versions.endswith("+") else int(high or low)


def _as_json(raw: bytes) -> Json:
    return {"base64": base64.b64encode(raw).decode(), "size": len(raw)}


class _Maker:
    """Makes a message of a definition in one version: the bytes and the expected JSON of each part.

    `inner`: what an Envelope contains."""

    def __init__(
        self, definition: Json, version: int, source: random.Random, is_extreme: bool, inner: Message | None
    ) -> None:
        self.definition, self.version, self.source, self.is_extreme = definition, version, source, is_extreme
        self.inner = inner if definition["apiKey"] == ENVELOPE else None
        self.is_flexible = self.has(definition, "flexibleVersions")
        self.shared = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}

    def has(self, item: Json, kind: str) -> bool:
        """Whether this version is among the `kind` of versions of an item."""
        low, high = _range(item.get(kind, "none"))
        return low <= self.version <= high

    def message(self, head: bytes, header: Json, has_tags: bool) -> Message:
        tags = self.tags({}, header) if has_tags else b""
        body, value = self.struct(self.definition["fields"], 0)
        return Message(head + tags + body, header, value)

    def tags(self, known: dict[int, bytes], value: Json) -> bytes:
        """A tag section, some with an unknown tag."""
        tags = dict(known)
        if self.is_extreme and self.source.random() < 0.2:
            tag, raw = self.source.choice(_TAGS), self.source.randbytes(self.source.choice((0, 1, 9, 200)))
            tags[tag] = raw
            value["_unknown_tags"] = [{"tag": tag, **_as_json(raw)}]
        parts = [unsigned_varint(tag) + unsigned_varint(len(raw)) + raw for tag, raw in sorted(tags.items())]
        return unsigned_varint(len(parts)) + b"".join(parts)

    def struct(self, fields: Sequence[Json], depth: int) -> tuple[bytes, Json]:
        parts, tags, value = [], {}, {}
        for field in fields:
            is_tagged = self.has(field, "taggedVersions")
            if not self.has(field, "versions") or (is_tagged and self.source.random() < 0.3):
                continue
            data, value[field["name"]] = self.field(field, depth)
            if is_tagged:
                tags[int(field["tag"])] = data
            else:
                parts.append(data)
        return b"".join(parts) + (self.tags(tags, value) if self.is_flexible else b""), value

    def field(self, field: Json, depth: int) -> tuple[bytes, Any]:
        type_name = field["type"]
        is_compact = self.is_flexible and field.get("flexibleVersions") != "none"
        may_be_null = self.has(field, "nullableVersions")
        is_null = may_be_null and self.is_extreme and self.source.random() < 0.3
        if not type_name.startswith("[]"):
            return self.one(field, type_name, depth, is_compact, may_be_null, is_null)
        if is_null:
            return self.length(None, ">i", is_compact), None
        count = self.source.randint(0, 3 if depth < 3 else 1) if self.is_extreme else self.source.randint(1, 2)
        items = [self.one(field, type_name[2:], depth + 1, is_compact) for _ in range(count)]
        return self.length(count, ">i", is_compact) + b"".join(data for data, _ in items), [item for _, item in items]

    def one(
        self, field: Json, type_name: str, depth: int, is_compact: bool, may_be_null: bool = False,
        is_null: bool = False,
    ) -> tuple[bytes, Any]:  # fmt: skip
        """A value that is no array: a field's, or an element of its array."""
        if type_name in ("string", "bytes", "records"):
            raw, value = (b"", None) if is_null else self.variable(field["name"], type_name)
            form = ">h" if type_name == "string" else ">i"
            return self.length(None if is_null else len(raw), form, is_compact) + raw, value
        if type_name[0].isupper():
            if is_null:
                return b"\xff", None
            data, value = self.struct(field.get("fields") or self.shared[type_name], depth)
            return (b"\1" if may_be_null else b"") + data, value
        return self.fixed(field["name"], type_name)

    @staticmethod
    def length(length: int | None, form: str, is_compact: bool) -> bytes:
        """The length before a value; None for null."""
        if is_compact:
            return unsigned_varint(0 if length is None else length + 1)
        return struct.pack(form, -1 if length is None else length)

    def variable(self, name: str, type_name: str) -> tuple[bytes, Any]:
        source = self.source
        if type_name == "string":
            is_odd = self.is_extreme and source.random() < 0.2
            text = source.choice(_TEXTS) if is_odd else source.randbytes(source.randint(1, 9)).hex()
            return text.encode(), text
        if type_name == "records":
            records = [Record(source.randbytes(4), source.randbytes(20)) for _ in range(source.randint(0, 3))]
            raw = batch(records, source.randrange(5)) if records else b""
            return raw, {"size": len(raw)}
        if self.inner is not None and name in ("RequestData", "ResponseData"):
            return self.inner.frame, {"Header": self.inner.header, "Body": self.inner.body}
        raw = source.randbytes(source.randint(0, 20))
        return raw, _as_json(raw)

    def fixed(self, name: str, type_name: str) -> tuple[bytes, Any]:
        source = self.source
        if type_name == "bool":
            flag = source.random() < 0.5
            return bytes([flag]), flag
        if type_name == "uuid":
            raw = source.randbytes(16)
            return raw, base64.urlsafe_b64encode(raw).decode().rstrip("=")
        if type_name == "float64":
            number = source.choice(list(_FLOATS)) if self.is_extreme else source.uniform(-1e9, 1e9)
            return struct.pack(">d", number), _FLOATS.get(number, number)
        if self.definition["apiKey"] == PRODUCE and name == "Acks":
            return b"\xff\xff", -1  # 0 has no response
        size = 8 * struct.calcsize(_FORMATS[type_name])
        low, high = (0, 2**size - 1) if type_name[0] == "u" else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)
        value = source.randint(low, high)
        if self.is_extreme:
            value = source.choice((low, high, 0, 1 if low == 0 else -1, value))
        return struct.pack(_FORMATS[type_name], value), value
