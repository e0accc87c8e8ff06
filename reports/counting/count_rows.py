"""`ReportCounts` as plain rows that any SQL engine can add up, and back.

A row says one number of one key: `counts` names the table (groups, topics, timeline, errors), `measure` what is counted
(the names of `tally`), and one of three columns holds the number, by how it is added up. So one statement adds rows of
however many runs, whatever they are:

    SELECT <KEYS>, SUM(added) AS added, MIN(lowest) AS lowest, MAX(highest) AS highest FROM rows GROUP BY <KEYS>

Keys are values, not numbers of strings, which differ from run to run. Strings from the wire are UTF-8, with backslashes
doubled and each byte that is not UTF-8 as \\xNN, so that every one of them comes back; topic ids have Kafka's form.
Columns that a table's key does not have are null; so is a string that was null on the wire.

`<metric>_histogram` counts values by `bucket` (`histogram.bucket_of`). `interval_number` counts intervals of
`interval_ns` since the epoch: runs may have taken different ones, and the coarsest wins when rows are read. A topic
that came by its id has its name beside it where the run knew it; ids without are named by rows that have both.

Zeros are left out, but each key has at least one row. Rows need not be added up to be read: `counts_of_rows` adds too.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import RESULT_KINDS

from ..batch import Array, Names, uuid_text
from ..tables import TableColumn, arrow_schema
from . import tally
from .count_table import MAX, MIN, SUM, CountTable
from .counts import ReportCounts
from .histogram import BUCKET_BITS, BUCKETS, OWNER_SHIFT, Histograms

if TYPE_CHECKING:
    import pyarrow as pa

_KEY_TYPES = {
    "interval_ns": "int64",
    "interval_number": "int64",
    "api_key": "int16",
    "api_version": "int16",
    "client_id": "string",
    "software": "string",
    "software_version": "string",
    "client_ip": "string",
    "broker_ip": "string",
    "broker_port": "int32",
    "long_poll": "bool",
    "topic": "string",
    "topic_id": "string",
    "error_code": "int16",
    "kind": "string",
    "name": "string",
}
COLUMNS = (
    TableColumn("counts", "string"),
    *(TableColumn(name, kind, True) for name, kind in _KEY_TYPES.items()),
    TableColumn("measure", "string"),
    TableColumn("bucket", "int16", True),
    TableColumn("added", "int64", True),
    TableColumn("lowest", "int64", True),
    TableColumn("highest", "int64", True),
)
#: What rows are grouped by when they are added up.
KEYS = tuple(c.name for c in COLUMNS[:-3])
#: The column of a number by how it is added up, and the SQL function that does it.
ADDED_BY = {SUM: ("added", "sum"), MIN: ("lowest", "min"), MAX: ("highest", "max")}
HISTOGRAM = "_histogram"

#: Rows that are spread out to all value columns at a time.
_AT_ONCE = 1 << 16
_STRINGS = {"client_id", "software", "software_version", "topic", "topic_id", "name"}
_ADDRESSES = {"client_ip", "broker_ip"}
_ESCAPE = re.compile(rb"\\(\\|x[0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class _Layout:
    """One table of `ReportCounts`: its attributes there, its key columns (as columns of rows), its values."""

    name: str
    keys: tuple[str, ...]
    values: Mapping[str, int]
    histograms: str | None = None


LAYOUTS = (
    _Layout("groups", tally.GROUP_KEY, tally.GROUP_VALUES, "histograms"),
    _Layout("topics", tally.TOPIC_KEY, tally.GROUP_VALUES, "topic_histograms"),
    _Layout("timeline", ("interval_number", "api_key"), tally.TIMELINE_VALUES, "timeline_histograms"),
    _Layout("errors", tally.ERROR_KEY, tally.ERROR_VALUES),
)


class NameTable:
    """Strings and addresses by number, each once, and the names of topic ids: `Names` of rows that are read."""

    def __init__(self) -> None:
        self.strings: list[bytes | None] = []
        self.addresses: list[str] = []
        self.topic_names: dict[int, int] = {}
        self._strings: dict[bytes, int] = {}
        self._addresses: dict[str, int] = {}

    def string(self, value: bytes | None) -> int:
        """A string's number, -1 for null."""
        if value is None:
            return -1
        number = self._strings.setdefault(value, len(self.strings))
        if number == len(self.strings):
            self.strings.append(value)
        return number

    def address(self, value: str | None) -> int:
        """An address's number, -1 for none."""
        if not value:
            return -1
        number = self._addresses.setdefault(value, len(self.addresses))
        if number == len(self.addresses):
            self.addresses.append(value)
        return number

    def name_topic(self, topic_id: bytes, name: bytes) -> None:
        """Say what a topic id is called; the last word on it holds."""
        self.topic_names[self.string(topic_id)] = self.string(name)


def escape(value: bytes | None) -> str | None:
    """A string from the wire as text from which `unescape` makes the same bytes."""
    return None if value is None else value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def unescape(text: str) -> bytes:
    raw = text.encode()
    return _ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes((int(m[1][1:], 16),)), raw) if b"\\" in raw else raw


def topic_id_bytes(text: str) -> bytes:
    """A topic id from Kafka's form of it. ValueError where it is none."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def rows_of_counts(counts: ReportCounts, names: Names) -> pa.Table:
    """Rows of COLUMNS, in no order, of finished or unfinished counts (`finish` is called). `names`: what their numbers
    mean; topics are told by the names known now."""
    import pyarrow as pa

    counts.finish()
    tables = [_rows_of_table(counts, layout, names) for layout in LAYOUTS]
    return pa.concat_tables(tables)


def _rows_of_table(counts: ReportCounts, layout: _Layout, names: Names) -> pa.Table:
    import pyarrow as pa

    table: CountTable = getattr(counts, layout.name)
    row, measure, bucket, number, column = _numbers(table, layout, counts)
    keys = table.key_rows()
    made: dict[str, Any] = {
        "counts": pa.array([layout.name], pa.string()).take(pa.array(np.zeros(len(row), np.int8))),
        "measure": pa.array([*layout.values, *(m + HISTOGRAM for m in tally.METRICS)]).take(pa.array(measure)),
        "bucket": pa.array(bucket.astype(np.int16), mask=bucket < 0),
    }
    for op, (name, _) in ADDED_BY.items():
        made[name] = pa.array(number, mask=column != op)
    for i, name in enumerate(layout.keys):
        made[name] = _shown(name, keys, i, layout.keys, names).take(pa.array(row))
    if layout.name == "timeline":
        made["interval_ns"] = pa.array(np.full(len(row), counts.interval, np.int64))
    schema = arrow_schema(COLUMNS)
    arrays = [made[f.name] if f.name in made else pa.nulls(len(row), f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _numbers(table: CountTable, layout: _Layout, counts: ReportCounts) -> tuple[Array, Array, Array, Array, Array]:
    """(row of the table, measure, bucket or -1, number, how it is added up) of all that is not zero: int64 (n,)."""
    values = table.value_rows()
    said = values != table.empty
    said[~said.any(axis=1), 0] = True
    row, measure = np.nonzero(said)
    bucket, number, op = np.full(len(row), -1), values[row, measure], table.ops[measure]
    if layout.histograms is not None:
        h: Histograms = getattr(counts, layout.histograms)
        h.settle()
        metric = (h.keys >> BUCKET_BITS) & 0xFF
        row = np.concatenate((row, h.keys >> OWNER_SHIFT))
        measure = np.concatenate((measure, len(layout.values) + metric))
        bucket = np.concatenate((bucket, h.keys & (BUCKETS - 1)))
        number = np.concatenate((number, h.counts))
        op = np.concatenate((op, np.full(len(h.keys), SUM, np.uint8)))
    return row, measure, bucket, number, op


def _shown(name: str, keys: Array, column: int, columns: Sequence[str], names: Names) -> Any:
    """A key column as values."""
    import pyarrow as pa

    numbers = keys[:, column]
    if name == "topic":
        topic_id = keys[:, columns.index("topic_id")]
        ids, inverse = np.unique(topic_id, return_inverse=True)
        known = np.array([names.topic_names.get(n, -1) for n in ids.tolist()], np.int64)
        numbers = np.where(numbers >= 0, numbers, known[inverse])
    if name in _STRINGS or name in _ADDRESSES or name == "kind":
        distinct, inverse = np.unique(numbers, return_inverse=True)
        texts = [_text(name, n, names) for n in distinct.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(inverse))
    return pa.array(numbers).cast(pa.type_for_alias(_KEY_TYPES[name]))


def _text(name: str, number: int, names: Names) -> str | None:
    if number < 0:
        return None
    if name == "kind":
        return RESULT_KINDS[number]
    if name in _ADDRESSES:
        return names.addresses[number]
    value = names.strings[number]
    return uuid_text(value) if name == "topic_id" else escape(value)


def counts_of_rows(
    rows: pa.Table, *, by_topic: bool = False, interval: int | None = None
) -> tuple[ReportCounts, NameTable]:
    """The counts that rows add up to, and what the numbers in them mean.

    `rows`: COLUMNS in any order, added up or not; more columns are left alone. `by_topic`, `interval`: as the counts
    were made with; an interval in ns may also be a multiple of that of the rows.
    ValueError where rows cannot be counts: unknown names, nulls in keys, intervals that do not fit each other.
    """
    import pyarrow.compute as pc

    schema = arrow_schema(COLUMNS)
    rows = rows.select(schema.names).cast(schema)
    unknown = set(pc.unique(rows["counts"]).to_pylist()) - {layout.name for layout in LAYOUTS}
    if unknown:
        raise ValueError(f"counts: there is no table {min(map(repr, unknown))}")
    counts, names = ReportCounts(by_topic=by_topic, interval=interval), NameTable()
    for layout in LAYOUTS:
        part = rows.filter(pc.equal(rows["counts"], layout.name))
        keys = _keys_of(part, layout, names)
        if layout.name == "timeline":
            counts.interval = _coarsen(keys, _integers(part, "interval_ns", layout), counts.interval, interval)
        _add(counts, layout, keys, part)
    for name, topic_id in _told(counts):
        names.topic_names[topic_id] = name
    counts.finish()
    return counts, names


def _keys_of(part: pa.Table, layout: _Layout, names: NameTable) -> Array:
    keys = np.empty((len(part), len(layout.keys)), np.int64)
    readers: dict[str, Callable[[str], int]] = {
        **dict.fromkeys(_STRINGS, lambda text: names.string(unescape(text))),
        **dict.fromkeys(_ADDRESSES, names.address),
        "topic_id": lambda text: names.string(topic_id_bytes(text)),
        "kind": RESULT_KINDS.index,
    }
    for i, name in enumerate(layout.keys):
        if name not in readers:
            keys[:, i] = _integers(part, name, layout)
            continue
        encoded = part[name].combine_chunks().dictionary_encode()
        numbers = [readers[name](text) for text in encoded.dictionary.to_pylist()]
        keys[:, i] = np.array([*numbers, -1], np.int64)[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return keys


def _integers(part: pa.Table, name: str, layout: _Layout) -> Array:
    column = part[name]
    if column.null_count:
        raise ValueError(f"counts: a row of {layout.name} has no {name}")
    numbers: Array = column.cast("int64").to_numpy()
    return numbers


def _coarsen(keys: Array, intervals: Array, shortest: int, asked: int | None) -> int:
    """Number the intervals of `keys` anew by the coarsest of all; return that, ns."""
    coarsest = max([shortest, *np.unique(intervals).tolist()])
    if asked is not None and coarsest != asked:
        raise ValueError(f"counts: rows by {coarsest} ns cannot be counted by {asked} ns")
    if (intervals <= 0).any() or (coarsest % intervals).any():
        raise ValueError(f"counts: not all intervals fit into {coarsest} ns")
    keys[:, 0] //= coarsest // intervals
    return int(coarsest)


def _add(counts: ReportCounts, layout: _Layout, keys: Array, part: pa.Table) -> None:
    """Add rows to a table and its histograms."""
    import pyarrow.compute as pc

    table: CountTable = getattr(counts, layout.name)
    measures = [*layout.values, *(m + HISTOGRAM for m in tally.METRICS if layout.histograms)]
    encoded = part["measure"].combine_chunks().dictionary_encode()
    wrong = set(encoded.dictionary.to_pylist()) - set(measures)
    if wrong:
        raise ValueError(f"counts: {layout.name} have no measure {min(map(repr, wrong))}")
    index = [measures.index(text) for text in encoded.dictionary.to_pylist()]
    measure = np.array([*index, -1], np.int64)[encoded.indices.to_numpy()]
    number = pc.coalesce(*(part[name] for name, _ in ADDED_BY.values())).fill_null(0).to_numpy()
    bucket = part["bucket"].cast("int64").fill_null(-1).to_numpy()
    counted = measure >= table.columns
    if (counted != (bucket >= 0)).any() or (bucket >= BUCKETS).any():
        raise ValueError(f"counts: a row of {layout.name} has a wrong bucket")
    for start in range(0, len(keys), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        values = np.tile(table.empty, (len(keys[some]), 1))
        plain = np.flatnonzero(~counted[some])
        values[plain, measure[some][plain]] = number[some][plain]
        table.add(keys[some], values)
    if layout.histograms is not None:
        owners = table.find(keys[counted])
        low = (measure[counted] - table.columns) << BUCKET_BITS | bucket[counted]
        getattr(counts, layout.histograms).add(owners << OWNER_SHIFT | low, number[counted])


def _told(counts: ReportCounts) -> Iterator[tuple[int, int]]:
    """(topic, topic id) of keys that have both, in an order that depends on nothing else."""
    for table, columns in ((counts.topics, tally.TOPIC_KEY), (counts.errors, tally.ERROR_KEY)):
        both = table.key_rows()[:, [columns.index("topic"), columns.index("topic_id")]]
        yield from np.unique(both[(both >= 0).all(axis=1)], axis=0).tolist()
