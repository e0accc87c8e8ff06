"""`Folder`: a folder to write to, local or in an object store or HDFS, through pyarrow.fs. Names in it have slashes.

`write`, `move` and `delete` change files. `move` and `delete` may be repeated. Local folders and HDFS rename files,
which is atomic. Object stores cannot: there `move` copies, and the source stays until its folder is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...captures.storage import system_of

#: File systems that have folders, and rename files.
_WITH_FOLDERS = ("local", "hdfs")
#: Concurrent requests to an object store.
_AT_ONCE = 32


class Folder:
    """`path`: a local path or a URI. OSError if the store cannot be reached."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.system, self._root = system_of(path)
        self._root = self._root.rstrip("/")
        kind = str(self.system.type_name)
        self.local = self._root if kind == "local" else None
        self.renames = self.has_folders = kind in _WITH_FOLDERS
        self._replaces = kind == "local"  # HDFS does not rename onto an existing file

    def at(self, name: str = "") -> str:
        """The path of a name for pyarrow."""
        return f"{self._root}/{name}" if name else self._root or "/"

    def make(self) -> None:
        """Make the folder. OSError, with its path, if that fails or if it is not writable."""
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
        """Bytes of the files below a folder, by name; empty if there is no such folder."""
        from pyarrow import fs

        return self._sizes(fs.FileSelector(self.at(name), allow_not_found=True, recursive=True))

    def sizes_of(self, names: Sequence[str]) -> dict[str, int]:
        """Bytes of the files that exist among these."""
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
        """A new file as a pyarrow stream. Before it is closed it does not exist (object stores) or is incomplete."""
        self._make_parent(name)
        return self.system.open_output_stream(self.at(name))

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        if not self.system.get_file_info([self.at(name)])[0].is_file:
            return None
        with self.system.open_input_stream(self.at(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file so that it is complete or absent."""
        first = f"{name}.part" if self.renames else name
        with self.open_output(first) as stream:
            stream.write(data)
        if self.renames:
            self._rename(first, name)

    def move(self, source: str, target: str) -> None:
        """Move a file, replacing the target. The source may stay (see above)."""
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
        """Delete a file if it exists."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.at(name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder with its contents if it exists."""
        with suppress(FileNotFoundError):
            self.system.delete_dir(self.at(name))

    def each(self, change: Callable[..., None], arguments: Iterable[tuple[str, ...]]) -> None:
        """Call `change` with each of the arguments: in turn, or concurrently if each is a request over the network. The
        first error ends it."""
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
