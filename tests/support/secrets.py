"""A capture full of secrets, and the search for them in any output.

`SECRETS` are hidden by default; `PAYLOAD` is the content of records. Each is a text of 24 letters and digits that
shares no part with another. `found_in` searches for any eight bytes of one, in every form in which outputs write bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.captures import pcap_bytes
from tests.support.records import GZIP, Record, batch, message_set
from tests.support.tcp import START_NS, Segment, encode, frame, merge
from tests.wire.kafkatalk import (
    BROKER,
    FETCH,
    METADATA,
    MS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    KafkaTalk,
    request,
    response,
)

_SECRET_NAMES = (
    "plain", "raw", "raw-scram", "client-nonce", "server-nonce", "salt", "proof", "signature", "bearer", "salted",
    "scram-salt", "jaas", "keystore", "created-topic", "hmac-created", "hmac-renewed", "hmac-expired", "hmac-described",
    "sensitive", "synonym", "enveloped", "metrics", "cut-off", "newer-version", "trailing", "orphan", "nameless",
    "unknown-tag",
)  # fmt: skip
_PAYLOAD_NAMES = ("key", "value", "header", "fetched", "zipped", "old-value")


def _token(name: str) -> str:
    return base64.b32encode(hashlib.sha256(name.encode()).digest())[:24].decode().lower()


SECRETS = {name: _token(name) for name in _SECRET_NAMES}
PAYLOAD = {name: _token(name) for name in _PAYLOAD_NAMES}


def write_secrets(path: Path) -> Path:
    """Write the capture with all of them."""
    talks = (_authentications, _raw_plain, _raw_scram, _administration, _damaged, _records)
    said = [talk(40_000 + n, START_NS + n * MS) for n, talk in enumerate(talks)]
    path.write_bytes(pcap_bytes(encode(merge(*said))))
    return path


def _talk(port: int, time_ns: int) -> KafkaTalk:
    talk = KafkaTalk(client=("10.0.0.1", port), broker=BROKER, time_ns=time_ns)
    talk.tcp.open()
    return talk


def _authenticate(talk: KafkaTalk, number: int, mechanism: str, *steps: tuple[bytes, bytes]) -> int:
    talk.respond(talk.request(SASL_HANDSHAKE, 1, number, Mechanism=mechanism), Mechanisms=[mechanism])
    for step, (ours, theirs) in enumerate(steps, 1):
        talk.respond(talk.request(SASL_AUTHENTICATE, 2 - step % 2, number + step, AuthBytes=ours), AuthBytes=theirs)
    return number + len(steps) + 1


def _authentications(port: int, time_ns: int) -> list[Segment]:
    talk, s = _talk(port, time_ns), SECRETS
    number = _authenticate(talk, 1, "PLAIN", (f"\0alice\0{s['plain']}".encode(), b""))
    first = f"n,,n=bob,r={s['client-nonce']}", f"r={s['server-nonce']},s={s['salt']},i=4096"
    last = f"c=biws,r={s['server-nonce']},p={s['proof']}", f"v={s['signature']}"
    steps = [(ours.encode(), theirs.encode()) for ours, theirs in (first, last)]
    number = _authenticate(talk, number, "SCRAM-SHA-256", *steps)
    bearer = f"n,,\x01auth=Bearer {s['bearer']}\x01\x01".encode()
    number = _authenticate(talk, number, "OAUTHBEARER", (bearer, b""))
    talk.exchange(METADATA, 1, number)
    return talk.segments


def _raw(port: int, time_ns: int, mechanism: str, *tokens: tuple[bytes, bytes]) -> list[Segment]:
    talk = _talk(port, time_ns)
    talk.respond(talk.request(SASL_HANDSHAKE, 0, 1, Mechanism=mechanism), Mechanisms=[mechanism])
    for ours, theirs in tokens:
        talk.tcp.send(0, frame(ours))
        talk.tcp.send(1, frame(theirs))
    talk.exchange(METADATA, 1, 2)
    return talk.segments


def _raw_plain(port: int, time_ns: int) -> list[Segment]:
    return _raw(port, time_ns, "PLAIN", (f"\0alice\0{SECRETS['raw']}".encode(), b""))


def _raw_scram(port: int, time_ns: int) -> list[Segment]:
    tokens = (b"n,,n=bob,r=123", b"r=123456,s=salt,i=4096"), (f"c=biws,p={SECRETS['raw-scram']}".encode(), b"v=abc")
    return _raw(port, time_ns, "SCRAM-SHA-512", *tokens)


def _administration(port: int, time_ns: int) -> list[Segment]:
    talk, s = _talk(port, time_ns), SECRETS
    jaas = f'org.example.Module required password="{s["jaas"]}";'
    user = {"Name": "bob", "Mechanism": 1, "Iterations": 4096, "Salt": s["scram-salt"].encode(),
            "SaltedPassword": s["salted"].encode()}  # fmt: skip
    configs = [{"Name": "sasl.jaas.config", "Value": jaas}]
    stores = [{"Name": "ssl.keystore.password", "Value": s["keystore"]}, {"Name": "retention.ms", "Value": "86400000"}]
    described = {"Name": "my.own.setting", "Value": s["sensitive"], "IsSensitive": True,
                 "Synonyms": [{"Name": "my.own.setting", "Value": s["synonym"]}]}  # fmt: skip
    talk.respond(talk.request(51, 0, 2, Upsertions=[user]))
    talk.respond(talk.request(44, 1, 3, Resources=[{"ResourceType": 4, "ResourceName": "1", "Configs": configs}]))
    talk.respond(talk.request(33, 1, 4, Resources=[{"ResourceType": 4, "ResourceName": "1", "Configs": stores}]))
    topic = {"Name": "orders", "Configs": [{"Name": "some.secret", "Value": s["created-topic"]}]}
    talk.respond(talk.request(19, 7, 5, Topics=[topic]), Topics=[{"Name": "orders"}])
    talk.respond(talk.request(38, 3, 6), Hmac=s["hmac-created"].encode(), TokenId="token-1")
    talk.respond(talk.request(39, 2, 7, Hmac=s["hmac-renewed"].encode()))
    talk.respond(talk.request(40, 2, 8, Hmac=s["hmac-expired"].encode()))
    talk.respond(talk.request(41, 3, 9), Tokens=[{"TokenId": "token-1", "Hmac": s["hmac-described"].encode()}])
    talk.respond(talk.request(32, 4, 10), Results=[{"ResourceName": "1", "Configs": [described]}])
    inner = [{"Name": "ssl.key.password", "Value": s["enveloped"]}]
    forwarded = request(44, 1, 77, "admin", Resources=[{"ResourceType": 4, "ResourceName": "1", "Configs": inner}])
    asked = talk.request(58, 0, 11, RequestData=forwarded[4:], RequestPrincipal=None, ClientHostAddress=b"\x0a\0\0\1")
    talk.respond(asked, ResponseData=response(44, 1, 77)[4:])
    talk.respond(talk.request(72, 0, 12, Metrics=s["metrics"].encode()))
    return talk.segments


def _damaged(port: int, time_ns: int) -> list[Segment]:
    """Secrets in bodies that the layouts do not cover: cut off, newer, too long, or without their request."""
    talk, s = _talk(port, time_ns), SECRETS
    talk.exchange(METADATA, 1, 1)
    whole = request(44, 1, 0, "app", Resources=[{"ResourceName": "1", "Configs": [
        {"Name": "ssl.key.password", "Value": s["cut-off"]}, {"Name": "x", "Value": "y"}]}])  # fmt: skip
    body = whole[4 + 8 + 2 + 3 :]
    talk.respond(talk.request_raw(44, 1, 2, body[: body.index(s["cut-off"].encode()) + 30]))
    talk.respond(talk.request_raw(36, 99, 3, struct.pack(">i", 24) + s["newer-version"].encode()))
    talk.respond(talk.request_raw(36, 1, 4, struct.pack(">i", 2) + b"ab" + s["trailing"].encode()))
    named = [{"Name": "PassWord", "Value": s["nameless"]}]
    talk.respond(talk.request(33, 1, 5, Resources=[{"ResourceName": "1", "Configs": named}]))
    tagged = struct.pack(">b", 0) + b"\3ab" + b"\1" + b"\x64\x18" + s["unknown-tag"].encode()
    talk.respond(talk.request_raw(36, 2, 6, tagged))
    talk.tcp.send(1, frame(struct.pack(">i", 5_555) + s["orphan"].encode()))
    talk.exchange(METADATA, 1, 7)
    return talk.segments


def _records(port: int, time_ns: int) -> list[Segment]:
    talk, p = _talk(port, time_ns), {name: text.encode() for name, text in PAYLOAD.items()}
    headers = ((b"trace", p["header"]),)
    for number, field in enumerate((
        batch([Record(p["key"], p["value"], 1_704_067_200_000, headers)]),
        batch([Record(b"k", p["zipped"], 1_704_067_200_000)], codec=GZIP),
    )):  # fmt: skip
        data = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": field}]}]
        asked = talk.request(PRODUCE, 8, number, Acks=1, TopicData=data)
        talk.respond(asked, Responses=[{"Name": "orders", "PartitionResponses": [{"Index": 0}]}])
    partition = {"Index": 0, "Records": message_set([Record(b"k", p["old-value"])], 1)}
    old = [{"Name": "orders", "PartitionData": [partition]}]
    talk.respond(talk.request(PRODUCE, 2, 7, Acks=1, TopicData=old))
    fetched = {"PartitionIndex": 0, "Records": batch([Record(None, p["fetched"], 1_704_067_200_000)])}
    talk.respond(talk.request(FETCH, 4, 8), Responses=[{"Topic": "orders", "Partitions": [fetched]}])
    return talk.segments


# search

#: This many consecutive bytes of a secret are a leak.
_PART = 8


def found_in(text: str, secrets: dict[str, str]) -> list[str]:
    """The names of the secrets that a text contains in part, in any form."""
    views = list(_views(text))
    return [name for name, secret in secrets.items() if any(form in view for form in _forms(secret) for view in views)]


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode()
    for at in range(0, len(raw) - _PART + 1, 4):
        part = raw[at : at + _PART]
        yield part.decode()
        yield part.decode()[::-1]
        yield part.hex()
        yield part.hex(" ")
        yield "".join(f"\\x{byte:02x}" for byte in part)
        for shift in range(3):  # base64 differs by the offset at which it begins
            yield base64.b64encode(bytes(shift) + part)[4 if shift else 0 : -4].decode()


_HEX_LINE = re.compile(r"^ *[0-9a-f]{8}  ((?:(?:[0-9a-f]{2}|\*\*|  ) {1,2}){16})(.*)$", re.MULTILINE)


def _views(text: str) -> Iterable[str]:
    """A text as it is, in lower case without spaces, and the joined text of its hexdumps."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    dumped = _HEX_LINE.findall(plain)
    yield plain
    yield re.sub(r"\s+", "", plain)
    yield "".join(cells for cells, _ in dumped).replace(" ", "")
    yield "".join(ascii for _, ascii in dumped)
