"""`SplitEngine`: an engine over the packets of one split.

A flow (TCP 4-tuple) may start in an earlier split and continue in later ones. For each flow and split the plan names a
packet, its *head*: packets up to the head belong to the split before, packets after it to this one. The engine runs in
three steps. In each step every flow sees its packets in order, so its connections end up as in one run:

    prime         packets up to the head of each flow; they count in an earlier split, but leave their state here
    begin_split   from here on packets count: `take` those of the split, without those that belong to other splits
    follow        packets of later splits up to the next head of each flow (or to the end), which count here

The state of a flow at its head is the *claim* of its split. The state at the next head is the *arrival*. A claim must
be equal to the arrival of the same flow from the split before, else the head was wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kafkatap.dissector.connection_state import ConnectionFacts
from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ACK, CHUNK_START, LISTENER, OPENING_RESUMED, OPENING_SYN, ROW_OPEN, SYN
from kafkatap.reassembly.flows import flow_keys
from kafkatap.reassembly.fragments import SavedDatagram
from kafkatap.reports.batch import Batch

from ..captures.capture_reader import CaptureReader, FileReport
from ..engine.assembly import Assembled
from ..engine.engine import Engine
from ..engine.tls.hand_over import IS_PLAIN, PASSES, hand_overs, layer_states, resume_connection
from .flow_rows import STATE_ROW, FlowStates, as_keys, fill_histories, fill_tls, renumber_strings
from .flow_state import FlowState, History
from .points_of_run import POINT_RANGE, note_points

Array = np.ndarray[Any, Any]
#: A head beyond all packets: the split has nothing of the flow for itself.
NOTHING = 2**62


class FlowHeads:
    """The head of each flow of an assembler by its number, 0 without one. `heads`: by flow key. `keys`: by number, of
    the flows that `of` was called for."""

    def __init__(self, assembler: Assembler, heads: Mapping[bytes, int]) -> None:
        self.keys: list[bytes] = []
        self._assembler = assembler
        self._heads = heads
        self._by_flow: Array = np.zeros(0, np.int64)

    def of(self, flows: Array) -> Array:
        """The heads of the flows with these numbers."""
        keys = self._assembler.flow_keys(len(self._by_flow))
        if keys:
            new = np.array([self._heads.get(key, 0) for key in keys], np.int64)
            self._by_flow = np.concatenate((self._by_flow, new))
            self.keys += keys
        found: Array = self._by_flow[flows]
        return found


class HeadFilter:
    """Keeps the segments behind the head of their flow (`heads`, by flow key): a `segment_filter` of `assembler`."""

    def __init__(self, assembler: Assembler, heads: Mapping[bytes, int]) -> None:
        self._assembler = assembler
        self._heads = FlowHeads(assembler, heads)

    def __call__(self, segments: Array) -> Iterator[Array]:
        mine = segments["packet"] > self._heads.of(segments["flow"])
        answers = np.flatnonzero(~mine & (segments["tcp_flags"] & (SYN | ACK) == SYN | ACK))
        if not len(answers) and mine.all():
            yield segments
            return
        kept = np.flatnonzero(mine)
        before = 0
        # A SYN-ACK of another split also shows who listens, for the segments after it.
        for place in (*answers.tolist(), len(segments)):
            run = kept[np.searchsorted(kept, before) : np.searchsorted(kept, place)]
            if len(run):
                yield taken(segments, run)
            self._assembler.learn_answers(segments[place : place + 1])
            before = place


class UpToFilter:
    """Keeps the segments up to the head of their flow: a `segment_filter` of `assembler`.

    `resumed`: the flows that continue from a history. Until such a flow's first segment is read, no array has a second
    one of it, so that its stalls and measures begin with what is known of the flow.
    """

    def __init__(self, assembler: Assembler, heads: Mapping[bytes, int], resumed: Mapping[bytes, Any]) -> None:
        self._heads = FlowHeads(assembler, heads)
        self._resumed = resumed

    def __call__(self, segments: Array) -> Iterator[Array]:
        kept = np.flatnonzero(segments["packet"] <= self._heads.of(segments["flow"]))
        if not len(kept):
            return
        segments = taken(segments, kept)
        if not self._resumed:
            yield segments
            return
        before = 0
        for end in (*self._cuts(segments["flow"]), len(segments)):
            yield taken(segments, np.arange(before, end))
            before = end

    def _cuts(self, flows: Array) -> list[int]:
        """The fewest places that part the first and the second segment of each flow that is to be resumed. `flows`:
        those of the segments."""
        order = np.argsort(flows, kind="stable")
        is_first = np.diff(flows[order], prepend=-1) != 0
        places = np.flatnonzero(is_first[:-1] & ~is_first[1:])
        firsts, seconds = order[places], order[places + 1]
        keys = self._heads.keys
        cuts: list[int] = []
        for i in np.argsort(seconds).tolist():
            first = int(firsts[i])
            if (not cuts or cuts[-1] <= first) and keys[int(flows[first])] in self._resumed:
                cuts.append(int(seconds[i]))
        return cuts


def number_by_packet(part: Assembled) -> Array:
    """Number the connections that start in a part by their first packet; the places of their START chunks."""
    starts = np.flatnonzero(part.chunks["kind"] == CHUNK_START)
    part.chunks["at"][starts] = part.chunks["packet"][starts]
    return starts


def counted(report: FileReport, parts: Iterable[Assembled], times: list[int] | None = None) -> Iterator[Assembled]:
    """The same parts, whose packets are added to a report; their first times to `times`."""
    for part in parts:
        if part.first is not None and part.last is not None:
            report.add_packets(part.packets, part.first, part.last)
            if times is not None:
                times.append(part.first)
        yield part


class Packets(Protocol):
    """Packets that are read block by block, as of `CaptureReader`."""

    position: int

    @property
    def buffer(self) -> Array: ...
    @property
    def packets(self) -> Array: ...
    @property
    def count(self) -> int: ...
    def fill(self) -> bool: ...


class SplitEngine:
    """`engine` is the engine that it drives. Connections have the number of their first packet.

    `histories`: by flow, what earlier splits know of its connection. `heads`: by flow, the last packet that belongs to
    another split. `listeners`: LISTENER rows of the ends that earlier splits saw listening. `datagrams`: those that
    earlier splits left incomplete.
    """

    def __init__(
        self,
        histories: Mapping[bytes, History] | None = None,
        heads: Mapping[bytes, int] | None = None,
        listeners: Array | None = None,
        datagrams: Sequence[SavedDatagram] = (),
        **options: Any,
    ) -> None:
        self.engine = Engine(assembler=Assembler(keep_flows=True), **options)
        self.assembler, self.dissector = self.engine.assembler, self.engine.dissector
        self.shared: set[int] = set()  # keys of the connections that other splits share
        self._histories = dict(histories or {})  # of the flows whose connection has not started here
        self._heads = dict(heads or {})
        self._listeners: Array = np.zeros(0, LISTENER) if listeners is None else listeners
        self._began: dict[int, int] = {}  # the first packet's time of each resumed connection
        self._filter: HeadFilter | None = None
        self._resumed: dict[int, History] = {}  # connections that started since `prime` began
        self._datagrams = datagrams
        #: POINT_RANGE of the packets to `follow`, if they were captured at several points.
        self.points: Array = np.zeros(0, POINT_RANGE)
        self.assembler.learn_listeners(self._listeners)
        self.assembler.fragments.restore(datagrams)

    def learn_listeners(self, listeners: Array) -> None:
        """Ends that listen (LISTENER rows), shown by packets of other splits before the next packet."""
        self.assembler.learn_listeners(listeners)

    # The three steps. Each takes packets whose bytes are in `buffer`.

    def prime(self, reader: Packets, heads: Mapping[bytes, int] | None = None) -> None:
        """Take packets that belong to earlier splits, those of each flow up to its head (None: all packets)."""
        for _ in self.follow(reader, heads):
            pass
        for c, history in self._resumed.items():
            self.assembler.resume(c, history.resumption)
        self._resumed.clear()

    def begin_split(self) -> None:
        """The next packets belong to this split. Earlier ones do not count here."""
        assembler = self.assembler
        self._filter = HeadFilter(assembler, self._heads) if self._heads else None
        self.filters = True
        assembler.fragments.restore(self._datagrams)
        assembler.forget_listeners()
        assembler.learn_listeners(self._listeners)
        latest = assembler.flows["connection"]
        kept = self._with_earlier(latest[latest >= 0].tolist())
        # No packet can come for the others; they ended in an earlier split.
        opened = np.flatnonzero(assembler.connections["used"] == ROW_OPEN)
        assembler.detach(np.setdiff1d(opened, kept))
        self.shared.update(self.dissector.connections["key"][kept].tolist())
        self.engine.discount()

    @property
    def filters(self) -> bool:
        """Whether packets up to the heads are left out: set it to False while there are none."""
        return self.assembler.segment_filter is not None

    @filters.setter
    def filters(self, value: bool) -> None:
        self.assembler.segment_filter = self._filter if value else None

    def take(self, buffer: Array, packets: Array, first: int, count: int) -> Iterator[Batch]:
        """Take packets[first:count]; yield finished rows."""
        yield from self._dissected(self.engine.assembly.feed(buffer, packets, first, count))

    def read(self, reader: CaptureReader) -> Iterator[Batch]:
        """Take all packets in the buffer of a capture, in one pass; yield finished rows."""
        parts = self.engine.assembly.read(reader.buffer, reader.assemble)
        for part in counted(reader.report, parts):
            yield from self._dissected([part._replace(secrets=reader.take_secrets())])

    def follow(
        self,
        reader: Packets,
        heads: Mapping[bytes, int] | None = None,
        on_packets: Callable[[int], None] | None = None,
    ) -> Iterator[Batch]:
        """Take packets that other splits count as read, those of each flow up to a packet (None: all packets).
        `on_packets`: is called with the first packet's number before each block of packets."""
        assembler, own_filter = self.assembler, self.assembler.segment_filter
        assembler.segment_filter = None if heads is None else UpToFilter(assembler, heads, self._histories)
        last = NOTHING if heads is None else max(heads.values(), default=0)
        while reader.fill():
            numbers = reader.packets["number"][reader.position : reader.count]
            end = reader.position + int(np.searchsorted(numbers, last, "right"))
            if end == reader.position:
                break
            if on_packets is not None:
                on_packets(int(numbers[0]))
            note_points(reader.packets[reader.position : end], self.points)
            with self.engine.uncounted():
                yield from self.take(reader.buffer, reader.packets, reader.position, end)
            reader.position = reader.count
        assembler.segment_filter = own_filter
        assembler.fragments.forget_packets()

    # The end of the split.

    def detach(self, flows: list[bytes]) -> Iterator[Batch]:
        """Count the connections of these flows up to here without ending them: another split continues them."""
        connections = np.array(self._with_earlier(self.current(flows).values()), np.int64)
        if len(connections):
            yield from self._dissected([self.engine.assembly.detach(connections)])
            self.shared.update(self.dissector.connections["key"][connections].tolist())

    def end_closed(self) -> Iterator[Batch]:
        """End the connections that were closed long before the latest packet."""
        yield from self._dissected(self.engine.assembly.end_closed())

    def finish(self) -> Iterator[Batch]:
        """End all connections."""
        yield from self._dissected(self.engine.assembly.end_all())

    # States.

    def current(self, flows: Iterable[bytes]) -> dict[bytes, int]:
        """The connection that each flow is in now. Flows without one are left out."""
        wanted = set(flows)
        numbers = self.assembler.flows["connection"].tolist()
        return {key: c for key, c in zip(self.assembler.flow_keys(), numbers, strict=True) if key in wanted and c >= 0}

    def states(self, flows: Iterable[bytes]) -> FlowStates:
        """The state of each flow that is in a connection."""
        current = self.current(flows)
        return self._states(list(current), np.array(list(current.values()), np.int64))

    def open_flows(self, flows: Iterable[bytes] | None = None) -> dict[bytes, tuple[FlowState, bool, int | None]]:
        """The state of each of these flows (None: all) that is in a connection, whether that was closed, and the key of
        the connection before it that packets may still come for."""
        current = self.current(self.assembler.flow_keys() if flows is None else flows)
        closed_at = self.assembler.connections["closed_at"]
        states = self.states(current).by_flow()
        keys = self.dissector.connections["key"]
        earlier = {key: self.assembler.earlier_connection(c) for key, c in current.items()}
        return {
            key: (states[key], bool(closed_at[c]), int(keys[earlier[key]]) if earlier[key] >= 0 else None)
            for key, c in current.items()
        }

    def _states(self, keys: list[bytes], numbers: Array) -> FlowStates:
        """The states of the connections `numbers`, which are those of the flows `keys`."""
        rows = np.zeros(len(numbers), STATE_ROW)
        if not len(numbers):
            return FlowStates(rows)
        known, connections = taken(self.dissector.connections, numbers), taken(self.assembler.connections, numbers)
        directions = taken(self.assembler.directions, (2 * numbers[:, None] + (0, 1)).reshape(-1))
        fill_histories(rows, known, connections, directions)
        rows["flow"] = as_keys(keys)
        rows["began"] = connections["first"]
        for i, c in enumerate(numbers.tolist()):
            rows["began"][i] = self._began.get(c, rows["began"][i])
        rows["digest"] = np.frombuffer(b"".join(self._digests(numbers)), "V16")
        strings = renumber_strings(rows, self.dissector.strings)
        if self.engine.tls.tracked:
            fill_tls(rows, strings, hand_overs(self.engine.tls, numbers))
        return FlowStates(rows, strings)

    def _digests(self, numbers: Array) -> Iterator[bytes]:
        """16 bytes for each connection that are equal if its state is, with that of the connection before it on its
        flow."""
        earlier = {c: self.assembler.earlier_connection(c) for c in numbers.tolist()}
        before = np.array([c for c in earlier.values() if c >= 0], np.int64)
        whole = np.concatenate((numbers, before))
        is_earlier = np.repeat(np.array([0, 1], np.uint8), (len(numbers), len(before)))
        tcp, kafka = self.assembler.connection_states(whole, is_earlier), self.dissector.connection_states(whole)
        protocols = taken(self.dissector.connections, whole)["protocol"]
        are_plain = (protocols == PROTOCOL_KAFKA) | (protocols == PROTOCOL_FOREIGN)
        tls = layer_states(self.engine.tls, whole, are_plain)
        digests = [_digest(*states) for states in zip(tcp, kafka, tls, strict=True)]
        of_earlier = dict(zip(before.tolist(), digests[len(numbers) :], strict=True))
        for digest, c in zip(digests[: len(numbers)], earlier.values(), strict=True):
            yield digest if c < 0 else _digest(digest, of_earlier[c], self._serial(c))

    def _serial(self, c: int) -> bytes:
        return int(self.dissector.connections["serial"][c]).to_bytes(8, "little")

    def _with_earlier(self, connections: Iterable[int]) -> list[int]:
        """These connections, and those before them on the same flow that packets may still come for, ascending."""
        found = set(connections)
        return sorted(found | {self.assembler.earlier_connection(c) for c in found} - {-1})

    # Parts on their way from reassembly to dissection.

    def _dissected(self, parts: Iterable[Assembled]) -> Iterator[Batch]:
        for part in parts:
            if len(part.started):
                self.engine.begin(part)
                self._start(part)
            for i, c in enumerate(part.ended.tolist()):
                part.ended_rows["first"][i] = self._began.pop(c, part.ended_rows["first"][i])
            yield from self.engine.dissect(part)

    def _facts(self, c: int, history: History) -> ConnectionFacts:
        """What the dissector has to know of a connection that continues, and let the layer of TLS continue it."""
        facts = history.facts
        continued = resume_connection(self.engine.tls, c, history.tls, history.tls_records)
        if continued == IS_PLAIN:
            return facts
        return replace(facts, protocol=PROTOCOL_TLS if continued == PASSES else PROTOCOL_UNKNOWN)

    def _start(self, part: Assembled) -> None:
        """Number the connections that start, and resume those that earlier splits know."""
        places = number_by_packet(part)
        if not self._histories:
            return
        for place, c, key in zip(places.tolist(), part.started.tolist(), flow_keys(part.started_flows), strict=True):
            history = self._histories.pop(key, None)
            if history is None or part.chunks["opening"][place] == OPENING_SYN:
                continue
            part.chunks["at"][place] = history.connection
            part.chunks["length"][place] = history.facts.key
            part.chunks["opening"][place] = OPENING_RESUMED
            self.dissector.resume(c, self._facts(c, history))
            self._began[c] = history.first
            self._resumed[c] = history
            self.assembler.expect(c, history.resumption)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
