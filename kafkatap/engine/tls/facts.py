"""What is known of a TLS connection beside its data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Self

from kafkatap.reports.connection_words import D_NO_HANDSHAKE, TLS_FULL
from kafkatap.reports.tls_names import TLS_1_2, TLS_1_3


@dataclass(slots=True)
class Negotiated:
    """What the two ends negotiated, as far as later records depend on it, and how many turns there were. Another run
    continues the connection with it. It has no secrets.

    `client`: the direction of the ClientHello. `version` and `suite`: those that the server chose. `server_random`,
    `session_id` and `encrypt_then_mac`: of its ServerHello before TLS 1.3. `generations`: by direction, the key updates
    of TLS 1.3 so far. `turns`: what estimates depend on when a connection is quiet, the fields QUIET of TRACK.
    """

    client: int = -1
    version: int = 0
    suite: int = 0
    client_random: bytes = b""
    server_random: bytes = b""
    session_id: bytes = b""
    encrypt_then_mac: bool = False
    generations: list[int] = field(default_factory=lambda: [0, 0])
    turns: list[int] = field(default_factory=lambda: [0, 0, 0, 1, 0, 0, 0])

    @property
    def is_chosen(self) -> bool:
        """Whether the records behind the handshake can be read with secrets."""
        return bool(self.client >= 0 and self.client_random and self.suite and self.version in (TLS_1_2, TLS_1_3))

    def pack(self) -> bytes:
        """As bytes; `unpack` reads them."""
        values = [getattr(self, each.name) for each in fields(Negotiated)]
        return json.dumps(values, separators=(",", ":"), default=bytes.hex).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """What `pack` packed; the other facts are unknown."""
        found = cls()
        for each, value in zip(fields(Negotiated), json.loads(packed), strict=True):
            setattr(found, each.name, bytes.fromhex(value) if each.default == b"" else value)
        return found


@dataclass(slots=True)
class TlsFacts(Negotiated):
    """Facts of one connection. What is unknown is empty, 0 or -1.

    `offered_version`: the client's highest. `ja4`: the fingerprint of its first ClientHello. `alpn`: the chosen
    protocol, `alpn_offered`: those that the client offers, joined by commas. `alert`: the description of the first
    fatal alert that can be read, `alert_by`: its direction.
    `handshake_done`: the client's last handshake message was seen. Without keys that is its first encrypted record.
    Ends of certificates are in ns since the epoch. `issued`: session ids and tickets (`ticket_name`) of TLS 1.2 with
    which other connections may resume the session; `resumes`: those of the session that this one resumes, if it does.
    """

    offered_version: int = 0
    ja4: str = ""
    server_name: str = ""
    alpn: str = ""
    alpn_offered: str = ""
    session: int = TLS_FULL
    server_certificate: str = ""
    server_certificate_end: int = 0
    client_certificate: str = ""
    client_certificate_end: int = 0
    alert: int = -1
    alert_by: int = -1
    asks_certificate: bool = False
    has_early_data: bool = False
    handshake_done: bool = False
    decryption: int = D_NO_HANDSHAKE
    issued: list[bytes] = field(default_factory=list)
    resumes: list[bytes] = field(default_factory=list)
