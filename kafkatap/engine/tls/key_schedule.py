"""Keys of records, derived from the secrets of a key log: RFC 8446, section 7, and RFC 5246, section 6.3."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from .suites import CBC, CHACHA20, Suite


class DirectionKeys(NamedTuple):
    """The keys of one direction. `mac` is empty for AEAD ciphers."""

    key: bytes
    iv: bytes
    mac: bytes = b""

    def __repr__(self) -> str:
        return "DirectionKeys(...)"


def expand_label(hash_name: str, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446 without a context."""
    label = b"tls13 " + label
    info = struct.pack("!HB", length, len(label)) + label + b"\0"
    result = block = b""
    number = 1
    while len(result) < length:
        block = hmac.digest(secret, block + info + bytes((number,)), hash_name)
        result += block
        number += 1
    return result[:length]


def traffic_keys(suite: Suite, secret: bytes) -> DirectionKeys:
    """The keys of a traffic secret of TLS 1.3."""
    name = suite.hash_name
    return DirectionKeys(expand_label(name, secret, b"key", suite.key_length), expand_label(name, secret, b"iv", 12))


def next_generation(suite: Suite, secret: bytes, count: int = 1) -> bytes:
    """The traffic secret after so many key updates."""
    length = hash_length(suite)
    for _ in range(count):
        secret = expand_label(suite.hash_name, secret, b"traffic upd", length)
    return secret


def hash_length(suite: Suite) -> int:
    """The length of the secrets of TLS 1.3 with this suite."""
    return 48 if suite.hash_name == "sha384" else 32


def pseudorandom(hash_name: str, secret: bytes, label_and_seed: bytes, length: int) -> bytes:
    """The PRF of TLS 1.2."""
    result = b""
    link = label_and_seed
    while len(result) < length:
        link = hmac.digest(secret, link, hash_name)
        result += hmac.digest(secret, link + label_and_seed, hash_name)
    return result[:length]


def key_block(
    suite: Suite, master: bytes, client_random: bytes, server_random: bytes
) -> tuple[DirectionKeys, DirectionKeys]:
    """The keys of TLS 1.2: the client's and the server's."""
    mac = hashlib.new(suite.mac).digest_size if suite.mac else 0
    iv = 0 if suite.kind == CBC else 12 if suite.kind == CHACHA20 else 4
    seed = b"key expansion" + server_random + client_random
    block = pseudorandom(suite.hash_name, master, seed, 2 * (mac + suite.key_length + iv))
    parts = []
    at = 0
    for length in (mac, mac, suite.key_length, suite.key_length, iv, iv):
        parts.append(block[at : at + length])
        at += length
    return DirectionKeys(parts[2], parts[4], parts[0]), DirectionKeys(parts[3], parts[5], parts[1])
