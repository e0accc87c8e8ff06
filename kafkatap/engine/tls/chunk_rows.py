"""The chunks that the layer makes: plain bytes in place of records, held chunks that pass after all.

They are collected with a key that says where they belong among the chunks of the part, and merged with those that stay.
Bytes lie in an array of their own, which is used again for the next part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import TLS_VERSIONS
from kafkatap.dissector.framing.tables import FROM_TLS, SHOWS_PLAIN
from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import as_bytes, taken
from kafkatap.reassembly.dtypes import CHUNK, CHUNK_DATA, CHUNK_GAP, FROM_HELD
from kafkatap.reports.tls_names import TLS_1_2, TLS_1_3, VERSIONS

from .record_tables import RecordRow

Array = np.ndarray[Any, Any]
#: Bytes of the array at first.
_ROOM = 1 << 16
#: More bytes than this are not kept for the next part.
_KEPT = 8 << 20
#: `opening` of decrypted bytes.
_FROM_1_2, _FROM_1_3 = (FROM_TLS + TLS_VERSIONS.index(VERSIONS[version]) for version in (TLS_1_2, TLS_1_3))


@kernel(CHUNK, int, np.uint8, np.uint8, int)
def copy_held(chunks, count, held, out, at):  # type: ignore[no-untyped-def]
    """Copy the held bytes of chunks[:count] to `out` from `at` on, and let the chunks refer to them. Return the end."""
    for i in range(count):
        chunk = chunks[i]
        if chunk.source != FROM_HELD or chunk.captured <= 0:
            continue
        start = np.int64(chunk.at)
        for k in range(np.int64(chunk.captured)):
            out[np.uintp(at + k)] = held[np.uintp(start + k)]
        chunk.at = at
        at += np.int64(chunk.captured)
    return at


class ChunkRows:
    """New chunks of one part. `data` has their bytes, `used` of them."""

    def __init__(self) -> None:
        self._allocate(_ROOM)
        self.used = 0
        self._keys: list[int] = []
        self._ends: list[int] = []  # `used` behind each
        self._rows: list[tuple[int, int, int, int, int, int, int, int, int, int, int, int]] = []
        self._records: list[tuple[Array, Array, Array]] = []  # keys, ends and rows of many records at once

    def clear(self) -> None:
        """Begin another part: nothing refers to the bytes of the last one any more."""
        self.used = 0
        self._keys, self._ends, self._rows, self._records = [], [], [], []
        if len(self.data) > _KEPT:
            self._allocate(_ROOM)

    def _allocate(self, size: int) -> None:
        data: Any = np.empty(size, np.uint8)
        self.data: Array = data
        self.view = memoryview(data)

    def __len__(self) -> int:
        return len(self._rows) + sum(len(chunks) for _, _, chunks in self._records)

    def room(self, length: int) -> memoryview:
        """The array from `used` on, with room for `length` bytes at least."""
        end = self.used + length
        if end > len(self.data):
            old = self.data
            self._allocate(max(2 * len(old), end))
            self.data[: self.used] = old[: self.used]
        return self.view[self.used :]

    def add_plain(self, record: RecordRow, connection: int, seq: int, length: int, version: int) -> None:
        """Add a chunk with the next `length` bytes of the array, in place of that of a record or before it. `version`:
        of TLS; 0: no ServerHello was seen, which only TLS 1.3 does without."""
        at = self.used
        self.used = at + length
        opening = _FROM_1_2 if version == TLS_1_2 else _FROM_1_3
        self._add(record, at, length, seq, length, connection, CHUNK_DATA, opening)

    def add_records(self, rows: Array, plain: list[int], connections: Array) -> None:
        """Add the chunks of records whose bytes are in the array already. `rows`: ROW. `plain`: of each record the
        number of its row, where its bytes begin in the array, how many they are, where they were in the record, and the
        version of TLS. `connections`: by slot."""
        found = np.array(plain, np.int64).reshape(-1, 5)
        numbers, at, length, offset, versions = found[found[:, 2] > 0].T
        chunks = np.zeros(len(numbers), CHUNK)
        for name in ("ts", "packet", "direction", "stamp"):
            chunks[name] = rows[name][numbers]
        chunks["at"], chunks["length"], chunks["captured"] = at, length, length
        chunks["seq"] = (rows["seq"][numbers] + offset) & 0xFFFFFFFF
        chunks["connection"] = connections[rows["slot"][numbers]]
        chunks["kind"], chunks["source"] = CHUNK_DATA, FROM_HELD
        chunks["opening"] = np.where(versions == TLS_1_2, _FROM_1_2, _FROM_1_3)
        self._records.append((2 * rows["place"][numbers], at + length, chunks))

    def add_gap(self, record: RecordRow, connection: int, seq: int, length: int) -> None:
        """Add a gap of `length` bytes before what follows a record."""
        self._add(record, 0, length, seq, 0, connection, CHUNK_GAP, 0)

    def _add(
        self, record: RecordRow, at: int, length: int, seq: int, captured: int, connection: int, kind: int, opening: int
    ) -> None:
        self._keys.append(2 * record.place)
        self._ends.append(self.used)
        self._rows.append((
            at, record.ts, record.packet, length, seq & 0xFFFFFFFF, captured, connection, record.direction, kind,
            FROM_HELD, opening, record.stamp,
        ))  # fmt: skip

    def add_begin(self, connection: int) -> None:
        """Add an empty chunk before all others: what has passed of a connection was TLS, and plain bytes come now."""
        self._keys.append(0)
        self._ends.append(self.used)
        self._rows.append((0, 0, 0, 0, 0, 0, connection, 0, CHUNK_DATA, FROM_HELD, SHOWS_PLAIN, 0))

    def add_copies(self, place: int, rows: Array, data: bytes) -> None:
        """Add chunks that were held, whose captured bytes are `data`, one after the other."""
        room = self.room(len(data))
        room[: len(data)] = data
        for row in rows.tolist():
            at, captured = self.used, row[5]
            self.used += captured
            self._keys.append(2 * place)
            self._ends.append(self.used)
            self._rows.append((at, *row[1:9], FROM_HELD, *row[10:]))

    def merged(self, chunks: Array, kept: Array, held: Array) -> tuple[Array, Array]:
        """The chunks in `kept` (bool) and the new ones, in order, and the array of their held bytes."""
        places = np.flatnonzero(kept)
        stay = taken(chunks, places)
        needed = int(stay["captured"][stay["source"] == FROM_HELD].sum(dtype=np.int64))
        if needed:
            self.room(needed)
            self.used = copy_held(stay, len(stay), held, self.data, self.used)
        if not len(self):
            return stay, self.data
        keys, ends, made = zip(
            *self._records,
            (np.array(self._keys, np.int64), np.array(self._ends, np.int64), np.array(self._rows, CHUNK)),
            (2 * places + 1, np.zeros(len(places), np.int64), stay),
            strict=True,
        )
        order = np.lexsort((np.concatenate(ends), np.concatenate(keys)))
        whole = np.concatenate([as_bytes(chunks) for chunks in made]).view(CHUNK)
        return taken(whole, order), self.data


def copied_chunks(chunks: Array, block: Array, held: Array) -> tuple[Array, bytes]:
    """Copies of chunks and of their captured bytes, one after the other."""
    parts = []
    for at, captured, source in zip(
        chunks["at"].tolist(), chunks["captured"].tolist(), chunks["source"].tolist(), strict=True
    ):
        if captured > 0:
            parts.append((held if source == FROM_HELD else block)[at : at + captured].tobytes())
    return as_bytes(chunks).copy().view(CHUNK), b"".join(parts)
