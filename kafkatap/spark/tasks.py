"""What executors do: functions of record batches to record batches, sent there as they are (for `mapInArrow`).

Rows of every stage have the schema MESSAGE: what a split is to do, what came out of it, and the packets that go from
one split to another. Only the last stage gives rows of tables.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..captures.splits import Split, SplitReader
from .splits.decode import Outcome, SplitRun
from .splits.plan import SplitTask
from .splits.seams import Seam
from .splits.split_engine import NOTHING
from .splits.survey import SplitSurvey, cut_flows, survey_split

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.layouts.overlay import Definitions

    from .output.publish import Staging, Written
    from .splits.carry import CarriedFlow

Array = np.ndarray[Any, Any]

#: `split`: which one is to have the row; `source`: from which one a seam is; `kind`: one of the words below.
MESSAGE = "split int not null, source int not null, kind string not null, flow binary, payload binary not null"
TASK, SEAM, SURVEY, OUTCOME, COUNTS = "1 task", "2 seam", "survey", "outcome", "counts"
Row = tuple[int, int, str, bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class Reading:
    """How captures are read. `tables`: also `records` are wanted; `by_topic`: topics in the counts of reports."""

    ports: tuple[int, ...] = ()
    definitions: Definitions | None = None
    records: bool = False
    by_topic: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A split, where it begins (None: to be searched for), and after the survey its packets' numbers: behind `base`."""

    split: Split
    exact: int | None = None

    def open(self) -> SplitReader:
        return SplitReader(self.split, exact=self.exact)

    def cut(self, heads: dict[bytes, int]) -> dict[bytes, Seam]:
        """The packets of some flows up to their heads."""
        reader = self.open()
        try:
            return cut_flows(reader, heads)
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class Given:
    """What a split is decoded by."""

    place: Place | None  # None: it has no packets but those of seams
    task: SplitTask


@dataclass(slots=True)
class Done:
    """What came of a decoded split. `carried`: the flows that it leaves open; `connections`: of rows that were written,
    those that other splits have a part of; `written`: files of whole rows; `received`: bytes of seams that came."""

    outcome: Outcome
    first: int | None = None
    last: int | None = None
    written: list[Written] = field(default_factory=list)
    connections: Any = None
    carried: dict[bytes, CarriedFlow] = field(default_factory=dict)
    received: int = 0


def messages(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as a batch of MESSAGE."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    types = (pa.int32(), pa.int32(), pa.string(), pa.binary(), pa.binary())
    names = ("split", "source", "kind", "flow", "payload")
    fields = [pa.field(n, t, nullable=n == "flow") for n, t in zip(names, types, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], schema=pa.schema(fields)
    )


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        columns = [batch.column(name) for name in ("split", "source", "kind", "flow", "payload")]
        for row in zip(*columns, strict=True):
            split, source, kind, flow, payload = (value.as_py() for value in row)
            yield split, source, kind, flow, payload


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Rows TASK with a Place -> a row SURVEY and rows SEAM for each."""

    reading: Reading

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split, _, _, _, payload in _rows(batches):
            reader = pickle.loads(payload).open()
            try:
                found = survey_split(split, reader, ports=self.reading.ports, definitions=self.reading.definitions)
                found.begins, found.ends, found.interfaces = reader.begins, reader.ends, reader.interfaces_told
                found.drops = reader.drops
            finally:
                reader.close()
            seams = []
            for flow, seen in found.flows.items():
                if seen.seam is not None:
                    seams.append((split, split, SEAM, flow, seen.seam.dump()))
                    seen.seam = Seam(seen.seam.packets[:0], seen.seam.data[:0])  # that there is one
            for first in range(0, len(seams), 64):
                yield messages(seams[first : first + 64])
            yield messages([(split, split, SURVEY, None, pickle.dumps(found))])


@dataclass(frozen=True, slots=True)
class CutTask:
    """Rows TASK with (Place, heads by flow, who gets them by flow) -> rows SEAM."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source, _, _, _, payload in _rows(batches):
            place, heads, owners = pickle.loads(payload)
            for flow, seam in place.cut(heads).items():
                yield messages([(owners[flow], source, SEAM, flow, seam.dump())])


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Rows TASK with a Given, and behind each its rows SEAM -> rows OUTCOME (and COUNTS), or rows of a table.

    `bases`: packets before each split. `table`: whose rows are given. `staging`: where rows are written, with
    `counting` as well, rows COUNTS come with the rows OUTCOME."""

    reading: Reading
    bases: dict[int, int]
    topic_names: dict[bytes, bytes]
    table: str | None = None
    staging: Staging | None = None
    counting: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given: Given | None = None
        seams: dict[int, dict[bytes, Seam]] = {}
        received = 0
        for split, source, kind, flow, payload in _rows(batches):
            if kind == TASK:
                if given is not None:
                    yield from self._decode(given, seams, received)
                given, seams, received = pickle.loads(payload), {}, 0
            else:
                assert flow is not None
                if source != split or (given is not None and given.place is not None):
                    received += len(payload)
                seams.setdefault(source, {})[flow] = Seam.load(payload)
        if given is not None:
            yield from self._decode(given, seams, received)

    def _decode(self, given: Given, seams: dict[int, dict[bytes, Seam]], received: int) -> Iterator[pa.RecordBatch]:
        from .output.split_tables import TableRows, checked, counted, written

        task, place = given.task, given.place
        if task.primed and place is not None:
            seams[task.split] = {**place.cut(_local_heads(task)), **seams.get(task.split, {})}
        reader = None if place is None else place.open()
        try:
            if reader is not None:
                reader.number_from(task.base + 1)
            whole = self.table is not None or self.staging is not None
            rows = TableRows(self.reading, self.table, self.staging, place, received)
            run = SplitRun(
                task, seams, self.bases, self.topic_names, all_results=whole or self.reading.by_topic,
                inspectors=rows.inspectors, ports=self.reading.ports, definitions=self.reading.definitions,
                apis=None if whole or self.counting else frozenset(),
            )  # fmt: skip
            if self.table is not None:
                yield from rows.of_table(run, reader)
            elif self.staging is not None:
                yield from written(rows, run, reader)
            elif self.counting:
                yield from counted(rows, run, reader)
            else:
                yield from checked(rows, run, reader)
        finally:
            if reader is not None:
                reader.close()


def _local_heads(task: SplitTask) -> dict[bytes, int]:
    """The heads of the flows that this split begins with, in its own packet numbers."""
    return {key: task.heads[key] - task.base for key in task.primed if task.heads[key] < NOTHING}


def surveys_of(rows: Sequence[Row]) -> dict[int, SplitSurvey]:
    return {split: pickle.loads(payload) for split, _, kind, _, payload in rows if kind == SURVEY}
