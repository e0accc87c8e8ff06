"""Packets through scapy's capture sockets, one by one: for systems that have no AF_PACKET ring.

They are copied into a block, in which the engine reads them as it does a ring's. Slow (some ten thousand packets a
second), and times are scapy's: floating point seconds, good for a quarter of a microsecond.
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
from dataclasses import replace
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.headers import ETHERNET, LOOP, NULL, RAW, SLL, SLL2

from ...installation import install_command
from . import capture_filter
from .interfaces import Interface, find, revived

Array = np.ndarray[Any, Any]

BLOCK, PACKETS_AT_ONCE = 4 << 20, 8192
#: What scapy calls the layers that packets begin with.
_LINK_TYPES = {
    "Ether": ETHERNET, "Loopback": NULL, "LoopbackOpenBSD": LOOP, "CookedLinux": SLL, "CookedLinuxV2": SLL2,
    "IP": RAW, "IPv6": RAW, "IPv46": RAW,
}  # fmt: skip
_UNKNOWN_LINK = -1  # counted as such, never read
_LINUX = sys.platform == "linux"
_SO_RCVBUFFORCE, _SOL_PACKET, _STATISTICS, _EVERY_PROTOCOL = 33, 263, 6, 3


class CaptureSocket:
    """One interface, a `capture.Tap`. `size`: bytes that the system is asked to keep for us; it may give less.

    ValueError where the filter or the name is wrong or scapy is missing, PermissionError without the right to capture,
    OSError where the interface is down.
    """

    def __init__(self, name: str, expression: str, size: int, promiscuous: bool = False) -> None:
        if _LINUX:
            self.interface = find(name)
            program = capture_filter.compile_filter(expression, self.interface.link_type, name)
            self._socket = _open(name, expression, promiscuous)
            self._set_up(program, size)
        else:
            self._socket = _open(name, expression, promiscuous)
            self.interface = Interface(name, 0, _LINK_TYPES.get(self._socket.LL.__name__, _UNKNOWN_LINK))
        self.buffer: Array = np.zeros(BLOCK, np.uint8)
        self.packets: Array = untouched(PACKETS_AT_ONCE, PACKET)
        self._bytes = memoryview(self.buffer)  # type: ignore[arg-type]
        self._blocks = not (_LINUX or self._socket.nonblocking_socket)
        self._full = self._stopped = False
        self._received = 0  # with those on their way out of loopback
        self._seen = self._dropped = 0
        self._error: str | None = None

    def _set_up(self, program: bytes, size: int) -> None:
        link: socket.socket = self._socket.ins
        link.setblocking(False)
        capture_filter.attach(link, program)  # scapy's own keeps of a packet 65,535 bytes; loopback has larger ones
        with suppress(OSError):  # without CAP_NET_ADMIN: as much as the system lets everybody have
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size // 2)
            link.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size // 2)
        link.getsockopt(_SOL_PACKET, _STATISTICS, 8)  # starts anew: scapy's begins on all interfaces, with no room

    def fileno(self) -> int:
        return int(self._socket.fileno())

    @property
    def ready(self) -> bool:
        """Whether packets wait of which `fileno` does not tell."""
        return self._full

    @property
    def backlog(self) -> float:
        """The kernel does not tell."""
        return 0.0

    def scan(self, number: int) -> int:
        """Fill `packets`, counted from `number` on, with what is there; how many."""
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
        """A packet, and when it came; None where none waits."""
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
            # (Here it is a packet on its way out of loopback: it comes again on its way in.)
        return None

    def release(self) -> None:
        """Nothing is handed back: packets were copied."""

    def counters(self) -> tuple[int, int]:
        """Packets that passed the filter (with those dropped), and those dropped, since the start."""
        if _LINUX:
            seen, dropped = struct.unpack("2I", self._socket.ins.getsockopt(_SOL_PACKET, _STATISTICS, 8))
            self._seen += seen
            self._dropped += dropped
        elif hasattr(self._socket, "get_stats"):  # BSD and macOS
            self._dropped = self._socket.get_stats()[1] or 0
        return self._seen + (0 if _LINUX else self._dropped), self._dropped

    def stop(self) -> None:
        """Let no more packets in; those that are there can still be taken."""
        if _LINUX:
            capture_filter.attach(self._socket.ins, capture_filter.NOTHING)
        else:
            self._stopped = True

    def unread(self) -> int:
        """Packets that are there and were not given by `scan`; where the kernel does not tell, none."""
        seen, dropped = self.counters()
        return seen - dropped - self._received if _LINUX else 0

    def error(self) -> str | None:
        """What the socket had to say last, if anything."""
        said, self._error = self._error, None
        code = self._socket.ins.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if _LINUX else 0
        return os.strerror(code) if code else said

    def revive(self) -> bool:
        """Whether the interface, which was down or gone, gives packets (again)."""
        if not _LINUX:
            return True
        return revived(self.interface, self._bind)

    def _bind(self, found: Interface) -> None:
        self._socket.ins.bind((found.name, _EVERY_PROTOCOL))
        self.interface = replace(self.interface, index=found.index)

    def close(self) -> None:
        self._socket.close()


def _open(name: str, expression: str, promiscuous: bool) -> Any:
    """Scapy's own socket for a system and an interface."""
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
        # On loopback packets come twice; a socket that could send as well leaves out those on their way out.
        kind = conf.L2socket if _LINUX and name == "lo" else conf.L2listen
        try:
            return kind(iface=name, filter=expression, promisc=promiscuous)
        except Scapy_Exception as error:
            raise ValueError(f"{name}: {error}") from None
        except OSError as error:  # of a socket, which does not tell its interface
            raise OSError(error.errno, error.strerror, name) from None
