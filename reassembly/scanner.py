"""One capture's bytes in, PACKET rows or chunks out. The first bytes show the format; file names do not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.kernels.table import Table

from . import one_pass, pcap, pcapng
from .dtypes import PACKET
from .errors import DamagedCapture, EmptyCapture, NotACapture
from .shards import SHARED_RECORD, SHARED_STATE, share_records
from .stream_tables import ASSEMBLED

if TYPE_CHECKING:
    from .assembler import Assembler
    from .packet_tables import PacketTables

U8 = np.ndarray[Any, np.dtype[np.uint8]]
Packets = np.ndarray[Any, np.dtype[Any]]

#: The formats other than pcapng.
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
#: How many bytes show the format.
HEADER_SIZE = 24
#: The most bytes of decryption secrets that are read from a capture.
SECRETS_ROOM = 64 * 1024 * 1024
#: The most bytes of blocks with names of addresses that are read from a capture, and the most names.
NAMES_ROOM, MOST_NAMES = 16 * 1024 * 1024, 100_000
#: Past the end of any capture.
NOWHERE = 1 << 62
_NO_RECORDS, _NO_STATE = np.zeros(0, SHARED_RECORD), np.zeros(1, SHARED_STATE)


class Scanner:
    """Splits one capture into packets, block by block.

    `start(first_bytes)` reads the file header and returns its length. `scan(buffer, start, end)` fills `packets` and
    returns (number of packets, first byte that was not read). `packets` has this many rows, or is `table`. `assemble`
    makes chunks instead.
    """

    def __init__(self, packets: int = 65_536, table: Packets | None = None) -> None:
        self.packets: Packets = untouched(packets, PACKET) if table is None else table
        self.format = ""
        self.snap_length = 0
        self._state = np.zeros(1, pcap.SCAN_STATE)
        self._state["next_number"] = 1
        self._state["stop"] = NOWHERE
        self._state["secrets_room"] = SECRETS_ROOM
        self._state["names_room"] = NAMES_ROOM
        self._secrets: list[bytes] = []
        self.secrets = 0  # blocks with TLS secrets that were read
        #: Addresses and the names that blocks of a pcapng give them.
        self.names: dict[tuple[str, str], None] = {}
        self._interfaces = Table(16, interfaces=pcapng.INTERFACE)

    def number_from(self, first: int) -> None:
        """Number packets from `first` on. Those read already were numbered from 1."""
        self._state["next_number"] += first - 1

    @property
    def next_number(self) -> int:
        """The number of the next packet."""
        return int(self._state["next_number"][0])

    def start(self, head: bytes) -> int:
        """Detect the format from the first HEADER_SIZE bytes (fewer: the whole capture); return the header's length."""
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
        self._state["swapped"] = big
        self._state["nanoseconds"] = self.format == NANOSECONDS
        self._state["record_header"] = pcap.MODIFIED_HEADER if self.format == MODIFIED else pcap.HEADER
        # The upper 6 bits describe a frame check sequence, not the link type.
        self._state["link_type"] = int.from_bytes(head[20:24], order) & 0x03FFFFFF  # type: ignore[arg-type]
        self.snap_length = int.from_bytes(head[16:20], order)  # type: ignore[arg-type]
        return HEADER_SIZE

    def know(self, blocks: bytes) -> None:
        """Read the section headers and interface descriptions of a pcapng from earlier in the file."""
        buffer = np.frombuffer(bytearray(blocks), np.uint8)
        at = 0
        while at < len(buffer):
            _, at = self.scan(buffer, at, len(buffer))

    def scan(self, buffer: U8, start: int, end: int, stop: int = NOWHERE) -> tuple[int, int]:
        """Split buffer[start:end] into packets, except for records that begin at `stop` or later.

        Raises DamagedCapture (offset relative to the buffer) if the first record is damaged.
        """
        self._state["stop"] = stop
        while True:
            if self.format == "pcapng":
                count = pcapng.scan_pcapng(
                    buffer, start, end, self._state, self._interfaces["interfaces"], self.packets
                )
            else:
                count = pcap.scan_pcap(buffer, start, end, self._state, self.packets)
            position = self.position
            status = int(self._state["status"][0])
            if status == pcap.SCAN_NOTED:
                self._note(buffer)
            if count == 0 and status == pcap.SCAN_FULL:  # without a packet only the interfaces can be full
                self._interfaces.grow()
            if count == 0 and status in (pcap.SCAN_FULL, pcap.SCAN_NOTED):
                start = position
                continue
            if count == 0 and status == pcap.SCAN_DAMAGED:
                raise self._damaged()
            return count, position

    def begin_sharing(self, start: int, shared: Packets) -> None:
        """Begin with the first record of a block. `shared`: a row of SHARED_STATE, for it."""
        state = self._state[0]
        state.position, state.record = start, 0
        shared["first"], shared["last"], shared["begin"], shared["end"] = NOWHERE, -NOWHERE, start, start

    def share(self, buffer: U8, end: int, shards: int, records: Packets, shared: Packets) -> int:
        """Find the next records in the block, up to buffer[end], for so many engines; return how many it has so far.
        `records`: SHARED_RECORD rows for all of them. `position` is the first byte that was not read.

        There are fewer where a record is damaged, or `records` is full.
        """
        while True:
            interfaces = self._interfaces["interfaces"]
            count: int = share_records(buffer, self.position, end, self._state, interfaces, shards, records, shared)
            if self._state["status"][0] != pcap.SCAN_FULL or count == len(records):
                return count
            self._interfaces.grow()

    def assemble(
        self,
        buffer: U8,
        start: int,
        end: int,
        assembler: Assembler,
        stop: int = NOWHERE,
        shared: tuple[Packets, Packets] | None = None,
    ) -> Iterator[int]:
        """Turn the packets in buffer[start:end] into chunks of `assembler`; yield each time that chunks are ready.

        Records that begin at `stop` or later are left. At the end `position` is the first byte that was not read.
        Raises DamagedCapture there, as `scan` does. `shared`: what `share` of another scanner found in it.
        """
        state = self._state[0]
        state.position, state.record = start, 0
        records, of_records = (_NO_RECORDS, _NO_STATE) if shared is None else shared

        def read(tables: PacketTables) -> int:
            while True:
                interfaces = self._interfaces["interfaces"]
                if state.record < len(records):
                    full = one_pass.assemble_shared(buffer, end, records, of_records, self._state, interfaces, tables)
                    if full == ASSEMBLED and state.status == pcap.SCAN_ENDED:
                        continue
                else:
                    full = one_pass.assemble_records(buffer, self.position, end, self._state, interfaces, tables)
                if state.status == pcap.SCAN_NOTED:
                    self._note(buffer)
                elif full != ASSEMBLED or state.status != pcap.SCAN_FULL:
                    return full
                else:
                    self._interfaces.grow()

        state.stop = stop
        yield from assembler.read(read)
        if state.status == pcap.SCAN_DAMAGED:
            raise self._damaged()

    def _damaged(self) -> DamagedCapture:
        return DamagedCapture(f"damaged: there can be no {self.format.partition(' ')[0]} record", self.position)

    def _note(self, buffer: U8) -> None:
        """Copy what the scan stopped behind."""
        state = self._state[0]
        found = buffer[state.noted : state.noted + state.noted_length].tobytes()
        if state.noted_kind == pcapng.DECRYPTION_SECRETS:
            self.secrets += 1
            self._secrets.append(found)
            return
        from .pcapng_blocks import names_in  # few captures have names

        for pair in names_in(found, bool(state.swapped)):
            if len(self.names) < MOST_NAMES:
                self.names[pair] = None

    def take_secrets(self) -> list[bytes]:
        """Remove and return the TLS key logs in decryption secrets blocks so far, at most SECRETS_ROOM bytes in all."""
        found, self._secrets = self._secrets, []
        return found

    @property
    def secrets_left_out(self) -> int:
        """How many blocks with TLS secrets were not read: too many bytes, or damaged."""
        return int(self._state["secrets_left_out"][0])

    @property
    def position(self) -> int:
        """The first byte that the last scan did not read."""
        return int(self._state["position"][0])

    @property
    def more(self) -> bool:
        """Whether the last scan stopped because `packets` was full (or at damage), not at the end of its bytes."""
        return int(self._state["status"][0]) != pcap.SCAN_ENDED

    @property
    def dropped(self) -> int | None:
        """The packets that the capturing program reports as dropped; None if the capture does not say."""
        return int(self._state["dropped"][0]) if self._state["drops_known"][0] else None

    @property
    def drops(self) -> dict[int, int]:
        """The same for each interface that reports drops, by its number in the whole capture."""
        return {n: int(d) for n, d in enumerate(self._described["dropped"].tolist()) if d >= 0}

    @property
    def swapped(self) -> int:
        """1 if the capture (of a pcapng: its current section) is big-endian, else 0."""
        return int(self._state["swapped"][0])

    @property
    def link_types(self) -> tuple[int, ...]:
        """The link types of this capture's interfaces; none before its format is known."""
        if self.format != "pcapng":
            return (int(self._state["link_type"][0]),) if self.format else ()
        return tuple(dict.fromkeys(self._described["link_type"].tolist()))

    @property
    def _described(self) -> Packets:
        """The interfaces so far (INTERFACE)."""
        return self._interfaces["interfaces"][: int(self._state["interfaces"][0])]
