"""What is nested in byte fields: layouts against Kafka's own definitions, bytes that are one, bytes that are none."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.layouts.definitions import load_definition
from kafkatap.dissector.layouts.notation import NotationError, parse_data
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.nested import CONTROL_KEY, CONTROL_VALUES, DATA_FOLDER, decode_nested, load_layouts
from kafkatap.dissector.tree.node import Node, walk
from kafkatap.dissector.tree.view import EarlierFacts, Viewer
from tests.dissector.machine_support import MESSAGES
from tests.dissector.test_definitions_corpus import SETS, layout
from tests.dissector.view_support import check_cover, fields_of, find, frame_of, problems, view_message
from tests.support.messages import Taste, encode_message, generate_message
from tests.support.notation_writer import render_message

LAYOUTS = load_layouts()
#: Layouts that no definition of the messages folder has: Connect's are code, those of Streams lie elsewhere.
OTHERS = {"ConnectProtocolMetadata", "ConnectProtocolAssignment", "StreamsSubscriptionInfo", "StreamsAssignmentInfo"}
INSIDE = {"LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord"}


def encoded(name: str, version: int, value: dict[str, Any]) -> bytes:
    """Bytes as they stand in a field, with the version before them where it is not within."""
    body = encode_message(LAYOUTS[name], version, value)
    inside = "Version" in value
    return body if inside else version.to_bytes(2, "big") + body


def test_layouts_are_what_kafka_defines(corpus: Path) -> None:
    compared = set()
    for folder in SETS:
        for path in sorted((corpus / "kafka-messages" / folder).glob("*.json")):
            text = path.read_text(encoding="utf-8")
            if '"type": "data"' not in text:
                continue
            message = load_definition(text.replace('"type": "data"', '"type": "response", "apiKey": 0'))
            if message is None or message.name not in LAYOUTS:
                continue
            mine = LAYOUTS[message.name]
            assert mine.flexible == message.flexible or not (mine.flexible or message.flexible)
            assert mine.versions == message.versions
            for version in message.versions:
                assert _plain(layout(mine.body, version)) == _plain(layout(message.body, version)), message.name
            compared.add(message.name)
    assert compared == set(LAYOUTS) - OTHERS


def _plain(fields: list[Any]) -> list[Any]:
    """Layouts without roles, which Kafka's definitions give only in part."""
    return [(*entry[:5], *entry[6:8], None if entry[8] is None else _plain(entry[8])) for entry in fields]


@pytest.mark.parametrize("path", sorted(DATA_FOLDER.glob("*.kmsg")), ids=lambda path: path.stem)
def test_the_notation_is_in_its_own_form(path: Path) -> None:
    text = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if not line.startswith("#"))
    assert "\n".join(render_message(message) for message in parse_data(text)) == text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("api 1 Fetch\n", "line 1: expected: data"),
        ("data A\n", "line 1: expected: data"),
        ("data A 0-1\n  B int32 0-9\n", "line 2: 0-9 is not within"),
        ("data A 0-1 flexible\n", "line 1: expected"),
    ],
)
def test_wrong_notation_is_told_with_its_line(text: str, wrong: str) -> None:
    with pytest.raises(NotationError, match=wrong):
        parse_data(text)


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - OTHERS))
def test_every_layout_reads_what_it_describes(name: str) -> None:
    message = LAYOUTS[name]
    for version in message.versions:
        for seed in range(20):
            _, value = generate_message(message, version, seed, Taste(nulls=False, unknown_tags=False))
            if "Version" in value:
                value["Version"] = version
            raw = encoded(name, version, value)
            root = decode_nested(name, raw)
            assert root is not None
            check_cover(root, len(raw))
            assert root.text == f"{name} v{version}"
            assert _without_prefix(root, raw) == value


def _without_prefix(root: Node, raw: bytes) -> dict[str, Any]:
    found = fields_of(root, raw)
    if root.name not in INSIDE:
        del found["Version"]
    return found


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_bytes_that_do_not_read_to_the_end_are_none_of_it(name: str) -> None:
    source = random.Random(name)
    assert decode_nested(name, b"") is None
    assert decode_nested(name, b"\0") is None
    assert decode_nested(name, b"\xff\xff" + bytes(9)) is None
    for _ in range(200):
        raw = bytes(source.choices((0, 0, 0, 1, 2, 255), k=source.randrange(60)))
        root = decode_nested(name, raw)
        if root is not None:
            check_cover(root, len(raw))


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    value = {"Topics": ["a"], "UserData": None, "OwnedPartitions": [], "GenerationId": 1, "RackId": None}
    raw = (7).to_bytes(2, "big") + encode_message(LAYOUTS["ConsumerProtocolSubscription"], 3, value) + b"new"
    root = decode_nested("ConsumerProtocolSubscription", raw)
    assert root is not None
    assert root.text == "ConsumerProtocolSubscription v7"
    assert root.children[-1].length == 3


# Groups


def _join(kind: str, protocol: str, metadata: bytes, version: int = 5) -> Node:
    message = MESSAGES[11, REQUEST]
    value = {
        "GroupId": "g", "SessionTimeoutMs": 1, "RebalanceTimeoutMs": 2, "MemberId": "", "GroupInstanceId": None,
        "ProtocolType": kind, "Protocols": [{"Name": protocol, "Metadata": metadata}], "Reason": None,
    }  # fmt: skip
    frame = frame_of(message, version, encode_message(message, version, value))
    root = view_message(frame)
    check_cover(root, len(frame))
    found = find(root, "Body", "Protocols", "[0]", "Metadata")
    assert found is not None
    return found


def test_a_consumers_subscription() -> None:
    value = {"Topics": ["orders"], "UserData": None}
    found = _join("consumer", "range", encoded("ConsumerProtocolSubscription", 0, value))
    assert (found.kind, found.text) == (n.NESTED, "ConsumerProtocolSubscription v0")


def test_a_connect_workers_metadata_with_its_allocation() -> None:
    work = [{"Connector": "sink", "Tasks": [0, 1]}]
    assignment = {
        "Error": 0, "Leader": "w1", "LeaderUrl": "http://w1", "ConfigOffset": 4, "Assignment": work, "Revoked": None,
        "ScheduledDelay": 0,
    }  # fmt: skip
    inner = encoded("ConnectProtocolAssignment", 1, assignment)
    value = {"Url": "http://w2", "ConfigOffset": 4, "Allocation": inner}
    found = _join("connect", "sessioned", encoded("ConnectProtocolMetadata", 1, value))
    assert found.text == "ConnectProtocolMetadata v1"
    allocation = find(found, "Allocation")
    assert allocation is not None
    assert allocation.text == "ConnectProtocolAssignment v1"
    eager = _join("connect", "default", encoded("ConnectProtocolMetadata", 0, {"Url": "u", "ConfigOffset": 4}))
    assert eager.text == "ConnectProtocolMetadata v0"


def test_a_streams_subscription_tells_version_and_process() -> None:
    process = bytes(range(16))
    info = (11).to_bytes(4, "big") + (11).to_bytes(4, "big") + process + b"\0\0\0\0rest"
    value = {"Topics": ["in"], "UserData": info, "OwnedPartitions": []}
    found = _join("consumer", "stream", encoded("ConsumerProtocolSubscription", 1, value))
    data = find(found, "UserData")
    assert data is not None
    assert data.text == "StreamsSubscriptionInfo v11"
    assert [child.value for child in data.children[:3]] == [11, 11, process]
    joined = _join("consumer", "range", encoded("ConsumerProtocolSubscription", 1, value))
    assert find(joined, "UserData") == Node(
        "UserData", "bytes", data.offset - 1, data.length, n.VALUE, info
    )  # the assignor's name is one byte shorter


def test_metadata_that_is_something_else_stays_bytes_with_a_note() -> None:
    found = _join("consumer", "range", b"\0\0what")
    assert (found.kind, found.value, found.text) == (
        n.VALUE,
        b"\0\0what",
        "not readable as ConsumerProtocolSubscription",
    )
    assert _join("mine", "own", b"\0\0what").text == ""


def test_assignments_of_groups_whose_kind_is_not_told() -> None:
    message = MESSAGES[14, RESPONSE]
    raw = encoded(
        "ConsumerProtocolAssignment", 0, {"AssignedPartitions": [{"Topic": "t", "Partitions": [1]}], "UserData": None}
    )
    frame = frame_of(message, 0, encode_message(message, 0, {"ErrorCode": 0, "Assignment": raw}))
    found = find(Viewer().view(frame, RESPONSE, 14, 0), "Body", "Assignment")
    assert found is not None
    assert found.text == "ConsumerProtocolAssignment v0"


# Envelopes


def _envelope(inner: bytes) -> bytes:
    message = MESSAGES[58, REQUEST]
    principal = encoded("DefaultPrincipalData", 0, {"Type": "User", "Name": "ann", "TokenAuthenticated": False})
    value = {"RequestData": inner, "RequestPrincipal": principal, "ClientHostAddress": bytes((10, 0, 0, 7))}
    return frame_of(message, 0, encode_message(message, 0, value))


def test_an_envelope_shows_the_request_in_it_and_who_sent_it() -> None:
    message = MESSAGES[20, REQUEST]
    inner = frame_of(message, 1, encode_message(message, 1, {"TopicNames": ["t"], "TimeoutMs": 5}))[4:]
    frame = _envelope(inner)
    root = view_message(frame)
    check_cover(root, len(frame))
    assert not problems(root)
    data = find(root, "Body", "RequestData")
    assert data is not None
    assert data.text == "DeleteTopics request v1"
    topics = find(data, "Body", "TopicNames")
    assert topics is not None
    assert frame[topics.offset : topics.end] == b"\0\0\0\1\0\1t"
    name, address = find(root, "Body", "RequestPrincipal", "Name"), find(root, "Body", "ClientHostAddress")
    assert name is not None
    assert address is not None
    assert (name.value, address.text) == ("ann", "10.0.0.7")


def test_secrets_in_an_envelope_stay_hidden() -> None:
    message = MESSAGES[51, REQUEST]
    upsertion = {"Name": "u", "Mechanism": 1, "Iterations": 4096, "Salt": b"hushsalt", "SaltedPassword": b"hushword"}
    inner = frame_of(message, 0, encode_message(message, 0, {"Deletions": [], "Upsertions": [upsertion]}))[4:]
    for cut in range(len(inner) + 1):
        assert "hush" not in repr(view_message(_envelope(inner[:cut])))
    assert "hushword" in repr(Viewer(secrets=True).view(_envelope(inner)))


def test_an_envelopes_response_is_read_where_its_request_is_known() -> None:
    inner = frame_of(MESSAGES[12, RESPONSE], 0, b"\0\x1b")[4:]
    message = MESSAGES[58, RESPONSE]
    frame = frame_of(message, 0, encode_message(message, 0, {"ResponseData": inner, "ErrorCode": 0}))
    unknown = find(Viewer().view(frame, RESPONSE, 58, 0), "Body", "ResponseData")
    assert unknown is not None
    assert (unknown.kind, unknown.text) == (n.HIDDEN, "the request inside was not seen")
    root = Viewer().view(frame, RESPONSE, 58, 0, EarlierFacts(enveloped=(12, 0)))
    code = find(root, "Body", "ResponseData", "Body", "ErrorCode")
    assert code is not None
    assert code.text == "REBALANCE_IN_PROGRESS"
    check_cover(root, len(frame))


def test_envelopes_in_envelopes_end() -> None:
    frame = b""
    for _ in range(30):
        frame = _envelope(frame)[4:]
    whole = len(frame).to_bytes(4, "big") + frame
    root = view_message(whole)
    check_cover(root, len(whole))
    assert any(node.text == "nested too deeply" for _, node in walk(root))


# Control records


def test_control_records_have_layouts_by_their_type() -> None:
    assert set(CONTROL_VALUES.values()) <= set(LAYOUTS)
    key = decode_nested(CONTROL_KEY, b"\0\0\0\1")
    assert key is not None
    kind = find(key, "Type")
    assert kind is not None
    assert (kind.value, kind.text) == (1, "COMMIT")
    marker = decode_nested("EndTxnMarker", b"\0\0\0\0\0\x07")
    assert marker is not None
    assert [child.value for child in marker.children] == [0, 7]


def test_layouts_are_not_messages() -> None:
    assert not any(message.has_header for message in LAYOUTS.values())
    assert all(message.header_version(0) == 0 for message in LAYOUTS.values())


# Telemetry


def _protobuf(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


def _metrics(*names: bytes) -> bytes:
    """OpenTelemetry's MetricsData of these metrics, with fields between that are passed over."""
    each = b"".join(_protobuf(2, _protobuf(1, name) + b"\x18\x05\x25abcd") for name in names)
    return _protobuf(1, b"\x09" + bytes(8) + _protobuf(2, _protobuf(1, b"scope") + each))


def _push(codec: int, metrics: bytes, viewer: Viewer) -> Node:
    message = MESSAGES[72, REQUEST]
    value = {
        "ClientInstanceId": bytes(16), "SubscriptionId": 1, "Terminating": False, "CompressionType": codec,
        "Metrics": metrics,
    }  # fmt: skip
    found = find(viewer.view(frame_of(message, 0, encode_message(message, 0, value))), "Body", "Metrics")
    assert found is not None
    return found


def test_pushed_metrics_are_told_by_name_and_not_shown() -> None:
    raw = _metrics(b"a.total", b"b.rate", b"a.total")
    plain, packed = _push(0, raw, Viewer()), _push(1, gzip.compress(raw), Viewer())
    assert (plain.kind, plain.value, plain.text) == (n.HIDDEN, len(raw), "not compressed, 2 metrics: a.total, b.rate")
    assert packed.text == "gzip, 2 metrics: a.total, b.rate"
    assert _push(0, raw, Viewer(secrets=True)).value == raw


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x7f", b"\x0b", b"\x0a\x02\x12\x7f", b"\xff" * 30])
def test_metrics_that_are_none(raw: bytes) -> None:
    assert _push(0, raw, Viewer()).text == "not compressed"
    assert _push(4, raw, Viewer()).text == "zstd"
    assert _push(9, raw, Viewer()).text == "codec 9"


def test_many_metrics_are_counted() -> None:
    text = _push(0, b"".join(_metrics(b"m%d" % i) for i in range(40)), Viewer()).text
    assert text.startswith("not compressed, 40 metrics: m0, m1")
    assert text.endswith(" and 32 more")
