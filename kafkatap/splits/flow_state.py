"""The state of a flow's connection at a packet: a history that a later split resumes with, and a digest to compare.

Two engines with equal digests of a flow treat the same later packets alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kafkatap.dissector.connection_state import NAMES, SOURCE, ConnectionFacts
from kafkatap.dissector.framing.connections import PROTOCOL_UNKNOWN
from kafkatap.reassembly.connection_state import Handshake, Resumption, SynOptions
from kafkatap.reassembly.dtypes import SHIFT_UNKNOWN

from ..tls.hand_over import HandOver


@dataclass(frozen=True, slots=True)
class History:
    """A connection as it is known at some packet. `facts.serial` is the number of its first packet over the whole
    input.

    `first`: the time of that packet, ns since the epoch. `base_seqs`: by direction the sequence number from which its
    bytes are counted, -1 if unknown. `handshake`: the times of the last SYN and SYN-ACK, 0 for none.
    `options`: those of the SYN of each direction. `tls`: what is known of its TLS (`tls.hand_over`), b"" if nothing;
    None if it is not TLS, as far as is known. `tls_records`: by direction, its records with application data, about.
    """

    facts: ConnectionFacts
    first: int
    base_seqs: tuple[int, int] = (-1, -1)
    handshake: tuple[int, int] = (0, 0)
    handshake_rtt_ns: int = -1
    options: tuple[SynOptions, SynOptions] = (SynOptions(), SynOptions())
    tls: bytes | None = None
    tls_records: tuple[int, int] = (0, 0)

    @property
    def connection(self) -> int:
        """The number of the connection's first packet."""
        return self.facts.serial

    @property
    def client_random(self) -> bytes:
        """That of its TLS; b"" if it is unknown."""
        return HandOver.unpack(self.tls).client_random if self.tls else b""

    @property
    def resumption(self) -> Resumption:
        """What reassembly needs to continue the connection."""
        return Resumption(
            self.base_seqs, Handshake(*self.handshake, self.facts.client, self.handshake_rtt_ns), self.options
        )

    def then(self, later: History) -> History:
        """Both histories of one connection as one: facts of the later one take precedence."""
        mine, new = self.facts, later.facts
        known: dict[str, Any] = {
            name: getattr(mine, name) if getattr(new, name) is None else getattr(new, name) for name in NAMES
        }
        known |= {name: getattr(new if new.source_port >= 0 else mine, name) for name in SOURCE}
        facts = replace(
            mine, client=new.client if new.client >= 0 else mine.client, protocol=new.protocol or mine.protocol,
            answers_at_once=new.answers_at_once if new.answers_at_once >= 0 else mine.answers_at_once, **known,
        )  # fmt: skip
        first, second = (a if a >= 0 else b for a, b in zip(self.base_seqs, later.base_seqs, strict=True))
        syn, answer = (b or a for a, b in zip(self.handshake, later.handshake, strict=True))
        rtt = self.handshake_rtt_ns if self.handshake_rtt_ns >= 0 else later.handshake_rtt_ns
        one, other = (a if a.shift != SHIFT_UNKNOWN else b for a, b in zip(self.options, later.options, strict=True))
        tls = later.tls if self.tls is None else self.tls
        sent, received = (a + b for a, b in zip(self.tls_records, later.tls_records, strict=True))
        return History(facts, self.first, (first, second), (syn, answer), rtt, (one, other), tls, (sent, received))

    def is_equivalent(self, other: History) -> bool:
        """Whether a connection that is resumed with one or the other behaves alike."""
        return self._resumed() == other._resumed()

    def _resumed(self) -> History:
        facts = replace(self.facts, protocol=PROTOCOL_UNKNOWN, head=0, not_kafka_since=0)
        return replace(self, facts=facts, tls_records=(0, 0))


@dataclass(frozen=True, slots=True)
class FlowState:
    """The connection of a flow at some packet: the digest of its state, and its history."""

    digest: bytes
    history: History

    def is_same(self, other: FlowState) -> bool:
        """Whether both are the same connection in the same state."""
        return self.digest == other.digest and self.history.connection == other.history.connection
