"""`RecordReader`: the selected records of captures.

A topic's name may come after its records, and a selection needs finished exchanges. So files are read twice, the first
time by `index_messages`. Pipes are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.records.codecs import Bounds
from kafkatap.dissector.records.record_inspector import Chunk, RecordCollector, Tally, Topic
from kafkatap.reports.record_rows import RecordRows, topic_text

from ..captures.pipes import is_pipe
from ..engine.engine import Engine
from ..engine.read_options import AS_USUAL, ReadOptions
from ..engine.selection import EVERYTHING, Selection
from ..run import Follow, Run, Watch, never
from .message_index import MessageIndex, are_among, exchange_times, index_messages, message_ids
from .record_filter import BaseOffsets, RecordFilter, exchange_keys
from .topic_names import TopicNames

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


def is_for_one_pass(selection: Selection) -> bool:
    """Whether a selection needs nothing of exchanges that is known later than their records."""
    return selection.expression is None or selection.is_of_records_alone


class RecordReader:
    """Reads the records of captures. Call `rows()` once; afterwards `run` and `tally` describe what was read.

    For captures that are read twice, `run` covers all of them even if the caller stops before the last record.
    `follow`: the captures may still grow. ValueError for an expression on these or on pipes that names more than
    records: these are gone before their exchanges are finished. `index`: of the first pass, if that is done.
    """

    def __init__(
        self,
        captures: Sequence[str],
        read: ReadOptions = AS_USUAL,
        wanted: RecordSelection = ALL_RECORDS,
        bounds: Bounds | None = None,
        watch: Watch = never,
        follow: Follow | None = None,
        index: MessageIndex | None = None,
    ) -> None:
        self._twice = follow is None and can_read_twice(captures)
        if not self._twice and not is_for_one_pass(wanted.selection):
            raise ValueError("what is read only once can be filtered by --topic, --from, --to and record.* alone")
        self.captures = captures
        self._selection, self._topic = wanted.selection, wanted.topic
        self._read = read
        self._watch, self._follow, self._index = watch, follow, index
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
    def has_record_filter(self) -> bool:
        """Whether the selection names what is in records."""
        return self._selection.reads_records

    @property
    def tally(self) -> Tally:
        return self.collector.tally

    def rows(self) -> Iterator[RecordRows]:
        """Yield the records in parts of at most `dissector.records.RECORDS`. A part is valid until the next one."""
        for chunk, engine in self.chunks():
            yield RecordRows(chunk, self._names, engine.strings)

    def chunks(self) -> Iterator[tuple[Chunk, Engine]]:
        """Yield the records, and the engine that they are from."""
        twice = self._twice
        candidates = bases = None
        if twice:
            bases = BaseOffsets() if self._selection.reads_records else None
            index = self._index or index_messages(
                self.captures, self._read, selection=self._selection, watch=self._watch, base_offsets=bases
            )
            self._names, candidates, bases = index.topic_names, index.candidates, index.base_offsets
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
        condition = self._selection.condition() if self._selection.reads_records else None
        chosen = None if condition is None else RecordFilter(condition, candidates)
        for chunk in record_chunks(run, self.collector, engine.limits.names):
            picked = chunk if chosen is None else chosen.pick(chunk)
            if picked is not None:
                yield picked if bases is None else bases.applied(picked), engine
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
        return self._topic(topic_text(topic, self._names) or "")


def with_matching_records(
    index: MessageIndex,
    read: ReadOptions,
    selection: Selection,
    *,
    first: int | None = None,
    last: int | None = None,
    watch: Watch = never,
) -> tuple[MessageIndex, Tally]:
    """The messages of an index without limits whose exchanges match with one of their records, and what was read.
    `first`, `last`: as for `index_messages`."""
    assert index.candidates is not None
    assert index.always is not None
    reader = RecordReader(index.run.paths, read, RecordSelection(selection), watch=watch, index=index)
    keys = [np.zeros(0, np.int64), *(exchange_keys(chunk) for chunk, _ in reader.chunks())]
    numbers = np.concatenate((index.always, index.candidates.numbers_of(np.concatenate(keys))))
    wanted = np.isin(index.ids >> 1, numbers)
    return replace(index.limited(first, last, wanted), run=reader.run or index.run), reader.tally
