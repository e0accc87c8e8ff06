"""The first of two passes over captures: which messages are asked for, in what order, and what ids are called.

A message can be judged only when its exchange is finished, and a topic's name may be told after its id was used. So
what shows single messages reads the captures twice: here as a report does, keeping 16 bytes a message; then again, with
nothing to hold back but what arrives out of order. Exchange numbers are the same in every pass over the same captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.dissector.inspection import Frames, Inspector
from kafkatap.kernels.arrays import grown
from kafkatap.reports.batch import Batch

from ..engine import Engine
from ..run import Run, Watch
from .node_names import NodeFinder

if TYPE_CHECKING:
    from kafkatap.reports.expressions import Condition

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


class _Outcomes:
    """Notes how each exchange ended."""

    def __init__(self) -> None:
        self._known = np.zeros(1024, np.uint8)

    def noted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            numbers = batch.exchanges["exchange"]
            while len(self._known) <= numbers.max(initial=0):
                self._known = grown(self._known)
            self._known[numbers] = batch.exchanges["outcome"]
            yield batch

    def of(self, exchanges: Array) -> Array:
        """`rows.OUTCOMES` (uint8) of exchanges by number; of bare tokens, which are in no batch, it says nothing."""
        return self._known[np.minimum(exchanges, len(self._known) - 1)]


def survey(
    captures: Sequence[str],
    make_engine: MakeEngine,
    *,
    nodes: NodeFinder | None = None,
    condition: Condition | None = None,
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
    inspectors: list[Inspector] = [index, *([nodes] if nodes is not None else [])]
    if condition is not None and condition.probes is not None:
        inspectors.append(condition.probes)
    engine = make_engine(
        all_results=condition is not None and condition.needs_results,
        inspectors=inspectors,
        apis=None if condition is None else condition.api_keys,
    )
    run = Run(captures, engine) if watch is None else Run(captures, engine, watch)
    outcomes = _Outcomes()
    batches = outcomes.noted(run.batches())
    chosen = np.zeros(0, np.int64)
    if condition is None:
        for _ in batches:
            pass
    else:
        from kafkatap.reports.expressions.sieve import sift

        passed = [batch.exchanges["exchange"] for batch in sift(batches, condition, engine)]
        chosen = np.concatenate(passed) if passed else chosen
    ids = np.concatenate(index.ids) if index.ids else np.zeros(0, np.int64)
    times = np.concatenate(index.times) if index.times else np.zeros(0, np.int64)
    wanted = np.isin(ids & 1, list(directions))
    if condition is not None:
        wanted &= np.isin(ids >> 1, chosen)
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
    return Survey(
        order, outcomes.of(order >> 1), found, named_topics(engine), {} if nodes is None else nodes.found, run
    )
