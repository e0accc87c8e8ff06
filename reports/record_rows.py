"""Records as rows of Python values, for lines of text, JSON and CSV, and as columns of numbers, of which `record_table`
makes Arrow arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.codecs import CODECS
from kafkatap.dissector.records.record_inspector import Chunk, Topic

from .batch import Array, uuid_text

DIRECTIONS = ("produce", "fetch")
TIMESTAMP_TYPES = ("create", "log_append")
#: Control records by type (KIP-98, KIP-630, KIP-853, KIP-996).
CONTROL_TYPES = (
    "abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters",
)  # fmt: skip
#: Milliseconds of the years 1 to 9999.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_NS_PER_MS = 1_000_000


class Numbers(NamedTuple):
    """A column. `missing`: where its values are null (bool). `words`: what the numbers stand for. `unit`: ns in one, of
    times."""

    numbers: Array
    missing: Array | None = None
    words: Sequence[str | None] | Mapping[int, str | None] | None = None
    unit: int = 1

    def values(self, numbers: Array) -> list[Any]:
        """What some of its numbers stand for."""
        if self.words is not None:
            return [self.words[number] for number in numbers.tolist()]
        return [self.unit * number for number in numbers.tolist()] if self.unit > 1 else numbers.tolist()


def record_columns(chunk: Chunk) -> dict[str, Numbers]:
    """The columns of a chunk besides bytes, and besides names that may be known later."""
    x = chunk.records
    batch = chunk.batches[x["batch"]]
    part = chunk.parts[batch["part"]]
    are_relative = part["fetch"] == 0  # to the first record of their batch
    if chunk.are_final is not None:
        are_relative &= ~chunk.are_final
    attributes, magic = batch["attributes"], batch["magic"]
    has_no_magic = magic < 0
    control = (attributes & b.CONTROL) != 0
    crc_state = np.minimum(batch["crc_state"], x["crc_state"])  # a wrong one counts, then a right one
    times = x["timestamp"]
    no_time = (magic < 1) | (times < _FIRST_MS) | (times > _LAST_MS) | (times == -1)
    control_types = {n: CONTROL_TYPES[n] if 0 <= n < len(CONTROL_TYPES) else str(n) for n in set(x["control"].tolist())}
    return {
        "exchange": Numbers(part["exchange"]),
        "direction": Numbers(part["fetch"], words=DIRECTIONS),
        "message_first": Numbers(part["message_first"], part["message_first"] == r.NO_TIME),
        "packet": Numbers(part["packet"]),
        "partition": Numbers(part["partition"], part["partition"] == r.NO_INT32),
        "batch": Numbers(batch["number"]),
        "magic": Numbers(magic, has_no_magic),
        "codec": Numbers(batch["codec"], has_no_magic, (*CODECS, "5", "6", "7")),
        "offset": Numbers(x["offset"], x["offset"] == b.UNKNOWN_NUMBER),
        "offset_is_relative": Numbers(are_relative),
        "timestamp": Numbers(times, no_time, unit=_NS_PER_MS),
        "timestamp_type": Numbers(((attributes & b.LOG_APPEND_TIME) != 0).astype(np.int8), magic < 1, TIMESTAMP_TYPES),
        "is_control": Numbers(control),
        "control_type": Numbers(x["control"], ~control | (x["control"] < 0), control_types),
        "is_aborted": Numbers(batch["is_aborted"] == 1, batch["is_aborted"] < 0),
        "is_before_fetch_offset": Numbers(
            x["offset"] < part["fetch_offset"],
            (part["fetch_offset"] == b.UNKNOWN_NUMBER) | (x["offset"] == b.UNKNOWN_NUMBER),
        ),
        "is_transactional": Numbers((attributes & b.TRANSACTIONAL) != 0),
        "producer_id": Numbers(batch["producer_id"], batch["producer_id"] < 0),
        "producer_epoch": Numbers(batch["producer_epoch"], batch["producer_epoch"] < 0),
        "sequence": Numbers(x["sequence"], x["sequence"] < 0),
        "partition_leader_epoch": Numbers(batch["leader_epoch"], batch["leader_epoch"] < 0),
        "crc_ok": Numbers(crc_state == b.CRC_RIGHT, crc_state == b.CRC_UNCHECKED),
        "status": Numbers(x["status"], words=b.RECORD_STATUSES),
    }


def parts_of(chunk: Chunk) -> Array:
    """The part of a message that each record is of: PART (n,)."""
    found: Array = chunk.parts[chunk.batches["part"][chunk.records["batch"]]]
    return found


def topic_text(topic: Topic, names: Mapping[bytes, str]) -> str | None:
    """The name of a topic, or its id in Kafka's 22-character form if the name is unknown."""
    name, topic_id = topic
    if name is not None:
        return name.decode("utf-8", "replace")
    return None if topic_id is None else names.get(topic_id) or uuid_text(topic_id)


class RecordRows:
    """Records of a chunk, while it is valid. `names`: topic names by id. `strings`: the strings of the engine."""

    def __init__(self, chunk: Chunk, names: Mapping[bytes, str], strings: Sequence[bytes | None]) -> None:
        self.chunk, self.names, self.strings = chunk, names, strings
        self._count = len(chunk.records)
        self._columns: dict[str, Numbers] | None = None

    def __len__(self) -> int:
        return self._count

    def leave(self, count: int) -> None:
        """Drop all but the first rows."""
        self._count = min(self._count, count)

    @property
    def columns(self) -> dict[str, Numbers]:
        """The columns besides key, value and headers."""
        if self._columns is None:
            part, topics = parts_of(self.chunk), self.chunk.topics
            topic, client = part["topic"], part["client_id"]
            clients = {n: self.strings[n] for n in set(client.tolist()) if n >= 0}
            self._columns = record_columns(self.chunk) | {
                "topic": Numbers(topic, topic < 0, [topic_text(topic, self.names) for topic in topics]),
                "topic_id": Numbers(topic, topic < 0, [uuid_text(topic_id) for _, topic_id in topics]),
                "client_id": Numbers(client, client < 0, {n: _decoded(raw) for n, raw in clients.items()}),
            }
        return self._columns

    def values(self, name: str) -> list[Any]:
        """The values of a column."""
        if name in ("key", "value"):
            rows = self.chunk.records[: self._count]
            return _slices(self.chunk.arena, rows[f"{name}_at"], rows[f"{name}_length"])
        return self._each(self.columns[name], lambda value: value)

    def texts(self, name: str, text: Callable[[Any], str]) -> list[str]:
        """The text of each value of a column, made once for each distinct value. Times come in ns."""
        if name in ("key", "value"):
            values = self.values(name)
            made = {value: text(value) for value in dict.fromkeys(values)}
            return [made[value] for value in values]
        return self._each(self.columns[name], text)

    def _each(self, column: Numbers, made_of: Callable[[Any], Any]) -> list[Any]:
        numbers = column.numbers[: self._count]
        missing = None if column.missing is None else column.missing[: self._count]
        if missing is None or not missing.any():
            distinct, inverse = np.unique(numbers, return_inverse=True)
            made = list(map(made_of, column.values(distinct)))
            return [made[place] for place in inverse.tolist()]
        there = np.flatnonzero(~missing)
        distinct, inverse = np.unique(numbers[there], return_inverse=True)
        made = [*map(made_of, column.values(distinct)), made_of(None)]
        places = np.full(len(numbers), len(distinct), np.int64)
        places[there] = inverse
        return [made[place] for place in places.tolist()]

    def headers(self) -> Iterator[list[tuple[str, bytes | None]]]:
        """The headers of each record."""
        ends = np.cumsum(self.chunk.records["headers"][: self._count])
        last = int(ends[-1]) if len(ends) else 0
        if not last:
            return ([] for _ in range(self._count))
        h = self.chunk.headers[:last]
        keys = _slices(self.chunk.arena, h["key_at"], h["key_length"])
        values = _slices(self.chunk.arena, h["value_at"], h["value_length"])
        pairs = [(_decoded(key) or "", value) for key, value in zip(keys, values, strict=True)]
        return (pairs[start:end] for start, end in itertools.pairwise([0, *ends.tolist()]))


def _decoded(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _slices(arena: Array, at: Array, length: Array) -> list[bytes | None]:
    """Parts of the arena, None where the length is below 0."""
    view = arena.data
    return [
        None if size < 0 else bytes(view[start : start + size])
        for start, size in zip(at.tolist(), length.tolist(), strict=True)
    ]
