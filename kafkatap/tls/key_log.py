"""Key logs: the secrets of TLS connections in the format of SSLKEYLOGFILE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
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


class KeyLog:
    """The secrets of some key logs."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self.paths = tuple(paths)
        self.is_growing = False
        self.version = 0
        self.problems = 0
        self._secrets: dict[bytes, Secrets] = {}
        for path in self.paths:
            self.add(Path(path).read_bytes())

    def secrets(self, client_random: bytes) -> Secrets | None:
        """The secrets of a client random."""
        return self._secrets.get(client_random)

    def master_of_session(self, session: bytes) -> bytes:
        """The master secret of a session id of TLS 1.2, or nothing."""
        return b""

    def traffic_secrets(self) -> Iterator[TrafficSecret]:
        """First traffic secrets of TLS 1.3, the latest first."""
        for secrets in reversed(self._secrets.values()):
            if secrets.client_traffic:
                yield TrafficSecret(secrets.client_random, False, secrets.client_traffic)
            if secrets.server_traffic:
                yield TrafficSecret(secrets.client_random, True, secrets.server_traffic)

    def add(self, data: bytes) -> None:
        """Add the lines of a decryption secrets block."""
        for line in data.splitlines():
            words = line.split()
            name = LABELS.get(words[0]) if len(words) == 3 else None
            if name is None:
                continue
            try:
                client_random, secret = bytes.fromhex(words[1].decode("latin-1")), bytes.fromhex(words[2].decode())
            except ValueError:
                self.problems += 1
                continue
            found = self._secrets.setdefault(client_random, Secrets(client_random))
            setattr(found, name, secret)
        self.version += 1

    def poll(self) -> bool:
        """Read what was added to the files; whether there was anything."""
        return False
