"""What is known of a TLS connection beside its data."""

from __future__ import annotations

from dataclasses import dataclass

from kafkatap.reports.batch import D_NO_HANDSHAKE, TLS_FULL


@dataclass(slots=True)
class TlsFacts:
    """Facts of one connection. What is unknown is empty, 0 or -1.

    `version` and `suite`: those that the server chose. `offered_version`: the client's highest. `client`: the direction
    of the ClientHello. `alpn`: the chosen protocol, `alpn_offered`: those that the client offers, joined by commas.
    `alert`: the description of the first fatal alert that can be read, `alert_by`: its direction.
    `handshake_done`: the client's last handshake message was seen. Without keys that is its first encrypted record.
    Ends of certificates are in ns since the epoch.
    """

    version: int = 0
    offered_version: int = 0
    suite: int = 0
    client: int = -1
    client_random: bytes = b""
    server_random: bytes = b""
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
