"""A client and a broker that talk on one TCP connection, and the exchanges expected of their talk.

    talk = KafkaTalk()
    talk.tcp.open()
    asked = talk.request(METADATA, 1, 7, Topics=[{"Name": "orders"}])
    talk.respond(asked, ControllerId=1)
    assert_exchanges(check(encode(talk.tcp.segments)), talk.wanted)

The schema makes the bodies; fields without a value are empty. `wanted` holds the facts of each exchange that do not
depend on the reassembly: names, sizes, and the times of the segments with its first and last byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.dissector.layouts.catalog import load_api
from tests.support.messages import emptiest_message, emptiest_value, encode_message
from tests.support.tcp import START_NS, Segment, TcpConversation, frame
from tests.wire.harness import Decoded, Row

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CONTROLLED_SHUTDOWN, FIND_COORDINATOR, HEARTBEAT = 0, 1, 2, 3, 7, 10, 12
JOIN_GROUP, SYNC_GROUP = 11, 14
SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, SASL_AUTHENTICATE = 17, 18, 19, 36

CLIENT: tuple[str, int] = ("10.0.0.1", 40_000)
BROKER: tuple[str, int] = ("10.0.0.2", 9_092)
MS = 1_000_000

TIMES = ("request_first", "request_last", "response_first", "response_last")


def body(api_key: int, version: int, direction: int, **values: Any) -> bytes:
    """A body with these values, the rest empty. It begins with the header's tag section if the version has one."""
    message = load_api(api_key)[direction]
    return encode_message(message, version, _filled(message, version, values))


def _filled(message: Any, version: int, values: dict[str, Any]) -> dict[str, Any]:
    value = emptiest_message(message, version)[1]
    return {**value, **_whole(message.body, version, values)}


def _whole(layout: Any, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """The values, completed by empty fields."""
    found: dict[str, Any] = {}
    for item in layout.fields:
        if item.name not in values or version not in item.versions:
            continue
        value = values[item.name]
        if item.struct is not None and value is not None:
            value = [_one(item, version, v) for v in value] if item.is_array else _one(item, version, value)
        found[item.name] = value
    return found


def _one(item: Any, version: int, value: dict[str, Any]) -> dict[str, Any]:
    return {**emptiest_value(item.struct, version), **_whole(item.struct, version, value)}


def request(api_key: int, version: int, correlation_id: int, client_id: str | None = "app", **values: Any) -> bytes:
    """The frame of a request."""
    return raw_request(api_key, version, correlation_id, body(api_key, version, 0, **values), client_id)


def raw_request(
    api_key: int, version: int, correlation_id: int, content: bytes, client_id: str | None = "app"
) -> bytes:
    """The frame of a request with any body."""
    head = struct.pack("!hhi", api_key, version, correlation_id)
    if not (api_key == CONTROLLED_SHUTDOWN and version == 0):
        raw = None if client_id is None else client_id.encode()
        head += b"\xff\xff" if raw is None else struct.pack("!h", len(raw)) + raw
    return frame(head + content)


def response(api_key: int, version: int, correlation_id: int, **values: Any) -> bytes:
    """The frame of a response."""
    return frame(struct.pack("!i", correlation_id) + body(api_key, version, 1, **values))


@dataclass(slots=True)
class SentRequest:
    """A request on the wire, and the row expected of it."""

    api_key: int
    version: int
    correlation_id: int
    row: Row


@dataclass
class KafkaTalk:
    """One connection. `tcp` holds its segments, `wanted` the expected exchanges."""

    client: tuple[str, int] = CLIENT
    broker: tuple[str, int] = BROKER
    client_id: str | None = "app"
    mss: int = 1448
    time_ns: int = START_NS
    isn: tuple[int, int] = (1000, 5_000_000)
    acks: bool = True
    step_ns: int = 100_000
    wanted: list[Row] = field(default_factory=list)
    tcp: TcpConversation = field(init=False)

    def __post_init__(self) -> None:
        self.tcp = TcpConversation(
            self.client, self.broker, time_ns=self.time_ns, isn=self.isn, mss=self.mss, acks=self.acks,
            step_ns=self.step_ns,
        )  # fmt: skip

    def request(self, api_key: int, version: int, correlation_id: int, **values: Any) -> SentRequest:
        """Send a request."""
        return self.request_raw(api_key, version, correlation_id, body(api_key, version, 0, **values))

    def request_raw(self, api_key: int, version: int, correlation_id: int, content: bytes) -> SentRequest:
        data = raw_request(api_key, version, correlation_id, content, self.client_id)
        first, last = self._send(0, data)
        row: Row = {
            "client_ip": self.client[0], "client_port": self.client[1], "broker_ip": self.broker[0],
            "broker_port": self.broker[1], "api_key": api_key, "api_version": version,
            "correlation_id": correlation_id, "client_id": self.client_id, "request_bytes": len(data) - 4,
            "request_first": first, "request_last": last, "response_bytes": -1, "response_first": NO_TIME,
            "response_last": NO_TIME, "outcome": "unanswered",
        }  # fmt: skip
        if api_key == CONTROLLED_SHUTDOWN and version == 0:
            row["client_id"] = None
        self.wanted.append(row)
        return SentRequest(api_key, version, correlation_id, row)

    def respond(self, asked: SentRequest, version: int | None = None, **values: Any) -> None:
        """Send the response to a request, in another version if one is named."""
        content = body(asked.api_key, asked.version if version is None else version, 1, **values)
        self.respond_raw(asked, content)

    def respond_raw(self, asked: SentRequest, content: bytes) -> None:
        data = frame(struct.pack("!i", asked.correlation_id) + content)
        first, last = self._send(1, data)
        asked.row.update(response_bytes=len(data) - 4, response_first=first, response_last=last, outcome="answered")

    def exchange(self, api_key: int, version: int, correlation_id: int, **values: Any) -> SentRequest:
        """Send a request and its response; `values` are the response's."""
        asked = self.request(api_key, version, correlation_id)
        self.respond(asked, **values)
        return asked

    def _send(self, end: int, data: bytes) -> tuple[int, int]:
        first = len(self.tcp.segments)
        self.tcp.send(end, data)
        carried = [s for s in self.tcp.segments[first:] if s.payload]
        return carried[0].time_ns, carried[-1].time_ns

    @property
    def segments(self) -> list[Segment]:
        return self.tcp.segments


def key_of(row: Row) -> tuple[Any, ...]:
    return (row["client_ip"], row["client_port"], row["request_first"], row["correlation_id"], row["api_key"])


def assert_exchanges(seen: Decoded, wanted: Iterable[Row], besides: Sequence[str] = ()) -> None:
    """Assert that the exchanges are exactly these, with the values of each row but the fields of `besides`."""
    rows = list(wanted)
    found = {key_of(x): x for x in seen.exchanges}
    assert len(found) == len(seen.exchanges), "two exchanges with the same key"
    missing = [row for row in rows if key_of(row) not in found]
    extra = [x for key, x in found.items() if key not in {key_of(row) for row in rows}]
    assert not missing, (missing[:3], extra[:3])
    assert not extra, extra[:3]
    for row in rows:
        x = found[key_of(row)]
        told = {name: x[name] for name in row if name not in besides}
        assert told == {name: value for name, value in row.items() if name not in besides}


def small_talk(count: int = 5, **options: Any) -> KafkaTalk:
    """A complete connection: some Metadata and FindCoordinator exchanges, then FINs."""
    talk = KafkaTalk(**options)
    talk.tcp.open()
    add_exchanges(talk, count)
    talk.tcp.close()
    return talk


def add_exchanges(talk: KafkaTalk, count: int, first: int = 0) -> None:
    """Add exchanges of different sizes; with a small mss all but the smallest take several segments."""
    for n in range(first, first + count):
        if n % 2:
            asked = talk.request(FIND_COORDINATOR, 1, n, Key=f"group-{n}")
            talk.respond(asked, ErrorCode=15 if n % 4 == 3 else 0, Host="b" * (n * 13 % 90), Port=9092)
        else:
            asked = talk.request(METADATA, 4, n, Topics=[{"Name": f"topic-{n}-{k}"} for k in range(1 + n * 3 % 17)])
            topics = [{"Name": f"topic-{n}-{k}", "ErrorCode": 3 if k % 5 == 4 else 0} for k in range(1 + n * 3 % 17)]
            talk.respond(asked, Topics=topics, ControllerId=1)
