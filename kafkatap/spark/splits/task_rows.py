"""The rows that splits exchange through Spark, and the objects in them.

Every stage but the last reads and writes rows of SCHEMA: the input of a split, and its result.
"""

from __future__ import annotations

import pickle
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...selection import EVERYTHING, Selection
from .located_split import LocatedSplit
from .plan import Plan, SplitTask
from .seam_reader import SeamReader
from .seams import Seam
from .survey import SplitSurvey

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.layouts.overlay import Definitions

    from .checkpoint import Checkpoint

#: `kind`: one of the words below.
SCHEMA = "split int not null, kind string not null, payload binary not null"
TASK, SURVEY, OUTCOME, COUNTS = "task", "survey", "outcome", "counts"
_COLUMNS = ("split", "kind", "payload")
Row = tuple[int, str, bytes]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How captures are read. `records`: decode records too. `by_topic`: count by topic for reports. `selection`: the
    exchanges that become rows and counts; tasks need absolute times in it."""

    ports: tuple[int, ...] = ()
    definitions: Definitions | None = None
    records: bool = False
    by_topic: bool = False
    selection: Selection = EVERYTHING


@dataclass(frozen=True, slots=True)
class DecodeInput:
    """The input of one split's decoding. `source` None: the split only continues the flows of a checkpoint, whose
    packets are `left`. `places`: the splits that it reads, itself among them, and `bases` the packets before each."""

    source: LocatedSplit | None
    task: SplitTask
    places: dict[int, LocatedSplit] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    left: dict[bytes, Seam] = field(default_factory=dict)

    @property
    def seams(self) -> SeamReader:
        """A reader of the seams that the split decodes."""
        return SeamReader(self.places, self.bases, self.left)


def decode_inputs(
    plan: Plan, splits: Container[int], located: Sequence[LocatedSplit], checkpoint: Checkpoint | None = None
) -> Iterator[DecodeInput]:
    """The inputs of these splits. `located[i]` is split i."""
    bases = plan.bases
    for task in plan.tasks:
        if task.split not in splits:
            continue
        left: dict[bytes, Seam] = {}
        if task.split == plan.resumed and checkpoint is not None:
            left = {key: checkpoint.flows[key].seam for key in task.primed}
        places = {split: located[split] for split in (task.split, *task.follows) if split < len(located)}
        own = {split: bases[split] for split in places}
        yield DecodeInput(places.get(task.split), task, places, own, left)


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as one Arrow batch."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_COLUMNS)
    types = (pa.int32(), pa.string(), pa.binary())
    fields = [pa.field(name, kind, nullable=False) for name, kind in zip(_COLUMNS, types, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], schema=pa.schema(fields)
    )


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of Arrow batches."""
    for batch in batches:
        for row in zip(*(batch.column(name) for name in _COLUMNS), strict=True):
            split, kind, payload = (value.as_py() for value in row)
            yield split, kind, payload


def task_row(split: int, payload: object) -> Row:
    """A row that is the input of a split's task."""
    return split, TASK, pickle.dumps(payload)


def surveys_of(rows: Sequence[Row]) -> dict[int, SplitSurvey]:
    """The surveys among rows, by split."""
    return {split: pickle.loads(payload) for split, kind, payload in rows if kind == SURVEY}
