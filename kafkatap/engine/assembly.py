"""The first half of an engine: packets to parts of TCP streams.

`Assembly` runs reassembly over blocks of packets and yields `Assembled` parts. It shares nothing else with the second
half, so that each half may run in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import is_among, taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import (
    CHUNK_START,
    CONNECTION,
    DIRECTION,
    FLOW,
    MEASURE,
    OPENING_HINT,
    OPENING_UNKNOWN,
    RECOVERY,
    ROW_OPEN,
)

from ..captures.readahead import AHEAD

Array = np.ndarray[Any, Any]
_NO_BYTES = np.zeros(1, np.uint8)
_NO_CONNECTIONS = np.zeros(0, np.int64)
_NO_FLOWS, _NO_ROWS, _NO_DIRECTIONS = np.zeros(0, FLOW), np.zeros(0, CONNECTION), np.zeros(0, DIRECTION)
_NO_MEASURES, _NO_RECOVERIES = np.zeros(0, MEASURE), np.zeros(0, RECOVERY)

#: Blocks between two searches for connections that are over. So many changes of connections cause an earlier one, or
#: this part of all connections if that is more: a search reads all their rows.
REAP_EVERY = 16
REAP_CHANGES, REAP_SHARE = 16_384, 8


class Assembled(NamedTuple):
    """The chunks of some packets, and the connections that began or ended with them.

    `block`, `held` and `table` stay as they are until AHEAD more parts are made. All other arrays are copies.
    """

    block: Array  # uint8
    held: Array  # uint8
    table: Array  # CHUNK
    chunk_count: int  # in `table`
    connections: int  # rows in the table of connections
    started: Array  # numbers of the connections that began
    started_flows: Array  # FLOW, their ends
    ended: Array  # numbers of the connections that are over after these chunks
    ended_rows: Array  # CONNECTION
    ended_directions: Array  # DIRECTION, two for each connection
    packets: int = 0
    first: int | None = None  # ns since the epoch, of these packets
    last: int | None = None
    ended_early: int = 0  # connections that ended only because so many others are newer
    ended_measures: Array = _NO_MEASURES  # MEASURE, two for each connection, of a run that measures
    ended_recoveries: Array = _NO_RECOVERIES  # RECOVERY, two for each connection
    secrets: bytes = b""  # TLS key logs that the captures had before these packets

    def __repr__(self) -> str:
        return f"<Assembled: {self.chunk_count:,} chunks of {self.packets:,} packets>"  # without secrets

    @property
    def chunks(self) -> Array:
        return self.table[: self.chunk_count]


class Assembly:
    """Reassembly of one sequence of packets. `ports`: brokers listen there, a hint for connections without a SYN."""

    def __init__(self, assembler: Assembler | None = None, ports: Sequence[int] = ()) -> None:
        self.assembler = assembler or Assembler(turns=AHEAD)
        self._begun = 0  # connections that began in the parts so far
        self.latest = 0  # the latest time of all packets, ns since the epoch
        self.capture_end: int | None = None  # ns since the epoch; None: the input ends with the latest packet
        self.closed_until: int | None = None  # connections that were closed about then or later do not end yet
        self._ports = np.array(ports, np.int32)
        self._fed_bytes = 0  # captured bytes of the packets of `feed`
        self._blocks = 0
        self._reaped_at = 0  # `Assembler.begun_and_closed` at the last search for connections that are over

    def feed(self, buffer: Array, packets: Array, first: int, count: int) -> Iterator[Assembled]:
        """Reassemble packets[first:count], whose bytes are in `buffer`."""
        times = packets["ts"][first:count]
        low, high = int(times.min()), int(times.max())
        self.latest = max(self.latest, high)
        self._fed_bytes += int(packets["captured"][first:count].sum(dtype=np.int64))
        counted: tuple[int, int | None, int | None] = (count - first, low, high)
        for chunks in self.assembler.feed(buffer, packets, first, count):
            yield self._part(buffer, chunks, _NO_CONNECTIONS, *counted)
            counted = (0, None, None)
        if counted[0]:  # packets without a chunk
            yield self._part(buffer, 0, _NO_CONNECTIONS, *counted)
        yield from self._end_block(buffer)

    def read(self, buffer: Array, read: Callable[[Assembler], Iterator[int]]) -> Iterator[Assembled]:
        """Reassemble packets whose bytes are in `buffer`, in one pass: `read` runs `Assembler.read`."""
        for chunks in read(self.assembler):
            yield self._part(buffer, chunks, _NO_CONNECTIONS, *self._times())
        counted = self._times()
        if counted[0]:  # packets without a chunk
            yield self._part(buffer, 0, _NO_CONNECTIONS, *counted)
        yield from self._end_block(buffer)

    @property
    def captured_bytes(self) -> int:
        """The captured bytes of all packets so far."""
        return self._fed_bytes + self.assembler.captured[0]

    def nothing(self) -> Assembled:
        """A part without chunks."""
        return self._part(_NO_BYTES, 0, _NO_CONNECTIONS)

    def _times(self) -> tuple[int, int | None, int | None]:
        """Return how many packets were read in one pass since the last call, and their first and last time."""
        count, first, last = self.assembler.take_times()
        if not count:
            return 0, None, None
        self.latest = max(self.latest, last)
        return count, first, last

    def _end_block(self, buffer: Array) -> Iterator[Assembled]:
        """Free what the block needed, and end the connections that are over if there may be some."""
        assembler = self.assembler
        assembler.end_block()
        self._blocks += 1
        changes = assembler.begun_and_closed
        enough = max(REAP_CHANGES, assembler.connections_in_use // REAP_SHARE)
        if self._blocks % REAP_EVERY == 0 or changes - self._reaped_at > enough:
            self._reaped_at = changes
            yield from self._end(buffer, everything=False)

    def end_all(self) -> Iterator[Assembled]:
        """End every connection: the input is over."""
        yield from self._end(_NO_BYTES, everything=True)

    def end_closed(self, idle: int = 0) -> Iterator[Assembled]:
        """End the connections that closed long before the latest packet, and those silent for `idle` ns (0: none)."""
        yield from self._end(_NO_BYTES, everything=False, idle=idle)

    def detach(self, connections: Array) -> Assembled:
        """Drop connections that another run continues. They are counted, but do not end."""
        assembler = self.assembler
        rows, directions = assembler.detach(connections)
        measures = self._measures(connections)
        measures["zero_since"] = 0  # the other run counts that time
        return Assembled(
            _NO_BYTES, assembler.pool, assembler.chunks, 0, len(assembler.connections), _NO_CONNECTIONS, _NO_FLOWS,
            connections, rows, directions, ended_measures=measures, ended_recoveries=self._recoveries(directions),
        )  # fmt: skip

    def discount(self) -> Array:
        """Set all counts to 0: another run has them. Return the numbers of the open connections."""
        self.assembler.discount()
        return np.flatnonzero(self.assembler.connections["used"] == ROW_OPEN)

    def open_connections(self) -> Array:
        """The numbers of the open connections. A connection with nothing but a SYN is not open."""
        rows = self.assembler.connections
        return np.flatnonzero((rows["used"] == ROW_OPEN) & (rows["closed_at"] == 0) & (rows["only_syn"] == 0))

    def is_closed(self) -> Array:
        """Whether each connection, by number, was closed by FINs or a RST: uint8."""
        closed: Array = (self.assembler.connections["closed_at"] != 0).view(np.uint8)
        return closed

    def closings(self) -> tuple[Array, Array]:
        """Which direction closed each connection, by number, and when: the first FIN, or else the RST; -1 for none."""
        rows = self.assembler.connections
        has_fin = rows["fin_by"] >= 0
        return np.where(has_fin, rows["fin_by"], rows["reset_by"]), np.where(has_fin, rows["fin_at"], rows["closed_at"])

    def as_ended(self, numbers: Array | None = None) -> Assembled:
        """Connections that did not end so far, as if they ended now (None: all). They go on."""
        assembler = self.assembler
        if numbers is None:
            numbers = np.flatnonzero(assembler.connections["used"] == ROW_OPEN)
        directions = taken(assembler.directions, (2 * numbers[:, None] + (0, 1)).reshape(-1))
        return Assembled(
            _NO_BYTES, assembler.pool, assembler.chunks, 0, len(assembler.connections), _NO_CONNECTIONS, _NO_FLOWS,
            numbers, taken(assembler.connections, numbers), directions,
            ended_measures=self._measures(numbers), ended_recoveries=self._recoveries(directions),
        )  # fmt: skip

    def _measures(self, connections: Array) -> Array:
        """Copies of the MEASURE rows of connections, two each."""
        if not self.assembler.is_measured:
            return _NO_MEASURES
        return taken(self.assembler.measures, (2 * connections[:, None] + (0, 1)).reshape(-1))

    def _recoveries(self, directions: Array) -> Array:
        """Copies of the RECOVERY rows of DIRECTION rows."""
        return taken(self.assembler.recoveries, directions["recovery_row"])

    def _end(self, buffer: Array, everything: bool, idle: int = 0) -> Iterator[Assembled]:
        now = self.latest if self.capture_end is None or not everything else self.capture_end
        if self.closed_until is not None and not everything:
            now = min(now, self.closed_until)
        for chunks, ended in self.assembler.finish(now, everything, idle):
            part = self._part(buffer, chunks, ended.astype(np.int64))
            yield part._replace(ended_early=self.assembler.count_crowded_out(part.ended_rows)) if len(ended) else part
            if len(ended):
                self.assembler.release(ended)

    def _part(
        self,
        block: Array,
        count: int,
        ended: Array,
        packets: int = 0,
        first: int | None = None,
        last: int | None = None,
    ) -> Assembled:
        assembler = self.assembler
        table = assembler.take_table()
        started, flows = _NO_CONNECTIONS, _NO_FLOWS
        if assembler.begun != self._begun:
            self._begun = assembler.begun
            places = np.flatnonzero(table["kind"][:count] == CHUNK_START)
            started = table["connection"][places].astype(np.int64)
            flows = taken(assembler.flows, assembler.connections["flow"][started])
            if len(self._ports):
                self._orient_by_port(table, places, flows)
        rows, directions, measures, recoveries = _NO_ROWS, _NO_DIRECTIONS, _NO_MEASURES, _NO_RECOVERIES
        if len(ended):
            measures = self._measures(ended)
            rows = taken(assembler.connections, ended)
            directions = taken(assembler.directions, (2 * ended[:, None] + (0, 1)).reshape(-1))
            recoveries = self._recoveries(directions)
        return Assembled(
            block, assembler.pool, table, count, len(assembler.connections), started, flows, ended, rows, directions,
            packets, first, last, 0, measures, recoveries,
        )  # fmt: skip

    def _orient_by_port(self, chunks: Array, started: Array, flows: Array) -> None:
        """Note of connections whether their broker's port is known; without a SYN that shows the client's direction."""
        at_a, at_b = is_among(flows["a_port"], self._ports), is_among(flows["b_port"], self._ports)
        hinted = (at_a != at_b) & (chunks["opening"][started] == OPENING_UNKNOWN)
        where = started[hinted]
        chunks["direction"][where] = at_a[hinted]
        chunks["opening"][where] = OPENING_HINT
        is_known = chunks["opening"][started] != OPENING_UNKNOWN
        chunks["source"][started] = np.where(chunks["direction"][started] == 1, at_a, at_b) & is_known
