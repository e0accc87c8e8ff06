"""Convert `ReportCounts` to plain rows that any SQL engine can add up, and back.

A row has one number of one key. `counts` names the table (groups, topics, timeline, errors). `measure` names the value
(the names in `tally`). The number is in one of three columns, depending on how it is added up. One statement adds the
rows of any number of runs:

    SELECT <KEYS>, SUM(added) AS added, MIN(lowest) AS lowest, MAX(highest) AS highest FROM rows GROUP BY <KEYS>

Keys are values, because numbers of strings differ from run to run. Strings from the wire are UTF-8. Backslashes are
doubled, and each byte that is not UTF-8 is \\xNN, so that `unescape` restores every string. Topic ids have Kafka's
form. A column is null if the key of the table does not have it, or if the string was null on the wire.

`<metric>_histogram` counts values by `bucket` (`histogram.bucket_of`). `interval_number` counts intervals of
`interval_ns` since the epoch. Runs can have different intervals; `counts_of_rows` takes the longest. A topic id has its
name beside it if the run knows the name. Rows with both name the ids in rows without.

Zeros have no row, but each key has at least one row. `counts_of_rows` also reads rows that are not added up yet.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import RESULT_KINDS
from kafkatap.kernels.arrays import distinct_values

from ..batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Names, uuid_text
from ..table_columns import TableColumn
from ..tables import arrow_schema
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
    "client_port": "int32",
    "topic": "string",
    "topic_id": "string",
    "error_code": "int16",
    "kind": "string",
    "name": "string",
}
COLUMNS = (
    TableColumn("counts", "string"),
    *(TableColumn(name, kind, nullable=True) for name, kind in _KEY_TYPES.items()),
    TableColumn("measure", "string"),
    TableColumn("bucket", "int16", nullable=True),
    TableColumn("added", "int64", nullable=True),
    TableColumn("lowest", "int64", nullable=True),
    TableColumn("highest", "int64", nullable=True),
)
#: The columns of GROUP BY when rows are added up.
KEYS = tuple(c.name for c in COLUMNS[:-3])
#: For each way of adding: the column of the number, and the SQL function.
ADDED_BY = {SUM: ("added", "sum"), MIN: ("lowest", "min"), MAX: ("highest", "max")}
HISTOGRAM = "_histogram"

#: Number of rows that are added in one step.
_AT_ONCE = 1 << 16
_ESCAPE = re.compile(rb"\\(\\|x[0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class _CountedTable:
    """A table of `ReportCounts`: its attribute, its key columns (as columns of rows), its values, its histograms."""

    name: str
    keys: tuple[str, ...]
    values: Mapping[str, int]
    histograms: str | None = None


_TABLES = (
    _CountedTable("groups", tally.GROUP_KEY, tally.GROUP_VALUES, "histograms"),
    _CountedTable("topics", tally.TOPIC_KEY, tally.GROUP_VALUES, "topic_histograms"),
    _CountedTable("timeline", ("interval_number", "api_key"), tally.TIMELINE_VALUES, "timeline_histograms"),
    _CountedTable("errors", tally.ERROR_KEY, tally.ERROR_VALUES),
)


class NameTable:
    """Numbers for strings and addresses, and the names of topic ids: the `Names` of counts that are read from rows."""

    def __init__(self) -> None:
        self.strings: list[bytes | None] = []
        self.addresses: list[str] = []
        self.topic_names: dict[int, int] = {}
        self._strings: dict[bytes, int] = {}
        self._addresses: dict[str, int] = {}

    def string(self, value: bytes | None) -> int:
        """The number of a string, -1 for null."""
        if value is None:
            return -1
        number = self._strings.setdefault(value, len(self.strings))
        if number == len(self.strings):
            self.strings.append(value)
        return number

    def address(self, value: str | None) -> int:
        """The number of an address, -1 for none."""
        if not value:
            return -1
        number = self._addresses.setdefault(value, len(self.addresses))
        if number == len(self.addresses):
            self.addresses.append(value)
        return number

    def name_topic(self, topic_id: bytes, name: bytes) -> None:
        """Set the name of a topic id. A later name replaces an earlier one."""
        self.topic_names[self.string(topic_id)] = self.string(name)


def escape(value: bytes | None) -> str | None:
    """A string from the wire as text. `unescape` restores its bytes."""
    return None if value is None else value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def unescape(text: str) -> bytes:
    raw = text.encode()
    return _ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes((int(m[1][1:], 16),)), raw) if b"\\" in raw else raw


def topic_id_bytes(text: str) -> bytes:
    """A topic id from Kafka's 22-character form. What `uuid_text` leaves as it is, stays: the name in place of ids
    beyond a limit."""
    return urlsafe_b64decode(f"{text}==") if len(text) == 22 else text.encode()


def rows_of_counts(counts: ReportCounts, names: Names) -> pa.Table:
    """The rows of some counts, in no order. Calls `finish`. `names`: the meaning of the numbers in the counts."""
    import pyarrow as pa

    counts.finish()
    tables = [_rows_of_table(counts, form, names) for form in _TABLES]
    return pa.concat_tables(tables)


def _rows_of_table(counts: ReportCounts, form: _CountedTable, names: Names) -> pa.Table:
    import pyarrow as pa

    table: CountTable = getattr(counts, form.name)
    row, measure, bucket, number, column = _numbers(table, form, counts)
    keys = table.key_rows()
    made: dict[str, Any] = {
        "counts": pa.array([form.name], pa.string()).take(pa.array(np.zeros(len(row), np.int8))),
        "measure": pa.array([*form.values, *(m + HISTOGRAM for m in tally.METRICS)]).take(pa.array(measure)),
        "bucket": pa.array(bucket.astype(np.int16), mask=bucket < 0),
    }
    for op, (name, _) in ADDED_BY.items():
        made[name] = pa.array(number, mask=column != op)
    for i, name in enumerate(form.keys):
        made[name] = _shown(name, keys, i, form.keys, names).take(pa.array(row))
    if form.name == "timeline":
        made["interval_ns"] = pa.array(np.full(len(row), counts.interval, np.int64))
    schema = arrow_schema(COLUMNS)
    arrays = [made[f.name] if f.name in made else pa.nulls(len(row), f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _numbers(table: CountTable, form: _CountedTable, counts: ReportCounts) -> tuple[Array, Array, Array, Array, Array]:
    """(row of the table, measure, bucket or -1, number, way of adding) for each number that is not zero: int64 (n,)."""
    values = table.value_rows()
    filled = values != table.empty
    filled[~filled.any(axis=1), 0] = True
    row, measure = np.nonzero(filled)
    bucket, number, op = np.full(len(row), -1), values[row, measure], table.ops[measure]
    if form.histograms is not None:
        h: Histograms = getattr(counts, form.histograms)
        h.merge_noted()
        metric = (h.keys >> BUCKET_BITS) & 0xFF
        row = np.concatenate((row, h.keys >> OWNER_SHIFT))
        measure = np.concatenate((measure, len(form.values) + metric))
        bucket = np.concatenate((bucket, h.keys & (BUCKETS - 1)))
        number = np.concatenate((number, h.counts))
        op = np.concatenate((op, np.full(len(h.keys), SUM, np.uint8)))
    return row, measure, bucket, number, op


def _shown(name: str, keys: Array, column: int, columns: Sequence[str], names: Names) -> Any:
    """The values of a key column."""
    import pyarrow as pa

    numbers = keys[:, column]
    if name == "topic":
        topic_id = keys[:, columns.index("topic_id")]
        ids, inverse = np.unique(topic_id, return_inverse=True)
        known = np.array([names.topic_names.get(n, -1) for n in ids.tolist()], np.int64)
        numbers = np.where(numbers >= 0, numbers, known[inverse])
    if name in STRING_COLUMNS or name in ADDRESS_COLUMNS or name == "kind":
        distinct, inverse = np.unique(numbers, return_inverse=True)
        texts = [_text(name, n, names) for n in distinct.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(inverse))
    return pa.array(numbers).cast(pa.type_for_alias(_KEY_TYPES[name]))


def _text(name: str, number: int, names: Names) -> str | None:
    if number < 0:
        return None
    if name == "kind":
        return RESULT_KINDS[number]
    if name in ADDRESS_COLUMNS:
        return names.addresses[number]
    value = names.strings[number]
    return uuid_text(value) if name == "topic_id" else escape(value)


def counts_of_rows(
    rows: pa.Table, *, by_topic: bool = False, interval: int | None = None
) -> tuple[ReportCounts, NameTable]:
    """The counts that rows add up to, and the meaning of the numbers in them.

    `rows`: COLUMNS in any order; other columns are ignored. `by_topic`, `interval`: options of the counts. An interval
    (ns) can also be a multiple of the interval of the rows.
    ValueError for unknown names, nulls in keys, and intervals that do not fit each other.
    """
    import pyarrow.compute as pc

    schema = arrow_schema(COLUMNS)
    rows = rows.select(schema.names).cast(schema)
    unknown = set(pc.unique(rows["counts"]).to_pylist()) - {form.name for form in _TABLES}
    if unknown:
        raise ValueError(f"counts: there is no table {min(map(repr, unknown))}")
    counts, names = ReportCounts(by_topic=by_topic, interval=interval), NameTable()
    for form in _TABLES:
        part = rows.filter(pc.equal(rows["counts"], form.name))
        keys = _keys_of(part, form, names)
        if form.name == "timeline":
            counts.interval = _coarsen(keys, _integers(part, "interval_ns", form), counts.interval, interval)
        _add(counts, form, keys, part)
    for name, topic_id in _topics_with_ids(counts):
        names.topic_names[topic_id] = name
    counts.finish()
    return counts, names


def _keys_of(part: pa.Table, form: _CountedTable, names: NameTable) -> Array:
    keys = np.empty((len(part), len(form.keys)), np.int64)
    readers: dict[str, Callable[[str], int]] = {
        **dict.fromkeys(STRING_COLUMNS, lambda text: names.string(unescape(text))),
        **dict.fromkeys(ADDRESS_COLUMNS, names.address),
        "topic_id": lambda text: names.string(topic_id_bytes(text)),
        "kind": RESULT_KINDS.index,
    }
    for i, name in enumerate(form.keys):
        if name not in readers:
            keys[:, i] = _integers(part, name, form)
            continue
        encoded = part[name].combine_chunks().dictionary_encode()
        numbers = [readers[name](text) for text in encoded.dictionary.to_pylist()]
        keys[:, i] = np.array([*numbers, -1], np.int64)[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return keys


def _integers(part: pa.Table, name: str, form: _CountedTable) -> Array:
    column = part[name]
    if column.null_count:
        raise ValueError(f"counts: a row of {form.name} has no {name}")
    numbers: Array = column.cast("int64").to_numpy()
    return numbers


def _coarsen(keys: Array, intervals: Array, shortest: int, chosen: int | None) -> int:
    """Renumber the intervals of `keys` by the longest interval of all. Return that interval, ns."""
    coarsest = max([shortest, *distinct_values(intervals).tolist()])
    if chosen is not None and coarsest != chosen:
        raise ValueError(f"counts: rows by {coarsest} ns cannot be counted by {chosen} ns")
    if (intervals <= 0).any() or (coarsest % intervals).any():
        raise ValueError(f"counts: not all intervals fit into {coarsest} ns")
    keys[:, 0] //= coarsest // intervals
    return int(coarsest)


def _add(counts: ReportCounts, form: _CountedTable, keys: Array, part: pa.Table) -> None:
    """Add rows to a table and to its histograms."""
    import pyarrow.compute as pc

    table: CountTable = getattr(counts, form.name)
    measures = [*form.values, *(m + HISTOGRAM for m in tally.METRICS if form.histograms)]
    encoded = part["measure"].combine_chunks().dictionary_encode()
    wrong = set(encoded.dictionary.to_pylist()) - set(measures)
    if wrong:
        raise ValueError(f"counts: {form.name} have no measure {min(map(repr, wrong))}")
    index = [measures.index(text) for text in encoded.dictionary.to_pylist()]
    measure = np.array([*index, -1], np.int64)[encoded.indices.to_numpy()]
    number = pc.coalesce(*(part[name] for name, _ in ADDED_BY.values())).fill_null(0).to_numpy()
    bucket = part["bucket"].cast("int64").fill_null(-1).to_numpy()
    counted = measure >= table.columns
    if (counted != (bucket >= 0)).any() or (bucket >= BUCKETS).any():
        raise ValueError(f"counts: a row of {form.name} has a wrong bucket")
    for start in range(0, len(keys), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        values = np.tile(table.empty, (len(keys[some]), 1))
        plain = np.flatnonzero(~counted[some])
        values[plain, measure[some][plain]] = number[some][plain]
        table.add(keys[some], values)
    if form.histograms is not None:
        owners = table.find(keys[counted])
        low = (measure[counted] - table.columns) << BUCKET_BITS | bucket[counted]
        getattr(counts, form.histograms).add(owners << OWNER_SHIFT | low, number[counted])


def _topics_with_ids(counts: ReportCounts) -> Iterator[tuple[int, int]]:
    """(topic, topic id) of the keys that have both, in a fixed order."""
    for table, columns in ((counts.topics, tally.TOPIC_KEY), (counts.errors, tally.ERROR_KEY)):
        both = table.key_rows()[:, [columns.index("topic"), columns.index("topic_id")]]
        yield from distinct_values(both[(both >= 0).all(axis=1)], axis=0).tolist()
