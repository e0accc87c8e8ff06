"""Lines of brokers' request logs, damaged. A line is read, skipped or refused, and what is read fits into a table."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np

from kafkatap.request_log.log_line import MARK, PARTS, CutLine, read_line
from tests.support.captures import read_bytes
from tests.wire.mutations import changed

from .target import Target

_SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "apache-4.3.request.log.zst"
_TEXT = (
    "RequestHeader(apiKey=FETCH, apiVersion=11, clientId=a, correlationId=301) -- {},response:{} from connection "
    "[::1]:9092-[::1]:56954-1-178;totalTime:501.471,requestQueueTime:0.068,localTime:0.487,remoteTime:500.627,"
    "throttleTime:0.0,responseQueueTime:0.127,sendTime:0.16,securityProtocol:PLAINTEXT,listener:PLAINTEXT"
)


@cache
def _lines() -> list[bytes]:
    return read_bytes(_SAMPLE).splitlines()


def a_line(chance: random.Random) -> bytes:
    """A line of a real log or of an old format, some repeated, wrapped or damaged."""
    line = chance.choice(_lines())
    if chance.random() < 0.3:
        line = b"[2026-11-21 04:43:58,884] DEBUG " + MARK.encode() + _TEXT.encode()
    if chance.random() < 0.2:
        line = b'{"message":"' + line.replace(b'"', b'\\"') + b'","timeMillis":1795236238884}'
    if chance.random() < 0.05:
        line = line.replace(b"{", b"{" * chance.choice((2, 100, 5_000)))
    if chance.random() < 0.05:
        line *= chance.choice((2, 50))
    return changed(line, chance) if chance.random() < 0.8 else line


def check_line(data: bytes) -> None:
    """A line that is read has numbers of the sizes that a table of lines has."""
    try:
        found = read_line(data.decode("utf-8", "replace"))
    except CutLine:
        return
    if found is None:
        assert MARK.encode() not in data
        return
    assert len(found.times) == len(PARTS)
    assert all(-1 <= ns < 2**63 for ns in (found.end, *found.times))
    np.array([found.correlation_id, found.client_port, found.broker_port], np.int32)
    assert 0 <= found.client_port < 2**17
    assert -1 <= found.api_key < 2**15


LOG_TARGETS = (Target("request logs", a_line, check_line, seconds=0.5),)
