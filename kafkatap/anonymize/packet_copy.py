"""`PacketCopy`: a packet, and the new one of the same length that starts as zeros."""

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
