"""SASL tokens: the user name becomes its pseudonym, all else filler; only what shows the kind of the token stays.

PLAIN: RFC 4616; SCRAM: RFC 5802; OAUTHBEARER: RFC 7628. Tokens of other kinds become filler altogether.
"""

from __future__ import annotations

from .fields import FILLER, forgotten
from .names import Names

_SCRAM_STARTS = (b"n,", b"y,", b"p=", b"c=", b"r=", b"v=", b"e=")


def rewritten_token(names: Names, token: bytes) -> bytes:
    """A token in as many bytes."""
    if b"\x01auth=" in token:
        head, *rest = token.split(b"\x01")
        return b"\x01".join((_attributes(names, head), *(_bearer(names, part) for part in rest)))
    if token.startswith(_SCRAM_STARTS):
        return _attributes(names, token)
    if token.count(b"\0") == 2:
        authzid, user, password = token.split(b"\0")
        return b"\0".join((names.name(authzid), names.name(user), forgotten(names, password)))
    return forgotten(names, token)


def _attributes(names: Names, token: bytes) -> bytes:
    return b",".join(_attribute(names, part) for part in token.split(b","))


def _attribute(names: Names, part: bytes) -> bytes:
    """One attribute of SCRAM: a letter, =, and a value."""
    if part in (b"", b"n", b"y"):
        return part
    key, value = part[:2], part[2:]
    if len(key) < 2 or key[1:] != b"=" or not key[:1].isalpha():
        return FILLER * len(part)
    if key in (b"n=", b"a="):
        plain = value.replace(b"=2C", b",").replace(b"=3D", b"=")
        return key + names.name(plain).replace(b"=", b"=3D").replace(b",", b"=2C")
    if key == b"i=" and value.isdigit() and len(value) < 8:
        return names.keep(part)
    return key + forgotten(names, value)


def _bearer(names: Names, part: bytes) -> bytes:
    for start in (b"auth=Bearer ", b"auth="):
        if part.startswith(start):
            return start + forgotten(names, part[len(start) :])
    return forgotten(names, part)
