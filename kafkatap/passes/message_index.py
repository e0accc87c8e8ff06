"""The first of two passes over captures: which messages are asked for, in what order, and what ids are called.

A message can be judged only when its exchange is finished, and a topic's name may be told after its id was used. So
what shows single messages reads the captures twice: here as a report does, keeping 16 bytes a message; then again, with
nothing to hold back but what arrives out of order. Exchange numbers are the same in every pass over the same captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.dissector.inspection import Frames, Inspector
from kafkatap.reports.batch import Batch

from ..engine import Engine
from ..run import Run, Watch
from ..selection import EVERYTHING, Selection
from .node_names import NodeFinder

Array = np.ndarray[Any, Any]
#: Makes the engine of a pass, given `all_results`, `inspectors` and `apis` as keywords.
MakeEngine = Callable[..., Engine]


@dataclass(frozen=True, slots=True)
class Survey:
    """`order`: the messages asked for, as exchange * 2 + direction (int64), by the time of their first byte;
    `outcomes` (uint8, `rows.OUTCOMES`) those of their exchanges. `found`: how many there were before `first` or `last`
    cut them. `topic_names`: by id; `nodes`: "host:port" by node id."""

    order: Array
    outcomes: Array
    found: int
    topic_names: dict[bytes, str]
    nodes: dict[int, str]
    run: Run


def message_ids(frames: Frames) -> Array:
    """exchange * 2 + direction (int64) of each job's message."""
    ids: Array = frames.rows["exchange"][frames.jobs["frame"] >> 1] * 2 + (frames.jobs["frame"] & 1)
    return ids


def message_times(frames: Frames) -> Array:
    """int64 ns: when each job's message began; where that byte is missing, when it ended; NO_TIME where both are."""
    slots, answers = frames.jobs["frame"] >> 1, (frames.jobs["frame"] & 1).astype(bool)
    rows = frames.rows
    first = np.where(answers, rows["response_first"][slots], rows["request_first"][slots])
    last = np.where(answers, rows["response_last"][slots], rows["request_last"][slots])
    times: Array = np.where(first == NO_TIME, last, first)
    return times


def exchange_times(frames: Frames) -> Array:
    """int64 ns: when each job's exchange began; without a request, when the message did."""
    first = frames.rows["request_first"][frames.jobs["frame"] >> 1]
    times: Array = np.where(first == NO_TIME, message_times(frames), first)
    return times


def named_topics(engine: Engine) -> dict[bytes, str]:
    """The names of topics by id (16 bytes), as far as an engine has seen them."""
    string = engine.dissector.string
    return {string(number): string(name).decode("utf-8", "replace") for number, name in engine.topic_names.items()}


class _Index:
    """Notes each message and its time."""

    def __init__(self) -> None:
        self.ids: list[Array] = []
        self.times: list[Array] = []

    def look(self, frames: Frames) -> None:
        self.ids.append(message_ids(frames))
        self.times.append(message_times(frames))


_NO_EXCHANGE = 255


class _Outcomes:
    """Notes how each exchange ended."""

    def __init__(self) -> None:
        self._known = np.full(1024, _NO_EXCHANGE, np.uint8)

    def noted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            numbers = batch.exchanges["exchange"]
            while len(self._known) <= numbers.max(initial=0):
                self._known = np.concatenate((self._known, np.full(len(self._known), _NO_EXCHANGE, np.uint8)))
            self._known[numbers] = batch.exchanges["outcome"]
            yield batch

    def of(self, exchanges: Array) -> Array:
        """`OUTCOMES` (uint8) of exchanges by number; 0 for bare tokens, which are in no batch."""
        found = self._look_up(exchanges)
        found[found == _NO_EXCHANGE] = 0
        return found

    def are_tokens(self, exchanges: Array) -> Array:
        """Which numbers are in no batch, so that they are bare tokens: bool (n,)."""
        found: Array = self._look_up(exchanges) == _NO_EXCHANGE
        return found

    def _look_up(self, exchanges: Array) -> Array:
        found: Array = self._known[np.minimum(exchanges, len(self._known) - 1)]
        found[exchanges >= len(self._known)] = _NO_EXCHANGE
        return found


def survey(
    captures: Sequence[str],
    make_engine: MakeEngine,
    *,
    nodes: NodeFinder | None = None,
    selection: Selection = EVERYTHING,
    directions: Iterable[int] = (0, 1),
    first: int | None = None,
    last: int | None = None,
    watch: Watch | None = None,
) -> Survey:
    """Read the captures for the messages that are selected.

    Messages of selected exchanges are found; SASL tokens, which belong to no exchange, by a time window alone.
    `directions`: 0 requests, 1 responses. `first`, `last`: only so many from the beginning, or from the end.
    """
    index = _Index()
    inspectors: list[Inspector] = [index, *([nodes] if nodes is not None else [])]
    needed = selection.engine_options
    inspectors += needed.inspectors
    engine = make_engine(all_results=needed.all_results, inspectors=inspectors, apis=needed.apis)
    run = Run(captures, engine) if watch is None else Run(captures, engine, watch)
    outcomes = _Outcomes()
    batches = outcomes.noted(run.batches())
    selected = [np.zeros(0, np.int64)]
    for batch in selection.apply(batches, engine):
        if selection:
            selected.append(batch.exchanges["exchange"])
    ids = np.concatenate(index.ids) if index.ids else np.zeros(0, np.int64)
    times = np.concatenate(index.times) if index.times else np.zeros(0, np.int64)
    wanted = np.isin(ids & 1, list(directions))
    if selection:
        chosen = np.isin(ids >> 1, np.concatenate(selected))
        if selection.expression is None and selection.window is not None and engine.first is not None:
            start, end = selection.window.span(engine.first)
            chosen |= outcomes.are_tokens(ids >> 1) & (times >= start) & (times < end)
        wanted &= chosen
    ids, times = ids[wanted], times[wanted]
    order = ids[np.lexsort((ids, times))]
    found = len(order)
    if first is not None:
        order = order[:first]
    if last is not None:
        order = order[max(0, len(order) - last) :]
    return Survey(
        order, outcomes.of(order >> 1), found, named_topics(engine), {} if nodes is None else nodes.found, run
    )
