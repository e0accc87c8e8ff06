"""Cipher suites that can be decrypted: how they protect records, and which hash derives their keys.

A suite's number says everything but the key exchange, which a key log makes irrelevant.
"""

from __future__ import annotations

from typing import NamedTuple

#: How records are protected.
GCM, CHACHA20, CCM, CBC = range(4)
#: What a cipher's `open` and `find` return if there is no application data: the record has another content type, which
#: is in `kind` and `length` of the cipher; it could not be decrypted.
OTHER, FAILED = -1, -2


class Suite(NamedTuple):
    """`hash_name` derives keys, `mac` protects records of CBC. `tag_length` is that of AEAD ciphers."""

    number: int
    kind: int
    key_length: int
    hash_name: str
    tag_length: int = 16
    mac: str = ""


def _pairs(numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """Numbers of suites with AES-128, each followed by the one with AES-256."""
    return [(number + half, 16 + 16 * half) for number in numbers for half in (0, 1)]


def _suites() -> list[Suite]:
    found = [
        Suite(0x1301, GCM, 16, "sha256"),
        Suite(0x1302, GCM, 32, "sha384"),
        Suite(0x1303, CHACHA20, 32, "sha256"),
        Suite(0x1304, CCM, 16, "sha256"),
        Suite(0x1305, CCM, 16, "sha256", 8),
    ]
    gcm = (0x9C, 0x9E, 0xA0, 0xA2, 0xA4, 0xA6, 0xA8, 0xAA, 0xAC, 0xC02B, 0xC02D, 0xC02F, 0xC031, 0xD001)
    found += [Suite(n, GCM, key, "sha384" if key == 32 else "sha256") for n, key in _pairs(gcm)]
    found += [Suite(n, CHACHA20, 32, "sha256") for n in range(0xCCA8, 0xCCAF)]
    found += [Suite(n, CCM, key, "sha256") for n, key in _pairs((0xC09C, 0xC09E, 0xC0A4, 0xC0A6, 0xC0AC))]
    found += [Suite(n, CCM, key, "sha256", 8) for n, key in _pairs((0xC0A0, 0xC0A2, 0xC0A8, 0xC0AA, 0xC0AE))]
    found += [Suite(0xD003, CCM, 16, "sha256", 8), Suite(0xD005, CCM, 16, "sha256")]
    return found + _cbc_suites()


def _cbc_suites() -> list[Suite]:
    sha1 = [(n, 16) for n in (*range(0x2F, 0x35), 0xC01D, 0xC01E, 0xC01F)]
    sha1 += [(n, 32) for n in (*range(0x35, 0x3B), 0xC020, 0xC021, 0xC022)]
    sha1 += _pairs((0x8C, 0x90, 0x94, 0xC004, 0xC009, 0xC00E, 0xC013, 0xC018, 0xC035))
    sha256 = [(n, 16) for n in (0x3C, 0x3E, 0x3F, 0x40, 0x67, 0x6C)]
    sha256 += [(n, 32) for n in (0x3D, 0x68, 0x69, 0x6A, 0x6B, 0x6D)]
    found = [Suite(n, CBC, key, "sha256", 0, "sha1") for n, key in sha1]
    found += [Suite(n, CBC, key, "sha256", 0, "sha256") for n, key in sha256]
    for n, key in _pairs((0xAE, 0xB2, 0xB6, 0xC023, 0xC025, 0xC027, 0xC029, 0xC037)):
        name = "sha384" if key == 32 else "sha256"
        found.append(Suite(n, CBC, key, name, 0, name))
    return found


#: By number.
SUITES = {suite.number: suite for suite in _suites()}
#: Those of TLS 1.3.
SUITES_13 = tuple(suite for suite in SUITES.values() if suite.number >> 8 == 0x13)
