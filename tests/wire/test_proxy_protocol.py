"""A PROXY header before the first request: it is skipped, and its source is the client that rows show."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tcp import encode, lose
from tests.wire.foreign_talks import client_hello
from tests.wire.harness import Decoded, Row, check, decode_packets
from tests.wire.kafkatalk import KafkaTalk, add_exchanges, assert_exchanges

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
PEER = ("10.0.0.1", 40_000)


def line(source: str, port: int, target: str = "10.0.0.2", family: str = "") -> bytes:
    family = family or ("TCP6" if ":" in source else "TCP4")
    return f"PROXY {family} {source} {target} {port} 9092\r\n".encode()


def binary(source: str, port: int, *, command: int = 0x21, more: bytes = b"") -> bytes:
    """A header of version 2. `more` comes behind the addresses: TLVs."""
    kind, code = (socket.AF_INET6, 0x21) if ":" in source else (socket.AF_INET, 0x11)
    address = socket.inet_pton(kind, source)
    rest = address + bytes(len(address)) + struct.pack(">HH", port, 9_092) + more
    return SIGNATURE + struct.pack(">BBH", command, code, len(rest)) + rest


def proxied(header: bytes, *, together: bool = False, **options: object) -> KafkaTalk:
    """A connection that begins with a header, in a segment of its own or with the first request."""
    talk = KafkaTalk(**options)  # type: ignore[arg-type]
    talk.tcp.open()
    first = len(talk.segments)
    talk.tcp.client(header)
    add_exchanges(talk, 4)
    if together:
        request = talk.segments[first + 2]
        joined = type(request)(
            request.time_ns, request.source, request.destination, talk.segments[first].seq, request.ack, request.flags,
            header + request.payload,
        )  # fmt: skip
        talk.segments[first : first + 3] = [joined]
    talk.tcp.close()
    return talk


def shown(talk: KafkaTalk, ip: str, port: int) -> list[Row]:
    return [{**row, "client_ip": ip, "client_port": port} for row in talk.wanted]


def assert_source(talk: KafkaTalk, header: bytes, ip: str, port: int) -> Decoded:
    seen = check(encode(talk.segments))
    assert_exchanges(seen, shown(talk, ip, port))
    (row,) = seen.connections
    assert (row["client_ip"], row["client_port"]) == (ip, port)
    assert (row["proxy_ip"], row["proxy_port"]) == (PEER if (ip, port) != PEER else (None, -1))
    assert seen.ledger["payload bytes"]["proxy_headers"] == len(header)
    assert seen.ledger["payload bytes"]["skipped"] == seen.ledger["payload bytes"]["not_kafka"] == 0
    return seen


SOURCES = {
    "line": (line("192.0.2.7", 51_234), "192.0.2.7", 51_234),
    "line-ipv6": (line("2001:db8::7", 1, "2001:db8::1"), "2001:db8::7", 1),
    "line-whole-ipv6": (line("2001:DB8:1:2:3:4:5:6", 65_535, "::"), "2001:db8:1:2:3:4:5:6", 65_535),
    "line-loopback": (line("::1", 7, "::1"), "::1", 7),
    "line-end": (line("fe80::", 7, "::1"), "fe80::", 7),
    "binary": (binary("198.51.100.9", 443), "198.51.100.9", 443),
    "binary-ipv6": (binary("2001:db8::9", 443), "2001:db8::9", 443),
    "binary-mapped": (binary("::ffff:198.51.100.9", 443), "198.51.100.9", 443),
    "binary-tlvs": (binary("198.51.100.9", 443, more=b"\3\0\4abcd\x20\0\x09\1\0\0\0\0\x21\0\1x"), "198.51.100.9", 443),
    "binary-long": (binary("198.51.100.9", 443, more=b"\xea\x0b\xb8" + bytes(3_000)), "198.51.100.9", 443),
}
NO_SOURCE = {
    "unknown": b"PROXY UNKNOWN\r\n",
    "unknown-with-addresses": b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
    "local": SIGNATURE + b"\x20\0\0\0",
    "local-with-addresses": binary("198.51.100.9", 443, command=0x20),
    "unspec": SIGNATURE + b"\x21\0\0\7\4\0\4none",
    "unix": SIGNATURE + b"\x21\x31\0\xd8" + b"/tmp/a".ljust(108, b"\0") * 2,
    "udp": SIGNATURE + b"\x21\x12\0\x0c" + bytes(12),
    "too-short": SIGNATURE + b"\x21\x11\0\4" + bytes(4),
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", SOURCES)
def test_the_source_is_the_client(name: str, together: bool) -> None:
    header, ip, port = SOURCES[name]
    assert_source(proxied(header, together=together and len(header) < 1_400), header, ip, port)


@pytest.mark.parametrize("name", NO_SOURCE)
def test_a_header_without_a_source_is_skipped(name: str) -> None:
    assert_source(proxied(NO_SOURCE[name]), NO_SOURCE[name], *PEER)


@pytest.mark.parametrize("name", ["line", "binary-tlvs", "local"])
@pytest.mark.parametrize("size", [1, 5, 13, 17])
def test_a_header_in_several_segments(name: str, size: int) -> None:
    header, ip, port = SOURCES.get(name) or (NO_SOURCE[name], *PEER)
    assert_source(proxied(header, mss=size), header, ip, port)


def test_tls_behind_a_header() -> None:
    header = binary("198.51.100.9", 443)
    for data in ((header + client_hello(),), (header, client_hello())):
        talk = KafkaTalk()
        talk.tcp.open()
        for part in data:
            talk.tcp.client(part)
        talk.tcp.server(b"\x16\3\3\0\x2a" + bytes(42))
        talk.tcp.close()
        (row,) = check(encode(talk.segments)).connections
        assert (row["protocol"], row["client_ip"], row["proxy_ip"]) == ("tls", "198.51.100.9", "10.0.0.1")


def test_without_the_start_of_the_connection() -> None:
    """Nobody knows that there was a header: the TCP peer is shown, the exchanges are the same."""
    talk = proxied(SOURCES["line"][0])
    for segments in (talk.segments[5:], lose(talk.segments, 3)):
        seen = check(encode(segments))
        assert_exchanges(seen, talk.wanted)
        assert {row["proxy_ip"] for row in seen.connections} == {None}


def test_only_one_header_is_skipped() -> None:
    """What comes behind it is not Kafka, but the requests are, as their responses fit."""
    talk = proxied(SOURCES["line"][0] * 2)
    seen = check(encode(talk.segments))
    assert [row["protocol"] for row in seen.connections] == ["kafka"]
    assert [x["outcome"] for x in seen.exchanges] == ["answered"] * len(talk.wanted)


MALFORMED = (
    b"PROXY TCP4 192.0.2.256 10.0.0.2 1 2\r\n",
    b"PROXY TCP4 192.0.2 10.0.0.2 1 2\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 1\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
    b"PROXY TCP6 1::2::3 ::1 1 2\r\n",
    b"PROXY TCP6 1:2:3:4:5:6:7 ::1 1 2\r\n",
    b"PROXY TCP6 1:2:3:4:5:6:7:8:9 ::1 1 2\r\n",
    b"PROXY TCP6 ::12345 :: 1 2\r\n",
    b"PROXY TCP4 " + b"1" * 200 + b"\r\n",
    b"PROXY TCP5 a b c d\r\n",
    b"PROXY\r\n",
    b"PROXY " * 30,
    SIGNATURE + b"\x11\x11\0\x0c" + bytes(12),
    SIGNATURE + b"\x22\x11\0\x0c" + bytes(12),
    SIGNATURE[:11] + b"x" + bytes(20),
    SIGNATURE + b"\x21\x11\xff\xff" + bytes(12),
    SIGNATURE,
    b"PROXY TCP4 1.2.3.4",
)


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_a_malformed_header_is_no_kafka(number: int) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.tcp.client(MALFORMED[number])
    talk.tcp.server(b"no")
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert not seen.exchanges
    assert {row["protocol"] for row in seen.connections} <= {"foreign", "unknown"}
    assert {row["proxy_ip"] for row in seen.connections} == {None}
    payload = seen.ledger["payload bytes"]
    assert payload["not_kafka"] == payload["total"]


@given(st.ip_addresses(v=6), st.integers(0, 65_535))
def test_any_ipv6_address(address: object, port: int) -> None:
    text = str(ip_address(str(address)))
    seen = decode_packets(encode(proxied(line(text, port, "::1")).segments))
    mapped = ip_address(text).ipv4_mapped  # type: ignore[union-attr]
    assert {(x["client_ip"], x["client_port"]) for x in seen.exchanges} == {(str(mapped or text), port)}


@given(st.binary(max_size=60), st.booleans())
def test_anything_behind_a_signature(data: bytes, is_text: bool) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.tcp.client((b"PROXY TCP" if is_text else SIGNATURE) + data)
    talk.tcp.server(data)
    talk.tcp.close()
    assert not decode_packets(encode(talk.segments)).exchanges
