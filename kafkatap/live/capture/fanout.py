"""`Fanout`: the rings of an interface share its packets (PACKET_FANOUT): each gets those of its own connections.

A program of classic BPF, which we attach to the group, says which ring gets a packet: by a hash of both ends of its TCP
connection, the same in both directions. Unlike the hash of the kernel, it reads the ends inside tunnels (IP in IP, GRE,
VXLAN, Geneve) and behind VLAN tags, and those that an ICMP message quotes. So one ring gets a connection on every
interface, with and without a tunnel. The kernel joins the fragments of IPv4 before. The first ring gets all other
packets.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from functools import cache
from typing import Any

from kafkatap.reassembly import layers

# <linux/if_packet.h>
_SOL_PACKET, _FANOUT, _FANOUT_DATA = 263, 18, 22
_BY_PROGRAM = 6
_IGNORE_OUTGOING, _ANY_ID, _DEFRAGMENT = 0x4000, 0x2000, 0x8000

#: Instructions of BPF (<linux/bpf_common.h>). X_*: at X and so many bytes more.
_LOAD_IMMEDIATE, _LOAD_HALF, _LOAD_BYTE, _X_WORD, _X_HALF, _X_BYTE = 0x00, 0x28, 0x30, 0x40, 0x48, 0x50
_LOAD_KEPT, _LOAD_X, _LOAD_X_KEPT, _KEEP = 0x60, 0x01, 0x61, 0x02
_ADD, _ADD_X, _MULTIPLY, _AND, _LEFT, _RIGHT, _XOR_X, _FROM_X = 0x04, 0x0C, 0x24, 0x54, 0x64, 0x74, 0xAC, 0x87
_JUMP, _IF_EQUAL, _IF_ANY, _TO_X, _RETURN, _RETURN_A = 0x05, 0x15, 0x45, 0x07, 0x06, 0x16
#: Places that the kernel knows: the protocol of a packet, and where its network header begins.
_PROTOCOL, _IP = 0xFFFFF000, 0xFFF00000
_IPV4, _IPV6, _ETHERNET = 0x0800, 0x86DD, 0x6558
#: Odd numbers by which ends are mixed.
_MIX = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_ETHERNET_HEADER = 14

_INSTRUCTION = struct.Struct("HBBI")
#: A label, or code, k, and the labels to which conditions jump (None: go on).
_Line = str | tuple[Any, ...]


def _at_inner(offset: int, target: str) -> list[_Line]:
    """Go on with the IP header `offset` bytes behind M[0]."""
    return [(_LOAD_X_KEPT, 0), (_LOAD_IMMEDIATE, offset), (_ADD_X, 0), (_TO_X, 0), (_JUMP, 0, target, None)]


def _by_ethertype(at: int, offset: int, name: str) -> list[_Line]:
    """The same, by the ethertype `at` bytes behind X, which is M[0]."""
    return [
        (_X_HALF, _IP + at), (_IF_EQUAL, _IPV4, f"{name} 4", None), (_IF_EQUAL, _IPV6, f"{name} 6", "first"),
        f"{name} 4", *_at_inner(offset, "in 4"), f"{name} 6", *_at_inner(offset, "in 6"),
    ]  # fmt: skip


def _lines() -> list[_Line]:
    vxlan = 8 + 8
    return [
        (_LOAD_X, 0), (_LOAD_HALF, _PROTOCOL), (_IF_EQUAL, _IPV4, "4", None), (_IF_EQUAL, _IPV6, "6", None),
        (_IF_EQUAL, layers.VLAN, None, "not a tag"), (_JUMP, 0, "tag", None),
        "not a tag", (_IF_EQUAL, layers.QINQ, None, "first"),
        # A tag that is not beside the packet: the network header is that of IP (on its way out), or begins in the tag.
        "tag", (_LOAD_BYTE, _IP + 4), (_RIGHT, 4), (_KEEP, 0), (_LOAD_HALF, _IP + 2),
        (_IF_EQUAL, _IPV4, "tag of 4", None), (_IF_EQUAL, _IPV6, "tag of 6", "no tag"),
        "tag of 4", (_LOAD_KEPT, 0), (_IF_EQUAL, 4, None, "no tag"), (_LOAD_X, 4), (_JUMP, 0, "4", None),
        "tag of 6", (_LOAD_KEPT, 0), (_IF_EQUAL, 6, None, "no tag"), (_LOAD_X, 4), (_JUMP, 0, "6", None),
        "no tag", (_LOAD_BYTE, _IP), (_RIGHT, 4), (_IF_EQUAL, 4, "4", None), (_IF_EQUAL, 6, "6", "first"),
        # What is not TCP may be a tunnel. M[15]: its protocol; M[0]: where the header behind IP begins.
        "4", (_X_BYTE, _IP + 9), (_IF_EQUAL, 6, "in 4", None), (_KEEP, 15),
        (_X_BYTE, _IP), (_AND, 15), (_LEFT, 2), (_ADD_X, 0), (_JUMP, 0, "other", None),
        "6", (_X_BYTE, _IP + 6), (_IF_EQUAL, 6, "in 6", None), (_KEEP, 15), (_LOAD_IMMEDIATE, 40), (_ADD_X, 0),
        "other", (_KEEP, 0), (_TO_X, 0), (_LOAD_KEPT, 15),
        (_IF_EQUAL, 17, "udp", None), (_IF_EQUAL, 4, "ip 4", None), (_IF_EQUAL, 41, "ip 6", None),
        (_IF_EQUAL, 47, "gre", None), (_IF_EQUAL, 1, "icmp", None), (_IF_EQUAL, 58, "icmp 6", "first"),
        "ip 4", *_at_inner(0, "in 4"),
        "ip 6", *_at_inner(0, "in 6"),
        "icmp", *_at_inner(8, "in 4"),
        "icmp 6", *_at_inner(8, "in 6"),
        "udp", (_X_HALF, _IP + 2),
        (_IF_EQUAL, layers.VXLAN_PORT, "vxlan", None), (_IF_EQUAL, layers.VXLAN_LINUX_PORT, "vxlan", None),
        (_IF_EQUAL, layers.GENEVE_PORT, "geneve", "first"),
        "vxlan", *_by_ethertype(vxlan + 12, vxlan + _ETHERNET_HEADER, "vxlan"),
        "geneve", (_X_HALF, _IP + 8 + 2), (_IF_EQUAL, _ETHERNET, None, "first"),
        (_X_BYTE, _IP + 8), (_AND, 0x3F), (_LEFT, 2), (_ADD_X, 0), (_KEEP, 0), (_TO_X, 0),
        *_by_ethertype(16 + 12, 16 + _ETHERNET_HEADER, "geneve"),
        # GRE: each of its flags (checksum, key, sequence number) has 4 bytes.
        "gre", (_X_BYTE, _IP), (_AND, 0x80), (_RIGHT, 5), (_KEEP, 1),
        (_X_BYTE, _IP), (_AND, 0x20), (_RIGHT, 3), (_KEEP, 2), (_X_BYTE, _IP), (_AND, 0x10), (_RIGHT, 2), (_KEEP, 3),
        (_X_HALF, _IP + 2), (_KEEP, 15),
        *(line for number in (1, 2, 3) for line in ((_LOAD_KEPT, number), (_LOAD_X_KEPT, 0), (_ADD_X, 0), (_KEEP, 0))),
        (_LOAD_X_KEPT, 0), (_LOAD_KEPT, 15), (_IF_EQUAL, _ETHERNET, "gre ethernet", None),
        (_IF_EQUAL, _IPV4, "gre 4", None), (_IF_EQUAL, _IPV6, "gre 6", "first"),
        "gre 4", *_at_inner(4, "in 4"),
        "gre 6", *_at_inner(4, "in 6"),
        "gre ethernet", *_by_ethertype(4 + 12, 4 + _ETHERNET_HEADER, "gre ethernet"),
        # The IP header at X: the sums of both addresses (M[1]; of IPv6 their last words) and of both ports.
        "in 4", (_X_BYTE, _IP + 9), (_IF_EQUAL, 6, None, "first"), (_X_HALF, _IP + 6), (_IF_ANY, 0x1FFF, "first", None),
        (_FROM_X, 0), (_KEEP, 0), (_X_WORD, _IP + 12), (_KEEP, 1), (_X_WORD, _IP + 16), (_LOAD_X_KEPT, 1), (_ADD_X, 0),
        (_KEEP, 1), (_LOAD_X_KEPT, 0), (_X_BYTE, _IP), (_AND, 15), (_LEFT, 2), (_ADD_X, 0), (_TO_X, 0),
        (_JUMP, 0, "ports", None),
        "in 6", (_X_BYTE, _IP + 6), (_IF_EQUAL, 6, None, "first"),
        (_FROM_X, 0), (_KEEP, 0), (_X_WORD, _IP + 20), (_KEEP, 1), (_X_WORD, _IP + 36), (_LOAD_X_KEPT, 1), (_ADD_X, 0),
        (_KEEP, 1), (_LOAD_KEPT, 0), (_ADD, 40), (_TO_X, 0),
        "ports", (_X_HALF, _IP), (_KEEP, 2), (_X_HALF, _IP + 2), (_LOAD_X_KEPT, 2), (_ADD_X, 0), (_MULTIPLY, _MIX[0]),
        (_KEEP, 2), (_LOAD_KEPT, 1), (_MULTIPLY, _MIX[1]), (_LOAD_X_KEPT, 2), (_XOR_X, 0),
        (_TO_X, 0), (_RIGHT, 15), (_XOR_X, 0), (_MULTIPLY, _MIX[2]), (_TO_X, 0), (_RIGHT, 16), (_XOR_X, 0),
        (_RETURN_A, 0),
        "first", (_RETURN, 0),
    ]  # fmt: skip


@cache
def program() -> bytes:
    """The program: `struct sock_filter`s. It returns a hash; the kernel takes the rest by the number of rings."""
    steps: list[tuple[Any, ...]] = []
    places: dict[str, int] = {}
    for line in _lines():
        if isinstance(line, str):
            places[line] = len(steps)
        else:
            steps.append(line)
    made = []
    for here, (code, k, *targets) in enumerate(steps, 1):
        jumps = [0 if name is None else places[name] - here for name in targets] or [0, 0]
        made.append(_INSTRUCTION.pack(code, 0, 0, jumps[0]) if code == _JUMP else _INSTRUCTION.pack(code, *jumps, k))
    return b"".join(made)


class Fanout:
    """A group of rings of one interface, by the order in which they are added."""

    def __init__(self) -> None:
        self._number: int | None = None

    def add(self, link: socket.socket, ignores_outgoing: bool) -> None:
        """Add a socket, which is bound. `ignores_outgoing`: it leaves out packets that come once more."""
        kind = _BY_PROGRAM | _DEFRAGMENT
        if self._number is not None:
            link.setsockopt(_SOL_PACKET, _FANOUT, self._number)
            return
        joined = False
        if ignores_outgoing:
            with suppress(OSError):  # older kernels: `Ring.scan` leaves them out
                link.setsockopt(_SOL_PACKET, _FANOUT, _signed((kind | _ANY_ID | _IGNORE_OUTGOING) << 16))
                kind, joined = kind | _IGNORE_OUTGOING, True
        if not joined:
            link.setsockopt(_SOL_PACKET, _FANOUT, _signed((kind | _ANY_ID) << 16))
        found = link.getsockopt(_SOL_PACKET, _FANOUT)
        self._number = _signed(found & 0xFFFF | kind << 16)
        code = ctypes.create_string_buffer(program(), len(program()))
        request = struct.pack("HP", len(program()) // _INSTRUCTION.size, ctypes.addressof(code))
        link.setsockopt(_SOL_PACKET, _FANOUT_DATA, request)


def _signed(number: int) -> int:
    """The same 32 bits as a signed number."""
    return number - (1 << 32) if number >> 31 else number
