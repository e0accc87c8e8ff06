"""Keys of records, derived from the secrets of a key log: RFC 8446, section 7, and RFC 5246, section 6.3."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from .suites import CBC, CHACHA20, Suite

#: Hashes and their block lengths; the bytes of a key in both hashes of HMAC (RFC 2104).
_HASHES: dict[str, tuple[Callable[[bytes], Any], int]] = {
    "sha256": (hashlib.sha256, 64),
    "sha384": (hashlib.sha384, 128),
}
_OUTER, _INNER = (bytes(value ^ byte for value in range(256)) for byte in (0x5C, 0x36))


class DirectionKeys(NamedTuple):
    """The keys of one direction. `mac` is empty for AEAD ciphers."""

    key: bytes
    iv: bytes
    mac: bytes = b""

    def __repr__(self) -> str:
        return "DirectionKeys(...)"


def expand_label(hash_name: str, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446 without a context, of a length up to that of the hash."""
    return _hmac(hash_name, secret)(_info(label, length))[:length]


@cache
def _info(label: bytes, length: int) -> bytes:
    """What is hashed for the first block of HKDF-Expand-Label."""
    label = b"tls13 " + label
    return struct.pack("!HB", length, len(label)) + label + b"\0\1"


def _hmac(hash_name: str, secret: bytes) -> Callable[[bytes], bytes]:
    """The HMAC with a key of up to a block, for several messages. For short ones it is faster than that of `hmac`."""
    digest, block = _HASHES[hash_name]
    key = secret.ljust(block, b"\0")
    outer, inner = key.translate(_OUTER), key.translate(_INNER)
    return lambda message: digest(outer + digest(inner + message).digest()).digest()


def traffic_keys(suite: Suite, secret: bytes) -> DirectionKeys:
    """The keys of a traffic secret of TLS 1.3."""
    expand = _hmac(suite.hash_name, secret)
    key = expand(_info(b"key", suite.key_length))[: suite.key_length]
    return DirectionKeys(key, expand(_info(b"iv", 12))[:12])


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
