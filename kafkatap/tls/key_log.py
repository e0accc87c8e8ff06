"""Key logs: the secrets of TLS connections in the format of SSLKEYLOGFILE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .secrets import LABELS, Secrets, TrafficSecret, Trials


class KeyLog:
    """The secrets of some key logs."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self.paths = tuple(paths)
        self.is_growing = False
        self.version = 0
        self.problems = 0
        self.trials = Trials()
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

    def lines_for(self, client_randoms: Iterable[bytes]) -> bytes:
        """The lines of these client randoms."""
        found = []
        for client_random in client_randoms:
            secrets = self.secrets(client_random)
            for label, name in LABELS.items() if secrets is not None else ():
                secret: bytes = getattr(secrets, name)
                if secret:
                    found.append(b"%s %s %s\n" % (label, client_random.hex().encode(), secret.hex().encode()))
        return b"".join(found)

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
