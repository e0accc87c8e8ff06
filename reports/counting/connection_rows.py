"""Convert `ConnectionCounts` to plain rows that can be added up, and back.

As in `count_rows`, a row has one number of one key, keys are values, and strings from the wire are escaped. `measure`
names a value of `connection_counts.VALUES`, or is RTTS: then the row counts round trips of a `bucket`. A number is in
`added` or, for maxima, in `highest`. Rows of the TLS table have measures with the prefix `tls.`, and keys of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..batch import ADDRESS_COLUMNS, Array, Names
from ..connection_words import DECRYPTIONS, P_TLS, PROTOCOLS
from ..table_columns import TableColumn
from ..tables import arrow_schema
from .connection_counts import KEY, TLS_KEY, TLS_VALUES, VALUES, ConnectionCounts
from .count_rows import NameTable, escape, unescape
from .count_table import EMPTY, MAX
from .histogram import BUCKETS, OWNER_SHIFT

if TYPE_CHECKING:
    import pyarrow as pa

RTTS = "rtts"
#: What the measures of the TLS table begin with.
_TLS = "tls."
_TLS_TEXTS = ("tls_decryption", "broker_ip", "tls_server_certificate")
_TLS_NUMBERS = ("tls_alert", "tls_alert_by", "tls_server_certificate_end")
COLUMNS = (
    *(TableColumn(name, "string", nullable=name != "protocol") for name in KEY),
    *(TableColumn(name, "string", nullable=True) for name in _TLS_TEXTS),
    *(TableColumn(name, "int64", nullable=True) for name in _TLS_NUMBERS),
    TableColumn("measure", "string"),
    TableColumn("bucket", "int16", nullable=True),
    TableColumn("added", "int64", nullable=True),
    TableColumn("highest", "int64", nullable=True),
)
#: Keys whose numbers are words.
_WORDS = {"protocol": PROTOCOLS, "tls_decryption": DECRYPTIONS}
_KEYS = [column.name for column in COLUMNS[:-2]]
_MEASURES = (*VALUES, RTTS)


def rows_of_connections(counts: ConnectionCounts, names: Names) -> pa.Table:
    """The rows of some counts, in no order. `names`: the meaning of the numbers in them."""
    import pyarrow as pa

    values = counts.table.value_rows()
    row, measure = np.nonzero(values != counts.table.empty)
    owner, bucket, times = counts.rtts.of(0)
    number = np.concatenate((values[row, measure], times))
    is_rtt = np.arange(len(number)) >= len(row)
    row, measure = np.concatenate((row, owner)), np.concatenate((measure, np.full(len(owner), len(VALUES))))
    ops = np.array([*VALUES.values(), -1])[measure]
    buckets = np.concatenate((np.zeros(len(number) - len(bucket), np.int64), bucket))
    keys = counts.table.key_rows()
    made = {name: _texts(name, keys[:, i], names).take(pa.array(row)) for i, name in enumerate(KEY)}
    made |= {
        "measure": pa.array(_MEASURES).take(pa.array(measure)),
        "bucket": pa.array(buckets.astype(np.int16), mask=~is_rtt),
        "added": pa.array(number, mask=ops == MAX),
        "highest": pa.array(number, mask=ops != MAX),
    }
    schema = arrow_schema(COLUMNS)
    plain = _with_nulls(made, len(row))
    return pa.concat_tables([plain, _rows_of_tls(counts, names)]).combine_chunks().cast(schema)


def _rows_of_tls(counts: ConnectionCounts, names: Names) -> pa.Table:
    """The rows of the TLS table."""
    import pyarrow as pa

    keys, values = counts.tls.key_rows(), counts.tls.value_rows()
    row, measure = np.nonzero(values)
    made: dict[str, Any] = {
        "protocol": pa.array([PROTOCOLS[P_TLS]]).take(pa.array(np.zeros(len(row), np.int64))),
        "measure": pa.array([_TLS + name for name in TLS_VALUES]).take(pa.array(measure)),
        "added": pa.array(values[row, measure]),
    }
    for i, name in enumerate(TLS_KEY):
        column = keys[row, i]
        made[name] = pa.array(column) if name in _TLS_NUMBERS else _texts(name, column, names)
    return _with_nulls(made, len(row))


def _with_nulls(made: dict[str, Any], count: int) -> pa.Table:
    """A table of all columns, with nulls in those that are not there."""
    import pyarrow as pa

    schema = arrow_schema(COLUMNS)
    columns = [made[name] if name in made else pa.nulls(count, schema.field(name).type) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def sum_connection_rows(tables: Iterable[pa.Table]) -> pa.Table:
    """The sums of rows: one row for each key, measure and bucket."""
    import pyarrow as pa

    schema = arrow_schema(COLUMNS)
    rows = pa.concat_tables([schema.empty_table(), *tables])
    sums = rows.group_by(_KEYS, use_threads=False).aggregate([("added", "sum"), ("highest", "max")])
    return sums.rename_columns([*_KEYS, "added", "highest"]).select(schema.names).cast(schema)


def connection_counts_of_rows(rows: pa.Table, names: NameTable) -> ConnectionCounts:
    """The counts that rows add up to. Their strings and addresses are added to `names`."""
    import pyarrow.compute as pc

    counts = ConnectionCounts()
    is_tls = pc.starts_with(rows["measure"], _TLS)
    _add_tls(counts, rows.filter(is_tls), names)
    rows = rows.filter(pc.invert(is_tls))
    keys = np.stack([_numbers(name, rows[name], names) for name in KEY], axis=1)
    measure = _encoded(rows["measure"], _MEASURES.index)
    bucket = rows["bucket"].cast("int64").fill_null(-1).to_numpy()
    added, highest = (rows[name].fill_null(0).to_numpy() for name in ("added", "highest"))
    is_rtt = measure == len(VALUES)
    if (is_rtt != (bucket >= 0)).any() or (bucket >= BUCKETS).any():
        raise ValueError("counts: a row of connections has a wrong bucket")
    plain = np.flatnonzero(~is_rtt)
    values = np.tile(np.array([EMPTY[op] for op in VALUES.values()], np.int64), (len(plain), 1))
    is_highest = np.array([op == MAX for op in VALUES.values()])[measure[plain]]
    values[np.arange(len(plain)), measure[plain]] = np.where(is_highest, highest[plain], added[plain])
    counts.table.add(keys[plain], values)
    owners = counts.table.find(keys[is_rtt])
    counts.rtts.add(owners << OWNER_SHIFT | bucket[is_rtt], added[is_rtt])
    return counts


def _add_tls(counts: ConnectionCounts, rows: pa.Table, names: NameTable) -> None:
    """Add rows of the TLS table to some counts."""
    columns = []
    for name in TLS_KEY:
        column = rows[name]
        is_number = name in _TLS_NUMBERS
        columns.append(column.fill_null(-1).to_numpy() if is_number else _numbers(name, column, names))
    measure = _encoded(rows["measure"], [_TLS + name for name in TLS_VALUES].index)
    values = np.zeros((rows.num_rows, len(TLS_VALUES)), np.int64)
    values[np.arange(len(measure)), measure] = rows["added"].fill_null(0).to_numpy()
    counts.tls.add(np.stack(columns, axis=1).astype(np.int64), values)


def _texts(name: str, numbers: Array, names: Names) -> Any:
    import pyarrow as pa

    distinct, inverse = np.unique(numbers, return_inverse=True)
    return pa.array([_text(name, n, names) for n in distinct.tolist()], pa.string()).take(pa.array(inverse))


def _text(name: str, number: int, names: Names) -> str | None:
    if name in _WORDS:
        return _WORDS[name][number]
    if number < 0:
        return None
    return names.addresses[number] if name in ADDRESS_COLUMNS else escape(names.strings[number])


def _numbers(name: str, column: Any, names: NameTable) -> Array:
    if name in _WORDS:
        return _encoded(column, _WORDS[name].index)
    if name in ADDRESS_COLUMNS:
        return _encoded(column, names.address)
    return _encoded(column, lambda text: names.string(unescape(text)))


def _encoded(column: Any, number_of: Any) -> Array:
    """The number of each text, -1 for null."""
    encoded = column.combine_chunks().dictionary_encode()
    numbers = np.array([*map(number_of, encoded.dictionary.to_pylist()), -1], np.int64)
    found: Array = numbers[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return found
