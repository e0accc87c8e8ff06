"""Records that a filter selects, of what a `RecordCollector` reads.

An exchange's own columns are known once it is finished, its records before. So the first pass leaves a table of each
exchange that may match: with which verdicts on a record it does (`Condition.record_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import KIND_PARTITION
from kafkatap.dissector.exchanges import PRODUCE
from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.record_inspector import Chunk
from kafkatap.reports.batch import Batch, rows_of
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


class BaseOffsets:
    """The offsets that brokers gave the first records of produced batches, by exchange, topic and partition."""

    def __init__(self) -> None:
        self._added: list[tuple[Array, Array]] = []
        self._hashes: dict[bytes, int] = {}

    def add(self, batch: Batch, strings: Sequence[bytes | None]) -> None:
        """Add those of a batch with all results. `strings`: of the engine."""
        rows = batch.results[(batch.results["kind"] == KIND_PARTITION) & (batch.results["offset"] >= 0)]
        owner = rows_of(batch.exchanges["exchange"], rows["exchange"])
        produced = (owner >= 0) & (batch.exchanges["api_key"][owner] == PRODUCE)
        rows, owner = rows[produced], owner[produced]
        names = np.where(rows["topic"] >= 0, rows["topic"], rows["topic_id"])
        distinct, inverse = np.unique(names, return_inverse=True)
        hashes = np.array([self._hash(strings[number]) for number in distinct.tolist()], np.uint64)[inverse]
        self._added.append((_places(batch.exchanges["key"][owner], hashes, rows["partition"]), rows["offset"]))

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        """Places, ascending, and their offsets."""
        places = np.concatenate([np.zeros(0, np.uint64), *(places for places, _ in self._added)])
        offsets = np.concatenate([np.zeros(0, np.int64), *(offsets for _, offsets in self._added)])
        order = np.argsort(places)
        return places[order], offsets[order]

    def applied(self, chunk: Chunk) -> Chunk:
        """The chunk with the offsets that brokers gave its produced records, as far as they were captured."""
        places, offsets = self._sorted
        if not len(places):
            return chunk
        records = chunk.records.copy()
        batches = chunk.batches[records["batch"]]
        parts = chunk.parts[batches["part"]]
        topics = np.array(
            [self._hash(name if name is not None else topic_id) for name, topic_id in chunk.topics], np.uint64
        )
        wanted = _places(parts["exchange"], topics[parts["topic"]], parts["partition"])
        at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
        # A response has one base offset for a partition: that of its only batch.
        is_only = np.bincount(chunk.batches["part"], minlength=len(chunk.parts))[batches["part"]] == 1
        final = (places[at] == wanted) & is_only & (batches["magic"] == 2) & (parts["fetch"] == 0)
        final &= records["offset"] != b.UNKNOWN_NUMBER
        records["offset"][final] += (offsets[at] - batches["base_offset"])[final]
        return replace(chunk, records=records, are_final=final)

    def _hash(self, name: bytes | None) -> int:
        """A number of a topic's name or id."""
        plain = name or b""
        found = self._hashes.get(plain)
        if found is None:
            found = self._hashes[plain] = int.from_bytes(blake2b(plain, digest_size=8).digest())
        return found


def _places(keys: Array, topics: Array, partitions: Array) -> Array:
    """Exchanges, topics (hashes) and partitions as one number each: uint64 (n,)."""
    mixed = keys.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found: Array = mixed ^ topics ^ (partitions.astype(np.int64).view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
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
