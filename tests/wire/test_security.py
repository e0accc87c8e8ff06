"""SASL in its old and new forms, TLS, and protocols that are not Kafka: said for what they are, never mis-decoded."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest

from tests.support.sweeps import seeds
from tests.support.tcp import encode, frame, split_small
from tests.wire.harness import Decoded, check, decode_packets
from tests.wire.kafkatalk import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    KafkaTalk,
    add_exchanges,
    assert_exchanges,
    small_talk,
)
from tests.wire.oracle import expected

PLAIN = [(b"\0alice\0alice-secret", b"")]
SCRAM = [
    (
        b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    ),
    (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
]
GSSAPI = [(b"\x60\x82\x02\x10" + bytes(range(200)), bytes(150)), (bytes([5, 4]) + bytes(30), b"\x05\x04\x01\xff" * 8)]
SHORT = [(b"\0a\0b", b""), (b"", b"x")]


def old_sasl(tokens: list[tuple[bytes, bytes]], mechanism: str, mss: int = 1448) -> KafkaTalk:
    """SaslHandshake v0, bare tokens both ways, then requests as ever."""
    talk = KafkaTalk(mss=mss)
    talk.tcp.open()
    asked = talk.request(SASL_HANDSHAKE, 0, 1, Mechanism=mechanism)
    talk.respond(asked, Mechanisms=["PLAIN", "SCRAM-SHA-256", "GSSAPI"])
    for asking, answering in tokens:
        talk.tcp.client(frame(asking))
        talk.tcp.server(frame(answering))
    return talk


@pytest.mark.parametrize("mss", [1448, 7])
@pytest.mark.parametrize(
    ("tokens", "mechanism"), [(PLAIN, "PLAIN"), (SCRAM, "SCRAM-SHA-256"), (GSSAPI, "GSSAPI"), (SHORT, "PLAIN")],
    ids=["plain", "scram", "gssapi", "short"],
)  # fmt: skip
def test_old_sasl(tokens: list[tuple[bytes, bytes]], mechanism: str, mss: int) -> None:
    talk = old_sasl(tokens, mechanism, mss)
    add_exchanges(talk, 4, 2)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.ledger["requests"]["sasl_tokens"] == len(tokens)
    assert seen.ledger["responses"]["sasl_tokens"] == len(tokens)
    assert seen.ledger["payload bytes"]["sasl_tokens"] == sum(8 + len(a) + len(b) for a, b in tokens)
    assert seen.connections[0]["sasl_mechanism"] == mechanism
    assert "secret" not in repr(seen)


@pytest.mark.parametrize("tokens", [PLAIN, SCRAM], ids=["plain", "scram"])
@pytest.mark.parametrize("version", [0, 2])
def test_old_sasl_then_api_versions(tokens: list[tuple[bytes, bytes]], version: int) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond(talk.request(API_VERSIONS, version, 0))
    asked = talk.request(SASL_HANDSHAKE, 0, 1, Mechanism="PLAIN")
    talk.respond(asked)
    for asking, answering in tokens:
        talk.tcp.client(frame(asking))
        talk.tcp.server(frame(answering))
    talk.respond(talk.request(API_VERSIONS, version, 2))
    add_exchanges(talk, 2, 10)
    talk.tcp.close()
    assert_exchanges(check(encode(talk.segments)), talk.wanted)


def test_old_sasl_that_fails() -> None:
    """The broker closes after a wrong token, without an answer."""
    talk = old_sasl([], "PLAIN")
    talk.tcp.client(frame(b"\0alice\0wrong-secret"))
    talk.tcp.close(first=1)
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.ledger["requests"]["sasl_tokens"] == 1
    assert "secret" not in repr(seen)


def test_a_handshake_that_is_refused_has_no_tokens() -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    asked = talk.request(SASL_HANDSHAKE, 0, 1, Mechanism="NONE")
    talk.respond(asked, ErrorCode=33)
    add_exchanges(talk, 3, 5)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.ledger["requests"]["sasl_tokens"] == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_new_sasl_and_authentication_again(version: int) -> None:
    """SaslHandshake v1 and SaslAuthenticate, again in the middle of a connection (KIP-368)."""
    talk = KafkaTalk()
    talk.tcp.open()
    for n in range(3):
        talk.respond(talk.request(SASL_HANDSHAKE, 1, 100 * n, Mechanism="SCRAM-SHA-512"))
        for k, (asking, answering) in enumerate(SCRAM):
            asked = talk.request(SASL_AUTHENTICATE, version, 100 * n + 1 + k, AuthBytes=asking)
            talk.respond(asked, AuthBytes=answering, SessionLifetimeMs=3_600_000)
        add_exchanges(talk, 3, 100 * n + 10)
    asked = talk.request(SASL_AUTHENTICATE, version, 999, AuthBytes=b"\0a\0wrong")
    talk.respond(asked, ErrorCode=58, ErrorMessage="Authentication failed")
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.connections[0]["sasl_mechanism"] == "SCRAM-SHA-512"
    assert seen.ledger["requests"]["sasl_tokens"] == 0
    assert [x["errors"] for x in seen.exchanges if x["correlation_id"] == 999] == [{58: 1}]


# ---------------------------------------------------------------- TLS


def record(kind: int, content: bytes, version: int = 0x0303) -> bytes:
    return struct.pack("!BHH", kind, version, len(content)) + content


def tls(mss: int = 1448, rounds: int = 6, seed: int = 1, **options: Any) -> KafkaTalk:
    """A TLS 1.3 connection: hellos, then records that look random."""
    chance = random.Random(seed)
    talk = KafkaTalk(mss=mss, **options)
    talk.tcp.open()
    hello = b"\1\0\1\xfc\3\3" + chance.randbytes(506)
    talk.tcp.client(record(22, hello, 0x0301))
    answer = record(22, b"\2\0\0\x76\3\3" + chance.randbytes(116)) + record(20, b"\1")
    talk.tcp.server(answer + record(23, chance.randbytes(2_500)))
    for _ in range(rounds):
        talk.tcp.client(record(23, chance.randbytes(chance.randrange(20, 900))))
        talk.tcp.server(record(23, chance.randbytes(chance.randrange(20, 4_000))))
    talk.tcp.close()
    return talk


@pytest.mark.parametrize("mss", [1448, 100, 9])
def test_tls_from_the_start(mss: int) -> None:
    seen = check(encode(tls(mss).segments), splits=5)
    assert not seen.exchanges
    assert seen.connections[0]["protocol"] == "tls"
    assert seen.ledger["payload bytes"]["encrypted"] == seen.ledger["payload bytes"]["total"]


@pytest.mark.parametrize("seed", seeds(8, 3))
def test_tls_in_mid_connection(seed: int) -> None:
    talk = tls(rounds=30, seed=seed)
    for first in (5, 6, 9, 12):
        seen = check(encode(talk.segments[first:]), splits=2)
        assert not seen.exchanges
        assert seen.connections[0]["protocol"] == "tls"
        parts = seen.ledger["payload bytes"]
        assert parts["encrypted"] == parts["total"]


def test_tls_beside_plain_text() -> None:
    talk = small_talk(4, client=("10.0.0.5", 5_555))
    secret = tls(client=("10.0.0.6", 6_666))
    seen = check(encode(secret.segments + talk.segments), splits=5)
    assert_exchanges(seen, talk.wanted)
    assert {c["protocol"] for c in seen.connections} == {"tls", "kafka"}


# ---------------------------------------------------------------- not Kafka

_CHANCE = random.Random(5)
GREETING = b"\x4a\0\0\0\x0a8.0.36\0" + _CHANCE.randbytes(64)
SQL = [(1, GREETING), (0, b"\x54\0\0\1\x85\xa6\xff\x01" + _CHANCE.randbytes(80)), (1, b"\7\0\0\2\0\0\0\2\0\0\0")]
HTTP = [
    (0, b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n"),
    (1, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
] * 4
SSH = [
    (1, b"SSH-2.0-OpenSSH_9.6\r\n"), (0, b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
    (0, struct.pack("!I", 1_500) + b"\x06\x14" + _CHANCE.randbytes(1_498)),
    (1, struct.pack("!I", 1_100) + b"\x05\x14" + _CHANCE.randbytes(1_098)),
]  # fmt: skip
POSTGRES = [
    (0, b"\0\0\0\x08\x04\xd2\x16\x2f"), (1, b"N"),
    (0, b"\0\0\0\x29\0\3\0\0user\0postgres\0database\0postgres\0\0"), (1, b"R\0\0\0\x08\0\0\0\0"),
]  # fmt: skip
ZOOKEEPER = [
    (0, frame(struct.pack("!iqiqi", 0, 0, 30_000, 0, 16) + bytes(16) + b"\0")),
    (1, frame(struct.pack("!iiqi", 0, 30_000, 0x1000_0000_0001, 16) + bytes(range(16)) + b"\0")),
    (0, frame(struct.pack("!iii", 1, 3, 8) + b"/brokers" + b"\0")),
    (1, frame(struct.pack("!iqi", 1, 99, 0) + bytes(68))),
    (0, frame(struct.pack("!ii", -2, 11))),
    (1, frame(struct.pack("!iqi", -2, 100, 0))),
]  # fmt: skip
REDIS = [(0, b"*1\r\n$4\r\nPING\r\n"), (1, b"+PONG\r\n")] * 5
SMTP = [
    (1, b"220 mail ESMTP\r\n"),
    (0, b"EHLO client\r\n"),
    (1, b"250 mail\r\n"),
    (0, b"QUIT\r\n"),
    (1, b"221 bye\r\n"),
]
HTTP_2 = [(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"), (1, b"\0\0\x06\4\0\0\0\0\0\0\3\0\0\0\x64")]
DNS = [(0, b"\0\x1d\x12\x34\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"), (1, b"\0\x2d" + bytes(45))]
NOISE = [(n % 2, _CHANCE.randbytes(200 + 37 * n)) for n in range(12)]
ZEROS = [(n % 2, bytes(300)) for n in range(8)]
FOREIGN = {
    "http": HTTP, "ssh": SSH, "mysql": SQL, "postgres": POSTGRES, "redis": REDIS, "smtp": SMTP, "http 2": HTTP_2,
    "dns": DNS, "noise": NOISE, "zeros": ZEROS,
}  # fmt: skip


def foreign(turns: list[tuple[int, bytes]], **options: Any) -> KafkaTalk:
    talk = KafkaTalk(client=("10.0.0.8", 33_333), **options)
    talk.tcp.open()
    for end, data in turns:
        talk.tcp.send(end, data)
    talk.tcp.close()
    return talk


def assert_foreign(seen: Decoded) -> None:
    assert not seen.exchanges
    assert seen.connections[0]["protocol"] in ("foreign", "unknown")
    assert seen.ledger["payload bytes"]["not_kafka"] == seen.ledger["payload bytes"]["total"]


@pytest.mark.parametrize("name", sorted(FOREIGN))
@pytest.mark.parametrize("mss", [1448, 11])
def test_other_protocols(name: str, mss: int) -> None:
    assert_foreign(check(encode(foreign(FOREIGN[name], mss=mss).segments), splits=5))


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_other_protocols_in_mid_connection(name: str) -> None:
    """On Kafka's own port, even with the hint: no exchange is made up."""
    talk = foreign(FOREIGN[name] * 3)
    for first in (3, 4, 5, 7, 8):
        assert_foreign(decode_packets(encode(talk.segments[first:])))
        assert_foreign(decode_packets(encode(talk.segments[first:]), ports=[9_092]))


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_other_protocols_beside_kafka(name: str) -> None:
    talk = small_talk(4, mss=60)
    other = foreign(FOREIGN[name], broker=("10.0.0.2", 9_092))
    seen = check(encode(other.segments + talk.segments), splits=5)
    assert_exchanges(seen, talk.wanted)


def test_a_server_that_speaks_first_then_kafka() -> None:
    """A proxy's banner before it connects through: what the client asks is found."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.tcp.server(b"proxy ready\r\n")
    add_exchanges(talk, 5)
    talk.tcp.close()
    assert_exchanges(check(encode(talk.segments)), talk.wanted)


def test_noise_on_every_length() -> None:
    """Short random first bytes: nothing is made of them."""
    chance = random.Random(11)
    for length in range(1, 60):
        talk = foreign([(0, chance.randbytes(length)), (1, chance.randbytes(length))])
        assert_foreign(decode_packets(encode(talk.segments)))
        assert_foreign(decode_packets(encode(split_small(talk.segments, 5))))


def test_secrets_are_in_no_table() -> None:
    """Not even where the end of authentication cannot be told."""
    talk = old_sasl([], "PLAIN", mss=9)
    talk.tcp.client(frame(b"\0alice\0alice-secret"))
    talk.tcp.client(frame(b"\0alice\0alice-secret" * 3))
    talk.request(METADATA, 1, 9)
    talk.tcp.close()
    assert "secret" not in repr(check(encode(talk.segments)))
    assert "secret" not in repr(check(encode(talk.segments[12:])))


def test_produce_with_any_bytes_inside() -> None:
    """Records may hold what looks like requests, responses, TLS or tokens."""
    inner = b"".join(s.payload for s in small_talk(3, client=("1.1.1.1", 1)).segments) + record(23, bytes(90))
    talk = KafkaTalk(mss=50)
    talk.tcp.open()
    for n in range(4):
        partitions = [{"Index": 0, "Records": inner[n:]}]
        talk.respond(talk.request(PRODUCE, 3, n, Acks=1, TopicData=[{"Name": "t", "PartitionData": partitions}]))
    add_exchanges(talk, 2, 20)
    talk.tcp.close()
    assert_exchanges(check(encode(talk.segments)), talk.wanted)
    for first in range(3, len(talk.segments), 5):
        captured = talk.segments[first:]
        seen = decode_packets(encode(captured))
        whole, _ = expected(captured, talk.segments)
        assert [x for x in seen.exchanges if x["outcome"] == "answered"] or not whole
        assert {x["correlation_id"] for x in seen.exchanges} >= {row["correlation_id"] for row in whole}
        assert {(x["client_port"], x["api_key"]) for x in seen.exchanges if x["outcome"] != "orphan_response"} <= {
            (row["client_port"], row["api_key"]) for row in talk.wanted
        }
    assert replace(seen) == seen
