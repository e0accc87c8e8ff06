"""`ArrivalLog`: which captures the batches of a stream read, kept in the stream's checkpoint.

A batch is planned before it is read: `plans/000000012.json` lists its captures. Plans of finished batches are folded
into arrays, 56 bytes for each capture, in files `read/FIRST-LAST.npy` whose sizes grow geometrically. So an offset of
the stream is a number, and no file is rewritten for each batch. `gone/000000012.json` lists captures of a batch that
were not there any more when it was read: they are not known, and may come again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .output.folders import Folder

Array = np.ndarray[Any, Any]
_PLANS, _READ, _GONE = "kafkatap/plans", "kafkatap/read", "kafkatap/gone"
#: Plans that are kept as they are: Spark may run the last batch again.
_KEPT = 2
#: Plans that are folded at once.
_FOLDED = 32
#: One capture that was read: hashes of its path and of its `stamp`, its identity, its size, a hash of its first bytes.
_COLUMNS = ("path", "stamp", "capture", "size", "head", "grown", "batch")
_ROW = np.dtype([(n, "u8" if n in ("path", "stamp", "head") else "i8") for n in _COLUMNS])


@dataclass(frozen=True, slots=True)
class Arrival:
    """A capture to read. `size` and `modified` (ns since the epoch) as listed; `capture`: its identity; `first`: the
    time of its first packet, or of its last change if it has none; `head`: `head_hash` of its first bytes. `grown`: it
    was read before it had all its bytes, and is not read again."""

    path: str
    size: int
    modified: int
    capture: int
    first: int
    head: int
    grown: bool = False


class ArrivalLog:
    """`checkpoint`: the folder of the stream's checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        self._folder = Folder(checkpoint)
        self._rows: Array = np.zeros(0, _ROW)
        self._loaded: set[str] = set()
        self._gone: dict[int, int] = {}  # by identity: the last batch in which the capture was gone
        self._orders: dict[str, Array] = {}

    def plan(self, batch: int) -> list[Arrival] | None:
        """The captures of a batch; None if it is not planned."""
        text = self._folder.read(_plan_name(batch))
        return None if text is None else [Arrival(**entry) for entry in json.loads(text)]

    def write_plan(self, batch: int, captures: Sequence[Arrival]) -> None:
        """Plan a batch. Its captures are known from now on."""
        entries = [asdict(capture) for capture in captures]
        self._folder.write(_plan_name(batch), json.dumps(entries).encode())
        self._add(_plan_name(batch), _rows(batch, entries))

    def write_gone(self, batch: int, captures: Sequence[int]) -> None:
        """Record the captures (identities) of a batch that were not there when it was read."""
        if captures:
            self._folder.write(f"{_GONE}/{batch:09d}.json", json.dumps(list(captures)).encode())

    def was_gone(self, captures: Iterable[int]) -> bool:
        """Whether any of these captures was gone in an earlier batch."""
        return not self._gone.keys().isdisjoint(captures)

    def load(self) -> None:
        """Read what this process has not read yet."""
        for name in self._names(_GONE):
            if name not in self._loaded:
                self._loaded.add(name)
                gone = json.loads(self._folder.read(name) or b"[]")
                self._gone |= dict.fromkeys(gone, _number(name))
                self._rows = self._there(self._rows)
                self._orders.clear()
        for name in [*self._names(_READ), *self._names(_PLANS)]:
            data = None if name in self._loaded else self._folder.read(name)
            if data is not None:
                self._add(name, _loaded(data) if name.startswith(_READ) else _rows(_number(name), json.loads(data)))

    def _add(self, name: str, rows: Array) -> None:
        if name not in self._loaded:
            self._loaded.add(name)
            self._rows = np.concatenate((self._rows, self._there(rows)))
            self._orders.clear()

    def _there(self, rows: Array) -> Array:
        """The rows of captures that were not gone."""
        gone = np.flatnonzero(np.isin(rows["capture"], list(self._gone)))
        batches = [self._gone[capture] for capture in rows["capture"][gone].tolist()]
        kept: Array = np.delete(rows, gone[rows["batch"][gone] <= np.array(batches, np.int64)])
        return kept

    def _names(self, folder: str) -> list[str]:
        """The complete files of a folder, in order."""
        return sorted(name for name in self._folder.sizes(folder) if not name.endswith(".part"))

    def known_stamps(self, stamps: Sequence[int]) -> list[bool]:
        """Which files are known by name, size and time of change (`stamp`)."""
        known, wanted = self._rows["stamp"][self._order("stamp")], np.array(stamps, np.uint64)
        first, last = (np.searchsorted(known, wanted, side) for side in ("left", "right"))
        found: list[bool] = (last > first).tolist()
        return found

    def knows_capture(self, capture: int) -> bool:
        """Whether a capture of this identity was read."""
        return self._find("capture", capture) is not None

    def earlier(self, path: str) -> tuple[int, int, bool] | None:
        """(size, head, grown) of the capture that was last read by this path."""
        row = self._find("path", _hash(path))
        return None if row is None else (int(row["size"]), int(row["head"]), bool(row["grown"]))

    def captures(self) -> Array:
        """The identities of all captures that were read or gone: int64, sorted."""
        return np.union1d(self._rows["capture"], np.array(list(self._gone), np.int64))

    def fold(self, batches: int) -> None:
        """Fold the plans of finished batches: all below `batches` but the last ones."""
        plans = [n for n in map(_number, self._names(_PLANS)) if n < batches - _KEPT]
        if len(plans) < _FOLDED:
            return
        parts = [_rows(n, json.loads(self._folder.read(_plan_name(n)) or b"[]")) for n in plans]
        rows, replaced = np.concatenate(parts), [_plan_name(n) for n in plans]
        first = plans[0]
        for name in reversed(self._names(_READ)):
            older = _loaded(self._folder.read(name) or b"")
            if len(older) > 2 * len(rows):
                break
            rows, first = np.concatenate((older, rows)), int(name.rpartition("/")[2].partition("-")[0])
            replaced.append(name)
        name, rows = f"{_READ}/{first:09d}-{plans[-1]:09d}.npy", self._there(rows)
        self._folder.write(name, _dumped(rows))
        self._loaded.add(name)
        for old in replaced:
            if old != name:
                self._folder.delete(old)

    def _order(self, column: str) -> Array:
        if column not in self._orders:
            self._orders[column] = np.argsort(self._rows[column], kind="stable")
        return self._orders[column]

    def _find(self, column: str, value: int) -> Any:
        """The last row with this value."""
        order = self._order(column)
        values = self._rows[column]
        at = int(np.searchsorted(values, np.array(value, values.dtype), "right", sorter=order))
        return self._rows[order[at - 1]] if at and values[order[at - 1]] == value else None


def stamp(path: str, size: int, modified: int) -> int:
    """A hash of a file as a listing shows it."""
    return _hash(f"{size} {modified} {path}")


def head_hash(data: bytes) -> int:
    """A hash of the first bytes of a capture."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _hash(text: str) -> int:
    return head_hash(text.encode("utf-8", "surrogateescape"))


def _rows(batch: int, entries: Iterable[dict[str, Any]]) -> Array:
    rows = []
    for e in entries:
        keys = _hash(e["path"]), stamp(e["path"], e["size"], e["modified"])
        rows.append((*keys, e["capture"], e["size"], e["head"], e["grown"], batch))
    return np.array(rows, _ROW)


def _dumped(rows: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, rows[np.argsort(rows["batch"], kind="stable")])
    return file.getvalue()


def _loaded(data: bytes) -> Array:
    rows: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return rows


def _plan_name(batch: int) -> str:
    return f"{_PLANS}/{batch:09d}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])
