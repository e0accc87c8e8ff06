"""A certificate authority for tests and samples: keys and certificates as PEM files, made anew each time."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """An authority. `certificate` is the file with its own certificate."""

    def __init__(self, folder: Path, name: str = "Example Kafka CA") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key.public_key(), 3650)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._own = made.sign(self._key, hashes.SHA256()).public_bytes(_PEM)
        self.certificate = folder / f"{name.replace(' ', '-')}.pem"
        self.certificate.write_bytes(self._own)

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC).replace(microsecond=0)
        end = now + timedelta(days=days)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, end) - timedelta(days=2))
            .not_valid_after(end)
        )

    def issue(self, name: str, kind: str = "ec", days: int = 3650, names: tuple[str, ...] = (), unit: str = "") -> Path:
        """A file with a key, a certificate and the authority's. `names`: DNS names; 127.0.0.1 is always one more."""
        key = ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else rsa.generate_private_key(65537, 2048)
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if unit:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
        made = self._builder(x509.Name(parts), key.public_key(), days)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        alternatives = x509.SubjectAlternativeName([*map(x509.DNSName, names), address])
        certificate = made.add_extension(alternatives, critical=False).sign(self._key, hashes.SHA256())
        secret = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path = self._folder / f"{name}-{kind}-{days}.pem"
        path.write_bytes(secret + certificate.public_bytes(_PEM) + self._own)
        path.chmod(0o600)
        return path

    def key_store(self, password: str, listeners: Iterable[str] = ("TLS",)) -> dict[str, str]:
        """A key store with a certificate for a broker of Kafka, and the settings of the listeners that use it."""
        store, pem = self._folder / "keys.p12", self.issue("broker-1.kafka.example", "rsa", names=("localhost",))
        words = ["openssl", "pkcs12", "-export", "-in", str(pem), "-out", str(store), "-passout", f"pass:{password}"]
        subprocess.run(words, check=True, timeout=60, capture_output=True)
        return key_store_settings(store, password, listeners)


def key_store_settings(store: Path, password: str, listeners: Iterable[str] = ("TLS",)) -> dict[str, str]:
    """The settings of a broker's listeners that use a key store."""
    values = {"location": str(store), "password": password, "type": "PKCS12"}
    return {
        f"listener.name.{listener.lower()}.ssl.keystore.{name}": value
        for listener in listeners
        for name, value in values.items()
    }
