"""Packets through scapy's capture sockets, one by one: for systems without an AF_PACKET ring.

Each packet is copied into a block, which the engine reads like a ring. This is slow: about ten thousand packets a
second. Times are scapy's floating point seconds, exact to a quarter of a microsecond.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.link_types import ETHERNET, LOOP, NULL, RAW, SLL, SLL2

from ...installation import install_command
from . import capture_filter
from .interfaces import Interface, find, revived

Array = np.ndarray[Any, Any]

BLOCK, PACKETS_AT_ONCE = 4 << 20, 8192
#: scapy's names of link layers.
_LINK_TYPES = {
    "Ether": ETHERNET, "Loopback": NULL, "LoopbackOpenBSD": LOOP, "CookedLinux": SLL, "CookedLinuxV2": SLL2,
    "IP": RAW, "IPv6": RAW, "IPv46": RAW,
}  # fmt: skip
_UNKNOWN_LINK = -1  # counted as unknown, never decoded
_LINUX = sys.platform == "linux"
_SO_RCVBUFFORCE, _SOL_PACKET, _STATISTICS, _EVERY_PROTOCOL = 33, 263, 6, 3


class CaptureSocket:
    """One interface, a `packet_source.Tap`. `size`: bytes of buffer to request; the system may allow less.

    ValueError for a wrong filter or name and if scapy is missing, PermissionError without the right to capture, OSError
    if the interface is down.
    """

    def __init__(self, name: str, expression: str | None, size: int, promiscuous: bool = False) -> None:
        if _LINUX:
            self.interface = find(name)
            program = capture_filter.program_for(expression, self.interface.link_type, name)
            self._socket = _open(name, expression or "tcp", promiscuous)  # until `_set_up` attaches the program
            self._set_up(program, size)
        else:
            if expression is None:
                expression = capture_filter.default_filter(RAW)
            self._socket = _open(name, expression, promiscuous)
            self.interface = Interface(name, 0, _LINK_TYPES.get(self._socket.LL.__name__, _UNKNOWN_LINK))
        self.buffer: Array = np.zeros(BLOCK, np.uint8)
        self.packets: Array = untouched(PACKETS_AT_ONCE, PACKET)
        self._bytes = memoryview(self.buffer)  # type: ignore[arg-type]
        self._blocks = not (_LINUX or self._socket.nonblocking_socket)
        self._full = self._stopped = False
        self._received = 0  # including those on their way out of loopback
        self._seen = self._dropped = 0
        self._error: str | None = None

    def _set_up(self, program: bytes, size: int) -> None:
        link: socket.socket = self._socket.ins
        link.setblocking(False)
        capture_filter.attach(link, program)  # scapy's own cuts packets at 65,535 bytes; loopback has larger ones
        with suppress(OSError):  # without CAP_NET_ADMIN: the limit of the system
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size // 2)
            link.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size // 2)
        link.getsockopt(_SOL_PACKET, _STATISTICS, 8)  # restart: scapy's socket first captured all interfaces

    def fileno(self) -> int:
        return int(self._socket.fileno())

    @property
    def ready(self) -> bool:
        """Whether packets wait that `fileno` does not signal."""
        return self._full

    @property
    def backlog(self) -> float:
        """Unknown here."""
        return 0.0

    #: Packets become chunks through `scan` and its rows.
    assemble = None

    def scan(self, number: int) -> int:
        """Fill `packets` with what is there, numbered from `number` on. Return the count."""
        times: list[int] = []
        starts: list[int] = []
        captured: list[int] = []
        original: list[int] = []
        at = 0
        while len(times) < PACKETS_AT_ONCE and at + capture_filter.WHOLE <= BLOCK:
            got = self._receive()
            if got is None:
                break
            data, seconds = got
            self._bytes[at : at + len(data)] = data
            times.append(time.time_ns() if seconds is None else round(seconds * 1e9))
            starts.append(at)
            captured.append(len(data))
            original.append(len(data))
            at += len(data)
        count = len(times)
        self._full = count == PACKETS_AT_ONCE or at + capture_filter.WHOLE > BLOCK
        rows = self.packets[:count]
        rows["ts"], rows["at"], rows["captured"], rows["original"] = times, starts, captured, original
        rows["number"] = np.arange(number, number + count)
        rows["link_type"] = self.interface.link_type
        if not _LINUX:
            self._seen += count
        return count

    def _receive(self) -> tuple[bytes, float | None] | None:
        """A packet and its time; None if none waits."""
        while not self._stopped:
            try:
                if self._blocks and not self._socket.select([self._socket], 0):
                    return None
                _, data, seconds = self._socket.recv_raw(capture_filter.WHOLE)
            except BlockingIOError:
                return None
            except OSError as error:
                self._error = error.strerror or str(error)
                return None
            self._received += 1
            if data:
                return data[: capture_filter.WHOLE], seconds
            if not _LINUX:
                return None
            # (It is a packet on its way out of loopback, which arrives again on its way in.)
        return None

    def release(self) -> None:
        """Nothing to release: packets were copied."""

    def counters(self) -> tuple[int, int]:
        """Packets that passed the filter (including dropped ones), and dropped packets, since the start."""
        if _LINUX:
            seen, dropped = struct.unpack("2I", self._socket.ins.getsockopt(_SOL_PACKET, _STATISTICS, 8))
            self._seen += seen
            self._dropped += dropped
        elif hasattr(self._socket, "get_stats"):  # BSD and macOS
            self._dropped = self._socket.get_stats()[1] or 0
        return self._seen + (0 if _LINUX else self._dropped), self._dropped

    def stop(self) -> None:
        """Let no more packets in. Those that are there can still be read."""
        if _LINUX:
            capture_filter.attach(self._socket.ins, capture_filter.NOTHING)
        else:
            self._stopped = True

    def unread(self) -> int:
        """Packets that are there and were not read by `scan`; 0 if the kernel does not count them."""
        seen, dropped = self.counters()
        return seen - dropped - self._received if _LINUX else 0

    def error(self) -> str | None:
        """The last error of the socket, if any."""
        said, self._error = self._error, None
        code = self._socket.ins.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if _LINUX else 0
        return os.strerror(code) if code else said

    def revive(self) -> bool:
        """Whether the interface, which was down or gone, has packets again."""
        if not _LINUX:
            return True
        found = revived(self.interface, self._bind)
        self.interface = found or self.interface
        return found is not None

    def _bind(self, found: Interface) -> None:
        self._socket.ins.bind((found.name, _EVERY_PROTOCOL))

    def close(self) -> None:
        self._socket.close()


def _open(name: str, expression: str, promiscuous: bool) -> Any:
    """Scapy's socket for this system and an interface."""
    logging.getLogger("scapy").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import scapy.arch
            import scapy.layers.inet
            import scapy.layers.inet6  # noqa: F401  (they make the link types known)
            from scapy.config import conf
            from scapy.error import Scapy_Exception
        except ImportError:
            raise ValueError(f"capturing needs scapy here ({install_command('live')})") from None
        # On loopback each packet arrives twice. A socket that can also send leaves out those on their way out.
        kind = conf.L2socket if _LINUX and name == "lo" else conf.L2listen
        try:
            return kind(iface=name, filter=expression, promisc=promiscuous)
        except Scapy_Exception as error:
            raise ValueError(f"{name}: {error}") from None
        except OSError as error:  # of a socket, without the name of its interface
            raise OSError(error.errno, error.strerror, name) from None
