"""Read the files of --hosts, and read them again when they change."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkatap.reports.hosts.host_entry import HostEntry
    from kafkatap.reports.hosts.host_files import HostFile
    from kafkatap.reports.hosts.host_table import HostTable

#: No list of hosts is larger.
_LARGEST = 1 << 30


def open_hosts(named: Iterable[str | os.PathLike[str]], utc: bool = False) -> HostTable:
    """The names in files, by paths and globs. `utc`: times without a zone are in UTC, not local.

    OSError if a file is missing or cannot be read. ValueError, with its file and line, if it is none of names.
    """
    from kafkatap.reports.hosts.host_table import HostTable

    return HostTable(_entries(find_host_files(named), utc))


def _entries(paths: Iterable[str], utc: bool) -> list[HostEntry]:
    from kafkatap.reports.hosts.host_files import entries_of

    return entries_of([read_host_file(path) for path in paths], utc)


def find_host_files(named: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that paths and globs name, each once. FileNotFoundError if there is none."""
    from glob import glob

    found: dict[str, None] = {}
    for each in named:
        name = os.fspath(each)
        matches = [name] if os.path.lexists(name) else sorted(glob(name, recursive=True))
        if not matches:
            raise FileNotFoundError(2, "there is no such file of names", name)
        found |= dict.fromkeys(matches)
    return list(found)


def read_host_file(path: str) -> HostFile:
    from kafkatap.reports.hosts.host_files import HostFile

    with open(path, "rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{path}: larger than 1 GiB, so this is no file of names")
    return HostFile(path, content)


class WatchedHosts:
    """The files of a `table`, which gets their names again when one has changed."""

    def __init__(self, table: HostTable, named: Sequence[str], utc: bool = False) -> None:
        self._table, self._named, self._utc = table, named, utc
        self._seen = self._state()

    def look(self) -> str | None:
        """Read the files again if one changed since the last look. What is wrong with them, if something is: then the
        names stay as they are."""
        from kafkatap.reports.hosts.host_table import succeeding

        now = self._state()
        if now == self._seen:
            return None
        self._seen = now
        try:
            found = _entries(find_host_files(self._named), self._utc)
            self._table.renew(succeeding(self._table.entries, found, time.time_ns()))
        except (OSError, ValueError) as error:
            reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            return f"{reason}; names of hosts stay as they were"
        return None

    def _state(self) -> list[tuple[object, ...]]:
        """What changes with the files. Pipes are read once."""
        found: list[tuple[object, ...]] = []
        try:
            paths = find_host_files(self._named)
        except OSError as error:
            return [(str(error),)]
        for path in paths:
            try:
                info = os.stat(path)
            except OSError as error:
                found.append((path, error.errno))
                continue
            if stat.S_ISREG(info.st_mode):
                found.append((path, info.st_ino, info.st_size, info.st_mtime_ns))
        return found
