"""The table `records`: convert chunks of rows and bytes to Arrow, column by column.

A kernel gathers keys, values and headers into Arrow buffers. No record becomes a Python object. Topics and clients of a
chunk are numbers first. `with_names` replaces them when their names are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.record_inspector import Chunk, Topic

from .arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from .batch import Array, uuid_text
from .record_rows import Numbers, RecordRows, parts_of, record_columns, topic_text
from .row_columns import words
from .table_columns import RECORDS
from .tables import arrow_schema, arrow_type, masked

_TOPIC = "topic"
_TOPIC_ID = "topic_id"
_CLIENT = "client_id"


def records_table(rows: RecordRows) -> Any:
    """The table `records` of some records."""
    return with_names(numbered_table(rows.chunk), rows.chunk.topics, rows.names, rows.strings)


def empty_table() -> Any:
    """The table `records` without rows."""
    return arrow_schema(RECORDS).empty_table()


def numbered_table(chunk: Chunk) -> Any:
    """The same with numbers (int32) in `topic`, `topic_id` (both the number of the topic) and `client_id`."""
    import pyarrow as pa

    x, part = chunk.records, parts_of(chunk)
    columns = {
        _CLIENT: arrow_numbers(part["client_id"], pa.int32()),
        _TOPIC: arrow_numbers(part["topic"], pa.int32()),
        _TOPIC_ID: arrow_numbers(part["topic"], pa.int32()),
        "key": _binary(chunk.arena, x["key_at"], x["key_length"]),
        "value": _binary(chunk.arena, x["value_at"], x["value_length"]),
        "headers": _headers(chunk),
    }
    plain = record_columns(chunk)
    columns |= {c.name: _column(plain[c.name], c.type) for c in RECORDS if c.name in plain}
    schema = arrow_schema(RECORDS)
    for name in (_CLIENT, _TOPIC, _TOPIC_ID):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.int32()))
    return pa.Table.from_arrays([columns[c.name] for c in RECORDS], schema=schema)


def with_names(table: Any, topics: Sequence[Topic], names: Mapping[bytes, str], strings: Sequence[bytes | None]) -> Any:
    """Replace the numbers in a table by topic names (or the text of the id), topic ids and client ids."""
    import pyarrow as pa

    texts = [topic_text(topic, names) for topic in topics]
    ids = [uuid_text(topic_id) for _, topic_id in topics]
    wanted = [table.field(i) for i in range(table.num_columns)]
    columns = list(table.columns)
    for name, values in ((_TOPIC, texts), (_TOPIC_ID, ids), (_CLIENT, None)):
        at = table.schema.get_field_index(name)
        index = pa.chunked_array([_indices(chunk) for chunk in columns[at].chunks], pa.int64())
        if values is None:  # decode only the strings that are used
            index, used = _renumbered(index)
            values = [None if (raw := strings[n]) is None else raw.decode("utf-8", "replace") for n in used]
        columns[at] = _taken(arrow_texts(values), index)
        wanted[at] = pa.field(wanted[at].name, pa.string())
    return pa.Table.from_arrays(columns, schema=pa.schema(wanted))


def _column(column: Numbers, kind: str) -> Any:
    if column.words is None:
        return masked(column.numbers, kind, column.missing)
    distinct, inverse = np.unique(column.numbers, return_inverse=True)
    return words(column.values(distinct), inverse, column.missing)


def _renumbered(index: Any) -> tuple[Any, list[int]]:
    """The index into the distinct values, and their numbers."""
    import pyarrow as pa

    encoded = index.combine_chunks().dictionary_encode()
    return pa.chunked_array([encoded.indices.cast(pa.int64())]), encoded.dictionary.to_pylist()


def _indices(numbers: Any) -> Any:
    plain = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
    return arrow_indices(plain, plain < 0)


def _taken(values: Any, index: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([values.take(chunk) for chunk in index.chunks], values.type)


def _gathered(arena: Array, at: Array, length: Array) -> tuple[Array, Array]:
    """Parts of the arena, joined: int32 offsets (n + 1,), uint8."""
    sizes = np.maximum(length, 0).astype(np.int64)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(max(int(offsets[-1]), 1), np.uint8)
    b.gather(arena, np.ascontiguousarray(at), sizes, offsets[:-1].copy(), len(sizes), data)
    return offsets.astype(np.int32), data[: int(offsets[-1])]


def _binary(arena: Array, at: Array, length: Array) -> Any:
    """Parts of the arena as pa.binary(), null where the length is below 0."""
    import pyarrow as pa

    offsets, data = _gathered(arena, at, length)
    present = length >= 0
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(length), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def _headers(chunk: Chunk) -> Any:
    import pyarrow as pa

    kind = arrow_type("list<struct<key:string,value:binary>>")
    h = chunk.headers
    offsets = np.zeros(len(chunk.records) + 1, np.int32)
    np.cumsum(chunk.records["headers"], out=offsets[1:])
    keys = _strings(_binary(chunk.arena, h["key_at"], h["key_length"]))
    values = _binary(chunk.arena, h["value_at"], h["value_length"])
    fields = [kind.value_type.field(i) for i in range(2)]
    return pa.ListArray.from_arrays(
        arrow_numbers(offsets, pa.int32()), pa.StructArray.from_arrays([keys, values], fields=fields), kind
    )


def _strings(raw: Any) -> Any:
    """Bytes as strings, with U+FFFD for bytes that are not UTF-8."""
    import pyarrow as pa

    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return arrow_texts([value.decode("utf-8", "replace") for value in raw.to_pylist()])
