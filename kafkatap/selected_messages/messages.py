"""The selected messages in time order: the second pass after `index_messages`, or the only pass over a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from ..engine.engine import Engine
from ..engine.read_options import ReadOptions
from ..engine.selection import EVERYTHING, Selection, Selector
from ..run import Run
from .message import Messages, joined_messages
from .message_collector import MessageCollector
from .message_index import MessageIndex, are_among
from .node_names import NodeNames

Array = np.ndarray[Any, Any]


def read_messages(index: MessageIndex, read: ReadOptions, collector: MessageCollector) -> Iterator[Messages]:
    """Yield the messages of an index, in its order. Reads the captures again."""
    total = len(index.ids)
    if not total:
        return
    run = Run(index.run.paths, collector.bind(Engine(read, inspectors=[collector])))
    by_id = np.argsort(index.ids)
    ids = index.ids[by_id]
    is_missing = np.ones(total + 1, bool)  # by place; the last one ends each search
    waiting: list[tuple[Array, Messages]] = []  # with their places, ascending
    following = 0
    for batch in chain(run.batches(), (None,)):
        made = collector.take(batch)
        if made is None:
            continue
        places = by_id[np.searchsorted(ids, made.heads["id"])]
        made.heads["outcome"] = index.outcomes[places]
        order = np.argsort(places)
        waiting.append((places[order], made.rows_at(order)))
        is_missing[places] = False
        if not is_missing[following]:
            following += int(np.argmax(is_missing[following:]))
            yield _first(waiting, following)
        if following == total:
            return
    if waiting:  # a capture that changed between the passes
        yield _first(waiting, total)


def _first(waiting: list[tuple[Array, Messages]], end: int) -> Messages:
    """Remove and return the waiting messages before a place, in order."""
    parts, kept = [], []
    for places, messages in waiting:
        count = int(np.searchsorted(places, end))
        if count:
            parts.append((places[:count], messages.rows_at(slice(count))))
        if count < len(places):
            # What stays is copied, so that it does not keep the memory of what goes.
            rest = messages.rows_at(np.arange(count, len(places))) if count else messages
            kept.append((places[count:], rest))
    waiting[:] = kept
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    return joined_messages([messages for _, messages in parts]).rows_at(order)


def streaming_engine(
    read: ReadOptions, collector: MessageCollector, nodes: NodeNames, selection: Selection
) -> Engine:  # fmt: skip
    """Make the engine of a run for `stream_messages`."""
    needed = selection.engine_options
    return collector.bind(
        Engine(read, all_results=needed.all_results, inspectors=[*needed.inspectors, nodes, collector])
    )


def stream_messages(
    run: Run, collector: MessageCollector, selection: Selection = EVERYTHING
) -> Iterator[Messages | None]:  # fmt: skip
    """Yield the selected messages of each step of a run in one pass, in time order; None where there are none.

    A selection with an expression yields a message once its exchange is finished, else as soon as it was read.
    """
    engine = run.engine
    selector = Selector(selection, engine)
    held: list[Messages] = []
    for batches in run.steps():
        found: list[Messages] = []
        for batch in chain(batches, (None,)):
            made = collector.take(batch)
            if selection.expression is not None:
                if made is not None:
                    held.append(made)
                if batch is not None:
                    found += _finished(held, batch.exchanges["exchange"], selector.select(batch))
            elif made is not None:
                if selection.window is not None and engine.first is not None:
                    start, end = selection.window.span(engine.first)
                    made = made.picked((made.began >= start) & (made.began < end))
                found.append(made)
        yield _in_time_order(joined_messages(found)) if found else None


def _finished(held: list[Messages], exchanges: Array, are_selected: Array) -> list[Messages]:
    """Remove the messages of these exchanges from those held; return the selected ones."""
    finished, selected = np.sort(exchanges), np.sort(exchanges[are_selected])
    found, kept = [], []
    for messages in held:
        numbers = messages.heads["id"] >> 1
        are_finished = are_among(numbers, finished)
        are_found = are_among(numbers, selected)
        if are_found.any():
            found.append(messages.picked(are_found))
        if not are_finished.all():
            kept.append(messages.picked(~are_finished))
    held[:] = kept
    return found


def _in_time_order(messages: Messages) -> Messages:
    return messages.rows_at(np.lexsort((messages.heads["id"], messages.heads["time"])))
