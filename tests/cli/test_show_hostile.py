"""Whatever is on the wire, `kafkatap show` goes on, says what is wrong, and does nothing to the terminal."""

from __future__ import annotations

import json
import re
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kafkatap.__main__ import main
from tests.support.captures import pcap_bytes
from tests.support.records import ZSTD, Record, batch
from tests.support.tcp import encode, frame
from tests.wire.kafkatalk import CREATE_TOPICS, FETCH, FIND_COORDINATOR, METADATA, PRODUCE, KafkaTalk, body, request

from .running import without_compiling

Show = Callable[..., str]

NASTY = (
    "\x1b[31m\x1b]0;title\x07\r\n\t\b\x7f\x9b2J\u202eevil\u2066\u200b\u2028\u2029\ufeff\U000e0001\ue000\x00\\x41"
    "\udcff\udcfe"
)
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Run `kafkatap show`; its standard output. It succeeds and says nothing else, but how many messages -n left."""

    def shown(*arguments: str | Path) -> str:
        code = main(["show", "--utc", *map(str, arguments)])
        out, err = capsys.readouterr()
        counted = re.sub(r"^kafkatap: [0-9,]+ of [0-9,]+ messages shown\n", "", without_compiling(err))
        assert (code, counted) == (0, "")
        return str(out)

    return shown


def acts(text: str) -> set[str]:
    """The characters that could act on a terminal, or mislead."""
    return {c for c in set(text) if c != "\n" and unicodedata.category(c) in HIDDEN}


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text that a message can hold is nasty."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.exchange(METADATA, 1, 0)
    raw = NASTY.encode("utf-8", "surrogateescape")
    head = struct.pack(">hhih", METADATA, 1, 1, len(raw)) + raw
    talk.tcp.send(0, frame(head + body(METADATA, 1, 0, Topics=[{"Name": NASTY}])))
    broker = {"NodeId": 1, "Host": NASTY, "Port": 9092, "Rack": NASTY}
    partition = {"PartitionIndex": 0, "LeaderId": 1, "ReplicaNodes": [1, 2]}
    topic = {"Name": NASTY, "Partitions": [partition], "TopicId": bytes(range(16))}
    content = body(METADATA, 1, 1, Brokers=[broker], Topics=[topic])
    talk.tcp.send(1, frame(struct.pack(">i", 1) + content))
    talk.respond(talk.request(METADATA, 12, 2), Brokers=[broker], ClusterId=NASTY, Topics=[topic])
    fetched = {"TopicId": bytes(range(16)), "Partitions": [{"Partition": 0}]}
    talk.request(FETCH, 13, 3, Topics=[fetched])
    talk.respond(talk.request(FIND_COORDINATOR, 1, 4, Key=NASTY), ErrorCode=15, ErrorMessage=NASTY, Host=NASTY, Port=1)
    configs = [{"Name": NASTY, "Value": NASTY}, {"Name": "retention.ms", "Value": NASTY}]
    results = [{"Name": NASTY, "ErrorCode": 5120, "ErrorMessage": NASTY}]
    talk.respond(talk.request(CREATE_TOPICS, 5, 5, Topics=[{"Name": NASTY, "Configs": configs}]), Topics=results)
    talk.respond(talk.request(17, 1, 6, Mechanism=NASTY), ErrorCode=33, Mechanisms=[NASTY])
    talk.respond(talk.request(36, 1, 7, AuthBytes=b"\0a\0b"), ErrorMessage=NASTY, ErrorCode=58)
    protocols = [{"Name": NASTY, "Metadata": struct.pack(">hih", 0, 1, len(raw)) + raw + b"\xff\xff\xff\xff"}]
    talk.request(
        11, 5, 8, GroupId=NASTY, MemberId=NASTY, GroupInstanceId=NASTY, ProtocolType="consumer", Protocols=protocols
    )
    talk.request(18, 3, 9, ClientSoftwareName=NASTY, ClientSoftwareVersion=NASTY)
    record = Record(raw, raw, 1_704_067_200_000, ((raw, raw),))
    data = [{"Name": NASTY, "PartitionData": [{"Index": 0, "Records": batch([record])}]}]
    refused = {"Index": 0, "ErrorCode": 87, "ErrorMessage": NASTY, "RecordErrors": [{"BatchIndexErrorMessage": NASTY}]}
    asked = talk.request(PRODUCE, 8, 10, Acks=1, TopicData=data)
    talk.respond(asked, Responses=[{"Name": NASTY, "PartitionResponses": [refused]}])
    path = tmp_path_factory.mktemp("nasty") / "nasty.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    return path


@pytest.mark.parametrize("way", [[], ["--stream"]])
def test_texts_do_nothing_on_a_terminal(show: Show, nasty: Path, way: list[str]) -> None:
    for form, lines in ((["-n", "99"], 20), (["--tree", "--hex"], 200), (["--tree", "--records"], 200)):
        plain = show(*form, *way, nasty)
        assert acts(plain) == set()
        assert SGR.sub("", show(*form, *way, "--color", "always", nasty)) == plain
        assert len(plain.splitlines()) == len(plain.split("\n")) - 1 >= lines
        assert r"\x1b[31m" in plain


@pytest.mark.parametrize("form", [["--brief"], [], ["--records"], ["--show-secrets"], ["--color", "always"]])
def test_json_of_such_texts(show: Show, nasty: Path, form: list[str]) -> None:
    out = show("--json", *form, nasty)
    assert out.isascii()
    assert acts(out) == set()
    objects = [json.loads(line) for line in out.splitlines()]
    assert len(objects) == 19
    assert objects[2]["client_id"] == NASTY.replace("\udcff\udcfe", "\ufffd\ufffd")
    assert objects[2]["topics"][0]["topic"] == objects[2]["client_id"]


# Bodies


def broken() -> dict[str, tuple[int, int, bytes]]:
    """Requests with something wrong, by what it is: API key, version, body."""
    good = body(METADATA, 4, 0, Topics=[{"Name": "orders"}, {"Name": "payments"}])
    envelope = frame_of_envelopes(4)
    zeros = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    bomb = batch([Record(b"k")], ZSTD, payload=zeros, count=1)
    wrong_crc = batch([Record(b"k", b"v")], crc=1)

    def produced(records: bytes) -> bytes:
        return body(
            PRODUCE, 8, 0, Acks=1, TopicData=[{"Name": "t", "PartitionData": [{"Index": 0, "Records": records}]}]
        )

    return {
        "cut": (METADATA, 4, good[:-6]),
        "huge count": (METADATA, 4, struct.pack(">i", 2**31 - 1) + good[4:]),
        "negative length": (METADATA, 4, struct.pack(">ih", 1, -5) + good[6:]),
        "bad varint": (METADATA, 12, b"\0" + b"\xff" * 9),
        "endless varint": (METADATA, 12, b"\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"),
        "unknown tag": (METADATA, 12, body(METADATA, 12, 0)[:-1] + b"\1\x64\2hi"),
        "many tags": (METADATA, 12, body(METADATA, 12, 0)[:-1] + b"\xff\xff\xff\xff\x0f"),
        "null": (8, 8, b"\0\0" + body(8, 8, 0)[2:]),
        "unknown API": (999, 1, b"abc"),
        "newer": (FETCH, 99, b"\0abc"),
        "trailing": (18, 0, b"\0\0\0\0"),
        "nested": (58, 0, envelope),
        "garbage in an envelope": (58, 0, body(58, 0, 0, RequestData=b"\0\x03\0\x0c\xff", RequestPrincipal=b"\7" * 9)),
        "bomb": (PRODUCE, 8, produced(bomb)),
        "wrong CRC": (PRODUCE, 8, produced(wrong_crc)),
        "half a batch": (PRODUCE, 8, produced(wrong_crc[:30])),
        "garbage as records": (PRODUCE, 8, produced(bytes(range(200)))),
    }


def frame_of_envelopes(depth: int) -> bytes:
    inner = request(METADATA, 4, 1, "inner", Topics=[{"Name": "deep"}])[4:]
    for _ in range(depth - 1):
        inner = request(58, 0, 2, "outer", RequestData=inner, RequestPrincipal=None, ClientHostAddress=b"")[4:]
    return body(58, 0, 0, RequestData=inner, RequestPrincipal=None, ClientHostAddress=b"\x7f\0\0\1")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Between whole exchanges requests, and responses, with something wrong."""
    talk = KafkaTalk()
    talk.tcp.open()
    for n, (key, version, content) in enumerate(broken().values()):
        talk.respond(talk.request(METADATA, 4, 2 * n), ControllerId=n)
        asked = talk.request_raw(key, version, 2 * n + 1, content)
        talk.respond_raw(asked, content[::-1])
    talk.respond(talk.request(METADATA, 4, 9_999), ControllerId=9_999)
    path = tmp_path_factory.mktemp("damaged") / "damaged.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    return path


#: What of the request's status, or of its problems, says that something is wrong.
SAID = {
    "cut": "malformed", "huge count": "malformed", "negative length": "malformed", "bad varint": "malformed",
    "endless varint": "malformed", "many tags": "malformed", "unknown API": "unknown_api", "newer": "unknown_version",
    "trailing": "trailing_bytes", "null": "null where none may be", "nested": "nested too deeply",
    "wrong CRC": "CRC", "unknown tag": "_unknown_tags",
}  # fmt: skip


@pytest.mark.parametrize("way", [[], ["--records"], ["--stream", "--show-secrets"]])
def test_all_messages_are_shown_whatever_is_wrong_with_some(show: Show, damaged: Path, way: list[str]) -> None:
    cases = list(broken())
    objects: list[dict[str, Any]] = [json.loads(line) for line in show("--json", *way, damaged).splitlines()]
    assert [m["correlation_id"] for m in objects if m["direction"] == "request"] == [*range(2 * len(cases)), 9_999]
    assert [m["correlation_id"] for m in objects if m["direction"] == "response"] == [*range(2 * len(cases)), 9_999]
    whole = [m for m in objects if m["correlation_id"] % 2 == 0 or m["correlation_id"] == 9_999]
    assert {m["status"] for m in whole} == {"ok"}
    assert [m["body"]["ControllerId"] for m in whole if m["direction"] == "response"] == [*range(len(cases)), 9_999]
    wrong = [m for m in objects if m["direction"] == "request" and m not in whole]
    for name, m in zip(cases, wrong, strict=True):
        if name in SAID and (name != "wrong CRC" or "--records" in way):
            assert SAID[name] in json.dumps(m), name
        assert m["header"]["ClientId"] == "app"
        if m["status"] == "malformed":
            place = f"malformed at byte {m['problem_at']}, {m['problem']}: "
            assert any(problem["problem"].startswith(place) for problem in m["problems"]), name
        else:
            assert m["problem"] is None
    for form in (["--tree"], ["--hex"], []):
        text = show(*form, *way, damaged)
        assert acts(text) == set()
        assert len(re.findall(r"^ *\d+ \d\d:\d\d:\d\d\.\d{6} ", text, re.MULTILINE)) == len(objects)
    said = show(*way, damaged)
    for words in ("malformed", "unknown API", "newer than these definitions", "trailing bytes"):
        assert words in said


def test_the_first_bytes_of_packets_alone(show: Show, corpus: Path) -> None:
    path = corpus / "captures" / "apache-4.3-broker1-s128.pcap.zst"
    text = show("--tree", "--hex", "-n", "2000", path)
    assert len(re.findall(r"^ *\d+ \d\d:\d\d:\d\d\.\d{6} ", text, re.MULTILINE)) == 2000
    assert "not captured" in text
    assert len(show("--json", "-n", "2000", path).splitlines()) == 2000
