"""`ArrivalPlanner`: plans batches of captures that are complete.

The captures of a batch are in the `ArrivalLog` of the checkpoint, which also has what was read, by identity, so a
capture that was renamed or copied is not read again. Bytes that are added to a capture after it was read are not read,
but reported. Another capture of the same name is read.

Captures are read in order of their first packets. They are held back for `lateness` after their last change; then they
are read together with those that began before them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ..captures.identity import capture_head, missing_identity
from ..captures.packs import tasks_of
from ..captures.storage import File, find, read_range
from .arrival_log import Arrival, ArrivalLog, head_hash, stamp

#: Bytes of captures in a batch, unless one capture is larger.
BATCH_SIZE = 1 << 30
#: The first bytes of a capture, which do not change when it grows.
_HEAD = 256
#: Files that are looked into at once.
_THREADS = 16


def series(path: str) -> str:
    """The part of a name that one program's rotated files share: the name without its digits."""
    return re.sub(r"\d+", "", path)


def complete(files: Sequence[File], quiet: float, now: float) -> list[File]:
    """The files that are no longer written, oldest first. `now`: s since the epoch.

    A file is complete when the next file of its `series` exists, or when it has not changed for `quiet` s.
    """
    newest: dict[str, File] = {}
    for file in files:
        known = newest.get(series(file.path))
        if known is None or (known.modified, known.path) < (file.modified, file.path):
            newest[series(file.path)] = file
    done = [f for f in files if newest[series(f.path)] is not f or f.modified <= (now - quiet) * 1e9]
    return sorted(done, key=lambda f: (f.modified, f.path))


def ripe(captures: Sequence[Arrival], lateness: float, now: float) -> list[Arrival]:
    """The captures that are not held back any more, in order of their first packets.

    A capture is held for `lateness` s after its last change, or until one that begins later is not held any more.
    """
    released = [c.first for c in captures if c.modified <= (now - lateness) * 1e9]
    latest = max(released, default=None)
    if latest is None:
        return []
    return sorted((c for c in captures if c.first <= latest), key=lambda c: (c.first, c.path))


def first_part(
    captures: Sequence[Arrival], files: int | None, size: int, tasks: int = 0, split_size: int = 0
) -> list[Arrival]:
    """The first captures that make a batch: at most `files`, and `size` bytes unless the first one is larger, or they
    are fewer than `tasks` tasks. `split_size`: bytes of a task."""
    total, work, found = 0, 0.0, list[Arrival]()
    for capture in captures[:files]:
        total += capture.size
        if found and total > size and work >= tasks:
            break
        found.append(capture)
        work += tasks_of(capture.path, capture.size, split_size)
    return found


@dataclass
class ArrivalPlanner:
    """`patterns`: folders and globs; `quiet`: s, as of `complete`; `lateness`: s, as of `ripe`; the others: of a
    batch, as of `first_part`."""

    patterns: tuple[str, ...]
    checkpoint: str
    quiet: float = 60
    lateness: float = 0
    files: int | None = None
    size: int = BATCH_SIZE
    tasks: int = 0
    split_size: int = 0
    _log: ArrivalLog | None = None
    _seen: dict[int, Arrival | None] = field(default_factory=dict)  # by `stamp`: new files; None: nothing to do
    _waiting: list[Arrival] | None = None  # what had arrived at `hold`

    def hold(self) -> None:
        """Plan only what has arrived by now."""
        self._waiting = self._arrived()

    def has_batch(self, batch: int, everything: bool = False) -> bool:
        """Whether there is a batch of this number: one that is planned, or captures that it plans now. `everything`: a
        batch of any size."""
        if self.log.plan(batch) is not None:
            return True
        waiting = self._arrived() if self._waiting is None else self._waiting
        if self._waiting is not None:  # what an interrupted run had planned already is not planned again
            waiting = [c for c in waiting if not self.log.knows_capture(c.capture)]
        if not everything:
            waiting = first_part(waiting, self.files, self.size, self.tasks, self.split_size)
        if waiting:
            self.log.write_plan(batch, waiting)
        return bool(waiting)

    @property
    def log(self) -> ArrivalLog:
        if self._log is None:
            self._log = ArrivalLog(self.checkpoint)
        return self._log

    def _arrived(self) -> list[Arrival]:
        """The captures that are complete, not held back, and not read yet, in order."""
        try:
            files = find(self.patterns)
        except FileNotFoundError:  # nothing has arrived, or everything was deleted
            files = []
        self.log.load()
        now = time.time()
        done = complete(files, self.quiet, now)
        stamps = [stamp(f.path, f.size, f.modified) for f in done]
        unknown = [
            (key, f) for key, f, known in zip(stamps, done, self.log.known_stamps(stamps), strict=True) if not known
        ]
        self._seen = {key: self._seen[key] for key, _ in unknown if key in self._seen}
        with ThreadPoolExecutor(_THREADS) as threads:
            new = [(key, f) for key, f in unknown if key not in self._seen]
            for (key, _), found in zip(new, threads.map(self._look_into, [f for _, f in new]), strict=True):
                self._seen[key] = found
        by_size = sorted((c for c in self._seen.values() if c is not None), key=lambda c: (c.size, c.path))
        captures = {c.capture: c for c in by_size}  # of several versions, the largest
        new_ones = [c for c in captures.values() if not self.log.knows_capture(c.capture)]
        return ripe(new_ones, self.lateness, now)

    def _look_into(self, file: File) -> Arrival | None:
        """A file whose name, size or time are new. None if it is gone, or is known to have grown after it was read."""
        try:
            head = read_range(file.path, 0, _HEAD)
            capture, first = capture_head(file.path)
        except FileNotFoundError:
            return None
        except OSError:  # the batch reports why
            return Arrival(file.path, file.size, file.modified, missing_identity(file.path), file.modified, 0)
        size, known_head, grown = self.log.earlier(file.path) or (0, 0, False)
        is_same = 0 < size <= file.size and known_head == head_hash(head[:size]) and self.log.knows_capture(capture)
        if is_same and grown:
            return None
        has_grown = is_same and size < file.size
        if has_grown:  # what is said of it has an identity of its own
            capture = stamp(file.path, file.size, file.modified) >> 1 or 1
        first = file.modified if first is None else first
        return Arrival(file.path, file.size, file.modified, capture, first, head_hash(head), has_grown)
