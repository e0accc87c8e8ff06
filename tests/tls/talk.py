"""Real TLS conversations in memory: the records that both ends of the `ssl` module send, and the key log."""

from __future__ import annotations

import datetime
import ssl
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kafkatap.engine.tls.facts import TlsFacts
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.session import Opened, Session

CLIENT, SERVER = 0, 1
#: The prime of Diffie-Hellman's group 2 (RFC 2409, section 6.2).
_PRIME = int(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404ddef9519b3cd3a431b"
    "302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe6"
    "49286651ece65381ffffffffffffffff", 16
)  # fmt: skip
#: When certificates of `certificate` end.
END = datetime.datetime(2090, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


@cache
def certificate(name: str, kind: str = "rsa") -> str:
    """The path of a file with a key and a certificate for a name, signed by itself."""
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name} common")])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + built.public_bytes(serialization.Encoding.PEM)
    path = Path(tempfile.mkdtemp()) / f"{name}.pem"
    path.write_bytes(text)
    return str(path)


@cache
def _diffie_hellman() -> str:
    """The path of parameters of Diffie-Hellman."""
    path = Path(tempfile.mkdtemp()) / "dh.pem"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library announces that it will drop them
        from cryptography.hazmat.primitives.asymmetric import dh

        made = dh.DHParameterNumbers(_PRIME, 2).parameters()
    path.write_bytes(made.parameter_bytes(serialization.Encoding.PEM, serialization.ParameterFormat.PKCS3))
    return str(path)


@dataclass
class Talk:
    """What both ends sent, as (direction, record) in order, the plain bytes, and the lines of the key log."""

    records: list[tuple[int, bytes]] = field(default_factory=list)
    plain: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    keys: bytes = b""
    version: str = ""
    suite: str = ""
    reused: bool = False
    session: ssl.SSLSession | None = None
    alert: str = ""

    @property
    def key_log(self) -> KeyLog:
        found = KeyLog()
        found.add(self.keys)
        return found


@dataclass
class Ends:
    """Contexts of both ends. `key_file` gets the key log of the client."""

    client: ssl.SSLContext
    server: ssl.SSLContext
    key_file: Path


def ends(
    version: int = 0x0303,
    suite: str = "",
    kind: str = "rsa",
    client_certificate: bool = False,
    adjust: Callable[[Ends], None] | None = None,
) -> Ends:
    """Contexts for a version and, in TLS 1.2, a suite by OpenSSL's name."""
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    server.load_cert_chain(certificate("broker.example", kind))
    chosen = ssl.TLSVersion.TLSv1_2 if version == 0x0303 else ssl.TLSVersion.TLSv1_3
    key_file = Path(tempfile.mkdtemp()) / "keys.log"
    for context in (client, server):
        context.minimum_version = context.maximum_version = chosen
        if suite:
            context.set_ciphers(f"{suite}:@SECLEVEL=0")
    client.keylog_filename = str(key_file)
    if suite.startswith("DHE"):
        server.load_dh_params(_diffie_hellman())
    if client_certificate:
        path = certificate("client.example", kind)
        client.load_cert_chain(path)
        server.load_verify_locations(path)
        server.verify_mode = ssl.CERT_REQUIRED
    found = Ends(client, server, key_file)
    if adjust is not None:
        adjust(found)
    return found


def talk(
    both: Ends,
    messages: list[tuple[int, bytes]] | None = None,
    session: ssl.SSLSession | None = None,
    close: bool = True,
) -> Talk:
    """Shake hands, send the messages, close."""
    result = Talk()
    before = both.key_file.read_bytes() if both.key_file.exists() else b""
    # Each end writes into its own BIO; `_carry` takes the records from there to the other end.
    out = (ssl.MemoryBIO(), ssl.MemoryBIO())
    into = (ssl.MemoryBIO(), ssl.MemoryBIO())
    client = both.client.wrap_bio(into[0], out[0], server_hostname="sni.example", session=session)
    server = both.server.wrap_bio(into[1], out[1], server_side=True)
    sides = (client, server)
    _shake(sides, into, out, result)
    if not result.alert:
        for direction, data in messages if messages is not None else usual_messages():
            sides[direction].write(data)
            result.plain[direction].extend(data)
            _carry(direction, into, out, result)
            left = len(data)
            while left:
                left -= len(sides[1 - direction].read(left))
        result.version, result.suite = client.version() or "", (client.cipher() or ("",))[0]
        result.reused, result.session = bool(client.session_reused), client.session
        if close:
            for direction in (0, 1):
                with suppress(ssl.SSLError):
                    sides[direction].unwrap()
                _carry(direction, into, out, result)
    result.keys = both.key_file.read_bytes()[len(before) :] if both.key_file.exists() else b""
    return result


def usual_messages() -> list[tuple[int, bytes]]:
    """Messages in both directions, of sizes that make one record and several."""
    sizes = (1, 43, 1400, 16_384, 40_000, 17, 0)
    found = []
    for number, size in enumerate(sizes):
        for direction in (CLIENT, SERVER):
            data = bytes((number * 7 + direction + n) & 255 for n in range(size))
            if data:
                found.append((direction, data))
    return found


def _shake(
    sides: tuple[ssl.SSLObject, ssl.SSLObject],
    into: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
    out: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
    result: Talk,
) -> None:
    done = [False, False]
    for _ in range(20):
        for direction in (CLIENT, SERVER):
            if not done[direction]:
                try:
                    sides[direction].do_handshake()
                    done[direction] = True
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError as error:
                    result.alert = str(error)
            _carry(direction, into, out, result)
        if result.alert:
            return
        if all(done):
            try:  # tickets
                sides[CLIENT].read(1)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                result.alert = str(error)
            return


def _carry(
    direction: int,
    into: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
    out: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
    result: Talk,
) -> None:
    data = out[direction].read()
    into[1 - direction].write(data)
    while data:
        length = 5 + int.from_bytes(data[3:5], "big")
        result.records.append((direction, data[:length]))
        data = data[length:]


@dataclass
class Seen:
    """What a session made of a talk."""

    session: Session
    plain: tuple[bytearray, bytearray]
    opened: list[Opened]


def see(records: list[tuple[int, bytes]], key_log: KeyLog | None, session: Session | None = None) -> Seen:
    """Read all records."""
    session = session or Session(key_log)
    seen = Seen(session, (bytearray(), bytearray()), [])
    out = memoryview(bytearray(20_000))
    for direction, record in records:
        found = session.open(direction, memoryview(record), out)
        seen.opened.append(found)
        if found[0] == 23:
            seen.plain[direction].extend(out[: found[1]])
    return seen


def see_continued(records: list[tuple[int, bytes]], at: int, key_log: KeyLog) -> Seen:
    """As `see`, but from record `at` on with another session, which gets what the first one hands over."""
    whole = see(records[:at], key_log)
    counts = [sum(each[0] == direction and each[1][0] == 23 for each in records[:at]) for direction in range(2)]
    facts = TlsFacts.unpack(whole.session.facts.pack())
    later = see(records[at:], key_log, Session.continued(facts, key_log, counts))
    for direction in range(2):
        whole.plain[direction].extend(later.plain[direction])
    return Seen(later.session, whole.plain, whole.opened + later.opened)
