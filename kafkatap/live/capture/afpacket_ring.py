"""A memory-mapped ring of AF_PACKET (TPACKET_V3): the kernel writes packets, the engine reads them in place.

The ring is one array of bytes, in blocks. The kernel passes a block to us when it is full, or some time after its first
packet. `scan` returns the packets of our blocks, and `release` passes these blocks back. It needs only CAP_NET_RAW.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly import afpacket as blocks
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.headers import ETHERNET

from . import capture_filter
from .interfaces import Interface, revived

Array = np.ndarray[Any, Any]

BLOCK = 1 << 20
#: How long the kernel holds back a block that is not full, ms.
RETIRE_MS = 60
#: Packets and blocks per `scan`: so many stay in the processor's caches.
PACKETS_AT_ONCE, BLOCKS_AT_ONCE = 32_768, 4

# <linux/if_packet.h>, <asm-generic/socket.h>: constants that the module socket lacks.
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 1, 5, 6, 10, 23
_TPACKET_V3 = 2
_MR_PROMISC = 1
ETH_P_ALL = 3
_FRAME = 2048  # required by the kernel; a block takes packets of any length


class Ring:
    """One interface, a `packet_source.Tap`. `buffer`: the ring's memory (uint8). `packets`: PACKET rows of `scan`."""

    def __init__(self, interface: Interface, program: bytes, size: int, promiscuous: bool = False) -> None:
        """`program`: see capture_filter.py; `size`: bytes, at least two blocks. PermissionError without CAP_NET_RAW."""
        self.interface = interface
        self._count = max(2, size // BLOCK)
        cooked = interface.link_type != ETHERNET
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
        try:
            self._set_up(program, promiscuous)
        except BaseException:
            self._socket.close()
            raise
        self.buffer: Array = np.frombuffer(self._memory, np.uint8)
        self._status = self.buffer.view(np.uint32)[blocks.STATUS // 4 :: BLOCK // 4]
        self._counts = self.buffer.view(np.uint32)[blocks.COUNT // 4 :: BLOCK // 4]
        self._lengths = self.buffer.view(np.uint32)[blocks.LENGTH // 4 :: BLOCK // 4]
        self.packets: Array = untouched(PACKETS_AT_ONCE, PACKET)
        self._state = np.zeros(1, blocks.RING_STATE)
        self._state["next_number"] = 1
        self._places = np.zeros(BLOCKS_AT_ONCE, np.int64)
        self._next = 0  # the block that the kernel passes next
        self._held = 0  # blocks before it that are not released
        self._seen = self._dropped = 0

    def _set_up(self, program: bytes, promiscuous: bool) -> None:
        link = self._socket
        link.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        capture_filter.attach(link, program)
        if self.interface.loopback_only:
            with suppress(OSError):  # Linux before 4.20: `scan` leaves the copies out, but they use room in the ring
                link.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        request = struct.pack("7I", BLOCK, self._count, _FRAME, BLOCK // _FRAME * self._count, RETIRE_MS, 0, 0)
        link.setsockopt(_SOL_PACKET, _RX_RING, request)
        self._memory = mmap.mmap(link.fileno(), BLOCK * self._count, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._promiscuous = promiscuous
        self._bind(self.interface)
        link.setblocking(False)

    def _bind(self, interface: Interface) -> None:
        if self._promiscuous and interface.index:
            request = struct.pack("iHH8s", interface.index, _MR_PROMISC, 0, b"")
            self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, request)
        # The module socket cannot bind to all interfaces (number 0) at once.
        address = struct.pack("=HHiHBB8x", socket.AF_PACKET, socket.htons(ETH_P_ALL), interface.index, 0, 0, 0)
        if ctypes.CDLL(None, use_errno=True).bind(self._socket.fileno(), address, len(address)):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), interface.name)
        self.interface = replace(self.interface, index=interface.index)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def ready(self) -> bool:
        """Whether packets wait."""
        return bool(self._state["position"][0]) or bool(self._status[self._next] & blocks.OURS)

    @property
    def backlog(self) -> float:
        """The part of the ring's bytes that wait, 0 to 1. (More blocks may be ours, with few bytes in them.)"""
        return sum(int(self._lengths[block]) for block in self._waiting()) / self.buffer.size

    def _waiting(self) -> Iterator[int]:
        """Our blocks that were not scanned, in the order in which they were filled."""
        for number in range(self._next, self._next + self._count - self._held):
            block = number % self._count
            if not self._status[block] & blocks.OURS:
                return
            yield block

    def scan(self, number: int) -> int:
        """Fill `packets`, numbered from `number` on. Return the count. Their bytes are valid until `release`."""
        state, made = self._state, 0
        state["next_number"] = number
        if not state["position"][0]:
            self._fetch_headers()
        while self._held < min(BLOCKS_AT_ONCE, self._count) and self.ready:
            start = self._next * BLOCK
            made = blocks.scan_block(
                self.buffer, start, start + BLOCK, self.interface.link_type, state, self.packets, made
            )
            if state["left"][0]:
                break
            state["position"] = 0
            self._held += 1
            self._next = (self._next + 1) % self._count
        return made

    def _fetch_headers(self) -> None:
        """Prefetch the headers of the blocks that are scanned next."""
        count = 0
        for count, block in enumerate(islice(self._waiting(), BLOCKS_AT_ONCE), 1):
            self._places[count - 1] = block * BLOCK
        blocks.fetch_headers(self.buffer, self._places, count)

    def release(self) -> None:
        """Pass the scanned blocks back to the kernel."""
        first = self._next - self._held
        for block in range(first, self._next):
            self._status[block % self._count] = 0
        self._held = 0

    def counters(self) -> tuple[int, int]:
        """Packets that passed the filter (including dropped ones), and dropped packets, since the start."""
        seen, dropped, _ = struct.unpack("3I", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 12))
        self._seen += seen
        self._dropped += dropped
        return self._seen, self._dropped

    def stop(self) -> None:
        """Let no more packets in. Those that are there can still be read."""
        capture_filter.attach(self._socket, capture_filter.NOTHING)

    def unread(self) -> int:
        """Packets that are there and were not read by `scan`. The number is final RETIRE_MS after `stop`."""
        begun = bool(self._state["position"][0])
        counts = [int(self._counts[block]) for block in self._waiting()]
        return sum(counts[1:] if begun else counts) + (int(self._state["left"][0]) if begun else 0)

    def error(self) -> str | None:
        """The error of the socket, if any: the interface went down, for example."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return os.strerror(code) if code else None

    def revive(self) -> bool:
        """Whether the interface, which was down or gone, has packets again."""
        return revived(self.interface, self._bind)

    def close(self) -> None:
        self._socket.close()


def check_capability() -> None:
    """PermissionError without CAP_NET_RAW."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
