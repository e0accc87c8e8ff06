"""Trees as text, as JSON and beside their bytes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, MessageLayout
from kafkatap.dissector.tree.node import Node, walk
from kafkatap.dissector.tree.view import ClusterNames, Viewer
from kafkatap.kernels.decorator import kernel_mode
from kafkatap.show.hexdump import hexdump
from kafkatap.show.tree_json import tree_json
from kafkatap.show.tree_text import terminal_paint, tree_text
from tests.dissector.machine_support import ALL, MESSAGES
from tests.dissector.view_support import frame_of, header_of, problems, view_message
from tests.support.messages import encode_message, generate_message
from tests.support.sweeps import examples

CHOSEN = ALL[::9] if kernel_mode() == "python" else ALL
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "show.schema.json").read_text(encoding="utf-8"))
TREE = jsonschema.Draft202012Validator({"$defs": SCHEMA["$defs"], "$ref": "#/$defs/tree"})
SHUT, OPEN = Viewer(), Viewer(secrets=True)

TOPIC = bytes(range(16))


def metadata(name: str = "orders", nodes: int = 2, viewer: Viewer = SHUT) -> tuple[bytes, Node]:
    message = MESSAGES[3, RESPONSE]
    partition = {
        "ErrorCode": 5, "PartitionIndex": 0, "LeaderId": 1, "LeaderEpoch": 3, "ReplicaNodes": list(range(nodes)),
        "IsrNodes": [], "OfflineReplicas": [],
    }  # fmt: skip
    topic = {
        "ErrorCode": 0, "Name": name, "TopicId": TOPIC, "IsInternal": False, "Partitions": [partition],
        "TopicAuthorizedOperations": 8,
    }  # fmt: skip
    value = {"ThrottleTimeMs": 0, "Brokers": [], "ClusterId": None, "ControllerId": 1, "Topics": [topic]}
    frame = frame_of(message, 12, encode_message(message, 12, value))
    return frame, viewer.view(frame, RESPONSE, 3, 12)


# Text


def test_a_tree_as_text() -> None:
    names = Viewer(names=ClusterNames({TOPIC: "orders"}, {1: "10.0.0.1:9092"}))
    assert list(tree_text(metadata(viewer=names)[1])) == [
        "   0    4  Size: 75",
        "   4    5  Header",
        "   4    4    CorrelationId: 7",
        "   9   70  Body MetadataResponse",
        "   9    4    ThrottleTimeMs: 0",
        "  13    1    Brokers: []",
        "  14    1    ClusterId: null",
        "  15    4    ControllerId: 1 (10.0.0.1:9092)",
        "  19   59    Topics: 1 element",
        "  20   58      [0] MetadataResponseTopic",
        "  20    2        ErrorCode: 0 (NONE)",
        '  22    7        Name: "orders"',
        "  29   16        TopicId: AAECAwQFBgcICQoLDA0ODw (orders)",
        "  45    1        IsInternal: false",
        "  46   27        Partitions: 1 element",
        "  47   26          [0] MetadataResponsePartition",
        "  47    2            ErrorCode: 5 (LEADER_NOT_AVAILABLE)",
        "  49    4            PartitionIndex: 0",
        "  53    4            LeaderId: 1 (10.0.0.1:9092)",
        "  57    4            LeaderEpoch: 3",
        "  61    9            ReplicaNodes: [0, 1 (10.0.0.1:9092)]",
        "  70    1            IsrNodes: []",
        "  71    1            OfflineReplicas: []",
        "  73    4        TopicAuthorizedOperations: 8 (READ)",
    ]


def test_without_offsets() -> None:
    lines = list(tree_text(metadata()[1], offsets=False))
    assert lines[:3] == ["Size: 75", "Header", "  CorrelationId: 7"]


def test_long_arrays_are_shown_whole() -> None:
    text = "\n".join(tree_text(metadata(nodes=500)[1]))
    shown = re.search(r"ReplicaNodes: \[(.*?)\]", text, re.DOTALL)
    assert shown is not None
    assert [int(word) for word in re.findall(r"(\d+)[,\n]|(\d+)$", shown[1]) for word in word if word][-1] == 499
    assert max(map(len, text.splitlines())) < 130
    lines = [line for line in text.splitlines() if re.match(r" *\d+ +\d+  +\d+, \d+", line)]
    assert all(line[:10].split()[1] == "4" for line in lines)


HOSTILE = '\x1b[31m\u202eevil\n\x00\\"\ud800'.encode("utf-8", "surrogatepass")


def test_text_from_the_wire_is_escaped() -> None:
    name = HOSTILE.decode("utf-8", "surrogateescape")
    named = Viewer(names=ClusterNames({TOPIC: name}))
    for line in tree_text(metadata(name, viewer=named)[1]):
        assert line.isprintable(), line
    assert any("\\x1b[31m" in line for line in tree_text(metadata(name)[1]))


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(CHOSEN), st.binary(max_size=120), st.integers(-4, 300))
def test_whatever_comes_is_rendered(which: tuple[MessageLayout, int], rest: bytes, more: int) -> None:
    message, version = which
    inner = header_of(message, version) + rest
    frame = (len(inner) + more).to_bytes(4, "big", signed=True) + inner
    for viewer in (SHUT, OPEN):
        root = viewer.view(frame, message.direction, message.api_key, version)
        assert all(line.isprintable() for line in tree_text(root))
        told = tree_json(root)
        TREE.validate(json.loads(json.dumps(told, ensure_ascii=False).encode("utf-8")))
        assert len(told.get("problems", ())) == len(problems(root))
        lines = list(hexdump(frame, root, secrets=viewer.secrets))
        assert len(lines) == -(-len(frame) // 16)


# JSON


@pytest.mark.parametrize("seed", range(2))
def test_every_message_is_json_by_its_schema(seed: int) -> None:
    for message, version in CHOSEN[seed::2]:
        data, _ = generate_message(message, version, seed)
        frame = frame_of(message, version, data)
        for viewer in (SHUT, OPEN):
            told = tree_json(viewer.view(frame, message.direction, message.api_key, version))
            TREE.validate(json.loads(json.dumps(told, allow_nan=False)))


def test_json_of_a_message() -> None:
    names = Viewer(names=ClusterNames({TOPIC: "orders"}, {1: "10.0.0.1:9092"}))
    told = tree_json(metadata(viewer=names)[1])
    assert told["header"] == {"CorrelationId": 7}
    topic = told["body"]["Topics"][0]
    assert (topic["TopicId"], topic["TopicId_name"]) == ("AAECAwQFBgcICQoLDA0ODw", "orders")
    partition = topic["Partitions"][0]
    assert (partition["ErrorCode"], partition["ErrorCode_name"]) == (5, "LEADER_NOT_AVAILABLE")
    assert (partition["ReplicaNodes"], partition["ReplicaNodes_name"]) == ([0, 1], [None, "10.0.0.1:9092"])
    assert told["body"]["ClusterId"] is None
    assert set(told) == {"header", "body"}


def test_json_of_what_is_hidden_and_of_bytes() -> None:
    message = MESSAGES[36, REQUEST]
    frame = frame_of(message, 0, encode_message(message, 0, {"AuthBytes": b"\0u\0hush"}))
    told = tree_json(view_message(frame))
    assert told["body"] == {"AuthBytes": {"hidden": True, "size": 7, "note": "PLAIN: user name and password"}}
    assert tree_json(OPEN.view(frame))["body"] == {
        "AuthBytes": {"authzid": "", "authcid": "u", "passwd": "hush"},
        "AuthBytes_name": "PLAIN: user name and password",
    }
    token = tree_json(SHUT.view_token(b"\0\0\0\7\0u\0hush", REQUEST))
    assert token["token"]["hidden"] is True


def test_json_of_large_numbers_and_unknown_tags() -> None:
    message = MESSAGES[22, REQUEST]
    value = {
        "TransactionalId": None, "TransactionTimeoutMs": 1, "ProducerId": 2**63 - 1, "ProducerEpoch": -1,
        "unknown tags": [(77, b"ab")],
    }  # fmt: skip
    body = tree_json(view_message(frame_of(message, 3, encode_message(message, 3, value))))["body"]
    assert body["ProducerId"] == 9223372036854775807
    assert body["_unknown_tags"] == [{"tag": 77, "base64": "YWI=", "size": 2}]


def test_json_has_no_numbers_that_are_not_finite() -> None:
    message = MESSAGES[49, REQUEST]
    numbers = [math.nan, math.inf, -math.inf, 1.5]
    value = {
        "Entries": [{"Entity": [], "Ops": [{"Key": "k", "Value": n, "Remove": False} for n in numbers]}],
        "ValidateOnly": False,
    }  # fmt: skip
    (entry,) = tree_json(view_message(frame_of(message, 1, encode_message(message, 1, value))))["body"]["Entries"]
    assert [each["Value"] for each in entry["Ops"]] == ["NaN", "Infinity", "-Infinity", 1.5]


def test_json_of_a_damaged_message() -> None:
    frame, _ = metadata()
    root = SHUT.view(frame[:60], RESPONSE, 3, 12)
    told = tree_json(root)
    TREE.validate(told)
    assert "LeaderEpoch" not in told["body"]["Topics"][0]["Partitions"][0]
    assert told["problems"][0]["path"] == "Body.Topics[0].Partitions[0].LeaderEpoch"
    assert told["rest"] == [
        {"what": "undecoded bytes", "offset": 57, "size": 3},
        {"what": "not captured", "offset": 60, "size": 19},
    ]


# Bytes


def _text(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_a_hexdump() -> None:
    message = MESSAGES[36, REQUEST]
    frame = frame_of(message, 0, encode_message(message, 0, {"AuthBytes": b"\0u\0hush"}))
    assert _text(list(hexdump(frame, view_message(frame)))) == [
        "00000000  00 00 00 1b 00 24 00 00  00 00 00 07 00 06 74 65  .....$........te",
        "00000010  73 74 65 72 ** ** ** **  ** ** ** ** ** ** **     ster***********",
    ]
    assert _text(list(hexdump(frame, secrets=True)))[1].endswith("ster.....u.hush")
    assert "hush" not in "".join(_text(list(hexdump(frame))))


def test_records_are_masked_unless_asked_for() -> None:
    message = MESSAGES[0, REQUEST]
    batch = bytes(8) + (49 + 6).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(40) + b"\0\0\0\1" + b"PAYLOA"
    value = {
        "TransactionalId": None, "Acks": 1, "TimeoutMs": 1,
        "TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": batch}]}],
    }  # fmt: skip
    frame = frame_of(message, 3, encode_message(message, 3, value))
    root = view_message(frame)
    shut = "".join(_text(list(hexdump(frame, root))))
    assert "PAYLOA" not in shut
    assert "02" in shut
    shown = _text(list(hexdump(frame, root, records=True)))
    assert "PAYLOA" in "".join(line[60:] for line in shown)
    line = next(line for line in tree_text(root) if "RecordBatch" in line)
    assert line.endswith(
        "[0] RecordBatch: base offset 0, 1 record, not compressed, producer 0, epoch 0, sequence 0, CRC 00000000"
        "  <- wrong CRC"
    )
    batch_json = tree_json(root)["body"]["TopicData"][0]["PartitionData"][0]["Records"]["batches"][0]
    assert (batch_json["Magic"], batch_json["RecordCount"], batch_json["Records"]) == (
        2,
        1,
        {"hidden": True, "size": 6},
    )


def test_spans_say_what_is_wrong_in_a_style_of_its_own() -> None:
    frame, _ = metadata()
    lines = tree_text(SHUT.view(frame[:60], RESPONSE, 3, 12), terminal_paint(lambda style: (f"<{style}>", "</>")))
    wrong = [line for line in lines if "cut short" in line or "missing" in line]
    assert wrong
    assert all(re.search(r"<bold red>[^<]*<- [^<]*(cut short|missing)[^<]*</>$", line) for line in wrong)


def test_no_secret_is_in_any_form_of_any_message() -> None:
    """Every secret field of every message, in every version."""
    told = 0
    for message, version in ALL:
        for seed in range(3):
            data, _ = generate_message(message, version, seed)
            frame = frame_of(message, version, data)
            root = SHUT.view(frame, message.direction, message.api_key, version)
            opened = OPEN.view(frame, message.direction, message.api_key, version)
            secrets = [
                other
                for (_, node), (_, other) in zip(walk(root), walk(opened), strict=False)
                if node.kind == "hidden" and node.length > 20 and isinstance(other.value, bytes)
            ]
            if not secrets or message.api_key in (58,):
                continue
            text = "\n".join(tree_text(root)) + json.dumps(tree_json(root))
            dump = "".join(line[1][0].replace(" ", "") for line in hexdump(frame, root))
            for secret in secrets:
                assert isinstance(secret.value, bytes)
                told += 1
                assert secret.value[:12].hex() not in text + dump
    assert told > 20
