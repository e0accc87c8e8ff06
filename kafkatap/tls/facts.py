"""What is known of a TLS connection beside its data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kafkatap.reports.connection_words import D_NO_HANDSHAKE, TLS_FULL


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


def pack_facts(facts: TlsFacts) -> list[Any]:
    """The facts as texts and numbers."""
    return [_packed(getattr(facts, field.name)) for field in fields(TlsFacts)]


def unpack_facts(state: list[Any]) -> TlsFacts:
    """The facts of `pack_facts`."""
    return TlsFacts(*unpacked(state))


def pack_hello(hello: tuple[Any, ...]) -> list[Any]:
    """The fields of a hello as texts, numbers and lists."""
    return [_packed(value) for value in hello]


def unpacked(state: list[Any]) -> list[Any]:
    """Values that `pack_facts` or `pack_hello` packed."""
    return [_unpacked(value) for value in state]


def _packed(value: Any) -> Any:
    """Bytes are a list with their digits."""
    return [value.hex()] if isinstance(value, bytes) else {"": list(value)} if isinstance(value, tuple) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value[""])
    return bytes.fromhex(value[0]) if isinstance(value, list) else value
