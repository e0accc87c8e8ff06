"""The first pass over a split: which flows it has, from which packet on their state stands on its own, and the packets
up to there.

The engine runs over the split as if it stood alone, and decodes next to nothing. A flow's *head* is the packet with
which its first exchange was answered: from there on a broker's order of answers leaves nothing open of what came
before. That is a guess; the decoding pass proves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kafkatap.dissector.framing import connections as d
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.dtypes import LISTENER, PACKET

from .connection_state import History, bases_of
from .seams import Seam, cut_out, joined
from .split_engine import SplitAssembler, SplitEngine, flow_keys

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

    from ...captures.sources import FileReport
    from ...engine import Assembled

Array = np.ndarray[Any, Any]
#: Bytes of a flow's seam beyond which it is cut out only when it is asked for.
SEAM_LIMIT = 256 * 1024


class Packets(Protocol):
    """A split as it is read: `sources.CaptureReader`, `splits.SplitReader`."""

    buffer: Array
    position: int
    count: int
    report: FileReport

    @property
    def packets(self) -> Array: ...
    def fill(self) -> bool: ...


@dataclass(slots=True)
class FlowSeen:
    """One flow in one split. Packet numbers count from 1 in the split. `opened`: it begins with a SYN; `renewed`: the
    connection that it ends with began in this split; `whole`: the seam has all its packets."""

    first: int  # ns since the epoch
    last: int
    opened: bool
    renewed: bool
    head: int = 0
    settled: int = 0
    history: History | None = None
    seam: Seam | None = None
    whole: bool = False


@dataclass(slots=True)
class SplitSurvey:
    """What one split is. `begins` and `ends`: bytes of the file."""

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


class _SurveyEngine(SplitEngine):
    """Notes what becomes of the connections of each flow."""

    def __init__(self, split: int, **options: Any) -> None:
        super().__init__(split, apis=frozenset(), **options)
        self.flows: dict[bytes, FlowSeen] = {}
        self._last: dict[bytes, int] = {}  # by flow: the first packet of the latest connection that is over
        self._flow_of: dict[int, bytes] = {}

    def _begin(self, part: Assembled) -> None:
        super()._begin(part)
        starts = part.chunks[part.chunks["kind"] == d.START]
        for c, key, ts, known in zip(
            part.started.tolist(), flow_keys(part.started_flows), starts["ts"].tolist(), starts["captured"].tolist(),
            strict=True,
        ):  # fmt: skip
            self._flow_of[c] = key
            seen = self.flows.get(key)
            if seen is None:
                self.flows[key] = FlowSeen(ts, ts, known == 1, False)
            else:
                seen.renewed = True

    def _close(self, part: Assembled) -> None:
        super()._close(part)
        rows = zip(
            part.ended.tolist(), part.ended_rows["first"].tolist(), part.ended_rows["last"].tolist(), strict=True
        )
        for i, (c, first, last) in enumerate(rows):
            key = self._flow_of[c]
            seen = self.flows[key]
            seen.first, seen.last = min(seen.first, first), max(seen.last, last)
            dialog = self.dissector.dialogs[c]
            serial, head = int(dialog["serial"]), int(dialog["ready"])
            if head and (not seen.head or head < seen.head):
                seen.head = head
            settled = int(dialog["settled"])
            if settled and (not seen.settled or settled < seen.settled):
                seen.settled = settled
            if serial > self._last.get(key, 0):
                self._last[key] = serial
                texts = {
                    name: self.dissector.string(int(dialog[name])) if dialog[name] >= 0 else None
                    for name in ("client_id", "software", "software_version", "mechanism")
                }
                row = part.ended_rows[i]
                seen.history = History(
                    serial, first, bases_of(part.ended_ways[2 * i : 2 * i + 2]),
                    (int(row["syn_at"]), int(row["syn_ack_at"])), int(row["handshake_rtt_ns"]), int(dialog["client"]),
                    int(dialog["protocol"]), int(dialog["answers_at_once"]), **texts,
                )  # fmt: skip

    def head_now(self, flow: int) -> int:
        """The head of the connection that a flow is in, 0 as long as there is none."""
        c = int(self.assembler.flows["connection"][flow])
        return int(self.dissector.dialogs["ready"][c]) if c >= 0 else 0


class _Keeper:
    """Keeps the packets of each flow that did not begin with a SYN, up to its head."""

    def __init__(self, engine: _SurveyEngine) -> None:
        self._engine = engine
        self._open: Array = np.zeros(256, bool)
        self._known = 0
        self._kept: dict[int, list[Seam]] = {}
        self._sizes: dict[int, int] = {}

    def take(self, buffer: Array, packets: Array) -> None:
        """`packets` are all PACKET rows that the engine has just taken from `buffer`."""
        engine = self._engine
        seen, engine.assembler.seen = engine.assembler.seen or [], []
        if not seen:
            return
        flows, numbers = (np.concatenate([pair[i] for pair in seen]) for i in (0, 1))
        self._learn()
        mine = np.flatnonzero(self._open[flows])
        if not len(mine):
            return
        flows, rows = flows[mine], numbers[mine] - int(packets["number"][0])
        order = np.argsort(flows, kind="stable")
        flows, rows = flows[order], rows[order]
        distinct, first = np.unique(flows, return_index=True)
        for flow, some in zip(distinct.tolist(), np.split(rows, first[1:]), strict=True):
            self._keep(flow, buffer, packets, some)

    def _learn(self) -> None:
        keys = self._engine.assembler.keys(self._known)
        count = self._known + len(keys)
        if count > len(self._open):
            self._open = np.concatenate((self._open, np.zeros(count, bool)))
        for number, key in enumerate(keys, self._known):
            seen = self._engine.flows.get(key)
            self._open[number] = seen is not None and not seen.opened
        self._known = count

    def _keep(self, flow: int, buffer: Array, packets: Array, rows: Array) -> None:
        head = self._engine.head_now(flow)
        if head:
            rows = rows[packets["number"][rows] <= head]
            self._open[flow] = False
        size = self._sizes.get(flow, 0) + int(packets["captured"][rows].sum()) + len(rows) * PACKET.itemsize
        self._sizes[flow] = size
        if size > SEAM_LIMIT:
            self._kept.pop(flow, None)
            self._open[flow] = False
        elif len(rows):
            self._kept.setdefault(flow, []).append(cut_out(buffer, taken(packets, rows)))

    def seams(self) -> Iterator[tuple[bytes, Seam, bool]]:
        """Of each flow that has one: its seam, and whether it holds all its packets."""
        keys = self._engine.assembler.keys()
        for flow, parts in self._kept.items():
            yield keys[flow], joined(parts), bool(self._open[flow])


def survey_split(
    split: int, reader: Packets, *, ports: tuple[int, ...] = (), definitions: Definitions | None = None
) -> SplitSurvey:
    """Read a split, whose packets are numbered from 1, to its end."""
    engine = _SurveyEngine(split, ports=ports, definitions=definitions)
    engine.assembler.seen = []
    keeper = _Keeper(engine)
    found = SplitSurvey(split)
    while reader.fill():
        if not found.packets:
            found.head_time = int(reader.packets["ts"][0])
        found.packets = int(reader.packets["number"][reader.count - 1])
        for _ in engine.take(reader.buffer, reader.packets, reader.position, reader.count):
            pass
        keeper.take(reader.buffer, reader.packets[reader.position : reader.count])
        reader.position = reader.count
    for _ in engine.finish():
        pass
    found.report = reader.report
    found.flows = engine.flows
    for key, seam, whole in keeper.seams():
        seen = engine.flows[key]
        if whole or seen.head == 0 or int(seam.packets["number"][-1]) <= seen.head:
            seen.seam, seen.whole = seam, whole
    found.listeners = engine.assembler.listeners.copy()
    text = engine.dissector.string
    found.topic_names = {text(number): text(name) for number, name in engine.topic_names.items()}
    return found


def cut_flows(reader: Packets, heads: dict[bytes, int]) -> dict[bytes, Seam]:
    """The packets of some flows of a split up to their heads; no more is read than these need."""
    assembler = SplitAssembler()
    furthest = max(heads.values(), default=0)
    kept: dict[bytes, list[Seam]] = {}
    while reader.fill() and int(reader.packets["number"][reader.position]) <= furthest:
        packets = reader.packets[reader.position : reader.count]
        seen = list(assembler.classified(reader.buffer, reader.packets, reader.position, reader.count))
        keys = assembler.keys()
        wanted = np.array([heads.get(key, 0) for key in keys] or [0], np.int64)
        for flows, numbers in seen:
            mine = np.flatnonzero(numbers <= wanted[flows])
            flows, rows = flows[mine], numbers[mine] - int(packets["number"][0])
            for flow in np.unique(flows).tolist():
                kept.setdefault(keys[flow], []).append(cut_out(reader.buffer, taken(packets, rows[flows == flow])))
        reader.position = reader.count
    return {key: joined(parts) for key, parts in kept.items()}
