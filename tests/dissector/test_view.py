"""Trees of messages: every byte in one place, values and offsets as the reference has them, whatever the bytes are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector.dtypes import OK
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout, Versions
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node, walk
from kafkatap.dissector.tree.view import ClusterNames, EarlierFacts, Viewer
from kafkatap.kernels.decorator import kernel_mode
from tests.dissector.machine_support import ALL, MESSAGES
from tests.dissector.view_support import (
    check_cover,
    fields_of,
    find,
    frame_of,
    header_of,
    problems,
    traced,
    view_message,
)
from tests.support.messages import emptiest_message, encode_message, generate_message
from tests.support.reference import Traced, decode_message
from tests.support.sweeps import examples, seeds

PLAIN = kernel_mode() == "python"
CHOSEN = ALL[::7] if PLAIN else ALL


def _whole(raw: bytes, offset: int, cut: bool) -> list[Node]:
    return [Node("whole", "bytes", offset, len(raw), n.VALUE, raw)]


#: Secrets shown and records left whole, as the reference gives them.
OPEN = Viewer(secrets=True, records=_whole)
SHUT = Viewer()


def view(message: MessageLayout, version: int, frame: bytes, viewer: Viewer = SHUT) -> Node:
    return viewer.view(frame, message.direction, message.api_key, version)


@pytest.mark.parametrize("seed", seeds(4, 2))
def test_a_tree_is_what_the_reference_reads(seed: int) -> None:
    for message, version in CHOSEN:
        name = f"{message.name} {message.direction} v{version} {seed}"
        data, _ = generate_message(message, version, seed)
        trace: list[Traced] = []
        wanted = decode_message(message, version, data, trace=trace)
        assert wanted.status == OK, name
        frame = frame_of(message, version, data)
        root = view(message, version, frame, OPEN)
        check_cover(root, len(frame))
        header, body = find(root, "Header"), find(root, "Body")
        assert header is not None, name
        assert body is not None, name
        assert fields_of(body, frame) == wanted.value, name
        first = 4 + len(header_of(message, version))
        ours = [entry for entry in traced(header, first) if entry[1] >= 0] + traced(body, first)
        assert sorted(ours) == sorted(trace), name


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_cut_or_changed_is_a_tree_of_all_its_bytes(seed: int) -> None:
    source = random.Random(seed)
    for message, version in CHOSEN:
        data, _ = generate_message(message, version, seed + 10)
        frame = frame_of(message, version, data)
        for damaged in _damaged(source, frame):
            root = view(message, version, damaged)
            check_cover(root, root.length)
            assert root.length >= len(damaged)


def _damaged(source: random.Random, frame: bytes) -> list[bytes]:
    """Cut anywhere; longer than it says; shorter; some bytes changed, its size once too."""
    body = bytearray(frame)
    for _ in range(source.choice((1, 2, 5))):
        body[source.randrange(4, len(body))] = source.choice((0, 1, 127, 128, 255, source.randrange(256)))
    size = bytearray(frame)
    size[source.randrange(4)] = source.randrange(256)
    at = source.randrange(len(frame))
    less = (len(frame) - 5).to_bytes(4, "big", signed=True) + frame[4:]
    return [frame[:at], frame + b"\0\xff", bytes(body), bytes(size), less]


@settings(max_examples=60 if PLAIN else examples(400), deadline=None)
@given(st.sampled_from(ALL), st.binary(max_size=200), st.integers(-4, 300), st.booleans())
def test_any_bytes_are_a_tree_of_all_of_them(
    which: tuple[MessageLayout, int], rest: bytes, more: int, header: bool
) -> None:
    message, version = which
    inner = header_of(message, version) + rest if header else rest
    frame = (len(inner) + more).to_bytes(4, "big", signed=True) + inner
    for viewer in (SHUT, OPEN):
        root = view(message, version, frame, viewer)
        check_cover(root, root.length)
        assert root.length >= len(frame)


@pytest.mark.parametrize("count", range(12))
def test_a_frame_cut_in_its_header(count: int) -> None:
    message = MESSAGES[1, REQUEST]
    frame = frame_of(message, 4, emptiest_message(message, 4)[0])
    root = view_message(frame[:count])
    check_cover(root, root.length)
    assert problems(root)


def test_shortest_messages_have_no_problems() -> None:
    for message, version in CHOSEN:
        frame = frame_of(message, version, emptiest_message(message, version)[0])
        root = view(message, version, frame)
        check_cover(root, len(frame))
        assert not problems(root), (message.name, version)


# What can be wrong


def _heartbeat(version: int = 0, rest: bytes = b"") -> bytes:
    message = MESSAGES[12, REQUEST]
    value = {"GroupId": "g", "GenerationId": 3, "MemberId": "m", "GroupInstanceId": None}
    return frame_of(message, version, encode_message(message, version, value) + rest)


def test_bytes_that_were_not_captured_are_counted() -> None:
    frame = _heartbeat()
    root = view_message(frame[:-3])
    assert find(root, "Body", "GroupId") == Node("GroupId", "string", 20, 3, n.VALUE, "g")
    missing = find(root, "not captured")
    assert missing is not None
    assert (missing.offset, missing.value) == (len(frame) - 3, 3)
    assert any("cut short" in problem and "MemberId" in problem for problem in problems(root))


def test_a_malformed_body_says_where_and_why() -> None:
    frame = bytearray(_heartbeat())
    at = frame.index(b"\0\1m")
    frame[at : at + 2] = b"\xff\xf0"
    root = view_message(bytes(frame))
    assert problems(root) == [f"Body.MemberId: malformed at byte {at}, MemberId: a length of -16"]
    rest = find(root, "undecoded bytes")
    assert rest is not None
    assert (rest.offset, rest.length) == (at, 3)


def test_trailing_bytes() -> None:
    root = view_message(_heartbeat(rest=b"xyz"))
    assert problems(root) == ["trailing bytes: 3 bytes behind the message"]


def test_a_null_where_none_may_be_is_shown_and_told() -> None:
    message = MESSAGES[12, REQUEST]
    body = b"\xff\xff" + (3).to_bytes(4, "big") + b"\0\1m"
    root = view_message(frame_of(message, 0, body))
    assert problems(root) == ["Body.GroupId: null where none may be"]
    found = find(root, "Body", "MemberId")
    assert found is not None
    assert found.value == "m"


def test_unknown_tags_are_shown_with_number_and_bytes() -> None:
    message = MESSAGES[12, REQUEST]
    value = {
        "GroupId": "g", "GenerationId": 3, "MemberId": "m", "GroupInstanceId": None,
        "unknown tags": [(9, b"ab"), (300, b"")],
    }  # fmt: skip
    root = view_message(frame_of(message, 4, encode_message(message, 4, value)))
    tags = find(root, "Body", "tags")
    assert tags is not None
    assert [(tag.name, tag.value) for tag in tags.children] == [("tag 9", b"ab"), ("tag 300", b"")]


def test_a_version_that_is_too_new_is_told_with_its_header() -> None:
    root = view_message(frame_of(MESSAGES[1, REQUEST], 21, b"\0" * 9))
    assert root.name == "Fetch request v21"
    assert problems(root) == ["undecoded bytes: Fetch v21 is newer than these definitions (up to v18)"]
    assert find(root, "Header", "ClientId") is not None


def test_an_api_that_is_not_known() -> None:
    message = replace(MESSAGES[1, REQUEST], api_key=999, versions=Versions(0, 0))
    root = view_message(frame_of(message, 0, b"abc"))
    assert problems(root) == ["undecoded bytes: API 999 is not in these definitions"]


def test_a_response_whose_request_was_not_seen() -> None:
    root = SHUT.view(b"\0\0\0\7\0\0\0\5abc", RESPONSE)
    assert problems(root) == ["undecoded bytes: the request was not seen"]
    assert find(root, "Header", "CorrelationId") == Node("CorrelationId", "int32", 4, 4, n.VALUE, 5)


def test_api_versions_answered_in_version_0() -> None:
    frame = bytes.fromhex("0000000a 00000005 0023 00000000")
    root = SHUT.view(frame, RESPONSE, 18, 4)
    assert root.text == "answered in version 0"
    assert not problems(root)
    code = find(root, "Body", "ErrorCode")
    assert code is not None
    assert (code.value, code.text) == (35, "UNSUPPORTED_VERSION")


# Names


def test_topics_and_brokers_by_name() -> None:
    message = MESSAGES[1, RESPONSE]
    topic = bytes(range(16))
    partition = {
        "PartitionIndex": 0, "ErrorCode": 0, "HighWatermark": 1, "LastStableOffset": 1, "LogStartOffset": 0,
        "AbortedTransactions": None, "PreferredReadReplica": -1, "Records": None,
        "CurrentLeader": {"LeaderId": 4, "LeaderEpoch": 1},
    }  # fmt: skip
    value = {
        "ThrottleTimeMs": 0, "ErrorCode": 6, "SessionId": 0,
        "Responses": [{"TopicId": topic, "Partitions": [partition]}],
    }  # fmt: skip
    frame = frame_of(message, 16, encode_message(message, 16, value))
    named = Viewer(names=ClusterNames({topic: "orders"}, {4: "10.0.0.4:9092"}))
    body = find(named.view(frame, RESPONSE, 1, 16), "Body")
    assert body is not None
    assert [node.text for _, node in walk(body) if node.name in ("TopicId", "LeaderId")] == ["orders", "10.0.0.4:9092"]
    code = find(body, "ErrorCode")
    assert code is not None
    assert code.text == "NOT_LEADER_OR_FOLLOWER"


# Secrets


def test_tokens_are_hidden_unless_asked_for() -> None:
    message = MESSAGES[36, REQUEST]
    frame = frame_of(message, 0, encode_message(message, 0, {"AuthBytes": b"\0user\0wonder"}))
    hidden = find(view_message(frame), "Body", "AuthBytes")
    assert hidden is not None
    assert (hidden.kind, hidden.value, hidden.text) == (n.HIDDEN, 12, "PLAIN: user name and password")
    shown = find(OPEN.view(frame), "Body", "AuthBytes")
    assert shown is not None
    assert (shown.kind, shown.text) == (n.NESTED, "PLAIN: user name and password")
    assert [(c.name, c.value) for c in shown.children] == [("authzid", ""), ("authcid", "user"), ("passwd", "wonder")]
    check_cover(OPEN.view(frame), len(frame))


@pytest.mark.parametrize(
    ("token", "mechanism", "told"),
    [
        (b"n,,n=me,r=abc", "SCRAM-SHA-256", {"message": "n,,n=me,r=abc"}),
        (b"n,,\1auth=Bearer x\1\1", None, {"message": "n,,\1auth=Bearer x\1\1"}),
        (b"a\0me\0\xff", "PLAIN", {"authzid": "a", "authcid": "me", "passwd": b"\xff"}),
        (b"\0me", "PLAIN", {}),
        (b"\x60\x01", "GSSAPI", {}),
        (b"", "SCRAM-SHA-512", {}),
    ],
)
def test_fields_of_tokens(token: bytes, mechanism: str | None, told: dict[str, Any]) -> None:
    raw = len(token).to_bytes(4, "big") + token
    root = Viewer(secrets=True).view_token(raw, REQUEST, mechanism)
    check_cover(root, len(raw))
    assert {c.name: c.value for c in root.children[1].children} == told
    assert told or root.children[1].value == token


def test_bare_tokens() -> None:
    raw = b"\0\0\0\x09\0me\0geh1m"
    root = SHUT.view_token(raw, REQUEST, "PLAIN")
    check_cover(root, len(raw))
    assert "geh1m" not in repr(root)
    root = Viewer(secrets=True).view_token(raw, REQUEST)
    check_cover(root, len(raw))
    assert [c.value for c in root.children[1].children] == ["", "me", "geh1m"]
    for count in range(len(raw)):
        root = SHUT.view_token(raw[:count], REQUEST)
        check_cover(root, root.length)


@pytest.mark.parametrize(
    ("name", "hidden"), [("ssl.keystore.password", True), ("retention.ms", False), ("sasl.jaas.config", True)]
)
def test_values_of_configurations_by_their_names(name: str, hidden: bool) -> None:
    message = MESSAGES[44, REQUEST]
    config = {"Name": name, "ConfigOperation": 0, "Value": "hush"}
    value = {"Resources": [{"ResourceType": 4, "ResourceName": "1", "Configs": [config]}], "ValidateOnly": False}
    for version in (0, 1):
        root = view_message(frame_of(message, version, encode_message(message, version, value)))
        assert ("hush" not in repr(root)) == hidden
        assert not problems(root)


@pytest.mark.parametrize("sensitive", [True, False])
def test_values_that_the_broker_marks_as_sensitive(sensitive: bool) -> None:
    message = MESSAGES[32, RESPONSE]
    config = {
        "Name": "plain.name", "Value": "hush", "ReadOnly": False, "ConfigSource": 1, "IsSensitive": sensitive,
        "Synonyms": [{"Name": "plain.name", "Value": "hush", "Source": 1}], "ConfigType": 2, "Documentation": None,
    }  # fmt: skip
    result = {"ErrorCode": 0, "ErrorMessage": None, "ResourceType": 4, "ResourceName": "1", "Configs": [config]}
    frame = frame_of(message, 4, encode_message(message, 4, {"ThrottleTimeMs": 0, "Results": [result]}))
    assert ("hush" not in repr(SHUT.view(frame, RESPONSE, 32, 4))) == sensitive
    for cut in range(frame.index(b"hush") + 6, frame.index(b"hush"), -1):  # before the mark
        assert "hush" not in repr(SHUT.view(frame[:cut], RESPONSE, 32, 4))


def test_bytes_that_nobody_explains_are_not_shown_where_secrets_travel() -> None:
    message = MESSAGES[36, REQUEST]
    value = {"AuthBytes": b"\0a\0hush", "unknown tags": [(5, b"hush")]}
    frame = frame_of(message, 2, encode_message(message, 2, value) + b"hush")
    assert b"hush".hex() in frame.hex()
    assert "hush" not in repr(view_message(frame))
    assert "hush" not in repr(SHUT.view(frame, earlier=EarlierFacts("SCRAM-SHA-512")))
