"""The selected messages in time order: the second pass after `index_messages`, or the only pass over a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kafkatap.dissector.dtypes import OUTCOMES

from ..engine.engine import Engine
from ..engine.read_options import ReadOptions
from ..engine.selection import EVERYTHING, Selection, Selector
from ..run import Run
from .message import Message
from .message_collector import MessageCollector
from .message_index import MessageIndex
from .node_names import NodeNames


def read_messages(index: MessageIndex, read: ReadOptions, collector: MessageCollector) -> Iterator[Message]:
    """Yield the messages of an index, in its order. Reads the captures again."""
    rank = {number: place for place, number in enumerate(index.ids.tolist())}
    if not rank:
        return
    run = Run(index.run.paths, collector.bind(Engine(read, inspectors=[collector])))
    waiting: dict[int, Message] = {}
    following = 0
    for batch in chain(run.batches(), (None,)):
        for message in collector.take(batch):
            place = rank[message.id]
            message.outcome = OUTCOMES[index.outcomes[place]]
            waiting[place] = message
        while following in waiting:
            yield waiting.pop(following)
            following += 1
        if following == len(rank):
            return
    for place in sorted(waiting):  # a capture that changed between the passes
        yield waiting[place]


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
) -> Iterator[list[Message]]:  # fmt: skip
    """Yield the selected messages of each step of a run in one pass, in time order.

    A selection with an expression yields a message once its exchange is finished, else as soon as it was read.
    """
    engine = run.engine
    selector = Selector(selection, engine)
    held: dict[int, list[Message]] = {}
    for batches in run.steps():
        found: list[Message] = []
        for batch in chain(batches, (None,)):
            made = collector.take(batch)
            if selection.expression is None and selection.window is not None and engine.first is not None:
                start, end = selection.window.span(engine.first)
                made = [message for message in made if start <= message.began < end]
            elif selection.expression is not None:
                for message in made:
                    held.setdefault(message.id >> 1, []).append(message)
                made = []
                if batch is not None:
                    chosen = selector.select(batch)
                    for exchange, is_chosen in zip(batch.exchanges["exchange"].tolist(), chosen.tolist(), strict=True):
                        messages = held.pop(exchange, ())
                        made += messages if is_chosen else ()
            found += made
        yield sorted(found, key=lambda m: (m.time, m.id))
