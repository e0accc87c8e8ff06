"""`Run`: read captures and pass them through the engine, for the command line and the library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkatap.reports.batch import Batch, Context, FileInfo

from .captures.capture_reader import BLOCK_SIZE, CaptureReader, FileReport, joined_report
from .captures.pipes import is_pipe
from .captures.readahead import read_ahead
from .engine.assembly import Assembled
from .engine.engine import Engine

if TYPE_CHECKING:
    from .captures.merged_captures import MergedPackets


class Follow(NamedTuple):
    """Captures that grow are read until `watch` ends the run, or for `duration` ns.

    `notify` gets messages for the user, `note` those that only -v prints.
    """

    duration: int | None = None
    notify: Callable[[str], None] = lambda text: None
    note: Callable[[str], None] = lambda text: None


#: Reports on captures that are kept while captures are followed. The earliest are joined.
FILES_KEPT = 1_000
#: A run calls it once a block with the bytes of files read so far. True ends the run.
Watch = Callable[[int], bool]


def never(_: int) -> bool:
    """A `Watch` that lets the run read everything."""
    return False


class Run:
    """One pass over captures: `batches()` yields the rows, and `context()` then says what their numbers mean.

    `follow`: the captures may still grow, and `paths` may name folders; None: they are read once. `files`: reports on
    the captures read so far. `threaded`: a second thread reads files and reassembles their streams, ahead of
    dissection. `interrupted`: `watch` ended the run. `is_caught_up`: with `follow`, all that was there was read.
    """

    def __init__(
        self,
        paths: Sequence[str],
        engine: Engine,
        watch: Watch = never,
        block_size: int = BLOCK_SIZE,
        threaded: bool = True,
        follow: Follow | None = None,
    ) -> None:
        self.paths = paths
        self.engine = engine
        self.watch = watch
        self.block_size = block_size
        self.threaded = threaded and follow is None
        self.follow = follow
        self.interrupted = False
        self.is_caught_up = False
        self.files: list[FileReport] = []
        #: Called with packets before they are reassembled, in the thread that reads them. Set it before the first step.
        self.on_packets: Callable[[MergedPackets], None] | None = None
        #: Opens the only capture, in place of `CaptureReader`.
        self.open: Callable[[str, int], CaptureReader] = CaptureReader
        self._noted: set[int] = set()  # ids of the reports in `files`
        self._done = 0  # bytes of files read so far
        self._secrets = b""  # TLS key logs of captures, for the next part
        self._ahead: Iterator[tuple[int, Assembled | None]] | None = None

    def start(self) -> None:
        """Begin to read now, in the second thread, rather than at the first step."""
        if self._can_read_ahead():
            self._ahead = read_ahead(self._assembled())

    def batches(self) -> Iterator[Batch]:
        """Read all captures in time order; yield finished rows."""
        for batches in self.steps():
            yield from batches

    def steps(self) -> Iterator[Iterator[Batch]]:
        """Yield the batches of each part, even where it finishes no row, so that a caller can empty its inspectors.

        Read each part's batches to their end before the next part.
        """
        if self._ahead is None:
            self.start()
        ahead, self._ahead = self._ahead, None  # not kept: it refers to this run, and has to end with its reader
        for progress, part in self._assembled() if ahead is None else ahead:
            if part is not None:
                yield self.engine.twins.left_out_of(self.engine.dissect(part))
            elif self.follow is not None:
                yield self.engine.review()
            if not self.interrupted and self.watch(progress):
                self.interrupted = True  # `_assembled` ends; the parts that it has already made follow

    def _can_read_ahead(self) -> bool:
        """Whether a thread may read and reassemble. Never for pipes: a pipe may block for ever."""
        return self.threaded and all(os.path.isfile(path) for path in self.paths)

    def _assembled(self) -> Generator[tuple[int, Assembled | None], None, None]:
        """Yield (bytes of files read so far, a part that reassembly made of them)."""
        in_one_pass = len(self.paths) == 1 and self.on_packets is None and self.follow is None
        yield from self._one_capture(self.paths[0]) if in_one_pass else self._merged_captures()
        for part in self.engine.assembly.end_all():
            yield self._done, self._with_secrets(part)

    def _with_secrets(self, part: Assembled, found: bytes = b"") -> Assembled:
        """A part with the TLS key logs that captures had before it. They are in the part so that the thread that
        dissects it adds them."""
        secrets, self._secrets = self._secrets + found, b""
        return part._replace(secrets=secrets) if secrets else part

    def _one_capture(self, path: str) -> Iterator[tuple[int, Assembled | None]]:
        """Yield the parts of one capture, read in one pass."""
        assembly = self.engine.assembly
        reader = self.open(path, self.block_size)
        report = reader.report
        self.files.append(report)
        try:
            while not self.interrupted and reader.next_block():
                self._done = reader.progress
                made = False
                for part in assembly.read(reader.buffer, reader.assemble):
                    if part.first is not None and part.last is not None:
                        report.add_packets(part.packets, part.first, part.last)
                    made = True
                    yield self._done, self._with_secrets(part, reader.take_secrets())
                self._secrets += reader.take_secrets()
                if not made:
                    yield self._done, None
            yield self._done, None  # `watch` is asked once more: was the end of a pipe an interruption?
            report.duplicates = int(self.engine.assembler.duplicates[0])
        finally:
            reader.close()
        yield self._done, None  # the caller may have been interrupted while the last bytes were awaited

    def _merged_captures(self) -> Iterator[tuple[int, Assembled | None]]:
        """Yield the parts of captures in time order; (bytes, None) where there is nothing new."""
        from .captures.merged_captures import merge_captures  # most runs read one capture

        follow = self.follow
        assembly, assembler = self.engine.assembly, self.engine.assembler
        for merged in merge_captures(self.paths, self.block_size) if follow is None else self._followed(follow):
            if merged is None:
                yield self._done, None
                continue
            self._done = merged.progress
            self._note_files([report for _, report in merged.captures])
            if self.on_packets is not None:
                self.on_packets(merged)
            self._secrets += merged.secrets
            if merged.end > merged.first:
                assembler.expect_points(merged.points)
                before = assembler.duplicates.copy()
                for part in assembly.feed(merged.buffer, merged.packets, merged.first, merged.end):
                    yield self._done, self._with_secrets(part)
                for point, report in dict(merged.captures).items():
                    report.duplicates += int(assembler.duplicates[point] - before[point])
            else:
                yield self._done, None
            if self.interrupted and follow is None:
                break

    def _followed(self, follow: Follow) -> Iterator[MergedPackets | None]:
        """The packets of captures that grow; None a few times a second while there is nothing new."""
        from .captures.followed_captures import FollowedCaptures

        captures = FollowedCaptures(self.paths, follow.notify, follow.note, self.block_size)
        end = None if follow.duration is None else time.monotonic() + follow.duration / 1e9
        for merged in captures.packets(lambda: self.interrupted or (end is not None and time.monotonic() >= end)):
            self.is_caught_up = captures.is_caught_up
            yield merged
        self.is_caught_up = captures.is_caught_up

    def _note_files(self, reports: Sequence[FileReport]) -> None:
        """Add new reports to `files`. Those on files that were followed are bounded: the earliest are joined."""
        self.files += [report for report in reports if id(report) not in self._noted]
        self._noted.update(map(id, reports))
        if self.follow is not None and len(self.files) > FILES_KEPT:
            self.files[: FILES_KEPT // 2] = [joined_report(self.files[: FILES_KEPT // 2])]
            self._noted = set(map(id, self.files))

    @property
    def is_cut_short(self) -> bool:
        """Whether captures were not read to their end. To interrupt a pipe is the usual way to end it, and so it is for
        captures that grow."""
        return self.interrupted and self.follow is None and not all(map(is_pipe, self.paths))

    @property
    def damaged(self) -> list[FileReport]:
        """The captures that could not be read completely."""
        return [f for f in self.files if f.damage]

    def context(self, is_over: bool = True) -> Context:
        """Names, connections, files and the ledger: what reports and tables need beside the rows. `is_over`: as for
        `Engine.context`."""
        files = sorted(self.files, key=lambda f: (f.first_packet, f.packets > 0))
        interrupted = self.interrupted and not self.is_caught_up
        context = self.engine.context([self._info(f) for f in files], is_over=is_over)
        return context._replace(interrupted=interrupted)

    def _info(self, f: FileReport) -> FileInfo:
        return FileInfo(
            f.path, f.kind, f.first_packet, f.packets, f.bytes, f.link_types, f.first, f.last, f.drops, f.damage,
            f.duplicates, names=tuple(f.names),
        )  # fmt: skip
