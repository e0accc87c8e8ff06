"""Pseudonyms of addresses: IPv4 and IPv6 in packets and in texts, and MAC addresses.

The maps keep prefixes: two addresses with the same first n octets (groups of IPv6) have pseudonyms with the same first
n octets. They also keep the number of digits of each octet or group, so the text of a pseudonym is as long as that of
the address, and a host in a message still matches the address of a packet. Private and other special ranges map onto
themselves, so that a pseudonym is no public address of somebody else. PUBLIC addresses stay.
"""

from __future__ import annotations

import re
from functools import cache
from ipaddress import IPv6Address

from .keyed import Permutations

#: Addresses that each host has: unspecified, loopback, and broadcast.
PUBLIC = frozenset(
    (bytes(4), b"\x7f\0\0\1", b"\xff" * 4, bytes(16), bytes(15) + b"\1", bytes(10) + b"\xff\xff\x7f\0\0\1")
)
#: Octets by their number of digits.
_OCTETS = (range(10), range(10, 100), range(100, 256))
#: Ranges that map onto themselves, by the octets before: private, loopback, link-local, shared, multicast, reserved.
_RANGES: dict[bytes, tuple[range, ...]] = {
    b"": (
        *(range(octet, octet + 1) for octet in (0, 10, 100, 127, 169, 172, 192, 255)), range(224, 240), range(240, 255),
    ),
    b"\x64": (range(64, 100), range(100, 128)),
    b"\xa9": (range(254, 255),),
    b"\xac": (range(16, 32),),
    b"\xc0": (range(168, 169),),
    **{bytes(count): (range(1),) for count in (1, 2, 3)},
    **{b"\xff" * count: (range(255, 256),) for count in (1, 2, 3)},
    b"\x7f": (range(1),),
    b"\x7f\0": (range(1),),
    b"\x7f\0\0": (range(1, 2),),
}  # fmt: skip
#: Groups of IPv6 by their number of digits; the first one is global, unique local, or none of both.
_GROUPS = (range(1, 0x10), range(0x10, 0x100), range(0x100, 0x1000), range(0x1000, 0x10000))
_FIRST_GROUPS = (range(0x2000, 0x4000), range(0xFC00, 0xFE00), range(0xFE80, 0xFEC0), range(0xFF00, 0x10000))
_LINK_LOCAL, _MULTICAST = _FIRST_GROUPS[2:]
_MAPPED = bytes(10) + b"\xff\xff"

IPV4_TEXT = re.compile(rb"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])")
IPV6_TEXT = re.compile(rb"(?<![0-9A-Za-z:.])(?=[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:)[0-9A-Fa-f:.]{2,45}(?![0-9A-Za-z:])")


class Addresses:
    """The pseudonyms of addresses under one key."""

    def __init__(self, permutations: Permutations) -> None:
        self._permutations = permutations
        #: The addresses so far with their pseudonyms.
        self.known: dict[bytes, bytes] = {}

    def packed(self, address: bytes) -> bytes:
        """The pseudonym of an address of 4 or 16 bytes."""
        found = self.known.get(address)
        if found is None:
            if len(address) == 4:
                found = self._ipv4(address)
            elif address.startswith(_MAPPED):
                found = _MAPPED + self._ipv4(address[12:])
            else:
                found = self._ipv6(address)
            self.known[address] = found
        return found

    def mac(self, address: bytes) -> bytes:
        """The pseudonym of a MAC address. Broadcast and all zeros stay, and so does the bit of multicast."""
        if address in (bytes(6), b"\xff" * 6):
            return address
        found = self.known.get(address)
        if found is None:
            group = address[0] & 1
            rest = (address[0] >> 1) << 40 | int.from_bytes(address[1:], "big")
            mixed = self._permutations.of(b"mac", 1 << 47, rest)
            found = bytes((mixed >> 40 << 1 | group,)) + (mixed & (1 << 40) - 1).to_bytes(5, "big")
            self.known[address] = found
        return found

    def ipv4_text(self, text: bytes) -> bytes | None:
        """The pseudonym of a dotted address, of the same length; None for what is none."""
        parts = text.split(b".")
        if len(parts) != 4 or any(int(part) > 255 for part in parts):
            return None
        mapped = self.packed(bytes(map(int, parts)))
        return b".".join(b"%0*d" % (len(part), octet) for part, octet in zip(parts, mapped, strict=True))

    def ipv6_text(self, text: bytes) -> bytes | None:
        """The pseudonym of an IPv6 address as text, of the same length; None for what is none."""
        try:
            packed = IPv6Address(text.decode()).packed
        except ValueError:
            return None
        mapped = self.packed(packed)
        head, _, tail = text.partition(b"::")
        front = head.split(b":") if head else []
        back = tail.split(b":") if tail else []
        made = [self._group_text(part, mapped, 2 * place) for place, part in enumerate(front)]
        width = sum(4 if b"." in part else 2 for part in back)
        at, ends = 16 - width, []
        for part in back:
            ends.append(self._group_text(part, mapped, at))
            at += 4 if b"." in part else 2
        found = b":".join(made) + (b"::" if b"::" in text else b"") + b":".join(ends)
        return found if len(found) == len(text) else None  # an IPv4 address in another notation than its own

    def _group_text(self, part: bytes, mapped: bytes, at: int) -> bytes:
        if b"." in part:
            octets = zip(part.split(b"."), mapped[at : at + 4], strict=True)
            return b".".join(b"%0*d" % (len(old), octet) for old, octet in octets)
        digits = b"%0*x" % (len(part), int.from_bytes(mapped[at : at + 2], "big"))
        return digits.upper() if part != part.lower() else digits

    def _ipv4(self, address: bytes) -> bytes:
        made = bytearray()
        for place, octet in enumerate(address):
            among = _octets_like(address[:place], octet)
            made.append(self._in_class(b"4" + address[:place], among, octet))
        return bytes(made)

    def _ipv6(self, address: bytes) -> bytes:
        if address in (bytes(16), bytes(15) + b"\1"):
            return address
        made = bytearray()
        for place in range(0, 16, 2):
            group = int.from_bytes(address[place : place + 2], "big")
            if group:
                among = _GROUPS[(group.bit_length() - 1) // 4]
                if place == 0:
                    among = next((some for some in _FIRST_GROUPS if group in some), among)
                is_special = place == 0 and among in (_LINK_LOCAL, _MULTICAST)
                group = self._in_class(b"6" + address[:place], among, group)
                if place == 0 and not is_special and (group in _LINK_LOCAL or group in _MULTICAST):
                    group &= 0x7FFF  # global addresses do not become anything else
            made += group.to_bytes(2, "big")
        return bytes(made)

    def _in_class(self, context: bytes, among: range | tuple[int, ...], value: int) -> int:
        context += bytes((len(among) & 255,)) + among[0].to_bytes(2, "big")
        return among[self._permutations.of(context, len(among), among.index(value))]


@cache
def _octets_like(before: bytes, octet: int) -> range | tuple[int, ...]:
    """The octets that one may map to, itself among them: of the same range and with as many digits. `before`: the
    octets before it."""
    ranges = _RANGES.get(before, ())
    for some in ranges:
        if octet in some:
            return some
    return tuple(n for n in _OCTETS[len(str(octet)) - 1] if not any(n in some for some in ranges))
