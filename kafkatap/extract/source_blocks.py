"""What a capture says beside its packets' bytes: interfaces, the exact times, and the options of packets.

The scanner of `reassembly` finds packets and their bytes. This module reads the blocks around them: the packets of a
pcapng lie in blocks that follow one another, so only what lies between two of them is walked through.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.pcap_writer import PACKET_BLOCK
from kafkatap.reassembly.pcapng import (
    ENHANCED_PACKET,
    INTERFACE_DESCRIPTION,
    OBSOLETE_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
)
from kafkatap.reassembly.pcapng_blocks import COMMENT, FILTER, FRAME_CHECK_LENGTH, INTERFACE_NAME, RESOLUTION, Options
from kafkatap.reassembly.scanner import NANOSECONDS

from ..captures.capture_reader import CaptureReader

Array = np.ndarray[Any, Any]
#: Bytes of the fields before the packet's own in a block: of enhanced and obsolete ones, and of simple ones.
_BEFORE, _BEFORE_SIMPLE = 28, 12

#: Options of interfaces that are copied, with their widths: of integers, negative ones of other values, 0 of texts.
_OF_INTERFACES = {
    COMMENT: 0, INTERFACE_NAME: 0, 3: 0, 4: -8, 5: -17, 6: -6, 7: -8, 8: 8, RESOLUTION: -1, 10: 4, 12: 0,
    FRAME_CHECK_LENGTH: -1, 14: 8, 15: 0, 16: 8, 17: 8,
}  # fmt: skip
#: Those that say nothing of the host: resolution, length of the frame check sequence, time offset.
_PLAIN_OF_INTERFACES = (RESOLUTION, FRAME_CHECK_LENGTH, 14)
#: Options of packets that are copied. The hash (3) is of bytes that may be rewritten, so it is copied only with texts.
_OF_PACKETS = {COMMENT: 0, 2: 4, 3: 0, 4: 8, 5: 8, 6: 4, 7: 0}
_PLAIN_OF_PACKETS = (2, 4, 5, 6)
_TEXT = re.compile(rb"[\x20-\x7e]{6}")


@dataclass(frozen=True)
class SourceInterface:
    """An interface of a capture. `number`: its place among those of the capture. `options`: those to write, in
    little-endian order. `ticks_ns`: ns of a tick for a classic pcap, whose times come as ns; None if blocks have
    ticks."""

    number: int
    link_type: int
    snap_length: int
    options: tuple[tuple[int, bytes], ...]
    ticks_ns: int | None = None


class SourceReader(CaptureReader):
    """A `CaptureReader` that knows the interface and the block of each packet in packets[0:count].

    `with_texts` False: names, comments and filters are not read.
    """

    def __init__(self, path: str, with_texts: bool = True) -> None:
        self.interfaces: list[SourceInterface] = []
        self._with_texts = with_texts
        self._order = "<"
        self._section = 0  # number of the first interface of the section
        self._places: Array = np.zeros(0, np.int64)  # where the block of each packet begins,
        self._sections: Array = np.zeros(0, np.int64)  # the first interface of its section,
        self._orders: list[str] = []  # and the byte order
        super().__init__(path)
        if self.is_classic and not self.report.fatal:
            self._add_classic()

    @property
    def is_classic(self) -> bool:
        """Whether the capture is a pcap, not a pcapng."""
        return self._scanner.format != "pcapng"

    def _add_classic(self) -> None:
        is_fine = self._scanner.format == NANOSECONDS
        resolution = ((RESOLUTION, b"\x09" if is_fine else b"\x06"),)
        link = self._scanner.link_types[0]
        self.interfaces.append(SourceInterface(0, link, self._scanner.snap_length, resolution, 1 if is_fine else 1_000))

    def _scan(self) -> None:
        start = self._at
        super()._scan()
        if not self.is_classic:
            self._walk(start, self._at)

    # ---------------------------------------------------------------- packets

    def blocks_of(self, rows: Array) -> tuple[Array, dict[int, Options]]:
        """What is written of the packets in some rows: PACKET_BLOCK, and their options that are copied, by place."""
        packets = taken(self.packets, rows)
        made = np.zeros(len(rows), PACKET_BLOCK)
        for name in ("at", "captured", "original"):
            made[name] = packets[name]
        if self.is_classic:
            made["ticks"] = np.maximum(packets["ts"] // (self.interfaces[0].ticks_ns or 1), 0)
            return made, {}
        raw = self.buffer[np.minimum(self._places[rows][:, None] + np.arange(20), len(self.buffer) - 1)]
        are_big = np.array([self._orders[row] == ">" for row in rows.tolist()], bool)
        words = np.where(are_big[:, None], raw.view(">u4"), raw.view("<u4")).astype(np.int64)
        kind, length, interface, high, low = words.T
        interface = np.where(kind == OBSOLETE_PACKET, np.where(are_big, interface >> 16, interface & 0xFFFF), interface)
        is_simple = kind == SIMPLE_PACKET
        made["interface"] = self._sections[rows] + np.where(is_simple, 0, interface)
        made["ticks"] = np.where(is_simple, 0, high << 32 | low)
        options = {}
        for place in np.flatnonzero(~is_simple & (length > _BEFORE + 4 + (made["captured"] + 3 & ~3))).tolist():
            found = self._options_of(int(rows[place]), int(made["captured"][place]), int(length[place]))
            if found:
                options[place] = found
        return made, options

    def _options_of(self, row: int, captured: int, length: int) -> Options:
        """The options of a packet of `captured` bytes that are copied. `length`: of its block."""
        at = int(self._places[row])
        kept = _OF_PACKETS if self._with_texts else {code: _OF_PACKETS[code] for code in _PLAIN_OF_PACKETS}
        return self._options(at + _BEFORE + (captured + 3 & ~3), at + length - 4, kept, self._orders[row])

    # ---------------------------------------------------------------- blocks

    def _word(self, at: int, order: str = "") -> int:
        value: int = struct.unpack_from((order or self._order) + "I", cast(Any, self.buffer), at)[0]
        return value

    def _walk(self, start: int, end: int) -> None:
        """Find the blocks of the packets that were scanned, and read the interfaces between them."""
        rows = self.packets[: self.count]
        at = rows["at"].astype(np.int64)
        begins, lengths = at - _BEFORE, self._lengths(at)
        self._places, self._sections = begins.copy(), np.zeros(len(at), np.int64)
        orders: list[str] = []
        ends = begins + lengths
        expected = np.append(start, ends)[:-1] if len(ends) else ends
        unusual = begins != expected
        position, row = start, 0
        while row < len(at):
            if not unusual[row]:
                following = np.flatnonzero(unusual[row:])
                stop = row + int(following[0]) if len(following) else len(at)
                self._sections[row:stop] = self._section
                orders += [self._order] * (stop - row)
                position, row = int(ends[stop - 1]), stop
                continue
            order = self._order
            position = self._walk_to(position, int(at[row]))
            self._places[row], self._sections[row] = position, self._section
            orders.append(self._order)
            position += self._word(position + 4)
            if order != self._order:
                lengths[row:] = self._lengths(at[row:])
                ends[row:] = begins[row:] + lengths[row:]
                unusual[row + 1 :] = begins[row + 1 :] != ends[row:-1]
            row += 1
            if row < len(at):
                unusual[row] = begins[row] != position
        self._orders = orders
        while position < end:
            position = self._pass_block(position)

    def _lengths(self, at: Array) -> Array:
        """The length fields of enhanced packet blocks whose packets begin at `at`."""
        places = np.maximum(at - 24, 0)[:, None] + np.arange(4)
        found: Array = self.buffer[places].copy().view(self._order + "u4").reshape(-1).astype(np.int64)
        return found

    def _walk_to(self, position: int, data: int) -> int:
        """Pass the blocks before that of the packet whose bytes begin at `data`; return where it begins."""
        while True:
            kind = self._word(position)
            if kind in (ENHANCED_PACKET, OBSOLETE_PACKET) and position + _BEFORE == data:
                return position
            if kind == SIMPLE_PACKET and position + _BEFORE_SIMPLE == data:
                return position
            position = self._pass_block(position)

    def _pass_block(self, at: int) -> int:
        """Read a block that is not copied; return where the next one begins."""
        kind = self._word(at)
        if kind == SECTION_HEADER:
            self._order = ">" if self.buffer[at + 8 : at + 12].tobytes() == b"\x1a\x2b\x3c\x4d" else "<"
            self._section = len(self.interfaces)
        length = self._word(at + 4)
        if kind == INTERFACE_DESCRIPTION and length >= 20:
            link_type, _, snap_length = struct.unpack_from(self._order + "HHI", cast(Any, self.buffer), at + 8)
            options = self._options(at + 16, at + length - 4, self._kept_of_interfaces, self._order)
            self.interfaces.append(SourceInterface(len(self.interfaces), link_type, snap_length, tuple(options)))
        return at + length

    @property
    def _kept_of_interfaces(self) -> dict[int, int]:
        if self._with_texts:
            return {**_OF_INTERFACES, FILTER: 0}
        return {code: _OF_INTERFACES[code] for code in _PLAIN_OF_INTERFACES}

    def _options(self, at: int, end: int, kept: dict[int, int], order: str) -> list[tuple[int, bytes]]:
        """The options in buffer[at:end] whose codes are in `kept` and which have the width of their code. Integers
        become little-endian. Without texts, each code is copied once, and no value that is a text."""
        found: list[tuple[int, bytes]] = []
        while at + 4 <= end:
            code, length = struct.unpack_from(order + "HH", cast(Any, self.buffer), at)
            if code == 0 or at + 4 + length > end:
                break
            value = self.buffer[at + 4 : at + 4 + length].tobytes()
            width = kept.get(code)
            if width is not None and width in (0, length, -length):
                is_again = any(code == other for other, _ in found)
                if self._with_texts or not (is_again or _TEXT.search(value)):
                    found.append((code, value[::-1] if width > 0 and order == ">" else value))
            at += 4 + (length + 3 & ~3)
        return found
