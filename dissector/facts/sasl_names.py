"""The user names in SASL tokens. Nothing else of a token leaves this module.

PLAIN: RFC 4616. SCRAM: RFC 5802. OAUTHBEARER (RFC 7628) names no user before its token, so it has none here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.arrays import joined

from ..dtypes import NO_INT32
from ..inspection import Frames
from ..programs.fact_kinds import PRINCIPAL
from ..strings import StringTable
from .fact_rows import FACT, NO_NUMBER

Array = np.ndarray[Any, Any]
_SASL_AUTHENTICATE, _FLEXIBLE = 36, 2
#: Longer names are not kept.
_LONGEST = 256


def principals(jobs: Array, frames: Frames, strings: StringTable) -> Array:
    """A FACT row of the kind PRINCIPAL for each SaslAuthenticate request (JOB) that names a user."""
    slots = jobs["frame"] >> 1
    is_token = (frames.rows["api_key"][slots] == _SASL_AUTHENTICATE) & (jobs["frame"] & 1 == 0)
    rows = []
    for job in jobs[is_token]:
        exchange = frames.rows[int(job["frame"]) >> 1]
        buffer = frames.buffers[int(job["source"])]
        body = buffer[int(job["at"]) : int(job["end"])].tobytes()
        found = user_of(_token(body, int(exchange["api_version"])))
        if found is None:
            continue
        mechanism, user = found
        row = np.zeros(1, FACT)
        for name in FACT.names or ():
            if name.startswith("v"):
                row[name] = NO_NUMBER
        row["exchange"], row["kind"], row["partition"] = exchange["exchange"], PRINCIPAL, NO_INT32
        row["topic"] = row["topic_id"] = row["s2"] = row["s3"] = -1
        row["s0"], row["s1"] = strings.number_of(user), strings.number_of(mechanism)
        rows.append(row)
    return joined(rows, FACT)


def _token(body: bytes, version: int) -> bytes:
    """The token in the body of a SaslAuthenticate request, as far as it was captured."""
    if version < _FLEXIBLE:
        return body[4:]
    at, size, shift = 1, 0, 0  # behind the header's tags, of which there are none
    while at < len(body) and shift < 35:
        size |= (body[at] & 127) << shift
        shift += 7
        at += 1
        if body[at - 1] < 128:
            break
    return body[at : at + max(size - 1, 0)]


def user_of(token: bytes) -> tuple[bytes, bytes] | None:
    """(mechanism, user name) of a client's first token, or None."""
    if token.count(b"\0") == 2 and not token.startswith((b"n,", b"y,", b"p=")):
        authzid, user, _ = token.split(b"\0")
        return (b"PLAIN", (user or authzid)[:_LONGEST])
    if token.startswith((b"n,", b"y,", b"p=")):
        for part in token.split(b",")[2:]:
            if part.startswith(b"n="):
                return b"SCRAM", part[2 : 2 + _LONGEST].replace(b"=2C", b",").replace(b"=3D", b"=")
    return None
