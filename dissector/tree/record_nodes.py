"""The records of a `records` field as nodes, below the heads of their batches, for `show --records`.

Keys, values and headers of uncompressed batches have their offsets in the frame. Decompressed bytes have no place in
the frame: their offset is the start of the batch's records, and their length is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kafka.enums import enum_name, time_text
from ..programs.program import Programs
from ..records import batches as b
from ..records.record_inspector import Chunk, RecordCollector
from . import node as n
from .batch_heads import MESSAGE_FIELDS, batch_flags, view_batches
from .nested import CONTROL_KEY, CONTROL_VALUES, decode_nested
from .node import Node

Array = np.ndarray[Any, Any]
RecordFields = dict[str, int]


class RecordViewer:
    """Makes the nodes of a field's batches with their records. `programs` are those of the RECORDS profile."""

    def __init__(self, programs: Programs) -> None:
        self._collector = RecordCollector(programs)

    def __call__(self, raw: bytes, offset: int, cut: int = 0) -> Sequence[Node]:
        """Nodes for the bytes of a field at `offset` of its frame. `cut`: as in `batches.PART`."""
        heads = view_batches(raw, offset, cut)
        if not heads:
            return heads
        part = np.zeros(1, b.PART)
        part["topic"], part["fetch"], part["cut"] = -1, 1, cut
        zero = np.zeros(1, np.int64)
        self._collector.take(part, zero, np.array([len(raw)]), zero, (np.frombuffer(raw, np.uint8).copy(),))
        records: dict[int, list[Node]] = {}
        problems: dict[int, str] = {}
        for chunk in self._collector.chunks():
            for batch, row, headers in _rows(chunk):
                number = batch["number"]
                problem = "" if row["status"] == b.OK else b.RECORD_STATUSES[row["status"]].replace("_", " ")
                is_read = row["status"] in (b.OK, b.TRAILING_BYTES) and row["value_at"]
                if not is_read and not (row["end"] and batch["codec"]):
                    problems[number] = problem
                    continue
                found = records.setdefault(number, [])
                place = _RecordBytes(chunk.arena, offset if batch["codec"] == 0 else None, heads[number])
                span = _span(place, batch, found[-1].end if found else None)
                node = _record(place, len(found), batch, row, headers, span)
                is_wrong = row["crc_state"] == b.CRC_WRONG
                found.append(replace(node, problem=problem or ("wrong CRC" if is_wrong else "")))
        return [_filled(head, records.get(i, []), problems.get(i, "")) for i, head in enumerate(heads)]


def _rows(chunk: Chunk) -> Iterator[tuple[RecordFields, RecordFields, Array]]:
    """The batch, the fields and the headers of each record."""
    names = chunk.records.dtype.names or ()
    batches: dict[int, RecordFields] = {}
    first = 0
    for values in chunk.records.tolist():
        row = dict(zip(names, values, strict=True))
        batch = row["batch"]
        if batch not in batches:
            batches[batch] = dict(zip(b.BATCH.names or (), chunk.batches[batch].tolist(), strict=True))
        count = max(row["headers"], 0)
        yield batches[batch], row, chunk.headers[first : first + count]
        first += count


@dataclass(frozen=True, slots=True)
class _RecordBytes:
    """Bytes of the arena, which lie `offset` further in the frame; None: they were decompressed."""

    arena: Array
    offset: int | None
    head: Node

    def bytes_node(self, name: str, at: int, length: int) -> Node:
        """A key or a value: text if it is UTF-8, else bytes."""
        if length < 0:
            return Node(name, "bytes", self.of(at), 0, n.NULL)
        raw = self.arena[at : at + length].tobytes()
        used = 0 if self.offset is None else length
        try:
            return Node(name, "string", self.of(at), used, n.VALUE, raw.decode())
        except UnicodeDecodeError:
            return Node(name, "bytes", self.of(at), used, n.VALUE, raw)

    def of(self, at: int) -> int:
        return self.head.children[-1].offset if self.offset is None or at < 0 else self.offset + at


def _span(place: _RecordBytes, batch: RecordFields, previous: int | None) -> tuple[int, int]:
    """Where a record begins and ends in the frame. A record of magic 2 begins with its size."""
    start = place.head.children[-1].offset
    if place.offset is None:
        return start, start
    if batch["magic"] < 2:
        return start, place.offset + batch["end"]
    start = start if previous is None else previous
    at, shift, size = start - place.offset, 0, 0
    while place.arena[at] >= 0x80:
        size |= (int(place.arena[at]) & 0x7F) << shift
        at, shift = at + 1, shift + 7
    size |= int(place.arena[at]) << shift
    return start, place.offset + at + 1 + (size >> 1)


def _record(
    place: _RecordBytes, number: int, batch: RecordFields, row: RecordFields, headers: Array, span: tuple[int, int]
) -> Node:
    key = place.bytes_node("Key", row["key_at"], row["key_length"])
    value = place.bytes_node("Value", row["value_at"], row["value_length"])
    if row["control"] >= 0 or batch["attributes"] & b.CONTROL:
        key = _control(key, CONTROL_KEY, row["control"])
        value = _control(value, CONTROL_VALUES.get(row["control"], ""), row["control"])
    start, end = span
    numbers = _message_head(place, row["at"], start) if place.offset is None and row["end"] else []
    for name, type_name, value_of_it in (
        ("Offset", "int64", row["offset"]),
        ("Timestamp", "int64", row["timestamp"]),
        ("Sequence", "int32", row["sequence"]),
    ):
        if value_of_it != b.UNKNOWN_NUMBER and not (name == "Sequence" and value_of_it < 0):
            text = time_text(value_of_it) if name == "Timestamp" else ""
            numbers.append(Node(name, type_name, start, 0, n.VALUE, value_of_it, (), text))
    contents = [key, value] if row["value_at"] else []
    if len(headers):
        contents.append(_headers(place, headers))
    return Node(f"[{number}]", "Record", start, end - start, n.STRUCT, None, (*numbers, *contents))


def _message_head(place: _RecordBytes, at: int, start: int) -> list[Node]:
    """The fields of a message in a compressed one that no head shows, but for its offset, which may be relative."""
    values = struct.unpack(">iIbb", place.arena[at + 8 : at + 18].tobytes())
    texts = ("", "", "", batch_flags(values[3], values[2]))
    return [
        Node(name, type_name, start, 0, n.VALUE, value, (), text)
        for (name, type_name), value, text in zip(MESSAGE_FIELDS, values, texts, strict=True)
    ]


def _headers(place: _RecordBytes, headers: Array) -> Node:
    made = []
    for number, (key_at, value_at, key_length, value_length) in enumerate(headers.tolist()):
        key = place.bytes_node("Key", key_at, key_length)
        value = place.bytes_node("Value", value_at, value_length)
        size = 0 if place.offset is None else value.end - key.offset
        made.append(Node(f"[{number}]", "Header", key.offset, size, n.STRUCT, None, (key, value)))
    return Node("Headers", "array", made[0].offset, made[-1].end - made[0].offset, n.ARRAY, len(made), tuple(made))


def _control(node: Node, layout: str, number: int) -> Node:
    """A control record's key or value, decoded by the layout of its type."""
    raw = node.value.encode() if isinstance(node.value, str) else node.value
    found = decode_nested(layout, raw) if layout and isinstance(raw, bytes) else None
    if found is None:
        return node
    text = enum_name("ControlRecordType", number) if layout == CONTROL_KEY else ""
    return replace(_moved(found, node.offset), name=node.name, length=node.length, text=text or found.text)


def _moved(node: Node, by: int) -> Node:
    children = tuple(_moved(child, by) for child in node.children)
    return replace(node, offset=node.offset + by, parts=children)


def _filled(head: Node, records: list[Node], problem: str) -> Node:
    """A batch's node with its records in place of their bytes."""
    problem = head.problem or problem
    last = head.children[-1] if head.children else None
    if last is None or last.kind != n.HIDDEN or not records:
        return replace(head, problem=problem)
    shown = Node(last.name, last.type, last.offset, last.length, n.ARRAY, len(records), tuple(records))
    return replace(head, parts=(*head.children[:-1], shown), problem=problem)
