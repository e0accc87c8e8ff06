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


def _type_and_flags(name: str) -> tuple[int, int]:
    """Hardware type (ARPHRD_...) and flags."""
    import fcntl  # not on all systems

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        kind = struct.unpack_from("H", fcntl.ioctl(asking.fileno(), _SIOCGIFHWADDR, request), 16)[0]
        flags = struct.unpack_from("H", fcntl.ioctl(asking.fileno(), _SIOCGIFFLAGS, request), 16)[0]
    return int(kind), int(flags)
