"""What to do about TLS handshakes that fail, by their alert and the end that sent it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..tls_names import HIDDEN_BROKER_CERTIFICATE, HIDDEN_CLIENT_CERTIFICATE, HIDDEN_NO_CERTIFICATE

CLIENT, BROKER = 0, 1
#: Alerts of an end that does not accept the other's certificate (RFC 8446, 6.2).
_NOT_ACCEPTED = (42, 43, 46, 48, 49)
_EXPIRED, _UNRECOGNIZED_NAME, _REQUIRED = 45, 112, 116
#: Alerts without a version, or a cipher suite, that both ends have.
_NOTHING_SHARED = (40, 70, 71)


class TlsRemedy(NamedTuple):
    """The setting to change, "" for none, and what to do."""

    setting: str
    remedy: str


TRUST = TlsRemedy(
    "ssl.truststore.location",
    "Put the CA of the brokers' certificates into `ssl.truststore.location` of the client (librdkafka: "
    "`ssl.ca.location`), and name the brokers in `bootstrap.servers` as their certificates do.",
)
_NAME = TlsRemedy("bootstrap.servers", "Name the brokers in `bootstrap.servers` as their certificates do.")
IDENTITY = TlsRemedy(
    "ssl.keystore.location",
    "Give the client a certificate (`ssl.keystore.location`; librdkafka: `ssl.certificate.location`) of a CA that "
    "`ssl.truststore.location` of the brokers has.",
)
_RENEWAL = "Renew the certificate in `ssl.keystore.location` of the {}."
_PROTOCOL = TlsRemedy(
    "ssl.enabled.protocols",
    "Let both ends share a version and a cipher suite (`ssl.enabled.protocols`, `ssl.cipher.suites`). Brokers with "
    "`ssl.client.auth=required` may also refuse clients without a certificate so.",
)
_OF_HIDDEN: Mapping[int, TlsRemedy] = {
    HIDDEN_NO_CERTIFICATE: IDENTITY, HIDDEN_CLIENT_CERTIFICATE: IDENTITY, HIDDEN_BROKER_CERTIFICATE: TRUST,
}  # fmt: skip


def renewal(owner: int) -> TlsRemedy:
    """What to do about the certificate of an end that has expired, or will soon."""
    return TlsRemedy("", _RENEWAL.format(("client", "brokers")[owner]))


def tls_remedy(alert: int, by: int) -> TlsRemedy | None:
    """`alert`: its number; `by`: the end that sent it, -1 if that is not known. None: nothing is sure to help."""
    if alert in _OF_HIDDEN:
        return _OF_HIDDEN[alert]
    if alert in _NOTHING_SHARED:
        return _PROTOCOL
    if alert == _REQUIRED or (alert in _NOT_ACCEPTED and by == BROKER):
        return IDENTITY
    if alert in _NOT_ACCEPTED and by == CLIENT:
        return TRUST
    if alert == _UNRECOGNIZED_NAME:
        return _NAME
    return renewal(CLIENT + BROKER - by) if alert == _EXPIRED and by in (CLIENT, BROKER) else None
