"""What the driver and the tasks exchange: inputs, results, and the options of reading.

On Spark, each task gets one row: the numbers of its inputs, and the inputs, compressed. It returns a row for each: the
number and the result.
"""

from __future__ import annotations

import pickle
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..captures.packs import weight_of
from .located_split import LocatedSplit
from .plan import Plan, SplitTask
from .seam_reader import SeamReader
from .seams import Seam
from .secrets import CaptureSecrets, captured_secrets

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.reassembly.fragments import SavedDatagram

    from .checkpoint import Checkpoint, OpenFlow
    from .survey import SplitSurvey

Array = np.ndarray[Any, Any]
#: The rows that tasks return.
SCHEMA = "split int not null, result binary not null"


@dataclass(frozen=True, slots=True)
class SurveyInput:
    """The input of one split's survey."""

    split: int
    source: LocatedSplit

    @property
    def weight(self) -> int:
        """The bytes of the captures."""
        return weight_of(self.source.pack)


@dataclass(frozen=True, slots=True)
class DecodeInput:
    """The input of one split's decoding. `source` None: the split only continues the flows of a checkpoint, whose
    packets are `left`; `progress`, `waiting`: as of `OpenFlow`. `places`: the splits that it reads, itself among them;
    `bases`: packets before their files; `datagrams`: those that wait for fragments at the start of each. `secrets`:
    those in blocks of captures."""

    source: LocatedSplit | None
    task: SplitTask
    places: dict[int, LocatedSplit] = field(default_factory=dict)
    bases: dict[int, tuple[int, ...]] = field(default_factory=dict)
    left: dict[bytes, Seam] = field(default_factory=dict)
    secrets: CaptureSecrets = field(default_factory=CaptureSecrets)
    progress: dict[bytes, Array] = field(default_factory=dict)
    waiting: dict[bytes, Seam] = field(default_factory=dict)
    datagrams: dict[int, list[SavedDatagram]] = field(default_factory=dict)
    authenticating: frozenset[bytes] = frozenset()

    @property
    def weight(self) -> int:
        """As of `SurveyInput`."""
        return 0 if self.source is None else weight_of(self.source.pack)

    @property
    def seams(self) -> SeamReader:
        """A reader of the seams that the split decodes."""
        return SeamReader(
            self.places, self.bases, self.left, self.progress, self.waiting, self.datagrams, self.authenticating
        )


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Splits that one task decodes, one after the other, so that their rows share files: small ones."""

    inputs: tuple[DecodeInput, ...]

    @property
    def weight(self) -> int:
        """As of `SurveyInput`."""
        return sum(mine.weight for mine in self.inputs)


def decode_inputs(
    plan: Plan,
    splits: Container[int],
    located: Sequence[LocatedSplit],
    checkpoint: Checkpoint | None = None,
    surveys: Sequence[SplitSurvey] = (),
) -> Iterator[DecodeInput]:
    """The inputs of these splits. `located[i]` is split i, `surveys[i]` its survey."""
    bases = plan.bases
    secrets = captured_secrets([task.split for task in plan.tasks], surveys)
    datagrams = {task.split: task.datagrams for task in plan.tasks if task.datagrams}
    for task in plan.tasks:
        if task.split not in splits:
            continue
        resumed: dict[bytes, OpenFlow] = {}
        if task.split == plan.resumed and checkpoint is not None:
            resumed = {key: checkpoint.flows[key] for key in task.primed}
        left = {key: flow.seam for key, flow in resumed.items()}
        progress = {key: flow.progress for key, flow in resumed.items() if flow.progress is not None}
        waiting = {key: flow.waiting for key, flow in resumed.items() if flow.waiting is not None}
        places = {split: located[split] for split in (task.split, *task.follows_splits) if split < len(located)}
        own = {split: bases[split] for split in places}
        later = (
            {n: surveys[n].secrets for n in task.follows_splits if n in places and n != task.split} if secrets else {}
        )
        found = CaptureSecrets(secrets.get(task.split, b""), later)
        fragments = {split: datagrams[split] for split in places if split in datagrams}
        authenticating = {key for key, flow in resumed.items() if flow.is_authenticating}
        authenticating |= frozenset() if checkpoint is None else checkpoint.amid_sasl
        yield DecodeInput(
            places.get(task.split), task, places, own, left, found, progress, waiting, fragments,
            frozenset(authenticating),
        )  # fmt: skip


def dump(value: Any) -> bytes:
    """A compressed copy of an object; `load` reads it."""
    import pyarrow as pa

    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(8, "little") + bytes(pa.compress(data, "zstd", asbytes=True))


def load(dumped: bytes) -> Any:
    """The object that `dump` was called with. Only for data from this program's own tasks."""
    return pickle.loads(plain(dumped))


def plain(dumped: bytes) -> bytes:
    """The bytes that `dump` compressed."""
    import pyarrow as pa

    data: bytes = pa.decompress(dumped[8:], int.from_bytes(dumped[:8], "little"), "zstd", asbytes=True)
    return data


def input_rows(inputs: Sequence[Any], tasks: Sequence[range]) -> pa.Table:
    """The inputs of each task as a row: their numbers, and copies as of `dump`. `tasks`: those of each, by number."""
    import pyarrow as pa

    dumped = ([dump(inputs[number]) for number in task] for task in tasks)
    numbers = pa.array([list(task) for task in tasks], pa.list_(pa.int32()))
    return pa.table({"number": numbers, "input": pa.array(dumped, pa.list_(pa.binary()))})


def inputs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """The numbers and the inputs in batches of such rows: those that a task is to work on."""
    for batch in batches:
        for numbers, inputs in zip(batch.column(0), batch.column(1), strict=True):
            for number, mine in zip(numbers, inputs, strict=True):
                yield number.as_py(), mine.as_buffer().to_pybytes()


def result_batch(split: int, result: Any) -> pa.RecordBatch:
    """A result as one row of SCHEMA."""
    import pyarrow as pa

    schema = pa.schema([pa.field("split", pa.int32(), nullable=False), pa.field("result", pa.binary(), nullable=False)])
    return pa.RecordBatch.from_arrays([pa.array([split], pa.int32()), pa.array([dump(result)])], schema=schema)


def results_of(rows: pa.Table) -> dict[int, Any]:
    """The results in rows of SCHEMA, by split."""
    pairs = zip(rows["split"].to_pylist(), rows["result"], strict=True)
    return {split: load(result.as_buffer().to_pybytes()) for split, result in pairs}
