"""Facts of SASL tokens: the user that a client's token names, and what kind of message each token is.

A token is in a SaslAuthenticate message, or is a frame by itself (a bare token, after SaslHandshake 0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.arrays import joined

from ..dtypes import NO_INT32
from ..inspection import Frames
from ..programs.fact_kinds import PRINCIPAL, SASL_ANSWER, SASL_MESSAGE
from ..strings import StringTable
from .fact_rows import FACT, NO_NUMBER
from .sasl_messages import EXAMINED, message_kind, user_of

Array = np.ndarray[Any, Any]
_SASL_AUTHENTICATE, _FLEXIBLE = 36, 2
#: Bytes of a body that are copied: the token that is examined, and what comes before it.
_COPIED = EXAMINED + (1 << 15) + 64


def token_facts(jobs: Array, frames: Frames, strings: StringTable, wanted: frozenset[int]) -> Array:
    """FACT rows of the tokens in SaslAuthenticate messages, and of bare tokens (JOB): those of the wanted kinds among
    PRINCIPAL, SASL_MESSAGE and SASL_ANSWER."""
    slots = jobs["frame"] >> 1
    is_bare = frames.links["token"][slots] == 1
    is_token = is_bare | (frames.rows["api_key"][slots] == _SASL_AUTHENTICATE)
    rows = []
    for job, bare in zip(jobs[is_token], is_bare[is_token].tolist(), strict=True):
        exchange, is_answer = frames.rows[int(job["frame"]) >> 1], int(job["frame"]) & 1 == 1
        at = int(job["at"])
        body = frames.buffers[int(job["source"])][at : min(int(job["end"]), at + _COPIED)].tobytes()
        token = body if bare else _token(body, int(exchange["api_version"]), is_answer)
        if token is None:
            continue
        token = token[:EXAMINED]
        kind = SASL_ANSWER if is_answer else SASL_MESSAGE
        if kind in wanted:
            row = _fact(int(exchange["exchange"]), kind)
            row["v0"] = message_kind(token, is_answer)
            rows.append(row)
        found = None if is_answer or PRINCIPAL not in wanted else user_of(token)
        if found is not None:
            mechanism, user = found
            row = _fact(int(exchange["exchange"]), PRINCIPAL)
            row["s0"], row["s1"] = strings.number_of(user), strings.number_of(mechanism)
            rows.append(row)
    return joined(rows, FACT)


def _fact(exchange: int, kind: int) -> Array:
    row = np.zeros(1, FACT)
    for name in FACT.names or ():
        if name.startswith("v"):
            row[name] = NO_NUMBER
    row["exchange"], row["kind"], row["partition"] = exchange, kind, NO_INT32
    for name in ("topic", "topic_id", "s0", "s1", "s2", "s3"):
        row[name] = -1
    return row


def _token(body: bytes, version: int, is_answer: bool) -> bytes | None:
    """The token in the body of a SaslAuthenticate message, as far as it was captured. None if it is cut off before."""
    is_flexible = version >= _FLEXIBLE
    at = 1 if is_flexible else 0  # behind the header's tags, of which there are none
    if is_answer:
        size, at = _size(body, at + 2, is_flexible, 2)  # the error message, behind the error code
        at += max(size, 0)
    size, at = _size(body, at, is_flexible, 4)
    return None if at > len(body) else body[at : at + max(size, 0)]


def _size(body: bytes, at: int, is_flexible: bool, width: int) -> tuple[int, int]:
    """The size of a string or of bytes, and where these begin."""
    if not is_flexible:
        return int.from_bytes(body[at : at + width], "big", signed=True), at + width
    size, shift = 0, 0
    while at < len(body) and shift < 35:
        size |= (body[at] & 127) << shift
        shift += 7
        at += 1
        if body[at - 1] < 128:
            return size - 1, at
    return 0, len(body) + 1
