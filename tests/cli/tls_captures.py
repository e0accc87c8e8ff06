"""Captures of Kafka over TLS for tests of the command line, with the same conversations in the clear beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.captures import Packet, pcap_bytes
from tests.support.tcp import START_NS, Segment, encode
from tests.support.tls_talk import OverTls, TLSv1_2, TLSv1_3
from tests.wire.kafkatalk import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, KafkaTalk, add_exchanges

BROKER = ("10.0.1.1", 9_093)
#: What nobody may see unless they ask for it.
PASSWORD = b"\0alice\0correct horse battery staple"
VERSIONS = (TLSv1_3, TLSv1_2, TLSv1_3)


def conversation(number: int, exchanges: int = 12) -> list[Segment]:
    """A client with SASL, and some exchanges of its own."""
    client, begin = ("10.0.0.1", 30_000 + number), START_NS + number * 2 * 10**9
    talk = KafkaTalk(client, BROKER, client_id=f"app-{number}", time_ns=begin)
    talk.tcp.open()
    talk.tcp.time_ns += 10**9  # in which the copy over TLS has its handshake
    talk.respond(talk.request(API_VERSIONS, 0, 1))
    talk.respond(talk.request(SASL_HANDSHAKE, 1, 2, Mechanism="PLAIN"))
    talk.respond(talk.request(SASL_AUTHENTICATE, 1, 3, AuthBytes=PASSWORD))
    add_exchanges(talk, exchanges, 10)
    talk.respond(talk.request(METADATA, 4, 900 + number, Topics=[{"Name": f"orders-{number}"}]))
    talk.tcp.close()
    return talk.tcp.segments


@dataclass(frozen=True)
class TlsCaptures:
    """`capture` is encrypted, `plain` has the same in the clear. `packets`: those of the capture."""

    capture: Path
    plain: Path
    key_log: Path
    packets: list[Packet]
    over: OverTls


def make_tls_captures(folder: Path) -> TlsCaptures:
    """Three connections, of TLS 1.3, 1.2 and 1.3."""
    over = OverTls(folder)
    talks = [conversation(number) for number in range(len(VERSIONS))]
    encrypted = [over.replayed(talk, version) for talk, version in zip(talks, VERSIONS, strict=True)]
    packets = _in_time_order(encrypted)
    capture, plain = folder / "tls.pcap", folder / "plain.pcap"
    capture.write_bytes(pcap_bytes(packets))
    plain.write_bytes(pcap_bytes(_in_time_order(talks)))
    return TlsCaptures(capture, plain, over.key_log, packets, over)


def _in_time_order(talks: list[list[Segment]]) -> list[Packet]:
    return sorted((packet for talk in talks for packet in encode(talk)), key=lambda packet: packet.time_ns)
