"""What a split has to know of a connection that began in an earlier one, and whether two runs came to the same state.

A digest takes in all that what comes later can depend on: sequence numbers, what is held and why, frames begun, requests
that wait, the broker's mute window. Two engines with equal digests of a flow treat the same packets alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector import dialogs as d
from kafkatap.reassembly.streams import REST_NS

if TYPE_CHECKING:
    from kafkatap.dissector.dissector import Dissector

    from .split_engine import SplitEngine

Array = np.ndarray[Any, Any]
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class History:
    """A connection as it is known at some packet. `connection`: its first packet's number over the whole input; `first`
    its time, ns since the epoch. `client`: the direction that sends requests, -1 not known. Strings as on the wire."""

    connection: int
    first: int
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
        known = {
            "handshake_rtt_ns": later.handshake_rtt_ns if later.handshake_rtt_ns >= 0 else self.handshake_rtt_ns,
            "client": later.client if later.client >= 0 else self.client,
            "protocol": later.protocol or self.protocol,
            "answers_at_once": later.answers_at_once if later.answers_at_once >= 0 else self.answers_at_once,
        }
        for name in ("client_id", "software", "software_version", "mechanism"):
            value = getattr(later, name)
            known[name] = getattr(self, name) if value is None else value
        return replace(self, **known)

    def same_knowledge(self, other: History) -> bool:
        """Whether a connection resumed with one or the other fares alike."""
        left, right = asdict(self), asdict(other)
        return all(left[f.name] == right[f.name] for f in fields(self) if f.name not in ("client_id", "protocol"))

    def put(self, dissector: Dissector, connection: int) -> None:
        """Write it to a dialog's row, for a START that is RESUMED."""
        row = dissector.dialogs[connection]
        row["client"] = self.client
        # Kafka has to be found again, as nobody knows where its frames begin; what is not read needs no search.
        row["protocol"] = self.protocol if self.protocol in (d.TLS, d.FOREIGN) else d.UNKNOWN
        row["answers_at_once"] = self.answers_at_once
        for name in ("client_id", "software", "software_version", "mechanism"):
            value = getattr(self, name)
            row[name] = -1 if value is None else dissector.number_of(value)


def history_of(engine: SplitEngine, c: int) -> History:
    """What an engine knows of connection `c` now."""
    dialog, row = engine.dissector.dialogs[c], engine.assembler.connections[c]
    texts = {
        name: engine.dissector.string(int(dialog[name])) if dialog[name] >= 0 else None
        for name in ("client_id", "software", "software_version", "mechanism")
    }
    return History(
        int(dialog["serial"]), engine.began(c), int(row["handshake_rtt_ns"]), int(dialog["client"]),
        int(dialog["protocol"]), int(dialog["answers_at_once"]), **texts,
    )  # fmt: skip


def state_digest(engine: SplitEngine, c: int) -> bytes:
    """16 bytes; equal where the connection's state is."""
    found = hashlib.blake2b(repr(_state(engine, c)).encode(), digest_size=16)
    return found.digest()


def _state(engine: SplitEngine, c: int) -> tuple[Any, ...]:
    rows = engine.assembler.connections
    row = rows[c]
    previous = int(row["previous"])
    under_way = previous >= 0 and rows["used"][previous] == 1
    if under_way and int(row["last"]) - int(rows["closed_at"][previous]) <= REST_NS:
        older: Any = (_ways(engine, previous), _dialog(engine, previous))
    else:
        older = None
    return int(row["closed_at"]), _ways(engine, c), _dialog(engine, c), older


def _ways(engine: SplitEngine, c: int) -> tuple[Any, ...]:
    """Both directions in sequence numbers, whatever their offsets are counted from."""
    return tuple(_way(engine, engine.assembler.directions[2 * c + side]) for side in (0, 1))


def _way(engine: SplitEngine, way: Any) -> tuple[Any, ...]:
    if not way["started"]:
        return ()
    following = int(way["next"])
    held = []
    number = int(way["held"])
    while number >= 0:
        node = engine.assembler.held[number]
        held.append(
            (int(node["offset"]) - following, int(node["ts"]), int(node["packet"]), int(node["wire"]),
             int(node["captured"]))
        )  # fmt: skip
        number = int(node["next"])
    return (
        (int(way["base_seq"]) + following) & _MASK,
        int(way["delivered"]),
        max(0, int(way["acked"]) - following),
        int(way["fin"]) - following if way["fin"] >= 0 else None,
        int(way["gap_since"]) if held else None,
        tuple(held),
    )


def _dialog(engine: SplitEngine, c: int) -> tuple[Any, ...]:
    dissector = engine.dissector
    dialog = dissector.dialogs[c]
    protocol = int(dialog["protocol"])
    if protocol in (d.TLS, d.FOREIGN):
        return (protocol,)
    streams = dissector.streams[2 * c : 2 * c + 2]
    texts = tuple(
        dissector.string(int(dialog[name])) if dialog[name] >= 0 else None
        for name in ("software", "software_version", "mechanism")
    )
    losses = int(streams["losses"][1 - int(dialog["client"])]) if dialog["client"] >= 0 else 0
    waiting = []
    number = int(dialog["pending_first"])
    while number >= 0:
        x, link = dissector.exchanges[number], dissector.links[number]
        waiting.append(
            tuple(
                int(x[name])
                for name in (
                    "correlation_id", "api_key", "api_version", "request_first", "request_last",
                    "request_packet_first", "request_bytes",
                )
            )
            + (int(link["no_reply"]), int(link["token"]), losses - int(link["losses"]))
        )  # fmt: skip
        number = int(link["next"])
    return (
        protocol,
        *(int(dialog[name]) for name in ("client", "raw_sasl", "answers_at_once", "previous_response")),
        int(dialog["mute_end"]) if dialog["mute_end"] > dialog["previous_response"] else None,  # else it is over
        texts,
        tuple(
            tuple(int(stream[name]) for name in ("mode", "frame_size", "have", "seen", "used", "broken"))
            + ((int(stream["first"]), int(stream["packet_first"])) if stream["have"] else ())
            for stream in streams
        ),
        tuple(waiting),
    )
