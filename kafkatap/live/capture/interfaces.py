"""Network interfaces: their names, state and link type."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from kafkatap.reassembly.link_types import ETHERNET, RAW
from kafkatap.reports import units

ANY = "any"
#: ARPHRD_ETHER and ARPHRD_LOOPBACK: packets begin with an Ethernet header.
_ETHERNET, _LOOPBACK = 1, 772
_SIOCGIFFLAGS, _SIOCGIFHWADDR = 0x8913, 0x8927
_UP = 1
#: <linux/rtnetlink.h>, <linux/if_addr.h>: types of messages and attributes, and bytes of headers and of our request.
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_MESSAGE, _IFADDRMSG, _REQUEST = 16, 8, 24


@dataclass(frozen=True, slots=True)
class Interface:
    """`link_type`: headers.ETHERNET, or headers.RAW if packets begin with the IP header."""

    name: str
    index: int
    link_type: int
    up: bool = True

    @property
    def loopback_only(self) -> bool:
        return self.name == "lo"


def names() -> list[str]:
    """The interfaces of this network namespace."""
    return [name for _, name in socket.if_nameindex()]


def find(name: str) -> Interface:
    """An interface by its name, or `any`. ValueError if there is none, with a list of all."""
    if name == ANY:
        return Interface(ANY, 0, RAW)
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        raise ValueError(f"there is no interface {units.safe(name)}; there are {', '.join([*names(), ANY])}") from None
    kind, flags = _type_and_flags(name)
    return Interface(name, index, ETHERNET if kind in (_ETHERNET, _LOOPBACK) else RAW, bool(flags & _UP))


def revived(interface: Interface, bind: Callable[[Interface], None]) -> Interface | None:
    """An interface that was down or gone, under its present name, if it is up again; else None.

    A renamed one keeps its number, and so its socket. If that is down or gone, another one may have its name by now, as
    after it was created again: `bind` binds the socket to it.
    """
    same = present(interface)
    try:
        if same.up and same.index == interface.index:
            return replace(interface, name=same.name)
        found = find(interface.name)
        if not found.up or found.index == interface.index:
            return None
        bind(found)
    except (ValueError, OSError):
        return None
    return replace(interface, index=found.index)


def present(interface: Interface) -> Interface:
    """An interface under its present name, with its state. Without one of its number, it is as it was, and down."""
    try:
        return find(socket.if_indextoname(interface.index) if interface.index else interface.name)
    except (ValueError, OSError):
        return replace(interface, up=False)


def addresses() -> frozenset[str]:
    """The IP addresses of this network namespace, as reports show them (Linux; rtnetlink(7))."""
    request = struct.pack("=IHHIIB7x", _REQUEST, _RTM_GETADDR, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0, socket.AF_UNSPEC)
    found: set[str] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
        asking.settimeout(1.0)
        asking.send(request)
        while True:
            data = asking.recv(1 << 16)
            at = 0
            while at + _MESSAGE <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind != _RTM_NEWADDR or length < _MESSAGE:  # the end, or an error
                    return frozenset(found)
                found.update(_address_of(data[at + _MESSAGE : at + length]))
                at += _aligned(length)


def _address_of(message: bytes) -> tuple[str, ...]:
    """The address in a message on one (`struct ifaddrmsg` and attributes): its own, not that of a peer."""
    family, at = message[0], _IFADDRMSG
    by_kind: dict[int, str] = {}
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            break
        if kind in (_IFA_ADDRESS, _IFA_LOCAL):
            by_kind[kind] = socket.inet_ntop(family, message[at + 4 : at + length])
        at += _aligned(length)
    own = by_kind.get(_IFA_LOCAL, by_kind.get(_IFA_ADDRESS))
    return () if own is None else (own,)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _type_and_flags(name: str) -> tuple[int, int]:
    """Hardware type (ARPHRD_...) and flags."""
    import fcntl  # not on all systems

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        kind = struct.unpack_from("H", fcntl.ioctl(asking.fileno(), _SIOCGIFHWADDR, request), 16)[0]
        flags = struct.unpack_from("H", fcntl.ioctl(asking.fileno(), _SIOCGIFFLAGS, request), 16)[0]
    return int(kind), int(flags)
