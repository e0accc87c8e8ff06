"""Hostile records for TLS sessions, and hostile key logs.

A session opens a record, or not. What it opens is what an end sent, in order; no record of the connection is refused
because of others that are none. A session that is resumed from its state does the same as one that was not.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator
from functools import cache

from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.secrets import LABELS
from kafkatap.engine.tls.session import Session
from tests.tls.crafted import SUITES_13, Crafted12, Crafted13, clear, message
from tests.wire.mutations import changed

from .target import Target

_SUITES = (*SUITES_13, 0xC02F, 0xCCA8, 0xC027)
_SEEDS = 24
#: Marks before a record: its direction, and whether records are missing before it.
_LOST = 2


@cache
def _crafted(seed: int) -> Crafted13 | Crafted12:
    """A connection. It may have early data, a retry, key updates, or a second handshake."""
    chance = random.Random(seed)
    suite = _SUITES[seed % len(_SUITES)]
    if suite not in SUITES_13:
        old = Crafted12(suite, seed, chance.choice((0, 5, 2**64 - 3)))
        old.hello()
        old.chat(5)
        if chance.random() < 0.5:
            old.hello()
            old.chat(3)
        return old
    new = Crafted13(suite, seed, chance.choice(("", "TRAFFIC_SECRET_0")), chance.random() < 0.5)
    new.hello(chance.random() < 0.3, [b"early", b"data"] if new.is_early else None, chance.random() < 0.5)
    new.chat(4)
    if chance.random() < 0.5:
        new.update(chance.randrange(2))
        new.chat(2)
    return new


@cache
def _key_log() -> KeyLog:
    log = KeyLog()
    log.add(b"".join(_crafted(seed).keys for seed in range(_SEEDS)))
    return log


def some_records(chance: random.Random) -> bytes:
    """The records of a connection, some changed, missing, repeated, or of others. The first byte is its seed."""
    seed = chance.randrange(_SEEDS)
    records = list(_crafted(seed).records)
    start = chance.choice((0, 0, 0, chance.randrange(len(records))))
    parts = [bytes((seed,))]
    for direction, record in records[start:]:
        kind = chance.random()
        mark = direction
        if kind < 0.05:
            continue
        if kind < 0.1:
            mark |= _LOST
        elif kind < 0.2:
            record = _damaged(record, chance)
        elif kind < 0.25:
            parts.append(bytes((mark,)) + record)
        elif kind < 0.3:
            other_direction, other = chance.choice(_crafted(chance.randrange(_SEEDS)).records)
            parts.append(bytes((other_direction | chance.choice((0, _LOST)),)) + other)
        elif kind < 0.33:
            body = changed(
                message(chance.choice((1, 2, 8, 11, 13, 24)), chance.randbytes(chance.choice((3, 90)))), chance
            )
            parts.append(bytes((mark,)) + clear(chance.choice((20, 21, 22, 23)), body[:16_000]))
        parts.append(bytes((mark,)) + record)
    return b"".join(parts)


def _damaged(record: bytes, chance: random.Random) -> bytes:
    """The record with other bytes and a length that fits."""
    body = changed(record[5:], chance)[:18_000]
    return (
        bytes((chance.choice((record[0], record[0], 20, 21, 22, 23)),))
        + record[1:3]
        + len(body).to_bytes(2, "big")
        + body
    )


def check_records(data: bytes) -> None:
    """Sessions read the records of an input: one with the key log, one without, and another one with it."""
    log = _key_log()
    log.trials.computations = log.trials.bytes = 1 << 30
    sessions = [Session(log), Session(None), Session(log)]
    tried = False
    out = memoryview(bytearray(1 << 17))
    for direction, is_lost, record in _marked(data):
        if sessions[0].facts.client < 0 and record[0] == 23 and not tried:
            tried = True
            secrets = list(log.traffic_secrets())[-4:]
            found = [session.try_secrets(direction, record, secrets) for session in (sessions[0], sessions[2])]
            assert found[0] == found[1]
        results = []
        for session in sessions:
            if is_lost:
                session.lost(direction)
            results.append(session.open(direction, record, out[: len(record)]))
            assert len(session.facts.server_name) <= 255
            assert -1 <= session.plain_length(direction, len(record)) <= len(record)
            if session is sessions[0] and results[0][0] == 23:
                assert bytes(out[: results[0][1]]) in _sent()
        _, length, begin, skipped = results[0]
        assert results[2] == results[0]
        assert sessions[2].handshake_state() == sessions[0].handshake_state()
        assert skipped >= -1
        assert 0 <= length <= len(record)
        assert begin >= 5


def _marked(data: bytes) -> Iterator[tuple[int, bool, memoryview]]:
    """The records of an input: direction, whether others are missing before it, and the record."""
    at = 1
    while at + 6 <= len(data):
        end = at + 6 + int.from_bytes(data[at + 4 : at + 6], "big")
        yield data[at] & 1, bool(data[at] & _LOST), memoryview(data)[at + 1 : end]
        at = end


@cache
def _sent() -> frozenset[bytes]:
    """What ends sent as one record, in any connection: a hello of another one may come first."""
    return frozenset(part for seed in range(_SEEDS) for part in _crafted(seed).parts)


# ---------------------------------------------------------------- key logs

_LABELS = {label.decode(): name for label, name in LABELS.items()}
_LINE = re.compile(
    rb"[ \t]*([A-Z0-9_]+)[ \t]+([0-9a-fA-F]{64})[ \t]+([0-9a-fA-F]{64}|[0-9a-fA-F]{96})[ \t]*"
)  # fmt: skip


def a_key_log(chance: random.Random) -> bytes:
    """Lines of few client randoms, some damaged, long, repeated, or ended in other ways."""
    owners = [bytes((n,)) * 32 for n in range(5)]
    lines = []
    for _ in range(chance.randrange(1, 30)):
        label = chance.choice((*_LABELS, "EXPORTER_SECRET", "RSA", "#"))
        secret = chance.randbytes(chance.choice((32, 48, 48, 47, 0)))
        line = f"{label} {chance.choice(owners).hex()} {secret.hex()}".encode()
        kind = chance.random()
        if kind < 0.3:
            line = changed(line, chance)
        elif kind < 0.4:
            line = line.replace(b" ", chance.choice((b"  ", b"\t", b"\0", b"")))
        elif kind < 0.45:
            line = line * chance.choice((2, 1_000))
        elif kind < 0.5:
            line = line.upper()
        lines.append(line + chance.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"")))
    return b"".join(lines)


def check_key_log(data: bytes) -> None:
    """The secrets are those that an expression finds, whether the file grew or not."""
    expected: dict[bytes, dict[str, bytes]] = {}
    for line in re.split(rb"[\r\n]", data):
        found = _LINE.fullmatch(line)
        name = _LABELS.get(found[1].decode(), "") if found else ""
        if found and name and len(line) < 400 and (name != "master" or len(found[3]) == 96):
            expected.setdefault(bytes.fromhex(found[2].decode()), {})[name] = bytes.fromhex(found[3].decode())
    added = KeyLog()
    added.add(data)
    with tempfile.NamedTemporaryFile() as file:
        grown = KeyLog([file.name])
        third = len(data) // 3
        for part in (data[:third], data[third : 2 * third], data[2 * third :]):
            file.write(part)
            file.flush()
            grown.poll()
        for log in (added, grown, KeyLog([file.name])):
            for owner in {*expected, *(bytes((n,)) * 32 for n in range(5))}:
                secrets = log.secrets(owner)
                seen = {name: getattr(secrets, name) for name in _LABELS.values()} if secrets else {}
                assert {name: secret for name, secret in seen.items() if secret} == expected.get(owner, {})
            traffic = [secret.secret for secret in log.traffic_secrets()]
            assert all(one[name] in traffic for one in expected.values() for name in one if "traffic" in name)


TLS_TARGETS = (
    Target("tls records", some_records, check_records, seconds=3.0),
    Target("key logs", a_key_log, check_key_log, seconds=1.0),
)
