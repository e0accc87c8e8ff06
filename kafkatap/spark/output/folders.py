"""`Folder`: a folder of files, local or in an object store or HDFS, through pyarrow.fs. Names in it have slashes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from ...captures.storage import system_of
from ...captures.stores import reason_of_store

#: File systems that have folders, and rename files.
_WITH_FOLDERS = ("local", "hdfs")
#: Requests to an object store at once.
_REQUESTS = 32


class Folder:
    """`path`: a local path or a URI. `is_private`: what is made in a local folder is for its user alone. OSError if the
    store cannot be reached."""

    def __init__(self, path: str, is_private: bool = False) -> None:
        self.path = path
        self.system, self._root = system_of(path)
        self._root = self._root.rstrip("/")
        kind = str(self.system.type_name)
        self.local = self._root if kind == "local" else None
        self.is_private = is_private and kind == "local"
        self._has_folders = kind in _WITH_FOLDERS
        self._replaces = kind == "local"  # HDFS does not rename onto an existing file

    def at(self, name: str = "") -> str:
        """The path of a name for pyarrow."""
        return f"{self._root}/{name}" if name else self._root or "/"

    def like(self, names: Iterable[str]) -> Folder:
        """The same folder, private if one of these files in it is."""
        modes = (os.stat(self.at(name)).st_mode for name in names) if self.local is not None else ()
        return Folder(self.path, any(not mode & 0o007 for mode in modes))

    def make(self, name: str = "") -> None:
        """Make the folder, or the one of this name in it. OSError, with its path, if that fails or if it is not
        writable."""
        if self.local is not None:
            path = self.at(name)
            try:
                os.makedirs(path, 0o700 if self.is_private else 0o777, exist_ok=True)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.path) from None
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13), path if name else self.path)
        elif self._has_folders:
            self.system.create_dir(self.at(name), recursive=True)

    def sizes(self, name: str) -> dict[str, int]:
        """Bytes of the files below a folder, by name; empty if there is no such folder."""
        from pyarrow import fs

        return self._sizes(fs.FileSelector(self.at(name), allow_not_found=True, recursive=True))

    def sizes_of(self, names: Sequence[str]) -> dict[str, int]:
        """Bytes of the files that exist among these."""
        if self.local is not None:
            return self._sizes([self.at(name) for name in names])
        with ThreadPoolExecutor(_REQUESTS) as pool:  # pyarrow asks for one after the other
            parts = pool.map(lambda name: self._sizes([self.at(name)]), names)
            return {name: size for part in parts for name, size in part.items()}

    def _sizes(self, wanted: Any) -> dict[str, int]:
        with naming(self.path):
            found = self.system.get_file_info(wanted)
        return {info.path[len(self._root) + 1 :]: info.size for info in found if info.is_file}

    def open_input(self, name: str) -> Any:
        """A file as a pyarrow file with random access."""
        return self.system.open_input_file(self.at(name))

    def open_output(self, name: str) -> Any:
        """A new file as a pyarrow stream. Before it is closed it does not exist (object stores) or is incomplete."""
        if self.is_private:
            self._make_private(name)
        elif self._has_folders:
            self.system.create_dir(self.at(name).rpartition("/")[0], recursive=True)
        return self.system.open_output_stream(self.at(name))

    def _make_private(self, name: str) -> None:
        """Make an empty file, and the folders above it that do not exist."""
        for end in (0, *(n for n, character in enumerate(name) if character == "/")):
            self.make(name[:end])
        file = os.open(self.at(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
        finally:
            os.close(file)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        if not self._sizes([self.at(name)]):
            return None
        with self.system.open_input_stream(self.at(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file so that it is complete or absent. OSError, with its path, if that fails."""
        first = f"{name}.part" if self._has_folders else name
        with naming(f"{self.path}/{name}"):
            try:
                with self.open_output(first) as stream:
                    stream.write(data)
            except OSError:
                with suppress(OSError):
                    self.delete(first)
                raise
            if first != name:
                if not self._replaces:
                    self.delete(name)
                self.system.move(self.at(first), self.at(name))

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.at(name))

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete files, those of object stores with many requests at once."""
        if self.local is not None:
            for name in names:
                self.delete(name)
            return
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for _ in pool.map(self.delete, names):
                pass


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Raise OSErrors of pyarrow, which name no file, with a path."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        raise OSError(f"{path}: {reason_of_store(str(error)) or error}") from error
