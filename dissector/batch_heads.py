"""The heads of record batches and messages as nodes: what they say of themselves, without what is in them.

Where batches begin and end is told by `batches.walk_batches`; the fields stand at fixed places (KIP-98; KIP-32 for
magic 1). What is behind a head is payload, and stays hidden here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import batches as b
from . import node as n
from .checksums import check_crcs
from .enums import enum_name, time_text
from .node import Node

_HEAD = (("BaseOffset", "int64"), ("BatchLength", "int32"), ("PartitionLeaderEpoch", "int32"), ("Magic", "int8"))
_FIELDS = {
    2: (
        *_HEAD, ("Crc", "uint32"), ("Attributes", "int16"), ("LastOffsetDelta", "int32"), ("BaseTimestamp", "int64"),
        ("MaxTimestamp", "int64"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("BaseSequence", "int32"),
        ("RecordCount", "int32"),
    ),
    1: (
        ("Offset", "int64"), ("MessageSize", "int32"), ("Crc", "uint32"), ("Magic", "int8"), ("Attributes", "int8"),
        ("Timestamp", "int64"),
    ),
    0: (
        ("Offset", "int64"), ("MessageSize", "int32"), ("Crc", "uint32"), ("Magic", "int8"), ("Attributes", "int8"),
    ),
}  # fmt: skip
_TYPES = {2: "RecordBatch", 1: "Message v1", 0: "Message v0"}
_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "uint32": 4, "int64": 8}
_ROOM = 64


def view_batches(raw: bytes, offset: int, cut: bool, partial: bool = True) -> list[Node]:
    """A BATCH node for each batch in a `records` field that starts at `offset` of the frame.

    `cut`: the capture ends before the field does; `partial`: its last batch may be a part of one, as in responses.
    """
    if not raw:
        return []
    parts = np.zeros(1, b.PART)
    parts["end"], parts["cut"], parts["fetch"] = len(raw), cut, partial
    state = np.zeros(b.WALK_STATE, np.int64)
    state[b.POSITION] = state[b.LAST_EXCHANGE] = -1
    arena, found = np.frombuffer(raw, np.uint8).copy(), np.zeros(_ROOM, b.BATCH)
    nodes: list[Node] = []
    at = 0
    while int(state[b.PART_NUMBER]) < 1:
        made = b.walk_batches(arena, parts, 1, found, state)
        check_crcs(arena.data, found[:made])
        for batch in found[:made]:
            end = len(raw) if batch["end"] > len(raw) else int(batch["end"])
            nodes.append(_view_batch(raw, at, end, offset, len(nodes), int(batch["magic"]), _told(batch)))
            at = end
    return nodes


def _told(batch: Any) -> str:
    """What is to be said of a batch; "" of one that is as it should be."""
    if batch["status"] == b.OK:
        return "wrong CRC" if batch["crc_state"] == b.CRC_WRONG else ""
    return b.RECORD_STATUSES[batch["status"]].replace("_", " ")


def _view_batch(raw: bytes, at: int, end: int, offset: int, number: int, magic: int, told: str) -> Node:
    name = f"[{number}]"
    values: dict[str, int] = {}
    children: list[Node] = []
    place = at
    for field, type_name in _FIELDS.get(magic, ()):
        width = _WIDTHS[type_name]
        if place + width > end:
            break
        value = int.from_bytes(raw[place : place + width], "big", signed=type_name != "uint32")
        values[field] = value
        text = _note(field, value, magic)
        children.append(Node(field, type_name, offset + place, width, n.VALUE, value, (), text))
        place += width
    if not children:
        return Node(name, "batch", offset + at, end - at, n.RAW, end - at, (), "", told or "not a batch")
    if place < end:
        children.append(Node("Records", "records", offset + place, end - place, n.HIDDEN, end - place))
    partial = told == b.RECORD_STATUSES[b.PARTIAL]
    problem = "" if partial else told
    text = _line(values, magic) + (", partial" if partial else "")
    return Node(name, _TYPES[magic], offset + at, end - at, n.BATCH, None, tuple(children), text, problem)


def _note(field: str, value: int, magic: int) -> str:
    if field == "Attributes":
        return _flags(value, magic)
    return time_text(value) if field.endswith("Timestamp") else ""


def _flags(attributes: int, magic: int) -> str:
    """The bits of a batch: "zstd, log append time, transactional, control"."""
    codec = enum_name("CompressionType", attributes & b.CODEC_BITS).lower() or f"codec {attributes & b.CODEC_BITS}"
    words = [codec if codec != "none" else "not compressed"]
    if magic > 0 and attributes & b.LOG_APPEND_TIME:
        words.append("log append time")
    if magic == 2:
        words += [
            word for bit, word in ((b.TRANSACTIONAL, "transactional"), (b.CONTROL, "control")) if attributes & bit
        ]
    return ", ".join(words)


def _line(values: dict[str, int], magic: int) -> str:
    """What one line says of a batch: the fields that were there to be read."""

    def told(name: str, words: str) -> list[str]:
        return [words.format(values[name])] if name in values else []

    count = values.get("RecordCount")
    words = told("BaseOffset", "base offset {}") + told("Offset", "offset {}")
    words += [] if count is None else [f"{count} record" + ("s" if count != 1 else "")]
    words += [_flags(values["Attributes"], magic)] if "Attributes" in values else []
    if values.get("ProducerId", -1) >= 0:
        words += told("ProducerId", "producer {}") + told("ProducerEpoch", "epoch {}")
        words += told("BaseSequence", "sequence {}")
    return ", ".join((*words, *told("Crc", "CRC {:08x}")))
