"""The first of two passes over captures: which messages are asked for, in what order, and what ids are called.

A message can be judged only when its exchange is finished, and a topic's name may be told after its id was used. So
what shows single messages reads the captures twice: here as a report does, keeping 16 bytes a message; then again, with
nothing to hold back but what arrives out of order. Exchange numbers are the same in every pass over the same captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kafkatap.dissector.inspection import Frames, Inspector
from kafkatap.dissector.rows import NO_TIME
from kafkatap.kernels.arrays import grown
from kafkatap.reports.batch import Batch, Names

from .engine import Engine
from .nodes import NodeFinder
from .running import Run, Watch

Array = np.ndarray[Any, Any]
#: Makes the engine of a pass, given `all_results`, `inspectors` and `apis` as keywords.
MakeEngine = Callable[..., Engine]
ALWAYS, NEVER = -(2**63), 2**63 - 1


class Condition(Protocol):
    """What a filter has to offer: see `kafkatap.reports.expressions`."""

    @property
    def api_keys(self) -> frozenset[int] | None: ...
    @property
    def needs_results(self) -> bool: ...
    @property
    def probes(self) -> Inspector | None: ...
    def select(self, batch: Batch, names: Names) -> Array: ...


@dataclass(frozen=True, slots=True)
class Survey:
    """`order`: the messages asked for, as exchange * 2 + direction (int64), by the time of their first byte;
    `outcomes` (uint8, `rows.OUTCOMES`) those of their exchanges. `found`: how many there were before `first` or `last`
    cut them. `topic_names`: by id; `nodes`: "host:port" by node id."""

    order: Array
    outcomes: Array
    found: int
    topic_names: dict[bytes, bytes]
    nodes: dict[int, str]
    run: Run


def message_ids(frames: Frames) -> Array:
    """exchange * 2 + direction (int64) of each job's message."""
    return frames.rows["exchange"][frames.jobs["frame"] >> 1] * 2 + (frames.jobs["frame"] & 1)


def message_times(frames: Frames) -> Array:
    """int64 ns: when each job's message began; where that byte is missing, when it ended; NO_TIME where both are."""
    slots, answers = frames.jobs["frame"] >> 1, (frames.jobs["frame"] & 1).astype(bool)
    rows = frames.rows
    first = np.where(answers, rows["response_first"][slots], rows["request_first"][slots])
    last = np.where(answers, rows["response_last"][slots], rows["request_last"][slots])
    return np.where(first == NO_TIME, last, first)


class _Index:
    """Notes each message and its time."""

    def __init__(self) -> None:
        self.ids: list[Array] = []
        self.times: list[Array] = []

    def look(self, frames: Frames) -> None:
        self.ids.append(message_ids(frames))
        self.times.append(message_times(frames))


def survey(
    captures: Sequence[str],
    make_engine: MakeEngine,
    nodes: NodeFinder,
    condition: Condition | None = None,
    *,
    window: Callable[[int], tuple[int, int]] | None = None,
    directions: Iterable[int] = (0, 1),
    first: int | None = None,
    last: int | None = None,
    watch: Watch | None = None,
) -> Survey:
    """Read the captures for what is asked for.

    `window` gives the span of time (ns since the epoch, the end not included) when told the first packet's time.
    `directions`: 0 requests, 1 responses. `first`, `last`: only so many from the beginning, or from the end.
    """
    index = _Index()
    inspectors: list[Inspector] = [index, nodes]
    if condition is not None and condition.probes is not None:
        inspectors.append(condition.probes)
    engine = make_engine(
        all_results=condition is not None and condition.needs_results,
        inspectors=inspectors,
        apis=None if condition is None else condition.api_keys,
    )
    run = Run(captures, engine) if watch is None else Run(captures, engine, watch)
    chosen: list[Array] = []
    outcomes = np.zeros(1024, np.uint8)  # by exchange
    for batch in run.batches():
        numbers = batch.exchanges["exchange"]
        while len(outcomes) <= numbers.max(initial=0):
            outcomes = grown(outcomes)
        outcomes[numbers] = batch.exchanges["outcome"]
        if condition is not None:
            chosen.append(numbers[condition.select(batch, engine)])
    ids = np.concatenate(index.ids) if index.ids else np.zeros(0, np.int64)
    times = np.concatenate(index.times) if index.times else np.zeros(0, np.int64)
    wanted = np.isin(ids & 1, list(directions))
    if condition is not None:
        wanted &= np.isin(ids >> 1, np.concatenate(chosen) if chosen else np.zeros(0, np.int64))
    if window is not None and engine.first is not None:
        start, end = window(engine.first)
        wanted &= (times >= start) & (times < end)
    ids, times = ids[wanted], times[wanted]
    order = ids[np.lexsort((ids, times))]
    found = len(order)
    if first is not None:
        order = order[:first]
    if last is not None:
        order = order[max(0, len(order) - last) :]
    string = engine.dissector.string
    names = {string(number): string(name) for number, name in engine.topic_names.items()}
    known = np.minimum(order >> 1, len(outcomes) - 1)  # bare tokens have none
    return Survey(order, outcomes[known], found, names, nodes.addresses(), run)
