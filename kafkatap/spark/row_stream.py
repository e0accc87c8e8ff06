"""`RowStream`: the rows of one table of captures as they arrive, for `spark.readStream.format("kafkatap")`.

It plans batches and reads them as a stream of the command does (`arrivals`, `stream_batch`), but writes their rows to
files beside its states, where tasks read them. A batch that Spark runs again has a state, so it has the same rows.
Spark tells a reader in Python neither the folder of the query's checkpoint nor when a query ends. So an option names
the folder of the states, and another one ends what is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kafkatap.reports.tables import TABLES, arrow_schema

from ..captures.storage import absolute
from ..parquet.partitions import in_microseconds
from ..splits.run_options import RunOptions
from .arrivals import ArrivalPlanner
from .cluster.failures import OptionError
from .output.delta_schema import in_schema
from .output.folders import Folder
from .output.publication import open_publication
from .stream_batch import BatchOptions, read_batch
from .stream_state import Commit, StateFolder, StreamState, batch_number

if TYPE_CHECKING:
    import pyarrow as pa

#: The folder of the rows in that of the states.
ROWS = "kafkatap/rows"
#: The file that says up to which batch Spark has the rows.
_COMMITTED = "kafkatap/committed"
#: Rows of a task's batch.
_BATCH = 10_000


@dataclass
class RowStream:
    """`table`: whose rows are wanted. `location`: the folder of the states. `patterns`, `quiet`, `lateness`, `files`,
    `size`: as of `ArrivalPlanner`. `finish`: no more captures will come, so what is open ends with the last batch."""

    table: str
    location: str
    patterns: tuple[str, ...]
    reading: RunOptions
    quiet: float
    lateness: float
    files: int | None
    size: int
    split_size: int
    finish: bool = False

    def __post_init__(self) -> None:
        self.location = absolute(self.location)

    @cached_property
    def planner(self) -> ArrivalPlanner:
        Folder(self.location, self.reading.is_decrypting).make()
        return ArrivalPlanner(
            tuple(map(absolute, self.patterns)), self.location, 0 if self.finish else self.quiet,
            0 if self.finish else self.lateness, self.files, self.size, 0, self.split_size,
        )  # fmt: skip

    @property
    def states(self) -> StateFolder:
        return StateFolder(self.location, self.reading.is_decrypting)

    def first_batch(self) -> int:
        """The batch with which a new query begins. OptionError if the folder is of another query."""
        if self.states.batches > 1 or self._folder.read(_COMMITTED) is not None:
            raise OptionError(f"stateLocation: {self.location} is of another query; name a new folder")
        return 0

    def has_batch(self, batch: int, everything: bool = False) -> bool:
        """Whether there is a batch of this number, or captures for one. `everything`: as of `ArrivalPlanner`."""
        if self.planner.has_batch(batch, everything):
            return True
        if not self.finish or batch == 0 or not self.planner.log.plan(batch - 1):
            return False
        self.planner.log.write_plan(batch, [])  # one without captures, which ends what is open
        return True

    def rows_of(self, batch: int) -> list[str]:
        """The files with the rows of a batch, below the location. OptionError if states are lost."""
        states, number = self.states, batch_number(batch)
        state = states.read(number)
        if state is None or not self._has_rows(state):
            state = self._read(batch, number)
            states.save(state)
        return [f"{ROWS}/{one.name}" for one in state.commit.written]

    def commit(self, batch: int) -> None:
        """Spark has the rows of all batches before this one."""
        self._folder.write(_COMMITTED, str(batch).encode())
        self.planner.log.fold(batch)
        kept = set[str]()
        for number in (batch - 1, batch):
            state = self.states.read(batch_number(number)) if number >= 0 else None
            kept.update(f"{ROWS}/{one.name}" for one in (() if state is None else state.commit.written))
        self._folder.delete_all([name for name in self._folder.sizes(ROWS) if name not in kept])

    @property
    def _folder(self) -> Folder:
        return Folder(self.location, self.reading.is_decrypting)

    def _has_rows(self, state: StreamState) -> bool:
        wanted = {f"{ROWS}/{one.name}": one.size for one in state.commit.written}
        return self._folder.sizes_of(list(wanted)) == wanted

    def _read(self, batch: int, number: int) -> StreamState:
        captures, before = self.planner.log.plan(batch), self.states.last(number)
        if captures is None or (batch > 0 and (before is None or before.number != batch_number(batch - 1))):
            raise OptionError(
                f"stateLocation: {self.location} lacks the state of batch {batch}; begin a new query with a new folder "
                f"and a new checkpoint"
            )
        before = before or StreamState()
        reading = BatchOptions(self.split_size, self.reading)
        with open_publication(f"{self.location}/{ROWS}", is_private=self.reading.is_decrypting) as publication:
            wanted = replace(publication, only=self.table)
            read = read_batch(None, captures, before.checkpoint, reading, wanted, keep_open=bool(captures))
        identities = tuple(info.capture for info in read.files)
        return StreamState(number, before.stream, read.checkpoint, Commit(read.written, (self.table,), identities))


def read_rows(location: str, name: str, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file of `RowStream.rows_of`, with columns of the table's own types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = in_microseconds(arrow_schema(TABLES[table]))
    schema = pa.schema([types.field(column) for column in columns])
    with Folder(location).open_input(name) as stream:
        for batch in pq.ParquetFile(stream).iter_batches(_BATCH, columns=list(columns)):
            yield from in_schema(pa.Table.from_batches([batch]), schema).to_batches()
