"""The headers of requests and responses, read from a frame's first bytes.

    request   size 4, api_key 2, api_version 2, correlation_id 4, client_id 2 + length (not in ControlledShutdown v0)
    response  size 4, correlation_id 4

A frame here is any cursor at the size field. Its end may be the frame's, or that of all captured bytes.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import same_bytes

from ..dtypes import NO_INT16
from .cursor import MISSING, i2, i4, left, skip, u1, varint

#: Frames beyond this are not believed. A broker accepts socket.request.max.bytes, by default 100 MiB.
LONGEST_FRAME = 1 << 30
#: Bytes of headers: a request's up to its client_id, with an empty client_id, and a response's.
REQUEST_FIXED, REQUEST_HEADER, RESPONSE_HEADER = 12, 14, 8
#: APIs whose header or body needs care.
PRODUCE, METADATA, CONTROLLED_SHUTDOWN, SASL_HANDSHAKE, API_VERSIONS = 0, 3, 7, 17, 18
#: Keys of Apache Kafka stay below this for long; those of vendors begin at 10,000.
APACHE_KEYS = 1_000
#: A request of so many bytes may lack a name: it costs little if it is none.
SHORT_REQUEST = 4_096
#: The longest name of a topic, and the first version of Produce that has ids of topics in place of names.
LONGEST_TOPIC, TOPIC_IDS = 249, 13
#: What `client_id_length` returns if the client_id goes beyond the frame's end.
BEYOND_END = -2


@helper
def frame_size(frame):  # type: ignore[no-untyped-def]
    """The length of a frame with its size field. Less than 4 if that makes no sense."""
    return i4(frame, 0) + 4


@helper
def api_key(frame):  # type: ignore[no-untyped-def]
    """The api_key of a request."""
    return i2(frame, 4)


@helper
def api_version(frame):  # type: ignore[no-untyped-def]
    """The api_version of a request."""
    return i2(frame, 6)


@helper
def request_correlation_id(frame):  # type: ignore[no-untyped-def]
    """The correlation_id of a request."""
    return i4(frame, 8)


@helper
def response_correlation_id(frame):  # type: ignore[no-untyped-def]
    """The correlation_id of a response."""
    return i4(frame, 4)


@helper
def client_id_length(frame):  # type: ignore[no-untyped-def]
    """The length of a request's client_id, -1 for null, or BEYOND_END. It may be any bytes: clients choose them."""
    length = i2(frame, REQUEST_FIXED)
    return length if length >= -1 and REQUEST_HEADER + length <= left(frame) else np.int64(BEYOND_END)


@helper
def has_client_id(key, version):  # type: ignore[no-untyped-def]
    """Whether the header of a request has a client_id."""
    return key != CONTROLLED_SHUTDOWN or version != 0


@helper
def is_plausible_api(key, version):  # type: ignore[no-untyped-def]
    """Whether an api_key and version can be a newer Kafka's, a vendor's own, or a client's mistake."""
    return 0 <= key <= 32_767 and 0 <= version <= 100


@inlined
def is_same_client(t, connection, frame):  # type: ignore[no-untyped-def]
    """Whether the client_id of a request is the connection's last one."""
    if connection.client_id < 0:
        return False
    known = t.strings.entries[connection.client_id]
    length = client_id_length(frame)
    if np.int64(known.length) != length:
        return False
    return same_bytes(frame.buf, frame.at + REQUEST_HEADER, t.strings.text, known.at, length)


@helper
def may_be_same_client(t, connection, frame):  # type: ignore[no-untyped-def]
    """Whether the captured bytes of a request's client_id fit the connection's last one."""
    length = i2(frame, REQUEST_FIXED)
    if length == MISSING:
        return True
    if connection.client_id < 0:
        return -1 <= length <= 0
    known = t.strings.entries[connection.client_id]
    there = min(length, left(frame) - REQUEST_HEADER)
    return length == np.int64(known.length) and same_bytes(
        frame.buf, frame.at + REQUEST_HEADER, t.strings.text, known.at, there
    )


@helper
def _is_text(frame, length):  # type: ignore[no-untyped-def]
    """Whether the captured bytes of a client_id of this length are text."""
    for k in range(min(length, left(frame) - REQUEST_HEADER)):
        byte = u1(frame, REQUEST_HEADER + k)
        if byte < 32 or byte == 127:
            return False
    return True


@helper
def is_named(t, connection, frame):  # type: ignore[no-untyped-def]
    """Whether a request has a client_id whose captured bytes are text, or fit the connection's last one."""
    length = i2(frame, REQUEST_FIXED)
    if length <= 0:  # or MISSING
        return False
    return may_be_same_client(t, connection, frame) or _is_text(frame, length)


@helper
def has_plausible_name(frame, size):  # type: ignore[no-untyped-def]
    """Whether the client_id of a request of `size` bytes is text that ends within the request. A short request may have
    none, or one that is not there yet."""
    length = i2(frame, REQUEST_FIXED)
    if size <= SHORT_REQUEST and (length == MISSING or -1 <= length <= 0):
        return True
    return 0 < length <= size - REQUEST_HEADER and _is_text(frame, length)


@helper
def _acks_at(body, version):  # type: ignore[no-untyped-def]
    """Where a Produce body has its acks, or -1."""
    if version < 3:
        return np.int64(0)
    if version < 9:
        length = i2(body, 0)
        return 2 + max(np.int64(0), length) if length != MISSING else np.int64(-1)
    length = varint(body, 1)
    if u1(body, 0) != 0 or length < 0:
        return np.int64(-1)  # a header with tags: the machine reads acks
    return 1 + (length >> 32) + max(np.int64(0), (length & 0xFFFFFFFF) - 1)


@helper
def acks_of(body, version):  # type: ignore[no-untyped-def]
    """acks of a Produce request, or NO_INT16. `body` starts behind the client_id, at the header's tags if there are."""
    at = _acks_at(body, version)
    acks = i2(body, at) if at >= 0 else np.int64(MISSING)
    return acks if acks != MISSING else np.int64(NO_INT16)


@helper
def _counted(body, version, size):  # type: ignore[no-untyped-def]
    """The count at the start of a Produce body's rest, and the cursor behind it. `size`: its bytes before version 9."""
    if version < 9:
        return (i4(body, 0) if size == 4 else i2(body, 0)), skip(body, size)
    length = varint(body, 0)
    return ((length & 0xFFFFFFFF) - 1, skip(body, length >> 32)) if length >= 0 else (np.int64(MISSING), body)


@helper
def has_records(body, version):  # type: ignore[no-untyped-def]
    """Whether the first partition of a Produce request has records: a topic that Kafka allows, and the magic and the
    size of a record batch or message, whose end is no further than theirs."""
    topics, rest = _counted(skip(body, _acks_at(body, version) + 6), version, np.int64(4))
    if topics < 1:
        return False
    if version >= TOPIC_IDS:
        rest = skip(rest, 16)
    else:
        length, rest = _counted(rest, version, np.int64(2))
        if not 0 < length <= LONGEST_TOPIC:
            return False
        for k in range(length):
            if not _is_in_topic(u1(rest, k)):
                return False
        rest = skip(rest, length)
    partitions, rest = _counted(rest, version, np.int64(4))
    if partitions < 1:
        return False
    length, rest = _counted(skip(rest, 4), version, np.int64(4))
    return 0 <= u1(rest, 16) <= 2 and 0 < i4(rest, 8) <= length - 12


@helper
def _is_in_topic(byte):  # type: ignore[no-untyped-def]
    """Whether the name of a topic may have a byte: letters, digits, dot, underscore and hyphen."""
    is_letter = 97 <= (byte | 32) <= 122
    return is_letter or 48 <= byte <= 57 or byte == 46 or byte == 95 or byte == 45
