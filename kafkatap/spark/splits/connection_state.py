"""The state of a connection at a packet: its history, which a later split resumes with, and a digest for comparison.

The digest covers everything that later packets depend on: sequence numbers, held segments, partial frames, waiting
requests, the broker's mute window. Two engines with equal digests of a flow treat the same packets alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.framing import connections as d
from kafkatap.reassembly.streams import REST_NS

if TYPE_CHECKING:
    from kafkatap.dissector.dissector import Dissector
    from kafkatap.reassembly.assembler import Assembler

Array = np.ndarray[Any, Any]
_MASK = 0xFFFFFFFF
#: Time stamps may step back a little.
_DISORDER_NS = 1_000_000_000
_NAMES = ("client_id", "software", "software_version", "mechanism")
_OF_WAITING = (
    "correlation_id", "api_key", "api_version", "request_first", "request_last", "request_packet_first",
    "request_packet_last", "request_bytes", "request_status", "acks", "max_wait_ms", "min_bytes",
)  # fmt: skip
_AHEAD = (
    "ahead_late", "ahead_broker", "ahead_mute", "ahead_hol_wait", "ahead_hol_throttle_wait", "ahead_hol_poll_wait",
    "ahead_polls",
)  # fmt: skip
_NOT_BROKER = ("ahead_late", "ahead_mute", "ahead_hol_throttle_wait", "ahead_hol_poll_wait", "ahead_polls")
_NAMES_OF_WAITING = ("client_id", "client_software", "client_software_version")


@dataclass(frozen=True, slots=True)
class History:
    """A connection as it is known at some packet. `connection`: its first packet's number over the whole input; `first`
    its time, ns since the epoch. `bases`: by direction the sequence number that its bytes are counted from, -1 not
    known. `handshake`: the times of the last SYN and SYN-ACK, 0 for none. `client`: the direction that sends requests,
    -1 not known. Strings as on the wire."""

    connection: int
    first: int
    bases: tuple[int, int] = (-1, -1)
    handshake: tuple[int, int] = (0, 0)
    handshake_rtt_ns: int = -1
    client: int = -1
    protocol: int = d.UNKNOWN
    answers_at_once: int = -1
    client_id: bytes | None = None
    software: bytes | None = None
    software_version: bytes | None = None
    mechanism: bytes | None = None

    def then(self, later: History) -> History:
        """What is known after both: what a later split knows of the same connection, else what this one does."""
        known: dict[str, Any] = {
            "bases": tuple(mine if mine >= 0 else new for mine, new in zip(self.bases, later.bases, strict=True)),
            "handshake": tuple(new or mine for mine, new in zip(self.handshake, later.handshake, strict=True)),
            "handshake_rtt_ns": self.handshake_rtt_ns if self.handshake_rtt_ns >= 0 else later.handshake_rtt_ns,
            "client": later.client if later.client >= 0 else self.client,
            "protocol": later.protocol or self.protocol,
            "answers_at_once": later.answers_at_once if later.answers_at_once >= 0 else self.answers_at_once,
        }
        for name in _NAMES:
            value = getattr(later, name)
            known[name] = getattr(self, name) if value is None else value
        return replace(self, **known)

    def same_knowledge(self, other: History) -> bool:
        """Whether a connection resumed with one or the other fares alike."""
        left, right = asdict(self), asdict(other)
        return all(left[f.name] == right[f.name] for f in fields(self) if f.name != "protocol")

    def put(self, dissector: Dissector, connection: int, numbers: dict[bytes, int]) -> None:
        """Write it to a dialog's row, for a START that is RESUMED. `numbers`: of strings, as far as they were asked for
        (to intern one takes 0.2 ms outside of kernels)."""
        row = dissector.dialogs[connection]
        row["client"] = self.client
        # Kafka has to be found again, as nobody knows where its frames begin; what is not read needs no search.
        row["protocol"] = self.protocol if self.protocol in (d.TLS, d.FOREIGN) else d.UNKNOWN
        row["answers_at_once"] = self.answers_at_once
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None and value not in numbers:
                numbers[value] = dissector.number_of(value)
            row[name] = -1 if value is None else numbers[value]


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The connection of a flow at some packet: the digest of its state, and its history."""

    digest: bytes
    history: History

    def is_same(self, other: ConnectionState) -> bool:
        """Whether both are the same connection in the same state."""
        return self.digest == other.digest and self.history.connection == other.history.connection


def bases_of(ways: Array) -> tuple[int, int]:
    """What the bytes of both directions (DIRECTION rows) are counted from."""
    first, second = (int(way["base_seq"]) if way["started"] else -1 for way in ways)
    return first, second


def resume(assembler: Assembler, c: int, history: History) -> None:
    """Restore the handshake of connection `c`, and count its bytes from the base that earlier splits used. A repeated
    SYN is recognised by that base."""
    connection = assembler.connections[c]
    connection["syn_at"], connection["syn_ack_at"] = history.handshake
    if any(history.handshake):
        connection["client"] = history.client
    for way, base in zip((2 * c, 2 * c + 1), history.bases, strict=True):
        row = assembler.directions[way]
        if not row["started"] or base < 0:
            continue
        more = (int(row["base_seq"]) - base) & _MASK
        row["base_seq"] = base
        row["next"] += more
        row["acked"] += more
        row["fin"] += more if row["fin"] >= 0 else 0
        number = int(row["held"])
        while number >= 0:
            assembler.held["offset"][number] += more
            number = int(assembler.held["next"][number])


def history_of(assembler: Assembler, dissector: Dissector, c: int, first: int) -> History:
    """The history of connection `c` so far. `first`: the time of its first packet."""
    dialog, row = dissector.dialogs[c], assembler.connections[c]
    texts = {name: dissector.string(int(dialog[name])) if dialog[name] >= 0 else None for name in _NAMES}
    return History(
        int(dialog["serial"]), first, bases_of(assembler.directions[2 * c : 2 * c + 2]),
        (int(row["syn_at"]), int(row["syn_ack_at"])), int(row["handshake_rtt_ns"]), int(dialog["client"]),
        int(dialog["protocol"]), int(dialog["answers_at_once"]), **texts,
    )  # fmt: skip


def under_way(assembler: Assembler, c: int) -> int:
    """The connection before `c` on the same 4-tuple, if packets of it may still come; else -1."""
    rows = assembler.connections
    previous = int(rows["previous"][c])
    if previous < 0 or rows["used"][previous] != 1:
        return -1
    rest = int(rows["last"][c]) - int(rows["closed_at"][previous])
    return previous if rest <= REST_NS + _DISORDER_NS else -1


def state_digest(assembler: Assembler, dissector: Dissector, c: int) -> bytes:
    """16 bytes; equal where the connection's state is."""
    found = hashlib.blake2b(repr(_state(assembler, dissector, c)).encode(), digest_size=16)
    return found.digest()


def _state(assembler: Assembler, dissector: Dissector, c: int) -> tuple[Any, ...]:
    rows = assembler.connections
    row = rows[c]
    older: Any = None
    previous = under_way(assembler, c)
    if previous >= 0:
        serial = int(dissector.dialogs["serial"][previous])
        older = (serial, int(rows["closed_at"][previous]), _ways(assembler, previous), _dialog(dissector, previous))
    handshake: Any = int(row["handshake_rtt_ns"])
    if handshake < 0 and (row["syn_at"] or row["syn_ack_at"]):  # its round trip may still be told
        handshake = int(row["syn_at"]), int(row["syn_ack_at"]), int(row["client"])
    return int(row["closed_at"]), handshake, _ways(assembler, c), _dialog(dissector, c), older


def _ways(assembler: Assembler, c: int) -> tuple[Any, ...]:
    row = assembler.connections[c]
    opened = bool(row["syn_at"] or row["syn_ack_at"])
    return tuple(_way(assembler, assembler.directions[2 * c + side], opened) for side in (0, 1))


def _way(assembler: Assembler, way: Any, opened: bool) -> tuple[Any, ...]:
    if not way["started"]:
        return ()
    following = int(way["next"])
    held = []
    number = int(way["held"])
    while number >= 0:
        node = assembler.held[number]
        at, captured = int(node["at"]), int(node["captured"])
        held.append(
            (int(node["offset"]) - following, int(node["ts"]), int(node["packet"]), int(node["wire"]), captured,
             _hash(assembler.pool[at : at + captured]))
        )  # fmt: skip
        number = int(node["next"])
    return (
        int(way["base_seq"]),
        following & _MASK,
        # What comes first may be behind a gap, where the connection's first byte is known.
        bool(way["delivered"]) or opened,
        max(0, int(way["acked"]) - following),
        int(way["fin"]) - following if way["fin"] >= 0 else None,
        int(way["gap_since"]) if held else None,
        tuple(held),
    )


def _dialog(dissector: Dissector, c: int) -> tuple[Any, ...]:
    dialog = dissector.dialogs[c]
    protocol = int(dialog["protocol"])
    if protocol in (d.TLS, d.FOREIGN):
        return protocol, int(dialog["client"])
    streams = dissector.streams[2 * c : 2 * c + 2]
    losses = int(streams["losses"][1 - int(dialog["client"])]) if dialog["client"] >= 0 else 0
    waiting = []
    number = int(dialog["pending_first"])
    while number >= 0:
        x, link = dissector.exchanges[number], dissector.links[number]
        waiting.append(
            (
                *(int(x[name]) for name in _OF_WAITING),
                *(_text(dissector, int(x[name])) for name in _NAMES_OF_WAITING),
                _text(dissector, int(link["name"])),
                int(link["no_reply"]), int(link["token"]), losses != int(link["losses"]),
            )
        )  # fmt: skip
        number = int(link["next"])
    return (
        protocol,
        *(int(dialog[name]) for name in ("client", "raw_sasl", "answers_at_once", "previous_response")),
        int(dialog["mute_end"]) if dialog["mute_end"] > dialog["previous_response"] else None,  # else it is over
        _ahead(dissector, dialog),
        int(dialog["tls_records"]) if protocol == d.UNKNOWN else None,
        tuple(_text(dissector, int(dialog[name])) for name in _NAMES),
        tuple(_stream(dissector, stream) for stream in streams),
        tuple(waiting),
    )


def _ahead(dissector: Dissector, dialog: Any) -> tuple[int, ...] | None:
    """What the head-of-line wait of a request that waits will be charged by. None where no request that waits came
    before the last response, or all of the time ahead was the broker's."""
    number = int(dialog["pending_first"])
    if number < 0 or dissector.exchanges["request_last"][number] >= dialog["previous_response"]:
        return None
    return tuple(int(dialog[name]) for name in _AHEAD) if any(dialog[name] for name in _NOT_BROKER) else None


def _stream(dissector: Dissector, stream: Any) -> tuple[Any, ...]:
    """What is there of a frame, or of what a frame is searched in."""
    at, used = int(stream["buffer"]), int(stream["used"])
    marks = []
    number = int(stream["marks_first"])
    while number >= 0:
        mark = dissector.marks[number]
        marks.append(tuple(int(mark[name]) for name in ("offset", "ts", "packet", "wire", "captured", "fresh")))
        number = int(mark["next"])
    return (
        *(int(stream[name]) for name in ("mode", "frame_size", "kept", "have", "seen", "used", "broken", "doubt")),
        (int(stream["first"]), int(stream["packet_first"])) if stream["have"] else None,
        int(stream["retry"]) if stream["mode"] != d.SYNCED else None,
        tuple(marks),
        _hash(dissector.pool[at : at + used]),
    )


def _hash(data: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(data).tobytes(), digest_size=8).digest() if len(data) else b""


def _text(dissector: Dissector, number: int) -> bytes | None:
    return dissector.string(number) if number >= 0 else None
