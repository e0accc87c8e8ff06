"""`TaskKeyLog`: the lines of a key log that a task got. It notes what was looked for and is not there.

Surveys see the client randoms of handshakes in the clear. A renegotiated handshake is encrypted, so its client random
shows only when a task decrypts it. The driver looks for those in its key log, and the split is decoded again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.tls.key_log import KeyLog
from ..engine.tls.secrets import Secrets

#: Client randoms that are noted at most.
_MOST = 65_536


class TaskKeyLog(KeyLog):
    """`unknown`: client randoms without a secret."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        super().__init__(paths)
        self.unknown: set[bytes] = set()

    def secrets(self, client_random: bytes) -> Secrets | None:
        found = super().secrets(client_random)
        if found is None and len(self.unknown) < _MOST:
            self.unknown.add(client_random)
        return found
