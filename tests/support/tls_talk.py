"""Conversations over TLS: crafted plain conversations, replayed through the TLS of this Python.

    over = OverTls(folder)
    segments = over.replayed(talk.segments, version=TLSv1_2, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")
    over.key_log                        # the secrets of all connections so far

Each payload of the plain conversation is written as one or more records at its time. The handshake follows the SYN.
Keys and certificates are made anew for each `OverTls`.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.tcp import FIN, RST, SYN, Segment, TcpConversation

TLSv1_2, TLSv1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


class OverTls:
    """Replays conversations over TLS. `key_log`: the file with the secrets of the clients."""

    def __init__(self, folder: Path, name: str = "broker.example") -> None:
        self.key_log = folder / "keys.log"
        self._certificate = folder / "broker.pem"
        _make_certificate(self._certificate, name)
        self._name = name

    def replayed(
        self, segments: Sequence[Segment], version: ssl.TLSVersion = TLSv1_3, ciphers: str | None = None
    ) -> list[Segment]:
        """One connection, from its SYN on. The times of its packets stay, but for those of the handshake, and so do the
        first sequence numbers."""
        client, server = self._ends(version, ciphers)
        first = segments[0]
        isn = (first.seq, segments[1].seq) if first.flags & SYN else (1_000, 5_000_000)
        tcp = TcpConversation(first.source, first.destination, time_ns=first.time_ns, step_ns=10_000, isn=isn)
        tcp.open()
        self._shake_hands(tcp, client, server)
        for segment in segments:
            tcp.time_ns = max(tcp.time_ns, segment.time_ns)
            end = tcp.ends.index(segment.source)
            if segment.payload:
                sender, receiver = (client, server) if end == 0 else (server, client)
                sender.tls.write(segment.payload)
                self._pass(tcp, end, sender, receiver)
                receiver.read()
            elif segment.flags & RST:
                tcp.reset(end)
                break
            elif segment.flags & FIN and not segment.flags & SYN:
                tcp.close(end)
                break
        return tcp.segments

    def _ends(self, version: ssl.TLSVersion, ciphers: str | None) -> tuple[_End, _End]:
        asking, answering = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (asking, answering):
            context.minimum_version = context.maximum_version = version
            if ciphers:
                context.set_ciphers(ciphers)
        asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
        asking.keylog_filename = str(self.key_log)
        answering.load_cert_chain(self._certificate)
        return _End(asking, False, self._name), _End(answering, True)

    def _shake_hands(self, tcp: TcpConversation, client: _End, server: _End) -> None:
        for _ in range(6):
            for end, one, other in ((0, client, server), (1, server, client)):
                one.shake_hands()
                self._pass(tcp, end, one, other)
        client.read()

    @staticmethod
    def _pass(tcp: TcpConversation, end: int, sender: _End, receiver: _End) -> None:
        data = sender.out.read()
        if data:
            tcp.send(end, data)
            receiver.into.write(data)


class _End:
    def __init__(self, context: ssl.SSLContext, is_server: bool, name: str | None = None) -> None:
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_side=is_server, server_hostname=name)
        self._is_ready = False

    def shake_hands(self) -> None:
        if not self._is_ready:
            try:
                self.tls.do_handshake()
                self._is_ready = True
            except ssl.SSLWantReadError:
                pass

    def read(self) -> None:
        try:
            while self.tls.read(1 << 16):
                pass
        except ssl.SSLWantReadError:
            pass


def _make_certificate(path: Path, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=3_650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + made.public_bytes(pem))
    path.chmod(0o600)
