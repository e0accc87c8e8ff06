"""Records of captures, piece by piece: the passes that they take.

Topic ids may be told after the records that they name, and which messages are asked for is known only when their
exchanges are finished. So captures that are files are read twice, first as a report does (`survey`); pipes once.
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
from ..run import Run, Watch, never
from ..selection import EVERYTHING, Selection
from .message_index import MakeEngine, exchange_times, message_ids, survey
from .messages import LiveTopics

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.layouts.overlay import Definitions

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """Which records: those of selected exchanges, of topics that `topic` says yes to (called with their name, or with
    the text of the id where no name is known)."""

    selection: Selection = EVERYTHING
    topic: Callable[[str], bool] | None = None


ALL_RECORDS = RecordSelection()


def may_read_twice(captures: Sequence[str]) -> bool:
    """Whether these are files: pipes can be read only once."""
    return not any(map(is_pipe, captures))


def chunks_of(run: Run, collector: RecordCollector) -> Iterator[Chunk]:
    """The records of a run, whose engine has the collector among its inspectors."""
    for batches in run.steps():
        for _ in batches:
            pass
        yield from collector.chunks()


class RecordReader:
    """Reads the records of captures. `tables()` is read once; then `run` and `tally` say what there was. Of captures
    that are read twice `run` is of all, also where the tables were not read to their end.

    ValueError for a condition on what can be read only once: whether it holds is known too late.
    """

    def __init__(
        self,
        captures: Sequence[str],
        make_engine: MakeEngine,
        definitions: Definitions | None = None,
        wanted: RecordSelection = ALL_RECORDS,
        bounds: Bounds | None = None,
        watch: Watch = never,
    ) -> None:
        if wanted.selection.expression is not None and not may_read_twice(captures):
            raise ValueError("what is read from a pipe can be filtered by --topic, --from and --to alone")
        self.captures = captures
        self._selection, self._topic = wanted.selection, wanted.topic
        self._make_engine = make_engine
        self._watch = watch
        self._order: Array | None = None
        self._names: Mapping[bytes, str] = {}
        self.collector = RecordCollector(load_programs("records", definitions), self._choose, self._is_selected, bounds)
        self.run: Run | None = None

    @property
    def tally(self) -> Tally:
        return self.collector.tally

    def tables(self) -> Iterator[pa.Table]:
        """The table `records`, in pieces of at most `dissector.records.RECORDS` rows."""
        from kafkatap.reports.record_table import records_table

        twice = may_read_twice(self.captures)
        if twice:
            found = survey(self.captures, self._make_engine, selection=self._selection, watch=self._watch)
            self._names = found.topic_names
            if self._selection:
                self._order = np.sort(found.order)
            self.run = found.run
            if found.run.interrupted or not any(file.packets for file in found.run.files):
                return
        engine = self._make_engine(inspectors=[self.collector])
        run = Run(self.captures, engine, self._watch)
        if not twice:
            self._names = LiveTopics(engine)
            self.run = run
        for chunk in chunks_of(run, self.collector):
            yield records_table(chunk, self._names, engine.strings)
        self.run = run

    def _choose(self, frames: Frames, numbers: Array) -> Array:
        if self._order is not None:
            ids = message_ids(frames)[numbers]
            at = np.minimum(np.searchsorted(self._order, ids), max(len(self._order) - 1, 0))
            return self._order[at] == ids if len(self._order) else np.zeros(len(ids), bool)
        assert self.run is not None
        first = self.run.engine.first
        window = self._selection.window
        if window is None or first is None or may_read_twice(self.captures):
            return np.ones(len(numbers), bool)
        start, end = window.span(first)
        times = exchange_times(frames)[numbers]
        return (times >= start) & (times < end)

    def _is_selected(self, topic: Topic) -> bool:
        if self._topic is None:
            return True
        from kafkatap.reports.record_table import topic_text

        return self._topic(topic_text(topic, self._names) or "")
