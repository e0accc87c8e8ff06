"""One capture's bytes in, PACKET rows out. The format is told by the first bytes, never by a file's name."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.arrays import grown, untouched

from . import pcap, pcapng
from .dtypes import PACKET
from .errors import DamagedCapture, EmptyCapture, NotACapture

U8 = np.ndarray[Any, np.dtype[np.uint8]]
Packets = np.ndarray[Any, np.dtype[Any]]

#: Formats that are no pcapng.
MICROSECONDS, NANOSECONDS, MODIFIED = "pcap", "pcap (nanoseconds)", "pcap (modified)"
#: magic as its bytes lie in the file -> (byte order is big-endian, format)
_PCAP_MAGIC = {
    bytes.fromhex("d4c3b2a1"): (0, MICROSECONDS),
    bytes.fromhex("a1b2c3d4"): (1, MICROSECONDS),
    bytes.fromhex("4d3cb2a1"): (0, NANOSECONDS),
    bytes.fromhex("a1b23c4d"): (1, NANOSECONDS),
    bytes.fromhex("34cdb2a1"): (0, MODIFIED),
    bytes.fromhex("a1b2cd34"): (1, MODIFIED),
}
_PCAPNG_MAGIC = bytes.fromhex("0a0d0d0a")
#: Bytes that the format is told by.
HEADER_SIZE = 24
#: Past the end of any capture.
NOWHERE = 1 << 62


class Scanner:
    """Splits one capture into packets, block by block.

    `start(first_bytes)` reads the file header and says how many bytes it took; `scan(buffer, start, end)` fills
    `packets` and returns (number of packets, first byte not taken).
    """

    def __init__(self, packets: int = 65_536) -> None:
        self.packets: Packets = untouched(packets, PACKET)
        self.format = ""
        self.snap_length = 0
        self._state = np.zeros(pcapng.NG_STATE_SIZE, dtype=np.int64)
        self._state[pcap.NEXT_NUMBER] = 1
        self._state[pcap.STOP] = NOWHERE
        self._interfaces = np.zeros(16 * pcapng.INTERFACE_WIDTH, dtype=np.int64)

    def number_from(self, first: int) -> None:
        """Count packets from `first` on; those read already were counted from 1."""
        self._state[pcap.NEXT_NUMBER] += first - 1

    def start(self, head: bytes) -> int:
        """Tell the format by the first HEADER_SIZE bytes (fewer: the whole capture); return the header's length."""
        if not head:
            raise EmptyCapture("the file is empty (0 bytes)")
        magic = head[:4]
        if magic == _PCAPNG_MAGIC:
            self.format = "pcapng"
            return 0
        if magic not in _PCAP_MAGIC:
            raise NotACapture(f"not a pcap or pcapng capture (it begins with the bytes {magic.hex(' ')})")
        if len(head) < HEADER_SIZE:
            there = f"only {len(head)} of the {HEADER_SIZE} bytes of a pcap header are there"
            raise DamagedCapture(f"cut short: {there}", len(head))
        big, self.format = _PCAP_MAGIC[magic]
        order = "big" if big else "little"
        self._state[pcap.SWAPPED] = big
        self._state[pcap.NANOSECONDS] = self.format == NANOSECONDS
        self._state[pcap.RECORD_HEADER] = pcap.MODIFIED_HEADER if self.format == MODIFIED else pcap.HEADER
        # The upper 6 bits tell of a frame check sequence, not of the link type.
        self._state[pcap.LINK_TYPE] = int.from_bytes(head[20:24], order) & 0x03FFFFFF  # type: ignore[arg-type]
        self.snap_length = int.from_bytes(head[16:20], order)  # type: ignore[arg-type]
        return HEADER_SIZE

    def know(self, blocks: bytes) -> None:
        """Take the blocks of a pcapng that tell of sections and interfaces, and hold no packet, as if read before."""
        buffer = np.frombuffer(bytearray(blocks), np.uint8)
        at = 0
        while at < len(buffer):
            _, at = self.scan(buffer, at, len(buffer))

    def scan(self, buffer: U8, start: int, end: int, stop: int = NOWHERE) -> tuple[int, int]:
        """Split buffer[start:end], but for records that begin at `stop` or later.

        Raises DamagedCapture (offset relative to the buffer) if nothing can be taken.
        """
        self._state[pcap.STOP] = stop
        while True:
            if self.format == "pcapng":
                count = pcapng.scan_pcapng(buffer, start, end, self._state, self._interfaces, self.packets)
            else:
                count = pcap.scan_pcap(buffer, start, end, self._state, self.packets)
            position = int(self._state[pcap.POSITION])
            status = int(self._state[pcap.STATUS])
            if count == 0 and status == pcap.OUTPUT_FULL:  # only interfaces can fill up with no packet read
                self._interfaces = grown(self._interfaces)
                start = position
                continue
            if count == 0 and status == pcap.DAMAGED:
                raise DamagedCapture(f"damaged: there can be no {self.format.partition(' ')[0]} record", position)
            return count, position

    @property
    def more(self) -> bool:
        """Whether the last scan stopped because `packets` was full (or at damage), not at the end of its bytes."""
        return int(self._state[pcap.STATUS]) != pcap.SCANNED

    @property
    def dropped(self) -> int | None:
        """Packets that the capturing program says it dropped; None where the capture does not tell."""
        return int(self._state[pcapng.DROPPED]) if self._state[pcapng.DROPS_TOLD] else None

    @property
    def drops(self) -> dict[int, int]:
        """The same for each interface that tells, by its number in the whole capture."""
        told = self._interfaces[: int(self._state[pcapng.INTERFACES]) * pcapng.INTERFACE_WIDTH]
        return {n: int(d) for n, d in enumerate(told[pcapng.INTERFACE_WIDTH - 1 :: pcapng.INTERFACE_WIDTH]) if d >= 0}

    @property
    def swapped(self) -> int:
        """Whether the capture (of a pcapng: this section of it) is big-endian."""
        return int(self._state[pcap.SWAPPED])

    @property
    def link_types(self) -> tuple[int, ...]:
        """The link types of this capture's interfaces."""
        if self.format != "pcapng":
            return (int(self._state[pcap.LINK_TYPE]),)
        count = int(self._state[pcapng.INTERFACES])
        return tuple(dict.fromkeys(int(t) for t in self._interfaces[: count * 4 : pcapng.INTERFACE_WIDTH]))
