"""Rewritten packets: any layers around TCP, fragments, TLS, PROXY headers and foreign bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatap.anonymize import CaptureRewriter
from kafkatap.anonymize.headers import internet_checksum
from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.library import analyze
from tests.support.captures import ETHERNET, Packet, pcap_bytes
from tests.support.encapsulation import KINDS, encapsulate, fragment, link_type_of
from tests.support.tcp import TcpConversation, encode
from tests.wire.kafkatalk import small_talk

KEY = b"a key of 16 bytes"
PACKETS = encode(small_talk(4, mss=200).segments)
_COLUMNS = ["api_name", "correlation_id", "request_bytes", "response_bytes", "outcome", "request_status"]


def _anonymized(packets: Sequence[Packet], folder: Path, link_type: int = ETHERNET) -> list[Packet]:
    """The packets that are not left out, rewritten, and the file they are in, out.pcap."""
    source = folder / "in.pcap"
    source.write_bytes(pcap_bytes(packets, link_type))
    made = []
    with CaptureRewriter(str(source), KEY) as rewriter:
        assert not rewriter.learner.counts.unplaced
        for number, packet in enumerate(packets, 1):
            new = rewriter.rewrite(packet.data, link_type, number)
            if new is not None:
                assert len(new) == len(packet.data)
                made.append(Packet(packet.time_ns, new, packet.wire_length))
    (folder / "out.pcap").write_bytes(pcap_bytes(made, link_type))
    return made


def _assert_same_exchanges(folder: Path) -> None:
    old, new = (analyze(folder / name).exchanges.select(_COLUMNS).to_pylist() for name in ("in.pcap", "out.pcap"))
    assert old == new
    assert len(old) == 4


def _assert_nothing_left(made: Sequence[Packet]) -> None:
    whole = b"".join(packet.data for packet in made)
    assert not [text for text in (b"topic-", b"group-", b"\x0a\0\0\x02") if text in whole]


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_kept_and_addresses_are_not(kind: str, tmp_path: Path) -> None:
    packets = encapsulate(PACKETS, kind)
    made = _anonymized(packets, tmp_path, link_type_of(kind))
    assert len(made) == len(packets)
    _assert_same_exchanges(tmp_path)
    _assert_nothing_left(made)
    assert not any(bytes((192, 0, 2, 1)) in packet.data for packet in made)


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_fragments_are_parts_of_the_rewritten_datagram(order: str, tmp_path: Path) -> None:
    packets = fragment(PACKETS, 100, order)
    made = _anonymized(packets, tmp_path)
    assert len(made) == len(packets)
    _assert_same_exchanges(tmp_path)
    _assert_nothing_left(made)


def _talk(*sent: tuple[int, bytes]) -> list[Packet]:
    conversation = TcpConversation(("10.0.0.5", 40_000), ("10.0.0.2", 9_092))
    conversation.open()
    for end, data in sent:
        conversation.send(end, data)
    conversation.close()
    return encode(conversation.segments)


def _payload(packets: Sequence[Packet]) -> bytes:
    return b"".join(packet.data[14 + 20 + (packet.data[46] >> 4) * 4 :] for packet in packets)


def test_of_tls_only_the_headers_of_records_stay(tmp_path: Path) -> None:
    hello = b"\x16\x03\x01\0\x20" + b"\1\0\0\x1c\3\3" + b"server-name.example.org!!!"
    data = b"\x17\x03\x03\0\x1e" + b"ciphertext-ciphertext-ciphers!"
    made = _anonymized(_talk((0, hello), (1, data), (0, data + data)), tmp_path)
    payload = _payload(made)
    assert b"server" not in payload
    assert b"cipher" not in payload
    assert payload.count(b"\x17\x03\x03\0\x1e") == 3
    assert analyze(tmp_path / "out.pcap").connections.column("protocol").to_pylist() == ["tls"]


def test_headers_of_records_as_long_as_those_of_tls_1_2_stay(tmp_path: Path) -> None:
    """RFC 5246, 6.2.3: 2^14 + 2,048 bytes."""
    hello = b"\x16\x03\x01\0\x20" + b"\1\0\0\x1c\3\3" + b"server-name.example.org!!!"
    header = b"\x17\x03\x03" + (16_384 + 2_048).to_bytes(2, "big")
    made = _anonymized(_talk((0, hello), (1, header + bytes(16_384 + 2_048)), (1, header + b"secret")), tmp_path)
    payload = _payload(made)
    assert payload.count(header) == 2
    assert b"secret" not in payload


def test_foreign_bytes_are_filler(tmp_path: Path) -> None:
    made = _anonymized(
        _talk((0, b"GET /secret-path HTTP/1.1\r\nHost: shop.example\r\n\r\n"), (1, b"HTTP/1.1 200")), tmp_path
    )
    assert set(_payload(made)) <= set(b"x\0")  # zeros: padding of short Ethernet frames


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 198.51.100.7 10.0.0.2 51234 9092\r\n",
        b"PROXY UNKNOWN whatever it says\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xc6\x33\x64\x07\x0a\0\0\2\xc8\x22\x23\x84\x04\0\5alpn!",
    ],
)
def test_proxy_headers_have_pseudonyms(header: bytes, tmp_path: Path) -> None:
    talk = small_talk(0)
    talk.tcp.segments.clear()
    talk.tcp.open()
    talk.tcp.send(0, header)
    from tests.wire.kafkatalk import add_exchanges

    add_exchanges(talk, 4)
    talk.tcp.close()
    made = _anonymized(encode(talk.segments), tmp_path)
    _assert_same_exchanges(tmp_path)
    payload = b"".join(packet.data for packet in made)
    for text in (b"198.51.100.7", b"\xc6\x33\x64\x07", b"whatever", b"alpn"):
        assert text not in payload
    if b"TCP4" in header:
        with CaptureRewriter(str(tmp_path / "in.pcap"), KEY) as rewriter:
            source = rewriter.names.text("198.51.100.7")
        assert analyze(tmp_path / "out.pcap").exchanges.column("client_ip").to_pylist()[0] == source


def test_padding_options_and_other_protocols_are_dropped(tmp_path: Path) -> None:
    arp = Packet(PACKETS[0].time_ns, b"\xff" * 6 + b"\2" * 6 + b"\x08\x06" + b"arp with a secret inside" * 2)
    options = encode(small_talk(4).segments, options=b"\xfd\x0aSECRET01\1\1", ip_options=b"\x94\x04\0\0")
    made = _anonymized([arp, *options], tmp_path)
    assert len(made) == len(options)
    whole = b"".join(packet.data for packet in made)
    assert b"SECRET" not in whole
    assert b"secret" not in whole
    _assert_same_exchanges(tmp_path)


def test_the_internet_checksum_is_that_of_the_rfc() -> None:
    data = bytes.fromhex("0001f203f4f5f6f7")
    assert internet_checksum(data) == 0xFFFF ^ 0xDDF2
    assert internet_checksum(b"") == 0xFFFF
    assert internet_checksum(data + (0xFFFF ^ 0xDDF2).to_bytes(2, "big")) == 0


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("kind", KINDS)
def test_packets_of_a_block_become_what_each_becomes_alone(kind: str, key: bytes | None, tmp_path: Path) -> None:
    packets = encapsulate(PACKETS, kind)
    longest = max(packets, key=lambda packet: len(packet.data))
    cut = [Packet(longest.time_ns, longest.data[:size], longest.wire_length) for size in range(len(longest.data))]
    source = tmp_path / "in.pcap"
    source.write_bytes(pcap_bytes([*packets, *cut], link_type_of(kind)))
    reader = CaptureReader(str(source))
    with CaptureRewriter(str(source), key) as rewriter:
        assert reader.fill()
        rows = reader.packets[: reader.count]
        new, are_kept = rewriter.rewrite_all(reader.buffer, rows)
        for row, is_kept in zip(rows, are_kept.tolist(), strict=True):
            at, end = int(row["at"]), int(row["at"] + row["captured"])
            alone = rewriter.rewrite(reader.buffer[at:end].tobytes(), int(row["link_type"]), int(row["number"]))
            assert alone == (new[at:end].tobytes() if is_kept else None)
    reader.close()
    assert are_kept[: len(packets)].all()
