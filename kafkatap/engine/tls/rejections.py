"""Handshakes of TLS 1.3 that one end rejected, found without keys: alerts are encrypted, but have their own length.

After the records of the client's Finished, a broker that accepts sends session tickets or responses. One that rejects
sends a record of the length of an alert and closes. The client may have sent requests by then. A client that rejects
sends an alert in place of its Finished. (RFC 8446, sections 4.4.2 and 6; Java pads alerts with 16 zeros.)
"""

from __future__ import annotations

from kafkatap.reports.tls_names import (
    HIDDEN_BROKER_CERTIFICATE,
    HIDDEN_CLIENT_CERTIFICATE,
    HIDDEN_NO_CERTIFICATE,
    TLS_1_3,
)

from .facts import TlsFacts
from .key_schedule import hash_length
from .suites import SUITES

#: What a record has beside the content and the tag: its header and the content type.
_AROUND = 6
#: Padding by Java.
_PADDING = (0, 16)
#: Content of an alert, of a Certificate message without a certificate, and of the header of a Finished message.
_ALERT, _NO_CERTIFICATE, _FINISHED = 2, 8, 4
#: Records of the client that are noted.
_MOST = 8
#: A rejection comes so soon after the client's Finished, ns.
_SOON_NS = 10_000_000_000


class Outline:
    """The encrypted records of a connection so far. `is_open`: it may still be one that is rejected."""

    __slots__ = ("answers", "broker", "is_open", "lengths", "since", "was_alert")

    def __init__(self) -> None:
        self.is_open = True
        self.since = 0  # when the client's first one came, ns
        self.lengths: list[int] = []  # of the client's first ones
        self.broker = 0  # records of the broker
        self.answers = 0  # those behind the client's first one
        self.was_alert = False  # the client's last one before these had the length of an alert

    def note(self, is_client: bool, length: int, ts: int, facts: TlsFacts) -> None:
        """Note the next record."""
        if is_client:
            self.since = self.since or ts
            if len(self.lengths) < _MOST:
                self.lengths.append(length)
            return
        self.broker += 1
        if self.lengths:
            self.answers += 1
            self.was_alert = self.lengths[-1] in _lengths(facts, _ALERT)
            is_soon = ts - self.since <= _SOON_NS
            self.is_open = self.answers == 1 and is_soon and length in _lengths(facts, _ALERT)

    def state(self) -> list[int]:
        """What the verdict depends on; nothing once it is clear that the handshake was not rejected."""
        if not self.is_open:
            return []
        return [self.since, self.broker, self.answers, self.was_alert, *self.lengths]

    def verdict(self, facts: TlsFacts, broker_records: int) -> tuple[int, int]:
        """An alert of HIDDEN, and the direction of its sender, of a connection that was closed; (-1, -1) if nothing
        speaks for one. `broker_records`: all of the broker with encrypted content."""
        is_known = self.is_open and self.broker == broker_records and facts.version == TLS_1_3 and facts.client >= 0
        if not is_known or not self.lengths or facts.suite not in SUITES:
            return -1, -1
        if len(self.lengths) == 1 and self.lengths[0] in _lengths(facts, _ALERT):
            return HIDDEN_BROKER_CERTIFICATE, facts.client
        if self.answers == 0 or self.was_alert:
            return -1, -1
        together = _NO_CERTIFICATE + _FINISHED + hash_length(SUITES[facts.suite])
        has_none = self.lengths[0] in (*_lengths(facts, _NO_CERTIFICATE), *_lengths(facts, together))
        return HIDDEN_NO_CERTIFICATE if has_none else HIDDEN_CLIENT_CERTIFICATE, 1 - facts.client


def _lengths(facts: TlsFacts, content: int) -> tuple[int, ...]:
    """The lengths that a record with this content may have."""
    suite = SUITES.get(facts.suite)
    tag = 16 if suite is None else suite.tag_length
    return tuple(_AROUND + tag + content + padding for padding in _PADDING)
