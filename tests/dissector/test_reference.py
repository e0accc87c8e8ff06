"""The reference decoder gives back what was encoded, and says where and why it cannot."""

from __future__ import annotations

import random

import pytest

from kafkatap.dissector.dtypes import INCOMPLETE, MALFORMED, OK, TRAILING_BYTES, UNKNOWN_API, UNKNOWN_VERSION
from kafkatap.dissector.layouts.catalog import built_in_names, load_api
from kafkatap.dissector.layouts.notation import parse_api
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout, Struct
from tests.support.reference import UNKNOWN_TAGS, Decoded, decode_message, decode_request, decode_response, least_struct

from ..support.messages import Taste, emptiest_message, encode_message, generate_message

SEEDS = range(3)


@pytest.mark.parametrize("api_key", list(built_in_names()), ids=built_in_names().get)
def test_every_version_decodes_to_what_was_encoded(api_key: int) -> None:
    for message in load_api(api_key):
        for version in message.versions:
            for seed in SEEDS:
                where = (message.name, message.direction, version, seed)
                data, value = generate_message(message, version, seed)
                whole = decode_message(message, version, data, strict=True)
                assert (whole.status, whole.error) == (OK, ""), where
                assert whole.value == value, where
                longer = decode_message(message, version, data + b"\0")
                assert (longer.status, longer.trailing, longer.value) == (TRAILING_BYTES, 1, value), where
                if data:
                    shorter = decode_message(message, version, data[:-1])
                    assert (shorter.status, shorter.offset < len(data)) == (MALFORMED, True), where
                    cut = decode_message(message, version, data[:-1], missing=1)
                    assert cut.status == INCOMPLETE, where


@pytest.mark.parametrize("api_key", list(built_in_names()), ids=built_in_names().get)
def test_an_element_of_an_array_takes_at_least_a_byte(api_key: int) -> None:
    """Otherwise a count from the wire would not be bounded by the bytes that are left."""
    pending: list[tuple[MessageLayout, Struct]] = [(message, message.body) for message in load_api(api_key)]
    while pending:
        message, struct = pending.pop()
        for field in struct.fields:
            if field.struct is not None:
                pending.append((message, field.struct))
                for version in field.versions:
                    assert least_struct(field.struct, version, version in message.flexible) > 0


def test_no_message_is_shorter_than_its_least_size() -> None:
    """The emptiest message of each version is exactly that long."""
    for api_key in built_in_names():
        for message in load_api(api_key):
            for version in message.versions:
                data, value = emptiest_message(message, version)
                header = decode_message(message, version, data)
                assert (header.status, header.value) == (OK, value)
                least = least_struct(message.body, version, version in message.flexible)
                assert decode_message(message, version, data[-least:], header_tags=False).status == OK
                assert len(data) - least == message.has_header_tags(version)


EXAMPLE = """\
api 200 Example
request 0-1 flexible 1+
  Name string 0+
  Topics []Topic 0+
    Place int32 0+
    Text string? 0+
  Note string? 1+ tag 5
  Box Box? 0+
    Value int8 0+
response 0-1
  Counts []int64 0+
"""


def decode(data: bytes, version: int = 0, **options: bool | int) -> Decoded:
    return decode_message(parse_api(EXAMPLE)[0], version, data, header_tags=False, **options)  # type: ignore[arg-type]


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


HEAD = text("n") + bytes([0, 0, 0, 1]) + bytes(4)


@pytest.mark.parametrize(
    ("data", "path", "offset", "reason"),
    [
        (b"", "Name", 0, "2 bytes expected, 0 left"),
        (b"\0\5abc", "Name", 2, "5 bytes expected, 3 left"),
        (b"\xff\xfe", "Name", 0, "a length of -2"),
        (text("n") + b"\0\0\0\2" + bytes(11), "Topics", 7, "2 elements of at least 6 bytes, 11 bytes left"),
        (text("n") + b"\x7f\xff\xff\xff", "Topics", 7, "2147483647 elements"),
        (text("n") + b"\x80\0\0\0", "Topics", 3, "a length of -2147483648"),
        (HEAD + b"\0\7ab", "Topics[0].Text", 13, "7 bytes expected, 2 left"),
        (HEAD + text("t") + b"\1", "Box.Value", 15, "1 bytes expected, 0 left"),
    ],
)
def test_an_error_has_its_path_offset_and_reason(data: bytes, path: str, offset: int, reason: str) -> None:
    decoded = decode(data)
    assert (decoded.status, decoded.path, decoded.offset) == (MALFORMED, path, offset)
    assert reason in decoded.error


def test_what_was_read_before_an_error_is_kept() -> None:
    assert decode(HEAD + b"\0\7ab").value == {"Name": "n", "Topics": [{"Place": 0}]}


def test_a_null_out_of_place_is_counted_and_refused_only_by_strict() -> None:
    data = b"\xff\xff" + b"\xff\xff\xff\xff" + b"\xff"
    decoded = decode(data)
    assert (decoded.status, decoded.nulls) == (OK, 2)
    assert decoded.value == {"Name": None, "Topics": None, "Box": None}
    strict = decode(data, strict=True)
    assert (strict.status, strict.path, strict.offset, strict.nulls) == (MALFORMED, "Name", 0, 1)


def test_bytes_that_were_not_captured_make_a_message_incomplete() -> None:
    data = HEAD + b"\0\7ab"
    assert decode(data, missing=10).status == INCOMPLETE
    assert decode(data, missing=4).status == MALFORMED


FLEXIBLE = b"\2n" + b"\1" + b"\xff"


@pytest.mark.parametrize(
    ("tags", "path", "reason"),
    [
        (b"\xff\xff\xff\xff\x0f", "tags", "4294967295 elements of at least 2 bytes"),
        (b"\xff\xff\xff\xff\x10", "tags", "32 bits"),
        (b"\x80\x80\x80\x80\x80\0", "tags", "32 bits"),
        (b"\1\7\3ab", "tags", "tag 7 of 3 bytes, 2 left"),
        (b"\1\5\3\2ab", "Note", "1 bytes left over in the tag"),
        (b"\1\5\2\3ab", "Note", "2 bytes expected, 1 left"),
        (b"\1\5\0ab", "Note", "1 bytes expected, 0 left"),
    ],
)
def test_hostile_tags(tags: bytes, path: str, reason: str) -> None:
    decoded = decode(FLEXIBLE + tags, 1)
    assert (decoded.status, decoded.path) == (MALFORMED, path)
    assert reason in decoded.error


def test_known_and_unknown_tags() -> None:
    decoded = decode(FLEXIBLE + b"\3\5\2\2x\7\0\x80\1\1z", 1)
    assert decoded.value["Note"] == "x"
    assert decoded.value[UNKNOWN_TAGS] == [(7, b""), (128, b"z")]
    assert decode(FLEXIBLE + b"\1\5\1\0", 1).value["Note"] is None


def test_text_that_is_no_utf8_is_kept() -> None:
    value = decode(b"\0\2\xff\xfe" + bytes(4) + b"\xff").value["Name"]
    assert value.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_unknown_versions_are_said() -> None:
    assert decode(b"", 2).status == UNKNOWN_VERSION


def messages_of(*api_keys: int) -> dict[tuple[int, int], MessageLayout]:
    return {(m.api_key, m.direction): m for api_key in api_keys for m in load_api(api_key)}


def header(api_key: int, version: int, correlation_id: int = 7) -> bytes:
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")


def test_a_request_frame_with_each_header() -> None:
    messages = messages_of(7, 18)
    old = decode_request(messages, header(7, 0) + bytes([0, 0, 0, 9]))
    assert (old.client_id, old.message.value) == (None, {"BrokerId": 9})
    plain = decode_request(messages, header(7, 1) + text("me") + bytes([0, 0, 0, 9]))
    assert (plain.client_id, plain.correlation_id, plain.message.value) == ("me", 7, {"BrokerId": 9})
    flexible = decode_request(messages, header(18, 3) + text("me") + b"\1\x63\1z" + b"\2a\2b\0")
    assert flexible.message.header_tags == [(99, b"z")]
    assert flexible.message.value == {"ClientSoftwareName": "a", "ClientSoftwareVersion": "b"}
    nobody = decode_request(messages, header(18, 0) + b"\xff\xff")
    assert (nobody.client_id, nobody.message.status) == (None, OK)
    unknown = decode_request(messages, header(999, 0) + text("me"))
    assert (unknown.client_id, unknown.message.status) == ("me", UNKNOWN_API)
    newer = decode_request(messages, header(18, 99) + text("me") + b"\0abc")
    assert (newer.client_id, newer.message.status) == ("me", UNKNOWN_VERSION)
    with pytest.raises(ValueError, match="cut short"):
        decode_request(messages, header(18, 0)[:7])


def test_a_response_frame_and_the_old_format_of_api_versions() -> None:
    messages = messages_of(12, 18)
    flexible = decode_response(messages[12, RESPONSE], 4, bytes([0, 0, 0, 7]) + b"\0" + bytes(4) + b"\0\x1b" + b"\0")
    assert (flexible.correlation_id, flexible.message.value) == (7, {"ThrottleTimeMs": 0, "ErrorCode": 27})
    refused = decode_response(messages[18, RESPONSE], 4, bytes([0, 0, 0, 7]) + b"\0\x23" + bytes(4))
    assert (refused.api_version, refused.message.status) == (0, OK)
    assert refused.message.value == {"ErrorCode": 35, "ApiKeys": []}
    with pytest.raises(ValueError, match="cut short"):
        decode_response(messages[12, RESPONSE], 4, b"\0\0\0")


def test_header_tags_are_encoded_where_the_header_has_them() -> None:
    request = messages_of(18)[18, REQUEST]
    value = {"ClientSoftwareName": "a", "ClientSoftwareVersion": "b"}
    data = encode_message(request, 3, value, [(1, b"x")])
    assert decode_message(request, 3, data).header_tags == [(1, b"x")]


def test_random_messages_are_the_same_for_the_same_seed_and_hold_every_kind() -> None:
    request = messages_of(1)[1, RESPONSE]
    assert generate_message(request, 16, 5) == generate_message(request, 16, 5)
    seen = [generate_message(request, 16, seed)[1] for seed in range(60)]
    records = [p["Records"] for value in seen for t in value["Responses"] for p in t["Partitions"]]
    assert None in records
    assert b"" in records
    assert any(value["Responses"] == [] for value in seen)
    assert any(UNKNOWN_TAGS in value for value in seen)
    assert {"NodeEndpoints" in value for value in seen} == {True, False}
    plain = [generate_message(request, 16, seed, Taste(nulls=False, unknown_tags=False))[1] for seed in range(60)]
    assert not any(UNKNOWN_TAGS in value for value in plain)


@pytest.mark.parametrize("api_key", list(built_in_names()), ids=built_in_names().get)
def test_damaged_messages_end_in_a_status(api_key: int) -> None:
    """Whatever bytes come: no exception, and no more elements than there are bytes."""
    source = random.Random(api_key)
    for message in load_api(api_key):
        for version in message.versions:
            data = bytearray(generate_message(message, version, source)[0])
            for _ in range(3 if data else 0):
                data[source.randrange(len(data))] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
            for damaged in (bytes(data), source.randbytes(60)):
                decoded = decode_message(message, version, damaged)
                assert decoded.status in (OK, TRAILING_BYTES, MALFORMED)
                assert elements(decoded.value) <= len(damaged)


def elements(value: object) -> int:
    """How many array elements a value holds, at all levels."""
    if isinstance(value, dict):
        return sum(elements(part) for name, part in value.items() if name != UNKNOWN_TAGS)
    return len(value) + sum(elements(part) for part in value) if isinstance(value, list) else 0
