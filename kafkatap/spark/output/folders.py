"""A folder that is written: local, or in an object store or HDFS, through pyarrow.fs. Names in it have slashes.

Three operations change what is there, `write`, `move` and `delete`, and all but the first may be done again: what is
moved or gone already is no error. Local and HDFS folders rename, which is atomic; object stores have no such thing:
there `move` copies, and the source stays until its folder is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...captures.storage import system_of

#: File systems that have folders, and rename files.
_WITH_FOLDERS = ("local", "hdfs")
#: Requests that an object store is sent at the same time.
_AT_ONCE = 32


class Folder:
    """`path`: a local path or a URI. OSError where the store cannot be reached."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.system, self._root = system_of(path)
        self._root = self._root.rstrip("/")
        kind = str(self.system.type_name)
        self.local = self._root if kind == "local" else None
        self.renames = self.has_folders = kind in _WITH_FOLDERS
        self._replaces = kind == "local"  # HDFS does not rename onto what is there

    def at(self, name: str = "") -> str:
        """A name as pyarrow has it."""
        return f"{self._root}/{name}" if name else self._root or "/"

    def make(self) -> None:
        """Make the folder; OSError names it where it cannot be made or nothing can be written to it."""
        if self.local is not None:
            try:
                os.makedirs(self.local, exist_ok=True)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.path) from None
            if not os.access(self.local, os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13), self.path)
        elif self.has_folders:
            self.system.create_dir(self.at(), recursive=True)

    def sizes(self, name: str) -> dict[str, int]:
        """Bytes of the files below a folder, by name; none where the folder is not there."""
        from pyarrow import fs

        return self._sizes(fs.FileSelector(self.at(name), allow_not_found=True, recursive=True))

    def sizes_of(self, names: Sequence[str]) -> dict[str, int]:
        """Bytes of those of the files that are there."""
        return self._sizes([self.at(name) for name in names])

    def _sizes(self, wanted: Any) -> dict[str, int]:
        found = self.system.get_file_info(wanted)
        return {info.path[len(self._root) + 1 :]: info.size for info in found if info.is_file}

    def folders(self) -> list[str]:
        """The folders right below this one."""
        from pyarrow import fs

        found = self.system.get_file_info(fs.FileSelector(self.at(), allow_not_found=True))
        return sorted(info.path.rstrip("/").rpartition("/")[2] for info in found if not info.is_file)

    def open_output(self, name: str) -> Any:
        """A new file as a stream of pyarrow. Until it is closed it is not there (object stores) or not whole."""
        self._make_parent(name)
        return self.system.open_output_stream(self.at(name))

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None where there is none."""
        if not self.system.get_file_info([self.at(name)])[0].is_file:
            return None
        with self.system.open_input_stream(self.at(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file that is whole or not there."""
        first = f"{name}.part" if self.renames else name
        with self.open_output(first) as stream:
            stream.write(data)
        if self.renames:
            self._rename(first, name)

    def move(self, source: str, target: str) -> None:
        """Put a file in the place of another, if there is one. The source may stay (see above)."""
        self._make_parent(target)
        if self.renames:
            self._rename(source, target)
        else:
            self.system.copy_file(self.at(source), self.at(target))

    def _rename(self, source: str, target: str) -> None:
        if not self._replaces:
            self.delete(target)
        self.system.move(self.at(source), self.at(target))

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.at(name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder with all that is in it, if it is there."""
        with suppress(FileNotFoundError):
            self.system.delete_dir(self.at(name))

    def each(self, change: Callable[..., None], arguments: Iterable[tuple[str, ...]]) -> None:
        """Carry out a change for each of the arguments: one after the other, or many at once where each is a request
        over the network. The first error ends it."""
        if self.local is not None:
            for some in arguments:
                change(*some)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda some: change(*some), list(arguments)):
                pass

    def _make_parent(self, name: str) -> None:
        if self.has_folders:
            self.system.create_dir(self.at(name).rpartition("/")[0], recursive=True)
