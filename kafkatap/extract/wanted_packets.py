"""The second pass: the packets of a capture that a plan wants, with their interfaces, times and options.

A packet is found by its TCP segment: by its connection (of the connections of its 4-tuple, the last one that began
before), by the place of its payload in the stream, and by its time. The fragments of a wanted datagram are wanted too;
a capture that has fragments is read once more for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import as_bytes
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import FIN, QUOTED, RST, SYN
from kafkatap.reassembly.flows import KEY_BYTES
from kafkatap.reassembly.pcapng_blocks import Options
from kafkatap.reassembly.trail import LONGEST_TRAIL, TRAIL

from ..captures.capture_reader import FileReport
from ..captures.merge import Merger, Pending, Place, places
from ..run import Watch, never
from .exchange_index import ExchangeIndex
from .fragment_places import FRAGMENT_PLACE, find_fragments
from .neighbourhood import BIAS, COPY_NONE, COPY_WHOLE, SPAN, Plan
from .source_blocks import SourceInterface, SourceReader

Array = np.ndarray[Any, Any]


class WantedPackets(NamedTuple):
    """Packets to write, of one block of a capture, which is in `buffer`. `numbers`: of the first pass (int64). `rows`:
    PACKET_BLOCK, whose interfaces are numbers of `interfaces`. `options`: by row."""

    numbers: Array
    rows: Array
    options: dict[int, Options]
    buffer: Array
    interfaces: Sequence[SourceInterface]


#: By 4-tuple: its connections in order of time (numbers), and when each one began.
ByEnds = dict[bytes, tuple[Array, Array]]


def connections_by_ends(connections: Array, wanted: Array) -> ByEnds:
    """The CONNECTION_PLACEs of each 4-tuple that has a wanted one (bool)."""
    ends = connections["ends"]
    keys = as_bytes(np.ascontiguousarray(ends[wanted])).reshape(-1, KEY_BYTES).copy().view("V40").reshape(-1)
    known = set(keys.tolist())
    order = np.argsort(connections["first"], kind="stable")
    groups: dict[bytes, list[int]] = {}
    for number, key in zip(order.tolist(), ends[order].tolist(), strict=True):
        if key in known:
            groups.setdefault(key, []).append(number)
    first = connections["first"].astype(np.int64)
    return {key: (np.array(numbers), first[numbers]) for key, numbers in groups.items()}


class SegmentChooser:
    """Decides which TCP segments are wanted. It keeps how far the sequence numbers of each stream came, so all captures
    of a run share one."""

    def __init__(self, index: ExchangeIndex, plan: Plan) -> None:
        self._plan = plan
        connections = index.connections
        self._base = connections["base_seq"].reshape(-1).astype(np.int64)
        self._seq, self._offset = self._base.copy(), np.zeros(len(self._base), np.int64)
        self._is_over = np.zeros(len(connections), bool)
        self.by_ends = connections_by_ends(connections, plan.how != COPY_NONE)

    def choose(self, segments: Array, connections: Array) -> Array:
        """Which segments of known connections (numbers, int64) are wanted: bool."""
        plan = self._plan
        how = plan.how[connections]
        wanted: Array = how == COPY_WHOLE
        flags = segments["tcp_flags"]
        streams = 2 * connections + segments["direction"]
        offsets = self._offsets(segments, streams)
        wire = segments["wire"].astype(np.int64)
        is_edge = flags & (SYN | FIN | RST) != 0
        is_over = self._after_ends(connections, is_edge & (flags & SYN == 0))
        parts = (how != COPY_NONE) & (how != COPY_WHOLE)
        places = streams * SPAN + BIAS + offsets
        carries = (wire > 0) & _meets(plan.bytes_from, plan.bytes_to, places, places + wire - 1, half_open=True)
        times = plan.time_places(connections, segments["ts"])
        in_time = _meets(plan.times_from, plan.times_to, times, times, half_open=False)
        wanted |= parts & (carries | in_time | is_edge | ((wire == 0) & is_over))
        return wanted

    def _offsets(self, segments: Array, streams: Array) -> Array:
        """The stream offsets of the payloads."""
        seq = (segments["seq"] + (segments["tcp_flags"] & SYN != 0)) & 0xFFFFFFFF
        order = np.argsort(streams, kind="stable")
        ordered, seq = streams[order], seq[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        steps = np.empty(len(order), np.int64)
        steps[1:] = seq[1:] - seq[:-1]
        steps[is_first] = seq[is_first] - self._seq[ordered[is_first]]
        steps = ((steps + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        steps[is_first] += self._offset[ordered[is_first]]
        sums = np.cumsum(steps)
        starts = np.flatnonzero(is_first)
        before = sums[starts] - steps[starts]
        counts = np.diff(np.append(starts, len(order)))
        found = sums - np.repeat(before, counts)
        last = starts + counts - 1
        self._seq[ordered[last]], self._offset[ordered[last]] = seq[last], found[last]
        offsets = np.empty(len(order), np.int64)
        offsets[order] = found
        return offsets

    def _after_ends(self, connections: Array, ends: Array) -> Array:
        """Which segments come after a FIN or RST of their connection, or are one: bool."""
        self._is_over[connections[ends]] = True  # within a block, a few acknowledgements more do no harm
        over: Array = self._is_over[connections]
        return over


def _meets(begin: Array, end: Array, first: Array, last: Array, half_open: bool) -> Array:
    """Whether first..last (inclusive) meets one of the ascending intervals: bool."""
    if not len(begin):
        return np.zeros(len(first), bool)
    at = np.searchsorted(begin, last, "right") - 1
    limit = end[np.maximum(at, 0)]
    found: Array = (at >= 0) & (limit > first if half_open else limit >= first)
    return found


class FlowConnections:
    """The connections of the flows of one assembler, which keeps them (`keep_flows`)."""

    def __init__(self, assembler: Assembler, by_ends: ByEnds) -> None:
        self._assembler = assembler
        self._by_ends = by_ends
        self._single = np.zeros(0, np.int64)  # by flow: its connection; -1 none is wanted, -2 it has several
        self._several: dict[int, tuple[Array, Array]] = {}

    def connections_of(self, segments: Array) -> Array:
        """The connection of each segment; -1 if no connection of its 4-tuple is wanted."""
        self._learn()
        found: Array = self._single[segments["flow"]]
        several = np.flatnonzero(found == -2)
        for flow in np.unique(segments["flow"][several]).tolist():
            numbers, begun = self._several[flow]
            rows = several[segments["flow"][several] == flow]
            at = np.searchsorted(begun, segments["ts"][rows], "right") - 1
            found[rows] = numbers[np.maximum(at, 0)]
        return found

    def _learn(self) -> None:
        known = len(self._single)
        keys = self._assembler.flow_keys(known)
        if not keys:
            return
        rows = np.full(len(keys), -1, np.int64)
        for number, key in enumerate(keys):
            group = self._by_ends.get(key)
            if group is None:
                continue
            if len(group[0]) == 1:
                rows[number] = group[0][0]
            else:
                rows[number] = -2
                self._several[known + number] = group
        self._single = np.concatenate((self._single, rows))


#: The fragments of a datagram come within this time, ns.
DATAGRAM_NS = 30_000_000_000


class CapturePass:
    """Reads the capture of a report of the first pass, for its wanted packets: a source of `captures.merge`. `order`:
    among the captures. `has_fragments`: IP fragments are among the packets. `watch` is called once a block, and may
    raise."""

    def __init__(
        self, report: FileReport, order: int, chooser: SegmentChooser, with_texts: bool = True,
        has_fragments: bool = False, watch: Watch = never,
    ) -> None:  # fmt: skip
        self._watch = watch
        self._report, self._order, self._chooser, self._with_texts = report, order, chooser, with_texts
        self._has_fragments = has_fragments
        self.pending = Pending(order)
        self._packets: WantedPackets  # with those that are pending,
        self._taken = 0  # behind these
        self._more = self._read()

    @property
    def first_place(self) -> Place:
        return self._report.first or 0, self._order

    def open(self) -> bool:
        return True

    def fill(self) -> bool:
        while not self.pending:
            found = next(self._more, None)
            if found is None:
                return False
            reader, wanted = found
            self.pending.add(reader.packets["ts"][: reader.count], wanted)
            self._packets = WantedPackets(
                reader.packets["number"][wanted], *reader.blocks_of(wanted), reader.buffer, reader.interfaces
            )
            self._taken = 0
        return True

    def take(self, count: int) -> WantedPackets:
        """Remove and return the next packets."""
        first, found = self._taken, self._packets
        here = slice(first, first + count)
        self._taken += count
        options = {row - first: of for row, of in found.options.items() if first <= row < here.stop}
        return found._replace(numbers=found.numbers[here], rows=found.rows[here], options=options)

    def _read(self) -> Iterator[tuple[SourceReader, Array]]:
        """Yield the reader with each block of packets, and the rows of those that are wanted."""
        if not self._has_fragments:
            yield from self._chosen()
            return
        numbers = self._with_fragments()
        for reader in self._blocks():
            first = int(reader.packets["number"][0])
            here = slice(*np.searchsorted(numbers, (first, first + reader.count)).tolist())
            yield reader, numbers[here] - first

    def _blocks(self) -> Iterator[SourceReader]:
        """Yield the reader with each block of packets."""
        reader = SourceReader(self._report.path, self._with_texts)
        try:
            if reader.report.fatal:
                return
            reader.number_from(self._report.first_packet)
            self.pending.is_cut = reader.is_cut
            while reader.fill():
                self._watch(0)
                yield reader
                reader.position = reader.count
        finally:
            reader.close()

    def _chosen(self) -> Iterator[tuple[SourceReader, Array]]:
        """The same without the other fragments of a datagram."""
        assembler = Assembler(keep_flows=True)
        flows = FlowConnections(assembler, self._chooser.by_ends)
        for reader in self._blocks():
            yield reader, self._wanted(reader, assembler, flows)
            assembler.end_block()

    def _with_fragments(self) -> Array:
        """The numbers of the wanted packets and of the fragments that belong to them, ascending."""
        wanted, found = [np.zeros(0, np.int64)], [np.zeros(0, _FOUND)]
        trail = np.zeros(LONGEST_TRAIL, TRAIL)
        for reader, rows in self._chosen():
            wanted.append(reader.packets["number"][rows].copy())
            places = np.zeros(reader.count, FRAGMENT_PLACE)
            places = places[: find_fragments(reader.buffer, reader.packets, reader.count, places, trail)]
            fragments = np.zeros(len(places), _FOUND)
            packets = reader.packets[places["row"]]
            fragments["datagram"], fragments["number"] = places["datagram"], packets["number"]
            fragments["ts"] = packets["ts"]
            found.append(fragments)
        numbers = np.concatenate(wanted)
        return np.union1d(numbers, _of_same_datagrams(np.concatenate(found), numbers))

    def _wanted(self, reader: SourceReader, assembler: Assembler, flows: FlowConnections) -> Array:
        """The rows of the wanted packets of a block, ascending."""
        rows = [np.zeros(0, np.int64)]
        first = int(reader.packets["number"][0])
        for segments in assembler.read_segments(reader.buffer, reader.packets, 0, reader.count):
            connections = flows.connections_of(segments)
            known = np.flatnonzero((connections >= 0) & (segments["source"] != QUOTED))
            if not len(known):
                continue
            chosen = segments[known]
            picked = self._chooser.choose(chosen, connections[known])
            rows.append(chosen["packet"][picked] - first)
        return np.unique(np.concatenate(rows))


def merged_packets(passes: Sequence[CapturePass]) -> Iterator[tuple[list[WantedPackets], Array]]:
    """Yield the wanted packets of all captures: some of several, and their order, that of time."""
    merger = Merger[CapturePass]()
    for one in passes:
        merger.add(one)
    while part := merger.next_part():
        yield [one.take(len(times)) for one, times in part], places(part)
        merger.opened[:] = [one for one in merger.opened if one.fill()]


_FOUND = np.dtype([("datagram", "i8"), ("number", "i8"), ("ts", "i8")])


def _of_same_datagrams(fragments: Array, wanted: Array) -> Array:
    """The numbers of the fragments that may be of the datagrams that wanted packets complete."""
    complete = fragments[np.isin(fragments["number"], wanted)]
    complete = complete[np.lexsort((complete["ts"], complete["datagram"]))]
    kept = fragments[np.isin(fragments["datagram"], complete["datagram"])]
    numbers = []
    for datagram, number, ts in kept.tolist():
        same = slice(*np.searchsorted(complete["datagram"], (datagram, datagram + 1)).tolist())
        at = np.searchsorted(complete["ts"][same], ts - 1_000_000_000)
        if at < same.stop - same.start and complete["ts"][same][at] - ts <= DATAGRAM_NS:
            numbers.append(number)
    return np.array(numbers, np.int64)
