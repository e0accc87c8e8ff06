"""The functions that executors run, from Arrow batches to Arrow batches (for `mapInArrow`)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output.split_tables import SplitTables
from .splits.decode import SplitRun
from .splits.survey import survey_split
from .splits.task_rows import SURVEY, DecodeInput, ReadOptions, batch_of, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from .output.publish import Staging


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """From rows TASK with a LocatedSplit to a row SURVEY for each."""

    options: ReadOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split, _, payload in rows_of(batches):
            reader = pickle.loads(payload).open()
            try:
                found = survey_split(split, reader, ports=self.options.ports, definitions=self.options.definitions)
                found.begins, found.ends, found.interfaces = reader.begins, reader.ends, reader.interfaces_read
                found.drops = reader.drops
            finally:
                reader.close()
            yield batch_of([(split, SURVEY, pickle.dumps(found))])


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """From rows TASK with a DecodeInput to rows OUTCOME and COUNTS, or to table rows.

    `table`: yield the rows of this table. `staging`: write the rows of all tables there, and yield rows OUTCOME and
    COUNTS. `counting`: yield these without writing rows.
    """

    options: ReadOptions
    topic_names: dict[bytes, bytes]
    table: str | None = None
    staging: Staging | None = None
    counting: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, _, payload in rows_of(batches):
            yield from self._decode(pickle.loads(payload))

    def _decode(self, split_input: DecodeInput) -> Iterator[pa.RecordBatch]:
        task, source, seams = split_input.task, split_input.source, split_input.seams
        reader = None if source is None else source.open()
        try:
            if reader is not None:
                reader.number_from(task.base + 1)
            with_rows = self.table is not None or self.staging is not None
            tables = SplitTables(self.options, self.table, self.staging)
            needed = self.options.selection.engine_options
            run = SplitRun(
                task, seams.cut, self.topic_names,
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
