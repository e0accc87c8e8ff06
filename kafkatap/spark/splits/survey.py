"""The first pass over a split: its flows and their heads.

The engine runs over the split as if it were alone, and decodes almost nothing. The *head* of a flow is the packet that
completes its first answered exchange: a broker answers in order, so nothing before it is still open. That is a guess,
which the decoding pass proves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import LISTENER, OPENING_SYN
from kafkatap.reassembly.flows import flow_keys

from ...assembly import Assembled
from ...engine import Engine
from .flow_state import History, history_of
from .seams import Seam, cut_out, joined
from .split_engine import number_by_packet

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

    from ...captures.capture_reader import FileReport

Array = np.ndarray[Any, Any]


class Packets(Protocol):
    """A split as it is read: `CaptureReader`, `splits.SplitReader`."""

    buffer: Array
    position: int
    count: int
    report: FileReport

    @property
    def packets(self) -> Array: ...
    def fill(self) -> bool: ...


@dataclass(slots=True)
class FlowSeen:
    """One flow in one split. Packet numbers count from 1 in the split.

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
    """The survey of one split. `begins` and `ends`: bytes of the file."""

    split: int
    packets: int = 0
    head_time: int = 0  # of its first packet
    report: FileReport | None = None
    begins: int | None = None
    ends: int | None = None
    interfaces: bytes = b""
    drops: dict[int, int] = field(default_factory=dict)
    flows: dict[bytes, FlowSeen] = field(default_factory=dict)
    topic_names: dict[bytes, bytes] = field(default_factory=dict)
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))


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


def _earlier(one: int, other: int) -> int:
    """The smaller of two packet numbers, of which 0 is none."""
    return min(one, other) if one and other else one or other


def survey_split(
    split: int, reader: Packets, *, ports: tuple[int, ...] = (), definitions: Definitions | None = None
) -> SplitSurvey:
    """Read a split, whose packets are numbered from 1, to its end."""
    watched = _FlowEngine(ports=ports, definitions=definitions)
    found = SplitSurvey(split)
    while reader.fill():
        if not found.packets:
            found.head_time = int(reader.packets["ts"][0])
        found.packets = int(reader.packets["number"][reader.count - 1])
        watched.take(reader)
        reader.position = reader.count
    watched.finish()
    found.report = reader.report
    found.flows = watched.flows
    engine = watched.engine
    found.listeners = engine.assembler.listeners.copy()
    strings = engine.dissector.strings
    found.topic_names = {strings[number]: strings[name] for number, name in engine.topic_names.items()}
    return found


def cut_flows(reader: Packets, heads: dict[bytes, int]) -> dict[bytes, Seam]:
    """The packets of some flows of a split up to their heads. Reads only as far as the last head."""
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
