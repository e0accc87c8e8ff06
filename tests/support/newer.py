"""A Kafka newer than the product: definitions that it lacks, and a capture that uses them.

Fetch 19-21 have two new fields and lack an old one. QueuePeek (key 100) is a new API. Nothing defines ApiVersions 99
(refused, in version 0) and the API with key 999.
"""

from __future__ import annotations

import json
from pathlib import Path

from kafkatap.dissector.layouts.definitions import load_definitions
from tests.support.captures import pcap_bytes
from tests.support.messages import emptiest_message, encode_message
from tests.support.tcp import TcpConversation, encode, request_frame, response_frame

QUEUE_PEEK, UNKNOWN = 100, 999

_FETCH_REQUEST = {
    "apiKey": 1, "type": "request", "name": "FetchRequest", "validVersions": "19-21", "flexibleVersions": "12+",
    "latestVersionUnstable": True,
    "fields": [
        {"name": "MaxWaitMs", "type": "int32", "versions": "0+"},
        {"name": "MinBytes", "type": "int32", "versions": "0+"},
        {"name": "Mood", "type": "string", "versions": "20+", "nullableVersions": "21+"},
        {"name": "Topics", "type": "[]FetchTopic", "versions": "0+", "fields": [
            {"name": "TopicId", "type": "uuid", "versions": "13+"},
            {"name": "Partitions", "type": "[]FetchPartition", "versions": "0+", "fields": [
                {"name": "Partition", "type": "int32", "versions": "0+"},
                {"name": "FetchOffset", "type": "int64", "versions": "0+"}]}]}],
}  # fmt: skip
_FETCH_RESPONSE = {
    "apiKey": 1, "type": "response", "name": "FetchResponse", "validVersions": "19-21", "flexibleVersions": "12+",
    "fields": [
        {"name": "ThrottleTimeMs", "type": "int32", "versions": "1+"},
        {"name": "ErrorCode", "type": "int16", "versions": "7+"},
        {"name": "Responses", "type": "[]FetchableTopicResponse", "versions": "0+", "fields": [
            {"name": "TopicId", "type": "uuid", "versions": "13+"},
            {"name": "Partitions", "type": "[]PartitionData", "versions": "0+", "fields": [
                {"name": "PartitionIndex", "type": "int32", "versions": "0+"},
                {"name": "ErrorCode", "type": "int16", "versions": "0+"},
                {"name": "Reason", "type": "string", "versions": "21+", "nullableVersions": "21+", "tag": 5,
                 "taggedVersions": "21+"},
                {"name": "Records", "type": "records", "versions": "0+", "nullableVersions": "0+"}]}]}],
}  # fmt: skip
_PEEK_REQUEST = {
    "apiKey": QUEUE_PEEK, "type": "request", "name": "QueuePeekRequest", "validVersions": "0-1",
    "flexibleVersions": "0+",
    "fields": [{"name": "GroupId", "type": "string", "versions": "0+", "entityType": "groupId"}],
}  # fmt: skip
_PEEK_RESPONSE = {
    "apiKey": QUEUE_PEEK, "type": "response", "name": "QueuePeekResponse", "validVersions": "0-1",
    "flexibleVersions": "0+",
    "fields": [{"name": "ThrottleTimeMs", "type": "int32", "versions": "0+"},
               {"name": "ErrorCode", "type": "int16", "versions": "0+"}],
}  # fmt: skip
_DEFINITIONS = (_FETCH_REQUEST, _FETCH_RESPONSE, _PEEK_REQUEST, _PEEK_RESPONSE)

TOPIC_ID = bytes(range(16))


def newer_texts() -> dict[str, str]:
    """The definitions by file name, with comments as in Kafka's own."""
    return {
        f"{d['name']}.json": f"// A // comment\n{json.dumps(d, indent=2)}  // and one\n/* at\nthe end */\n"
        for d in _DEFINITIONS
    }


def write_definitions(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in newer_texts().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def newer_capture() -> bytes:
    """A pcap of one connection: ApiVersions 99, Fetch 20 and 21 (throttled, an error), QueuePeek 0, an unknown API."""
    messages = load_definitions(newer_texts())
    talk = TcpConversation(("10.0.0.1", 40_000), ("10.0.0.2", 9_092))
    talk.open()

    def say(key: int, version: int, number: int, asked: bytes, told: bytes, flexible: bool = False) -> None:
        talk.client(request_frame(key, version, number, "newcomer", asked))
        talk.wait(3_000_000)
        talk.server(response_frame(number, told, flexible=flexible))

    def body(key: int, version: int, direction: int, **values: object) -> bytes:
        message = messages[key, direction]
        return encode_message(message, version, {**emptiest_message(message, version)[1], **values})

    refused = (35).to_bytes(2, "big") + (1).to_bytes(4, "big") + bytes((0, 18, 0, 0, 0, 4))
    say(18, 99, 1, b"\0\4abc\3de\0", refused)
    asked = [{"TopicId": TOPIC_ID, "Partitions": [{"Partition": 3, "FetchOffset": 7}]}]
    for number, version in ((2, 20), (3, 21)):
        told = [{"TopicId": TOPIC_ID, "Partitions": [
            {"PartitionIndex": 3, "ErrorCode": 6, "Records": None, **({"Reason": "moved"} if version > 20 else {})}
        ]}]  # fmt: skip
        say(1, version, number, body(1, version, 0, MaxWaitMs=500, MinBytes=1, Mood="calm", Topics=asked),
            body(1, version, 1, ThrottleTimeMs=40, Responses=told))  # fmt: skip
    say(QUEUE_PEEK, 0, 4, body(QUEUE_PEEK, 0, 0, GroupId="line"), body(QUEUE_PEEK, 0, 1, ErrorCode=15))
    say(UNKNOWN, 2, 5, b"what", b"ever")
    talk.close()
    return pcap_bytes(encode(talk.segments))
