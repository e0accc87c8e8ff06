"""Ciphers of records: one object for the keys of one direction, with the number of the next record.

`open` reads the record that is next. `find` reads a later one: the record number of AES-GCM in TLS 1.3 is computed;
for other ciphers, numbers are tried.

How the number is computed. The tag of AES-GCM is GHASH(A, C) xor E(J0), and GHASH does not depend on the nonce. The
ciphertext is decrypted with AES-CTR under some nonce N, and the result encrypted under N. This gives the tag
GHASH(A, C) xor E(N1), so the xor of both tags and E(N1) is E(J0). J0 is the nonce and a 1; the nonce xor the IV is
the number.

Importing this imports cryptography, which takes longer than a small report: others import it with the first key.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import hmac as macs
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

from kafkatap.reports.tls_names import TLS_1_3

from .key_schedule import DirectionKeys
from .record_header import APPLICATION_DATA
from .suites import CBC, CCM, CHACHA20, FAILED, GCM, OTHER, Suite

#: Records with larger numbers are not searched.
_LAST_NUMBER = 1 << 60
_ERRORS = (InvalidTag, ValueError, OverflowError)
_BLOCK_OF_ONES = bytes(15) + b"\1"
_HASHES: dict[str, Callable[[], hashes.HashAlgorithm]] = {
    "sha1": hashes.SHA1,
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
}


class RecordCipher(Protocol):
    """`number` is that of the next record, `at` the offset of ciphertext in a record, `overhead` what a record has
    beside the plain bytes, or -1 if that varies."""

    suite: Suite
    number: int
    kind: int
    length: int
    at: int
    overhead: int

    @property
    def computes_numbers(self) -> bool:
        """Whether `find` finds any number at once."""

    def open(self, record: memoryview, out: memoryview) -> int:
        """Decrypt the next record. Returns the length of application data, OTHER or FAILED."""

    def find(self, record: memoryview, out: memoryview, count: int) -> int:
        """As `open` for one of the next `count` records. `number` stays unless it is found."""


def make_cipher(version: int, suite: Suite, keys: DirectionKeys, encrypt_then_mac: bool = False) -> RecordCipher:
    """The cipher of a direction whose next record has the number 0."""
    if version == TLS_1_3:
        return GcmCipher13(suite, keys) if suite.kind == GCM else AeadCipher13(suite, keys)
    if suite.kind == CHACHA20:
        return ChaChaCipher12(suite, keys)
    if suite.kind == CBC:
        return (EncryptThenMacCipher if encrypt_then_mac else CbcCipher)(suite, keys)
    return AeadCipher12(suite, keys)


def _aead(suite: Suite, key: bytes) -> Any:
    if suite.kind == GCM:
        return AESGCM(key)
    return AESCCM(key, suite.tag_length) if suite.kind == CCM else ChaCha20Poly1305(key)


class AeadCipher13:
    """TLS 1.3: the content type and padding are encrypted with the data."""

    __slots__ = (
        "_around", "_decrypt_into", "_iv", "at", "has_padding", "kind", "length", "number", "overhead",
        "suite",
    )  # fmt: skip
    computes_numbers = False

    def __init__(self, suite: Suite, keys: DirectionKeys) -> None:
        self._decrypt_into = _aead(suite, keys.key).decrypt_into
        self._iv = int.from_bytes(keys.iv, "big")
        self._around = 5 + suite.tag_length
        self.suite = suite
        self.number = self.kind = self.length = 0
        self.at = 5
        self.overhead = self._around + 1
        self.has_padding = False

    def open(self, record: memoryview, out: memoryview) -> int:
        size = len(record) - self._around
        if size < 1:
            return FAILED
        try:
            self._decrypt_into((self._iv ^ self.number).to_bytes(12, "big"), record[5:], record[:5], out[:size])
        except _ERRORS:
            return FAILED
        self.number += 1
        size -= 1
        if out[size] == APPLICATION_DATA:
            return size
        return self._other(out, size)

    def _other(self, out: memoryview, size: int) -> int:
        """The content type behind zeros, and the length before it."""
        if not out[size]:
            size = len(bytes(out[:size]).rstrip(b"\0")) - 1
            self.has_padding = True
            self.overhead = -1
        if size < 0:  # nothing but zeros, which no end may send
            self.kind = self.length = 0
            return OTHER
        if out[size] == APPLICATION_DATA:
            return size
        self.kind = out[size]
        self.length = size
        return OTHER

    def find(self, record: memoryview, out: memoryview, count: int) -> int:
        return _try_numbers(self, record, out, count)


class GcmCipher13(AeadCipher13):
    """TLS 1.3 with AES-GCM."""

    __slots__ = ("_key",)
    computes_numbers = True

    def __init__(self, suite: Suite, keys: DirectionKeys) -> None:
        super().__init__(suite, keys)
        self._key = keys.key

    def find(self, record: memoryview, out: memoryview, count: int) -> int:
        number = self._number_of(record) if len(record) > self._around else -1
        if not self.number <= number < _LAST_NUMBER:
            return FAILED
        before, self.number = self.number, number
        found = self.open(record, out)
        if found == FAILED:
            self.number = before
        return found

    def _number_of(self, record: memoryview) -> int:
        """The number of any record of this key; -1 if it is of another key."""
        aes = algorithms.AES(self._key)
        blocks = Cipher(aes, modes.ECB())
        plain = Cipher(aes, modes.CTR(bytes(15) + b"\2")).decryptor().update(record[5:-16])
        tag = AESGCM(self._key).encrypt(bytes(12), plain, record[:5])[-16:]
        mask = int.from_bytes(blocks.encryptor().update(_BLOCK_OF_ONES), "big")
        mask ^= int.from_bytes(tag, "big") ^ int.from_bytes(record[-16:], "big")
        counter = int.from_bytes(blocks.decryptor().update(mask.to_bytes(16, "big")), "big")
        if counter & 0xFFFFFFFF != 1:
            return -1
        return (counter >> 32) ^ self._iv


class ChaChaCipher12:
    """TLS 1.2 with ChaCha20-Poly1305 (RFC 7905): the nonce is the IV xor the record number."""

    __slots__ = (
        "_decrypt_into", "_iv", "at", "kind", "length", "number", "overhead",
        "suite",
    )  # fmt: skip
    computes_numbers = False

    def __init__(self, suite: Suite, keys: DirectionKeys) -> None:
        self._decrypt_into = _aead(suite, keys.key).decrypt_into
        self._iv = int.from_bytes(keys.iv, "big")
        self.suite = suite
        self.number = self.kind = self.length = 0
        self.at = 5
        self.overhead = 21

    def open(self, record: memoryview, out: memoryview) -> int:
        size = len(record) - 21
        if size < 0:
            return FAILED
        number = self.number
        head = number.to_bytes(8, "big") + bytes(record[:3]) + size.to_bytes(2, "big")
        try:
            self._decrypt_into((self._iv ^ number).to_bytes(12, "big"), record[5:], head, out[:size])
        except _ERRORS:
            return FAILED
        self.number = number + 1
        if record[0] == APPLICATION_DATA:
            return size
        self.kind = record[0]
        self.length = size
        return OTHER

    def find(self, record: memoryview, out: memoryview, count: int) -> int:
        return _try_numbers(self, record, out, count)


class AeadCipher12:
    """TLS 1.2 with AES-GCM or AES-CCM: 8 bytes of the nonce are in the record, its number is in what the tag covers.

    Senders count these bytes up, Java and Go as the records, OpenSSL from a random number. So after a loss, the number
    follows from how far they are from those of the last record that opened. Otherwise the next numbers are tried.
    """

    __slots__ = (
        "_counted", "_decrypt_into", "_salt", "at", "kind", "length", "number", "overhead",
        "suite",
    )  # fmt: skip
    computes_numbers = False

    def __init__(self, suite: Suite, keys: DirectionKeys) -> None:
        self._decrypt_into = _aead(suite, keys.key).decrypt_into
        self._salt = keys.iv
        self._counted = b""  # these bytes of the last record that opened
        self.suite = suite
        self.number = self.kind = self.length = 0
        self.at = 13
        self.overhead = 13 + suite.tag_length

    def open(self, record: memoryview, out: memoryview) -> int:
        size = len(record) - self.overhead
        if size < 0:
            return FAILED
        number = self.number
        explicit = bytes(record[5:13])
        head = number.to_bytes(8, "big") + bytes(record[:3]) + size.to_bytes(2, "big")
        try:
            self._decrypt_into(self._salt + explicit, record[13:], head, out[:size])
        except _ERRORS:
            return FAILED
        self.number = number + 1
        self._counted = explicit
        if record[0] == APPLICATION_DATA:
            return size
        self.kind = record[0]
        self.length = size
        return OTHER

    def find(self, record: memoryview, out: memoryview, count: int) -> int:
        number, before = int.from_bytes(record[5:13], "big"), self.number
        if self._counted:
            number = (before - 1 + number - int.from_bytes(self._counted, "big")) % (1 << 64)
        if before <= number < _LAST_NUMBER:
            self.number = number
            found = self.open(record, out)
            if found != FAILED:
                return found
        self.number = before
        return _try_numbers(self, record, out, count)


class CbcCipher:
    """TLS 1.2 with AES-CBC: the data, its MAC and padding are encrypted.

    One decryptor serves all records: a record begins with its IV. Decrypted as if it were ciphertext, it spoils
    itself only.
    """

    __slots__ = (
        "_decryptor", "_mac", "_mac_length", "_plain", "_scratch", "at", "kind", "length", "number",
        "overhead", "suite",
    )  # fmt: skip
    computes_numbers = False

    def __init__(self, suite: Suite, keys: DirectionKeys) -> None:
        self._decryptor = Cipher(algorithms.AES(keys.key), modes.CBC(bytes(16))).decryptor()
        self._mac = macs.HMAC(keys.mac, _HASHES[suite.mac]())
        self._mac_length = len(keys.mac)
        self._scratch = bytearray()
        self._plain = memoryview(b"")
        self.suite = suite
        self.number = self.kind = self.length = 0
        self.at = 21
        self.overhead = -1

    def open(self, record: memoryview, out: memoryview) -> int:
        if not self._decrypt(record):
            return FAILED
        return self._checked(record, out)

    def find(self, record: memoryview, out: memoryview, count: int) -> int:
        if not self._decrypt(record):
            return FAILED
        before = self.number
        for number in range(before, before + count):
            self.number = number
            found = self._checked(record, out)
            if found != FAILED:
                return found
        self.number = before
        return FAILED

    def _decrypt(self, record: memoryview) -> bool:
        """Put the plain bytes and the MAC into `_plain`."""
        body = record[5:]
        if len(body) < 32 or len(body) % 16:
            return False
        plain = self._decrypted(body)
        padding = plain[-1]
        end = len(plain) - 1 - padding
        if end < self._mac_length or plain[end:] != bytes((padding,)) * (padding + 1):
            return False
        self._plain = plain[:end]
        return True

    def _decrypted(self, body: memoryview) -> memoryview:
        if len(self._scratch) < len(body) + 16:
            self._scratch = bytearray(len(body) + 16)
        self._decryptor.update_into(body, self._scratch)
        return memoryview(self._scratch)[16 : len(body)]

    def _checked(self, record: memoryview, out: memoryview) -> int:
        size = len(self._plain) - self._mac_length
        mac = self._mac.copy()
        mac.update(self.number.to_bytes(8, "big") + bytes(record[:3]) + size.to_bytes(2, "big"))
        mac.update(self._plain[:size])
        if not hmac.compare_digest(mac.finalize(), self._plain[size:]):
            return FAILED
        return self._found(record, out, size)

    def _found(self, record: memoryview, out: memoryview, size: int) -> int:
        out[:size] = self._plain[:size]
        self.number += 1
        if record[0] == APPLICATION_DATA:
            return size
        self.kind = record[0]
        self.length = size
        return OTHER


class EncryptThenMacCipher(CbcCipher):
    """TLS 1.2 with AES-CBC and a MAC of the ciphertext (RFC 7366)."""

    __slots__ = ()

    def _decrypt(self, record: memoryview) -> bool:
        return len(record) - 5 - self._mac_length >= 32 and not (len(record) - 5 - self._mac_length) % 16

    def _checked(self, record: memoryview, out: memoryview) -> int:
        body = record[5 : len(record) - self._mac_length]
        mac = self._mac.copy()
        mac.update(struct.pack("!Q3sH", self.number, bytes(record[:3]), len(body)))
        mac.update(body)
        if not hmac.compare_digest(mac.finalize(), record[len(record) - self._mac_length :]):
            return FAILED
        plain = self._decrypted(body)
        size = len(plain) - 1 - plain[-1]
        if size < 0:
            return FAILED
        self._plain = plain
        return self._found(record, out, size)


def _try_numbers(cipher: RecordCipher, record: memoryview, out: memoryview, count: int) -> int:
    before = cipher.number
    for number in range(before, before + count):
        cipher.number = number
        found = cipher.open(record, out)
        if found != FAILED:
            return found
    cipher.number = before
    return FAILED
