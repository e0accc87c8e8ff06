"""SASL tokens: a description by the shape of their bytes, which shows nothing of them; and their fields.

PLAIN: RFC 4616; SCRAM: RFC 5802; OAUTHBEARER: RFC 7628; GSSAPI: RFC 4752.
"""

from __future__ import annotations

from ..layouts.schema import REQUEST
from . import node as n
from .node import Node


def describe_token(token: bytes, direction: int, mechanism: str | None = None) -> str:
    """`PLAIN: user name and password`, `SCRAM: the client's first message`; "" for unknown bytes.

    `mechanism` is the result of the handshake, if it was captured. The text has nothing of the token itself.
    """
    name = mechanism or _guess(token, direction)
    if not name:
        return ""
    step = _step(token, direction, name)
    return f"{name}: {step}" if step else name


def _guess(token: bytes, direction: int) -> str:
    if direction == REQUEST:
        if token.count(0) == 2:
            return "PLAIN"
        if b"\x01auth=" in token:
            return "OAUTHBEARER"
        if token.startswith((b"n,", b"y,", b"p=", b"c=")):
            return "SCRAM"
    elif token.startswith((b"r=", b"v=", b"e=")):
        return "SCRAM"
    return ""


def _step(token: bytes, direction: int, name: str) -> str:
    if name == "PLAIN":
        if direction != REQUEST:
            return "accepted"
        return "user name and password"
    if name.startswith("SCRAM"):
        if direction == REQUEST:
            return "the client's proof" if token.startswith(b"c=") else "the client's first message"
        if token.startswith(b"r="):
            return "the server's nonce, salt and iterations"
        return "refused" if token.startswith(b"e=") else "the server's signature"
    if name == "OAUTHBEARER":
        if direction == REQUEST:
            return "a bearer token" if b"auth=" in token else "the client's answer to a refusal"
        return "refused" if token else "accepted"
    return "a token" if token else "an empty token"


def token_fields(token: bytes, at: int, direction: int, mechanism: str | None = None) -> tuple[Node, ...]:
    """The fields of a token at `at` of its frame, secrets included: the three strings of PLAIN by their names in RFC
    4616; the message of other mechanisms if it is text; otherwise none."""
    name = mechanism or _guess(token, direction)
    names: tuple[str, ...] = ("message",)
    parts = [token]
    if name == "PLAIN" and direction == REQUEST and token.count(0) == 2:
        names, parts = ("authzid", "authcid", "passwd"), token.split(b"\0")
    elif not name.startswith(("SCRAM", "OAUTHBEARER")) or not token:
        return ()
    found: list[Node] = []
    for field, part in zip(names, parts, strict=True):
        size = len(part) + (1 if found else 0)  # with the 0 before it
        try:
            found.append(Node(field, "string", at, size, n.VALUE, part.decode()))
        except UnicodeDecodeError:
            found.append(Node(field, "bytes", at, size, n.VALUE, part))
        at += size
    return tuple(found)
