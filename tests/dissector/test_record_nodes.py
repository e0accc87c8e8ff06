"""Records below the heads of their batches say what the table of records says, and never raise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap import analyze
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node, walk
from kafkatap.dissector.tree.record_nodes import RecordViewer
from kafkatap.dissector.tree.view import Viewer
from kafkatap.engine.read_options import AS_USUAL
from kafkatap.selected_messages.message_collector import MessageCollector
from kafkatap.selected_messages.message_index import index_messages
from kafkatap.selected_messages.messages import read_messages
from tests.dissector.view_support import find
from tests.support import records as made
from tests.support.records import GZIP, NONE, Record, batch, message_set

Told = tuple[int | None, bytes | None, bytes | None, int]


@pytest.mark.parametrize("name", ["apache-4.3", "apache-2.8", "apache-0.10.2", "apache-0.8.2"])
def test_nodes_hold_the_records_of_the_table(samples: Path, name: str) -> None:
    path = str(samples / f"{name}.pcap.zst")
    index = index_messages([path])
    viewer = Viewer(records=RecordViewer(load_programs("records")))
    told: Counter[Told] = Counter()
    parts = read_messages(index, AS_USUAL, MessageCollector(index.ids, with_frames=True))
    for message in (message for part in parts for message in part.each()):
        if message.api_key not in (0, 1):
            continue
        direction = RESPONSE if message.is_response else REQUEST
        tree = viewer.view(message.frame, direction, message.api_key, message.column("api_version"))
        told.update(_told(record, message.frame) for _, record in walk(tree) if record.type == "Record")
    table = _plain(path)
    assert sum(table.values()) > 20
    assert told == table


def _plain(path: str) -> Counter[Told]:
    rows = analyze(path).records.to_pylist()
    return Counter(
        (row["offset"], row["key"], row["value"], len(row["headers"] or ()))
        for row in rows
        if row["status"] == "ok" and row["offset"] is not None
    )


def _told(record: Node, frame: bytes) -> Told:
    offset, headers = find(record, "Offset"), find(record, "Headers")
    assert offset is None or isinstance(offset.value, int)
    return (
        None if offset is None else int(offset.value or 0),
        _bytes(find(record, "Key"), frame),
        _bytes(find(record, "Value"), frame),
        0 if headers is None else len(headers.children),
    )


def _bytes(node: Node | None, frame: bytes) -> bytes | None:
    assert node is not None
    if node.kind == n.NESTED:
        return frame[node.offset : node.end]
    if node.kind == n.NULL:
        return None
    return node.value.encode() if isinstance(node.value, str) else bytes(node.value)  # type: ignore[arg-type]


@given(st.binary(max_size=200), st.integers(0, 255))
def test_whatever_the_bytes_are(raw: bytes, magic: int) -> None:
    viewer = RecordViewer(load_programs("records"))
    hostile = raw[:16] + bytes([magic % 4]) + raw[17:] if len(raw) > 17 else raw
    for node in viewer(hostile, 100):
        assert node.offset >= 100
        assert node.end <= 100 + len(hostile)


def test_messages_of_compressed_sets_show_their_heads_and_what_is_wrong_with_them() -> None:
    first, wrong, bad = (made.message(Record(key), 1, crc=crc) for key, crc in ((b"a", None), (b"b", 7), (b"c", None)))
    inner = first + wrong + bad[:26] + b"\0\0\0\x50" + bad[30:]
    (head,) = RecordViewer(load_programs("records"))(message_set((), 1, GZIP, payload=made.compressed(inner, GZIP)), 0)
    shown = head.children[-1].children
    assert [record.problem for record in shown] == ["", "wrong CRC", "malformed"]
    named = [{child.name: child.value for child in record.children} for record in shown]
    assert [(n["MessageSize"], n["Magic"], n["Attributes"]) for n in named] == [(len(first) - 12, 1, 0)] * 3
    assert (named[1]["Crc"], named[0]["Key"], "Key" in named[2]) == (7, "a", False)


KEYS_AND_VALUES = [(b"k", b"v" * 200), (None, b"v"), (b"k", None), (None, None), (b"", b"")]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_records_lie_behind_each_other_from_their_sizes_on(magic: int, codec: int) -> None:
    """What is in a record lies in it, in order; together they are the stretch of bytes that their batch holds."""
    headers = ((b"h", b"x"), (b"i", None)) if magic == 2 else ()
    records = [Record(key, value, headers=headers) for key, value in KEYS_AND_VALUES]
    raw = batch(records, codec=codec) if magic == 2 else message_set(records, magic=magic, codec=codec)
    arrays = [c for head in RecordViewer(load_programs("records"))(raw, 50) for c in head.children if c.kind == n.ARRAY]
    assert sum(len(array.children) for array in arrays) == len(records)
    for array in arrays:
        at = array.offset
        for record in array.children:
            assert record.offset == at
            for _, node in walk(record):
                inner = node.offset
                for child in node.children:
                    assert inner <= child.offset <= child.end <= node.end
                    inner = child.end
            at = record.end
        assert at == array.end if codec == NONE else at == array.offset
