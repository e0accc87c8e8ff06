"""Blocks of a pcapng that is written: section header, interfaces, secrets, names, packets with comments, statistics.

All is little-endian. Many packets are written by kernels instead (`pcap_writer`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from .pcap import LONGEST_PACKET
from .pcapng import (
    DECRYPTION_SECRETS,
    ENHANCED_PACKET,
    INTERFACE_DESCRIPTION,
    INTERFACE_STATISTICS,
    NAME_RESOLUTION,
    SECTION_HEADER,
    TLS_KEY_LOG,
)

#: Codes of options.
COMMENT, APPLICATION, INTERFACE_NAME, RESOLUTION, FILTER, FRAME_CHECK_LENGTH = 1, 4, 2, 9, 11, 13
_RECEIVED, _DROPPED = 4, 5
#: The option RESOLUTION of an interface whose times are in ns.
NANOSECONDS = (RESOLUTION, b"\x09")
#: The most bytes of a comment.
LONGEST_COMMENT = 4_096
_IPV4, _IPV6 = 1, 2
#: The comment of a block with names that kafkatap derived from packets. They are for Wireshark; kafkatap skips them.
FROM_TRAFFIC = "kafkatap derived these names from the traffic"

Options = Sequence[tuple[int, bytes]]


def section_header(application: str, comment: str = "") -> bytes:
    """The first block. Wireshark shows `comment` as that of the whole file."""
    options = [(COMMENT, text_value(comment))] if comment else []
    options.append((APPLICATION, text_value(application)))
    return block(SECTION_HEADER, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1), options)


def interface_description(link_type: int, snap_length: int, options: Options) -> bytes:
    """The block of an interface. `options` are as they are written."""
    return block(INTERFACE_DESCRIPTION, struct.pack("<HHI", link_type, 0, snap_length), options)


def interface_statistics(interface: int, ts: int, received: int, dropped: int) -> bytes:
    """The block with how many packets an interface received, and how many were dropped, up to `ts` (ns)."""
    counts = [(_RECEIVED, struct.pack("<Q", received)), (_DROPPED, struct.pack("<Q", dropped))]
    return block(INTERFACE_STATISTICS, struct.pack("<III", interface, ts >> 32, ts & 0xFFFFFFFF), counts)


def decryption_secrets(key_log: bytes) -> bytes:
    """The block with secrets of TLS connections, in the format of SSLKEYLOGFILE."""
    return block(DECRYPTION_SECRETS, struct.pack("<II", TLS_KEY_LOG, len(key_log)) + key_log, [])


def captured_interface(link_type: int, name: str = "") -> bytes:
    """The block of an interface that packets are captured from, with times in ns."""
    options = [(INTERFACE_NAME, text_value(name))] if name else []
    return interface_description(link_type, LONGEST_PACKET, [*options, NANOSECONDS])


def name_resolution(names: Mapping[str, Sequence[str]], comment: str = "") -> bytes:
    """The block with host names by address. `names_in` skips it if `comment` is FROM_TRAFFIC."""
    body = b""
    for address, known in names.items():
        where = ip_address(address)
        value = where.packed + b"".join(name.encode("ascii") + b"\0" for name in known)
        body += struct.pack("<HH", _IPV4 if where.version == 4 else _IPV6, len(value)) + _padded(value)
    return block(NAME_RESOLUTION, body + bytes(4), [(COMMENT, text_value(comment))] if comment else [])


def names_in(body: bytes, big_endian: bool) -> Iterator[tuple[str, str]]:
    """The addresses and names in the body of such a block, up to damage. Nothing if its comment is FROM_TRAFFIC."""
    if FROM_TRAFFIC.encode() in body:
        return
    at, order = 0, ">" if big_endian else "<"
    while at + 4 <= len(body):
        kind, length = struct.unpack_from(f"{order}HH", body, at)
        value = body[at + 4 : at + 4 + length]
        size = {_IPV4: 4, _IPV6: 16}.get(kind, length)
        if kind == 0 or len(value) < length:
            return
        for name in value[size:].split(b"\0"):
            if name:
                yield str(ip_address(value[:size])), name.decode("utf-8", "replace")
        at += 4 + (length + 3 & ~3)


def packet(interface: int, high: int, low: int, data: bytes, original: int, options: Options) -> bytes:
    """The block of a packet. `high`, `low`: its time in ticks of the interface."""
    written = option_bytes(options)
    length = 32 + (len(data) + 3 & ~3) + len(written)
    head = struct.pack("<IIIIIII", ENHANCED_PACKET, length, interface, high, low, len(data), original)
    return b"".join((head, data, bytes(-len(data) % 4), written, struct.pack("<I", length)))


def block(kind: int, body: bytes, options: Options) -> bytes:
    """A block of any type. The options are those of its type."""
    body = _padded(body) + option_bytes(options)
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def text_value(text: str) -> bytes:
    """A text as an option's value, at most LONGEST_COMMENT bytes."""
    value = text.encode("utf-8", "replace")
    return (
        value
        if len(value) <= LONGEST_COMMENT
        else value[: LONGEST_COMMENT - 3].decode("utf-8", "ignore").encode() + b"..."
    )


def option_bytes(options: Iterable[tuple[int, bytes]]) -> bytes:
    """Options as they are written behind the body of a block."""
    written = b"".join([struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options])
    return written + bytes(4) if written else b""


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)
