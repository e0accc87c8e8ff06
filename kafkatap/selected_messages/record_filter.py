"""Records that a filter selects, of what a `RecordCollector` reads.

An exchange's own columns are known once it is finished, its records before. So the first pass leaves a table of each
exchange that may match: with which verdicts on a record it does (`Condition.record_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.record_inspector import Chunk
from kafkatap.reports.expressions import Condition
from kafkatap.reports.expressions.meaning import RecordAtom
from kafkatap.reports.expressions.verdicts import MatchedBytes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Exchanges that match if they have certain records: their numbers in the run, their keys (ascending) and their
    tables (uint64)."""

    numbers: Array
    keys: Array
    tables: Array

    @classmethod
    def of(cls, parts: list[tuple[Array, Array, Array]]) -> Candidates:
        """Those of several batches."""
        empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
        numbers, keys, tables = (np.concatenate(columns) for columns in zip(empty, *parts, strict=True))
        order = np.argsort(keys, kind="stable")
        return cls(numbers[order], keys[order], tables[order])

    def numbers_of(self, keys: Array) -> Array:
        """The numbers of exchanges by key, as far as they are among these."""
        found: Array = self.numbers[np.isin(self.keys, keys)]
        return found


class RecordFilter:
    """Picks the records that match. `candidates`: None for an expression of records alone."""

    def __init__(self, condition: Condition, candidates: Candidates | None) -> None:
        self._condition, self._candidates = condition, candidates

    def pick(self, chunk: Chunk) -> Chunk | None:
        """The records of a chunk that match; None where there are none. Rows that only say where a batch ends to be
        readable are left out."""
        records = chunk.records
        mask = (records["status"] == b.OK) | ((records["status"] == b.TRAILING_BYTES) & (records["end"] > 0))
        bits = np.zeros(len(records), np.uint64)
        for place, atom in enumerate(self._condition.record_atoms):
            bits |= _verdicts(atom, chunk).astype(np.uint64) << np.uint64(place)
        mask &= (self._tables(chunk) >> bits & np.uint64(1)) != 0
        if not mask.any():
            return None
        return replace(chunk, records=records[mask], headers=chunk.headers[np.repeat(mask, records["headers"])])

    def _tables(self, chunk: Chunk) -> Array:
        """The table of each record's exchange: uint64 (records,)."""
        if self._candidates is None:
            return np.broadcast_to(self._condition.record_tables(), len(chunk.records))
        keys = chunk.parts["exchange"][chunk.batches["part"][chunk.records["batch"]]]
        known = self._candidates.keys
        if not len(known):
            return np.zeros(len(keys), np.uint64)
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found: Array = np.where(known[places] == keys, self._candidates.tables[places], np.uint64(0))
        return found


def exchange_keys(chunk: Chunk) -> Array:
    """The keys of the exchanges of a chunk's records."""
    return np.unique(chunk.parts["exchange"][chunk.batches["part"][chunk.records["batch"]]])


def _verdicts(atom: RecordAtom, chunk: Chunk) -> Array:
    """For which records an atom holds: bool (records,)."""
    if atom.part != "header":
        return _holds(atom.test, chunk.arena, chunk.records, atom.part)
    headers = chunk.headers
    named = _holds(MatchedBytes(frozenset((atom.header,))), chunk.arena, headers, "key")
    named[named] = _holds(atom.test, chunk.arena, headers[named], "value")
    owner = np.repeat(np.arange(len(chunk.records)), chunk.records["headers"])
    found = np.zeros(len(chunk.records), bool)
    found[owner[named]] = True
    return found


def _holds(test: Any, arena: Array, rows: Array, name: str) -> Array:
    """For which rows (RECORD or HEADER) a test of the bytes `name` holds: bool (n,)."""
    at, length = rows[f"{name}_at"], rows[f"{name}_length"]
    found: Array = length >= 0
    if isinstance(test, MatchedBytes):
        if test.sizes is not None:
            found &= np.isin(length, list(test.sizes))
        numbers = np.flatnonzero(found)
        found[numbers] = test.on(list(_pieces(arena, at[numbers], length[numbers])))
    return found


def _pieces(arena: Array, at: Array, length: Array) -> Iterator[bytes]:
    data = arena.data
    for first, size in zip(at.tolist(), length.tolist(), strict=True):
        yield bytes(data[first : first + size])
