"""What the transfer times of messages were spent on: stalls of TCP joined with exchanges, by connection.

A message's transfer lasts from its first byte to its last. A stall (`reassembly.measures`) that ends in that time lies
in it, as it begins with a segment of the same message. Its cause is RECEIVER_LIMITED, LOSS or SENDER_IDLE. The rest of
the transfer is the path's. A request that was lost behind the capture point is sent again while its sender waits for
the response: that loss is a part of the wait (`wait_loss_ns`), not of the broker's time. It counts for the request that
was the last one sent.

Stalls are kept until an exchange that finishes shows that no later one needs them, and no more than STALLS_KEPT.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME, WAITS
from kafkatap.kernels.arrays import taken
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reassembly.dtypes import LOSS, RECEIVER_LIMITED, SENDER_IDLE, STALL
from kafkatap.reports.batch import EXCHANGE_SUMS, TRANSFER

Array = np.ndarray[Any, Any]
#: Stalls that are kept for exchanges to come. Beyond that, the earliest half is dropped: it counts as path.
STALLS_KEPT = 262_144
_CAUSES = ("receiver_limited", "loss", "sender_idle")
assert tuple(range(len(_CAUSES))) == (RECEIVER_LIMITED, LOSS, SENDER_IDLE)
#: Sums over the exchanges of a connection.
_SUMS = record_dtype(*((name, "i8") for name in TRANSFER.names or ()), *((name, "i8") for name in EXCHANGE_SUMS))


class Transfers:
    """Joins stalls with the exchanges of batches. Connections have the numbers of the dissector."""

    def __init__(self) -> None:
        self._stalls: Array = np.zeros(0, STALL)
        self._number_of: dict[int, int] = {}  # connections by key
        self._sums: Array = np.zeros(256, _SUMS)
        self._seen: Array = np.full(512, NO_TIME, np.int64)  # by direction: when its last complete message ended

    def begin(self, numbers: Array, keys: Array, connections: int) -> None:
        """Note connections that begin, with their keys. `connections`: rows in the table of connections."""
        if connections > len(self._sums):
            room = max(connections, 2 * len(self._sums))
            sums, seen = np.zeros(room, _SUMS), np.full(2 * room, NO_TIME, np.int64)
            sums[: len(self._sums)], seen[: len(self._seen)] = self._sums, self._seen
            self._sums, self._seen = sums, seen
        self._sums[numbers] = np.zeros(1, _SUMS)
        self._seen[2 * numbers] = self._seen[2 * numbers + 1] = NO_TIME
        self._number_of.update(zip(keys.tolist(), numbers.tolist(), strict=True))

    def add_stalls(self, stalls: Array) -> None:
        """Add STALL rows, whose connections have begun."""
        if len(stalls):
            self._stalls = np.concatenate((self._stalls, stalls))
        if len(self._stalls) > STALLS_KEPT:
            order = np.argsort(self._stalls["end"], kind="stable")
            self._stalls = taken(self._stalls, np.sort(order[len(order) // 2 :]))

    def split(self, exchanges: Array, clients: Array) -> Array:
        """Split the transfer times of exchanges: TRANSFER (n,). `clients`: by connection, the client's direction."""
        made = np.zeros(len(exchanges), TRANSFER)
        keys, inverse = np.unique(exchanges["connection"], return_inverse=True)
        numbers = np.array([self._number_of.get(key, -1) for key in keys.tolist()], np.int64)[inverse]
        known = np.flatnonzero(numbers >= 0)
        x, numbers = taken(exchanges, known), numbers[known]
        client = np.maximum(clients[numbers], 0).astype(np.int64)
        sums = self._sums
        for message, direction in (("request", client), ("response", 1 - client)):
            first, last, streams = x[f"{message}_first"], x[f"{message}_last"], 2 * numbers + direction
            has = np.flatnonzero((first != NO_TIME) & (last != NO_TIME) & (last >= first))
            durations = last[has] - first[has]
            made[f"{message}_transfer_ns"][known[has]] = durations
            parts = self._parts(streams[has], first[has], last[has])
            for name, part in zip(_CAUSES, parts, strict=True):
                made[f"{message}_{name}_ns"][known[has]] = np.minimum(part, durations)
            np.maximum.at(self._seen, streams[has], last[has])
        begin, end = x["request_last"], x["response_first"]
        waits = np.flatnonzero((begin != NO_TIME) & (end != NO_TIME) & (end > begin))
        begin, end = begin[waits], end[waits]
        parts = self._parts(2 * numbers[waits] + client[waits], begin - 1, begin, "new_data")
        made["wait_loss_ns"][known[waits]] = np.minimum(parts[LOSS], end - begin)
        for name in TRANSFER.names or ():
            np.add.at(sums[name], numbers, made[name][known])
        answered = x["outcome"] == ANSWERED
        np.add.at(sums["exchanges"], numbers, 1)
        for name in ("total_ns", "hol_wait_ns", "throttle_wait_ns"):
            np.add.at(sums[name], numbers[answered], x[name][answered])
        working = answered & ~np.isin(x["api_key"], WAITS)
        np.add.at(sums["broker_ns"], numbers[working], x["broker_ns"][working])
        if len(self._stalls):  # of unfinished messages
            of = 2 * self._stalls["connection"].astype(np.int64) + self._stalls["direction"]
            self._stalls = taken(self._stalls, np.flatnonzero(self._stalls["end"] > self._seen[of]))
        return made

    def _parts(self, streams: Array, first: Array, last: Array, time: str = "end") -> list[Array]:
        """The stalls whose `time` is in (first, last] of a direction, summed by cause: int64 (n,) each."""
        stalls = self._stalls
        if not len(stalls) or not len(streams):
            return [np.zeros(len(streams), np.int64) for _ in _CAUSES]
        count, wanted = len(stalls), len(streams)
        of = np.concatenate((2 * stalls["connection"].astype(np.int64) + stalls["direction"], streams, streams))
        times = np.concatenate((stalls[time], first, last))
        order = np.lexsort((np.arange(len(of)) >= count, times, of))
        place = np.empty(len(of), np.int64)
        place[order] = np.arange(len(of))
        found = []
        for cause in range(len(_CAUSES)):
            added = np.zeros(len(of), np.int64)
            added[:count] = np.where(stalls["cause"] == cause, stalls["end"] - stalls["begin"], 0)
            until = np.cumsum(added[order])[place]
            found.append(until[count + wanted :] - until[count : count + wanted])
        return found

    def sums_of(self, numbers: Array) -> Array:
        """The sums of connections: one row each with the fields of TRANSFER and EXCHANGE_SUMS."""
        return taken(self._sums, numbers)

    def end(self, numbers: Array, keys: Array) -> None:
        """Forget connections that are over."""
        for key, number in zip(keys.tolist(), numbers.tolist(), strict=True):
            if self._number_of.get(key) == number:
                del self._number_of[key]
        if len(self._stalls):
            self._stalls = taken(self._stalls, np.flatnonzero(~np.isin(self._stalls["connection"], numbers)))

    def discount(self) -> None:
        """Drop the sums so far: another run has them."""
        self._sums[:] = np.zeros(1, _SUMS)
