"""No token of SASL is in what is kept of packets, however they are cut, lost or shuffled; and nothing else is lost
where the connection is known from its begin."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkatap
from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.live.governor import HEAD_BYTES
from kafkatap.live.recording.trimming.packets import PacketTrimmer
from tests.support.captures import RAW, Packet, pcap_bytes, read_capture
from tests.support.secrets import SECRETS, write_secrets
from tests.support.tcp import Segment, encode, frame, merge, retransmit, shake, split_small
from tests.wire.kafkatalk import FETCH, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, KafkaTalk, small_talk

#: Those of the capture full of secrets that are SASL's.
OF_SASL = (
    "plain", "raw", "raw-scram", "client-nonce", "server-nonce", "salt", "proof", "signature", "bearer",
    "newer-version", "trailing",
)  # fmt: skip
PIECE = 6


def kept(path: Path, heads: int | None = None, blanks: bool = True, step: int = 0) -> list[Packet]:
    """What is kept of the packets of a capture. `step`: so many are prepared at once, 0: all of a block."""
    trimmer, found = PacketTrimmer(heads, blanks), []
    reader = CaptureReader(str(path))
    while reader.fill():
        rows = reader.packets[reader.position : reader.count]
        before, at = reader.buffer.copy(), 0
        while at < len(rows):
            some = rows[at : at + (step or len(rows))]
            for made, first, end in trimmer.prepared(reader.buffer, some, len(some)):
                for row in made[first:end]:
                    data = reader.buffer[row["at"] : row["at"] + row["captured"]].tobytes()
                    found.append(Packet(int(row["ts"]), data, int(row["original"])))
            at += len(some)
        assert np.array_equal(before, reader.buffer)
        reader.position = reader.count
    reader.close()
    return found


def kept_of(folder: Path, segments: Sequence[Segment], heads: int | None = None) -> list[Packet]:
    path = folder / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    return kept(path, heads)


def left_of(secret: bytes, packets: Sequence[Packet]) -> list[bytes]:
    """The parts of a secret that are in packets."""
    data = b"|".join(packet.data for packet in packets)
    return [secret[at : at + PIECE] for at in range(len(secret) - PIECE + 1) if secret[at : at + PIECE] in data]


def authenticated(
    version: int = 1, bare: bool = False, first: int = 1, secret: bytes = b"", talk: KafkaTalk | None = None
) -> KafkaTalk:
    """A connection with SASL, then two exchanges."""
    if talk is None:
        talk = KafkaTalk(client=("10.0.0.1", 40_000), broker=("10.0.0.2", 9_092))
        talk.tcp.open()
    handshake = talk.request(SASL_HANDSHAKE, 0 if bare else 1, first, Mechanism="PLAIN")
    talk.respond(handshake, Mechanisms=["PLAIN"])
    for number, step in enumerate((b"1", b"2"), first + 1):
        ours, theirs = b"\0alice\0" + step + secret, b"r=" + step + secret
        if bare:
            talk.tcp.send(0, frame(ours))
            talk.tcp.send(1, frame(theirs))
        else:
            talk.respond(talk.request(SASL_AUTHENTICATE, version, number, AuthBytes=ours), AuthBytes=theirs)
    talk.exchange(METADATA, 1, first + 3, Topics=[{"Name": "orders"}])
    talk.exchange(METADATA, 1, first + 4, Topics=[{"Name": "payments"}])
    return talk


SECRET = bytes(random.Random(7).choices(b"ABCDEFGHKLMNPQRSTUVWXYZ", k=300))


def test_no_token_of_any_mechanism_is_kept(tmp_path: Path) -> None:
    packets = kept(write_secrets(tmp_path / "secrets.pcap"))
    assert not {name for name in OF_SASL if left_of(SECRETS[name].encode(), packets)}
    assert b"alice" not in b"".join(packet.data for packet in packets)


@pytest.mark.parametrize(("version", "bare"), [(0, False), (1, False), (2, False), (0, True)])
def test_all_but_the_tokens_stays(tmp_path: Path, version: int, bare: bool) -> None:
    talk = authenticated(version, bare, secret=SECRET)
    authenticated(version, bare, 11, SECRET, talk)  # once more, as a session ends
    talk.tcp.close()
    packets = kept_of(tmp_path, talk.segments)
    assert not left_of(SECRET, packets)
    original = read_capture(tmp_path / "talk.pcap").packets
    assert [len(p.data) for p in packets] == [len(p.data) for p in original]
    (tmp_path / "kept.pcap").write_bytes(pcap_bytes(packets, nanoseconds=True))
    ours, theirs = (kafkatap.analyze(tmp_path / name) for name in ("kept.pcap", "talk.pcap"))
    assert ours.exchanges.equals(theirs.exchanges)
    assert ours.results.equals(theirs.results)


def test_other_connections_stay_as_they_are(tmp_path: Path) -> None:
    others = [small_talk(9, client=("10.0.0.9", 50_000 + n)).segments for n in range(3)]
    packets = kept_of(tmp_path, merge(authenticated(secret=SECRET).segments, *others))
    original = read_capture(tmp_path / "talk.pcap").packets
    differ = [one for one, other in zip(packets, original, strict=True) if replace(one, interface=0) != other]
    assert len(differ) == 4


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 9, 13, 17, 40, 1_448])
def test_a_token_in_many_segments(tmp_path: Path, size: int, bare: bool) -> None:
    talk = authenticated(2, bare, secret=SECRET)
    packets = kept_of(tmp_path, split_small(talk.segments, size))
    assert not left_of(SECRET, packets)
    (tmp_path / "kept.pcap").write_bytes(pcap_bytes(packets, nanoseconds=True))
    found = kafkatap.analyze(tmp_path / "kept.pcap").exchanges["api_name"].to_pylist()
    assert "Metadata" in found


@pytest.mark.parametrize("bare", [False, True])
def test_a_capture_that_begins_anywhere(tmp_path: Path, bare: bool) -> None:
    for size in (1_448, 100, 7):
        segments = split_small(authenticated(1, bare, secret=SECRET).segments, size)
        for first in range(0, len(segments), 1 if size > 7 else 11):
            packets = kept_of(tmp_path, segments[first:])
            assert not left_of(SECRET, packets), (size, first)


@given(st.data())
def test_damaged_streams(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Segments of any size, lost, doubled, late or again: no piece of a token is kept."""
    chance = random.Random(data.draw(st.integers(0, 1 << 32)))
    bare, version = data.draw(st.booleans()), data.draw(st.integers(0, 2))
    segments = split_small(authenticated(version, bare, secret=SECRET).segments, data.draw(st.integers(5, 400)))
    segments = shake(segments, chance, duplicates=0.1, moves=data.draw(st.sampled_from([0, 0.1, 0.5])))
    for _ in range(data.draw(st.integers(0, 4))):
        number = chance.choice([n for n, s in enumerate(segments[:-6]) if s.payload])
        segments = retransmit(segments, number, chance.randrange(1, 5), chance.randrange(9))
    lost = data.draw(st.sampled_from([0, 0.05, 0.3]))
    segments = [segment for segment in segments if chance.random() >= lost]
    packets = kept_of(tmp_path_factory.mktemp("damaged"), segments)
    assert not left_of(SECRET, packets)


def test_what_came_before_the_client_went_on_is_not_kept_again(tmp_path: Path) -> None:
    """A retransmission of a broker's token after the client's next request."""
    talk = authenticated(secret=SECRET)
    secret = [s for s in talk.segments if SECRET in s.payload]
    again = [replace(s, time_ns=talk.tcp.time_ns + n) for n, s in enumerate(secret)]
    assert not left_of(SECRET, kept_of(tmp_path, [*talk.segments, *again]))


def test_an_answer_that_is_not_as_it_should_be(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond(talk.request(SASL_HANDSHAKE, 1, 1, Mechanism="PLAIN"), Mechanisms=["PLAIN"])
    for number, wrong in enumerate((struct.pack(">hh", 0, 900), struct.pack(">hhi", 0, -1, 2), b"", b"\0" * 6), 2):
        talk.respond_raw(talk.request(SASL_AUTHENTICATE, 1, number, AuthBytes=SECRET), wrong + SECRET)
    assert not left_of(SECRET, kept_of(tmp_path, talk.segments))


def test_refusals_keep_their_words(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    for number, version in enumerate((0, 1, 2)):
        asked = talk.request(SASL_AUTHENTICATE, version, number, AuthBytes=SECRET)
        talk.respond(asked, ErrorCode=58, ErrorMessage="Authentication failed", AuthBytes=b"")
    packets = kept_of(tmp_path, talk.segments)
    assert not left_of(SECRET, packets)
    assert sum(b"Authentication failed" in packet.data for packet in packets) == 3


def test_encrypted_connections_stay_whole(tmp_path: Path, samples: Path) -> None:
    """TLS, from its begin and from its middle; a record may begin amid a segment."""
    talk = KafkaTalk()
    record = b"\x17\3\3\x10\0" + bytes(range(256)) * 16
    talk.tcp.open()
    talk.tcp.client(b"\x16\3\1\0\x40" + bytes(64))
    for _ in range(3):
        talk.tcp.client(record)
        talk.tcp.server(record)
    for first in (0, 9):  # there, the broker begins a record
        packets = kept_of(tmp_path, talk.segments[first:])
        assert packets == [replace(p, interface=0) for p in read_capture(tmp_path / "talk.pcap").packets]


def test_other_protocols_keep_their_headers_only(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.tcp.client(b"GET /login?password=secret HTTP/1.1\r\nHost: x\r\n\r\n")
    talk.tcp.server(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
    talk.tcp.close()
    packets = kept_of(tmp_path, talk.segments)
    data = b"".join(packet.data for packet in packets)
    assert b"secret" not in data
    assert b"HTTP" not in data
    original = read_capture(tmp_path / "talk.pcap").packets
    assert [p.original_length for p in packets] == [p.original_length for p in original]
    assert len(packets) == len(original)


def test_a_stream_that_never_pauses_is_found_again(tmp_path: Path) -> None:
    """Live capture begins amid a producer whose segments never begin with a request."""
    talk = KafkaTalk(acks=False)
    talk.tcp.open()
    body = struct.pack(">hi", -1, 1000) + bytes(random.Random(1).choices(range(256), k=3_000))
    stream = b"".join(frame(struct.pack(">hhih", 0, 7, n, 4) + b"prod" + body) for n in range(20))
    talk.tcp.client(stream)
    packets = kept_of(tmp_path, talk.segments[5:])
    whole = [packet for packet in packets if len(packet.data) == packet.original_length]
    assert len(packets) - 12 < len(whole) < len(packets)


def test_a_fetch_that_spans_many_segments_stays(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond_raw(talk.request(FETCH, 4, 1), bytes(random.Random(2).choices(range(256), k=40_000)))
    packets = kept_of(tmp_path, talk.segments)
    assert packets == [replace(p, interface=0) for p in read_capture(tmp_path / "talk.pcap").packets]


def test_headers_only(tmp_path: Path, samples: Path) -> None:
    sample = samples / "apache-4.3.pcap.zst"
    packets = kept(sample, HEAD_BYTES)
    original = read_capture(sample).packets
    assert len(packets) == len(original)
    assert max(len(packet.data) for packet in packets) <= HEAD_BYTES + 14 + 40 + 20 + 60
    (tmp_path / "kept.pcap").write_bytes(pcap_bytes(packets, nanoseconds=True))
    ours, theirs = kafkatap.analyze(tmp_path / "kept.pcap").exchanges, kafkatap.analyze(sample).exchanges
    answered = [t["outcome"].to_pylist().count("answered") for t in (ours, theirs)]
    assert answered[0] > 0.9 * answered[1]


def test_headers_only_with_secrets_cuts_nothing_else(tmp_path: Path) -> None:
    talk = authenticated(secret=SECRET[:100])
    path = tmp_path / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments), nanoseconds=True))
    packets = kept(path, HEAD_BYTES, blanks=False)
    assert left_of(SECRET[:100], packets)


def test_the_samples_lose_nothing_but_tokens(tmp_path: Path, samples: Path) -> None:
    """Exchanges, results and connections of a real cluster, of which many connections were open before."""
    sample = samples / "apache-4.3.pcap.zst"
    packets = kept(sample, step=50)
    (tmp_path / "kept.pcap").write_bytes(pcap_bytes(packets, nanoseconds=True))
    ours, theirs = kafkatap.analyze(tmp_path / "kept.pcap"), kafkatap.analyze(sample)
    whole = theirs.exchanges["outcome"].to_pylist().count("answered")
    assert ours.exchanges["outcome"].to_pylist().count("answered") > 0.98 * whole
    assert len(ours.connections) == len(theirs.connections)


@pytest.mark.parametrize("link", ["ethernet", "raw"])
def test_messages_of_icmp_quote_no_token(tmp_path: Path, link: str) -> None:
    talk = authenticated(secret=SECRET)
    quoted = next(p for p, s in zip(encode(talk.segments), talk.segments, strict=True) if SECRET in s.payload)
    inner = quoted.data[14:]
    icmp = b"\3\1\0\0\0\0\0\0" + inner
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 1, 0, 64, 1, 0, bytes(4), bytes([10, 0, 0, 1])) + icmp
    data = quoted.data[:14] + ip if link == "ethernet" else ip
    path = tmp_path / "icmp.pcap"
    path.write_bytes(pcap_bytes([Packet(1, data, len(data))], link_type=1 if link == "ethernet" else RAW))
    (packet,) = kept(path)
    assert packet.data == data[: (14 if link == "ethernet" else 0) + 20 + 8 + 20 + 8]


def test_fragments_keep_no_payload(tmp_path: Path) -> None:
    talk = authenticated(secret=SECRET)
    whole = next(p.data for p, s in zip(encode(talk.segments), talk.segments, strict=True) if SECRET in s.payload)
    link, ip, rest = whole[:14], bytearray(whole[14:34]), whole[34:]
    packets = []
    for offset, more in ((0, 1), (48, 0)):
        part = rest[offset : offset + 48] if more else rest[offset:]
        ip[2:4], ip[6:8] = struct.pack(">H", 20 + len(part)), struct.pack(">H", more << 13 | offset >> 3)
        data = link + bytes(ip) + part
        packets.append(Packet(1, data, len(data)))
    path = tmp_path / "fragments.pcap"
    path.write_bytes(pcap_bytes(packets))
    found = kept(path)
    assert [len(packet.data) for packet in found] == [54, 34]
