"""The functions that executors run, from Arrow batches to Arrow batches (for `mapInArrow`).

Each task gets the numbers of its inputs, usually one. The inputs themselves are part of the function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kafkatap.reports.questions.registry import needs_of

from ..splits.decode import SplitRun
from ..splits.secrets import key_log_of
from ..splits.survey import survey_split
from ..splits.task_rows import (
    DecodeInput,
    ReadOptions,
    SurveyInput,
    dump,
    load,
    numbers_of,
    result_batch,
    results_of,
)
from .output.split_tables import SplitTables

if TYPE_CHECKING:
    import pyarrow as pa

    from .output.writing import CaptureIndex, TableWriter


def results_here(task: SurveyTask | DecodeTask) -> dict[int, Any]:
    """Run a task on all its inputs in this process; return the results by split."""
    import pyarrow as pa

    numbers = pa.record_batch({"id": pa.array(range(len(task.inputs)), pa.int64())})
    found: dict[int, Any] = {}
    for batch in task(iter([numbers])):
        found |= results_of(pa.Table.from_batches([batch]))
    return found


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Surveys splits. `inputs`: of SurveyInput, as of `dump`."""

    options: ReadOptions
    inputs: tuple[bytes, ...] = field(repr=False)
    name: ClassVar[str] = "survey"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            mine: SurveyInput = load(self.inputs[number])
            reader = mine.source.open()
            try:
                options = self.options
                found = survey_split(
                    mine.split, reader, ports=options.ports, definitions=options.definitions, limits=options.limits
                )
            finally:
                reader.close()
            yield result_batch(mine.split, found)


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Decodes splits. `inputs`: of DecodeInput, as of `dump`; `topic_names`: a mapping, as of `dump`. `key_lines`: the
    lines of a key log that splits need, as of `dump`.

    `table`: yield the rows of this table. Otherwise yield one result for each split; with `writer`, write the rows of
    all tables before, with the `captures` that they begin in; with `counting`, count for reports.
    """

    options: ReadOptions
    inputs: tuple[bytes, ...] = field(repr=False)
    topic_names: bytes
    table: str | None = None
    writer: TableWriter | None = None
    captures: CaptureIndex | None = None
    counting: bool = False
    key_lines: bytes = field(default_factory=lambda: dump(None), repr=False)

    @property
    def name(self) -> str:
        return self.table or "decode"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield from self._decode(load(self.inputs[number]))

    def _decode(self, mine: DecodeInput) -> Iterator[pa.RecordBatch]:
        task, source = mine.task, mine.source
        reader = None if source is None else source.open(task.bases)
        try:
            with_rows = self.table is not None or self.writer is not None
            tables = SplitTables(self.options, self.table, self.writer is not None)
            needed = self.options.selection.engine_options
            run = SplitRun(
                task, mine.seams, load(self.topic_names),
                all_results=with_rows or self.options.by_topic or needed.all_results,
                inspectors=(*tables.inspectors, *needed.inspectors), ports=self.options.ports,
                definitions=self.options.definitions,
                apis=needed.apis if with_rows or self.counting else frozenset(),
                max_frame=self.options.max_frame, limits=self.options.limits, secrets=mine.secrets,
                key_log=key_log_of(load(self.key_lines)), late=self.options.late,
                **needs_of(self.options.sections if self.counting else ())._asdict(),
            )  # fmt: skip
            if self.table is not None:
                yield from tables.rows(run, reader)
            elif self.writer is not None:
                assert self.captures is not None
                yield result_batch(task.split, tables.write(run, reader, self.writer, self.captures))
            else:
                yield result_batch(
                    task.split, tables.count(run, reader) if self.counting else tables.prove(run, reader)
                )
        finally:
            if reader is not None:
                reader.close()
