"""`read_logs`: the request logs of brokers as one numpy table, of 100 bytes for each line.

Files are plain, .gz or .zst, which their first bytes show. They are read once. Chunks without a request are not split
into lines, and lines without the fields of a request are not parsed. A line is cut at LONGEST bytes. A file is given up
after MOST_UNREADABLE lines that cannot be read, if these are more than those with a request. Rotated files may come
in any order.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from glob import glob
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.layouts.catalog import api_names
from kafkatap.reassembly.errors import CaptureError

from ..captures.capture_bytes import CaptureBytes
from .log_line import PARTS, CutLine, LogLine, read_line

Array = np.ndarray[Any, Any]
#: Bytes of a line that are read, and bytes that are read at once.
LONGEST, CHUNK = 8 << 20, 1 << 20
#: Lines that cannot be read, after which a file is given up.
MOST_UNREADABLE = 100_000
_MARK = b"Completed request:"
#: Every line of a request has one of these: JSON, and text.
_FIELDS = b"requestHeader", b"sendTime"

#: One request in a log. Times in ns; `end` since the epoch by the broker's clock, -1: unknown. `client`, `broker`,
#: `listener`, `file`: numbers in the lists of RequestLog; -1: unknown. `line`: its number in the file, from 1.
LINE = np.dtype([
    ("end", "i8"), *((part, "i8") for part in PARTS), ("client", "i4"), ("broker", "i4"), ("client_port", "i4"),
    ("broker_port", "i4"), ("correlation_id", "i4"), ("line", "i4"), ("file", "i4"), ("listener", "i4"),
    ("api_key", "i2"), ("is_forwarded", "u1"), ("padding", "u1"),
])  # fmt: skip


class LogFile(NamedTuple):
    """One file: its lines, those with a request, and those that cannot be read. `damage`: why the rest is missing."""

    path: str
    lines: int
    requests: int
    unreadable: int
    damage: str | None = None


class RequestLog(NamedTuple):
    """The lines of all files (LINE, in the order read), and what their numbers mean."""

    lines: Array
    addresses: list[str]
    listeners: list[str]
    files: list[LogFile]


def find_logs(named: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that paths and globs name. FileNotFoundError if there is none."""
    found: list[str] = []
    for path in named:
        name = os.fspath(path)
        matches = [name] if os.path.exists(name) else sorted(glob(name))
        if not matches:
            raise FileNotFoundError(2, "No such file or directory", name)
        found += [m for m in matches if m not in found]
    return found


def read_logs(named: Iterable[str | os.PathLike[str]]) -> RequestLog:
    """Read request logs. OSError if a file cannot be opened, ValueError if no file has a line of the request log."""
    reader = _Reader()
    for path in find_logs(named):
        reader.read(path)
    log = reader.log()
    if not len(log.lines):
        paths = ", ".join(file.path for file in log.files)
        bad = sum(file.unreadable for file in log.files)
        why = f"{bad:,} lines cannot be read" if bad else 'no line has "Completed request:"'
        raise ValueError(
            f"{paths}: no request log of a broker: {why} (set the logger kafka.request.logger to DEBUG)"
        )  # fmt: skip
    return log


class _Reader:
    def __init__(self) -> None:
        self._rows = array("q")  # the columns of LINE without `padding`, as int64
        self._numbers: dict[str, int] = {}
        self._listeners: dict[str, int] = {}
        self._files: list[LogFile] = []
        self._apis = {_plain(name): key for key, name in api_names().items()} | _OLD_NAMES
        self._tables: list[Array] = []

    def read(self, path: str) -> None:
        """Read one file."""
        number = requests = unreadable = 0
        damage = None
        try:
            for number, raw in _marked_lines(path):
                if not raw:
                    continue
                if (line := _read(raw)) is not None:
                    requests += 1
                    self._add(line, number)
                    continue
                unreadable += 1
                if unreadable >= MOST_UNREADABLE and unreadable > requests:
                    damage = f"given up at line {number:,}: {unreadable:,} lines cannot be read"
                    break
        except CaptureError as error:
            damage = error.message
        self._files.append(LogFile(path, number, requests, unreadable, damage))

    def _add(self, line: LogLine, number: int) -> None:
        key = line.api_key
        if key < 0:
            name = line.api_name
            key = int(name) if name.isdecimal() and len(name) < 5 else self._apis.get(_plain(name), -1)
        self._rows.extend((
            line.end, *line.times, self._number(line.client), self._number(line.broker), line.client_port,
            line.broker_port, line.correlation_id, number, len(self._files),
            self._listeners.setdefault(line.listener, len(self._listeners)), key, line.is_forwarded,
        ))  # fmt: skip
        if len(self._rows) >= _COLUMNS << 16:
            self._flush()

    def _number(self, address: str) -> int:
        return self._numbers.setdefault(address, len(self._numbers)) if address else -1

    def _flush(self) -> None:
        columns = np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMNS)
        table = np.zeros(len(columns), LINE)
        for place, name in enumerate((LINE.names or ())[:_COLUMNS]):
            table[name] = columns[:, place]
        self._tables.append(table)
        self._rows = array("q")

    def log(self) -> RequestLog:
        self._flush()
        return RequestLog(np.concatenate(self._tables), list(self._numbers), list(self._listeners), self._files)


_COLUMNS = len(LINE.names or ()) - 1
#: Names in the logs of old brokers that are not those of APIs now.
_OLD_NAMES = {"producer": 0, "offset": 2, "topicmetadata": 3, "consumermetadata": 10, "groupcoordinator": 10}


def _plain(name: str) -> str:
    """`LIST_OFFSETS`, `ListOffsets` and `ListOffsetsRequest` alike."""
    return name.replace("_", "").lower().removesuffix("request")


def _read(raw: bytes) -> LogLine | None:
    """A line with _MARK; None if it cannot be read."""
    if not any(field in raw for field in _FIELDS):
        return None
    try:
        return read_line(raw.decode("utf-8", "replace"))
    except CutLine:
        return None


def _marked_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that have _MARK, with their numbers, without their ends; and, after each chunk, the number of
    lines so far with no bytes. A line that is longer than LONGEST is cut."""
    source = CaptureBytes(path)
    number, rest = 0, bytearray()
    buffer = memoryview(bytearray(CHUNK))
    try:
        while count := source.readinto(buffer):
            chunk = bytes(buffer[:count])
            end = chunk.rfind(b"\n") + 1
            if end:
                rest += chunk[:end]
                yield from _marked(rest, number)
                number += rest.count(b"\n")
                yield number, b""
                rest = bytearray()
            if len(rest) < LONGEST:
                rest += chunk[end:]
        if rest:
            yield from _marked(rest + b"\n", number)
            yield number + 1, b""
    finally:
        source.close()


def _marked(lines: bytearray, before: int) -> Iterator[tuple[int, bytes]]:
    """Those of whole lines that have _MARK, with their numbers. `before`: how many lines are before these."""
    if _MARK in lines:
        for number, line in enumerate(bytes(lines).split(b"\n"), before + 1):
            if _MARK in line:
                yield number, line
