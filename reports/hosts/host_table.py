"""`HostTable`: names of addresses at times, for arrays.

Entries of files come before what brokers say, and that before blocks of pcapng; within each, the longest prefix comes
first. Equal names have one number, which stays the same while a table gets other entries (`renew`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values

from .host_entry import ALWAYS_FROM, ALWAYS_TO, INTERFACE, OWN, SHARED, HostEntry

Array = np.ndarray[Any, np.dtype[Any]]
#: Names behind one address that a text has.
_SHOWN = 2
#: Names of one address, one after the other, that a text has.
_IN_TURN = 2


#: Addresses whose names are kept at hand.
_MOST_KNOWN = 1 << 18


class HostName(NamedTuple):
    """Who has an address at a time. `name`: its own; "" if only `others` have it, such as several pods of a node."""

    name: str
    others: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """`payments-7f9`, `node-3 (4 pods: a, b, …)`, `2 pods: a, b`."""
        if not self.others:
            return self.name
        shown = ", ".join(self.others[:_SHOWN]) + (", …" if len(self.others) > _SHOWN else "")
        pods = f"{len(self.others):,} pod{'s' * (len(self.others) != 1)}: {shown}"
        return f"{self.name} ({pods})" if self.name else pods

    @property
    def texts(self) -> tuple[str, ...]:
        """Each of its names."""
        return (self.name, *self.others) if self.name else self.others


class _Pieces(NamedTuple):
    """The names of one address, in order of time: number `names[i]` from `starts[i]`, -1 for none, of its network
    `networks[i]`, 0 for the best."""

    starts: list[int]
    names: list[int]
    networks: list[int]


_NOBODY = _Pieces([ALWAYS_FROM], [-1], [0])


class HostTable:
    """`entries`: see `check`, which they have to pass."""

    def __init__(self, entries: Iterable[HostEntry] = ()) -> None:
        #: The names by their numbers.
        self.names: list[HostName] = []
        self._numbers: dict[HostName, int] = {}
        self._lock = Lock()  # threads of live capture read one table
        self.renew(entries)

    def renew(self, entries: Iterable[HostEntry]) -> None:
        """Replace all entries, also while other threads read. Numbers of names stay."""
        self._index = _Index(entries)

    @property
    def entries(self) -> tuple[HostEntry, ...]:
        return self._index.entries

    def __reduce__(self) -> tuple[type[HostTable], tuple[tuple[HostEntry, ...]]]:
        return HostTable, (self.entries,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostTable) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]

    def with_learned(self, entries: Iterable[HostEntry]) -> HostTable:
        """A table that has these entries of lower layers too."""
        return HostTable((*self.entries, *entries))

    @property
    def names_alone(self) -> HostTable:
        """The same without labels and origins, to be sent elsewhere."""
        return HostTable(entry._replace(labels={}, origin="") for entry in self.entries)

    def numbers(self, ip: Array, at: Array, addresses: Sequence[str]) -> Array:
        """The numbers of the names (`names`) that addresses have at times, int64 (n,); -1: none. `ip`: numbers of
        `addresses`, -1 for none; `at`: ns since the epoch."""
        index = self._index
        of_address = np.full(len(addresses) + 1, -1, np.int64)  # the last one is for -1
        changing = []
        distinct = distinct_values(ip)
        for number in distinct[distinct >= 0].tolist():
            pieces = self._of(addresses[number], index)
            if len(pieces.names) == 1:
                of_address[number] = pieces.names[0]
            else:
                changing.append((number, pieces))
        found: Array = of_address[ip]
        order = np.argsort(ip, kind="stable") if changing else distinct
        for number, pieces in changing:
            low, high = np.searchsorted(ip, (number, number + 1), sorter=order)
            rows = order[low:high]
            places = np.searchsorted(np.array(pieces.starts), at[rows], side="right") - 1
            found[rows] = np.array(pieces.names)[places]
        return found

    def name_at(self, address: str, at: int) -> HostName | None:
        """Who has an address at a time."""
        pieces = self._of(address)
        number = pieces.names[bisect_right(pieces.starts, at) - 1]
        return None if number < 0 else self.names[number]

    def within(self, address: str, first: int, last: int) -> list[HostName]:
        """Who has an address between two times, in order of time, each once. The name of a network between two names of
        the address is left out."""
        pieces = self._of(address)
        low, high = bisect_right(pieces.starts, first) - 1, bisect_right(pieces.starts, last)
        there = [at for at in range(low, high) if pieces.names[at] >= 0]
        best = min((pieces.networks[at] for at in there), default=0)
        return [self.names[n] for n in dict.fromkeys(pieces.names[at] for at in there if pieces.networks[at] == best)]

    def text(self, address: str, first: int, last: int) -> str | None:
        """The names that an address has between two times: `payments-7f9, then orders-1b2`; None without any."""
        found = [name.text for name in self.within(address, first, last)]
        if not found:
            return None
        others = f" and {len(found) - _IN_TURN:,} more" if len(found) > _IN_TURN else ""
        return ", then ".join(found[:_IN_TURN]) + others

    def zone(self, address: str, first: int = ALWAYS_FROM, last: int = ALWAYS_TO) -> str | None:
        """The zone of an address between two times, by the labels of its entries; None if there are several."""
        for entries in self._index.networks_of(address):
            zones = {e.zone for e in entries if e.start <= last and e.end > first and e.zone}
            if zones:
                return zones.pop() if len(zones) == 1 else None
        return None

    def _number(self, name: HostName) -> int:
        with self._lock:
            number = self._numbers.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
        return number

    def _of(self, address: str, index: _Index | None = None) -> _Pieces:
        index = index or self._index
        found = index.pieces.get(address)
        if found is None:
            if len(index.pieces) >= _MOST_KNOWN:
                index.pieces.clear()
            found = index.pieces[address] = self._made(address, index)
        return found

    def _made(self, address: str, index: _Index) -> _Pieces:
        layers = [_Spans(entries) for entries in index.networks_of(address)]
        if not layers:
            return _NOBODY
        found = _Pieces([], [], [])
        for start in sorted({ALWAYS_FROM, *(point for layer in layers for point in layer.points)}):
            named = ((at, name) for at, layer in enumerate(layers) if (name := layer.at(start)) is not None)
            network, name = next(named, (0, None))
            number = -1 if name is None else self._number(name)
            if not found.names or number != found.names[-1]:
                for column, value in zip(found, (start, number, network), strict=True):
                    column.append(value)
        return found


class _Index:
    """Entries by network, and what is known of addresses by them."""

    def __init__(self, entries: Iterable[HostEntry]) -> None:
        self.entries = tuple(entries)
        self._networks: dict[tuple[int, int, int], dict[int, list[HostEntry]]] = {}
        for entry in self.entries:
            group = self._networks.setdefault((entry.layer, -entry.length, entry.version), {})
            group.setdefault(entry.bits, []).append(entry)
        self._order = sorted(self._networks)
        self.pieces: dict[str, _Pieces] = {}

    def networks_of(self, address: str) -> Iterator[list[HostEntry]]:
        """The entries of each network that an address is in, the best network first."""
        try:
            ip = ip_address(address)
        except ValueError:
            return  # a name in place of addresses beyond a limit
        bits, number = ip.max_prefixlen, int(ip)
        for key in self._order:
            _, minus_length, version = key
            if version == ip.version and (found := self._networks[key].get(number >> bits + minus_length)):
                yield found


class _Spans:
    """The entries of one network."""

    def __init__(self, entries: Sequence[HostEntry]) -> None:
        self.points = {point for e in entries for point in (e.start, e.end) if point != ALWAYS_TO}
        self._shared = [e for e in entries if e.kind == SHARED]
        self._own = [sorted((e for e in entries if e.kind == kind), key=_start) for kind in (OWN, INTERFACE)]

    def at(self, at: int) -> HostName | None:
        others = tuple(sorted({e.name for e in self._shared if e.start <= at < e.end}))
        for entries in self._own:
            place = bisect_right(entries, at, key=_start) - 1
            if place >= 0 and at < entries[place].end:
                return HostName(entries[place].name, others)
        if len(others) == 1:
            return HostName(others[0])
        return HostName("", others) if others else None


#: Entries that have left their files and are kept: the latest.
_MOST_GONE = 100_000


def succeeding(before: Iterable[HostEntry], after: Iterable[HostEntry], now: int) -> list[HostEntry]:
    """The entries of files that were read again. What is no longer in them was so until `now`, ns since the epoch, and
    what is new for an address that had another name begins then, unless they say more."""
    old: dict[tuple[int, int, int, int], list[HostEntry]] = {}
    for entry in before:
        old.setdefault((entry.version, entry.length, entry.bits, entry.kind), []).append(entry)
    made: list[HostEntry] = []
    new: dict[tuple[int, int, int, int], list[HostEntry]] = {}
    for entry in after:
        key = entry.version, entry.length, entry.bits, entry.kind
        if entry.start == ALWAYS_FROM and entry.kind != SHARED:
            last = max(old.get(key, ()), key=lambda e: e.end, default=entry)
            entry = entry._replace(start=min(last.start if last.name == entry.name else now, entry.end - 1))
        new.setdefault(key, []).append(entry)
        made.append(entry)
    gone: list[HostEntry] = []
    for key, entries in old.items():
        for entry in entries:
            those = [e for e in new.get(key, ()) if key[-1] != SHARED or e.name == entry.name]
            over = min([now, entry.end, *(e.start for e in those if e.end > entry.start)])
            if over > entry.start and not any(e.name == entry.name and e.start <= entry.start for e in those):
                gone.append(entry._replace(end=over))
    return [*sorted(gone, key=lambda e: e.end)[-_MOST_GONE:], *made]


def _start(entry: HostEntry) -> int:
    return entry.start


def check(entries: Iterable[HostEntry]) -> list[HostEntry]:
    """The entries of files, equal ones once. ValueError if an address has two names at a time, with both lines. An
    interface may have the address of a node or pod, and pods that of their node."""
    found: dict[tuple[int, int, int, int], list[HostEntry]] = {}
    for entry in entries:
        found.setdefault((entry.version, entry.length, entry.bits, entry.kind), []).append(entry)
    kept: list[HostEntry] = []
    for (*_, kind), same in found.items():
        last: dict[str, int] = {}  # places in `kept`
        for entry in sorted(same, key=_start):
            whose = entry.name if kind == SHARED else ""
            before = kept[last[whose]] if whose in last else None
            if before is not None and entry.start < before.end:
                if entry.name != before.name:
                    raise ValueError(
                        f"{entry.network} is {before.name} ({before.origin}) and {entry.name} ({entry.origin}) at the "
                        "same time: leave one out, or say from when to when each has the address"
                    )
                kept[last[whose]] = before._replace(end=max(before.end, entry.end))
                continue
            last[whose] = len(kept)
            kept.append(entry)
    return kept
