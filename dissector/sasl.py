"""What may be said of SASL tokens without showing them: the mechanism's step, by the shape of the bytes.

PLAIN: RFC 4616; SCRAM: RFC 5802; OAUTHBEARER: RFC 7628; GSSAPI: RFC 4752.
"""

from __future__ import annotations

from .schema import REQUEST


def describe_token(token: bytes, direction: int, mechanism: str | None = None) -> str:
    """`PLAIN: user name and password`, `SCRAM: the client's first message`; "" where nothing is known of the bytes.

    `mechanism` is what the handshake agreed on, where that was seen. Nothing of the token itself is in the text.
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
