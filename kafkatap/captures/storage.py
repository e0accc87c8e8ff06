"""Where captures lie: local paths, and URIs (s3://, gs://, hdfs://, file:// ...) through pyarrow.fs.

Both may be folders and globs: `find` tells what is there, `expand` its names, `open_input` and `size_of` take one of
these. pyarrow is imported for URIs only. A URI may end in options of its store (`?region=...&endpoint_override=...`),
which stay with the names that are found. What fails is an OSError whose text names the path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

#: What lies beside captures in a folder and is none, by the end of its name.
BESIDE = (".txt", ".tsv", ".csv", ".json", ".md", ".log", ".html", ".parquet", ".sh", ".py", ".tmp", ".part")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?]*)/?(.*)", re.DOTALL)
_OPTIONS = re.compile(r"\?(?=\w+=)")
_WILD = re.compile(r"[*?[]")
#: Names that Hadoop has for a store that pyarrow calls otherwise.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


class Input(Protocol):
    """A file opened for reading: `readinto` gives 0 at the end, and may give less than asked before."""

    def readinto(self, view: Any, /) -> int | None: ...
    def seek(self, offset: int, /) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, order=True)
class File:
    """One file: its path or URI, bytes, and when it was last written (ns since the epoch)."""

    path: str
    size: int
    modified: int


def is_uri(path: str) -> bool:
    return _URI.match(path) is not None


def expand(patterns: str | Sequence[str]) -> list[str]:
    """The files that paths, folders and globs name, sorted, each once; FileNotFoundError as `find` raises it."""
    return [file.path for file in find(patterns)]


def find(patterns: str | Sequence[str]) -> list[File]:
    """The files that paths, folders and globs (`*`, `?`, `[...]`, `**` for any folders) name: sorted, each once.

    A folder means the captures in it, not those in folders below: all files but those that are named BESIDE.
    Files and folders whose name begins with `.` or `_` are left out, unless a pattern names them so. FileNotFoundError
    says which pattern matches nothing.
    """
    found: set[File] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        files = list(_Store(pattern).files() if is_uri(pattern) else _local(pattern))
        if not files:
            wild = _WILD.search(_key(pattern) if is_uri(pattern) else pattern)
            what = "no file matches" if wild else "there is no such file, and no folder with captures"
            raise FileNotFoundError(f"{pattern}: {what}")
        found.update(files)
    return sorted(found)


def open_input(path: str) -> Input:
    """Open one file. Nothing is read ahead or kept: the caller reads in large blocks."""
    if not is_uri(path):
        return open(path, "rb", buffering=0)
    store = _Store(path)
    opened: Input = store.system.open_input_file(store.at(store.key))
    return opened


def size_of(path: str) -> int:
    """Bytes in one file. FileNotFoundError where there is none."""
    if not is_uri(path):
        return os.stat(path).st_size
    store = _Store(path)
    for file in store.described([store.at(store.key)]):
        return file.size
    raise FileNotFoundError(f"{path}: there is no such file")


def system_of(path: str) -> tuple[Any, str]:
    """The pyarrow file system that a path or URI lies in, and what it is called there."""
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
    elif os.path.exists(pattern) or not _WILD.search(pattern):
        names = [pattern]
    else:
        names = [name for name in glob.glob(pattern, recursive=True) if _shown(name, pattern)]
    for name in names:
        if os.path.isfile(name):
            status = os.stat(name)
            yield File(name, status.st_size, status.st_mtime_ns)


def _shown(path: str, pattern: str) -> bool:
    """Whether no part of a path that a wildcard found is hidden."""
    fixed = len(_WILD.split(pattern, maxsplit=1)[0].rpartition("/")[0])
    named = {part[0] for part in pattern.split("/") if part}
    return not any(part[0] in "._" and part[0] not in named for part in path[fixed:].split("/") if part)


def _is_capture(name: str) -> bool:
    """Whether a file of a folder counts as a capture, by its name alone."""
    return name[0] not in "._" and not name.lower().endswith(BESIDE)


# ---------------------------------------------------------------- other stores


@cache
def _system(scheme: str, host: str, options: str) -> tuple[Any, str]:
    """(pyarrow file system, what its paths begin with). One for each store and process: connections are kept."""
    from pyarrow import fs

    uri = f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{host}/{options}"
    try:
        system, root = fs.FileSystem.from_uri(uri)
    except ValueError as error:
        raise OSError(f"{uri}: {error}") from None
    return system, root.rstrip("/") + "/"


class _Store:
    """The store and the name that a URI tells of."""

    def __init__(self, uri: str) -> None:
        parts = _URI.match(uri)
        assert parts is not None, uri
        key = _key(uri)
        self._options = parts[3][len(key) :]
        self.key = key.rstrip("/")
        self._prefix = f"{parts[1]}://{parts[2]}/"
        self.system, self._root = _system(parts[1], parts[2], self._options)

    def at(self, key: str) -> str:
        """A name as pyarrow has it."""
        return (self._root + key).rstrip("/") or "/"

    def described(self, wanted: Any) -> Iterator[File]:
        """The files among those that a selector or a list of pyarrow's names asks for."""
        for info in self.system.get_file_info(wanted):
            if info.is_file:
                key = info.path.removeprefix(self._root)
                yield File(f"{self._prefix}{key}{self._options}", info.size or 0, info.mtime_ns or 0)

    def files(self) -> Iterator[File]:
        """What the URI names, as `find` tells it."""
        from pyarrow import fs

        [info] = self.system.get_file_info([self.at(self.key)])
        if info.is_file:
            yield from self.described([info.path])
        elif not _WILD.search(self.key):
            selector = fs.FileSelector(self.at(self.key), allow_not_found=True)
            for file in self.described(selector):
                if _is_capture(_key(file.path).rpartition("/")[2]):
                    yield file
        else:
            yield from self._matching()

    def _matching(self) -> Iterator[File]:
        from pyarrow import fs

        fixed = _WILD.split(self.key, maxsplit=1)[0].rpartition("/")[0]
        wild = self.key[len(fixed) :].lstrip("/")
        matches = re.compile(_expression(wild), re.DOTALL)
        selector = fs.FileSelector(self.at(fixed), recursive="/" in wild or "**" in wild, allow_not_found=True)
        for file in self.described(selector):
            key = _key(file.path)[len(fixed) :].lstrip("/")
            if matches.fullmatch(key) and _shown(key, wild):
                yield file


def _key(uri: str) -> str:
    parts = _URI.match(uri)
    assert parts is not None, uri
    return _OPTIONS.split(parts[3], maxsplit=1)[0]


def _expression(pattern: str) -> str:
    """A glob as a regular expression: `**` goes through folders, `*` and `?` stay in one."""
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
