"""`SplitRun`: the second pass over a split.

`batches` yields the finished rows of the split. Afterwards `outcome` has the states to compare with other splits, and
the sums over this split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reports.batch import Batch, Context

from .flow_state import FlowState
from .plan import SplitTask
from .seams import Seam, joined
from .split_engine import SplitEngine

if TYPE_CHECKING:
    from kafkatap.dissector.inspection import Inspector
    from kafkatap.dissector.layouts.overlay import Definitions

    from .survey import Packets

Array = np.ndarray[Any, Any]
#: The seams of a split: by the split that they are from, then by flow.
Seams = Mapping[int, Mapping[bytes, Seam]]


@dataclass(slots=True)
class Outcome:
    """`claims`: states of flows at the heads of this split. `arrivals`: states at the heads of the splits that continue
    them, by flow and that split. `names`: topic names by id that this split found."""

    split: int
    claims: dict[bytes, FlowState] = field(default_factory=dict)
    arrivals: dict[tuple[bytes, int], FlowState] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)
    ledger: dict[str, dict[str, int]] = field(default_factory=dict)
    not_captured: int = 0


class SplitRun:
    """`seams`: packets from this split and later ones that this split decodes, numbered as in their splits. `bases`:
    packets before each split."""

    def __init__(
        self,
        task: SplitTask,
        seams: Seams,
        bases: Mapping[int, int],
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
        self._seams = seams
        self._bases = bases
        self._names = topic_names
        self._split = SplitEngine(
            task.number, task.histories, task.heads, task.listeners, all_results=all_results, inspectors=inspectors,
            ports=ports, definitions=definitions, apis=apis,
        )  # fmt: skip
        self.engine = self._split.engine
        for topic_id, name in topic_names.items():
            self.engine.dissector.name_topic(topic_id, name)
        self.outcome = Outcome(task.split)

    def batches(self, reader: Packets | None) -> Iterator[Batch]:
        """The finished rows of this split. `reader` numbers packets over the whole input; None: all packets are in
        seams."""
        split, task = self._split, self.task
        mine = self._seams.get(task.split, {})
        own = joined(self._numbered(task.split, key) for key in task.primed if key in mine)
        if len(own.packets):
            split.prime(own.data, own.packets, len(own.packets))
        claims = split.states(task.primed)
        if reader is not None:
            self.outcome.claims = claims
        split.begin_split()
        while reader is not None and reader.fill():
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

    def packets_of(self, key: bytes, own: Mapping[bytes, Seam]) -> Seam:
        """All packets of a flow in this run, in order. `own`: those of the split itself, numbered as there."""
        task = self.task
        parts = [own[key].numbered_from(self._bases[task.split])] if key in own else []
        for _, split in sorted((self._bases[split], split) for split in self._seams):
            if key in self._seams[split] and (split != task.split or key not in own):
                parts.append(self._numbered(split, key))
        return joined(parts, by_time=key in task.merged)

    def _numbered(self, split: int, key: bytes) -> Seam:
        return self._seams[split][key].numbered_from(self._bases[split])

    def _follow(self) -> Iterator[Batch]:
        task = self.task
        later = sorted((self._bases[split], split) for split in self._seams)
        for _, split in later:
            keys = [k for k in self._seams[split] if k not in task.merged]
            if split == task.split:
                keys = [k for k in keys if k not in set(task.primed)]
            yield from self._take([self._numbered(split, key) for key in keys])
        for key in sorted(task.merged):
            parts = [self._numbered(split, key) for _, split in later if key in self._seams[split]]
            yield from self._take(parts, by_time=True)

    def _take(self, seams: list[Seam], by_time: bool = False) -> Iterator[Batch]:
        whole = joined(seams, by_time=by_time)
        if len(whole.packets):
            yield from self._split.follow(whole.data, whole.packets, len(whole.packets))

    def _fill_outcome(self) -> None:
        engine, outcome = self.engine, self.outcome
        dissector = engine.dissector
        outcome.ledger = engine.ledger()
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
