"""An invented vendor's APIs: their definitions, and captures of clients that use them.

VendorPing (key 10001) has an error code and a throttle time. VendorAppend (key 32767, version 200) carries records.
Metadata 99 is a version that only the vendor has. Nothing defines the API with key 7777.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.definitions import load_definitions
from tests.support.captures import pcap_bytes
from tests.support.messages import emptiest_message, encode_message
from tests.support.records import Record, batch
from tests.support.tcp import Segment, TcpConversation, encode, request_frame, response_frame

PING, APPEND, METADATA, UNKNOWN, ROLES = 10_001, 32_767, 3, 7_777, 15_000
APPEND_VERSION, METADATA_VERSION = 200, 99
CLIENT, BROKER = ("10.0.0.1", 40_000), ("10.0.0.2", 9_092)

_ALL = {"versions": "0+"}
_PING_REQUEST = {
    "apiKey": PING, "type": "request", "name": "VendorPingRequest", "validVersions": "0-1", "flexibleVersions": "1+",
    "fields": [{"name": "GroupId", "type": "string", **_ALL, "entityType": "groupId"},
               {"name": "Payload", "type": "bytes", **_ALL}],
}  # fmt: skip
_PING_RESPONSE = {
    "apiKey": PING, "type": "response", "name": "VendorPingResponse", "validVersions": "0-1", "flexibleVersions": "1+",
    "fields": [{"name": "ThrottleTimeMs", "type": "int32", **_ALL}, {"name": "ErrorCode", "type": "int16", **_ALL},
               {"name": "Echo", "type": "[]Pong", **_ALL, "fields": [
                   {"name": "Name", "type": "string", **_ALL},
                   {"name": "Score", "type": "float64", "versions": "1+"}]}],
}  # fmt: skip
_APPEND_REQUEST = {
    "apiKey": APPEND, "type": "request", "name": "VendorAppendRequest", "validVersions": "200",
    "flexibleVersions": "none",
    "fields": [{"name": "Topics", "type": "[]AppendTopic", **_ALL, "fields": [
        {"name": "Name", "type": "string", **_ALL, "entityType": "topicName"},
        {"name": "Partitions", "type": "[]AppendPartition", **_ALL, "fields": [
            {"name": "Index", "type": "int32", **_ALL}, {"name": "Records", "type": "records", **_ALL}]}]},
               {"name": "Trailer", "type": "records", **_ALL, "nullableVersions": "0+"}],
}  # fmt: skip
_APPEND_RESPONSE = {
    "apiKey": APPEND, "type": "response", "name": "VendorAppendResponse", "validVersions": "200",
    "flexibleVersions": "none", "fields": [{"name": "ErrorCode", "type": "int16", **_ALL}],
}  # fmt: skip
_METADATA_RESPONSE = {
    "apiKey": METADATA, "type": "response", "name": "MetadataResponse", "validVersions": "99",
    "flexibleVersions": "0+", "fields": [{"name": "ThrottleTimeMs", "type": "int32", **_ALL}],
}  # fmt: skip
_METADATA_REQUEST = {
    "apiKey": METADATA, "type": "request", "name": "MetadataRequest", "validVersions": "99",
    "flexibleVersions": "0+", "fields": [{"name": "Mood", "type": "string", **_ALL}],
}  # fmt: skip
DEFINITIONS = (
    _PING_REQUEST, _PING_RESPONSE, _APPEND_REQUEST, _APPEND_RESPONSE, _METADATA_REQUEST, _METADATA_RESPONSE
)  # fmt: skip


def vendor_texts(definitions: Sequence[dict[str, Any]] = DEFINITIONS) -> dict[str, str]:
    """Definitions by file name."""
    return {f"{each['name']}.json": f"// (c) A Vendor\n{json.dumps(each, indent=1)}\n" for each in definitions}


def write_vendor_definitions(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in vendor_texts().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@cache
def _messages() -> dict[tuple[int, int], Any]:
    return load_messages() | load_definitions(vendor_texts())


def body(key: int, version: int, direction: int, **values: object) -> bytes:
    """The bytes of a message: the emptiest one, with these values."""
    message = _messages()[key, direction]
    return encode_message(message, version, {**emptiest_message(message, version)[1], **values})


def api_versions(*keys: int, highest: int = 1) -> bytes:
    """An ApiVersions response (version 0) that lists these keys."""
    listed = [{"ApiKey": key, "MinVersion": 0, "MaxVersion": highest} for key in keys]
    return body(18, 0, 1, ApiKeys=listed)


def vendor_segments(pings: int = 1) -> list[Segment]:
    """A connection with all of the vendor's APIs, `pings` of VendorPing, and one request that nothing defines."""
    talk = TcpConversation(CLIENT, BROKER)
    talk.open()
    number = 0

    def exchange(key: int, version: int, asked: bytes, told: bytes, flexible: bool = False) -> None:
        nonlocal number
        number += 1
        talk.client(request_frame(key, version, number, "vendor-app", asked))
        talk.wait(1_000_000)
        talk.server(response_frame(number, told, flexible=flexible))

    exchange(18, 0, b"", api_versions(0, 1, 3, 18, PING, UNKNOWN, ROLES))
    for ping in range(pings):
        echo = [{"Name": "pong", **({"Score": 0.5} if ping % 2 else {})}]
        version = ping % 2
        asked = body(PING, version, 0, GroupId="line", Payload=b"\0" * 40)
        error = 15 if ping % 3 == 0 else 0
        exchange(PING, version, asked, body(PING, version, 1, ErrorCode=error, ThrottleTimeMs=40, Echo=echo))
    records = batch([Record(b"k", b"hello"), Record(b"k2", b"world")])
    told = {"Topics": [{"Name": "orders", "Partitions": [{"Index": 4, "Records": records}]}], "Trailer": records}
    exchange(APPEND, APPEND_VERSION, body(APPEND, APPEND_VERSION, 0, **told), body(APPEND, APPEND_VERSION, 1))
    exchange(METADATA, METADATA_VERSION, body(METADATA, 99, 0, Mood="calm"), body(METADATA, 99, 1, ThrottleTimeMs=7))
    exchange(UNKNOWN, 0, b"what", b"ever")
    exchange(ROLES, 0, b"who", b"them")
    talk.close()
    return talk.segments


def vendor_capture(pings: int = 1) -> bytes:
    """`vendor_segments` as a pcap."""
    return pcap_bytes(encode(vendor_segments(pings)))
