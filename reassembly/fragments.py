"""IP fragments: incomplete datagrams wait in a bounded table until all their bytes arrived.

A datagram's fragments have the same addresses, identification and, in IPv4, protocol. Its payload is gathered in a slot
of LONGEST bytes. If fragments overlap, the first bytes win. A complete datagram is copied to the held pool behind a
header of its own, and read from there like a packet. The snap length may have cut fragments: then the datagram has the
bytes before the first one that is missing.

A datagram waits for MAX_AGE_NS of capture time. If no row is free, the one that waits longest is evicted. Complete ones
stay for COPIES_NS, because a second interface may see the same fragments between those of the first one.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import untouched
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import hash_start, mix, mix64, new_seed, spread
from kafkatap.kernels.table import SlotTable, release_row, rows_left, take_row

from .packet_counts import EVICTED_FRAGMENT, FRAGMENT, PACKETS_STATE, TCP

Array = np.ndarray[Any, Any]

#: How many datagrams are kept, at most.
DATAGRAMS = 256
#: The longest datagram, which is the size of a slot.
LONGEST = 65_536
#: Fragments start at multiples of this many bytes.
UNIT = 8
_UNITS = LONGEST // UNIT
MAX_AGE_NS = 30_000_000_000
COPIES_NS = 50_000_000
#: After this time, ns, a fragment with other bytes at the same place is of a new datagram with the same identification.
REUSED_NS = 1_000_000_000
#: Bytes of an IPv6 header, which is the longest one in front of a complete datagram.
HEADER = 40

#: One datagram. It is in one of two lists, of those that wait and of those that are complete, oldest first.
DATAGRAM = record_dtype(
    ("source_high", "i8"),
    ("source_low", "i8"),
    ("target_high", "i8"),
    ("target_low", "i8"),
    ("identifier", "i8"),  # identification, protocol and IP version
    ("since", "i8"),  # time of its first fragment, or of that which completed it, ns
    ("length", "i8"),  # bytes of payload; -1 until the last fragment was seen
    ("reach", "i8"),  # bytes up to the end of its furthest fragment
    ("cut", "i8"),  # the first byte that the snap length cut off, or LONGEST
    ("units", "i8"),  # how many units have arrived
    ("packets", "i8"),  # packets that wait with it
    ("category", "i4"),  # what they were counted in, once it is complete
    ("bucket_next", "i4"),
    ("older", "i4"),
    ("newer", "i4"),
    ("is_complete", "u1"),
)
#: One row: the ends of both lists (-1: empty).
FRAGMENTS_STATE = record_dtype(
    ("seed", "i8"),
    ("waiting_first", "i8"),
    ("waiting_last", "i8"),
    ("complete_first", "i8"),
    ("complete_last", "i8"),
    ("seen", "i8"),  # fragments so far
)
#: One fragment, as scalars (int64). The payload's captured bytes are at `at`; `wire` bytes were on the wire. `offset`
#: is that of the first in its datagram. `packets`: how many packets carried it.
Fragment = namedtuple(
    "Fragment",
    "source_high source_low target_high target_low identifier offset at captured wire is_last ts packets",
)


class FragmentArrays(NamedTuple):
    """The arrays of a `FragmentTable`, as one argument of a kernel."""

    state: Annotated[Array, FRAGMENTS_STATE]
    rows: Annotated[Array, DATAGRAM]
    free: Annotated[Array, np.int32]
    buckets: Annotated[Array, np.int32]  # the first row of each chain plus one; 0: none
    arrived: Annotated[Array, np.uint8]  # _UNITS for each row: 1 for a unit that has arrived
    payload: Annotated[Array, np.uint8]  # LONGEST bytes for each row


@helper
def _bucket(f, source_low, target_low, identifier):  # type: ignore[no-untyped-def]
    """Return the bucket of a datagram."""
    seed = f.state[0].seed
    h = mix64(mix64(hash_start(seed), source_low, seed), target_low, seed)
    return spread(mix(mix(h, identifier, seed), identifier >> 32, seed)) & (f.buckets.shape[0] - 1)


@helper
def _find(f, fragment):  # type: ignore[no-untyped-def]
    """Return the row of a fragment's datagram, or -1."""
    row = np.int64(f.buckets[_bucket(f, fragment.source_low, fragment.target_low, fragment.identifier)]) - 1
    while row >= 0:
        node = f.rows[row]
        if (
            node.identifier == fragment.identifier
            and node.source_low == fragment.source_low
            and node.target_low == fragment.target_low
            and node.source_high == fragment.source_high
            and node.target_high == fragment.target_high
        ):
            return row
        row = np.int64(node.bucket_next)
    return np.int64(-1)


@helper
def _append(f, row):  # type: ignore[no-untyped-def]
    """Append a row to the list that it belongs to."""
    state = f.state[0]
    node = f.rows[row]
    last = state.complete_last if node.is_complete else state.waiting_last
    node.older = last
    node.newer = -1
    if last >= 0:
        f.rows[last].newer = row
    elif node.is_complete:
        state.complete_first = row
    else:
        state.waiting_first = row
    if node.is_complete:
        state.complete_last = row
    else:
        state.waiting_last = row


@helper
def _unlink(f, row):  # type: ignore[no-untyped-def]
    """Remove a row from its list."""
    state = f.state[0]
    node = f.rows[row]
    older, newer = np.int64(node.older), np.int64(node.newer)
    if older >= 0:
        f.rows[older].newer = newer
    elif node.is_complete:
        state.complete_first = newer
    else:
        state.waiting_first = newer
    if newer >= 0:
        f.rows[newer].older = older
    elif node.is_complete:
        state.complete_last = older
    else:
        state.waiting_last = older


@helper
def _release(f, h, row):  # type: ignore[no-untyped-def]
    """Drop a datagram. Packets that still wait with it are counted."""
    node = f.rows[row]
    h.packets[FRAGMENT] += node.packets
    _unlink(f, row)
    bucket = _bucket(f, node.source_low, node.target_low, node.identifier)
    at = np.int64(f.buckets[bucket]) - 1
    if at == row:
        f.buckets[bucket] = node.bucket_next + 1
    else:
        while f.rows[at].bucket_next != row:
            at = np.int64(f.rows[at].bucket_next)
        f.rows[at].bucket_next = node.bucket_next
    first = row * _UNITS
    for unit in range(first, first + (node.reach + UNIT - 1) // UNIT):
        f.arrived[np.uintp(unit)] = 0
    release_row(f.free, row)


@helper
def drop_old(f, h, ts):  # type: ignore[no-untyped-def]
    """Drop the datagrams that are too old at a time."""
    state = f.state[0]
    while state.waiting_first >= 0 and ts - f.rows[state.waiting_first].since > MAX_AGE_NS:
        _release(f, h, np.int64(state.waiting_first))
    while state.complete_first >= 0 and ts - f.rows[state.complete_first].since > COPIES_NS:
        _release(f, h, np.int64(state.complete_first))


@helper
def _new(f, h, fragment):  # type: ignore[no-untyped-def]
    """Return the row of a new datagram."""
    state = f.state[0]
    if rows_left(f.free) == 0:
        if state.complete_first >= 0:
            _release(f, h, np.int64(state.complete_first))
        else:
            oldest = np.int64(state.waiting_first)
            h.packets[EVICTED_FRAGMENT] += f.rows[oldest].packets
            f.rows[oldest].packets = 0
            _release(f, h, oldest)
    row = take_row(f.free)
    node = f.rows[row]
    node.source_high = fragment.source_high
    node.source_low = fragment.source_low
    node.target_high = fragment.target_high
    node.target_low = fragment.target_low
    node.identifier = fragment.identifier
    node.since = fragment.ts
    node.length = -1
    node.reach = 0
    node.cut = LONGEST
    node.units = 0
    node.packets = 0
    node.category = TCP
    node.is_complete = 0
    bucket = _bucket(f, fragment.source_low, fragment.target_low, fragment.identifier)
    node.bucket_next = f.buckets[bucket] - 1
    f.buckets[bucket] = row + 1
    _append(f, row)
    return row


@helper
def _copy(data, f, row, fragment):  # type: ignore[no-untyped-def]
    """Copy those units of a fragment to its datagram that have not arrived yet."""
    node = f.rows[row]
    base = row * LONGEST
    for unit in range(fragment.offset // UNIT, (fragment.offset + fragment.wire + UNIT - 1) // UNIT):
        if f.arrived[np.uintp(row * _UNITS + unit)] != 0:
            continue
        f.arrived[np.uintp(row * _UNITS + unit)] = 1
        node.units += 1
        place = unit * UNIT - fragment.offset
        whole = min(np.int64(UNIT), fragment.wire - place)
        there = max(np.int64(0), min(whole, fragment.captured - place))
        for k in range(there):
            f.payload[np.uintp(base + unit * UNIT + k)] = data[np.uintp(fragment.at + place + k)]
        if there < whole:
            node.cut = min(node.cut, unit * UNIT + there)


@helper
def _differs(data, f, row, fragment):  # type: ignore[no-untyped-def]
    """Whether a fragment has other bytes than its datagram where both have some."""
    base = row * LONGEST
    known = min(fragment.captured, f.rows[row].cut - fragment.offset)
    for k in range(known):
        place = fragment.offset + k
        has_arrived = f.arrived[np.uintp(row * _UNITS + place // UNIT)] != 0
        if has_arrived and f.payload[np.uintp(base + place)] != data[np.uintp(fragment.at + k)]:
            return True
    return False


@helper
def _is_of(data, f, row, fragment):  # type: ignore[no-untyped-def]
    """Whether a fragment belongs to the datagram in `row`, and not to a later one of the same identification."""
    node = f.rows[row]
    if node.is_complete == 0:
        return fragment.ts - node.since <= REUSED_NS or not _differs(data, f, row, fragment)
    end = fragment.offset + fragment.wire
    return (end == node.length if fragment.is_last else end < node.length) and not _differs(data, f, row, fragment)


@helper
def add_fragment(data, f, h, fragment):  # type: ignore[no-untyped-def]
    """Add a fragment, whose bytes lie in `data`; return the row of its datagram if that is complete now, else -1.

    The caller has checked that it has bytes and ends within LONGEST. Its packets wait with the datagram, or are counted
    if that was complete before.
    """
    f.state[0].seen += 1
    drop_old(f, h, fragment.ts)
    row = _find(f, fragment)
    if row >= 0 and not _is_of(data, f, row, fragment):
        _release(f, h, row)
        row = np.int64(-1)
    if row < 0:
        row = _new(f, h, fragment)
    node = f.rows[row]
    if node.is_complete:
        h.packets[node.category] += fragment.packets
        return np.int64(-1)
    node.packets += fragment.packets
    end = fragment.offset + fragment.wire
    if fragment.is_last and node.length < 0 and end >= node.reach:
        node.length = end
    if node.length >= 0 and end > node.length:
        return np.int64(-1)  # it contradicts an earlier one
    node.reach = max(node.reach, end)
    _copy(data, f, row, fragment)
    if node.length < 0 or node.units < (node.length + UNIT - 1) // UNIT:
        return np.int64(-1)
    _unlink(f, row)
    node.is_complete = 1
    node.since = fragment.ts
    _append(f, row)
    return row


@helper
def _put16(out, at, value):  # type: ignore[no-untyped-def]
    out[np.uintp(at)] = (value >> 8) & 0xFF
    out[np.uintp(at + 1)] = value & 0xFF


@helper
def _put64(out, at, value):  # type: ignore[no-untyped-def]
    for k in range(8):
        out[np.uintp(at + k)] = (value >> (56 - 8 * k)) & 0xFF


@helper
def take_datagram(f, row, protocol, ip_id, pool, at):  # type: ignore[no-untyped-def]
    """Write a complete datagram to `pool` at `at`, as an IP packet of `protocol` without options; return its length.

    Its packets do not wait any more. Only its header says how long it was on the wire.
    """
    node = f.rows[row]
    is_ipv4 = node.identifier >> 40 == 4
    header = np.int64(20 if is_ipv4 else HEADER)
    for k in range(header):
        pool[np.uintp(at + k)] = 0
    if is_ipv4:
        pool[np.uintp(at)] = 0x45
        _put16(pool, at + 2, min(header + node.length, np.int64(0xFFFF)))
        _put16(pool, at + 4, ip_id)
        pool[np.uintp(at + 9)] = protocol
        for k in range(4):
            pool[np.uintp(at + 12 + k)] = (node.source_low >> (24 - 8 * k)) & 0xFF
            pool[np.uintp(at + 16 + k)] = (node.target_low >> (24 - 8 * k)) & 0xFF
    else:
        pool[np.uintp(at)] = 0x60
        _put16(pool, at + 4, node.length)
        pool[np.uintp(at + 6)] = protocol
        _put64(pool, at + 8, node.source_high)
        _put64(pool, at + 16, node.source_low)
        _put64(pool, at + 24, node.target_high)
        _put64(pool, at + 32, node.target_low)
    captured = min(node.length, node.cut)
    base = row * LONGEST
    for k in range(captured):
        pool[np.uintp(at + header + k)] = f.payload[np.uintp(base + k)]
    node.packets = 0
    return header + captured


@kernel(FragmentArrays, PACKETS_STATE, int, int)
def drop_datagrams(f, headers, now, everything):  # type: ignore[no-untyped-def]
    """Drop the datagrams that are too old at `now` (ns), or all; return how many are left."""
    state = f.state[0]
    h = headers[0]
    drop_old(f, h, now)
    while everything != 0 and state.waiting_first >= 0:
        _release(f, h, np.int64(state.waiting_first))
    while everything != 0 and state.complete_first >= 0:
        _release(f, h, np.int64(state.complete_first))
    return f.rows.shape[0] - rows_left(f.free)


class SavedDatagram(NamedTuple):
    """A datagram outside of the table: its DATAGRAM row (1,), which units arrived, and its bytes up to its reach."""

    row: Array
    arrived: Array
    payload: Array

    @property
    def key(self) -> tuple[int, ...]:
        """What its fragments have in common."""
        names = ("source_high", "source_low", "target_high", "target_low", "identifier")
        return tuple(int(self.row[name][0]) for name in names)

    def joined(self, later: SavedDatagram) -> SavedDatagram:
        """This one with the fragments that came later."""
        row, units = self.row.copy(), max(len(self.arrived), len(later.arrived))
        arrived, payload = np.zeros(units, np.uint8), np.zeros(units * UNIT, np.uint8)
        for saved in (later, self):  # the first bytes win
            there = np.flatnonzero(saved.arrived)
            arrived[there] = 1
            payload.reshape(-1, UNIT)[there] = _in_units(saved.payload)[there]
        row["units"] = np.count_nonzero(arrived)
        row["packets"] += later.row["packets"]
        row["reach"] = max(row["reach"], later.row["reach"])
        row["cut"] = min(row["cut"], later.row["cut"])
        if row["length"][0] < 0:
            row["length"] = later.row["length"]
        return SavedDatagram(row, arrived, payload[: int(row["reach"][0])])

    @property
    def is_complete(self) -> bool:
        length = int(self.row["length"][0])
        return 0 <= length <= UNIT * int(self.row["units"][0])


def _in_units(payload: Array) -> Array:
    """Bytes in rows of one unit each."""
    whole = np.zeros(-(-len(payload) // UNIT) * UNIT, np.uint8)
    whole[: len(payload)] = payload
    return whole.reshape(-1, UNIT)


class FragmentTable:
    """The datagrams of which some fragments are missing, and those that were complete a moment ago."""

    def __init__(self) -> None:
        self._state = np.zeros(1, FRAGMENTS_STATE)
        self._state["seed"] = new_seed()
        for name in ("waiting_first", "waiting_last", "complete_first", "complete_last"):
            self._state[name] = -1
        self._table = SlotTable(DATAGRAMS, datagrams=DATAGRAM)
        self.arrays = FragmentArrays(
            self._state, self._table["datagrams"], self._table.free, np.zeros(2 * DATAGRAMS, np.int32),
            untouched(DATAGRAMS * _UNITS, np.uint8), untouched(DATAGRAMS * LONGEST, np.uint8),
        )  # fmt: skip

    def __len__(self) -> int:
        """Return how many datagrams there are."""
        return self._table.in_use

    @property
    def seen(self) -> int:
        """How many fragments there were so far."""
        return int(self._state["seen"][0])

    @property
    def waiting_packets(self) -> int:
        """How many packets wait."""
        return int(self._table["datagrams"]["packets"][self._table.taken_rows()].sum())

    def forget_packets(self) -> None:
        """Count the packets that wait nowhere: another run counts them."""
        self._table["datagrams"]["packets"] = 0

    def saved(self) -> list[SavedDatagram]:
        """Copies of all datagrams, oldest first."""
        found, state, rows = [], self._state[0], self.arrays.rows
        for first in (int(state.waiting_first), int(state.complete_first)):
            number = first
            while number >= 0:
                row = rows[number : number + 1].copy()
                reach = int(row["reach"][0])
                units = slice(number * _UNITS, number * _UNITS + -(-reach // UNIT))
                payload = self.arrays.payload[number * LONGEST : number * LONGEST + reach]
                found.append(SavedDatagram(row, self.arrays.arrived[units].copy(), payload.copy()))
                number = int(row["newer"][0])
        return found

    def restore(self, saved: Sequence[SavedDatagram]) -> None:
        """Hold these datagrams, and no others."""
        arrays = self.arrays
        drop_datagrams(arrays, np.zeros(1, PACKETS_STATE), 0, 1)
        for datagram in saved[-DATAGRAMS:]:
            number = int(take_row(arrays.free))
            arrays.rows[number : number + 1] = datagram.row
            row = arrays.rows[number]
            bucket = int(_bucket(arrays, row.source_low, row.target_low, row.identifier))
            row.bucket_next = arrays.buckets[bucket] - 1
            arrays.buckets[bucket] = number + 1
            first = number * _UNITS
            arrays.arrived[first : first + len(datagram.arrived)] = datagram.arrived
            first = number * LONGEST
            arrays.payload[first : first + len(datagram.payload)] = datagram.payload
            _append(arrays, number)
