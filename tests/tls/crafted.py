"""Crafted connections of TLS 1.3 and 1.2: any suite, key updates, early data, padding, retries, renegotiation.

Keys are derived with the key derivation functions of `cryptography`, so that the product's are checked too.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import hmac as macs
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from kafkatap.engine.tls.key_log import KeyLog

from .talk import CLIENT, SERVER

#: Suites of TLS 1.3: number, hash, key length, cipher.
SUITES_13: dict[int, tuple[type[hashes.HashAlgorithm], int, Any]] = {
    0x1301: (hashes.SHA256, 16, AESGCM),
    0x1302: (hashes.SHA384, 32, AESGCM),
    0x1303: (hashes.SHA256, 32, ChaCha20Poly1305),
    0x1304: (hashes.SHA256, 16, AESCCM),
    0x1305: (hashes.SHA256, 16, lambda key: AESCCM(key, 8)),
}
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
CHANGE = b"\x14\x03\x03\0\x01\x01"


def message(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "big") + body


def extension(kind: int, body: bytes) -> bytes:
    return struct.pack("!HH", kind, len(body)) + body


def clear(kind: int, data: bytes) -> bytes:
    return bytes((kind, 3, 3)) + len(data).to_bytes(2, "big") + data


def client_hello(client_random: bytes, suites: list[int], extensions: bytes = b"", is_13: bool = True) -> bytes:
    if is_13:
        extensions += extension(43, b"\x04\x03\x04\x03\x03")
    offered = b"".join(struct.pack("!H", suite) for suite in suites)
    body = b"\x03\x03" + client_random + b"\x03sid" + len(offered).to_bytes(2, "big") + offered + b"\x01\0"
    return message(1, body + len(extensions).to_bytes(2, "big") + extensions)


def server_hello(server_random: bytes, suite: int, extensions: bytes = b"", is_13: bool = True) -> bytes:
    if is_13:
        extensions += extension(43, b"\x03\x04")
    body = b"\x03\x03" + server_random + b"\x03sid" + struct.pack("!HB", suite, 0)
    return message(2, body + len(extensions).to_bytes(2, "big") + extensions)


class Crafted13:
    """The records of a connection. The key log is in `keys`, with all labels."""

    def __init__(self, suite: int = 0x1301, seed: int = 1, labels: str = "", is_early: bool = False) -> None:
        chance = random.Random(seed)
        self.chance = chance
        self.suite = suite
        self.hash, self.key_length, self.aead = SUITES_13[suite]
        self.client_random = chance.randbytes(32)
        self.server_random = chance.randbytes(32)
        self.records: list[tuple[int, bytes]] = []
        self.plain: tuple[bytearray, bytearray] = bytearray(), bytearray()
        self.parts: list[bytes] = []  # the data of each record
        self.numbers = [0, 0]
        self.is_early = is_early
        size = self.hash().digest_size
        names = [
            "CLIENT_EARLY_TRAFFIC_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET",
            "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0",
        ]  # fmt: skip
        self.secrets = {name: chance.randbytes(size) for name in names}
        self.keys = "".join(
            f"{name} {self.client_random.hex()} {secret.hex()}\n"
            for name, secret in self.secrets.items()
            if labels in name
        ).encode()
        self.current = [b"", b""]

    @property
    def key_log(self) -> KeyLog:
        found = KeyLog()
        found.add(self.keys)
        return found

    def expand(self, secret: bytes, label: bytes, length: int) -> bytes:
        info = struct.pack("!HB", length, 6 + len(label)) + b"tls13 " + label + b"\0"
        return HKDFExpand(self.hash(), length, info).derive(secret)

    def use(self, direction: int, name: str) -> None:
        self.current[direction] = self.secrets[name]
        self.numbers[direction] = 0

    def update(self, direction: int) -> None:
        """Send a KeyUpdate."""
        self.send(direction, message(24, b"\0"), 22)
        self.current[direction] = self.expand(self.current[direction], b"traffic upd", self.hash().digest_size)
        self.numbers[direction] = 0

    def send(self, direction: int, data: bytes, kind: int = 23, padding: int = 0) -> None:
        secret = self.current[direction]
        aead = self.aead(self.expand(secret, b"key", self.key_length))
        iv = int.from_bytes(self.expand(secret, b"iv", 12), "big")
        inner = data + bytes((kind,)) + bytes(padding)
        tag = 8 if self.suite == 0x1305 else 16
        head = b"\x17\x03\x03" + (len(inner) + tag).to_bytes(2, "big")
        nonce = (iv ^ self.numbers[direction]).to_bytes(12, "big")
        self.numbers[direction] += 1
        self.records.append((direction, head + aead.encrypt(nonce, inner, head)))
        if kind == 23:
            self.plain[direction].extend(data)
            self.parts.append(data)

    def hello(self, retry: bool = False, early: list[bytes] | None = None, accepted: bool = True) -> None:
        """The handshake up to the client's Finished."""
        extensions = extension(0, b"\0\x06\0\0\x03abc") + extension(16, b"\0\x03\x02h2")
        offered = [0x1302, 0x1303, 0x1301, 0x1304, 0x1305]
        extensions_1 = extensions + (extension(42, b"") if self.is_early else b"")
        self.records.append((CLIENT, clear(22, client_hello(self.client_random, offered, extensions_1))))
        self.use(CLIENT, "CLIENT_EARLY_TRAFFIC_SECRET")
        for data in early or ():
            self.send(CLIENT, data)
        if retry:
            self.records.append((SERVER, clear(22, server_hello(RETRY, self.suite))))
            self.records += [(SERVER, CHANGE), (CLIENT, CHANGE)]
            self.records.append((CLIENT, clear(22, client_hello(self.client_random, offered, extensions))))
        psk = extension(41, b"\0\0") if self.is_early else b""
        self.records.append((SERVER, clear(22, server_hello(self.server_random, self.suite, psk))))
        self.records.append((SERVER, CHANGE))
        self.use(SERVER, "SERVER_HANDSHAKE_TRAFFIC_SECRET")
        inside = extension(16, b"\0\x03\x02h2") + (extension(42, b"") if self.is_early and accepted else b"")
        self.send(SERVER, message(8, len(inside).to_bytes(2, "big") + inside), 22)
        self.send(SERVER, message(20, bytes(32)), 22)
        self.use(SERVER, "SERVER_TRAFFIC_SECRET_0")
        if self.is_early and accepted and not retry:
            self.send(CLIENT, message(5, b""), 22)
        self.records.append((CLIENT, CHANGE))
        self.use(CLIENT, "CLIENT_HANDSHAKE_TRAFFIC_SECRET")
        self.send(CLIENT, message(20, bytes(32)), 22)
        self.use(CLIENT, "CLIENT_TRAFFIC_SECRET_0")

    def chat(self, count: int, largest: int = 300) -> None:
        for _ in range(count):
            for direction in (CLIENT, SERVER):
                self.send(direction, self.chance.randbytes(self.chance.randrange(1, largest)))


def prf(secret: bytes, seed: bytes, length: int, algorithm: type[hashes.HashAlgorithm] = hashes.SHA256) -> bytes:
    """The PRF of TLS 1.2."""

    def mac(data: bytes) -> bytes:
        made = macs.HMAC(secret, algorithm())
        made.update(data)
        return made.finalize()

    found, link = b"", seed
    while len(found) < length:
        link = mac(link)
        found += mac(link + seed)
    return found[:length]


class Crafted12:
    """The records of a connection of TLS 1.2 with AES-128 and GCM, ChaCha20 or CBC: 0xC02F, 0xCCA8, 0xC027."""

    def __init__(self, suite: int = 0xC02F, seed: int = 1, first_nonce: int = 0) -> None:
        self.chance = random.Random(seed)
        self.suite = suite
        self.keys = b""
        self.records: list[tuple[int, bytes]] = []
        self.plain: tuple[bytearray, bytearray] = bytearray(), bytearray()
        self.parts: list[bytes] = []  # the data of each record
        self.numbers = [0, 0]
        self.first_nonce = first_nonce
        self.current: list[list[bytes] | None] = [None, None]
        self.next: list[list[bytes]] = [[], []]

    @property
    def key_log(self) -> KeyLog:
        found = KeyLog()
        found.add(self.keys)
        return found

    def hello(self) -> None:
        """A whole handshake, also within an encrypted connection."""
        client_random, server_random = self.chance.randbytes(32), self.chance.randbytes(32)
        master = self.chance.randbytes(48)
        self.keys += f"CLIENT_RANDOM {client_random.hex()} {master.hex()}\n".encode()
        self.send(CLIENT, client_hello(client_random, [self.suite], is_13=False), 22)
        self.send(SERVER, server_hello(server_random, self.suite, is_13=False), 22)
        self.send(SERVER, message(14, b""), 22)
        mac, key, iv = {0xC02F: (0, 16, 4), 0xCCA8: (0, 32, 12), 0xC027: (32, 16, 0)}[self.suite]
        block = prf(master, b"key expansion" + server_random + client_random, 2 * (mac + key + iv))
        for by_server in range(2):
            self.next[by_server] = []
            at = 0
            for length in (mac, key, iv):
                self.next[by_server].append(block[at + by_server * length : at + (by_server + 1) * length])
                at += 2 * length
        for direction in (CLIENT, SERVER):
            self.change(direction)
            self.send(direction, message(20, bytes(12)), 22)

    def change(self, direction: int) -> None:
        self.send(direction, b"\x01", 20)
        self.current[direction] = self.next[direction]
        self.numbers[direction] = 0

    def send(self, direction: int, data: bytes, kind: int = 23) -> None:
        if kind == 23:
            self.plain[direction].extend(data)
            self.parts.append(data)
        keys = self.current[direction]
        if keys is None:
            self.records.append((direction, clear(kind, data)))
            return
        mac_key, key, iv = keys
        number = self.numbers[direction]
        self.numbers[direction] += 1
        head = number.to_bytes(8, "big") + bytes((kind, 3, 3)) + len(data).to_bytes(2, "big")
        if self.suite == 0xC02F:
            explicit = ((self.first_nonce + number) % 2**64).to_bytes(8, "big")
            body = explicit + AESGCM(key).encrypt(iv + explicit, data, head)
        elif self.suite == 0xCCA8:
            body = ChaCha20Poly1305(key).encrypt((int.from_bytes(iv, "big") ^ number).to_bytes(12, "big"), data, head)
        else:
            made = macs.HMAC(mac_key, hashes.SHA256())
            made.update(head + data)
            plain = data + made.finalize()
            padding = 15 - len(plain) % 16
            start = self.chance.randbytes(16)
            encryptor = Cipher(algorithms.AES(key), modes.CBC(start)).encryptor()
            body = start + encryptor.update(plain + bytes((padding,)) * (padding + 1))
        self.records.append((direction, clear(kind, body)))

    def chat(self, count: int, largest: int = 300) -> None:
        for _ in range(count):
            for direction in (CLIENT, SERVER):
                self.send(direction, self.chance.randbytes(self.chance.randrange(1, largest)))
