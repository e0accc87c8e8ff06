"""`SplitRun`: the second pass over a split.

`batches` yields the finished rows of the split. Afterwards `outcome` has the states to compare with other splits, and
the sums over this split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reports.batch import Batch, Context

from .flow_state import FlowState
from .plan import SplitTask
from .seams import Seam, joined
from .split_engine import NOTHING, SplitEngine

if TYPE_CHECKING:
    from kafkatap.dissector.inspection import Inspector
    from kafkatap.dissector.layouts.overlay import Definitions

    from ...captures.pack_reader import PackReader

Array = np.ndarray[Any, Any]
#: What an engine counts: by section and part.
Ledger = dict[str, dict[str, int]]
#: Cuts flows out of a split, each up to a packet.
Cut = Callable[[int, Mapping[bytes, int]], Mapping[bytes, Seam]]


@dataclass(slots=True)
class Outcome:
    """`claims`: states of flows at the heads of this split. `arrivals`: states at the heads of the splits that continue
    them, by flow and that split. `names`: topic names by id that this split found. `ledgers`: by the identity of the
    capture that was read when something was counted; 0 if the split has none."""

    split: int
    claims: dict[bytes, FlowState] = field(default_factory=dict)
    arrivals: dict[tuple[bytes, int], FlowState] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    not_captured: int = 0

    @property
    def ledger(self) -> Ledger:
        """The sum of `ledgers`."""
        return sum_ledgers(self.ledgers.values())


def sum_ledgers(ledgers: Iterable[Mapping[str, Mapping[str, int]]]) -> Ledger:
    """The sum of ledgers."""
    found: Ledger = {}
    for ledger in ledgers:
        for section, parts in ledger.items():
            total = found.setdefault(section, {})
            for part, count in parts.items():
                total[part] = total.get(part, 0) + count
    return found


class SplitRun:
    """`cut` reads the packets from this split and later ones that this split decodes."""

    def __init__(
        self,
        task: SplitTask,
        cut: Cut,
        topic_names: Mapping[bytes, bytes],
        *,
        all_results: bool = True,
        inspectors: Sequence[Inspector] = (),
        ports: Sequence[int] = (),
        definitions: Definitions | None = None,
        apis: frozenset[int] | None = None,
    ) -> None:
        self.task = task
        self.ports, self.definitions = ports, definitions
        #: With `task.keep_open`: the state of each flow that is open at the end, and whether its connection was closed.
        self.open_flows: dict[bytes, tuple[FlowState, bool]] = {}
        self._cut = cut
        #: Bytes of packets of later splits that this split read.
        self.bytes_followed = 0
        self._followed: dict[bytes, list[Seam]] = {}  # the packets of open flows from later splits
        self._names = topic_names
        self._split = SplitEngine(
            task.number, task.histories, task.heads, task.listeners, all_results=all_results, inspectors=inspectors,
            ports=ports, definitions=definitions, apis=apis,
        )  # fmt: skip
        self.engine = self._split.engine
        for topic_id, name in topic_names.items():
            self.engine.dissector.name_topic(topic_id, name)
        self.outcome = Outcome(task.split)
        self._file: int | None = None  # of the split, that is read
        self._counted: Ledger = {}  # when it began

    def batches(self, reader: PackReader | None) -> Iterator[Batch]:
        """The finished rows of this split. `reader` has bases; None: all packets are in seams."""
        split, task = self._split, self.task
        own = joined(self._cut(task.split, task.own_heads).values())
        if len(own.packets):
            split.prime(own.data, own.packets, len(own.packets))
        claims = split.states(task.primed)
        if reader is not None:
            self.outcome.claims = claims
        split.begin_split()
        while reader is not None and reader.fill():
            self._begin_file(reader.file)
            yield from split.take(reader.buffer, reader.packets, reader.position, reader.count)
            reader.position = reader.count
        yield from self._follow()
        arrived = split.states(task.next)
        self.outcome.arrivals = {(key, task.next[key]): state for key, state in arrived.items()}
        yield from split.detach(list(task.next))
        if task.keep_open:
            yield from split.end_closed()
            self.open_flows = split.open_flows()
            yield from split.detach(list(self.open_flows))
        yield from split.finish()
        self._fill_outcome()

    def packets_of_open_flows(self) -> dict[bytes, Seam]:
        """All packets that this run had of each flow in `open_flows`, in order."""
        own = self._cut(self.task.split, dict.fromkeys(self.open_flows, NOTHING))
        found = {}
        for key in self.open_flows:
            mine = [own[key]] if key in own else []
            found[key] = joined([*mine, *self._followed.get(key, [])], by_time=key in self.task.merged)
        return found

    def _begin_file(self, file: int) -> None:
        """Note that the next packets are from a file of the split."""
        if file == self._file:
            return
        if self._file is not None:
            self._count_file()
        self._file = file
        if file in self.task.later_listeners:
            self._split.learn_listeners(self.task.later_listeners[file])

    def _count_file(self) -> None:
        """Add what was counted since the file began to its ledger."""
        now = self.engine.ledger()
        new = {s: {p: n - self._counted.get(s, {}).get(p, 0) for p, n in parts.items()} for s, parts in now.items()}
        self._counted = now
        capture = self.task.captures[self._file or 0] if self.task.captures else 0
        ledgers = self.outcome.ledgers
        ledgers[capture] = sum_ledgers([ledgers.get(capture, {}), new])

    def _follow(self) -> Iterator[Batch]:
        task = self.task
        merged: dict[bytes, list[Seam]] = {}
        for split, heads in task.follows.items():
            seams = self._cut(split, heads)
            yield from self._take([seam for key, seam in seams.items() if key not in task.merged])
            if split != task.split:
                self.bytes_followed += sum(seam.size for seam in seams.values())
            for key, seam in seams.items():
                if key in task.merged:
                    merged.setdefault(key, []).append(seam)
                if task.keep_open and split != task.split:
                    self._followed.setdefault(key, []).append(seam)
        for key in sorted(merged):
            yield from self._take(merged[key], by_time=True)

    def _take(self, seams: list[Seam], by_time: bool = False) -> Iterator[Batch]:
        whole = joined(seams, by_time=by_time)
        if len(whole.packets):
            yield from self._split.follow(whole.data, whole.packets, len(whole.packets))

    def _fill_outcome(self) -> None:
        engine, outcome = self.engine, self.outcome
        dissector = engine.dissector
        self._count_file()
        outcome.not_captured = engine.not_captured
        for number, name in engine.topic_names.items():
            outcome.names[dissector.string(number)] = dissector.string(name)
        for topic_id, topic in self._names.items():
            dissector.name_topic(topic_id, topic)

    @property
    def topic_names(self) -> Mapping[bytes, bytes]:
        """Topic names by id, of all splits."""
        return self._names

    def split_shared(self, connections: Any) -> tuple[Any, Any]:
        """Two tables of rows of connections: those that other splits share, and those that are complete."""
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = connections["connection"]
        shared = pc.is_in(numbers, pa.array(sorted(self._split.shared), pa.int64()))
        return connections.filter(shared), connections.filter(pc.invert(shared))

    def context(self) -> Context:
        """Names, ledger and the other facts that the rows of this split refer to."""
        return replace(self.engine.context(), ledger=self.outcome.ledger, not_captured=self.outcome.not_captured)
