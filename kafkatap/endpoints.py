"""Who talks to whom: the addresses of a run by number, and the ends of its connections."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np

from kafkatap.kernels.arrays import new_numbers, taken

Array = np.ndarray[Any, Any]


class Endpoints:
    """`addresses`: texts by number, IPv4-mapped ones as IPv4."""

    def __init__(self, connections: int) -> None:
        self.addresses: list[str] = []
        self._numbers: dict[tuple[int, int], int] = {}
        #: By 2 * connection + (1 where end b is the client): address and port of the client, then of the broker.
        self._ends = np.zeros((2 * connections, 4), np.int32)

    def begin(self, connections: int, started: Array, flows: Array) -> None:
        """Note the ends (FLOW) of connections that began, by their numbers, of a table of so many `connections`."""
        if len(self._ends) < 2 * connections:
            ends = np.zeros((2 * connections, 4), np.int32)
            ends[: len(self._ends)] = self._ends
            self._ends = ends
        for c, flow in zip(started.tolist(), flows.tolist(), strict=True):
            a_high, a_low, b_high, b_low, a_port, b_port = flow[:6]
            a, b = self._number(a_high, a_low), self._number(b_high, b_low)
            self._ends[2 * c : 2 * c + 2] = ((a, a_port, b, b_port), (b, b_port, a, a_port))

    def of(self, connections: Array, swapped: Array) -> Array:
        """int32 (n, 4): the client's address number and port, the broker's; `swapped`: where end b is the client."""
        return taken(self._ends, 2 * connections + swapped)

    def forget(self, kept: Array, open_: Array) -> Array:
        """Forget all addresses but those numbered in `kept` (int64, any order) and those of connections that are
        `open_` (bool, by number); the new numbers by the old ones, int64 (addresses + 1,): -1 for what is forgotten,
        and for -1."""
        needed = np.zeros(len(self.addresses) + 1, bool)
        needed[kept] = True
        ends = self._ends[: 2 * len(open_)]
        needed[ends[np.repeat(open_, 2)[: len(ends)]][:, (0, 2)]] = True
        needed[-1] = False
        numbers = new_numbers(needed)
        for column in (0, 2):
            self._ends[:, column] = numbers[self._ends[:, column]]
        self.addresses[:] = [self.addresses[n] for n in np.flatnonzero(needed).tolist()]
        self._numbers = {address: int(numbers[n]) for address, n in self._numbers.items() if needed[n]}
        return numbers

    def _number(self, high: int, low: int) -> int:
        number = self._numbers.get((high, low))
        if number is None:
            address = ipaddress.IPv6Address((high & (1 << 64) - 1) << 64 | (low & (1 << 64) - 1))
            number = self._numbers[high, low] = len(self.addresses)
            self.addresses.append(str(address.ipv4_mapped or address))
        return number
