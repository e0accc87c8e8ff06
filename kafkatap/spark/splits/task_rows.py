"""The rows that splits exchange through Spark, and the objects in them.

Every stage but the last reads and writes rows of the schema ROW: the input of a split, its result, and the packets
that one split sends to another.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...selection import EVERYTHING, Selection
from .located_split import LocatedSplit
from .plan import SplitTask
from .survey import SplitSurvey

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.layouts.overlay import Definitions

#: `split`: the split that receives the row; `source`: the split that a seam is from; `kind`: one of the words below.
SCHEMA = "split int not null, source int not null, kind string not null, flow binary, payload binary not null"
TASK, SEAM, SURVEY, OUTCOME, COUNTS = "1 task", "2 seam", "survey", "outcome", "counts"
_COLUMNS = ("split", "source", "kind", "flow", "payload")
Row = tuple[int, int, str, bytes | None, bytes]


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
    """The input of one split's decoding. `source` None: the split has no packets but those of seams."""

    source: LocatedSplit | None
    task: SplitTask


@dataclass(frozen=True, slots=True)
class CutInput:
    """The flows to cut out of a split, up to their heads. `owners`: the split that receives each flow."""

    source: LocatedSplit
    heads: dict[bytes, int]
    owners: dict[bytes, int]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as one Arrow batch."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_COLUMNS)
    types = (pa.int32(), pa.int32(), pa.string(), pa.binary(), pa.binary())
    fields = [pa.field(n, t, nullable=n == "flow") for n, t in zip(_COLUMNS, types, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], schema=pa.schema(fields)
    )


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of Arrow batches."""
    for batch in batches:
        for row in zip(*(batch.column(name) for name in _COLUMNS), strict=True):
            split, source, kind, flow, payload = (value.as_py() for value in row)
            yield split, source, kind, flow, payload


def task_row(split: int, payload: object) -> Row:
    """A row that is the input of a split's task."""
    return split, split, TASK, None, pickle.dumps(payload)


def surveys_of(rows: Sequence[Row]) -> dict[int, SplitSurvey]:
    """The surveys among rows, by split."""
    return {split: pickle.loads(payload) for split, _, kind, _, payload in rows if kind == SURVEY}
