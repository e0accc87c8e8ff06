"""The tables of reassembly, and the loop that runs its kernels over a block, growing what they say is full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import grown, linked_free_list, untouched

from . import headers, streams
from .rows import CHUNK, CONNECTION, DIRECTION, FLOW, HELD, LISTENER, SEGMENT

Array = np.ndarray[Any, Any]


class Assembler:
    """Packets in, chunks out. `feed` and `finish` yield how many rows of `chunks` are ready; take them before more.

    The bytes of segments that had to wait lie in `pool`. `pools`: that many take turns, so that such bytes stay until
    `end_block` was called that often.
    """

    def __init__(self, connections: int = 256, chunks: int = 16_384, pools: int = 1) -> None:
        self.counts = np.zeros(headers.STATE_SIZE, dtype=np.int64)
        self.flows = np.zeros(2 * connections, dtype=FLOW)
        self.buckets = np.zeros(4 * connections, dtype=np.int32)
        self.segments = untouched(65_536, SEGMENT)
        self.connections = np.zeros(connections, dtype=CONNECTION)
        self.directions = np.zeros(2 * connections, dtype=DIRECTION)
        self.held = np.zeros(256, dtype=HELD)
        self._pools = [untouched(16 << 20, np.uint8) for _ in range(pools)]
        self.pool = self._pools[-1]
        self.chunks = untouched(chunks, CHUNK)
        self._free = np.arange(connections - 1, -1, -1, dtype=np.int32)
        self._listeners = np.zeros(8_192, dtype=LISTENER)
        self._ended = np.zeros(4_096, dtype=np.int32)
        self._state = np.zeros(streams.STATE_SIZE, dtype=np.int64)
        self._state[streams.FREE_CONNECTIONS] = connections
        self._state[streams.FREE_HELD] = linked_free_list(self.held, 0, -1)

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
                self.held, self.pool, self._free, self._listeners, self.chunks,
            )  # fmt: skip
            stopped = int(state[streams.STOPPED])
            if stopped == streams.HELD_FULL:
                first = len(self.held)
                self.held = grown(self.held)
                state[streams.FREE_HELD] = linked_free_list(self.held, first, int(state[streams.FREE_HELD]))
            elif stopped == streams.POOL_FULL:
                self._pools[-1] = self.pool = grown(self.pool)
            elif stopped == streams.CONNECTIONS_FULL:
                self._grow_connections()
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
        count = int(self._state[streams.FREE_CONNECTIONS])
        self._free[count : count + len(ended)] = ended
        self._state[streams.FREE_CONNECTIONS] = count + len(ended)

    def end_block(self) -> None:
        """Give back what is not held any more."""
        state = self._state
        if state[streams.HELD_USED] == 0:
            if state[streams.HELD_BYTES]:
                self._next_pool()
            state[streams.HELD_BYTES] = 0
        elif state[streams.HELD_BYTES] > len(self.pool) // 2:
            held = self.pool
            self._next_pool()
            if len(self.pool) < len(held):
                self._pools[-1] = self.pool = np.empty_like(held)
            state[streams.HELD_BYTES] = streams.compact(self.connections, self.directions, self.held, held, self.pool)

    def _next_pool(self) -> None:
        self._pools = [*self._pools[1:], self._pools[0]]
        self.pool = self._pools[-1]

    def _grow_flows(self) -> None:
        """Drop the 4-tuples that no connection uses, then make room for as many again."""
        count = int(self.counts[headers.FLOWS])
        alive = np.flatnonzero(self.flows["connection"][:count] >= 0)
        size = max(len(self.flows), 1 << int(2 * len(alive)).bit_length())
        flows = np.zeros(size, dtype=FLOW)
        flows[: len(alive)] = self.flows[alive]
        moved = np.zeros(count, dtype=np.int32)
        moved[alive] = np.arange(len(alive), dtype=np.int32)
        used = self.connections["used"] == 1
        self.connections["flow"][used] = moved[self.connections["flow"][used]]
        self.flows = flows
        self.buckets = np.zeros(2 * size, dtype=np.int32)
        self.counts[headers.FLOWS] = len(alive)
        headers.rehash_flows(self.flows, len(alive), self.buckets)

    def _grow_connections(self) -> None:
        old = len(self.connections)
        self.connections = grown(self.connections)
        self.directions = grown(self.directions)
        free = np.zeros(len(self.connections), dtype=np.int32)
        free[:old] = np.arange(2 * old - 1, old - 1, -1, dtype=np.int32)
        self._free = free
        self._state[streams.FREE_CONNECTIONS] = old
