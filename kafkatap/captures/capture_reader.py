"""`CaptureReader`: the packets of one capture, block by block, and a report on the capture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.errors import CaptureError, DamagedCapture, EmptyCapture, NotACapture, TruncatedCapture
from kafkatap.reassembly.link_types import link_name
from kafkatap.reassembly.scanner import HEADER_SIZE, NOWHERE, Scanner

from .capture_bytes import ByteSource, CaptureBytes
from .readahead import AHEAD

Array = np.ndarray[Any, Any]
BLOCK_SIZE = 4 * 1024 * 1024
#: Snap lengths from here on cut no packet.
UNCUT = 65_535


class FileReport:
    """The description of one capture, completed as it is read.

    `first`, `last`: times of packets, ns since the epoch. `drops`: packets that the capturing program lost. `damage`:
    one sentence, or None. `fatal`: nothing of the capture could be read. `duplicates`: copies of packets that were
    captured twice. `secrets`, `secrets_left_out`: blocks with TLS secrets that were read, and that were
    not read. `captured_bytes`: of the packets; `empty_packets`: how many have none. `names`: addresses and the names
    that the capture gives them.
    """

    def __init__(
        self,
        path: str,
        kind: str = "",
        first_packet: int = 1,
        packets: int = 0,
        bytes: int = 0,
        link_types: tuple[str, ...] = (),
        first: int | None = None,
        last: int | None = None,
        drops: int | None = None,
        damage: str | None = None,
        fatal: bool = False,
        duplicates: int = 0,
    ) -> None:
        self.path = path
        self.files = 1
        self.kind = kind
        self.first_packet = first_packet
        self.packets = packets
        self.bytes = bytes
        self.link_types = link_types
        self.first = first
        self.last = last
        self.drops = drops
        self.damage = damage
        self.fatal = fatal
        self.duplicates = duplicates
        self.secrets = self.secrets_left_out = 0
        self.captured_bytes = self.empty_packets = 0
        self.names: dict[tuple[str, str], None] = {}

    def add_packets(self, count: int, first: int, last: int) -> None:
        """Count packets; `first`, `last`: their earliest and latest times."""
        self.packets += count
        self.first = first if self.first is None else min(first, self.first)
        self.last = last if self.last is None else max(last, self.last)


def joined_report(reports: Sequence[FileReport]) -> FileReport:
    """One report on several captures, of which only the sums are left."""
    made = FileReport("", reports[0].kind, reports[0].first_packet)
    made.files = sum(report.files for report in reports)
    made.path = f"({made.files:,} earlier files)"
    made.link_types = tuple(dict.fromkeys(link for report in reports for link in report.link_types))
    for report in reports:
        if report.first is not None and report.last is not None:
            made.add_packets(report.packets, report.first, report.last)
        made.bytes += report.bytes
        made.duplicates += report.duplicates
        made.secrets += report.secrets
        made.secrets_left_out += report.secrets_left_out
        made.names |= report.names
        made.drops = report.drops if made.drops is None else made.drops + (report.drops or 0)
        if report.damage:
            made.damage = "some of them are damaged"
    return made


class CaptureReader:
    """Reads one capture block by block.

    The usual way: `next_block()` reads bytes into `buffer`, and `assemble` makes chunks of their packets. The other way
    gives the packets themselves: after `fill()` returned True, packets[position:count] are the next ones. The caller
    sets `position` behind those that it has processed. `buffer` stays as it is until AHEAD more blocks are read.
    `reuse`: a reader that is not needed any more, whose memory this one takes over.
    """

    def __init__(
        self,
        path: str,
        block_size: int = BLOCK_SIZE,
        source: ByteSource | None = None,
        reuse: CaptureReader | None = None,
    ) -> None:
        self.report = FileReport(path)
        self._block_size = block_size
        self._source: ByteSource = source if source is not None else CaptureBytes(path)
        self._scanner = Scanner() if reuse is None else Scanner(table=reuse.packets)
        if reuse is None:
            self._buffers = [untouched(block_size + 65_536, np.uint8) for _ in range(AHEAD)]
        else:  # the oldest of them is the next one
            self._buffers = [*reuse._buffers[1:], reuse._buffers[0]]
        self.buffer: Array = self._buffers[-1]
        self._is_used = False  # whether packets were scanned from this buffer
        self.position = 0
        self.count = 0
        self._at = 0  # first byte not yet scanned
        self._end = 0  # end of the bytes in the buffer
        self._base = 0  # offset of the buffer's first byte in the capture
        self._stop = NOWHERE  # offset in the capture: records that begin here or later are not scanned
        self._over = False
        try:
            self._begin()
        except CaptureError as error:
            self._fail(error, fatal=True)
            self.report.bytes = self._source.bytes_read
        self.report.kind = ", ".join(filter(None, (self._scanner.format, self._source.compression)))

    @property
    def packets(self) -> Array:
        return self._scanner.packets

    @property
    def is_cut(self) -> bool:
        """Whether the header of a pcap says that long packets were cut."""
        return 0 < self._scanner.snap_length < UNCUT

    @property
    def base(self) -> int:
        """Offset of the buffer's first byte in the (decompressed) capture."""
        return self._base

    @property
    def progress(self) -> int:
        return self._source.progress

    def number_from(self, first: int) -> None:
        """Number this capture's packets from `first` on."""
        self._scanner.number_from(first)
        self.packets["number"][: self.count] += first - self.report.first_packet
        self.report.first_packet = first

    @property
    def next_number(self) -> int:
        """The number of the first packet that was not scanned."""
        return self._scanner.next_number

    @property
    def number(self) -> int:
        """The number of the next packet."""
        return int(self.packets["number"][self.position])

    def number_on_from(self, number: int) -> None:
        """Number the next packet, and those that follow it, from `number` on."""
        more = number - self.number
        self.packets["number"][self.position : self.count] += more
        self._scanner.number_from(more + 1)

    def take_secrets(self) -> bytes:
        """Remove and return the TLS key logs in the capture's blocks so far, as one: for a `KeyLog`."""
        return b"".join(found + b"\n" for found in self._scanner.take_secrets())

    def _begin(self) -> None:
        """Read up to the first record."""
        self._at = self._scanner.start(self._read_head())

    def _read_head(self) -> bytes:
        view = memoryview(cast(Any, self.buffer))
        while self._end < HEADER_SIZE:
            count = self._source.readinto(view[self._end : HEADER_SIZE])
            if count == 0:
                break
            self._end += count
        return self.buffer[: self._end].tobytes()

    def _fail(self, error: CaptureError, fatal: bool = False) -> None:
        where = ""
        if not isinstance(error, EmptyCapture | NotACapture):
            where = f" at byte {error.offset}" + (" after decompression" if self._source.compression else "")
        self.report.damage = f"{error.message}{where}"
        self.report.fatal = fatal
        self._over = True

    def fill(self) -> bool:
        """Read until packets[position:count] holds a packet; False at the end of the capture."""
        while self.position == self.count:
            if self._over:
                return False
            self._scan_more()
        return True

    def _scan_more(self) -> None:
        self.position = self.count = 0
        try:
            if self._end > self._at and self._scanner.more:
                self._scan()
                if self.count:
                    return
            if self._read_more():
                self._scan()
        except (DamagedCapture, OSError) as error:
            self._fail_while_reading(error)
        finally:
            self._update_report()

    def next_block(self) -> bool:
        """Read more bytes into `buffer`, for `assemble`; False at the end of the capture."""
        try:
            return not self._over and self._read_more()
        except (DamagedCapture, OSError) as error:
            self._fail_while_reading(error)
            return False
        finally:
            self._update_report()

    def assemble(self, assembler: Assembler) -> Iterator[int]:
        """Turn the packets in `buffer` into chunks of `assembler`; yield each time that chunks are ready.

        The caller counts the packets in `report`.
        """
        start, stop, before = self._at, self._stop - self._base, assembler.captured
        try:
            yield from self._scanner.assemble(self.buffer, start, self._end, assembler, stop, self._shared())
        except DamagedCapture as error:
            self._fail_while_reading(DamagedCapture(error.message, self._base + error.offset))
        finally:
            self._at = self._scanner.position
            self._over |= self._at >= stop
            self._is_used = self._at > start
            captured, empty = assembler.captured
            self.report.captured_bytes += captured - before[0]
            self.report.empty_packets += empty - before[1]
            self._update_report()

    def _shared(self) -> tuple[Array, Array] | None:
        """What `Scanner.share` found in `buffer`, if another reader has read it."""
        return None

    def scan_block(self) -> None:
        """Find the packets in `buffer` after `next_block`; `fill` goes on from there."""
        self.position = self.count = 0
        try:
            self._scan()
        except DamagedCapture as error:
            self._fail(error)
        finally:
            self._update_report()

    @property
    def is_between_blocks(self) -> bool:
        """Whether all packets in `buffer` were read, so that `next_block` may follow."""
        return self.position == self.count and not (self._end > self._at and self._scanner.more and not self._over)

    @property
    def block_end(self) -> int:
        """The byte of the (decompressed) capture at which the bytes in `buffer` end."""
        return self._base + self._end

    def _read_more(self) -> bool:
        """Read the next bytes of the capture into the next buffer, behind those that are not scanned yet.

        False at the end of the capture. Raises TruncatedCapture if it ends within a record.
        """
        rest = self._end - self._at
        self._next_buffer(rest)
        self._base += self._at
        self._at, self._end = 0, rest
        room = min(len(self.buffer), max(self._block_size, rest + 1))
        if rest >= self._block_size:
            room = len(self.buffer)
        count = self._source.readinto(memoryview(cast(Any, self.buffer))[rest:room])
        if count == 0:
            self._over = True
            if rest:
                raise TruncatedCapture("cut short: the last packet is not whole", self._base)
            return False
        self._end += count
        return True

    def _fail_while_reading(self, error: DamagedCapture | OSError) -> None:
        if isinstance(error, OSError):
            error = DamagedCapture(f"reading failed: {error.strerror or error}", self._base + self._end)
        self._fail(error)

    def _update_report(self) -> None:
        self.report.bytes = self._bytes_of_report()
        self.report.drops = self._scanner.dropped
        self.report.secrets, self.report.names = self._scanner.secrets, self._scanner.names
        self.report.secrets_left_out = self._scanner.secrets_left_out
        self.report.link_types = tuple(map(link_name, self._scanner.link_types))

    def _bytes_of_report(self) -> int:
        return self._source.bytes_read

    def _next_buffer(self, rest: int) -> None:
        """Copy the last `rest` bytes, which are not yet scanned, to the start of the next buffer.

        That is the oldest buffer, or the same one again where no packet was scanned from it.
        """
        following = self._buffers.pop(0) if self._is_used else self._buffers.pop()
        if rest >= len(following):
            following = np.zeros(2 * len(self.buffer), np.uint8)
        following[:rest] = self.buffer[self._at : self._end]
        self._buffers.append(following)
        self.buffer = following
        self._is_used = False

    def _scan(self) -> None:
        try:
            stop = self._stop - self._base
            self.count, self._at = self._scanner.scan(self.buffer, self._at, self._end, stop)
            self._over = self._at >= stop
        except DamagedCapture as error:
            raise DamagedCapture(error.message, self._base + error.offset) from None
        if self.count:
            self._is_used = True
            times = self.packets["ts"][: self.count]
            first, last = int(times.min()), int(times.max())
            self.report.add_packets(self.count, first, last)
            captured = self.packets["captured"][: self.count]
            self.report.captured_bytes += int(captured.sum(dtype=np.int64))
            self.report.empty_packets += self.count - int(np.count_nonzero(captured))

    def end_of_run(self, limit: int | None) -> int:
        """The index of the first packet from `position` on that is later than `limit`; `count` where none is."""
        if limit is None:
            return self.count
        later = np.flatnonzero(self.packets["ts"][self.position : self.count] > limit)
        return self.position + int(later[0]) if len(later) else self.count

    def next_time(self) -> int:
        """The time of the next packet."""
        return int(self.packets["ts"][self.position])

    def close(self) -> None:
        self._source.close()


def measure_packets(path: str) -> tuple[int, int | None]:
    """How many packets a capture file holds, up to its damage if it has any, and the time of the latest one."""
    reader = CaptureReader(path)
    try:
        while reader.fill():
            reader.position = reader.count
        return reader.report.packets, reader.report.last
    finally:
        reader.close()
