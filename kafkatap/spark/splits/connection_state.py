"""The state of a connection at a packet: its history, which a later split resumes with, and a digest for comparison.

The digest covers everything that later packets depend on: sequence numbers, held segments, partial frames, waiting
requests, the broker's mute window. Two engines with equal digests of a flow treat the same packets alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.connection_state import NAMES, ConnectionFacts
from kafkatap.dissector.framing.connections import PROTOCOL_UNKNOWN
from kafkatap.reassembly.streams import REST_NS

if TYPE_CHECKING:
    from kafkatap.dissector.dissector import Dissector
    from kafkatap.reassembly.assembler import Assembler

Array = np.ndarray[Any, Any]
_MASK = 0xFFFFFFFF
#: Time stamps may step back a little.
_DISORDER_NS = 1_000_000_000


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
    protocol: int = PROTOCOL_UNKNOWN
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
        for name in NAMES:
            value = getattr(later, name)
            known[name] = getattr(self, name) if value is None else value
        return replace(self, **known)

    def same_knowledge(self, other: History) -> bool:
        """Whether a connection resumed with one or the other fares alike."""
        left, right = asdict(self), asdict(other)
        return all(left[f.name] == right[f.name] for f in fields(self) if f.name != "protocol")

    @property
    def facts(self) -> ConnectionFacts:
        """What the dissector has to know of it."""
        texts = {name: getattr(self, name) for name in NAMES}
        return ConnectionFacts(self.connection, self.client, self.protocol, self.answers_at_once, **texts)


def history_with(facts: ConnectionFacts, first: int, bases: tuple[int, int], row: Any) -> History:
    """The history of a connection that began at `first`. `row`: its CONNECTION row of reassembly."""
    return History(
        facts.serial, first, bases, (int(row["syn_at"]), int(row["syn_ack_at"])), int(row["handshake_rtt_ns"]),
        facts.client, facts.protocol, facts.answers_at_once, **{name: getattr(facts, name) for name in NAMES},
    )  # fmt: skip


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
    bases = bases_of(assembler.directions[2 * c : 2 * c + 2])
    return history_with(dissector.connection_facts(c), first, bases, assembler.connections[c])


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
        serial = dissector.connection_facts(previous).serial
        state = dissector.connection_state(previous)
        older = serial, int(rows["closed_at"][previous]), _ways(assembler, previous), state
    handshake: Any = int(row["handshake_rtt_ns"])
    if handshake < 0 and (row["syn_at"] or row["syn_ack_at"]):  # its round trip is not measured yet
        handshake = int(row["syn_at"]), int(row["syn_ack_at"]), int(row["client"])
    return int(row["closed_at"]), handshake, _ways(assembler, c), dissector.connection_state(c), older


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


def _hash(data: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(data).tobytes(), digest_size=8).digest() if len(data) else b""
