"""`RecordReader`: the selected records of captures as tables.

A topic's name may come after its records, and a selection needs finished exchanges. So files are read twice, the first
time by `index_messages`. Pipes are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.records.codecs import Bounds
from kafkatap.dissector.records.record_inspector import Chunk, RecordCollector, Tally, Topic

from ..captures.pipes import is_pipe
from ..engine.engine import Engine
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.selection import EVERYTHING, Selection
from ..run import Follow, Run, Watch, never
from .message_index import are_among, exchange_times, index_messages, message_ids
from .topic_names import TopicNames

if TYPE_CHECKING:
    import pyarrow as pa


Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """Which records: those of selected exchanges, of topics for which `topic` returns True.

    `topic` is called with the topic's name, or with the text of its id where the name is not known.
    """

    selection: Selection = EVERYTHING
    topic: Callable[[str], bool] | None = None


ALL_RECORDS = RecordSelection()


def can_read_twice(captures: Sequence[str]) -> bool:
    """Whether the captures are files. A pipe can be read only once."""
    return not any(map(is_pipe, captures))


def record_chunks(run: Run, collector: RecordCollector, most_topics: int | None = None) -> Iterator[Chunk]:
    """Yield the records of a run. Its engine has the collector among its inspectors.

    `most_topics`: the collector forgets topics beyond this; those of a chunk are valid until the next one.
    """
    for batches in run.steps():
        for _ in batches:
            pass
        yield from collector.chunks()
        if most_topics is not None and len(collector.topics) > most_topics:
            collector.forget_topics()


class RecordReader:
    """Reads the records of captures. Call `tables()` once; afterwards `run` and `tally` describe what was read.

    For captures that are read twice, `run` covers all of them even if the caller stops before the last table.
    `follow`: the captures may still grow. ValueError for an expression on these or on pipes: the records are gone
    before their exchanges are finished.
    """

    def __init__(
        self,
        captures: Sequence[str],
        read: ReadOptions = AS_USUAL,
        wanted: RecordSelection = ALL_RECORDS,
        bounds: Bounds | None = None,
        watch: Watch = never,
        follow: Follow | None = None,
    ) -> None:
        self._twice = follow is None and can_read_twice(captures)
        if wanted.selection.expression is not None and not self._twice:
            raise ValueError("what is read only once can be filtered by --topic, --from and --to alone")
        self.captures = captures
        self._selection, self._topic = wanted.selection, wanted.topic
        self._read = read
        self._watch, self._follow = watch, follow
        self._ids: Array | None = None
        self._names: Mapping[bytes, str] = {}
        self.collector = RecordCollector(
            load_programs("records", read.definitions), self._are_selected, self._is_topic_selected, bounds
        )
        self.run: Run | None = None

    @property
    def has_selection(self) -> bool:
        """Whether records can be there that are not wanted."""
        return bool(self._selection.text) or self._topic is not None

    @property
    def tally(self) -> Tally:
        return self.collector.tally

    def tables(self) -> Iterator[pa.Table]:
        """Yield the table `records` in parts of at most `dissector.records.RECORDS` rows."""
        from kafkatap.reports.record_table import records_table

        twice = self._twice
        if twice:
            index = index_messages(self.captures, self._read, selection=self._selection, watch=self._watch)
            self._names = index.topic_names
            if self._selection:
                self._ids = np.sort(index.ids)
            self.run = index.run
            if index.run.interrupted or not any(file.packets for file in index.run.files):
                return
        engine = Engine(self._read, inspectors=[self.collector])
        run = Run(self.captures, engine, self._watch, follow=self._follow)
        if not twice:
            self._names = TopicNames(engine)
            self.run = run
        for chunk in record_chunks(run, self.collector, engine.limits.names):
            yield records_table(chunk, self._names, engine.strings)
        self.run = run

    def _are_selected(self, frames: Frames, numbers: Array) -> Array:
        """Which of these messages' records to read: bool (n,)."""
        if self._ids is not None:
            return are_among(message_ids(frames)[numbers], self._ids)
        assert self.run is not None
        first = self.run.engine.first
        window = self._selection.window
        if window is None or first is None or self._twice:
            return np.ones(len(numbers), bool)
        start, end = window.span(first)
        times = exchange_times(frames)[numbers]
        return (times >= start) & (times < end)

    def _is_topic_selected(self, topic: Topic) -> bool:
        if self._topic is None:
            return True
        from kafkatap.reports.record_table import topic_text

        return self._topic(topic_text(topic, self._names) or "")
