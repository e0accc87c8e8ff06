"""Names and end of certificates. What cannot be read is unknown: certificates may be broken in any way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

#: Names are cut after so many characters. Longer certificates are not read.
_LONGEST_NAME, _LONGEST = 255, 64 << 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CertificateNames(NamedTuple):
    """`host`: the first DNS name, else the common name. `subject`: as a text of RFC 4514. `end`: when it expires, ns
    since the epoch, 0 if unknown."""

    host: str = ""
    subject: str = ""
    end: int = 0


@lru_cache(256)
def read_certificate(encoded: bytes) -> CertificateNames:
    """Read a certificate in DER, once: all connections of a broker have the same. What cannot be read stays empty."""
    host = subject = ""
    end = 0
    if len(encoded) > _LONGEST:
        return CertificateNames()
    # The library raises many kinds of errors for broken certificates, and warns of unusual ones.
    import warnings

    with warnings.catch_warnings(), _unreadable():
        warnings.simplefilter("ignore")
        from cryptography import x509

        certificate = x509.load_der_x509_certificate(encoded)
        with _unreadable():
            end = _nanoseconds(certificate.not_valid_after_utc)
        with _unreadable():
            subject = certificate.subject.rfc4514_string()[:_LONGEST_NAME]
        with _unreadable():
            common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            host = str(common[0].value)[:_LONGEST_NAME]
        with _unreadable():
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            host = names.get_values_for_type(x509.DNSName)[0][:_LONGEST_NAME]
    return CertificateNames(host, subject, end)


@contextmanager
def _unreadable() -> Iterator[None]:
    """Suppress every error of the library. Its panics are no subclass of Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:
        pass


def _nanoseconds(time: datetime) -> int:
    """Nanoseconds since the epoch, within 64 bits."""
    seconds = (time - _EPOCH) // (datetime.resolution * 1_000_000)
    return max(-(1 << 62), min(seconds * 1_000_000_000, 1 << 62))
