"""The header of the PROXY protocol: a proxy sends it before the client's first byte, and says where the client is.

    version 1   a line of text of at most 107 bytes: PROXY TCP4 192.0.2.7 10.0.0.2 51234 9092
    version 2   a signature of 12 bytes, version and command, family, length 2; then addresses, ports and more

The facts are those of HAProxy's specification. LOCAL, UNKNOWN and UNSPEC, and Unix sockets, name no address.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be64

from .cursor import MISSING, Cursor, left, skip, u1, u2

#: `length` of a header: none starts here; more bytes are needed; or its bytes.
NO_HEADER, MORE = 0, -1
#: `port` of a header that names no source.
NO_SOURCE = -1
#: A line of version 1 is no longer, CRLF included.
LONGEST_LINE = 107
#: Bytes of version 2 before the addresses, and of the addresses and ports of IPv4 and IPv6.
FIXED, IPV4, IPV6 = 16, 12, 36
#: Command and family bytes of version 2.
LOCAL, PROXY, TCP4, TCP6 = 0x20, 0x21, 0x11, 0x21

#: A header: its length or one of the above, and its source: the upper and lower 64 bits of the address (IPv4 is
#: mapped into IPv6) and the port.
ProxyHeader = namedtuple("ProxyHeader", "length high low port")
#: A parsed word of a line: its value (negative if it is none), and the cursor behind the byte that ended it.
_Word = namedtuple("_Word", "high low is_valid rest")


@helper
def may_be_proxy_header(data):  # type: ignore[no-untyped-def]
    """Whether a header may start here, by the first byte."""
    first = u1(data, 0)
    return first == 0x50 or first == 0x0D


@helper
def _header(length, high, low, port):  # type: ignore[no-untyped-def]
    return ProxyHeader(np.int64(length), np.int64(high), np.int64(low), np.int64(port))


@helper
def _signature(k):  # type: ignore[no-untyped-def]
    """Byte `k` of the signature of version 2: CR LF CR LF, 0, CR LF, QUIT, LF."""
    first = np.int64(0x0D0A0D0A000D0A51)
    return (first >> (56 - 8 * k)) & 255 if k < 8 else (np.int64(0x5549540A) >> (88 - 8 * k)) & 255


@helper
def _read_binary(data):  # type: ignore[no-untyped-def]
    """A header of version 2."""
    for k in range(min(left(data), 12)):
        if u1(data, k) != _signature(k):
            return _header(NO_HEADER, 0, 0, NO_SOURCE)
    command = u1(data, 12)
    if command != MISSING and command != LOCAL and command != PROXY:
        return _header(NO_HEADER, 0, 0, NO_SOURCE)
    rest = u2(data, 14)
    if rest == MISSING or left(data) < FIXED + rest:
        return _header(MORE, 0, 0, NO_SOURCE)
    family = u1(data, 13)
    if command == PROXY and family == TCP4 and rest >= IPV4:
        address = (u2(data, FIXED) << 16) | u2(data, FIXED + 2)
        return _header(FIXED + rest, 0, (np.int64(0xFFFF) << 32) | address, u2(data, FIXED + 8))
    if command == PROXY and family == TCP6 and rest >= IPV6:
        at = data.at + FIXED
        return _header(FIXED + rest, be64(data.buf, at), be64(data.buf, at + 8), u2(data, FIXED + 32))
    return _header(FIXED + rest, 0, 0, NO_SOURCE)


@helper
def _digit(byte):  # type: ignore[no-untyped-def]
    """The value of a hexadecimal digit, or -1."""
    if 48 <= byte <= 57:
        return byte - 48
    lower = byte | 32
    return lower - 87 if 97 <= lower <= 102 else np.int64(-1)


@helper
def _word(high, low, is_valid, rest):  # type: ignore[no-untyped-def]
    return _Word(np.int64(high), np.int64(low), is_valid, rest)


@helper
def _read_number(line, most):  # type: ignore[no-untyped-def]
    """A decimal number of at most `most` that a space or the line's end ends."""
    value = np.int64(0)
    k = 0
    while k < left(line) and u1(line, k) != 0x20:
        digit = _digit(u1(line, k))
        if digit < 0 or digit > 9 or k == 5:
            return _word(0, 0, False, line)
        value = 10 * value + digit
        k += 1
    return _word(0, value, k > 0 and value <= most, skip(line, min(k + 1, left(line))))


@helper
def _read_ipv4(line):  # type: ignore[no-untyped-def]
    """An IPv4 address that a space ends."""
    address = np.int64(0)
    value = np.int64(0)
    digits = 0
    dots = 0
    for k in range(left(line)):
        byte = u1(line, k)
        if byte == 0x2E or byte == 0x20:
            if digits == 0 or digits > 3 or value > 255:
                break
            address = (address << 8) | value
            if byte == 0x20:
                return _word(0, (np.int64(0xFFFF) << 32) | address, dots == 3, skip(line, k + 1))
            dots += 1
            value = np.int64(0)
            digits = 0
        elif 48 <= byte <= 57 and digits < 3:
            value = 10 * value + byte - 48
            digits += 1
        else:
            break
    return _word(0, 0, False, line)


@helper
def _joined(head_high, head_low, heads, tail_high, tail_low):  # type: ignore[no-untyped-def]
    """128 bits of which the first `heads` groups of 16 bits come first, and the tail's come last."""
    for _ in range(8 - heads):
        head_high = (head_high << 16) | ((head_low >> 48) & 0xFFFF)
        head_low = head_low << 16
    return head_high | tail_high, head_low | tail_low


@helper
def _read_ipv6(line):  # type: ignore[no-untyped-def]
    """An IPv6 address that a space ends: groups of four digits, of which `::` leaves some out."""
    high = np.int64(0)
    low = np.int64(0)
    head_high = np.int64(0)
    head_low = np.int64(0)
    heads = np.int64(-1)  # the groups before ::
    groups = np.int64(0)
    value = np.int64(0)
    digits = 0
    k = 0
    while k < left(line):
        byte = u1(line, k)
        k += 1
        if byte != 0x3A and byte != 0x20:
            digit = _digit(byte)
            if digit < 0 or digits == 4:
                break
            value = (value << 4) | digit
            digits += 1
            continue
        is_double = byte == 0x3A and u1(line, k) == 0x3A
        if digits > 0:
            high = (high << 16) | ((low >> 48) & 0xFFFF)
            low = (low << 16) | value
            groups += 1
            value = np.int64(0)
            digits = 0
        elif not is_double and not (byte == 0x20 and heads == groups):
            break
        if groups > 8:
            break
        if byte == 0x20:
            if heads < 0:
                return _word(high, low, groups == 8, skip(line, k))
            if groups > 7:
                break
            high, low = _joined(head_high, head_low, heads, high, low)
            return _word(high, low, True, skip(line, k))
        if is_double:
            if heads >= 0:
                break
            heads = groups
            head_high = high
            head_low = low
            high = np.int64(0)
            low = np.int64(0)
            k += 1
    return _word(0, 0, False, line)


@helper
def _is_text(data, text, length):  # type: ignore[no-untyped-def]
    """Whether the next bytes are these: `text` has up to 8, the first one highest."""
    difference = np.int64(0)
    for k in range(length):
        difference |= u1(data, k) ^ ((text >> (8 * (length - 1 - k))) & 255)
    return difference == 0


@helper
def _read_line(data):  # type: ignore[no-untyped-def]
    """A header of version 1."""
    prefix = min(left(data), 6)
    if not _is_text(data, np.int64(0x50524F585920) >> (8 * (6 - prefix)), prefix):  # PROXY and a space
        return _header(NO_HEADER, 0, 0, NO_SOURCE)
    end = 0
    while end < LONGEST_LINE and u1(data, end) != 0x0A:
        if u1(data, end) == MISSING:
            return _header(MORE, 0, 0, NO_SOURCE)
        end += 1
    if end == LONGEST_LINE or u1(data, end - 1) != 0x0D:
        return _header(NO_HEADER, 0, 0, NO_SOURCE)
    line = Cursor(data.buf, data.at + 6, data.at + end - 1)
    if _is_text(line, np.int64(0x554E4B4E4F574E), 7):  # UNKNOWN
        return _header(end + 1, 0, 0, NO_SOURCE)
    is_ipv6 = _is_text(line, np.int64(0x5443503620), 5)  # TCP6 and a space
    if not is_ipv6 and not _is_text(line, np.int64(0x5443503420), 5):
        return _header(NO_HEADER, 0, 0, NO_SOURCE)
    source = _read_ipv6(skip(line, 5)) if is_ipv6 else _read_ipv4(skip(line, 5))
    target = _read_ipv6(source.rest) if is_ipv6 else _read_ipv4(source.rest)
    port = _read_number(target.rest, 65_535)
    target_port = _read_number(port.rest, 65_535)
    if not (source.is_valid and target.is_valid and port.is_valid and target_port.is_valid):
        return _header(NO_HEADER, 0, 0, NO_SOURCE)
    return _header(end + 1, source.high, source.low, port.low)


@helper
def read_proxy_header(data):  # type: ignore[no-untyped-def]
    """The header that starts here. Its length is NO_HEADER if none does, MORE if more bytes are needed."""
    return _read_line(data) if u1(data, 0) == 0x50 else _read_binary(data)
