"""Names and end of certificates. What cannot be read is unknown: certificates may be broken in any way.

A usual certificate is read here: version 3, a subject of common attributes in plain letters, alternative names that are
host names and addresses (RFC 5280). The library reads the others. To import it takes 20 ms, as long as a small capture.
The other parts of a usual certificate are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

#: Names are cut after so many characters. Longer certificates are not read.
_LONGEST_NAME, _LONGEST = 255, 64 << 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Tags of DER.
_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET = 0x02, 0x04, 0x06, 0x30, 0x31
_UTC_TIME, _TIME = 0x17, 0x18
_TEXTS = (0x0C, 0x13)  # UTF8String, PrintableString
_VERSION, _EXTENSIONS, _DNS_NAME, _ADDRESS = 0xA0, 0xA3, 0x82, 0x87
#: The parts of a certificate of version 3.
_PARTS = [_VERSION, _INTEGER, *[_SEQUENCE] * 5, _EXTENSIONS]
#: Attributes of a subject by their object identifier, as RFC 4514 names them.
_ATTRIBUTES = {
    b"\x55\x04\x03": "CN", b"\x55\x04\x06": "C", b"\x55\x04\x07": "L", b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU",
}  # fmt: skip
_ALTERNATIVE_NAMES = b"\x55\x1d\x11"
#: Values that RFC 4514 writes as they are.
_PLAIN = re.compile(rb"[0-9A-Za-z.-]+(?: [0-9A-Za-z.-]+)*")
_HOST = re.compile(rb"[0-9A-Za-z*_-]+(?:\.[0-9A-Za-z_-]+)*")
_LONGEST_VALUE, _COUNTRY = 64, 2
_TRUE = b"\xff"


class CertificateNames(NamedTuple):
    """`host`: the first DNS name, else the common name. `subject`: as a text of RFC 4514. `end`: when it expires, ns
    since the epoch, 0 if unknown."""

    host: str = ""
    subject: str = ""
    end: int = 0


class UnusualError(ValueError):
    """The library has to read this certificate."""


@lru_cache(256)
def read_certificate(encoded: bytes) -> CertificateNames:
    """Read a certificate in DER, once: all connections of a broker have the same. What cannot be read stays empty."""
    if len(encoded) > _LONGEST:
        return CertificateNames()
    try:
        return read_usual(encoded)
    except ValueError:
        return read_any(encoded)


def read_usual(encoded: bytes) -> CertificateNames:
    """Read a usual certificate. ValueError for another one."""
    (outer,) = _elements(encoded, 0, len(encoded), _SEQUENCE)
    signed, _, _ = _elements(encoded, *outer[1:])
    parts = list(_elements(encoded, *signed[1:]))
    if [tag for tag, _, _ in parts] != _PARTS:
        raise UnusualError
    *_, validity, subject, _, extensions = parts
    _, (kind, first, end) = _elements(encoded, *validity[1:])
    time = encoded[first:end].decode("ascii")
    if (kind, end - first) not in ((_UTC_TIME, 13), (_TIME, 15)) or not time[:-1].isdigit():
        raise UnusualError
    if kind == _UTC_TIME:
        time = ("20" if time < "50" else "19") + time
    if not time.endswith("Z"):
        raise UnusualError
    month, day, hour, minute, second = (int(time[digit : digit + 2]) for digit in range(4, 14, 2))
    attributes = list(_attributes(encoded, *subject[1:]))
    common = [value for name, value in attributes if name == "CN"]
    hosts = _hosts(encoded, *extensions[1:])
    return CertificateNames(
        next(iter(hosts or common), "")[:_LONGEST_NAME],
        ",".join(f"{name}={value}" for name, value in reversed(attributes))[:_LONGEST_NAME],
        _nanoseconds(datetime(int(time[:4]), month, day, hour, minute, second, tzinfo=UTC)),
    )


def _elements(data: bytes, at: int, end: int, wanted: int = -1) -> Iterator[tuple[int, int, int]]:
    """The tag of each element of DER at data[at:end], and where its content begins and ends. `wanted`: its only tag."""
    while at < end:
        tag, size, at = data[at], data[at + 1] if at + 1 < end else 0x80, at + 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(data[at : at + width], "big")
            at += width
            if not 1 <= width <= 3 or size < max(0x80, 1 << 8 * (width - 1)):
                raise UnusualError
        if tag & 0x1F == 0x1F or at + size > end or wanted not in (-1, tag):
            raise UnusualError
        yield tag, at, at + size
        at += size


def _attributes(data: bytes, at: int, end: int) -> Iterator[tuple[str, str]]:
    """The attributes of a name, in order."""
    for _, first, last in _elements(data, at, end, _SET):
        (pair,) = _elements(data, first, last, _SEQUENCE)
        (oid, first, last), (kind, start, stop) = _elements(data, *pair[1:])
        name, value = _ATTRIBUTES.get(data[first:last]), data[start:stop]
        if oid != _OID or kind not in _TEXTS or name is None or not _PLAIN.fullmatch(value):
            raise UnusualError
        if len(value) > _LONGEST_VALUE or (name == "C" and len(value) != _COUNTRY):
            raise UnusualError
        yield name, value.decode("ascii")


def _hosts(data: bytes, at: int, end: int) -> list[str]:
    """The DNS names among the alternative names of the extensions."""
    (whole,) = _elements(data, at, end, _SEQUENCE)
    found: dict[bytes, tuple[int, int]] = {}
    for _, *inside in _elements(data, *whole[1:], _SEQUENCE):
        (kind, first, last), *critical, (value, start, stop) = _elements(data, *inside)
        if kind != _OID or value != _OCTETS or data[first:last] in found:
            raise UnusualError
        if critical and [data[at:end] for _, at, end in critical] != [_TRUE]:
            raise UnusualError
        found[data[first:last]] = start, stop
    hosts = []
    if _ALTERNATIVE_NAMES in found:
        (names,) = _elements(data, *found[_ALTERNATIVE_NAMES], _SEQUENCE)
        for kind, first, last in _elements(data, *names[1:]):
            if kind == _DNS_NAME and _HOST.fullmatch(data, first, last):
                hosts.append(data[first:last].decode("ascii"))
            elif kind != _ADDRESS or last - first not in (4, 16):
                raise UnusualError
    return hosts


def read_any(encoded: bytes) -> CertificateNames:
    """Read a certificate with the library."""
    host = subject = ""
    end = 0
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
