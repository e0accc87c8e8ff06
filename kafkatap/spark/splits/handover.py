"""What a split has to know of a connection that began in an earlier one, and whether two runs came to the same state.

A digest takes in all that what comes later can depend on: sequence numbers, what is held and why, frames begun,
requests that wait, the broker's mute window. Two engines with equal digests of a flow treat the same packets alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.framing import connections as d
from kafkatap.reassembly.connection_state import Handshake, Resumption

if TYPE_CHECKING:
    from kafkatap.dissector.dissector import Dissector

    from .split_engine import SplitEngine

Array = np.ndarray[Any, Any]
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


def bases_of(ways: Array) -> tuple[int, int]:
    """What the bytes of both directions (DIRECTION rows) are counted from."""
    first, second = (int(way["base_seq"]) if way["started"] else -1 for way in ways)
    return first, second


def resume(engine: SplitEngine, c: int, history: History) -> None:
    """Continue connection `c` from what earlier splits showed of it."""
    syn, syn_ack = history.handshake
    handshake = Handshake(syn, syn_ack, history.client, history.handshake_rtt_ns)
    engine.assembler.resume(c, Resumption(history.bases, handshake))


def history_of(engine: SplitEngine, c: int) -> History:
    """What an engine knows of connection `c` now."""
    dialog, row = engine.dissector.dialogs[c], engine.assembler.connections[c]
    texts = {name: engine.dissector.string(int(dialog[name])) if dialog[name] >= 0 else None for name in _NAMES}
    return History(
        int(dialog["serial"]), engine.began(c), bases_of(engine.assembler.directions[2 * c : 2 * c + 2]),
        (int(row["syn_at"]), int(row["syn_ack_at"])), int(row["handshake_rtt_ns"]), int(dialog["client"]),
        int(dialog["protocol"]), int(dialog["answers_at_once"]), **texts,
    )  # fmt: skip


def state_digest(engine: SplitEngine, c: int) -> bytes:
    """16 bytes; equal where the connection's state is."""
    found = hashlib.blake2b(repr(_state(engine, c)).encode(), digest_size=16)
    return found.digest()


def _state(engine: SplitEngine, c: int) -> tuple[Any, ...]:
    older: Any = None
    earlier = engine.assembler.earlier_connection(c)
    if earlier >= 0:
        serial = int(engine.dissector.dialogs["serial"][earlier])
        state = engine.assembler.connection_state(earlier)
        older = (serial, state.closed_at, state.streams, _dialog(engine, earlier))
    return engine.assembler.connection_state(c), _dialog(engine, c), older


def _dialog(engine: SplitEngine, c: int) -> tuple[Any, ...]:
    dissector = engine.dissector
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
                *(_text(engine, int(x[name])) for name in _NAMES_OF_WAITING),
                _text(engine, int(link["name"])),
                int(link["no_reply"]), int(link["token"]), losses != int(link["losses"]),
            )
        )  # fmt: skip
        number = int(link["next"])
    return (
        protocol,
        *(int(dialog[name]) for name in ("client", "raw_sasl", "answers_at_once", "previous_response")),
        int(dialog["mute_end"]) if dialog["mute_end"] > dialog["previous_response"] else None,  # else it is over
        _ahead(engine, dialog),
        int(dialog["tls_records"]) if protocol == d.UNKNOWN else None,
        tuple(_text(engine, int(dialog[name])) for name in _NAMES),
        tuple(_stream(engine, stream) for stream in streams),
        tuple(waiting),
    )


def _ahead(engine: SplitEngine, dialog: Any) -> tuple[int, ...] | None:
    """What the head-of-line wait of a request that waits will be charged by. None where no request that waits came
    before the last response, or all of the time ahead was the broker's."""
    number = int(dialog["pending_first"])
    if number < 0 or engine.dissector.exchanges["request_last"][number] >= dialog["previous_response"]:
        return None
    return tuple(int(dialog[name]) for name in _AHEAD) if any(dialog[name] for name in _NOT_BROKER) else None


def _stream(engine: SplitEngine, stream: Any) -> tuple[Any, ...]:
    """What is there of a frame, or of what a frame is searched in."""
    dissector = engine.dissector
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


def _text(engine: SplitEngine, number: int) -> bytes | None:
    return engine.dissector.string(number) if number >= 0 else None
