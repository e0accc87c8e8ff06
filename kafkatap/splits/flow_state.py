"""The state of a flow's connection at a packet: a history that a later split resumes with, and a digest to compare.

Two engines with equal digests of a flow treat the same later packets alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafkatap.dissector.connection_state import ConnectionFacts
from kafkatap.dissector.framing.connections import PROTOCOL_UNKNOWN
from kafkatap.reassembly.connection_state import Handshake, Resumption, SynOptions

from ..engine.tls.facts import Negotiated


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
        return Negotiated.unpack(self.tls).client_random if self.tls else b""

    @property
    def resumption(self) -> Resumption:
        """What reassembly needs to continue the connection."""
        return Resumption(
            self.base_seqs, Handshake(*self.handshake, self.facts.client, self.handshake_rtt_ns), self.options
        )

    def is_equivalent(self, other: History) -> bool:
        """Whether a connection that is resumed with one or the other behaves alike."""
        return self._resumed() == other._resumed()

    def _resumed(self) -> History:
        rebalance_ms = max(self.facts.rebalance_ms, 0)  # as in the digest
        facts = replace(
            self.facts, protocol=PROTOCOL_UNKNOWN, head=0, not_kafka_since=0, rebalance_ms=rebalance_ms
        )  # fmt: skip
        return replace(self, facts=facts, tls_records=(0, 0))


@dataclass(frozen=True, slots=True)
class FlowState:
    """The connection of a flow at some packet: the digest of its state, and its history."""

    digest: bytes
    history: History

    def is_same(self, other: FlowState) -> bool:
        """Whether both are the same connection in the same state."""
        return self.digest == other.digest and self.history.connection == other.history.connection
