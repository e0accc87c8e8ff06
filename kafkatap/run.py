"""Captures through the engine: the loop that the command line and the library share."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafkatap.reports.batch import Batch, Context, FileInfo

from .captures.duplicates import DuplicateCounter
from .captures.readahead import ahead
from .captures.sources import BLOCK_SIZE, FileReport, ordered
from .engine import Assembled, Engine

#: Called once a block with the bytes of files read so far; True ends the reading there.
Watch = Callable[[int], bool]


def never(_: int) -> bool:
    return False


@dataclass
class Run:
    """One pass over captures. `batches()` gives the rows; afterwards `context()` says what their numbers mean.

    `threaded`: captures that are files are read and reassembled in a thread, ahead of dissection.
    """

    paths: Sequence[str]
    engine: Engine
    watch: Watch = never
    block_size: int = BLOCK_SIZE
    threaded: bool = True
    interrupted: bool = False
    files: list[FileReport] = field(default_factory=list)
    _duplicates: DuplicateCounter | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if len(self.paths) > 1:
            self._duplicates = DuplicateCounter(len(self.paths))

    def batches(self) -> Iterator[Batch]:
        """Read all captures, in the order of their packets; yield finished rows."""
        for batches in self.steps():
            yield from batches

    def steps(self) -> Iterator[Iterator[Batch]]:
        """The same part by part, also where nothing is finished: for inspectors to be emptied. Each is to be read to
        its end before the next."""
        parts = self._assembled()
        for progress, part in ahead(parts) if self._may_be_ahead() else parts:
            if part is not None:
                yield self.engine.dissect(part)
            if not self.interrupted and self.watch(progress):
                self.interrupted = True  # seen by `_assembled`; what it has made until then is still taken

    def _may_be_ahead(self) -> bool:
        """Whether to read and reassemble in a thread. Not for pipes: reading one may wait for ever."""
        return self.threaded and all(os.path.isfile(path) for path in self.paths)

    def _assembled(self) -> Generator[tuple[int, Assembled | None], None, None]:
        """The reading half: (bytes of files read so far, what reassembly made of them)."""
        progress: dict[int, int] = {}
        done = 0
        for reader, end in ordered(self.paths, self.block_size):
            number = id(reader.report)
            if number not in progress:
                self.files.append(reader.report)
            done += reader.progress - progress.get(number, 0)
            progress[number] = reader.progress
            if end > reader.position:
                if self._duplicates is not None:
                    self._duplicates.look(reader, end)
                for part in self.engine.assemble(reader.buffer, reader.packets, reader.position, end):
                    yield done, part
                reader.position = end
            else:
                yield done, None
            if self.interrupted:
                break
        for part in self.engine.assemble_rest():
            yield done, part

    @property
    def damaged(self) -> list[FileReport]:
        """The captures of which something could not be read."""
        return [f for f in self.files if f.damage]

    def context(self) -> Context:
        """What the reports and tables need beside the rows."""
        files = sorted(self.files, key=lambda f: f.first_packet)
        return replace(self.engine.context([self._info(f) for f in files]), interrupted=self.interrupted)

    def _info(self, f: FileReport) -> FileInfo:
        duplicates = 0 if self._duplicates is None else self._duplicates.of(f)
        return FileInfo(
            f.path, f.kind, f.first_packet, f.packets, f.bytes, f.link_types, f.first, f.last, f.drops, f.damage,
            duplicates,
        )  # fmt: skip
