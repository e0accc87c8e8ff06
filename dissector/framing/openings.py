"""Other protocols, by the first bytes of a stream: of a server that is no Kafka broker, or of a client that speaks
something else to one.

The facts are those of RFC 8446 (records of TLS) and RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be32, be64

from .cursor import left, u1, u2

#: What a stream begins with: nothing came yet; what may be Kafka; and what it is not. `reports.connection_words` has
#: words for these.
NO_OPENING, MAYBE_KAFKA, TLS_ALERT, TLS_HELLO, HTTP = range(5)
_ALERT, _HANDSHAKE = 21, 22
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
#: Bytes of a record with one alert.
_ALERT_BYTES = 7
#: A response of HTTP begins with its version.
_RESPONSE, _VERSION = int.from_bytes(b"HTTP"), int.from_bytes(b"HTTP/1.")
#: A request begins with its method. What a server sends alone, if it cannot read the version of a request, is a page.
_WORDS = tuple(
    int.from_bytes(word) for word in (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"CONN", b"<!DO", b"<htm", b"<HTM")
)
#: The longest record of TLS, with room for what old versions add.
_LONGEST = 18_432


@helper
def _is_record(part):  # type: ignore[no-untyped-def]
    """Whether a record of TLS 1.0 to 1.3 seems to begin."""
    length = u2(part, 3)
    return u1(part, 1) == 3 and 0 <= u1(part, 2) <= 4 and 0 < length <= _LONGEST


@helper
def _is_http(part):  # type: ignore[no-untyped-def]
    if left(part) < 8:
        return False
    word = be32(part.buf, part.at)
    if word == _RESPONSE:
        return be64(part.buf, part.at) >> 8 == _VERSION
    for known in _WORDS:  # noqa: SIM110 -- numba compiles no generators
        if word == known:
            return True
    return False


@helper
def opening_of(part):  # type: ignore[no-untyped-def]
    """What a stream is that begins with a chunk part."""
    kind = u1(part, 0)
    if kind == _ALERT and part.length == _ALERT_BYTES and _is_record(part) and u2(part, 3) == 2:
        return np.int64(TLS_ALERT)
    if kind == _HANDSHAKE and _is_record(part):
        message = u1(part, 5)
        if message == _CLIENT_HELLO or message == _SERVER_HELLO:
            return np.int64(TLS_HELLO)
    return np.int64(HTTP if _is_http(part) else MAYBE_KAFKA)
