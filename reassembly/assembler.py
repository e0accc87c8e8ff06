"""The tables of reassembly, and the loop that runs its kernels over a block, growing what they say is full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import as_bytes, drop_pages, grown, linked_free_list, taken, untouched
from kafkatap.kernels.hashing import new_seed
from kafkatap.kernels.table import Column, SlotTable

from . import headers, listeners, streams
from .dtypes import CHUNK, CONNECTION, DIRECTION, FLOW, HELD, LISTENER, SEGMENT, Bounds

Array = np.ndarray[Any, Any]
#: A pool is compacted once it holds this many bytes that are not needed any more, and as many as are.
_POOL_SLACK = 8 << 20


class Assembler:
    """Packets in, chunks out. `feed` and `finish` yield how many rows of `chunks` are ready; take them before more.

    The bytes of segments that had to wait lie in `pool`. `pools`: that many take turns, so that such bytes stay until
    `end_block` was called that often.
    """

    def __init__(
        self, connections: int = 256, chunks: int = 16_384, pools: int = 1, bounds: Bounds | None = None
    ) -> None:
        self.counts = np.zeros(headers.STATE_SIZE, dtype=np.int64)
        self.counts[headers.SEED] = new_seed()
        self.flows = np.zeros(2 * connections, dtype=FLOW)
        self.buckets = np.zeros(4 * connections, dtype=np.int32)
        self.segments = untouched(65_536, SEGMENT)
        self._table = SlotTable(connections, connections=CONNECTION, directions=Column(DIRECTION, 2))
        self.held = np.zeros(256, dtype=HELD)
        self._pools = [untouched(16 << 20, np.uint8) for _ in range(pools)]
        self.pool = self._pools[-1]
        self.chunks = untouched(chunks, CHUNK)
        self._listeners = np.zeros(256, dtype=LISTENER)
        self._ended = np.zeros(4_096, dtype=np.int32)
        self._state = np.zeros(streams.STATE_SIZE, dtype=np.int64)
        self._state[listeners.LISTENER_SEED] = new_seed()
        self.bound(bounds or Bounds())
        self._state[streams.GAPS_FIRST] = self._state[streams.GAPS_LAST] = -1
        self._state[streams.FREE_HELD] = linked_free_list(self.held, 0, -1)

    def bound(self, bounds: Bounds) -> None:
        """Keep no more than this from now on."""
        state = self._state
        state[streams.CLOSED_KEPT], state[streams.SYN_KEPT] = bounds.closed, bounds.syns
        state[streams.IDLE_KEPT] = bounds.idle
        state[streams.HELD_LIMIT_ALL], state[streams.HELD_SEGMENTS_ALL] = bounds.held_bytes, bounds.held_segments

    @property
    def connections(self) -> Array:
        """CONNECTION rows by number."""
        return self._table["connections"]

    @property
    def directions(self) -> Array:
        """DIRECTION rows: two for each connection."""
        return self._table["directions"]

    @property
    def begun_and_closed(self) -> int:
        """How many connections began so far, and how many were closed, added up: grows by what there is to end."""
        return int(self._state[streams.NEXT_SERIAL] + self._state[streams.CLOSED])

    def feed(self, block: Array, packets: Array, first: int, count: int) -> Iterator[int]:
        """Take packets[first:count] of a block; yield each time that chunks are ready."""
        while first < count:
            first = headers.read_headers(
                block, packets, first, count, self.counts, self.flows, self.buckets, self.segments
            )
            yield from self._assemble(block, int(self.counts[headers.SEGMENTS]))
            if self.counts[headers.STOPPED] == headers.FLOWS_FULL:
                self._grow_flows()

    def _assemble(self, block: Array, count: int) -> Iterator[int]:
        state = self._state
        taken = 0
        while taken < count:
            taken = streams.assemble(
                block, self.segments, taken, count, state, self.flows, self.connections, self.directions,
                self.held, self.pool, self._table.free, self._listeners, self.chunks,
            )  # fmt: skip
            stopped = int(state[streams.STOPPED])
            if stopped == streams.HELD_FULL:
                first = len(self.held)
                self.held = grown(self.held)
                state[streams.FREE_HELD] = linked_free_list(self.held, first, int(state[streams.FREE_HELD]))
            elif stopped == streams.POOL_FULL:
                self._pools[-1] = self.pool = grown(self.pool, used=int(state[streams.HELD_AT]))
            elif stopped == streams.CONNECTIONS_FULL:
                self._table.grow()
            elif stopped == streams.LISTENERS_FULL:
                self._grow_listeners()
            elif stopped == streams.CHUNKS_FULL and state[streams.CHUNKS] == 0:
                self.chunks = grown(self.chunks)
            if state[streams.CHUNKS] and (taken == count or stopped == streams.CHUNKS_FULL):
                made = int(state[streams.CHUNKS])
                state[streams.CHUNKS] = 0
                yield made

    def finish(self, now: int, everything: bool, idle: int = 0) -> Iterator[tuple[int, Array]]:
        """End what is closed, or silent for `idle` ns (0: however long), or all: yield (chunks ready, numbers of the
        connections that ended in them)."""
        state = self._state
        while True:
            made = streams.finish(
                now, int(everything), idle, state, self.flows, self.connections, self.directions, self.held,
                self._ended, self.chunks,
            )  # fmt: skip
            chunks = int(state[streams.CHUNKS])
            state[streams.CHUNKS] = 0
            if chunks or made:
                yield chunks, self._ended[:made]
            if state[streams.STOPPED] == streams.DONE:
                return
            if not made:
                self.chunks = grown(self.chunks)

    def release(self, ended: Array) -> None:
        """Take back the rows of ended connections, once nobody needs them any more."""
        self.connections["used"][ended] = 0
        self._table.release(ended)

    def end_block(self) -> None:
        """Give back what is not held any more."""
        state = self._state
        if state[streams.HELD_USED] == 0:
            if state[streams.HELD_AT]:
                self._next_pool()
            state[streams.HELD_AT] = 0
        elif state[streams.HELD_AT] > 2 * state[streams.HELD_BYTES] + _POOL_SLACK:
            held = self.pool
            self._next_pool()
            if len(self.pool) < state[streams.HELD_BYTES]:
                self._pools[-1] = self.pool = untouched(len(held), np.uint8)
            state[streams.HELD_AT] = streams.compact(self.connections, self.directions, self.held, held, self.pool)

    def _next_pool(self) -> None:
        self._pools = [*self._pools[1:], self._pools[0]]
        self.pool = self._pools[-1]
        drop_pages(self.pool, _POOL_SLACK, len(self.pool))

    def _grow_flows(self) -> None:
        """Drop the 4-tuples that no connection uses, then make room for as many again."""
        count = int(self.counts[headers.FLOWS])
        alive = np.flatnonzero(self.flows["connection"][:count] >= 0)
        size = max(len(self.flows), 1 << int(2 * len(alive)).bit_length())
        flows = untouched(size, FLOW)
        as_bytes(flows)[: len(alive) * FLOW.itemsize] = as_bytes(taken(self.flows, alive))
        moved = np.zeros(count, dtype=np.int32)
        moved[alive] = np.arange(len(alive), dtype=np.int32)
        used = self.connections["used"] == 1
        self.connections["flow"][used] = moved[self.connections["flow"][used]]
        self.flows = flows
        self.counts[headers.FLOWS] = len(alive)
        self._hash_flows()

    def _hash_flows(self) -> None:
        self.buckets = untouched(2 * len(self.flows), np.int32)
        headers.rehash_flows(self.flows, int(self.counts[headers.FLOWS]), self.buckets, int(self.counts[headers.SEED]))

    def _grow_listeners(self) -> None:
        """Make room for as many listeners again."""
        self.learn_listeners(self.forget_listeners(2 * len(self._listeners)))

    def forget_listeners(self, rows: int = 256) -> Array:
        """Know of no listeners, and have room for half of `rows`. Returns those known before (LISTENER)."""
        known = self.listeners
        self._listeners = np.zeros(rows, dtype=LISTENER)
        self._state[listeners.LISTENERS] = 0
        return known

    def learn_listeners(self, ends: Array) -> None:
        """Take it as known that these ends (LISTENER rows) answer connections."""
        while 2 * (int(self._state[listeners.LISTENERS]) + len(ends)) + 2 > len(self._listeners):
            self._grow_listeners()
        listeners.note_listeners(np.ascontiguousarray(ends), self._listeners, self._state)

    @property
    def listeners(self) -> Array:
        """LISTENER rows of the ends that were seen to answer."""
        seen: Array = self._listeners[self._listeners["port"] != 0]
        return seen
