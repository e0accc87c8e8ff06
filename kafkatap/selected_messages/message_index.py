"""The first of two passes over captures: the selected messages in time order, and the names of topics and nodes.

A selection needs finished exchanges, and a topic's name may come after the first use of its id. So commands that show
single messages read captures twice. This pass reads them as a report does and keeps 16 bytes per message. The second
pass (`messages.read_messages`) holds back only messages that arrive out of order. Exchange numbers are the same in
every pass over the same captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.dissector.inspection import Frames, Inspector
from kafkatap.reports.batch import Batch

from ..engine.engine import Engine
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.selection import EVERYTHING, Selection, Selector
from ..run import Run, Watch
from .node_names import NodeNames
from .record_filter import BaseOffsets, Candidates
from .topic_names import topic_names

Array = np.ndarray[Any, Any]
#: Makes the engine of a pass. Its keywords are `all_results`, `inspectors` and `apis`.


@dataclass(frozen=True, slots=True)
class MessageIndex:
    """The selected messages of a run, in the order of their first bytes.

    `ids`: exchange * 2 + direction (int64). `outcomes`: those of their exchanges (uint8, OUTCOMES). `total`: how many
    messages are selected, without the limits `first` and `last`. `topic_names`: by topic id. `node_names`: by node id.
    `candidates`: of a selection that names records; all of them are selected. `always`: the numbers of those that match
    with any records, or none. `base_offsets`: of Produce responses, if they were wanted.
    """

    ids: Array
    outcomes: Array
    total: int
    topic_names: dict[bytes, str]
    node_names: dict[int, str]
    run: Run
    candidates: Candidates | None = None
    always: Array | None = None
    base_offsets: BaseOffsets | None = None

    def limited(self, first: int | None, last: int | None, wanted: Array | None = None) -> MessageIndex:
        """The same with this many messages from the beginning, or from the end. `wanted`: only these (bool)."""
        ids, outcomes = (self.ids, self.outcomes) if wanted is None else (self.ids[wanted], self.outcomes[wanted])
        kept = slice(None if last is None else max(0, len(ids[:first]) - last), first)
        return replace(self, ids=ids[kept], outcomes=outcomes[kept], total=len(ids))


def message_ids(frames: Frames) -> Array:
    """The id of each job's message: exchange * 2 + direction (int64)."""
    ids: Array = frames.rows["exchange"][frames.jobs["frame"] >> 1] * 2 + (frames.jobs["frame"] & 1)
    return ids


def message_times(frames: Frames) -> Array:
    """The time of each job's message, int64 ns: its first byte, else its last byte, else NO_TIME."""
    slots, are_responses = frames.jobs["frame"] >> 1, (frames.jobs["frame"] & 1).astype(bool)
    rows = frames.rows
    first = np.where(are_responses, rows["response_first"][slots], rows["request_first"][slots])
    last = np.where(are_responses, rows["response_last"][slots], rows["request_last"][slots])
    times: Array = np.where(first == NO_TIME, last, first)
    return times


def exchange_times(frames: Frames) -> Array:
    """The start of each job's exchange, int64 ns; without a request, the time of the message."""
    first = frames.rows["request_first"][frames.jobs["frame"] >> 1]
    times: Array = np.where(first == NO_TIME, message_times(frames), first)
    return times


def are_among(ids: Array, ordered: Array) -> Array:
    """Which ids (int64) are in an ascending array of ids: bool (n,)."""
    if not len(ordered):
        return np.zeros(len(ids), bool)
    places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    found: Array = ordered[places] == ids
    return found


class _MessageCollector:
    """An inspector that collects the ids and times of all messages."""

    def __init__(self) -> None:
        self.ids: list[Array] = []
        self.times: list[Array] = []

    def look(self, frames: Frames) -> None:
        self.ids.append(message_ids(frames))
        self.times.append(message_times(frames))


#: The outcome of a number that no batch holds.
_NO_EXCHANGE = 255


class _Outcomes:
    """The outcomes of exchanges by number, collected from batches that pass through."""

    def __init__(self) -> None:
        self._outcomes = np.full(1024, _NO_EXCHANGE, np.uint8)

    def collected(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches and keep their outcomes."""
        for batch in batches:
            numbers = batch.exchanges["exchange"]
            while len(self._outcomes) <= numbers.max(initial=0):
                self._outcomes = np.concatenate((self._outcomes, np.full(len(self._outcomes), _NO_EXCHANGE, np.uint8)))
            self._outcomes[numbers] = batch.exchanges["outcome"]
            yield batch

    def of(self, exchanges: Array) -> Array:
        """The outcomes of exchanges by number (uint8, OUTCOMES); 0 for bare tokens, which no batch holds."""
        found = self._look_up(exchanges)
        found[found == _NO_EXCHANGE] = 0
        return found

    def are_tokens(self, exchanges: Array) -> Array:
        """Which numbers no batch holds: those of bare tokens. bool (n,)."""
        found: Array = self._look_up(exchanges) == _NO_EXCHANGE
        return found

    def _look_up(self, exchanges: Array) -> Array:
        found: Array = self._outcomes[np.minimum(exchanges, len(self._outcomes) - 1)]
        found[exchanges >= len(self._outcomes)] = _NO_EXCHANGE
        return found


def index_messages(
    captures: Sequence[str],
    read: ReadOptions = AS_USUAL,
    *,
    nodes: NodeNames | None = None,
    selection: Selection = EVERYTHING,
    directions: Iterable[int] = (0, 1),
    first: int | None = None,
    last: int | None = None,
    watch: Watch | None = None,
    base_offsets: BaseOffsets | None = None,
) -> MessageIndex:
    """Read the captures once; return the messages of selected exchanges.

    SASL tokens belong to no exchange: a selection that is only a time window selects them by their own time.
    `base_offsets`: gets those of Produce responses. `directions`: 0 requests, 1 responses. `first`, `last`: keep this
    many from the beginning, or from the end.
    """
    collector = _MessageCollector()
    inspectors: list[Inspector] = [collector, *([nodes] if nodes is not None else [])]
    needed = selection.engine_options
    inspectors += needed.inspectors
    all_results = needed.all_results or base_offsets is not None
    engine = Engine(read, all_results=all_results, inspectors=inspectors, apis=needed.apis)
    run = Run(captures, engine) if watch is None else Run(captures, engine, watch)
    outcomes = _Outcomes()
    batches = outcomes.collected(run.batches())
    selected = [np.zeros(0, np.int64)]
    selector = Selector(selection, engine)
    of_records: list[tuple[Array, Array, Array]] = []
    always = [np.zeros(0, np.int64)]
    for batch in selector.apply(batches) if selection else batches:
        if selection:
            selected.append(batch.exchanges["exchange"])
        if base_offsets is not None:
            base_offsets.add(batch, engine.strings)
        if selection.reads_records:
            tables = selector.record_tables(batch)
            of_records.append((batch.exchanges["exchange"], batch.exchanges["key"], tables))
            always.append(batch.exchanges["exchange"][selector.matches_always(tables)])
    ids = np.concatenate(collector.ids) if collector.ids else np.zeros(0, np.int64)
    times = np.concatenate(collector.times) if collector.times else np.zeros(0, np.int64)
    wanted = np.isin(ids & 1, list(directions))
    if selection:
        chosen = np.isin(ids >> 1, np.concatenate(selected))
        if selection.expression is None and selection.window is not None and engine.first is not None:
            start, end = selection.window.span(engine.first)
            chosen |= outcomes.are_tokens(ids >> 1) & (times >= start) & (times < end)
        wanted &= chosen
    ids, times = ids[wanted], times[wanted]
    order = ids[np.lexsort((ids, times))]
    node_names = {} if nodes is None else nodes.names
    index = MessageIndex(order, outcomes.of(order >> 1), len(order), topic_names(engine), node_names, run)
    index = replace(index, base_offsets=base_offsets)
    if selection.reads_records:
        index = replace(index, candidates=Candidates.of(of_records), always=np.concatenate(always))
    return index.limited(first, last)
