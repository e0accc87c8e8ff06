"""The secrets of TLS connections that tasks get: lines of key logs, and those in blocks of captures.

A key log can be long, and most of it is of other connections. Surveys note the client randoms of the connections that
they see, so tasks get only the lines of these. Lines travel beside the inputs of tasks: no result, row, checkpoint or
text has any.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ..captures.storage import find, read_range
from ..engine.tls.key_log import KeyLog
from ..engine.tls.secrets import Secrets

if TYPE_CHECKING:
    from .survey import SplitSurvey

#: Connections whose handshake is not captured are tried with these many secrets, the latest ones. So many secrets of
#: session ids are sent, too.
LATEST = 8_192
#: Bytes of a key log in a store that are read at most.
_LARGEST = 256 << 20
#: Client randoms that are noted at most.
_MOST = 65_536


class TaskKeyLog(KeyLog):
    """The lines of a key log that a task got. `unknown`: client randoms without a secret.

    Surveys see the client randoms of handshakes in the clear. A renegotiated handshake is encrypted, so its client
    random shows only when a task decrypts it. The driver looks for those in its key log, and the split is decoded
    again.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        super().__init__(paths)
        self.unknown: set[bytes] = set()

    def secrets(self, client_random: bytes) -> Secrets | None:
        found = super().secrets(client_random)
        if found is None and len(self.unknown) < _MOST:
            self.unknown.add(client_random)
        return found


@dataclass(frozen=True, slots=True)
class CaptureSecrets:
    """The secrets in blocks of captures, for one split. `before`: of earlier splits. `later`: by split, those of later
    splits in which it reads packets."""

    before: bytes = field(default=b"", repr=False)
    later: Mapping[int, bytes] = field(default_factory=dict, repr=False)


def read_key_logs(named: Iterable[str | os.PathLike[str]]) -> KeyLog:
    """Key logs on this machine (paths and globs) and in stores (URIs) as one. Those in stores are read once, now.

    OSError if there is none, or it cannot be read. ValueError if it is no key log.
    """
    from ..engine.tls.key_log_files import open_key_logs

    names = [os.fspath(name) for name in named]
    here, stored = [name for name in names if "://" not in name], [name for name in names if "://" in name]
    key_log = open_key_logs(here) if here else key_log_of(b"")
    assert key_log is not None
    for uri in stored:
        for file in find([uri]):
            key_log.add(read_range(file.path, 0, min(file.size, _LARGEST)))
    return key_log


def captured_secrets(in_order: Sequence[int], surveys: Sequence[SplitSurvey]) -> dict[int, bytes]:
    """By split, the secrets in blocks of all splits before it. `in_order`: the splits in the order of their packets."""
    if not any(survey.secrets for survey in surveys):
        return {}
    found: dict[int, bytes] = {}
    before = b""
    for split in in_order:
        found[split] = before
        if split < len(surveys):
            before += surveys[split].secrets
    return found


def needed_lines(
    key_log: KeyLog | None, surveys: Iterable[SplitSurvey], open_randoms: Iterable[bytes] = ()
) -> bytes | None:
    """The lines of a key log that connections of some splits can need. None without a key log. `open_randoms`: the
    client randoms of connections that a checkpoint has."""
    if key_log is None:
        return None
    key_log.poll()
    randoms = set(open_randoms)
    has_unknown = False
    resumed: dict[bytes, list[bytes]] = {}
    for survey in surveys:
        randoms |= survey.client_randoms
        has_unknown |= survey.has_unknown_tls
        for name, client_random in survey.sessions.items():
            key_log.issue(name, client_random)
        resumed |= survey.resumed
    for client_random, names in resumed.items():
        key_log.resume(client_random, names)
    if has_unknown:
        randoms.update(secret.client_random for secret in islice(key_log.traffic_secrets(), LATEST))
    lines = key_log.lines_for(randoms)
    # Of session ids nothing was noted: only a ServerHello shows them.
    return lines + key_log.session_lines(LATEST) if key_log.has_sessions else lines


def key_log_of(lines: bytes | None) -> KeyLog | None:
    """The key log of a task. `lines`: as of `needed_lines`."""
    if lines is None:
        return None

    key_log = TaskKeyLog()
    if lines:
        key_log.add(lines)
    return key_log


def unknown_randoms(key_log: KeyLog | None) -> frozenset[bytes]:
    """The client randoms whose secrets a task did not find in its key log."""
    return frozenset(getattr(key_log, "unknown", ()))
