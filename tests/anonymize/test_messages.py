"""Rewritten messages: every layout decodes to the same structure, and no string of the original is left."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.anonymize.fields import kept_words, rewritten_string
from kafkatap.anonymize.messages import CapturedFrame, MessageRewriter
from kafkatap.anonymize.names import Names
from kafkatap.anonymize.sasl_tokens import rewritten_token
from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from tests.support.messages import generate_message
from tests.support.reference import decode_message

NAMES = Names(b"a key of 16 bytes")
REWRITER = MessageRewriter(NAMES)
LAYOUTS = [
    (key, direction, version) for (key, direction), message in sorted(load_messages().items())
    for version in range(message.versions.low, message.versions.high + 1)
]  # fmt: skip
_KEPT = b"\n".join(sorted(kept_words()))


def _frame(api_key: int, direction: int, version: int, content: bytes) -> tuple[bytes, int]:
    """The frame of a message's content, and where the content begins."""
    if direction != REQUEST:
        head = struct.pack(">i", 77)
    elif load_messages()[api_key, direction].header_version(version) == 0:
        head = struct.pack(">hhi", api_key, version, 77)
    else:
        head = struct.pack(">hhi", api_key, version, 77) + b"\0\x0aclient-9\xc3\x84"
    return struct.pack(">i", len(head) + len(content)) + head + content, 4 + len(head)


def _strings(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value.encode("utf-8", "surrogateescape")
    elif isinstance(value, bytes):
        yield value


def _assert_same_shape(old: Any, new: Any, case: object) -> None:
    """Strings and bytes have their lengths, and numbers are equal unless they are a part of a text."""
    assert type(old) is type(new), case
    if isinstance(old, dict):
        assert old.keys() == new.keys(), case
        for key in old:
            _assert_same_shape(old[key], new[key], case)
    elif isinstance(old, list | tuple):
        assert len(old) == len(new), case
        for items in zip(old, new, strict=True):
            _assert_same_shape(*items, case)
    elif isinstance(old, str):
        assert len(old.encode("utf-8", "surrogateescape")) == len(new.encode("utf-8", "surrogateescape")), case
    elif isinstance(old, bytes):
        assert len(old) == len(new), case
    elif old != new:
        raw = struct.pack(">d", new) if isinstance(new, float) else int(new).to_bytes(8, "big", signed=True)
        assert b"x" in raw, case


def _assert_not_left(value: Any, new: bytes) -> None:
    for string in _strings(value):
        if len(string) >= 6 and string.strip(b"x") and string not in _KEPT and string.strip(b"\0"):
            assert string not in new


def test_every_layout_keeps_its_structure_and_no_string(sweep: Callable[[Sequence[Any], int], list[Any]]) -> None:
    for case in sweep(LAYOUTS, 120):
        api_key, direction, version = case
        message = load_messages()[api_key, direction]
        for seed in (1, 2):
            content, value = generate_message(message, version, seed)
            frame, at = _frame(api_key, direction, version, content)
            new = bytes(REWRITER.rewrite(frame, direction, api_key, version))
            assert len(new) == len(frame), case
            decoded = decode_message(message, version, new[at:])
            original = decode_message(message, version, content)
            assert (decoded.status, decoded.trailing) == (original.status, original.trailing), case
            _assert_same_shape(original.value, decoded.value, case)
            _assert_not_left(value, new)


def test_a_cut_message_stays_cut_at_the_same_place(sweep: Callable[[Sequence[Any], int], list[Any]]) -> None:
    for case in sweep(LAYOUTS, 60):
        api_key, direction, version = case
        message = load_messages()[api_key, direction]
        content, value = generate_message(message, version, 3)
        frame, at = _frame(api_key, direction, version, content)
        captured = random.Random(4).randrange(at, len(frame)) if len(frame) > at else at
        new = bytes(REWRITER.rewrite(frame[:captured], direction, api_key, version))
        missing = len(frame) - captured
        was = decode_message(message, version, content[: captured - at], missing=missing)
        decoded = decode_message(message, version, new[at:], missing=missing)
        assert len(new) == captured
        assert (decoded.status, decoded.path) == (was.status, was.path), case
        _assert_not_left(value, new)


@pytest.mark.parametrize("case", [(67, RESPONSE, 0), (6, REQUEST, 6), (53, REQUEST, 1), (0, REQUEST, 9)])
def test_a_message_may_be_cut_in_a_tag(case: tuple[int, int, int]) -> None:
    """At each byte: in its tags' numbers and sizes, and in what they hold."""
    api_key, direction, version = case
    message = load_messages()[api_key, direction]
    content, _ = generate_message(message, version, 3)
    frame, at = _frame(api_key, direction, version, content)
    for captured in range(at, min(len(frame), at + 150)):
        new = REWRITER.rewrite(frame[:captured], direction, api_key, version)
        missing = len(frame) - captured
        was = decode_message(message, version, content[: captured - at], missing=missing)
        decoded = decode_message(message, version, new[at:], missing=missing)
        assert (decoded.status, decoded.path) == (was.status, was.path), captured


@given(st.data())
def test_hostile_bytes_are_not_copied(data: st.DataObject) -> None:
    api_key, direction, version = data.draw(st.sampled_from(LAYOUTS))
    rest = data.draw(st.binary(max_size=40)) + data.draw(st.sampled_from([b"SECRET-of-somebody", b"\xff" * 9, b""]))
    body, _ = generate_message(load_messages()[api_key, direction], version, data.draw(st.integers(0, 9)))
    kept = data.draw(st.integers(0, len(body)))
    frame, _ = _frame(api_key, direction, version, body[:kept] + rest)
    if data.draw(st.booleans()):
        frame = data.draw(st.binary(max_size=8)) + frame[4:]
    new = bytes(REWRITER.rewrite(frame, direction, api_key, version))
    assert len(new) == len(frame)
    assert b"SECRET" not in new


@pytest.mark.parametrize("count", range(1, 5))
def test_a_length_may_be_cut_itself(count: int) -> None:
    """SaslAuthenticate v0, of whose length of 4 bytes `count` are there."""
    frame, _ = _frame(36, REQUEST, 0, bytes(count))
    for head in (frame[:4], b"\0\0\1\0"):
        new = bytes(REWRITER.rewrite(head + frame[4:], REQUEST, 36, 0))
        assert len(new) == len(frame)
        assert new.endswith(bytes(count)) or new.endswith(b"x" * count)


@pytest.mark.parametrize(
    ("token", "wanted"),
    [
        (b"\0alice\0hunter22", b"\0%s\0xxxxxxxx" % NAMES.name(b"alice")),
        (b"n,,n=alice,r=nonce123", b"n,,n=%s,r=xxxxxxxx" % NAMES.name(b"alice")),
        (b"r=nonce123,s=c2FsdA==,i=4096", b"r=xxxxxxxx,s=xxxxxxxx,i=4096"),
        (b"v=c2lnbmF0dXJl", b"v=xxxxxxxxxxxx"),
        (b"n,,\x01auth=Bearer eyJhbGciOi\x01\x01", b"n,,\x01auth=Bearer xxxxxxxxxx\x01\x01"),
        (b"\x60\x82opaque", b"xxxxxxxx"),
    ],
)
def test_of_tokens_only_the_user_is_left_as_a_pseudonym(token: bytes, wanted: bytes) -> None:
    assert rewritten_token(NAMES, token) == wanted


def _metadata(host: bytes, replicas: bytes) -> bytes:
    """A Metadata response v1 with one broker, one topic, and one partition."""
    topic = struct.pack(">hh", 0, 5) + b"topic" + b"\0" + struct.pack(">ihiii", 1, 0, 0, 5, len(replicas) // 4)
    body = struct.pack(">iih", 1, 7, len(host)) + host + struct.pack(">ihii", 9_092, -1, 7, 1)
    return body + topic + replicas + struct.pack(">i", 0)


def test_numbers_that_are_a_text_are_overwritten() -> None:
    for replicas, stays in ((b"LEAKINTARRAY20BYTES!", False), (struct.pack(">5i", 5, 6, 1_000, 8, 70_000), True)):
        frame, _ = _frame(3, 1, 1, _metadata(b"broker.example", replicas))
        new = bytes(REWRITER.rewrite(frame, 1, 3, 1))
        assert len(new) == len(frame)
        assert (replicas in new, replicas[:6] in new) == (stays, stays)
        assert NAMES.name(b"topic") in new


@pytest.mark.parametrize(("field", "value", "stays"), [
    ("Reason", b"rebalance failed due to IllegalGenerationException", True),
    ("Reason", b"rebalance failed due to AcmeBillingException", False),
    ("RequestedMetrics", b"org.apache.kafka.consumer.coordinator.rebalance.", True),
    ("RequestedMetrics", b"org.apache.kafka.", True), ("RequestedMetrics", b"*", True),
    ("RequestedMetrics", b"org.apache.kafka.acmecorp", False), ("RequestedMetrics", b"producer.connection", False),
])  # fmt: skip
def test_of_classes_and_metrics_only_those_of_kafka_stay(field: str, value: bytes, stays: bool) -> None:
    new = rewritten_string(NAMES, field, value, {})
    assert len(new) == len(value)
    assert (new == value) == stays
    assert b"Acme" not in new
    assert b"acme" not in new


@pytest.mark.parametrize("name", [
    "replica.lag.max.messages", "host.name", "quota.producer.default", "log.message.timestamp.difference.max.ms",
    "zookeeper.session.timeout.ms", "inter.broker.protocol.version", "follower.replication.throttled.rate",
    "group.coordinator.new.enable", "share.delivery.count.limit",
])  # fmt: skip
def test_configurations_of_all_releases_are_known(name: str) -> None:
    assert rewritten_string(NAMES, "Configs.Name", name.encode(), {}) == name.encode()
    assert rewritten_string(NAMES, "Configs.Value", b"120000", {"Name": name}) == b"120000"
    assert rewritten_string(NAMES, "Configs.Value", b"120000", {"Name": "acme." + name}) != b"120000"


@pytest.mark.parametrize("case", [(13, RESPONSE, 2), (58, RESPONSE, 0), (12, REQUEST, 0), (3, REQUEST, 12)])
@pytest.mark.parametrize("cut", [0, 3])
def test_the_numbers_of_a_header_stay(case: tuple[int, int, int], cut: int) -> None:
    """A correlation id that is a text, in messages that are whole and cut."""
    api_key, direction, version = case
    content, _ = generate_message(load_messages()[api_key, direction], version, 4)
    frame, _ = _frame(api_key, direction, version, content)
    at = 4 if direction == RESPONSE else 8
    frame = frame[:at] + b"duck" + b"zz" * (direction == RESPONSE) + frame[at + 4 + 2 * (direction == RESPONSE) :]
    frame = frame[: len(frame) - cut]
    rewriter = MessageRewriter(NAMES)
    frames = [CapturedFrame(frame, direction, api_key, version, None, None, False)]
    for new in (*rewriter.rewrite_all(frames), rewriter.rewrite(frame, direction, api_key, version)):
        assert bytes(new[: at + 4]) == frame[: at + 4]


def test_the_principal_of_an_envelope_is_readable() -> None:
    """It ends with an empty tag section, which stays."""
    principal = b"\0\0\x05User\x06alice\0\0"
    inner = struct.pack(">hhih", 38, 1, 5, -1) + struct.pack(">iq", 0, -1)
    content = b"\0%c%s%c%s\x05\x7f\0\0\1\0" % (len(inner) + 1, inner, len(principal) + 1, principal)
    frame, _ = _frame(58, REQUEST, 0, content)
    new = bytes(REWRITER.rewrite(frame, REQUEST))
    assert b"\0\0\x05User\x06" + NAMES.name(b"alice") + b"\0\0" in new
