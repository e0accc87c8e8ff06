"""Rewrites the header of the PROXY protocol: its addresses become pseudonyms, all beyond addresses and ports filler.

The facts are those of HAProxy's specification, as in `dissector.framing.proxy_protocol`.
"""

from __future__ import annotations

import re

from .addresses import Addresses

_LINE = re.compile(
    rb"PROXY (?:UNKNOWN[^\r\n]*|TCP([46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) ([0-9]{1,5}) ([0-9]{1,5}))\r\n"
)
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16
#: Bytes of an address, by the family byte.
_WIDTHS = {0x11: 4, 0x21: 16}


def rewritten_proxy_header(addresses: Addresses, data: bytes) -> bytes:
    """The header that `data` starts with, in as many bytes; b"" if none starts there."""
    if data.startswith(_SIGNATURE) and len(data) >= _FIXED:
        return _binary(addresses, data)
    found = _LINE.match(data)
    if found is None:
        return b""
    if found[1] is None:
        return b"PROXY UNKNOWN" + b" " * (len(found[0]) - 15) + b"\r\n"
    mapped = [(addresses.ipv4_text if found[1] == b"4" else addresses.ipv6_text)(found[k]) for k in (2, 3)]
    if mapped[0] is None or mapped[1] is None:
        return b""
    return b"PROXY TCP%s %s %s %s %s\r\n" % (found[1], mapped[0], mapped[1], found[4], found[5])


def _binary(addresses: Addresses, data: bytes) -> bytes:
    size = _FIXED + int.from_bytes(data[14:16], "big")
    if size > len(data):
        return b""
    made = bytearray(size)
    made[:_FIXED] = data[:_FIXED]
    width = _WIDTHS.get(data[13], 0)
    if width and size >= _FIXED + 2 * width + 4:
        for at in (_FIXED, _FIXED + width):
            made[at : at + width] = addresses.packed(data[at : at + width])
        ports = _FIXED + 2 * width
        made[ports : ports + 4] = data[ports : ports + 4]
    return bytes(made)
