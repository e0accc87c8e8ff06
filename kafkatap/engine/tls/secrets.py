"""The secrets of connections, as a key log has them. They appear in no text of an object or an error."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

#: Labels of a key log and the attributes of `Secrets`.
LABELS = {
    b"CLIENT_RANDOM": "master",
    b"CLIENT_EARLY_TRAFFIC_SECRET": "client_early",
    b"CLIENT_HANDSHAKE_TRAFFIC_SECRET": "client_handshake",
    b"SERVER_HANDSHAKE_TRAFFIC_SECRET": "server_handshake",
    b"CLIENT_TRAFFIC_SECRET_0": "client_traffic",
    b"SERVER_TRAFFIC_SECRET_0": "server_traffic",
}

#: How names of ends begin: they stand in place of client randoms.
ENDS_MARK = b"kafkatap"


def name_of_ends(a: tuple[str, int], b: tuple[str, int]) -> bytes:
    """What stands in place of the client random where only the ends of a connection are known, 32 bytes: as `kafkatap
    keys` writes it. An end is an address and a port. Nothing if an address is none."""
    from ipaddress import ip_address  # only TLS with a key log needs it

    ends = []
    for host, port in (a, b):
        try:
            address = ip_address(host)
        except ValueError:
            return b""
        mapped = b"\xff\xff" if address.version == 4 else b""
        ends.append((mapped + address.packed).rjust(16, b"\0") + port.to_bytes(2, "big"))
    return ENDS_MARK + sha256(b"".join(sorted(ends))).digest()[: 32 - len(ENDS_MARK)]


class Secrets:
    """The secrets of one client random. Empty ones are not in the key log."""

    __slots__ = (
        "client_early", "client_handshake", "client_random", "client_traffic", "master", "server_handshake",
        "server_traffic",
    )  # fmt: skip

    def __init__(self, client_random: bytes = b"") -> None:
        self.client_random = client_random
        self.master = self.client_early = self.client_handshake = self.server_handshake = b""
        self.client_traffic = self.server_traffic = b""

    def __repr__(self) -> str:
        return "Secrets(...)"


class TrafficSecret(NamedTuple):
    """A first traffic secret of TLS 1.3, and whose it is."""

    client_random: bytes
    is_server: bool
    secret: bytes

    def __repr__(self) -> str:
        return "TrafficSecret(...)"


@dataclass(slots=True)
class Trials:
    """What trials of secrets may still cost, for all connections whose handshake was not captured: computations for
    AES-GCM, bytes for other ciphers."""

    computations: int = 1 << 20
    bytes: int = 4 << 30
