"""Connections that begin with what is no request, or one that cannot be judged: what fits behind it is found."""

from __future__ import annotations

import random
import struct
import time

import pytest

from tests.support.tcp import START_NS, Segment, encode, frame, split_small
from tests.wire.harness import check, decode_packets
from tests.wire.kafkatalk import METADATA, PRODUCE, KafkaTalk, add_exchanges, assert_exchanges, raw_request
from tests.wire.test_kafka import opened

#: A message of version 0: its offset, size, CRC, magic and attributes, no key, and a value.
MESSAGE = struct.pack("!qiIbbii", 0, 15, 0x0FA50B8F, 0, 0, -1, 1) + b"w"
TOKEN = b"\x60\x82\x02\x05\x06\x09" + bytes(range(200))
#: What the first frame is, by name: key, version, body. The broker answers each.
ODD = {
    "malformed": (METADATA, 1, b"\0\0\0\0\0\5\0"),
    "an unknown key": (777, 0, b"\0\0\0\0ABCDEFG"),
    "an unknown version": (METADATA, 99, b"\0\0\0\0ABCDEFG"),
}


def produce(version: int, acks: int, topic: bytes = b"orders", records: bytes = MESSAGE) -> bytes:
    """The body of a Produce request with one partition."""
    if version < 9:
        lead = b"\xff\xff" if version >= 3 else b""
        names = struct.pack("!ih", 1, len(topic)) + topic
        return lead + struct.pack("!hi", acks, 1_500) + names + struct.pack("!iii", 1, 0, len(records)) + records
    names = b"\2" + (bytes(range(16)) if version >= 13 else bytes([len(topic) + 1]) + topic)
    size = bytes([len(records) + 1])
    return b"\0\0" + struct.pack("!hi", acks, 1_500) + names + b"\2" + bytes(4) + size + records + b"\0\0\0"


@pytest.mark.parametrize("has_start", [True, False])
@pytest.mark.parametrize("client_id", ["app", None])
@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 12, 13])
def test_any_number_of_acks(version: int, client_id: str | None, has_start: bool) -> None:
    """Brokers once allowed more than one, and refuse it with an error since."""
    talk = KafkaTalk(client_id=client_id)
    if has_start:
        talk.tcp.open()
    for n in range(6):
        talk.respond(talk.request_raw(PRODUCE, version, n, produce(version, (2, 3, -2)[n % 3])))
    if has_start or client_id is not None:
        assert_exchanges(check(encode(talk.segments)), talk.wanted)
    assert_exchanges(check(encode(talk.segments), ports=(9_092,)), talk.wanted)


@pytest.mark.parametrize(
    ("topic", "records"),
    [(b"no topic", MESSAGE), (b"", MESSAGE), (b"orders", MESSAGE[:16] + b"\7" + MESSAGE[17:]), (b"orders", bytes(27))],
)
def test_other_acks_need_a_topic_and_records(topic: bytes, records: bytes) -> None:
    talk = KafkaTalk()
    talk.request_raw(PRODUCE, 0, 1, produce(0, 2, topic, records))
    assert check(encode(talk.segments)).exchanges == []


@pytest.mark.parametrize("mss", [1448, 9])
@pytest.mark.parametrize("name", ODD)
def test_a_first_request_without_a_name_that_cannot_be_judged(name: str, mss: int) -> None:
    talk = opened(client_id=None, mss=mss)
    key, version, content = ODD[name]
    talk.respond_raw(talk.request_raw(key, version, 1, content), b"\0\0")
    talk.client_id = "app"
    add_exchanges(talk, 8, 10)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.ledger["payload bytes"]["kafka_frames"] == seen.ledger["payload bytes"]["total"]


@pytest.mark.parametrize("ports", [(), (9_092,)])
@pytest.mark.parametrize(("client_id", "mss"), [("app", 1448), ("app", 24), (None, 1448)])
def test_bare_tokens_without_a_handshake(client_id: str | None, mss: int, ports: tuple[int, ...]) -> None:
    """SASL of Kafka 0.9. The tokens are not Kafka's, and the pairs behind them are found."""
    talk = opened(client_id=client_id, mss=mss)
    tokens = (TOKEN, TOKEN, b"", b"\5\4\5\xff" * 8)
    for n, token in enumerate(tokens):
        talk.tcp.send(n & 1, frame(token))
    for n in range(6):
        talk.respond(talk.request(METADATA, 1, n, Topics=[{"Name": "orders-and-more"}]))
    talk.tcp.close()
    seen = check(encode(talk.segments), ports=ports)
    assert_exchanges(seen, talk.wanted)
    payload = seen.ledger["payload bytes"]
    assert payload["not_kafka"] == sum(4 + len(token) for token in tokens)
    assert payload["skipped"] == 0


def test_a_request_alone_is_no_second_look_but_at_a_known_port() -> None:
    talk = opened()
    talk.tcp.client(frame(TOKEN))
    talk.tcp.server(frame(TOKEN))
    talk.request(METADATA, 1, 1)
    talk.tcp.close(1)
    assert check(encode(talk.segments)).exchanges == []
    assert check(encode(talk.segments), ports=[5_000]).exchanges == []
    assert_exchanges(check(encode(talk.segments), ports=[9_092]), talk.wanted)


@pytest.mark.parametrize("answer", ["another id", "a body that does not decode", "a gap", "bytes before it"])
def test_what_does_not_answer_it_is_no_pair(answer: str) -> None:
    talk = opened()
    talk.tcp.client(frame(TOKEN))
    talk.tcp.server(frame(TOKEN))
    for n in range(4):
        talk.tcp.client(raw_request(METADATA, 1, n, b"\xff\xff\xff\xff"))
        if answer == "another id":
            talk.tcp.server(frame(struct.pack("!i", n + 9) + bytes(12)))
        elif answer == "a body that does not decode":
            talk.tcp.server(frame(struct.pack("!i", n) + b"\x7f\xff\xff\xff"))
        elif answer == "a gap":
            talk.tcp.skip(1, 20)
        else:
            talk.tcp.server(b"\0" + frame(struct.pack("!i", n) + bytes(12)))
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert seen.exchanges == []
    assert {c["protocol"] for c in seen.connections} == {"foreign"}


def seconds(segments: list[Segment]) -> float:
    packets = encode(segments)
    started = time.process_time()
    assert decode_packets(packets).exchanges == []
    return time.process_time() - started


@pytest.mark.parametrize("size", [40, 4_000, 30_000])
def test_looks_take_linear_time(size: int) -> None:
    """Requests that nobody answers, in small segments: twice as many take twice as long."""
    content = b"\0\0\0\1" + struct.pack("!h", size) + b"t" * size
    request = raw_request(METADATA, 1, 1, content)

    def talk(count: int) -> list[Segment]:
        made = KafkaTalk(acks=False, mss=400, time_ns=START_NS)
        made.tcp.open()
        made.tcp.client(frame(TOKEN))
        for n in range(count):
            made.tcp.client(request)
            if n % 5 == 4:
                made.tcp.server(random.Random(n).randbytes(30))
        return made.segments

    count = max(4, 1_000_000 // len(request))
    once = seconds(talk(count))
    assert seconds(talk(4 * count)) < 8 * once + 0.5


def test_a_first_request_in_many_segments_takes_linear_time() -> None:
    """Requests that cannot be judged, and an answer that never ends, a byte at a time."""
    talk = KafkaTalk(client_id=None, acks=False)
    talk.tcp.open()
    talk.tcp.client(b"".join(raw_request(777, 0, n, b"ABCDEFG", None) for n in range(4_000)))
    talk.tcp.server(struct.pack("!ii", 100_000, 0) + bytes(30_000))
    assert seconds(split_small(talk.segments, 4)) < 4
