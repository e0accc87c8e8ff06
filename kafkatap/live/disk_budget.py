"""How much an output may keep on disk: a size and an age, over all runs. The oldest files are removed first.

Only files of the output's own name pattern count, and only regular files in real folders below its root: no symbolic
link is followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from re import Pattern
from typing import NamedTuple

from kafkatap.reports import units

#: Opens a folder, but no link to one.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(NamedTuple):
    """Files that are removed together."""

    changed: int  # ns since the epoch: the last of them
    size: int  # bytes of all
    paths: tuple[str, ...]  # below the root


class DiskBudget:
    """`root`: the folder. `pattern`: matches the whole path of a complete file below it. Files with equal groups of the
    pattern belong together; without groups each is alone. `limit`: bytes. `age`: ns, None: no limit.
    `deep`: the depth of the files, 1 for those in the root itself. `notify` gets a line when files are removed for the
    first time. Not for several threads."""

    def __init__(
        self,
        root: Path,
        pattern: Pattern[str],
        limit: int,
        age: int | None,
        notify: Callable[[str], None],
        deep: int = 1,
    ) -> None:
        self.limit = limit
        self._root, self._age, self._notify = root, age, notify
        self._kept = deque(sorted(_grouped(root, pattern, deep)))
        self.bytes = sum(kept.size for kept in self._kept)
        self._notified = False

    def add(self, paths: Iterable[Path], size: int) -> None:
        """Count files that are complete now."""
        inside = tuple(str(path.relative_to(self._root)) for path in paths)
        self._kept.append(Kept(time.time_ns(), size, inside))
        self.bytes += size

    def room(self, wanted: int) -> int:
        """The bytes that may still be written beside all complete files. The oldest are removed if that is less than
        `wanted`."""
        while self.limit - self.bytes < wanted and self._kept:
            self._remove(self._kept.popleft())
            if not self._notified:
                self._notify(f"{units.size(self.limit)} are on disk in {self._root}: the oldest files are removed")
            self._notified = True
        return self.limit - self.bytes

    def expire(self) -> None:
        """Remove what is too old."""
        while self._age is not None and self._kept and self._kept[0].changed < time.time_ns() - self._age:
            self._remove(self._kept.popleft())

    def _remove(self, kept: Kept) -> None:
        self.bytes -= kept.size
        for path in kept.paths:
            with suppress(OSError):  # somebody else has removed it
                remove_below(self._root, path)


def remove_below(root: Path, path: str) -> None:
    """Remove a file, and its folder below `root` if that is empty then. No link on the way is followed."""
    *folders, name = PurePosixPath(path).parts
    open_folders = [os.open(root, _FOLDER & ~os.O_NOFOLLOW)]
    try:
        for folder in folders:
            open_folders.append(os.open(folder, _FOLDER, dir_fd=open_folders[-1]))
        os.unlink(name, dir_fd=open_folders[-1])
        if folders:
            with suppress(OSError):  # other files are in it
                os.rmdir(folders[-1], dir_fd=open_folders[-2])
    finally:
        for each in open_folders:
            os.close(each)


def _grouped(root: Path, pattern: Pattern[str], deep: int) -> list[Kept]:
    groups: dict[tuple[str, ...], Kept] = {}
    for path, changed, size in _files(root, deep):
        found = pattern.fullmatch(path)
        if found is not None:
            key = found.groups() or (path,)
            before = groups.get(key, Kept(0, 0, ()))
            groups[key] = Kept(max(before.changed, changed), before.size + size, (*before.paths, path))
    return list(groups.values())


def _files(root: Path, deep: int) -> Iterator[tuple[str, int, int]]:
    """The path, time of change (ns) and size of each regular file below a root, down to a depth."""
    for folder, below, names in os.walk(root):  # follows no link
        inside = os.path.relpath(folder, root)
        if inside.count(os.sep) + (inside != os.curdir) >= deep - 1:
            below.clear()
        for name in names:
            with suppress(OSError):  # it is gone
                found = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(found.st_mode):
                    yield os.path.normpath(os.path.join(inside, name)), found.st_mtime_ns, found.st_size
