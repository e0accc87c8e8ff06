"""The functions that executors run, from Arrow batches to Arrow batches (for `mapInArrow`)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output.split_tables import SplitTables
from .splits.decode import SplitRun
from .splits.seams import Seam
from .splits.split_engine import NOTHING
from .splits.survey import survey_split
from .splits.task_rows import SEAM, SURVEY, TASK, CutInput, DecodeInput, ReadOptions, batch_of, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from .output.publish import Staging
    from .splits.plan import SplitTask

#: Seams in one Arrow batch.
_SEAMS = 64


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """From rows TASK with a LocatedSplit to a row SURVEY and rows SEAM for each."""

    options: ReadOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split, _, _, _, payload in rows_of(batches):
            reader = pickle.loads(payload).open()
            try:
                found = survey_split(split, reader, ports=self.options.ports, definitions=self.options.definitions)
                found.begins, found.ends, found.interfaces = reader.begins, reader.ends, reader.interfaces_read
                found.drops = reader.drops
            finally:
                reader.close()
            seams = []
            for flow, seen in found.flows.items():
                if seen.seam is not None:
                    seams.append((split, split, SEAM, flow, seen.seam.dump()))
                    seen.seam = Seam(seen.seam.packets[:0], seen.seam.data[:0])  # an empty one: the survey found one
            for first in range(0, len(seams), _SEAMS):
                yield batch_of(seams[first : first + _SEAMS])
            yield batch_of([(split, split, SURVEY, None, pickle.dumps(found))])


@dataclass(frozen=True, slots=True)
class CutTask:
    """From rows TASK with a CutInput to rows SEAM."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source, _, _, _, payload in rows_of(batches):
            wanted: CutInput = pickle.loads(payload)
            for flow, seam in wanted.source.cut(wanted.heads).items():
                yield batch_of([(wanted.owners[flow], source, SEAM, flow, seam.dump())])


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """From rows TASK with a DecodeInput, each followed by its rows SEAM, to rows OUTCOME and COUNTS, or to table rows.

    `bases`: packets before each split. `table`: yield the rows of this table. `staging`: write the rows of all tables
    there, and yield rows OUTCOME and COUNTS. `counting`: yield these without writing rows.
    """

    options: ReadOptions
    bases: dict[int, int]
    topic_names: dict[bytes, bytes]
    table: str | None = None
    staging: Staging | None = None
    counting: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        split_input: DecodeInput | None = None
        seams: dict[int, dict[bytes, Seam]] = {}
        received = 0
        for split, source, kind, flow, payload in rows_of(batches):
            if kind == TASK:
                if split_input is not None:
                    yield from self._decode(split_input, seams, received)
                split_input, seams, received = pickle.loads(payload), {}, 0
            else:
                assert flow is not None
                if source != split or (split_input is not None and split_input.source is not None):
                    received += len(payload)
                seams.setdefault(source, {})[flow] = Seam.load(payload)
        if split_input is not None:
            yield from self._decode(split_input, seams, received)

    def _decode(
        self, split_input: DecodeInput, seams: dict[int, dict[bytes, Seam]], received: int
    ) -> Iterator[pa.RecordBatch]:
        task, source = split_input.task, split_input.source
        if task.primed and source is not None:
            seams[task.split] = {**source.cut(_local_heads(task)), **seams.get(task.split, {})}
        reader = None if source is None else source.open()
        try:
            if reader is not None:
                reader.number_from(task.base + 1)
            with_rows = self.table is not None or self.staging is not None
            tables = SplitTables(self.options, self.table, self.staging, source, received)
            needed = self.options.selection.engine_options
            run = SplitRun(
                task, seams, self.bases, self.topic_names,
                all_results=with_rows or self.options.by_topic or needed.all_results,
                inspectors=(*tables.inspectors, *needed.inspectors), ports=self.options.ports,
                definitions=self.options.definitions,
                apis=needed.apis if with_rows or self.counting else frozenset(),
            )  # fmt: skip
            if self.table is not None:
                yield from tables.rows(run, reader)
            elif self.staging is not None:
                yield tables.write(run, reader, self.staging)
            elif self.counting:
                yield tables.count(run, reader)
            else:
                yield tables.prove(run, reader)
        finally:
            if reader is not None:
                reader.close()


def _local_heads(task: SplitTask) -> dict[bytes, int]:
    """The heads of the flows that this split begins with, in its own packet numbers."""
    return {key: task.heads[key] - task.base for key in task.primed if task.heads[key] < NOTHING}
