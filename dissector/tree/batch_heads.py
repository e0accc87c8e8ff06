"""The heads of record batches and messages as nodes. The payload behind a head stays hidden.

`batches.walk_batches` finds the batches. The fields of a head have fixed places (KIP-98; KIP-32 for magic 1).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

import numpy as np

from ..batch_headers import CODEC_BITS
from ..kafka.enums import enum_name, time_text
from ..programs.tape import as_array
from ..records import batches as b
from ..records.checksums import crc_of
from . import node as n
from .node import Node, Run, RunLayout

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Head:
    """The fields of a head. `form` unpacks them, `ends` are their ends; `times` are the places of times."""

    form: struct.Struct
    layout: RunLayout
    ends: tuple[int, ...]
    times: tuple[int, ...]


_LETTERS = {"int8": "b", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}


def _head(*fields: tuple[str, str]) -> _Head:
    names, types = zip(*fields, strict=True)
    widths = tuple(struct.calcsize(f">{_LETTERS[type_name]}") for type_name in types)
    start, *ends = accumulate(widths, initial=0)
    return _Head(
        struct.Struct(">" + "".join(_LETTERS[type_name] for type_name in types)),
        RunLayout(names, types, (start, *ends[:-1]), widths), tuple(ends),
        tuple(place for place, name in enumerate(names) if name.endswith("Timestamp")),
    )  # fmt: skip


#: Behind the offset of a message.
MESSAGE_FIELDS = (("MessageSize", "int32"), ("Crc", "uint32"), ("Magic", "int8"), ("Attributes", "int8"))
_MESSAGE = (("Offset", "int64"), *MESSAGE_FIELDS)
_HEADS = {
    2: _head(
        ("BaseOffset", "int64"), ("BatchLength", "int32"), ("PartitionLeaderEpoch", "int32"), ("Magic", "int8"),
        ("Crc", "uint32"), ("Attributes", "int16"), ("LastOffsetDelta", "int32"), ("BaseTimestamp", "int64"),
        ("MaxTimestamp", "int64"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("BaseSequence", "int32"),
        ("RecordCount", "int32"),
    ),
    1: _head(*_MESSAGE, ("Timestamp", "int64")),
    0: _head(*_MESSAGE),
}  # fmt: skip
_OFFSET_WORDS = ("offset", "offset", "base offset")
_TYPES = {2: "RecordBatch", 1: "Message v1", 0: "Message v0"}
_ROOM = 8
_END, _BODY, _CRC, _MAGIC, _STATUS = ((b.BATCH.names or ()).index(n) for n in ("end", "body", "crc", "magic", "status"))


def view_batches(raw: bytes, offset: int, cut: int, partial: bool = True) -> list[Node]:
    """A BATCH node for each batch in a `records` field that starts at `offset` of the frame.

    `cut`: as in `batches.PART`; `partial`: its last batch may be a part of one, as in responses.
    """
    if not raw:
        return []
    parts = np.zeros(1, b.PART)
    parts["end"], parts["cut"], parts["fetch"] = len(raw), cut, partial
    state = np.zeros(b.WALK_STATE, np.int64)
    state[b.POSITION] = state[b.LAST_EXCHANGE] = -1
    arena, found = as_array(raw), np.zeros(_ROOM, b.BATCH)
    nodes: list[Node] = []
    at = 0
    while int(state[b.PART_NUMBER]) < 1:
        made = b.walk_batches(arena, parts, 1, b.NO_ABORTED, found, state)
        for row in found[:made].tolist():
            end, magic = min(row[_END], len(raw)), row[_MAGIC]
            problem = ""
            if row[_STATUS] != b.OK:
                problem = b.RECORD_STATUSES[row[_STATUS]].replace("_", " ")
            elif row[_BODY] >= 0 and crc_of(magic, memoryview(raw)[at:end]) != row[_CRC]:
                problem = "wrong CRC"
            nodes.append(_view_batch(raw, at, end, offset, len(nodes), magic, problem))
            at = end
    return nodes


def _view_batch(raw: bytes, at: int, end: int, offset: int, number: int, magic: int, problem: str) -> Node:
    name = f"[{number}]"
    head = _HEADS.get(magic)
    count = 0 if head is None else bisect_right(head.ends, end - at)
    if head is None or not count:
        return Node(name, "batch", offset + at, end - at, n.RAW, end - at, (), "", problem or "not a batch")
    there = raw[at : min(end, at + head.form.size)]
    values = head.form.unpack(there.ljust(head.form.size, b"\0"))[:count]
    names = head.layout.names
    named = dict(zip(names, values, strict=False))
    flags = batch_flags(named["Attributes"], magic) if "Attributes" in named else ""
    texts = [""] * count
    for place in head.times:
        if place < count:
            texts[place] = time_text(values[place])
    if flags:
        texts[names.index("Attributes")] = flags
    run = Run(head.layout, offset + at, values, texts)
    parts: list[Node | Run] = [run] if count == len(names) else [*islice(run.nodes(), count)]
    place = at + head.ends[count - 1]
    if place < end:
        parts.append(Node("Records", "records", offset + place, end - place, n.HIDDEN, end - place))
    partial = problem == b.RECORD_STATUSES[b.PARTIAL]
    text = _line(
        _OFFSET_WORDS[magic], named.get(names[0]), named.get("RecordCount"), flags, named.get("ProducerId"),
        named.get("ProducerEpoch"), named.get("BaseSequence"), named.get("Crc"), partial,
    )  # fmt: skip
    return Node(
        name, _TYPES[magic], offset + at, end - at, n.BATCH, None, tuple(parts), text, "" if partial else problem
    )


def batch_texts(batches: Array) -> list[str]:
    """The texts of the nodes of some batches (`batches.BATCH`) whose heads were read."""
    columns = ("base_offset", "records", "attributes", "magic", "producer_id", "producer_epoch", "base_sequence", "crc")
    rows = zip(*(batches[name].tolist() for name in (*columns, "status")), strict=True)
    return [
        _line(
            _OFFSET_WORDS[magic], offset, None if magic < 2 else count, batch_flags(attributes, magic), producer, epoch,
            sequence, crc, status == b.PARTIAL,
        )
        for offset, count, attributes, magic, producer, epoch, sequence, crc, status in rows
    ]  # fmt: skip


@lru_cache(1_024)
def batch_flags(attributes: int, magic: int) -> str:
    """The bits of a batch: "zstd, log append time, transactional, control"."""
    codec = enum_name("CompressionType", attributes & CODEC_BITS).lower() or f"codec {attributes & CODEC_BITS}"
    words = [codec if codec != "none" else "not compressed"]
    if magic > 0 and attributes & b.LOG_APPEND_TIME:
        words.append("log append time")
    if magic == 2:
        words += [
            word for bit, word in ((b.TRANSACTIONAL, "transactional"), (b.CONTROL, "control")) if attributes & bit
        ]
    return ", ".join(words)


def _line(
    word: str,
    offset: int | None,
    count: int | None,
    flags: str,
    producer: int | None,
    epoch: int | None,
    sequence: int | None,
    crc: int | None,
    is_partial: bool,
) -> str:
    """A batch in one line, by the fields of its head that were captured. `word`: what its offset is."""
    words = [] if offset is None else [f"{word} {offset}"]
    if count is not None:
        words.append(f"{count} record" if count == 1 else f"{count} records")
    if flags:
        words.append(flags)
    if producer is not None and producer >= 0:
        words.append(f"producer {producer}")
        if epoch is not None:
            words.append(f"epoch {epoch}")
        if sequence is not None:
            words.append(f"sequence {sequence}")
    if crc is not None:
        words.append(f"CRC {crc:08x}")
    if is_partial:
        words.append("partial")
    return ", ".join(words)
