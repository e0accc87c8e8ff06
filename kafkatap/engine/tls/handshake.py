"""Handshake messages: gathered from records, and those that are read: hellos, and what else a session needs.

All of it may come from hostile senders: lengths are checked, what is broken is None, and memory is bounded.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kafkatap.reports.tls_names import TLS_1_3

from .record_header import CLIENT_HELLO

#: Types of messages.
NEW_SESSION_TICKET, END_OF_EARLY_DATA = 4, 5
ENCRYPTED_EXTENSIONS, CERTIFICATE, CERTIFICATE_REQUEST, SERVER_HELLO_DONE, FINISHED, KEY_UPDATE = 8, 11, 13, 14, 20, 24
_TYPES = frozenset((0, 1, 2, 3, 4, 5, 8, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 25, 254))
#: Types of extensions.
SERVER_NAME, _SIGNATURES, ALPN, _ENCRYPT_THEN_MAC, _TICKET, _PRE_SHARED_KEY, _EARLY_DATA, _VERSIONS = (
    0, 13, 16, 22, 35, 41, 42, 43
)  # fmt: skip
#: The random of a ServerHello that is a HelloRetryRequest: RFC 8446, section 4.1.3.
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
#: Where the random of a hello ends, behind the header of the message and the version.
_RANDOM_END = 38
_TWO_NUMBERS = struct.Struct("!HH")
#: Longer messages are skipped. Chains of certificates are the longest.
_LARGEST = 128 << 10
#: Names are cut after so many characters.
_LONGEST_NAME = 255


class ClientHello(NamedTuple):
    """What a client offers. `version` is the highest one. `ticket`: `ticket_name` of one of TLS 1.2."""

    client_random: bytes
    session: bytes
    version: int
    suites: tuple[int, ...]
    server_name: str
    alpn: tuple[str, ...]
    has_early_data: bool
    ticket: bytes
    extensions: tuple[int, ...]
    signature_algorithms: tuple[int, ...]


class ServerHello(NamedTuple):
    """What a server chose."""

    server_random: bytes
    session: bytes
    version: int
    suite: int
    alpn: str
    is_retry: bool
    has_psk: bool
    encrypt_then_mac: bool


@dataclass(slots=True)
class Messages:
    """Gathers the handshake messages of one direction from its records."""

    held: bytes = b""
    #: Bytes of a message that is too long, still to come.
    skip: int = 0
    #: Whether records were lost, so that the next one may begin within a message.
    is_lost: bool = False

    def read(self, record: bytes) -> list[tuple[int, bytes]]:
        """The types and bodies of messages that are complete with this record's plain bytes."""
        if self.skip:
            step = min(self.skip, len(record))
            self.skip -= step
            record = record[step:]
        if self.is_lost:
            if not _is_start(record):
                return []
            self.is_lost = False
        data = self.held + record if self.held else record
        found = []
        at = 0
        while len(data) - at >= 4:
            length = int.from_bytes(data[at + 1 : at + 4], "big")
            if length > _LARGEST:
                self.skip = max(0, at + 4 + length - len(data))
                at = min(at + 4 + length, len(data))
            elif len(data) - at < 4 + length:
                break
            else:
                found.append((data[at], data[at + 4 : at + 4 + length]))
                at += 4 + length
        self.held = data[at:]
        return found

    def lose(self) -> None:
        """Forget the beginning of a message: records are missing."""
        self.held, self.skip, self.is_lost = b"", 0, True


def _is_start(record: bytes) -> bool:
    """Whether a record may begin with a message."""
    return len(record) >= 4 and record[0] in _TYPES and record[1] < 2


class _Reader:
    """Reads fields within bounds. Beyond them, `failed` is set and everything is empty."""

    __slots__ = ("at", "data", "failed")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.failed = False

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            self.failed = True
            self.at = len(self.data)
            return b""
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def vector(self, width: int) -> bytes:
        first = self.at + width
        end = first + int.from_bytes(self.data[self.at : first], "big")
        if end > len(self.data):
            self.failed = True
            self.at = len(self.data)
            return b""
        self.at = end
        return self.data[first:end]

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.data)


def read_client_hello(body: bytes) -> ClientHello | None:
    """A ClientHello, or None if it is broken."""
    reader = _Reader(body)
    version = reader.number(2)
    client_random = reader.take(32)
    session = reader.vector(1)
    suites = reader.vector(2)
    reader.vector(1)
    if reader.failed or len(session) > 32:
        return None
    extensions = _extensions(reader)
    versions = extensions.get(_VERSIONS, b"")[1:]
    offered = _numbers(versions)
    return ClientHello(
        client_random,
        session,
        max((v for v in offered if v <= TLS_1_3), default=version),
        _numbers(suites),
        _server_name(extensions.get(SERVER_NAME, b"")),
        _protocols(extensions.get(ALPN, b"")),
        _EARLY_DATA in extensions,
        ticket_name(extensions.get(_TICKET, b"")),
        tuple(extensions),
        _numbers(extensions.get(_SIGNATURES, b"")[2:]),
    )


def cut_client_random(message: bytes) -> bytes:
    """The random of a ClientHello whose end is missing; empty if it is none, or cut before."""
    is_hello = message[:1] == bytes((CLIENT_HELLO,)) and message[4:5] == b"\3" and len(message) >= _RANDOM_END
    return message[_RANDOM_END - 32 : _RANDOM_END] if is_hello else b""


def read_server_hello(body: bytes) -> ServerHello | None:
    """A ServerHello or HelloRetryRequest, or None if it is broken."""
    reader = _Reader(body)
    version = reader.number(2)
    server_random = reader.take(32)
    session = reader.vector(1)
    suite = reader.number(2)
    reader.number(1)
    if reader.failed or len(session) > 32:
        return None
    extensions = _extensions(reader)
    chosen = extensions.get(_VERSIONS, b"")
    return ServerHello(
        server_random,
        session,
        int.from_bytes(chosen, "big") if len(chosen) == 2 else version,
        suite,
        next(iter(_protocols(extensions.get(ALPN, b""))), ""),
        server_random == _RETRY,
        _PRE_SHARED_KEY in extensions,
        _ENCRYPT_THEN_MAC in extensions,
    )


def ticket_name(ticket: bytes) -> bytes:
    """A short name for a ticket: its hash. Empty for an empty ticket."""
    return hashlib.blake2b(ticket, digest_size=16).digest() if ticket else b""


def read_ticket(body: bytes) -> bytes:
    """The ticket of a NewSessionTicket before TLS 1.3 (RFC 5077), as `ticket_name`."""
    reader = _Reader(body)
    reader.take(4)
    ticket = reader.vector(2)
    return b"" if reader.failed else ticket_name(ticket)


def read_encrypted_extensions(body: bytes) -> tuple[str, bool]:
    """The chosen protocol of ALPN, and whether early data were accepted."""
    extensions = _extensions(_Reader(body))
    return next(iter(_protocols(extensions.get(ALPN, b""))), ""), _EARLY_DATA in extensions


def first_certificate(body: bytes, is_13: bool) -> bytes:
    """The first certificate of a Certificate message; empty if there is none."""
    reader = _Reader(body)
    if is_13:
        reader.vector(1)
    chain = _Reader(reader.vector(3))
    found = chain.vector(3)
    return b"" if reader.failed or chain.failed else found


@lru_cache(1_024)
def _numbers(data: bytes) -> tuple[int, ...]:
    """Numbers of two bytes each."""
    return struct.unpack(f"!{len(data) // 2}H", data[: len(data) & ~1])


def _extensions(reader: _Reader) -> dict[int, bytes]:
    """The extensions up to the first broken one."""
    data = reader.vector(2)
    found: dict[int, bytes] = {}
    at, end = 0, len(data)
    while end - at >= 4:
        number, length = _TWO_NUMBERS.unpack_from(data, at)
        at += 4
        if length > end - at:
            break
        found.setdefault(number, data[at : at + length])
        at += length
    return found


@lru_cache(1_024)
def _server_name(value: bytes) -> str:
    names = _Reader(_Reader(value).vector(2))
    while not names.is_at_end:
        kind = names.number(1)
        name = names.vector(2)
        if names.failed:
            break
        if kind == 0:
            return text(name)
    return ""


@lru_cache(1_024)
def _protocols(value: bytes) -> tuple[str, ...]:
    """Names of ALPN, at most 16."""
    names = _Reader(_Reader(value).vector(2))
    found: list[str] = []
    while not names.is_at_end and len(found) < 16:
        name = names.vector(1)
        if names.failed:
            break
        found.append(text(name))
    return tuple(found)


def text(value: bytes) -> str:
    """Bytes of a sender as a text of bounded length."""
    return value[:_LONGEST_NAME].decode("utf-8", "backslashreplace")[:_LONGEST_NAME]
