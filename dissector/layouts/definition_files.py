"""The files of --definitions: Kafka's message definitions in a folder, an archive, or a file.

A folder is searched with its subfolders, so Kafka's source tree is one. An archive is a .jar or .zip, such as
kafka-clients. A file is one definition; the other direction of its API is read too if it lies beside it.

In folders and archives, only some .json files are read: those named like a request or response, and those with
`validVersions` in them. Folders of tests and of build results are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

#: Bounds in bytes: one definition, all definitions of a source, all that is read, the list of files of an archive.
LONGEST, LONGEST_ALL, LONGEST_READ, LONGEST_LIST = 1 << 20, 32 << 20, 256 << 20, 16 << 20
#: The most files of a folder.
MOST_FILES = 200_000
#: Folders that are not searched, beside hidden ones.
_LEFT_OUT = ("test", "build", "target", "node_modules")
#: How the files of definitions are called, and a word in all of them.
_NAMES = ("Request.json", "Response.json")
_MARK = b'"validVersions"'
#: The records at the end of an archive (APPNOTE.TXT 4.3.15, 4.3.16), and the longest comment behind them.
_END, _END_SIZE, _END_64, _END_64_SIZE, _LONGEST_COMMENT = b"PK\5\6", 22, b"PK\6\7", 20, 65_535
_ARCHIVE = b"PK\3\4"
_NARROW = "name the folder of the definitions itself"


class DefinitionError(ValueError):
    """Something that has no usable message definitions."""


@dataclass(frozen=True, slots=True)
class Source:
    """One PATH of --definitions: `texts` by the names of their files, relative to it."""

    path: str
    texts: Mapping[str, bytes] = field(repr=False)


def read_source(path: str | os.PathLike[str]) -> Source:
    """The definitions at a path, not parsed yet. OSError if it cannot be read, DefinitionError if there are none."""
    name = os.fspath(path)
    try:
        if os.path.isdir(name):
            texts = _in_folder(name)
        else:
            with open(name, "rb") as file:
                is_archive = file.peek(len(_ARCHIVE))[: len(_ARCHIVE)] == _ARCHIVE
                texts = _in_archive(file) if is_archive else _in_file(name, file)
        if not texts:
            raise DefinitionError(f"no Kafka message definitions (*.json) in it; {_advice(name)}")
    except DefinitionError as error:
        raise DefinitionError(f"{name}: {error}") from None
    return Source(name, texts)


def _advice(path: str) -> str:
    """Where definitions can be found instead."""
    jars = sorted(name for name in os.listdir(path) if name.endswith(".jar")) if os.path.isdir(path) else []
    named = next((name for name in jars if name.startswith("kafka-clients")), "")
    if named:
        return f"did you mean {os.path.join(path, named)}?"
    return (
        "Kafka's sources have them in clients/src/main/resources/common/message, kafka-clients jars in common/message"
    )


class _Definitions:
    """The definitions among the .json files of a source, within the bounds."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self._size = self._read = 0

    def add(self, name: str, file: IO[bytes]) -> None:
        """Read a file, and keep it if it is a definition."""
        text = file.read(LONGEST + 1)
        self._read += len(text)
        if self._read > LONGEST_READ:
            raise DefinitionError(f"more than {LONGEST_READ >> 20} MiB of .json files; {_NARROW}")
        if not (name.endswith(_NAMES) or _MARK in text):
            return
        self._size += len(text)
        if len(text) > LONGEST:
            raise DefinitionError(f"{name}: longer than {LONGEST >> 20} MiB, which no message definition is")
        if self._size > LONGEST_ALL:
            raise DefinitionError(f"more than {LONGEST_ALL >> 20} MiB of definitions")
        if name in self.texts:
            raise DefinitionError(f"{name} is twice in it")
        self.texts[name] = text


def _in_folder(folder: str) -> dict[str, bytes]:
    found = _Definitions()
    count = 0
    for here, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if _is_searched(name))
        count += len(files)
        if count > MOST_FILES:
            raise DefinitionError(f"more than {MOST_FILES:,} files; {_NARROW}")
        for name in sorted(files):
            path = os.path.join(here, name)
            if name.endswith(".json") and os.path.isfile(path):
                with open(path, "rb") as file:
                    found.add(os.path.relpath(path, folder), file)
    return found.texts


def _is_searched(folder: str) -> bool:
    return folder not in _LEFT_OUT and not folder.startswith(".")


def _raise(error: OSError) -> None:
    raise error


def _in_file(path: str, file: IO[bytes]) -> dict[str, bytes]:
    """One definition, and that of the other direction beside it."""
    name = os.path.basename(path)
    text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise DefinitionError(f"longer than {LONGEST >> 20} MiB, which no message definition is")
    found = _Definitions()
    for own, other in (_NAMES, _NAMES[::-1]):
        beside = path.removesuffix(own) + other
        if path.endswith(own) and os.path.isfile(beside):
            with open(beside, "rb") as second:
                found.add(os.path.basename(beside), second)
    return {name: text, **found.texts}


def _in_archive(file: IO[bytes]) -> dict[str, bytes]:
    import zipfile

    _check_list(file)
    found = _Definitions()
    try:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                folders = info.filename.split("/")[:-1]
                if info.filename.endswith(".json") and all(map(_is_searched, folders)):
                    with archive.open(info) as member:
                        found.add(info.filename, member)
    except DefinitionError:
        raise
    except Exception as error:  # zipfile and four libraries for decompression have errors of their own
        raise DefinitionError(f"a damaged or unsupported archive ({error})") from None
    return found.texts


def _check_list(file: IO[bytes]) -> None:
    """Refuse an archive whose list of files is too long to be read at once."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _END_SIZE - _LONGEST_COMMENT - _END_64_SIZE))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or at + _END_SIZE > len(tail):
        raise DefinitionError("a damaged archive: its end is missing")
    size = int.from_bytes(tail[at + 12 : at + 16], "little")
    if size > LONGEST_LIST or _END_64 in tail[max(0, at - _END_64_SIZE) : at]:
        raise DefinitionError(f"an archive of too many files; unpack it, and {_NARROW}")
    file.seek(0)
