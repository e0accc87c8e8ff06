"""The table `records`: convert chunks of rows and bytes to Arrow, column by column.

A kernel gathers keys, values and headers into Arrow buffers. No record becomes a Python object. Topics and clients of a
chunk are numbers first. `with_names` replaces them when their names are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.codecs import CODECS
from kafkatap.dissector.records.record_inspector import Chunk, Topic

from .arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from .batch import Array, uuid_text
from .row_columns import words
from .table_columns import RECORDS, TIME_MS
from .tables import arrow_schema, arrow_type, masked

DIRECTIONS = ("produce", "fetch")
TIMESTAMP_TYPES = ("create", "log_append")
#: Control records by type (KIP-98, KIP-630, KIP-853, KIP-996).
CONTROL_TYPES = (
    "abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters",
)  # fmt: skip
#: Milliseconds of the years 1 to 9999.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999

_TOPIC = "topic"
_TOPIC_ID = "topic_id"
_CLIENT = "client_id"


def records_table(chunk: Chunk, names: Mapping[bytes, str], strings: Sequence[bytes | None]) -> Any:
    """The table `records` of a chunk. `names`: topic names by id. `strings`: the strings of the engine."""
    return with_names(numbered_table(chunk), chunk.topics, names, strings)


def empty_table() -> Any:
    """The table `records` without rows."""
    return arrow_schema(RECORDS).empty_table()


def numbered_table(chunk: Chunk) -> Any:
    """The same with numbers (int32) in `topic`, `topic_id` (both the number of the topic) and `client_id`."""
    import pyarrow as pa

    x = chunk.records
    batch = chunk.batches[x["batch"]]
    part = chunk.parts[batch["part"]]
    attributes, magic = batch["attributes"], batch["magic"]
    has_magic = magic >= 0
    control = (attributes & b.CONTROL) != 0
    crc_state = np.minimum(batch["crc_state"], x["crc_state"])  # a wrong one counts, then a right one
    columns = {
        "exchange": masked(part["exchange"], "int64"),
        "direction": words(DIRECTIONS, part["fetch"]),
        "message_first": masked(part["message_first"], "timestamp[ns, UTC]", part["message_first"] == r.NO_TIME),
        "packet": masked(part["packet"], "int64"),
        _CLIENT: arrow_numbers(part["client_id"], pa.int32()),
        _TOPIC: arrow_numbers(part["topic"], pa.int32()),
        _TOPIC_ID: arrow_numbers(part["topic"], pa.int32()),
        "partition": masked(part["partition"], "int32", part["partition"] == r.NO_INT32),
        "batch": masked(batch["number"], "int32"),
        "magic": masked(magic, "int8", ~has_magic),
        "codec": _codecs(batch["codec"], ~has_magic),
        "offset": masked(x["offset"], "int64", x["offset"] == b.UNKNOWN_NUMBER),
        "offset_is_relative": masked(_are_relative(chunk, part), "bool"),
        "timestamp": _times(x["timestamp"], magic),
        "timestamp_type": words(TIMESTAMP_TYPES, (attributes & b.LOG_APPEND_TIME) != 0, magic < 1),
        "key": _binary(chunk.arena, x["key_at"], x["key_length"]),
        "value": _binary(chunk.arena, x["value_at"], x["value_length"]),
        "headers": _headers(chunk),
        "is_control": masked(control, "bool"),
        "control_type": _control_types(x["control"], control),
        "is_aborted": masked(batch["is_aborted"] == 1, "bool", batch["is_aborted"] < 0),
        "is_before_fetch_offset": masked(
            x["offset"] < part["fetch_offset"],
            "bool",
            (part["fetch_offset"] == b.UNKNOWN_NUMBER) | (x["offset"] == b.UNKNOWN_NUMBER),
        ),
        "is_transactional": masked((attributes & b.TRANSACTIONAL) != 0, "bool"),
        "producer_id": masked(batch["producer_id"], "int64", batch["producer_id"] < 0),
        "producer_epoch": masked(batch["producer_epoch"], "int16", batch["producer_epoch"] < 0),
        "sequence": masked(x["sequence"], "int32", x["sequence"] < 0),
        "partition_leader_epoch": masked(batch["leader_epoch"], "int32", batch["leader_epoch"] < 0),
        "crc_ok": masked(crc_state == b.CRC_RIGHT, "bool", crc_state == b.CRC_UNCHECKED),
        "status": words(b.RECORD_STATUSES, x["status"]),
    }
    schema = arrow_schema(RECORDS)
    for name in (_CLIENT, _TOPIC, _TOPIC_ID):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.int32()))
    return pa.Table.from_arrays([columns[c.name] for c in RECORDS], schema=schema)


def _are_relative(chunk: Chunk, parts: Array) -> Array:
    """Whose offsets count from the first record of their batch. `parts`: of each record."""
    produced: Array = parts["fetch"] == 0
    return produced if chunk.are_final is None else produced & ~chunk.are_final


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


def topic_text(topic: Topic, names: Mapping[bytes, str]) -> str | None:
    """The name of a topic, or its id in Kafka's 22-character form if the name is unknown."""
    name, topic_id = topic
    if name is not None:
        return name.decode("utf-8", "replace")
    return None if topic_id is None else names.get(topic_id) or uuid_text(topic_id)


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


def _times(values: Array, magic: Array) -> Any:
    missing = (magic < 1) | (values < _FIRST_MS) | (values > _LAST_MS) | (values == -1)
    return masked(values, TIME_MS, missing)


def _codecs(codecs: Array, missing: Array) -> Any:
    return words((*CODECS, "5", "6", "7"), codecs, missing)


def _control_types(types: Array, control: Array) -> Any:
    """The names of control record types, or their number if they have no name."""
    distinct, inverse = np.unique(types, return_inverse=True)
    names = [CONTROL_TYPES[t] if 0 <= t < len(CONTROL_TYPES) else str(t) for t in distinct.tolist()]
    return words(names, inverse, ~control | (types < 0))


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
