"""The first pass over a split: its flows and their heads.

The engine runs over the split as if it were alone, and decodes almost nothing. The *head* of a flow is the packet that
completes an answered exchange after COPY_NS: a broker answers in order, so nothing before it is still open. It is an
early one (`correlation`), if possible one behind which no older request waits. That is a guess, which the decoding pass
proves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dissector import Dissector
from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA, PROTOCOL_TLS
from kafkatap.engine.tls.facts import TlsFacts
from kafkatap.kernels import arrays
from kafkatap.kernels.arrays import as_bytes, groups_of, taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import CHUNK, FLOW, FROM_HELD, OPENING_SYN, PACKET
from kafkatap.reassembly.flows import KEY_BYTES
from kafkatap.reassembly.fragments import SavedDatagram
from kafkatap.reassembly.link_types import RAW
from kafkatap.reassembly.recent_packets import COPY_NS

from ..captures.capture_reader import CaptureReader
from ..captures.merge import EARLIEST
from ..captures.pack_reader import FileRead, PackReader
from ..captures.splits import SplitReader
from ..engine.assembly import Assembled, Assembly
from ..engine.endpoints import end_keys
from ..engine.engine import programs_for
from ..engine.limits import Limits
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.tls.hand_over import hand_overs
from .datagrams import packet_of_segment
from .flow_rows import FLOW_KEY, FLOW_ROW, fill_histories, fill_tls, flow_bytes, histories, renumber_strings
from .flow_state import History
from .packet_ranges import BLOCK_START, RangesReader
from .quiet_points import QuietPoints
from .seams import Seam, cut_out, joined
from .split_engine import NOTHING, FlowHeads, Packets, counted, number_by_packet

Array = np.ndarray[Any, Any]
#: Bytes of a frame that are kept if only its head is decoded.
_HEAD_KEPT = 512
#: A connection of a split that has ended: the fields of FLOW_ROW for it, and the number of its flow.
_CONNECTION = np.dtype([(name, "i4" if name == "flow" else FLOW_ROW[name]) for name in FLOW_ROW.names or ()])
#: Bytes of packets that are cut out before those that are not needed are dropped.
_KEPT = 32 << 20
#: A LISTENER row as a tuple.
Listener = tuple[int, ...]


@dataclass(slots=True)
class FlowSeen:
    """One flow in one split. Packet numbers are those of `PackReader` without bases.

    `opened`: it begins with a SYN. `renewed`: its last connection began in this split. `head`, `settled`: the packets
    of its first answered exchange, and of its 16th chunk without Kafka; 0 for none. `history`: of its last connection.
    """

    first: int  # ns since the epoch
    last: int
    opened: bool
    renewed: bool
    head: int = 0
    settled: int = 0
    history: History | None = None


@dataclass
class SplitSurvey:
    """The survey of one split. `files`: as they were read, in order. `listeners`: by file, the ends that answered a
    SYN there first. For a part of a file: `begins` and `ends`, bytes of the file; `blocks`: where blocks begin, if
    some of them can be read alone. `datagrams`: those that wait for fragments at its end. `rows`: FLOW_ROW of its
    flows; `strings` belong to them. `client_randoms`: of the TLS connections whose ClientHello is in it;
    `has_unknown_tls`: it has others. `sessions`: by name (`TlsFacts.issued`), the client random of the connection that
    got it; `resumed`: by client random, the names of the session that it resumes. `secrets`: lines of key logs in
    blocks of the captures."""

    split: int
    files: list[FileRead] = field(default_factory=list)
    is_in_order: bool = True
    begins: int | None = None
    ends: int | None = None
    blocks: Array | None = None
    interfaces: bytes = b""
    drops: dict[int, int] = field(default_factory=dict)
    rows: Array = field(default_factory=lambda: np.zeros(0, FLOW_ROW))
    strings: list[bytes] = field(default_factory=list)
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    listeners: list[list[Listener]] = field(default_factory=list)
    datagrams: list[SavedDatagram] = field(default_factory=list)
    client_randoms: set[bytes] = field(default_factory=set)
    has_unknown_tls: bool = False
    sessions: dict[bytes, bytes] = field(default_factory=dict)
    resumed: dict[bytes, list[bytes]] = field(default_factory=dict)
    secrets: bytes = field(default=b"", repr=False)

    @property
    def first(self) -> int | None:
        """The time of its first packet, ns since the epoch."""
        times = (file.report.first for file in self.files)
        return min((time for time in times if time is not None), default=None)

    @property
    def packets(self) -> int:
        return sum(file.report.packets for file in self.files)

    @cached_property
    def flows(self) -> dict[bytes, FlowSeen]:
        """The flows by their keys."""
        names = ("first", "last", "opened", "renewed", "head", "settled")
        columns = (self.rows[name].tolist() for name in names)
        known = histories(self.rows, self.strings)
        seen = (FlowSeen(*values) for values in zip(*columns, known, strict=True))
        return dict(zip(flow_bytes(self.rows["flow"]), seen, strict=True))


class _FlowEngine:
    """Reassembly and framing of a split, which record its connections. Bodies are decoded only for the facts of
    connections and the names of topics."""

    def __init__(self, read: ReadOptions, limits: Limits) -> None:
        self.assembler = Assembler(keep_flows=True, bounds=limits.bounds())
        self._assembly = Assembly(self.assembler, read.ports)
        summary, results, head = (programs_for(name, read.definitions) for name in ("summary", "results", "head"))
        self.dissector = Dissector(summary, results, None, apis=frozenset(), head=head, head_kept=_HEAD_KEPT)
        self.dissector.strings.limit(limits.names)
        self._tls = QuietPoints(self.assembler)
        #: Client randoms of TLS connections, and whether there are TLS connections whose ClientHello is not there.
        self.client_randoms: set[bytes] = set()
        self.has_unknown_tls = False
        self.sessions: dict[bytes, bytes] = {}
        self.resumed: dict[bytes, list[bytes]] = {}
        self._tls_texts: list[bytes] = []  # what is known of TLS connections
        self._begun = False
        self._started: list[Array] = []  # START chunks
        self._ended: list[Array] = []  # _CONNECTION

    def take(self, reader: Packets) -> None:
        """Take the packets of a block."""
        if not self._begun:
            # Copies of earlier packets come before the heads, so that decoding from a head on finds the others.
            self._begun = True
            heads_from = int(reader.packets["ts"][reader.position]) + COPY_NS
            self.dissector.set_heads_from(heads_from)
            self._tls.set_heads_from(heads_from)
        self._run(self._assembly.feed(reader.buffer, reader.packets, reader.position, reader.count))

    def read(self, reader: CaptureReader) -> int:
        """Take all packets in the buffer of a capture, in one pass. Return the earliest time."""
        times: list[int] = []
        self._run(counted(reader.report, self._assembly.read(reader.buffer, reader.assemble), times))
        return min(times, default=NOTHING)

    def finish(self) -> tuple[Array, list[bytes]]:
        """End all connections. Return FLOW_ROW of each flow, and the strings of these rows."""
        self._run(self._assembly.end_all())
        rows = _flow_rows(
            arrays.joined(self._ended, _CONNECTION), arrays.joined(self._started, CHUNK), self.assembler.flows
        )
        numbers = rows["tls"].copy()
        rows["tls"] = -1
        strings = renumber_strings(rows, self.dissector.strings)
        rows["tls"] = np.where(numbers < 0, -1, numbers + len(strings))
        return rows, strings + self._tls_texts

    def _run(self, parts: Iterable[Assembled]) -> None:
        for part in parts:
            if len(part.started):
                self._started.append(taken(part.chunks, number_by_packet(part)))
            if len(part.chunks):
                self._tls.layer.read(part)
                chunks = part.chunks
                for _ in self.dissector.feed(part.block, part.held, chunks, len(chunks), part.connections):
                    pass
                for _ in self.dissector.drain(part.block, part.held):
                    pass
            if len(part.ended):
                self._note_ended(part)

    def _note_ended(self, part: Assembled) -> None:
        known, rows = taken(self.dissector.connections, part.ended), np.zeros(len(part.ended), _CONNECTION)
        fill_histories(rows, known, part.ended_rows, part.ended_directions)
        # A throttled client that always has requests under way: its head holds by chance only.
        is_doubtful = (known["head_is_sure"] == 0) & (known["throttle_wait_sum_ns"] > 0)
        rows["head"], rows["settled"] = np.where(is_doubtful, 0, known["head"]), known["not_kafka_since"]
        for name in ("first", "last", "flow"):
            rows[name] = part.ended_rows[name]
        if self._tls.layer.tracked or (known["protocol"] == PROTOCOL_TLS).any():
            self._note_tls(rows, part.ended, known["protocol"] == PROTOCOL_TLS)
        self._ended.append(rows)

    def _note_handshake(self, facts: TlsFacts) -> None:
        self.client_randoms.add(facts.client_random)
        for name in facts.issued:
            self.sessions[name] = facts.client_random
        if facts.resumes:
            self.resumed[facts.client_random] = facts.resumes

    def _note_tls(self, rows: Array, ended: Array, seem_tls: Array) -> None:
        """Write what is known of TLS to the rows of connections that end. A TLS connection has no head but a quiet
        point."""
        for i, (c, seems_tls) in enumerate(zip(ended.tolist(), seem_tls.tolist(), strict=True)):
            found = self._tls.layer.tracked.get(c)
            if found is None and not seems_tls:
                continue
            rows["head"][i], rows["settled"][i] = self._tls.quiet(c), 0
            if found is not None and found.facts.client_random:
                self._note_handshake(found.facts)
            else:
                self.has_unknown_tls = True
        fill_tls(rows, self._tls_texts, hand_overs(self._tls.layer, ended))
        self._tls.forget(ended)


def _flow_rows(connections: Array, starts: Array, flows: Array) -> Array:
    """FLOW_ROW of each flow. `connections`: _CONNECTION rows of all connections; `starts`: their START
    chunks, `flows`: FLOW rows by number."""
    if not len(connections):
        return np.zeros(0, FLOW_ROW)
    connections = taken(connections, np.argsort(connections["serial"]))
    openings = starts["opening"][np.argsort(starts["packet"])]
    order = np.argsort(connections["flow"], kind="stable")
    connections, openings = taken(connections, order), openings[order]
    numbers = connections["flow"]
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    last = np.append(first[1:], len(numbers)) - 1
    rows = np.zeros(len(first), FLOW_ROW)
    for name in rows.dtype.names or ():
        if name != "flow":
            rows[name] = connections[name][last]
    keys = as_bytes(taken(flows, numbers[first])).reshape(-1, FLOW.itemsize)[:, :KEY_BYTES]
    rows["flow"] = np.ascontiguousarray(keys).view(FLOW_KEY)[:, 0]
    rows["began"] = connections["first"][last]
    rows["first_packet"] = np.minimum.reduceat(connections["serial"], first)
    rows["last_packet"] = NOTHING
    rows["first"] = np.minimum.reduceat(connections["first"], first)
    rows["last"] = np.maximum.reduceat(connections["last"], first)
    for name in ("head", "settled"):
        found = np.minimum.reduceat(np.where(connections[name] > 0, connections[name], NOTHING), first)
        rows[name] = np.where(found < NOTHING, found, 0)
    rows["opened"], rows["renewed"] = openings[first] == OPENING_SYN, last > first
    return rows


def broker_keys(rows: Array) -> Array:
    """The keys of the brokers' ends of FLOW_ROWs that are Kafka: int32, as of `end_keys`."""
    kafka = rows[(rows["protocol"] == PROTOCOL_KAFKA) & (rows["client"] >= 0)]
    ends = np.ascontiguousarray(kafka["flow"]).view([(name, *kind) for name, *kind in FLOW.descr[:6]])
    at_a = kafka["client"] == 1
    high, low, port = (np.where(at_a, ends[f"a_{part}"], ends[f"b_{part}"]) for part in ("high", "low", "port"))
    return end_keys(high, low, port)


class _NewListeners:
    """The ends that an assembler finds to listen, by the file in which it finds them first."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._known: set[Listener] = set()
        self._by_file: dict[int, list[Listener]] = {}
        self._file = 0

    def begin_file(self, file: int) -> None:
        if file != self._file:
            self._learn()
            self._file = file

    def of_files(self, count: int) -> list[list[Listener]]:
        self._learn()
        return [self._by_file.get(file, []) for file in range(count)]

    def _learn(self) -> None:
        rows = self._assembler.listeners
        if len(rows) > len(self._known):
            new = set(rows.tolist()) - self._known
            self._known |= new
            self._by_file[self._file] = sorted(new)


class _BlockStarts:
    """Notes where the blocks of a part of a file begin while it is read."""

    def __init__(self, reader: PackReader) -> None:
        self._reader = reader
        self._starts: list[tuple[int, int, int]] = []
        self._times: list[int] = []

    def fill(self) -> bool:
        """`PackReader.fill`."""
        reader, part = self._reader, self._reader.part
        before = None if part is None else _reached(part)
        if not reader.fill():
            return False
        if reader.part is not None and reader.part.begins is not None:
            self._starts.append(before or (1, reader.part.begins, EARLIEST))
            self._times.append(int(reader.packets["ts"][reader.position : reader.count].min()))
        return True

    def next_block(self, part: SplitReader) -> bool:
        """`CaptureReader.next_block`, if all packets before were read. Call `end_block` when the block was."""
        start = _reached(part)
        if not (part.is_between_blocks and part.next_block()):
            return False
        self._starts.append(start)
        return True

    def end_block(self, first: int) -> None:
        """The block was read, and its earliest packet is of this time."""
        self._times.append(first)

    @property
    def found(self) -> Array | None:
        """BLOCK_START of each block. None if the blocks cannot be read one by one: interfaces are described among them,
        or it is not a part of a file."""
        if self._reader.interfaces_read or self._reader.part is None or not self._reader.part.split.head:
            return None
        rows = np.zeros(len(self._starts), BLOCK_START)
        rows["packet"], rows["byte"], rows["latest"] = np.array(self._starts, np.int64).reshape(-1, 3).T
        rows["time"] = self._times
        return rows


def _reached(part: SplitReader) -> tuple[int, int, int]:
    """Where the next block of a part begins: as BLOCK_START, without its time."""
    return 1 + part.report.packets, part.reached, EARLIEST if part.report.last is None else part.report.last


def _last_packets(rows: Array, blocks: Array) -> Array:
    """For each flow (FLOW_ROW), a packet after which it has none; NOTHING if the last block has some."""
    earliest = np.minimum.accumulate(blocks["time"][::-1])[::-1]  # of a block and all later ones
    behind = np.searchsorted(earliest, rows["last"], "right")
    found: Array = np.append(blocks["packet"] - 1, NOTHING)[behind]
    return found


def survey_split(split: int, reader: PackReader, read: ReadOptions = AS_USUAL) -> SplitSurvey:
    """Read a split, whose reader has no bases, to its end. Of a pack that is not in order only the times count."""
    engine = _FlowEngine(read, read.limits or Limits())
    listeners = _NewListeners(engine.assembler)
    blocks = _BlockStarts(reader)
    while blocks.fill():
        if reader.is_in_order:
            listeners.begin_file(reader.file)
            engine.take(reader)
        reader.position = reader.count
        part = reader.part
        while part is not None and blocks.next_block(part):
            blocks.end_block(engine.read(part))
    found = SplitSurvey(split, reader.files, reader.is_in_order)
    fragments = engine.assembler.fragments
    found.datagrams = fragments.saved()
    found.rows, found.strings = engine.finish()
    found.listeners = listeners.of_files(len(reader.files))
    found.begins, found.ends, found.interfaces = reader.begins, reader.ends, reader.interfaces_read
    found.drops, found.secrets = reader.drops, reader.take_secrets()
    found.client_randoms, found.has_unknown_tls = engine.client_randoms, engine.has_unknown_tls
    found.sessions, found.resumed = engine.sessions, engine.resumed
    # The fragments of a datagram may lie in blocks between those that have packets of its flow.
    found.blocks = None if fragments.seen else blocks.found
    if found.blocks is not None:
        found.rows["last_packet"] = _last_packets(found.rows, found.blocks)
    strings = engine.dissector.strings
    found.topic_names = {strings[number]: strings[name] for number, name in engine.dissector.topic_names.items()}
    return found


class CutFlows(NamedTuple):
    """Packets of some flows. `has_fragments`: some packets that were read are fragments."""

    seams: dict[bytes, Seam]
    has_fragments: bool


def cut_flows(
    reader: PackReader | RangesReader, heads: Mapping[bytes, int], datagrams: Sequence[SavedDatagram] = (),
    most: int | None = None,
) -> CutFlows:  # fmt: skip
    """The packets of some flows up to their heads. Reads only as far as the last head.

    A segment that came in IP fragments becomes one packet. `datagrams`: those that wait for fragments before. `most`:
    the last ones, at least so many of each flow; None: all.
    """
    assembler = Assembler(keep_flows=True)
    assembler.fragments.restore(datagrams)
    furthest, kept, wanted = max(heads.values(), default=0), _KeptPackets(most), FlowHeads(assembler, heads)
    while reader.fill() and int(reader.packets["number"][reader.position]) <= furthest:
        packets, times = reader.packets[reader.position : reader.count], reader.sort_times()
        runs = assembler.read_segments(reader.buffer, reader.packets, reader.position, reader.count)
        seen = [_whole_packets(segments, assembler, reader.buffer, packets) for segments in runs]
        assembler.end_block()
        for flows, rows, data in seen:
            kept.add(flows, rows, data, times[rows["number"] - int(packets["number"][0])], wanted.of(flows))
        reader.position = reader.count
    return CutFlows(kept.by_flow(assembler.flow_keys()), assembler.fragments.seen > 0)


class _KeptPackets:
    """The packets of flows by their numbers. `most`: as of `cut_flows`."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._seams: list[Seam] = []
        self._flows: list[Array] = []  # of the packets of each seam
        self._size, self._full = 0, _KEPT

    def add(self, flows: Array, rows: Array, data: Array, times: Array, wanted: Array) -> None:
        """Add packets (PACKET `rows` of bytes in `data`) with their flows. `wanted`: the last packet of each flow."""
        mine = np.flatnonzero(rows["number"] <= wanted)
        mine = mine[self._chosen(flows[mine])]
        if not len(mine):
            return
        self._flows.append(flows[mine])
        self._seams.append(cut_out(data, taken(rows, mine), times[mine]))
        self._size += self._seams[-1].size
        if self._most is not None and self._size > self._full:
            flows, whole = self._whole()
            chosen = self._chosen(flows)
            kept = cut_out(whole.data, taken(whole.packets, chosen), whole.times[chosen])
            self._flows, self._seams, self._size = [flows[chosen]], [kept], kept.size
            self._full = max(_KEPT, 2 * self._size)

    def _chosen(self, flows: Array) -> Array:
        """The places of the packets that are kept of some, ascending. `flows`: of each, in order."""
        if self._most is None:
            return np.arange(len(flows))
        order = np.argsort(flows, kind="stable")
        ends = np.searchsorted(flows[order], flows[order], "right")
        return np.sort(order[ends - np.arange(len(order)) <= self._most])

    def _whole(self) -> tuple[Array, Seam]:
        """All packets in the order of their numbers, and their flows."""
        none = joined(())
        ends = np.cumsum([0, *(len(seam.data) for seam in self._seams)])
        rows = np.concatenate([as_bytes(none.packets), *(as_bytes(seam.packets) for seam in self._seams)]).view(PACKET)
        rows["at"] += np.repeat(ends[:-1], [len(seam.packets) for seam in self._seams])
        data = np.concatenate([none.data[:0], *(seam.data for seam in self._seams)])
        times = np.concatenate([none.times, *(seam.times for seam in self._seams)])
        order = np.argsort(rows["number"], kind="stable")
        flows = np.concatenate([np.zeros(0, np.int64), *self._flows])[order]
        return flows, Seam(taken(rows, order), data, times[order])

    def by_flow(self, keys: Sequence[bytes]) -> dict[bytes, Seam]:
        """The packets of each flow. `keys`: of all flows."""
        flows, whole = self._whole()
        chosen, found = self._chosen(flows), {}
        for [flow], at in groups_of(flows[chosen]):
            places = chosen[at]
            times = np.maximum.accumulate(whole.times[places])
            found[keys[flow]] = cut_out(whole.data, taken(whole.packets, places), times)
        return found


def _whole_packets(segments: Array, assembler: Assembler, block: Array, packets: Array) -> tuple[Array, Array, Array]:
    """The flow and the packet of each segment, and the bytes of these packets. `packets`: those in `block`."""
    rows = taken(packets, segments["packet"] - int(packets["number"][0]))
    data = [block]
    end = len(block)
    for place in np.flatnonzero(segments["source"] == FROM_HELD).tolist():
        whole = packet_of_segment(segments[place], assembler.flows[segments["flow"][place]], assembler.pool)
        data.append(whole)
        row = rows[place]
        row.at, row.captured, row.link_type = end, len(whole), RAW
        row.original = len(whole) + segments["wire"][place] - segments["captured"][place]
        end += len(whole)
    return segments["flow"].copy(), rows, block if len(data) == 1 else np.concatenate(data)
