"""One request, and the connection is closed without an answer: a broker does not know the version, or a client goes.

Nothing behind it confirms the request, so all of the connection's bytes have to be one that Kafka's clients write.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tcp import START_NS, encode, lose, merge
from tests.wire.harness import check
from tests.wire.kafkatalk import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    KafkaTalk,
    assert_exchanges,
    small_talk,
)

LIST_GROUPS, CREATE_TOPICS = 16, 19
#: An unknown body.
OPAQUE = b"\x01\x02\x03\x04\x05\x06\x07\x08"
Request = tuple[int, int, str | None, bytes | None]

#: api_key, version, client_id, and the body if it is not the layout's. None of them was read with a SYN ...
NAMELESS: dict[str, Request] = {
    "metadata": (METADATA, 4, None, None),
    "metadata, old": (METADATA, 0, None, None),
    "list groups, without a body": (LIST_GROUPS, 0, None, None),
    "heartbeat": (HEARTBEAT, 4, None, None),
    "find coordinator": (FIND_COORDINATOR, 1, None, None),
    "fetch": (FETCH, 11, None, None),
    "create topics": (CREATE_TOPICS, 4, None, None),
    "a newer version": (METADATA, 15, None, OPAQUE),
}
#: ... and none of these without one. Then another connection has to show who listens.
MID_CONNECTION: dict[str, Request] = {
    **{name: request for name, request in NAMELESS.items() if name != "a newer version"},
    "api versions": (API_VERSIONS, 0, None, None),
}
NEWER: Request = (METADATA, 15, "app", OPAQUE)
#: What these need beside them is a known broker.
AT_BROKERS: dict[str, Request] = {
    **{name: request for name, request in NAMELESS.items() if name != "a newer version"},
    "an empty name": (METADATA, 4, "", None),
    "a newer version of a client with a name": NEWER,
    "an api of others, of a client with a name": (500, 0, "app", OPAQUE),
}
#: These could be anything.
NO_EVIDENCE: dict[str, Request] = {
    "an empty name": (METADATA, 4, "", None),
    "a key that nobody has": (500, 0, None, OPAQUE),
    "a version that nobody has": (METADATA, 40, None, OPAQUE),
    "a body that does not decode": (METADATA, 4, None, b"\x7f\xff\xff\xff\x00"),
    "bytes behind the body": (METADATA, 4, None, b"\xff\xff\xff\xff\x00\x00\x00"),
}


def lone(request: Request, *, has_start: bool = True, **options: Any) -> KafkaTalk:
    key, version, name, content = request
    talk = KafkaTalk(client_id=name, **options)
    if has_start:
        talk.tcp.open()
    if content is None:
        talk.request(key, version, 7)
    else:
        talk.request_raw(key, version, 7, content)
    return talk


def assert_found(talk: KafkaTalk) -> None:
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert [c["protocol"] for c in seen.connections] == ["kafka"]
    payload = seen.ledger["payload bytes"]
    assert payload["kafka_frames"] == payload["total"]


def found_at(talk: KafkaTalk, ports: tuple[int, ...] = (), others: tuple[KafkaTalk, ...] = ()) -> list[Any]:
    """The outcomes of a connection, in a capture with others."""
    segments = merge(talk.segments, *(other.segments for other in others))
    seen = check(encode(segments), ports=ports)
    assert len(seen.exchanges) >= sum(len(other.wanted) for other in others)
    return [x["outcome"] for x in seen.exchanges if x["client_port"] == talk.client[1]]


@pytest.mark.parametrize("closer", [None, 1])
@pytest.mark.parametrize("has_start", [True, False])
@pytest.mark.parametrize("name", AT_BROKERS)
def test_a_request_to_a_known_broker(name: str, has_start: bool, closer: int | None) -> None:
    """Its port was named, or another connection of the capture has shown it; not one to another port of its host."""

    def talk(port: int = 9_092) -> KafkaTalk:
        made = lone(AT_BROKERS[name], has_start=has_start, broker=("10.0.0.2", port), time_ns=START_NS + 10**9)
        if closer is not None:
            made.tcp.close(closer)
        return made

    others = (small_talk(4, client=("10.0.0.9", 50_000)),)
    outcome = ["in_flight" if closer is None else "unanswered"]
    assert found_at(talk(), ports=(9_092,)) == outcome
    assert found_at(talk(), others=others) == outcome
    without = found_at(talk(9_093))
    assert found_at(talk(9_093), ports=(9_092,), others=others) == without


@pytest.mark.parametrize("name", NO_EVIDENCE)
def test_what_a_known_broker_would_not_read_is_no_request(name: str) -> None:
    for has_start in (True, False):
        found = found_at(lone(NO_EVIDENCE[name], has_start=has_start), ports=(9_092,))
        assert bool(found) == (name == "an empty name")


def test_a_broker_is_known_to_open_connections_from_the_end_of_the_capture() -> None:
    others = (small_talk(4, client=("10.0.0.9", 50_000), time_ns=START_NS + 10**9),)
    assert found_at(lone(AT_BROKERS["metadata"]), others=others) == ["in_flight"]


def assert_not_found(talk: KafkaTalk) -> None:
    seen = check(encode(talk.segments))
    assert seen.exchanges == []
    assert [c["protocol"] for c in seen.connections] != ["kafka"]


@pytest.mark.parametrize("mss", [1448, 9])
@pytest.mark.parametrize("closer", [0, 1])
@pytest.mark.parametrize("name", NAMELESS)
def test_a_request_without_a_name(name: str, closer: int, mss: int) -> None:
    talk = lone(NAMELESS[name], mss=mss)
    talk.tcp.close(closer)
    assert_found(talk)


@pytest.mark.parametrize("name", MID_CONNECTION)
def test_a_request_of_a_connection_that_began_before(name: str) -> None:
    other = small_talk(2, client=("10.0.0.9", 50_000))
    talk = lone(MID_CONNECTION[name], has_start=False)
    talk.tcp.close(1)
    assert_not_found(talk)

    talk = lone(MID_CONNECTION[name], has_start=False, time_ns=other.segments[-1].time_ns + 1)
    talk.tcp.close(1)
    assert_exchanges(check(encode([*other.segments, *talk.segments])), [*other.wanted, *talk.wanted])


def test_a_newer_version_of_a_named_client_on_a_connection_that_began_before() -> None:
    talk = lone(NEWER, has_start=False)
    talk.tcp.close(1)
    assert_found(talk)


@pytest.mark.parametrize("has_start", [True, False])
@pytest.mark.parametrize("name", NO_EVIDENCE)
def test_what_other_protocols_may_send_is_no_request(name: str, has_start: bool) -> None:
    talk = lone(NO_EVIDENCE[name], has_start=has_start)
    talk.tcp.close(1)
    assert_not_found(talk)


@pytest.mark.parametrize("name", NAMELESS)
def test_it_has_to_be_all_that_the_connection_carried(name: str) -> None:
    """Neither bytes before or behind it, nor any of the broker, nor lost ones; and it has to be closed."""
    for sends in ([(0, b"\x00")], [(1, b"\x00\x00")], [(1, b"hello, world\n")]):
        talk = lone(NAMELESS[name])
        for end, data in sends:
            talk.tcp.send(end, data)
        talk.tcp.close(1)
        assert_not_found(talk)
    assert_not_found(lone(NAMELESS[name]))


def test_it_may_not_lie_behind_lost_bytes() -> None:
    talk = KafkaTalk(client_id=None)
    talk.tcp.open()
    talk.tcp.send(0, b"MAIL FROM:<a@example.org>\r\n")
    first = next(s for s in talk.segments if s.payload)
    talk.request(METADATA, 4, 7)
    talk.tcp.close(1)
    assert check(encode(lose(talk.segments, talk.segments.index(first)))).exchanges == []


def test_produce_needs_to_know_who_is_the_client() -> None:
    """Its key and version are those of zeros and small numbers, as responses begin."""
    talk = KafkaTalk(client_id="app")
    talk.request_raw(PRODUCE, 15, 7, OPAQUE)
    talk.tcp.close(1)
    assert_not_found(talk)
