"""The addresses and ports at both ends of each connection. Rows hold addresses as numbers."""

from __future__ import annotations

from typing import Any
from weakref import proxy

import numpy as np

from kafkatap.dissector.dissector import Dissector
from kafkatap.kernels.arrays import new_numbers, taken

Array = np.ndarray[Any, Any]
#: The text in place of addresses beyond the limit, and its key.
OTHER, _OTHER = "(other)", (-1, -1)
#: Odd numbers with about as many ones as zeros, by which ends are mixed.
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x2545F4914F6CDD1D], np.uint64)
#: Fewer addresses than this are looked up one by one.
_FEW = 200


def end_keys(high: Array, low: Array, ports: Array) -> Array:
    """Keys of ends, int32 (n,), the same in every run: never 0. Addresses by their upper and lower 64 bits."""
    mixed = high.astype(np.uint64) * _MIX[0] + low.astype(np.uint64) * _MIX[1] + ports.astype(np.uint64) * _MIX[2]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX[0]
    keys: Array = (mixed >> np.uint64(33)).astype(np.int32) | 1
    return keys


class Endpoints:
    """`addresses`: the text of each address by its number; IPv4-mapped addresses as IPv4. `limit`: how many there are
    at most, beside OTHER.

    The dissector keeps the ends of connections (`Dissector.ends`), as it writes them to exchanges.
    """

    def __init__(self, dissector: Dissector, limit: int = 1 << 62) -> None:
        self._limit = limit
        self.refused = 0  # connections with an address beyond the limit
        self.addresses: list[str] = []
        self._numbers: dict[tuple[int, int], int] = {}
        # The dissector has a method of this object. With a cycle its tables would outlive their run.
        self._dissector: Dissector = proxy(dissector)
        dissector.on_sources = self._set_sources

    def begin(self, connections: int, started: Array, flows: Array) -> None:
        """Add connections that began: their numbers and FLOW rows. `connections`: rows in the table of connections."""
        self._dissector.reserve(connections)
        a = self._numbered(flows["a_high"], flows["a_low"])
        b = self._numbered(flows["b_high"], flows["b_low"])
        known, ends = self._dissector.connections, self._dissector.ends.reshape(-1, 8)
        for end in ("a", "b"):
            known[f"end_{end}"][started] = end_keys(*(flows[f"{end}_{part}"] for part in ("high", "low", "port")))
        for column, values in enumerate((a, flows["a_port"], b, flows["b_port"])):
            ends[started, column] = ends[started, (column + 2) % 4 + 4] = values

    def _set_sources(self, connections: Array) -> None:
        """Make what a PROXY header says the client's end of connections (numbers)."""
        known = taken(self._dissector.connections, connections)
        ends, rows = self._ends, 2 * connections + (known["client"] == 1)
        ends[rows, 0] = self._numbered(known["source_high"], known["source_low"])
        ends[rows, 1] = known["source_port"]

    def both(self, connection: int) -> tuple[tuple[str, int], tuple[str, int]]:
        """The address and port of one end of a connection, and of the other one."""
        a, a_port, b, b_port = self._ends[2 * connection].tolist()
        return (self.addresses[a], a_port), (self.addresses[b], b_port)

    def proxies(self, connections: Array) -> Array:
        """The TCP peer that sent a PROXY header with a source, int32 (n, 2): address number and port; -1 for none."""
        known = self._dissector.connections
        peers = taken(self._ends, 2 * connections + (known["client"][connections] != 1))[:, 2:].copy()
        peers[known["source_port"][connections] < 0] = -1
        return peers

    @property
    def _ends(self) -> Array:
        """Row 2 * connection + (1 if end b is the client): address and port of the client, then of the broker."""
        return self._dissector.ends.reshape(-1, 4)

    def of(self, connections: Array, swapped: Array) -> Array:
        """int32 (n, 4): address number and port of the client, then of the broker. `swapped`: end b is the client."""
        return taken(self._ends, 2 * connections + swapped)

    def forget(self, kept: Array, open_: Array) -> Array:
        """Remove all addresses but those in `kept` (int64 numbers) and those of open connections (bool, by number).

        Returns the new number of each old one, int64 (addresses + 1,); -1 for a removed address, and for -1.
        """
        needed = np.zeros(len(self.addresses) + 1, bool)
        needed[kept] = True
        ends = self._ends
        there = ends[: 2 * len(open_)]
        needed[there[np.repeat(open_, 2)[: len(there)]][:, (0, 2)]] = True
        needed[-1] = False
        numbers = new_numbers(needed)
        for column in (0, 2):
            ends[:, column] = numbers[ends[:, column]]
        self.addresses[:] = [self.addresses[n] for n in np.flatnonzero(needed).tolist()]
        self._numbers = {address: int(numbers[n]) for address, n in self._numbers.items() if needed[n]}
        return numbers

    def _numbered(self, high: Array, low: Array) -> Array:
        """The numbers of addresses, int64 (n,), by their upper and lower 64 bits, int64 (n,) each. Adds new ones."""
        if len(high) < _FEW:
            addresses = zip(high.tolist(), low.tolist(), strict=True)
            return np.array([self._number(*address) for address in addresses], np.int64)
        both = np.stack([high, low], axis=1)
        different, inverse = np.unique(both.view("V16").reshape(-1), return_inverse=True)
        first = different.view(np.int64).reshape(-1, 2).tolist()
        return np.array([self._number(*address) for address in first], np.int64)[inverse.reshape(-1)]

    def _number(self, high: int, low: int) -> int:
        number = self._numbers.get((high, low))
        if number is None and len(self.addresses) >= self._limit:
            self.refused += 1
            high, low = _OTHER
            number = self._numbers.get(_OTHER)
        if number is None:
            number = self._numbers[high, low] = len(self.addresses)
            is_other = (high, low) == _OTHER
            self.addresses.append(OTHER if is_other else _text(high & (1 << 64) - 1, low & (1 << 64) - 1))
        return number


def _text(high: int, low: int) -> str:
    """The text of an address by its upper and lower 64 bits."""
    if not high and low >> 32 == 0xFFFF:  # IPv4
        return ".".join(map(str, (low & 0xFFFFFFFF).to_bytes(4, "big")))
    from ipaddress import IPv6Address  # takes 1 ms to import

    return str(IPv6Address(high << 64 | low))
