"""Capture filters in tcpdump's syntax, compiled to the kernel's classic BPF by libpcap, else by tcpdump. The default
filters are compiled already (`default_filters`).

A program is an array of instructions (`struct sock_filter`: code u16, jt u8, jf u8, k u32). It returns how many bytes
of a packet to keep, 0 to drop it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import shutil
import socket
import struct
import subprocess
from contextlib import suppress
from functools import partial

from kafkatap.reassembly import layers
from kafkatap.reassembly.link_types import ETHERNET, RAW

from .default_filters import ON_ETHERNET, WITHOUT_LINK

#: Bytes to keep of a packet: all, as in tcpdump.
WHOLE = 262_144
_INSTRUCTION = struct.Struct("HBBI")
_RETURN_CONSTANT = 0x06
#: The program that drops all packets.
NOTHING = _INSTRUCTION.pack(_RETURN_CONSTANT, 0, 0, 0)
_SO_ATTACH_FILTER = 26  # <asm-generic/socket.h>
#: libpcap's numbers of link types.
_DLT = {ETHERNET: 1, RAW: 12}
_UNKNOWN_NETMASK = 0xFFFFFFFF
_LONGEST = 4_096  # the kernel's limit (BPF_MAXINSNS)
_LONGEST_TEXT = 10_000  # near the limit libpcap takes minutes


#: What the default filter passes: TCP first, so that its packets cost nothing more; then what may hold TCP: UDP to the
#: ports of tunnels, later fragments of such packets, tunnels without UDP (by IP protocol), and IPv6 packets whose
#: extension headers come before TCP. Last, ICMP messages that TCP could not be delivered (type, and the protocol of the
#: header that is quoted).
_TUNNEL_PORTS = " or ".join(f"dst port {port}" for port in layers.TUNNEL_PORTS)
_TUNNELS = " or ".join(f"ip proto {number} or ip6 proto {number}" for number in layers.TUNNEL_PROTOCOLS)
_EXTENSIONS = " or ".join(f"ip6[6] = {number}" for number in layers.EXTENSION_HEADERS)
_UNREACHABLE = "(icmp[0] = 3 and icmp[17] = 6) or (icmp6 and ip6[40] = 1 and ip6[54] = 6)"
_INSIDE_IP = (
    f"tcp or (udp and ({_TUNNEL_PORTS})) or (ip proto 17 and ip[6:2] & 0x1fff != 0) or {_TUNNELS} or {_EXTENSIONS} "
    f"or {_UNREACHABLE}"
)
#: The same on Ethernet, with tags, labels and sessions (the kernel takes the outer tag out before it filters).
_ETHERTYPES = (layers.VLAN, layers.QINQ, layers.MPLS, layers.PPPOE)
_INSIDE_ETHERNET = f"{_INSIDE_IP} or {' or '.join(f'ether proto {kind:#x}' for kind in _ETHERTYPES)}"


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


def default_filter(link_type: int) -> str:
    """The expression for all packets that may hold TCP, also in tunnels and fragments."""
    return _INSIDE_ETHERNET if link_type == ETHERNET else _INSIDE_IP


def program_for(expression: str | None, link_type: int, interface: str) -> bytes:
    """The program of a filter expression for an interface. None: the default filter."""
    if expression is not None:
        return compile_filter(expression, link_type, interface)
    return ON_ETHERNET if link_type == ETHERNET else WITHOUT_LINK


def compile_filter(expression: str, link_type: int, interface: str = "") -> bytes:
    """The program of a filter expression for packets of a link type. ValueError with the reason if it is wrong.

    `interface`: the source of the packets. It matters for VLAN tags, which the kernel keeps beside a packet.
    """
    if len(expression) > _LONGEST_TEXT:
        raise ValueError(f"the capture filter is too long ({len(expression):,} characters): name networks, not hosts")
    library = _libpcap()
    tags = interface if link_type == ETHERNET and re.search(r"\bvlan\b", expression) else ""
    by = _by_tcpdump if library is None else partial(_by_libpcap, library)
    program = by(expression, link_type, tags)
    if len(program) > _LONGEST * _INSTRUCTION.size:
        raise ValueError(f"the capture filter is too long for the kernel: {expression}")
    return program


def attach(link: socket.socket, program: bytes) -> None:
    """Attach a program to a packet socket, in place of the one before."""
    code = ctypes.create_string_buffer(program, len(program))
    request = struct.pack("HP", len(program) // _INSTRUCTION.size, ctypes.addressof(code))
    link.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, request)


def _libpcap() -> ctypes.CDLL | None:
    for name in ("libpcap.so.1", "libpcap.so.0.8", ""):
        with suppress(OSError):  # also where there is no folder for temporary files, which `find_library` writes
            found = name or ctypes.util.find_library("pcap")
            if found:
                return ctypes.CDLL(found)
    return None


def _by_libpcap(library: ctypes.CDLL, expression: str, link_type: int, interface: str = "") -> bytes:
    library.pcap_open_dead.restype = ctypes.c_void_p
    library.pcap_geterr.restype = ctypes.c_char_p
    library.pcap_geterr.argtypes = [ctypes.c_void_p]
    library.pcap_compile.argtypes = [
        ctypes.c_void_p, ctypes.POINTER(_Program), ctypes.c_char_p, ctypes.c_int, ctypes.c_uint,
    ]  # fmt: skip
    library.pcap_freecode.argtypes = [ctypes.POINTER(_Program)]
    library.pcap_close.argtypes = [ctypes.c_void_p]
    handle = _opened(library, interface) or library.pcap_open_dead(_DLT[link_type], WHOLE)
    program = _Program()
    try:
        if library.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, _UNKNOWN_NETMASK) != 0:
            raise _wrong(expression, library.pcap_geterr(handle).decode("utf-8", "replace"))
        made = ctypes.string_at(program.instructions, program.length * _INSTRUCTION.size)
        library.pcap_freecode(ctypes.byref(program))
        return made
    finally:
        library.pcap_close(handle)


def _opened(library: ctypes.CDLL, interface: str) -> int | None:
    """A handle of an interface, so that libpcap knows how the kernel keeps tags. None if it cannot be opened."""
    if not interface:
        return None
    library.pcap_create.restype = ctypes.c_void_p
    library.pcap_set_snaplen.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.pcap_activate.argtypes = [ctypes.c_void_p]
    handle: int | None = library.pcap_create(interface.encode(), ctypes.create_string_buffer(256))
    if handle:
        library.pcap_set_snaplen(handle, WHOLE)
        if library.pcap_activate(handle) >= 0:
            return handle
        library.pcap_close(handle)
    return None


def _by_tcpdump(expression: str, link_type: int, interface: str = "") -> bytes:
    tcpdump = shutil.which("tcpdump") or shutil.which("tcpdump", path="/usr/sbin:/sbin")
    if tcpdump is None:
        raise ValueError("capture filters need libpcap or tcpdump (Debian: apt install libpcap0.8)")
    kind = "EN10MB" if link_type == ETHERNET else "RAW"
    ran = subprocess.run(
        [tcpdump, "-ddd", "-s", str(WHOLE), "-y", kind, *(["-i", interface] if interface else []), "--", expression],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if ran.returncode:
        raise _wrong(expression, ran.stderr.strip().splitlines()[-1].removeprefix("tcpdump: "))
    numbers = [line.split() for line in ran.stdout.splitlines()[1:]]
    return b"".join(_INSTRUCTION.pack(*map(int, four)) for four in numbers)


def _wrong(expression: str, reason: str) -> ValueError:
    return ValueError(f"the capture filter {expression!r} is wrong: {reason} (see man pcap-filter)")
