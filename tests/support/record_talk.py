"""A conversation with records of every version and codec, as a capture."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support import records as made
from tests.support.captures import pcap_bytes
from tests.support.records import CODECS, Record, batch, message_set
from tests.support.tcp import encode
from tests.wire.kafkatalk import FETCH, METADATA, PRODUCE, KafkaTalk

T = 1_704_067_200_000
ORDERS, ORDERS_ID = "orders", bytes(range(16))
NAMELESS_ID = bytes(range(16, 32))

RECORDS = (
    Record(b"user-1", b'{"id": 1, "name": "J\xc3\xb6rg"}', T),
    Record(None, b"plain text, \x1b[31mnot red\x1b[0m", T + 1, ((b"trace", b"\x00\x01\xff"), (b"empty", None))),
    Record(b"\x00\x01", bytes(range(40)), T + 2),
    Record(b"gone", None, T + 3),
)


def produce(talk: KafkaTalk, number: int, version: int, field: bytes, topic: str = ORDERS, acks: int = 1) -> None:
    partition = {"Index": 3, "Records": field}
    asked = talk.request(PRODUCE, version, number, Acks=acks, TopicData=[{"Name": topic, "PartitionData": [partition]}])
    if acks:
        answers = [{"Index": 3, "BaseOffset": 100}]
        talk.respond(asked, Responses=[{"Name": topic, "PartitionResponses": answers}])


def fetch(
    talk: KafkaTalk, number: int, version: int, *fields: bytes, topic: str = ORDERS, topic_id: bytes = ORDERS_ID
) -> None:
    asked = talk.request(FETCH, version, number)
    partitions = [{"PartitionIndex": n, "Records": field} for n, field in enumerate(fields)]
    talk.respond(asked, Responses=[{"Topic": topic, "TopicId": topic_id, "Partitions": partitions}])


def talk_of_all() -> KafkaTalk:
    """Records of each magic and codec, produced and fetched; control records, log append time, a wrong CRC, a corrupt
    batch, a partial one, and a topic whose name comes only after its records."""
    talk = KafkaTalk(client_id="writer")
    talk.tcp.open()
    number = 0
    for magic, versions in ((0, (0, 1)), (1, (2, 3)), (2, (8, 13))):
        for codec in range(5 if magic == 2 else 4):
            field = (
                batch(RECORDS, codec, producer=(1001, 2, 30), offset=0)
                if magic == 2
                else message_set(RECORDS, magic, codec)
            )
            stored = batch(RECORDS, codec, offset=100) if magic == 2 else message_set(RECORDS, magic, codec, offset=100)
            produce(talk, number, versions[0], field, topic=f"{ORDERS}-{CODECS[codec]}")
            fetch(talk, number + 1, versions[1], stored, stored[: len(stored) // 2])
            number += 2
    commit = Record(struct.pack(">hh", 0, 1), bytes(6), T + 9)
    marker = batch([commit], offset=110, attributes=made.CONTROL | made.TRANSACTIONAL, producer=(1001, 2, -1))
    appended = batch(RECORDS[:1], offset=111, attributes=made.LOG_APPEND_TIME, max_timestamp=T + 5_000)
    wrong = batch(RECORDS[:1], offset=112, crc=1)
    corrupt = batch(payload=b"no zstd", count=5, attributes=made.ZSTD, offset=113)
    fetch(talk, number, 13, marker + appended + wrong + corrupt + batch(RECORDS[:1], offset=118))
    fetch(talk, number + 1, 13, batch(RECORDS[3:]), topic_id=NAMELESS_ID)
    asked = talk.request(METADATA, 10, number + 2)
    talk.respond(asked, Topics=[{"Name": ORDERS, "TopicId": ORDERS_ID}])
    produce(talk, number + 3, 9, batch(RECORDS[:1]), acks=0)
    talk.tcp.close()
    return talk


def write_talk(path: Path) -> Path:
    """`talk_of_all` as a capture."""
    path.write_bytes(pcap_bytes(encode(talk_of_all().segments), nanoseconds=True))
    return path
