"""`PacketCopy`: a packet, and the new one of the same length that starts as zeros.

Checksums: the Internet checksum (RFC 1071), and those of TCP and UDP over their pseudo header.
"""

from __future__ import annotations

from .addresses import Addresses
from .fields import FILLER


class PacketCopy:
    """`old`: the packet's captured bytes, up to `end`; `new`: what is copied of them, and what replaces them."""

    def __init__(self, packet: bytes, number: int, addresses: Addresses) -> None:
        self.old, self.number, self.addresses = packet, number, addresses
        self.new = bytearray(len(packet))
        self.end = len(packet)

    def u16(self, at: int) -> int:
        return int.from_bytes(self.old[at : at + 2], "big")

    def copy(self, at: int, end: int) -> bool:
        """Copy bytes; False if they were not captured."""
        if end > self.end:
            return False
        self.new[at:end] = self.old[at:end]
        return True

    def mac(self, at: int) -> None:
        self.new[at : at + 6] = self.addresses.mac(self.old[at : at + 6])

    def fill(self, at: int, end: int) -> None:
        self.new[at:end] = FILLER * max(end - at, 0)


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
