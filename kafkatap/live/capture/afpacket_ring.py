"""A memory-mapped ring of AF_PACKET (TPACKET_V3): the kernel writes packets, the engine reads them in place.

The ring is one array of bytes, in blocks. The kernel passes a block to us when it is full, or some time after its first
packet. `assemble` turns the packets of our blocks into chunks, `scan` into PACKET rows. `release` passes these blocks
back. It needs only CAP_NET_RAW.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly import afpacket
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.link_types import ETHERNET
from kafkatap.reassembly.packet_tables import PacketTables

from . import capture_filter
from .fanout import Fanout
from .interfaces import Interface, revived

Array = np.ndarray[Any, Any]

BLOCK = 1 << 20
#: How long the kernel holds back a block that is not full, ms.
RETIRE_MS = 60
#: So many blocks may wait at any time: RETIRE_MS each, until the next look.
USUAL_BLOCKS = 8
#: Blocks per `assemble` or `scan`, and packets per `scan`: so many stay in the processor's caches.
BLOCKS_AT_ONCE, PACKETS_AT_ONCE = 4, 32_768

#: Places of fields among the int64s of RING_STATE.
_WAITING_BYTES, _WAITING_PACKETS = map(
    list(afpacket.RING_STATE.fields or ()).index, ("waiting_bytes", "waiting_packets")
)

# <linux/if_packet.h>, <asm-generic/socket.h>: constants that the module socket lacks.
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 1, 5, 6, 10, 23
_TPACKET_V3 = 2
_MR_PROMISC = 1
ETH_P_ALL = 3
_FRAME = 2048  # required by the kernel; a block takes packets of any length


class Ring:
    """One interface, a `packet_source.Tap`. `buffer`: the ring's memory (uint8). `packets`: PACKET rows of `scan`."""

    def __init__(
        self, interface: Interface, program: bytes, size: int, promiscuous: bool = False, group: Fanout | None = None
    ) -> None:  # fmt: skip
        """`program`: see capture_filter.py; `size`: bytes, at least two blocks. `group`: of the rings of an interface
        that share its packets; then none come before `begin`. PermissionError without CAP_NET_RAW."""
        self.interface = interface
        self._program, self._group = program, group
        self._count = max(2, size // BLOCK)
        cooked = interface.link_type != ETHERNET
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
        try:
            self._set_up(program if group is None else capture_filter.NOTHING, promiscuous)
            if group is not None:
                group.add(self._socket, interface.loopback_only)
        except BaseException:
            self._socket.close()
            raise
        self.buffer: Array = np.frombuffer(self._memory, np.uint8)
        self.packets: Array = untouched(PACKETS_AT_ONCE, PACKET)
        self._state = np.zeros(1, afpacket.RING_STATE)
        self._state["next_number"] = 1
        self._numbers: Array = self._state.view(np.int64)
        self._lanes = np.zeros(afpacket.LANES, afpacket.LANE)
        self._tables: PacketTables | None = None  # those of `_assemble_blocks`
        self._assemble_blocks: Callable[..., int]
        self._count_waiting = afpacket.count_waiting.bound(self.buffer, BLOCK, self._state)
        self._release_blocks = afpacket.release_blocks.bound(self.buffer, BLOCK, self._state)
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

    def begin(self) -> None:
        """Let packets in: all rings of the group are there."""
        capture_filter.attach(self._socket, self._program)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def ready(self) -> bool:
        """Whether packets wait."""
        return self._waiting() > 0

    @property
    def backlog(self) -> float:
        """The part of the ring that waits, 0 to 1: of its bytes, or of its blocks, if that is more. The kernel needs
        free blocks, and fills few of them at a low rate. Those of the last moments are no sign of a wait."""
        blocks = self._waiting() - USUAL_BLOCKS
        return float(max(self._numbers.item(_WAITING_BYTES) / self.buffer.size, blocks / self._count))

    def _waiting(self) -> int:
        """Count the blocks that are ours and were not read to their end."""
        return self._count_waiting()

    def assemble(self, assembler: Assembler) -> Iterator[int]:
        """Turn packets that wait into chunks, as `Assembler.read`. Their bytes are valid until `release`."""
        return assembler.read(self._assemble)

    def _assemble(self, tables: PacketTables) -> int:
        if tables is not self._tables:  # few tables grow after the first seconds
            self._tables = tables
            self._assemble_blocks = afpacket.assemble_blocks.bound(
                self.buffer, BLOCK, self.interface.link_type, self._state, self._lanes, tables
            )
        return self._assemble_blocks(BLOCKS_AT_ONCE)

    def scan(self, number: int) -> int:
        """Fill `packets`, numbered from `number` on. Return the count. Their bytes are valid until `release`."""
        self._state["next_number"] = number
        return afpacket.scan_blocks(
            self.buffer, BLOCK, self.interface.link_type, self._state, self._lanes, self.packets, BLOCKS_AT_ONCE
        )

    def release(self) -> None:
        """Pass the blocks that were read back to the kernel."""
        self._release_blocks()

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
        """Packets that are there and were not read. The number is final RETIRE_MS after `stop`."""
        self._waiting()
        return int(self._numbers.item(_WAITING_PACKETS))

    def error(self) -> str | None:
        """The error of the socket, if any: the interface went down, for example."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return os.strerror(code) if code else None

    def revive(self) -> bool:
        """Whether the interface, which was down or gone, has packets again."""
        found = revived(self.interface, self._bind if self._group is None else _stays)
        self.interface = found or self.interface
        return found is not None

    def close(self) -> None:
        self._socket.close()


def _stays(interface: Interface) -> None:
    """A socket of a group cannot be bound to another interface."""
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), interface.name)


def check_capability() -> None:
    """PermissionError without CAP_NET_RAW."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
