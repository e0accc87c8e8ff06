"""Key logs: the secrets of TLS connections in the format of SSLKEYLOGFILE."""

from __future__ import annotations

from collections.abc import Sequence


class KeyLog:
    """The secrets of some key logs."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self.paths = tuple(paths)
