"""Certificates that cannot be read: they are unknown, whatever the library raises."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from kafkatap.engine.tls.certificates import CertificateNames, read_certificate
from tests.support.tls_talk import OverTls


class Panic(BaseException):
    """Like the panics of libraries in Rust: no subclass of Exception."""


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("certificate")
    OverTls(folder, "broker.example")
    text = Path(folder / "broker.pem").read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])


def test_names(encoded: bytes) -> None:
    assert read_certificate(encoded).subject == "CN=broker.example"


def test_an_equal_certificate_is_read_once(encoded: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read_certificate(encoded)
    monkeypatch.setattr(x509, "load_der_x509_certificate", None)
    assert read_certificate(bytes(encoded)).subject == "CN=broker.example"


def test_panics_of_the_library(encoded: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
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
        found = read_certificate(bytes(changed[: chance.choice((len(changed), chance.randrange(len(changed))))]))
        assert len(found.host) <= 255
        assert len(found.subject) <= 255
