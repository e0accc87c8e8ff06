"""The APIs beyond Kafka's own that a connection's broker lists in its ApiVersions response.

A connection keeps them as one interned string: api_key, lowest and highest version, 2 bytes each. It is empty for most
brokers, and the same for all connections of a broker. A request of such an API is believed by its header.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from ..programs.program import KEYS
from ..strings import intern
from .cursor import MISSING, i2, i4, left, skip, varint

#: The most APIs that are kept of one response.
MOST = 512
#: Bytes of one of them.
ENTRY = 6
#: The first version with compact arrays, and tags behind each entry.
_FLEXIBLE = 3


@helper
def note_advertised(t, connection, version, body):  # type: ignore[no-untyped-def]
    """Note the APIs of a whole ApiVersions response (a cursor behind its correlation_id) of this version."""
    if i2(body, 0) != 0:
        return  # an error, also for a version that the broker does not know
    entries = skip(body, 2)
    count = np.int64(0)
    if version >= _FLEXIBLE:
        length = varint(entries, 0)
        if length < 0:
            return
        count = (length & 0xFFFFFFFF) - 1
        entries = skip(entries, length >> 32)
    else:
        count = i4(entries, 0)
        entries = skip(entries, 4)
    text = t.strings.text
    first = np.int64(t.strings.state[0].text_used)  # a room for the string, which `intern` keeps or leaves
    used = np.int64(0)
    for _ in range(min(count, left(entries) // ENTRY)):
        key = i2(entries, 0)
        if left(entries) < ENTRY or key == MISSING:
            break
        if key >= KEYS and used < MOST * ENTRY:
            for k in range(ENTRY):
                text[first + used + k] = entries.buf[entries.at + k]
            used += ENTRY
        entries = skip(entries, ENTRY)
        if version >= _FLEXIBLE:
            tags = varint(entries, 0)
            if tags != (1 << 32):
                return  # tags in an entry: no broker has any
            entries = skip(entries, 1)
    number = intern(t.strings, text, first, used)
    connection.advertised = number if number != t.strings.state[0].other else -1


@helper
def is_advertised(t, connection, key, version):  # type: ignore[no-untyped-def]
    """Whether the broker of a connection lists an API and its version."""
    if connection.advertised < 0:
        return False
    known = t.strings.entries[connection.advertised]
    for k in range(np.int64(known.length) // ENTRY):
        at = np.int64(known.at) + k * ENTRY
        if _int16(t.strings.text, at) == key:
            return _int16(t.strings.text, at + 2) <= version <= _int16(t.strings.text, at + 4)
    return False


@helper
def _int16(text, at):  # type: ignore[no-untyped-def]
    """A number of an entry. It is not negative, or no key or version equals it."""
    return (np.int64(text[at]) << 8) | np.int64(text[at + 1])
