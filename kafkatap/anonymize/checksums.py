"""The Internet checksum (RFC 1071), and those of TCP and UDP over their pseudo header."""

from __future__ import annotations


def internet_checksum(*parts: bytes | bytearray | memoryview) -> int:
    """The checksum of bytes; each part but the last has an even number of them."""
    total = 0
    for part in parts:
        odd = len(part) & 1
        # The sum of 16-bit words in ones' complement is the number modulo 65,535.
        total += int.from_bytes(part, "big") << 8 * odd
    folded = total % 0xFFFF
    if not folded and total:
        folded = 0xFFFF
    return folded ^ 0xFFFF


def transport_checksum(protocol: int, source: bytes, target: bytes, segment: bytes | bytearray) -> int:
    """The checksum of a TCP segment or UDP datagram whose own field is 0. Addresses have 4 or 16 bytes."""
    if len(source) == 4:
        pseudo = source + target + bytes((0, protocol)) + len(segment).to_bytes(2, "big")
    else:
        pseudo = source + target + len(segment).to_bytes(4, "big") + bytes((0, 0, 0, protocol))
    return internet_checksum(pseudo, segment)
