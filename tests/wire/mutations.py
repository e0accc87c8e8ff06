"""Random damage to captures, packets and payloads: the input of the tests with hostile bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace

from tests.support.captures import ETHERNET, SLL2, Interface, Packet, pcap_bytes, pcapng_bytes
from tests.support.tcp import Segment, encode
from tests.wire.kafkatalk import API_VERSIONS, FETCH, METADATA, PRODUCE, SASL_HANDSHAKE, KafkaTalk, add_exchanges

_NUMBERS = (0, 1, 3, 4, 7, 8, 12, 100, 255, 65_535, 65_536, 2**20, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 4)


def varied_talk(chance: random.Random, count: int = 4) -> KafkaTalk:
    """A connection with every special case: SASL tokens, acks=0, old and flexible versions, records."""
    talk = KafkaTalk(mss=chance.choice((30, 200, 1448)), isn=(chance.getrandbits(32), chance.getrandbits(32)))
    if chance.random() < 0.8:
        talk.tcp.open()
    talk.respond(talk.request(API_VERSIONS, 3, 1, ClientSoftwareName="x", ClientSoftwareVersion="y"))
    if chance.random() < 0.3:
        talk.respond(talk.request(SASL_HANDSHAKE, 0, 2, Mechanism="PLAIN"))
        talk.tcp.client(b"\0\0\0\x05\0a\0bc")
        talk.tcp.server(bytes(4))
    for n in range(count):
        data = [{"Index": 0, "Records": chance.randbytes(chance.choice((0, 61, 300)))}]
        for acks in (0, 1):
            asked = talk.request(PRODUCE, chance.choice((3, 9)), 10 * n + acks, Acks=acks, TopicData=[
                {"Name": "t", "PartitionData": data}
            ])  # fmt: skip
            if acks:
                talk.respond(asked, ThrottleTimeMs=chance.choice((0, 100)))
        asked = talk.request(
            FETCH, 12, 10 * n + 2, MaxWaitMs=5, Topics=[{"Topic": "t", "Partitions": [{"Partition": 1}]}]
        )
        partitions = [{"PartitionIndex": 1, "ErrorCode": n % 2, "Records": chance.randbytes(70)}]
        talk.respond(asked, Responses=[{"Topic": "t", "Partitions": partitions}])
        talk.respond(talk.request(METADATA, 12, 10 * n + 3), Topics=[{"Name": "t", "TopicId": bytes([n]) * 16}])
        add_exchanges(talk, 1, 10 * n + 4)
    if chance.random() < 0.7:
        talk.tcp.close()
    return talk


def changed(data: bytes, chance: random.Random, low: int = 0) -> bytes:
    """The bytes with some after `low` changed, removed or inserted; often four, as a number near a limit."""
    result = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(low, max(low + 1, len(result)))
        kind = chance.random()
        if kind < 0.4:
            result[at : at + 4] = struct.pack(chance.choice("<>") + "I", chance.choice(_NUMBERS))[: len(result) - at]
        elif kind < 0.7:
            result[at : at + 1] = bytes([chance.getrandbits(8)])
        elif kind < 0.8:
            result[at:at] = chance.randbytes(chance.choice((1, 2, 4, 40)))
        elif kind < 0.9:
            del result[at : at + chance.choice((1, 2, 4, 40))]
        else:
            del result[at:]
    return bytes(result)


def captures(seed: int, rounds: int) -> Iterator[bytes]:
    """Files in which any byte may change."""
    chance = random.Random(seed)
    for _ in range(rounds):
        segments = varied_talk(chance, 2).segments
        if chance.random() < 0.5:
            data = pcap_bytes(encode(segments), ETHERNET, order=chance.choice("<>"), nanoseconds=chance.random() < 0.5)
        else:
            link = chance.choice((ETHERNET, SLL2))
            interfaces = [Interface(link, chance.choice((6, 9, 0x80 | 20)), drops=3)]
            data = pcapng_bytes(encode(segments, link), interfaces, order=chance.choice("<>"))
        yield changed(data, chance, 4)


def packets(seed: int, rounds: int) -> Iterator[list[Packet]]:
    """Intact captures of packets in which any byte may change."""
    chance = random.Random(seed)
    for _ in range(rounds):
        whole = encode(varied_talk(chance, 2).segments)
        for _ in range(chance.choice((1, 4, 20))):
            at = chance.randrange(len(whole))
            whole[at] = replace(whole[at], data=changed(whole[at].data, chance, chance.choice((0, 12, 34, 54))))
            if chance.random() < 0.2:
                whole[at] = replace(whole[at], original_length=chance.choice(_NUMBERS[:13]))
        yield whole


def payloads(seed: int, rounds: int) -> Iterator[list[Packet]]:
    """Correct TCP whose payload may change, with segments lost, duplicated or moved."""
    chance = random.Random(seed)
    for _ in range(rounds):
        segments: list[Segment] = varied_talk(chance).segments
        for _ in range(chance.choice((1, 3, 12))):
            at = chance.randrange(len(segments))
            s = segments[at]
            kind = chance.random()
            if kind < 0.6 and s.payload:
                segments[at] = replace(s, payload=changed(s.payload, chance)[:60_000])
            elif kind < 0.75:
                del segments[at]
            elif kind < 0.85:
                segments.insert(chance.randrange(len(segments)), s)
            else:
                shifted = (s.seq + chance.choice((-(2**31), -70_000, -1, 1, 9, 2**29, 2**30 + 5, 2**31))) % 2**32
                segments[at] = replace(s, seq=shifted, flags=chance.getrandbits(6))
        yield encode(segments)
