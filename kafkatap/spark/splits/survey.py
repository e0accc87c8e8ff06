"""The first pass over a split: its flows and their heads.

The engine runs over the split as if it were alone, and decodes almost nothing. The *head* of a flow is the packet that
completes its first answered exchange: a broker answers in order, so nothing before it is still open. That is a guess,
which the decoding pass proves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import OPENING_SYN
from kafkatap.reassembly.flows import flow_keys

from ...assembly import Assembled
from ...engine import Engine
from .flow_state import History, history_of
from .seams import Seam, cut_out, joined
from .split_engine import number_by_packet

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

    from ...captures.pack_reader import FileRead, PackReader

Array = np.ndarray[Any, Any]
#: A LISTENER row as a tuple.
Listener = tuple[int, ...]


class Packets(Protocol):
    """Packets as they are read: `CaptureReader`, `PackReader`."""

    position: int

    @property
    def buffer(self) -> Array: ...
    @property
    def packets(self) -> Array: ...
    @property
    def count(self) -> int: ...
    def fill(self) -> bool: ...


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


@dataclass(slots=True)
class SplitSurvey:
    """The survey of one split. `files`: as they were read, in order. `listeners`: by file, the ends that answered a SYN
    there first. `begins` and `ends`: bytes of the file, for a part of a file."""

    split: int
    files: list[FileRead] = field(default_factory=list)
    is_in_order: bool = True
    begins: int | None = None
    ends: int | None = None
    interfaces: bytes = b""
    drops: dict[int, int] = field(default_factory=dict)
    flows: dict[bytes, FlowSeen] = field(default_factory=dict)
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    listeners: list[list[Listener]] = field(default_factory=list)

    @property
    def packets(self) -> int:
        return sum(file.report.packets for file in self.files)


class _FlowEngine:
    """An engine that records the connections of each flow."""

    def __init__(self, **options: Any) -> None:
        self.flows: dict[bytes, FlowSeen] = {}
        self.engine = Engine(apis=frozenset(), assembler=Assembler(keep_flows=True), **options)
        self._last: dict[bytes, int] = {}  # by flow: the number of its latest connection that ended
        self._flow_of: dict[int, bytes] = {}

    def take(self, reader: Packets) -> None:
        """Take the packets of a block."""
        self._run(self.engine.assembly.feed(reader.buffer, reader.packets, reader.position, reader.count))

    def finish(self) -> None:
        self._run(self.engine.assembly.end_all())

    def _run(self, parts: Iterable[Assembled]) -> None:
        for part in parts:
            self._note_started(part)
            for _ in self.engine.dissect(part):
                pass
            self._note_ended(part)

    def _note_started(self, part: Assembled) -> None:
        starts = part.chunks[number_by_packet(part)]
        times, openings = starts["ts"].tolist(), starts["opening"].tolist()
        keys = flow_keys(part.started_flows)
        for c, key, ts, opening in zip(part.started.tolist(), keys, times, openings, strict=True):
            self._flow_of[c] = key
            seen = self.flows.get(key)
            if seen is None:
                self.flows[key] = FlowSeen(ts, ts, opening == OPENING_SYN, False)
            else:
                seen.renewed = True

    def _note_ended(self, part: Assembled) -> None:
        for i, c in enumerate(part.ended.tolist()):
            row, key = part.ended_rows[i], self._flow_of[c]
            seen = self.flows[key]
            first, last = int(row["first"]), int(row["last"])
            seen.first, seen.last = min(seen.first, first), max(seen.last, last)
            facts = self.engine.dissector.connection_facts(c)
            seen.head = _earlier(seen.head, facts.head)
            seen.settled = _earlier(seen.settled, facts.not_kafka_since)
            if facts.serial > self._last.get(key, 0):
                self._last[key] = facts.serial
                seen.history = history_of(facts, first, row, part.ended_directions[2 * i : 2 * i + 2])


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


def _earlier(one: int, other: int) -> int:
    """The smaller of two packet numbers, of which 0 is none."""
    return min(one, other) if one and other else one or other


def survey_split(
    split: int, reader: PackReader, *, ports: tuple[int, ...] = (), definitions: Definitions | None = None
) -> SplitSurvey:
    """Read a split, whose reader has no bases, to its end. Of a pack that is not in order only the times count."""
    watched = _FlowEngine(ports=ports, definitions=definitions)
    engine = watched.engine
    listeners = _NewListeners(engine.assembler)
    while reader.fill():
        if reader.is_in_order:
            listeners.begin_file(reader.file)
            watched.take(reader)
        reader.position = reader.count
    watched.finish()
    found = SplitSurvey(split, reader.files, reader.is_in_order, flows=watched.flows)
    found.listeners = listeners.of_files(len(reader.files))
    found.begins, found.ends, found.interfaces = reader.begins, reader.ends, reader.interfaces_read
    found.drops = reader.drops
    strings = engine.dissector.strings
    found.topic_names = {strings[number]: strings[name] for number, name in engine.topic_names.items()}
    return found


def cut_flows(reader: Packets, heads: Mapping[bytes, int]) -> dict[bytes, Seam]:
    """The packets of some flows up to their heads. Reads only as far as the last head."""
    assembler = Assembler(keep_flows=True)
    furthest = max(heads.values(), default=0)
    kept: dict[bytes, list[Seam]] = {}
    while reader.fill() and int(reader.packets["number"][reader.position]) <= furthest:
        packets = reader.packets[reader.position : reader.count]
        runs = assembler.read_segments(reader.buffer, reader.packets, reader.position, reader.count)
        seen = [(segments["flow"].copy(), segments["packet"].copy()) for segments in runs]
        keys = assembler.flow_keys()
        wanted = np.array([heads.get(key, 0) for key in keys] or [0], np.int64)
        for flows, numbers in seen:
            mine = np.flatnonzero(numbers <= wanted[flows])
            flows, rows = flows[mine], numbers[mine] - int(packets["number"][0])
            for flow in np.unique(flows).tolist():
                kept.setdefault(keys[flow], []).append(cut_out(reader.buffer, taken(packets, rows[flows == flow])))
        reader.position = reader.count
    return {key: joined(parts) for key, parts in kept.items()}
