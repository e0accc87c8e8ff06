"""Certificates: usual ones are read as the library reads them. Those that cannot be read are unknown, whatever the
library raises."""

from __future__ import annotations

import random
import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafkatap.engine.tls.certificates import CertificateNames, UnusualError, read_any, read_certificate, read_usual
from tests.support.tls_talk import OverTls


class Panic(BaseException):
    """Like the panics of libraries in Rust: no subclass of Exception."""


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("certificate")
    OverTls(folder, "broker.example")
    text = Path(folder / "broker.pem").read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])


def made(
    subject: list[tuple[x509.ObjectIdentifier, str]],
    alternatives: list[x509.GeneralName] | None = None,
    end: datetime = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC),
) -> bytes:
    """A certificate in DER. `alternatives`: alternative names; None: without this extension."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, datetime(2020, 1, 1, tzinfo=UTC), end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if alternatives is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


USUAL = {
    "a name": made([(NameOID.COMMON_NAME, "broker-1.example")]),
    "attributes": made([
        (NameOID.COUNTRY_NAME, "DE"), (NameOID.STATE_OR_PROVINCE_NAME, "Some State"), (NameOID.LOCALITY_NAME, "Town"),
        (NameOID.ORGANIZATION_NAME, "Org"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "Unit 1"), (NameOID.COMMON_NAME, "b"),
    ]),
    "hosts": made(
        [(NameOID.COMMON_NAME, "b")],
        [x509.IPAddress(ip_address("10.0.0.1")), x509.DNSName("*.kafka.example"), x509.DNSName("b")],
    ),
    "addresses": made([(NameOID.COMMON_NAME, "b")], [x509.IPAddress(ip_address("2001:db8::1"))]),
    "no subject": made([], [x509.DNSName("b")]),
    "far end": made([(NameOID.COMMON_NAME, "b")], end=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    "long": made([(NameOID.COMMON_NAME, "b")], [x509.DNSName(f"host-{n}.kafka.example") for n in range(900)]),
}  # fmt: skip
UNUSUAL = {
    "a comma": made([(NameOID.COMMON_NAME, "broker, the first")]),
    "other letters": made([(NameOID.COMMON_NAME, "Br\xf6ker")]),
    "another attribute": made([(NameOID.EMAIL_ADDRESS, "a@b.example"), (NameOID.COMMON_NAME, "b")]),
    "another name": made([(NameOID.COMMON_NAME, "b")], [x509.DNSName("b"), x509.RFC822Name("a@b.example")]),
}  # fmt: skip


@pytest.mark.parametrize("encoded", USUAL.values(), ids=USUAL)
def test_usual_certificates_are_read_as_by_the_library(encoded: bytes) -> None:
    assert read_usual(encoded) == read_any(encoded) == read_certificate(encoded)


@pytest.mark.parametrize("encoded", UNUSUAL.values(), ids=UNUSUAL)
def test_the_library_reads_unusual_certificates(encoded: bytes) -> None:
    with pytest.raises(UnusualError):
        read_usual(encoded)
    assert read_certificate(encoded) == read_any(encoded)
    assert read_any(encoded).end > 0


def test_names(encoded: bytes) -> None:
    assert read_certificate(encoded).subject == "CN=broker.example"


def test_an_equal_certificate_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = UNUSUAL["another attribute"]
    found = read_certificate(encoded)
    monkeypatch.setattr(x509, "load_der_x509_certificate", None)
    assert read_certificate(bytes(bytearray(encoded))) == found != CertificateNames()


def test_panics_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = UNUSUAL["a comma"]

    def panic(_data: bytes) -> None:
        raise Panic

    monkeypatch.setattr(x509, "load_der_x509_certificate", panic)
    read_certificate.cache_clear()
    assert read_certificate(encoded) == CertificateNames()
    read_certificate.cache_clear()


def test_changed_bytes(encoded: bytes) -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        changed = bytearray(encoded)
        for _ in range(chance.randrange(1, 5)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 0x30, 0x80, 0x84, 0xFF, chance.randrange(256)))
        cut = bytes(changed[: chance.choice((len(changed), chance.randrange(len(changed))))])
        found = read_certificate(cut)
        by_library = read_any(cut)
        assert len(found.host) <= 255
        assert len(found.subject) <= 255
        # The library also refuses some whose names can be read, or all extensions if one of them is broken.
        assert found[1:] == by_library[1:] or not by_library.end
        assert found.host == by_library.host or found.host.encode() in cut
