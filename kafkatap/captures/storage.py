"""Find and open files by local path, or by URI (s3://, gs://, hdfs://, file:// ...) through pyarrow.fs.

Paths and URIs may name folders and globs. `find` lists their files and `expand` the names of these; `open_input` and
`size_of` accept one such name. A URI may end in options of its store (`?region=...&endpoint_override=...`); the names
found keep them, and the scheme as it was written. `dbfs:/x` is the file `/dbfs/x`. Only URIs import pyarrow. Every
failure is an OSError whose text names the path.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from .pipes import is_pipe

#: Files of a folder with these suffixes are no captures.
_OTHER_SUFFIXES = (".txt", ".tsv", ".csv", ".json", ".md", ".log", ".html", ".parquet", ".sh", ".py", ".tmp", ".part")
#: Expressions. `re` compiles them at their first use: a run on local files needs none.
_URI = r"(?s)([A-Za-z][A-Za-z0-9+.-]+)://([^/?]*)/?(.*)"
_CREDENTIALS = r"(\b(?:((?:abfs|wasb)s?)|[A-Za-z][A-Za-z0-9+.-]+)://)([^/@\s:]*)[^/@\s]*@"
_OPTIONS = r"\?(?=\w+=)"
_WILD = r"[*?[]"
_DBFS = r"dbfs:/+"


class InputFile(Protocol):
    """A file open for reading. `readinto` returns 0 only at the end; it may fill less than the view."""

    def readinto(self, view: Any, /) -> int | None: ...
    def seek(self, offset: int, /) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...


class File(NamedTuple):
    """One file: its path or URI, its bytes, and the time of its last change (ns since the epoch)."""

    path: str
    size: int
    modified: int


def is_uri(path: str) -> bool:
    return "://" in path and re.match(_URI, path) is not None


def without_credentials(text: str) -> str:
    """A path, or a text with paths, without user names and passwords in URIs. Azure's have containers there."""
    return re.sub(_CREDENTIALS, lambda found: found[1] + (f"{found[3]}@" if found[2] else ""), text)


def absolute(path: str) -> str:
    """A path or pattern that names the same files in any process of this machine. URIs stay as they are."""
    path = mounted(path)
    return path if is_uri(path) else os.path.abspath(path)


def mounted(path: str) -> str:
    """The local path of `dbfs:/...`, and any other path or URI as it is. OSError if it is not mounted here."""
    if not path.startswith("dbfs:"):
        return path
    if not os.path.isdir("/dbfs"):
        raise OSError(f"{path}: this machine has no folder /dbfs; on Databricks, use a volume (/Volumes/...)")
    return re.sub(_DBFS, "/dbfs/", path)


def expand(patterns: str | Sequence[str]) -> list[str]:
    """The paths and URIs of the files that `find` finds."""
    return [file.path for file in find(patterns)]


def find(patterns: str | Sequence[str]) -> list[File]:
    """The files that paths, folders and globs (`*`, `?`, `[...]`, `**` for any folders) name: sorted, each once.

    A folder names the captures in it, not in folders below: all files without one of _OTHER_SUFFIXES. Files
    and folders whose name begins with `.` or `_` are left out, unless the pattern contains such a name.
    FileNotFoundError names a pattern that matches nothing.
    """
    found: set[File] = set()
    for pattern in map(mounted, [patterns] if isinstance(patterns, str) else patterns):
        files = list(_Store(pattern).files() if is_uri(pattern) else _local(pattern))
        if not files:
            wild = re.search(_WILD, _key(pattern) if is_uri(pattern) else pattern)
            what = "there is no such file or folder"
            if is_uri(pattern) and not _Store(pattern).has_root:
                what = "there is no such bucket"
            elif wild:
                what = "no file matches"
            elif not is_uri(pattern) and os.path.isdir(pattern):
                what = "the folder has no captures"
            raise FileNotFoundError(f"{pattern}: {what}")
        found.update(files)
    return sorted(found)


def open_input(path: str) -> InputFile:
    """Open one file without a buffer: callers read large blocks."""
    path = mounted(path)
    if not is_uri(path):
        return open(path, "rb", buffering=0)
    store = _Store(path)
    with store.naming():
        opened: InputFile = store.system.open_input_file(store.at(store.key))
    return opened


def read_range(path: str, start: int, count: int) -> bytes:
    """Up to `count` bytes of one file from `start` on; fewer at the file's end."""
    [data] = read_ranges(path, [(start, count)])
    return data


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Several ranges of one file: (start, count) of each."""
    file = open_input(path)
    try:
        return [_range(file, start, count) for start, count in ranges]
    finally:
        file.close()


def _range(file: InputFile, start: int, count: int) -> bytes:
    file.seek(start)
    data = bytearray(count)
    view = memoryview(data)
    done = 0
    while done < count and (got := file.readinto(view[done:])):
        done += got
    return bytes(view[:done])


def size_of(path: str) -> int:
    """The size of one file in bytes. FileNotFoundError where there is no such file."""
    path = mounted(path)
    if not is_uri(path):
        return os.stat(path).st_size
    store = _Store(path)
    for file in store.described([store.at(store.key)]):
        return file.size
    raise FileNotFoundError(f"{path}: there is no such file")


def stored_bytes(paths: Sequence[str]) -> int | None:
    """The bytes of all files, as stored; None if there is a pipe among them, or a file that cannot be read."""
    try:
        return None if any(map(is_pipe, paths)) else sum(map(size_of, paths))
    except OSError:
        return None


def exists(path: str) -> bool:
    """Whether there is such a file."""
    try:
        size_of(path)
    except FileNotFoundError:
        return False
    return True


def system_of(path: str) -> tuple[Any, str]:
    """The pyarrow file system of a path or URI, and the path within it."""
    path = mounted(path)
    if is_uri(path):
        store = _Store(path)
        return store.system, store.at(store.key)
    from pyarrow import fs

    return fs.LocalFileSystem(), os.path.abspath(path)


# ---------------------------------------------------------------- local files


def _local(pattern: str) -> Iterator[File]:
    import glob

    if os.path.isdir(pattern):
        names = [os.path.join(pattern, name) for name in os.listdir(pattern) if _is_capture(name)]
    elif os.path.exists(pattern) or not re.search(_WILD, pattern):
        names = [pattern]
    else:
        names = [name for name in glob.glob(pattern, recursive=True) if _is_visible(name, pattern)]
    for name in names:
        try:
            status = os.stat(name)
        except FileNotFoundError:  # deleted since it was listed
            continue
        if stat.S_ISREG(status.st_mode):
            yield File(name, status.st_size, status.st_mtime_ns)


def _is_visible(path: str, pattern: str) -> bool:
    """Whether no folder or file that a wildcard matched is hidden."""
    fixed = len(re.split(_WILD, pattern, maxsplit=1)[0].rpartition("/")[0])
    named = {part[0] for part in pattern.split("/") if part}
    return not any(part[0] in "._" and part[0] not in named for part in path[fixed:].split("/") if part)


def _is_capture(name: str) -> bool:
    """Whether a file of a folder counts as a capture, by its name alone."""
    return name[0] not in "._" and not name.lower().endswith(_OTHER_SUFFIXES)


# ---------------------------------------------------------------- other stores


class _Store:
    """The store and the key of a URI. A key is the path within the store, without its options."""

    def __init__(self, uri: str) -> None:
        parts = re.match(_URI, uri)
        assert parts is not None, uri
        key = _key(uri)
        self._options = parts[3][len(key) :]
        self.key = key.rstrip("/")
        self._prefix = f"{parts[1]}://{parts[2]}/"
        from .stores import file_system

        self.system, self._root = file_system(parts[1].lower(), parts[2], self._options)

    def naming(self) -> AbstractContextManager[None]:
        """Raise failures of the store with what is wrong, in one line."""
        from .stores import naming

        return naming(f"{self._prefix}{self.key}", self._list_nothing)

    def _list_nothing(self) -> None:
        """List a folder that is not there."""
        from pyarrow import fs

        self.system.get_file_info(fs.FileSelector(f"{self.at(self.key)}/_", allow_not_found=True))

    @property
    def has_root(self) -> bool:
        """Whether its bucket or container exists, or may exist."""
        root = self._root.rstrip("/")
        try:
            return not root or self.system.get_file_info([root])[0].type.name != "NotFound"
        except OSError:
            return True

    def at(self, key: str) -> str:
        """The path that pyarrow uses for a key."""
        return (self._root + key).rstrip("/") or "/"

    def described(self, selector: Any) -> Iterator[File]:
        """The files that a pyarrow selector, or a list of pyarrow's paths, names."""
        with self.naming():
            found = self.system.get_file_info(selector)
        for info in found:
            if info.is_file:
                key = info.path.removeprefix(self._root)
                yield File(f"{self._prefix}{key}{self._options}", info.size or 0, info.mtime_ns or 0)

    def files(self) -> Iterator[File]:
        """The files that the URI names, as `find` yields them."""
        from pyarrow import fs

        with self.naming():
            [info] = self.system.get_file_info([self.at(self.key)])
        if info.is_file:
            yield from self.described([info.path])
        elif not re.search(_WILD, self.key):
            selector = fs.FileSelector(self.at(self.key), allow_not_found=True)
            for file in self.described(selector):
                if _is_capture(_key(file.path).rpartition("/")[2]):
                    yield file
        else:
            yield from self._matching()

    def _matching(self) -> Iterator[File]:
        from pyarrow import fs

        fixed = re.split(_WILD, self.key, maxsplit=1)[0].rpartition("/")[0]
        wild = self.key[len(fixed) :].lstrip("/")
        matches = re.compile(_expression(wild), re.DOTALL)
        selector = fs.FileSelector(self.at(fixed), recursive="/" in wild or "**" in wild, allow_not_found=True)
        for file in self.described(selector):
            key = _key(file.path)[len(fixed) :].lstrip("/")
            if matches.fullmatch(key) and _is_visible(key, wild):
                yield file


def _key(uri: str) -> str:
    parts = re.match(_URI, uri)
    assert parts is not None, uri
    return re.split(_OPTIONS, parts[3], maxsplit=1)[0]


def _expression(pattern: str) -> str:
    """A glob as a regular expression. `**` matches folders too; `*` and `?` match within one."""
    out = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\])", pattern):
        if part == "**/":
            out.append("(?:.*/)?")
        elif part == "**":
            out.append(".*")
        elif part in ("*", "?"):
            out.append("[^/]*" if part == "*" else "[^/]")
        elif part.startswith("[") and part.endswith("]"):
            inner = part[1:-1].replace("\\", r"\\")
            out.append(f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]")
        else:
            out.append(re.escape(part))
    return "".join(out)
