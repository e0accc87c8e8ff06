"""SASL messages by kind, from their form alone. Nothing of a token but the user name leaves this module.

PLAIN: RFC 4616. SCRAM: RFC 5802. OAUTHBEARER: RFC 7628 and KIP-255. GSSAPI: RFC 4752, with tokens of RFC 2743, 4121 and
1964. AWS_MSK_IAM: JSON, as its client library writes it. OAUTHBEARER names no user before its token, and GSSAPI
encrypts the name, so they have none here.
"""

from __future__ import annotations

#: Kinds of messages, by number: the first is the number 0.
MESSAGES = (
    "empty", "other", "PLAIN credentials", "SCRAM client-first", "SCRAM server-first", "SCRAM client-final",
    "SCRAM server-final", "SCRAM server-error", "OAUTHBEARER client-first", "OAUTHBEARER error",
    "OAUTHBEARER client-end", "GSSAPI initial token (AP-REQ)", "GSSAPI answer (AP-REP)", "GSSAPI error (KRB-ERROR)",
    "GSSAPI security layers offered", "GSSAPI security layer chosen", "GSSAPI token", "SPNEGO token",
    "AWS_MSK_IAM credentials", "AWS_MSK_IAM answer",
)  # fmt: skip
EMPTY, OTHER = 0, 1
_NUMBER = {name: number for number, name in enumerate(MESSAGES)}
#: Bytes of a token by which its kind is found. Longer user names are not kept.
EXAMINED, LONGEST_NAME = 1 << 16, 256

_GS2 = (b"n,", b"y,", b"p=")
_KERBEROS, _SPNEGO = bytes.fromhex("06092a864886f712010202"), bytes.fromhex("06062b0601050502")
#: Token ids of the Kerberos mechanism (RFC 1964, 4121).
_KERBEROS_TOKENS = {
    b"\1\0": "GSSAPI initial token (AP-REQ)",
    b"\2\0": "GSSAPI answer (AP-REP)",
    b"\3\0": "GSSAPI error (KRB-ERROR)",
}
_OLD_WRAP, _WRAP, _WRAP_HEADER = b"\2\1", b"\5\4", 16
#: The first bytes of raw Kerberos messages, which some libraries send after the first token without a header.
_RAW_KERBEROS = {
    0x6E: "GSSAPI initial token (AP-REQ)",
    0x6F: "GSSAPI answer (AP-REP)",
    0x7E: "GSSAPI error (KRB-ERROR)",
}


def message_kind(token: bytes, is_answer: bool) -> int:
    """The kind of a message: an index of MESSAGES. `is_answer`: the broker sent it."""
    if not token:
        return EMPTY
    name = _gssapi(token, is_answer) or (_of_broker(token) if is_answer else _of_client(token))
    return _NUMBER[name] if name else OTHER


def mechanism_of(kind: int) -> str:
    """The mechanism that a message belongs to, as its kind names it; "" for none."""
    first = MESSAGES[kind].split()[0]
    return {"SPNEGO": "GSSAPI", "empty": "", "other": ""}.get(first, first)


def user_of(token: bytes) -> tuple[bytes, bytes] | None:
    """(mechanism, user name) of a client's first token, or None."""
    if _is_plain(token):
        authzid, user, _ = token.split(b"\0")
        return (b"PLAIN", (user or authzid)[:LONGEST_NAME])
    if token.startswith(_GS2):
        for part in token.split(b",")[2:]:
            if part.startswith(b"n="):
                return b"SCRAM", part[2 : 2 + LONGEST_NAME].replace(b"=2C", b",").replace(b"=3D", b"=")
    return None


def _is_plain(token: bytes) -> bool:
    return token.count(b"\0") == 2 and not token.startswith(_GS2)


def _of_client(token: bytes) -> str:
    if token == b"\1":
        return "OAUTHBEARER client-end"
    if token.startswith(_GS2):
        if b"\1auth=" in token:
            return "OAUTHBEARER client-first"
        parts = token.split(b",", 4)[2:]
        if parts and (parts[0].startswith(b"n=") or (parts[0].startswith(b"m=") and parts[1:2] != [])):
            return "SCRAM client-first"
        return ""
    if token.startswith(b"c=") and b",r=" in token:
        return "SCRAM client-final"
    if _is_plain(token):
        return "PLAIN credentials"
    if token.startswith(b"{") and b'"action"' in token and b'"x-amz-' in token:
        return "AWS_MSK_IAM credentials"
    return ""


def _of_broker(token: bytes) -> str:
    if token.startswith(b"r=") and b",s=" in token and b",i=" in token:
        return "SCRAM server-first"
    if token.startswith(b"v="):
        return "SCRAM server-final"
    if token.startswith(b"e="):
        return "SCRAM server-error"
    if token.startswith(b"{"):
        if b'"status"' in token:
            return "OAUTHBEARER error"
        if b'"request-id"' in token:
            return "AWS_MSK_IAM answer"
    return ""


def _gssapi(token: bytes, is_answer: bool) -> str:
    """The kind of a GSSAPI token. The only data that SASL wraps before it is done are the security layers."""
    layers = "GSSAPI security layers offered" if is_answer else "GSSAPI security layer chosen"
    if token.startswith(_WRAP) and len(token) >= _WRAP_HEADER and token[3] == 0xFF:
        return layers
    if token[0] in (0xA0, 0xA1) and b"\x30" in token[2:6] and _der_size(token) == len(token):
        return "SPNEGO token"  # all but the first are without a header
    if token[0] in _RAW_KERBEROS and _der_size(token) == len(token):
        return _RAW_KERBEROS[token[0]]
    if token[0] != 0x60 or len(token) < 4:
        return ""
    at = 2 if token[1] < 0x80 else 2 + (token[1] & 127)
    if token.startswith(_SPNEGO, at):
        return "SPNEGO token"
    if not token.startswith(_KERBEROS, at):
        return "GSSAPI token" if token[at : at + 1] == b"\6" else ""
    at += len(_KERBEROS)
    inner = token[at : at + 2]
    return layers if inner == _OLD_WRAP else _KERBEROS_TOKENS.get(inner, "GSSAPI token")


def _der_size(token: bytes) -> int:
    """The size of a value of DER with its head; -1 if the head is cut or has an unusual form."""
    if len(token) < 2:
        return -1
    if token[1] < 0x80:
        return 2 + token[1]
    count = token[1] & 127
    if not 1 <= count <= 4 or len(token) < 2 + count:
        return -1
    return 2 + count + int.from_bytes(token[2 : 2 + count], "big")
