"""Which bytes of each header an anonymized copy keeps, and the checksums of the new ones."""

from __future__ import annotations

import pytest

from kafkatap.anonymize.addresses import Addresses
from kafkatap.anonymize.headers import EXTENSIONS, WRITERS, Header, HeaderCopy, internet_checksum
from kafkatap.anonymize.keyed import Permutations
from kafkatap.reassembly import layers as known
from kafkatap.reassembly import link_types as link
from kafkatap.reassembly.layers import LINK

#: By what the header is and its first bytes, its new bytes: k kept, M and P of the pseudonyms of a MAC address and of
#: IP addresses, n a no-operation, s of the checksum, 0 nothing.
KEPT = [
    (LINK + link.ETHERNET, "", "MMMMMMMMMMMMkk"),
    (known.BRIDGED, "", "MMMMMMMMMMMMkk"),
    (LINK + link.SLL, "000400010006", "kkkkkkMMMMMM00kk"),
    (LINK + link.SLL, "000400010008", "kkkkkk00000000kk"),
    (LINK + link.SLL2, "080000000000000200010006", "kkkkkkkkkkkkMMMMMM00"),
    (LINK + link.SLL2, "080000000000000200010008", "kkkkkkkkkkkk00000000"),
    (known.IPV4, "45", "kkkkkkkkkkssPPPPPPPP"),
    (known.IPV4, "47", "kkkkkkkkkkssPPPPPPPPnnnnnnnn"),
    (known.IPV6, "60", "kkkkkkkk" + 32 * "P"),
    (known.UDP, "", "kkkkkkss"),
    (known.UDP, "a1a2a3a4a5a60000", "kkkkkk00"),
    (known.GRE, "3000", "kkkkkkkkkkkk"),
    (known.GRE, "b000", "kkkkss00kkkkkkkk"),
    (known.VXLAN, "08", "k000kkk0"),
    (known.VXLAN_GPE, "0c", "k00kkkk0"),
    (known.GENEVE, "", "kkkkkkkk00000000"),
    (known.ERSPAN_3, "", "kkkkkkkkkkkk00000000"),
    (known.NFLOG_FIELD, "", "kkkk00000000"),
    (LINK + link.NFLOG, "", "kkkk0000"),
    (LINK + link.PPI, "", "kkkkkkkk0000"),
    (LINK + link.PKTAP, "", "kkkkkkkkkkkk00000000"),
    (LINK + link.NULL, "", "kkkk"),
    (LINK + link.LOOP, "", "kkkk"),
    (LINK + link.PPP_WITH_DIRECTION, "", "kkkkk"),
    (LINK + link.PPP_PPPD, "", "kkkkk"),
    (LINK + link.CISCO_HDLC, "", "kkkk"),
    (known.VLAN, "", "kkkk"),
    (known.MPLS, "", "kkkkkkkk"),
    (known.LLC, "", "kkkkkkkk"),
]


def filled(begin: str, size: int) -> bytes:
    """A header of bytes that are all different, and no 0 or 1."""
    first = bytes.fromhex(begin)
    return first + bytes(range(0xA1, 0xA1 + size))[len(first) :]


def a_copy(packet: bytes) -> HeaderCopy:
    copy = HeaderCopy(packet, 1, Addresses(Permutations(b"a key of 16 bytes")))
    copy.old_ends = copy.new_ends = b"\xcb\0\x71\7", b"\xc6\x33\x64\x09"  # as an IP header before has them
    return copy


def shown(copy: HeaderCopy, at: int, kept: str) -> str:
    """What became of each byte of a header at a place, in the letters of KEPT. `kept`: those that are wanted, as one
    value may have several reasons."""
    macs = {name: value for name, value in copy.addresses.known.items() if len(name) == 6}
    ips = b"".join(copy.new_ends)
    found = ""
    for n, wanted in enumerate(kept):
        old, new = copy.old[at + n], copy.new[at + n]
        first = kept.index(wanted)
        if wanted == "M":
            since = at + first + (n - first) // 6 * 6
            is_wanted = macs.get(copy.old[since : since + 6]) == copy.new[since : since + 6]
        elif wanted == "P":
            is_wanted = new == ips[n - first] and copy.old_ends != copy.new_ends
        elif wanted == "s":
            is_wanted = copy.new[at + first : at + first + 2] not in (bytes(2), copy.old[at + first : at + first + 2])
        else:
            is_wanted = new == {"k": old, "n": 1, "0": 0}[wanted]
        found += wanted if is_wanted else "?"
    return found


@pytest.mark.parametrize(("what", "begin", "kept"), KEPT)
def test_each_header_keeps_what_is_known_of_it(what: int, begin: str, kept: str) -> None:
    """Not a byte more, and none of what follows it."""
    at, header = 4, filled(begin, len(kept))
    end = at + len(header) + 6
    copy = a_copy(b"before"[:at] + header + b"secret")
    WRITERS[what](copy, Header(what, at, end, end), at + len(header))
    assert copy.new[:at] == bytes(at)
    assert copy.new[at + len(header) :] == bytes(6)
    copy.write_checksums()
    assert shown(copy, at, kept) == kept
    assert copy.new[at + len(header) :] == bytes(6)


def test_all_other_headers_are_kept_whole() -> None:
    for what in WRITERS.keys() - {what for what, *_ in KEPT}:
        copy = a_copy(filled("", 20))
        WRITERS[what](copy, Header(what, 4, 20, 20), 12)
        assert copy.new == bytes(4) + copy.old[4:12] + bytes(8), what


@pytest.mark.parametrize("what", sorted(EXTENSIONS))
def test_extension_headers_keep_their_lengths(what: int) -> None:
    """Options become one of padding, PadN with its length. Fragments have no contents but what they are."""
    protocol, header = EXTENSIONS[what], filled("", 16)
    kept = {known.FRAGMENT_HEADER: 16 * "k", 0: "kk+", 60: "kk+"}.get(protocol, "kk")
    copy = a_copy(b"before" + header + b"secret")
    copy.extension(protocol, 6, 22)
    expected = bytes({"k": header[n], "+": 1}[letter] for n, letter in enumerate(kept))
    expected += b"\x0c" if kept.endswith("+") else b""
    assert copy.new == bytes(6) + expected.ljust(16, b"\0") + bytes(6)


def test_headers_that_were_cut_are_not_kept() -> None:
    """A field is kept if all of it was captured."""
    copy = a_copy(filled("", 5))
    WRITERS[known.UDP](copy, Header(known.UDP, 0, 5, 8), 5)
    assert copy.new == bytes(5)


@pytest.mark.parametrize("ends", [("cb007107", "c6336409"), ("20010db8" + 24 * "0", "20010db9" + 24 * "1")])
@pytest.mark.parametrize("cut", [0, 1])
def test_checksums_are_those_of_all_that_follows(ends: tuple[str, str], cut: int) -> None:
    """Two UDP headers with GRE between them, which have checksums. One over bytes that were not captured stays 0."""
    udp, gre = filled("", 6) + b"\5\5", bytes.fromhex("b0000800ffff1111") + b"key.seq."
    packet = udp + gre + udp + b"payload!"
    copy = a_copy(packet)
    source, target = copy.new_ends = bytes.fromhex(ends[0]), bytes.fromhex(ends[1])
    size = len(packet)
    for what, at in ((known.UDP, 0), (known.GRE, 8), (known.UDP, 24)):
        WRITERS[what](copy, Header(what, at, size, size + cut), at + (16 if what == known.GRE else 8))
    copy.new[32:] = b"replaced"
    copy.write_checksums()
    assert internet_checksum(copy.new[8:]) == 0
    for at in (0, 24):
        pseudo = source + target + (17).to_bytes(4, "big") + (size - at).to_bytes(4, "big")
        if cut:
            assert copy.new[at + 6 : at + 8] == bytes(2)
        else:
            assert internet_checksum(pseudo, copy.new[at:]) == 0


def test_an_ipv4_header_has_its_checksum() -> None:
    for options in (0, 8):
        header = filled(f"{0x45 + options // 4:x}", 20 + options)
        copy = a_copy(header)
        WRITERS[known.IPV4](copy, Header(known.IPV4, 0, len(header), len(header)), len(header))
        assert internet_checksum(copy.new) == 0
        assert copy.old_ends == (header[12:16], header[16:20])
        assert copy.new_ends == (copy.addresses.packed(header[12:16]), copy.addresses.packed(header[16:20]))
