"""Headers of TLS records: the only check of one.

A header has a content type, the version 3.0 to 3.4, and the length of what follows. TLS 1.3 writes the version of
TLS 1.2, so the longest record is that of TLS 1.2: 2^14 + 2,048 bytes (RFC 5246, 6.2.3), not 2^14 + 256 (RFC 8446, 5.2).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be32

RECORD_HEADER = 5
#: The longest record, with its header.
LONGEST_RECORD = RECORD_HEADER + 16_384 + 2_048
#: Content types (RFC 8446, 5.1; RFC 6520, 3).
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA, HEARTBEAT = range(20, 25)
#: Handshake messages that show the client (RFC 8446, 4).
CLIENT_HELLO, SERVER_HELLO = 1, 2


@helper
def length_of_header(header):  # type: ignore[no-untyped-def]
    """The length of a record, with its header, by the five bytes of it as a number; 0 if these are no header."""
    content, length = header >> 32, header & 65_535
    is_header = (
        CHANGE_CIPHER_SPEC <= content <= HEARTBEAT
        and (header >> 24) & 255 == 3
        and (header >> 16) & 255 <= 4
        and 0 < length <= LONGEST_RECORD - RECORD_HEADER
    )
    return length + RECORD_HEADER if is_header else np.int64(0)


@helper
def record_length(buf, at):  # type: ignore[no-untyped-def]
    """`length_of_header` of the five bytes at `at`."""
    return length_of_header((np.int64(buf[np.uintp(at)]) << 32) | be32(buf, at + 1))
