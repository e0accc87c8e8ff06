"""The tables of reassembly, and the loop that runs its kernels over a block and grows the tables that are full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import drop_pages, grown, taken, untouched
from kafkatap.kernels.table import Column, SlotTable, Table
from kafkatap.kernels.writers import written

from . import held_segments, packet_counts, streams
from .connection_rules import CLOSED_NS
from .connection_state import Resumption, expect_connection, resume_connection, write_states
from .dtypes import (
    CHUNK,
    CONNECTION,
    CONNECTION_COUNTERS,
    DIRECTION,
    DIRECTION_COUNTERS,
    HELD,
    LISTENER,
    MEASURE,
    MEASURE_COUNTERS,
    NO_OFFSET,
    POINTS_KEPT,
    PROGRESS,
    RECENT_PACKET,
    RECOVERY,
    RECOVERY_COUNTERS,
    ROW_FREE,
    ROW_OPEN,
    SEGMENT,
    Bounds,
)
from .flows import FlowTable, flow_keys
from .fragments import FragmentTable, drop_datagrams
from .listeners import ListenerTable
from .packet_tables import PacketTables
from .recent_packets import RECENT_ROWS
from .segments import read_segments
from .stream_tables import (
    ASSEMBLED,
    CHUNKS_FULL,
    CONNECTIONS_FULL,
    FLOWS_FULL,
    HELD_FULL,
    LISTENERS_FULL,
    POOL_FULL,
    RECOVERIES_FULL,
    STREAMS_STATE,
    StreamTables,
    clear_recovery,
)

Array = np.ndarray[Any, Any]
#: Gets the segments of some packets (SEGMENT), and yields those that belong to this assembler, in order.
SegmentFilter = Callable[[Array], Iterator[Array]]
#: A pool is compacted once it holds this many bytes that are not needed any more, and as many as are.
_POOL_SLACK = 8 << 20
#: How far the time of a packet may lie before that of the packet before it, ns.
_DISORDER_NS = 1_000_000_000
#: The earliest and the latest time that an int64 can hold, ns.
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1
#: Places of fields among the int64s of PACKETS_STATE and of STREAMS_STATE. numpy takes a microsecond for a field of a
#: record, and `read` comes a hundred times a second in live capture.
_READ, _FIRST, _LAST = (packet_counts.PACKETS_STATE.fields[name][1] // 8 for name in ("read", "first", "last"))  # type: ignore[index]
_CHUNKS, _NEXT_SERIAL, _CLOSED, _POOL_USED, _HELD_BYTES = (
    STREAMS_STATE.fields[name][1] // 8  # type: ignore[index]
    for name in ("chunks", "next_serial", "closed", "pool_used", "held_bytes")
)


class Assembler:
    """Packets in, chunks out. `feed`, `read` and `finish` yield how many rows of `chunks` are ready.

    The next chunks are written over these, or after `take_table` to another table. The bytes of held segments lie in
    `pool`. `turns`: how many tables and pools take turns, so that chunks stay until `take_table` was called that often,
    and held bytes until `end_block` was. `keep_flows`: flows keep their numbers for the whole run.
    `segment_filter`: what `feed` passes all segments through; None keeps all. `fragments`: incomplete IP datagrams.
    """

    def __init__(
        self,
        connections: int = 256,
        chunks: int = 16_384,
        turns: int = 1,
        bounds: Bounds | None = None,
        keep_flows: bool = False,
        segment_filter: SegmentFilter | None = None,
    ) -> None:
        self._headers = np.zeros(1, packet_counts.PACKETS_STATE)
        self._headers_numbers: Array = self._headers.view(np.int64)
        self.take_times()
        self._state = np.zeros(1, STREAMS_STATE)
        self._numbers: Array = self._state.view(np.int64)
        self._packet_tables: PacketTables | None = None  # those of the last `read`, unless they changed since
        self._state["gaps_first"] = self._state["gaps_last"] = -1
        self.bound(bounds or Bounds())
        self._flows = FlowTable(2 * connections, keep_flows)
        self.fragments = FragmentTable()
        self.segment_filter = segment_filter
        self.segments = untouched(65_536, SEGMENT)
        self._connections = SlotTable(connections, moves=True, connections=CONNECTION, directions=Column(DIRECTION, 2))
        self._recoveries = Table(64, recoveries=RECOVERY)
        clear_recovery(self.recoveries[0])
        self._held = SlotTable(256, held=HELD)
        self._pools = [untouched(16 << 20, np.uint8) for _ in range(turns)]
        self._tables_of_chunks = [untouched(chunks, CHUNK) for _ in range(turns)]
        self._listeners = ListenerTable()
        self._recent = untouched(RECENT_ROWS, RECENT_PACKET)
        self._progress = np.zeros(1, PROGRESS)
        self.duplicates = np.zeros(1, np.int64)  # packets, by capture point
        self._ended = np.zeros(4_096, np.int32)
        self._measures = np.zeros(1, MEASURE)

    def bound(self, bounds: Bounds) -> None:
        """Keep no more than `bounds` from now on."""
        state = self._state
        state["closed_limit"], state["syns_limit"], state["idle_limit"] = bounds.closed, bounds.syns, bounds.idle
        state["held_bytes_limit"], state["held_segments_limit"] = bounds.held_bytes, bounds.held_segments

    def expect_points(self, points: int) -> None:
        """The next packets may be of so many capture points (`Packet.point` 0 to points - 1)."""
        if points <= max(1, int(self._state["points"][0])):
            return
        self._packet_tables = None
        is_first = self._state["points"][0] <= 1
        self._state["points"] = points
        if points > len(self.duplicates):
            self.duplicates = grown(self.duplicates, points)
        self._grow_progress()
        if is_first:
            self._begin_progress()

    def share(self, shard: int, shards: int) -> None:
        """Assemble only the connections of one of so many engines. Packets that are no TCP count in the first. Call it
        before the first packet."""
        self._headers["shard"], self._headers["shards"] = shard, shards

    def measure(self) -> None:
        """Also measure windows and round trips (`measures`). Call it before the first packet."""
        self._packet_tables = None
        self._state["measures"] = 1
        self._grow_measures()

    # Packets in, chunks out.

    def feed(self, block: Array, packets: Array, first: int, count: int) -> Iterator[int]:
        """Read packets[first:count] of a block; yield each time that chunks are ready."""
        for segments in self.read_segments(block, packets, first, count):
            if self.segment_filter is None:
                yield from self.assemble(block, segments)
            else:
                for kept in self.segment_filter(segments):
                    yield from self.assemble(block, kept)

    def read_segments(self, block: Array, packets: Array, first: int, count: int) -> Iterator[Array]:
        """Yield the TCP segments (SEGMENT) of packets[first:count], some at a time, without assembling them.

        The array is a view that the next step overwrites. Packets and payload are counted.
        """
        while first < count:
            first = read_segments(block, packets, first, count, self._all_tables, self.segments)
            yield self.segments[: int(self._headers["segments"][0])]
            stopped = int(self._headers["stopped"][0])
            if stopped != ASSEMBLED:
                self._make_room(stopped)

    def assemble(self, block: Array, segments: Array) -> Iterator[int]:
        """Turn segments, whose bytes lie in `block`, into chunks; yield each time that chunks are ready."""
        state = self._state[0]
        count, done = len(segments), 0
        while done < count:
            done = streams.assemble(block, segments, done, count, self._tables)
            stopped = int(state.stopped)
            self._make_room(stopped)
            if state.chunks and (done == count or stopped == CHUNKS_FULL):
                yield self._take_chunks()

    def read(self, read: Callable[[PacketTables], int]) -> Iterator[int]:
        """Turn packets into chunks in one pass; yield each time that chunks are ready.

        `read` calls a kernel of `one_pass`. It returns ASSEMBLED when all is read, else which table is full.
        """
        while True:
            tables = self._packet_tables
            if tables is None:
                tables = self._packet_tables = self._all_tables
            stopped = read(tables)
            if stopped != ASSEMBLED:
                self._make_room(stopped)
            if stopped in (ASSEMBLED, CHUNKS_FULL) and self._numbers.item(_CHUNKS):
                yield self._take_chunks()
            if stopped == ASSEMBLED:
                return

    @property
    def captured(self) -> tuple[int, int]:
        """The captured bytes of the packets that `read` has read, and how many packets have none."""
        return int(self._headers["captured"][0]), int(self._headers["empty"][0])

    def take_times(self) -> tuple[int, int, int]:
        """Return how many packets `read` has read since the last call, and their earliest and latest times (ns)."""
        numbers = self._headers_numbers
        taken = numbers.item(_READ), numbers.item(_FIRST), numbers.item(_LAST)
        numbers[_READ], numbers[_FIRST], numbers[_LAST] = 0, _LATEST, _EARLIEST
        return taken

    def finish(self, now: int, everything: bool, idle: int = 0) -> Iterator[tuple[int, Array]]:
        """End the connections that are over, or silent for `idle` ns (0: however long), or all.

        Yields (chunks ready, numbers of the connections that end with them). Call `release` with those afterwards.
        """
        if len(self.fragments):
            drop_datagrams(self.fragments.arrays, self._headers, now, int(everything))
        while True:
            made = streams.finish(now, int(everything), idle, self._tables, self._ended)
            chunks = self._take_chunks()
            if chunks or made:
                yield chunks, self._ended[:made]
            if self._state["stopped"][0] == ASSEMBLED:
                return
            if not made:
                self._grow_chunks()

    def take_table(self) -> Array:
        """Return `chunks`. The next chunks are written to the table that was returned the longest time ago."""
        taken = self.chunks
        if len(self._tables_of_chunks) > 1:
            self._tables_of_chunks = [*self._tables_of_chunks[1:], self._tables_of_chunks[0]]
            self._packet_tables = None
        return taken

    def release(self, ended: Array) -> None:
        """Free the rows of ended connections. Their numbers are used again."""
        self.connections["used"][ended] = ROW_FREE
        self._connections.release(ended)

    def count_crowded_out(self, rows: Array) -> int:
        """How many connections (CONNECTION rows) are over only because so many others began after their last packet."""
        newer = self.begun - rows["last_serial"]
        is_open = (rows["closed_at"] == 0) & (rows["only_syn"] == 0)
        return int((is_open & (newer > self._state["idle_limit"][0])).sum())

    def end_block(self) -> None:
        """Free the pool's bytes that are not held any more. Call it when all chunks of a block were read."""
        used = self._numbers.item(_POOL_USED)
        if used == 0:
            return
        held_bytes = self._numbers.item(_HELD_BYTES)
        if self._held.in_use == 0:
            self._next_pool()
            self._numbers[_POOL_USED] = 0
        elif used > 2 * held_bytes + _POOL_SLACK:
            tables = self._tables
            self._next_pool()
            if len(self.pool) < held_bytes:
                self._pools[-1] = untouched(len(tables.pool), np.uint8)
            self._numbers[_POOL_USED] = held_segments.move_held_bytes(tables, self.pool)

    # What is known so far.

    @property
    def connections(self) -> Array:
        """CONNECTION rows by number."""
        return self._connections["connections"]

    @property
    def directions(self) -> Array:
        """DIRECTION rows: two for each connection."""
        return self._connections["directions"]

    @property
    def recoveries(self) -> Array:
        """RECOVERY rows, by the numbers in `DIRECTION.recovery_row`."""
        return self._recoveries["recoveries"]

    @property
    def is_measured(self) -> bool:
        """Whether `measure` was called."""
        return bool(self._state["measures"][0])

    @property
    def measures(self) -> Array:
        """MEASURE rows: two for each connection, of a run that measures."""
        return self._measures

    @property
    def flows(self) -> Array:
        """FLOW rows by number."""
        return self._flows.rows[: len(self._flows)]

    @property
    def held(self) -> Array:
        """HELD rows, by the numbers in `DIRECTION.held` and `HELD.next`."""
        return self._held["held"]

    @property
    def chunks(self) -> Array:
        """CHUNK rows."""
        return self._tables_of_chunks[-1]

    @property
    def pool(self) -> Array:
        """The bytes of held segments (uint8)."""
        return self._pools[-1]

    def flow_keys(self, first: int = 0) -> list[bytes]:
        """Return the bytes that identify each flow, from number `first` on."""
        return flow_keys(self.flows[first:])

    @property
    def begun(self) -> int:
        """How many connections began so far."""
        return int(self._numbers.item(_NEXT_SERIAL))

    @property
    def begun_and_closed(self) -> int:
        """How many connections began so far, plus how many were closed: grows with what there is to end."""
        return int(self._numbers.item(_NEXT_SERIAL) + self._numbers.item(_CLOSED))

    @property
    def connections_in_use(self) -> int:
        """How many rows of connections are in use."""
        return self._connections.in_use

    @property
    def packet_counts(self) -> dict[str, int]:
        """The packets so far by category; each is counted once."""
        counts = dict(zip(packet_counts.CATEGORIES, self._headers["packets"][0].tolist(), strict=True))
        return counts if self._has_others else {**dict.fromkeys(counts, 0), "tcp": counts["tcp"]}

    @property
    def tunnel_counts(self) -> dict[str, int]:
        """The packets so far that came through tunnels, by the outermost one."""
        counts = dict(zip(packet_counts.TUNNELS[1:], self._headers["tunnels"][0].tolist()[1:], strict=True))
        return counts if self._has_others else dict.fromkeys(counts, 0)

    @property
    def _has_others(self) -> bool:
        """Whether packets without connections count here."""
        return int(self._headers["shard"][0]) == 0

    @property
    def gaps_given_up(self) -> int:
        """The gaps that were skipped early because too much waited behind gaps."""
        return int(self._state["gaps_given_up"][0])

    @property
    def payload_bytes(self) -> int:
        """The bytes of TCP payload on the wire so far."""
        return int(self._headers["payload_bytes"][0])

    # For runs that continue others, or hand their connections to others.

    def connection_states(self, connections: Array, earlier: Array) -> Iterator[bytes]:
        """Yield the state of each connection (int64 numbers). Equal states handle the same later packets alike.

        `earlier`: uint8, 1 for a connection that another one on its 4-tuple follows.
        """
        tables = self._tables
        return written(
            lambda first, out, ends: write_states(tables, connections, earlier, first, out, ends), len(connections)
        )

    def earlier_connection(self, connection: int) -> int:
        """Return the connection before this one on the same 4-tuple if packets of it may still come, else -1."""
        rows = self.connections
        earlier = int(rows["previous"][connection])
        if earlier < 0 or rows["used"][earlier] != ROW_OPEN:
            return -1
        since = int(rows["last"][connection]) - int(rows["closed_at"][earlier])
        return earlier if since <= CLOSED_NS + _DISORDER_NS else -1

    def resume(self, connection: int, known: Resumption) -> None:
        """Continue a connection from what an earlier run showed of it, after its first packets were read here."""
        has_points = self._state["points"][0] > 1
        progress = self.progress_of(connection) if has_points else None
        resume_connection(self._tables, known.ends, connection, *known.handshake)
        if progress is not None:
            self.restore_progress(connection, progress)

    def progress_of(self, connection: int) -> Array:
        """How far each point saw a connection: PROGRESS, offsets from the next bytes on. Only with several points."""
        rows = self._progress[2 * POINTS_KEPT * connection : 2 * POINTS_KEPT * (connection + 1)].copy()
        return self._move_progress(rows, connection, -1)

    def restore_progress(self, connection: int, rows: Array) -> None:
        """Set how far each point saw a connection. `rows`: as of `progress_of`."""
        self._progress[2 * POINTS_KEPT * connection : 2 * POINTS_KEPT * (connection + 1)] = self._move_progress(
            rows.copy(), connection, 1
        )

    def _move_progress(self, rows: Array, connection: int, sign: int) -> Array:
        following = self.directions["next"][2 * connection : 2 * connection + 2]
        for name, next_bytes in (("end", following), ("acked", following[::-1])):
            is_known = rows[name] > NO_OFFSET
            rows[name][is_known] += sign * np.repeat(next_bytes, POINTS_KEPT)[is_known]
        return rows

    def expect(self, connection: int, known: Resumption) -> None:
        """Judge the stalls of a connection, of which only the first packet was read, with what an earlier run showed of
        it."""
        if self._recoveries.reserve(int(self._state["recoveries"][0]) + 3):
            self._packet_tables = None
        expect_connection(self._tables, known.ends, connection, *known.handshake)

    def discount(self) -> None:
        """Set the counters of all open connections to zero: another run counts what was read so far.

        The state of the connections stays as it is.
        """
        rows = np.flatnonzero(self.connections["used"] == ROW_OPEN)
        self.duplicates[:] = 0
        for name in CONNECTION_COUNTERS:
            self.connections[name][rows] = 0
        both = (2 * rows[:, None] + (0, 1)).reshape(-1)
        for name in DIRECTION_COUNTERS:
            self.directions[name][both] = 0
        for name in RECOVERY_COUNTERS:
            self.recoveries[name][self.directions["recovery_row"][both]] = 0
        if self.is_measured:
            for name in MEASURE_COUNTERS:
                self._measures[name][2 * rows] = 0
                self._measures[name][2 * rows + 1] = 0

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Within this context packets and payload bytes are not counted: another run counts them."""
        counted = {name: self._headers[name].copy() for name in ("packets", "tunnels", "payload_bytes")}
        try:
            yield
        finally:
            for name, count in counted.items():
                self._headers[name] = count

    def hand_over_fragments(self, packets: int) -> None:
        """Count the packets that wait with incomplete datagrams, but `packets` of them: another run counts those."""
        self._headers["packets"][0, packet_counts.FRAGMENT] += self.fragments.waiting_packets - packets
        self.fragments.forget_packets()

    def detach(self, connections: Array) -> tuple[Array, Array]:
        """Drop connections without ending them: no END, and what is held of them is not emitted.

        Returns copies of their CONNECTION rows and of their DIRECTION rows (two each). Call `release` afterwards.
        """
        rows = taken(self.connections, connections)
        directions = taken(self.directions, (2 * connections[:, None] + (0, 1)).reshape(-1))
        streams.detach(connections.astype(np.int32), self._tables)
        return rows, directions

    @property
    def listeners(self) -> Array:
        """LISTENER rows of the ends that answered a SYN."""
        return self._listeners.rows

    @property
    def listener_count(self) -> int:
        """How many ends answered a SYN."""
        return len(self._listeners)

    def learn_listeners(self, ends: Array) -> None:
        """Add ends (LISTENER rows) that answer connections."""
        self._packet_tables = None
        self._listeners.add(ends)

    def learn_answers(self, segments: Array) -> None:
        """Add the senders of SYN-ACK segments (SEGMENT) to the listeners."""
        flows, sent_by_b = self.flows[segments["flow"]], segments["direction"] == 1
        ends = np.zeros(len(segments), LISTENER)
        for name in ("high", "low", "port"):
            ends[name] = np.where(sent_by_b, flows[f"b_{name}"], flows[f"a_{name}"])
        self._packet_tables = None
        self._listeners.add(ends)

    def forget_listeners(self) -> None:
        """Remove all listeners."""
        self._packet_tables = None
        self._listeners.clear()

    # Tables.

    @property
    def _all_tables(self) -> PacketTables:
        return PacketTables(self._headers, self._flows.arrays, self.fragments.arrays, self._tables)

    @property
    def _tables(self) -> StreamTables:
        return StreamTables(
            state=self._state,
            flows=self._flows.rows,
            connections=self.connections,
            directions=self.directions,
            recoveries=self.recoveries,
            free_connections=self._connections.free,
            held=self.held,
            free_held=self._held.free,
            pool=self.pool,
            listeners=self._listeners.arrays,
            recent=self._recent,
            progress=self._progress,
            duplicates=self.duplicates,
            measures=self._measures,
            chunks=self.chunks,
        )

    def _make_room(self, stopped: int) -> None:
        """Grow the table that is full."""
        self._packet_tables = None
        if stopped == HELD_FULL:
            self._held.grow()
        elif stopped == POOL_FULL:
            self._pools[-1] = grown(self.pool, used=int(self._state["pool_used"][0]))
        elif stopped == CONNECTIONS_FULL:
            self._connections.grow()
            self._grow_progress()
            self._grow_measures()
        elif stopped == RECOVERIES_FULL:
            self._recoveries.grow()
        elif stopped == LISTENERS_FULL:
            self._listeners.grow()
        elif stopped == FLOWS_FULL:
            self._grow_flows()
        elif stopped == CHUNKS_FULL and not self._state["chunks"][0]:
            self._grow_chunks()

    def _begin_progress(self) -> None:
        """Note how far point 0 saw the open connections."""
        connections, directions = self.connections, self.directions
        connections["is_quiet"] = 0
        numbers = np.flatnonzero(np.repeat(connections["used"] == ROW_OPEN, 2) & (directions["started"] != 0))
        rows = np.zeros(len(numbers), PROGRESS)
        rows["point"] = 1
        rows["end"] = directions["next"][numbers] + (directions["fin"][numbers] >= 0)
        handshakes = connections[numbers >> 1]
        is_unanswered = (handshakes["syn_at"] != 0) & (handshakes["handshake_rtt_ns"] < 0)
        # The acknowledgement of a SYN-ACK is the first one. It acknowledges no byte.
        rows["acked"] = np.where(is_unanswered, np.iinfo(np.int64).min, directions["acked"][numbers ^ 1])
        self._progress[numbers * POINTS_KEPT] = rows

    def _grow_progress(self) -> None:
        needed = 2 * POINTS_KEPT * len(self._connections)
        if self._state["points"][0] > 1 and len(self._progress) < needed:
            self._progress = grown(self._progress, needed)

    def _grow_measures(self) -> None:
        needed = 2 * len(self._connections)
        if self.is_measured and len(self._measures) < needed:
            self._measures = grown(self._measures, needed)

    def _grow_chunks(self) -> None:
        self._tables_of_chunks[-1] = grown(self.chunks)
        self._packet_tables = None

    def _take_chunks(self) -> int:
        """Return how many chunks are ready. The next ones are written from the start of `chunks` on."""
        made: int = self._numbers.item(_CHUNKS)
        self._numbers[_CHUNKS] = 0
        return made

    def _next_pool(self) -> None:
        self._pools = [*self._pools[1:], self._pools[0]]
        self._packet_tables = None
        drop_pages(self.pool, _POOL_SLACK, len(self.pool))

    def _grow_flows(self) -> None:
        self._packet_tables = None
        numbers = self._flows.grow()
        used = self.connections["used"] == ROW_OPEN
        self.connections["flow"][used] = numbers[self.connections["flow"][used]]
