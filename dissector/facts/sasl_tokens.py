"""Facts of SASL tokens: the user that a client's token names, and what kind of message each token is.

A token is in a SaslAuthenticate message, or is a frame by itself (a bare token, after SaslHandshake 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import taken

from ..dtypes import NO_INT32
from ..inspection import Frames
from ..kafka.varints import VARINT_32, varint
from ..programs.fact_kinds import PRINCIPAL, SASL_ANSWER, SASL_MESSAGE
from ..strings import StringTable
from .fact_rows import FACT, FACT_STRINGS, NO_NUMBER
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
    chosen = np.flatnonzero(is_bare | (frames.rows["api_key"][slots] == _SASL_AUTHENTICATE))
    if not len(chosen):
        return np.zeros(0, FACT)
    jobs, rows = taken(jobs, chosen), frames.rows[slots[chosen]]
    columns = (jobs["frame"] & 1, jobs["source"], jobs["at"], jobs["end"], is_bare[chosen], rows["api_version"])
    found = []  # place in `rows`, kind, message, user, mechanism
    for i, (is_answer, source, at, end, bare, version) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        body = frames.buffers[source][at : min(end, at + _COPIED)].tobytes()
        token = body if bare else _token(body, version, is_answer == 1)
        if token is None:
            continue
        token = token[:EXAMINED]
        kind = SASL_ANSWER if is_answer else SASL_MESSAGE
        if kind in wanted:
            found.append((i, kind, message_kind(token, is_answer == 1), -1, -1))
        named = None if is_answer or PRINCIPAL not in wanted else user_of(token)
        if named is not None:
            mechanism, user = named
            found.append((i, PRINCIPAL, NO_NUMBER, strings.number_of(user), strings.number_of(mechanism)))
    return _facts(rows["exchange"], found)


def _facts(exchanges: Array, found: Sequence[tuple[int, ...]]) -> Array:
    made = np.zeros(len(found), FACT)
    for name in FACT.names or ():
        if name.startswith("v"):
            made[name] = NO_NUMBER
    made["partition"] = NO_INT32
    for name in FACT_STRINGS:
        made[name] = -1
    if found:
        place, made["kind"], made["v0"], made["s0"], made["s1"] = np.array(found, np.int64).T
        made["exchange"] = exchanges[place]
    return made


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
    size, following = varint(body, at, len(body), VARINT_32)
    return (size - 1, following) if following >= 0 else (0, len(body) + 1)
