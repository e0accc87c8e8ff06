"""The secrets of TLS connections that tasks get: lines of key logs, and those that captures have in blocks of their own.

A key log can be long, and most of it is of other connections. Surveys note the client randoms of the connections that
they see, so tasks get only the lines of these. Lines travel beside the inputs of tasks: no result, row, checkpoint or
text has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tls.key_log import KeyLog
    from .survey import SplitSurvey

#: Connections whose handshake is not captured are tried with these many secrets, the latest ones.
LATEST = 8_192


@dataclass(frozen=True, slots=True)
class CaptureSecrets:
    """The secrets in blocks of captures, for one split. `before`: of earlier splits. `later`: by split, those of later
    splits in which it reads packets."""

    before: bytes = field(default=b"", repr=False)
    later: Mapping[int, bytes] = field(default_factory=dict, repr=False)


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
    for survey in surveys:
        randoms |= survey.client_randoms
        has_unknown |= survey.has_unknown_tls
    if has_unknown:
        randoms.update(secret.client_random for secret in islice(key_log.traffic_secrets(), LATEST))
    return key_log.lines_for(randoms)


def key_log_of(lines: bytes | None) -> KeyLog | None:
    """The key log of a task. `lines`: as of `needed_lines`."""
    if lines is None:
        return None
    from ..tls.key_log import KeyLog

    key_log = KeyLog()
    if lines:
        key_log.add(lines)
    return key_log
