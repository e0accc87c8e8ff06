"""The tables of the library: the declaration of their columns, and functions that make them from rows.

`TABLES` has the columns of each. Arrow, pandas, Spark and Delta schemas are derived from it (`arrow_schema`), and the
rows of docs/tables.md.
Each distinct string is decoded once, not once for each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.dtypes import LIST_ERRORS, LIST_STRING
from kafkatap.kernels.arrays import is_new
from kafkatap.kernels.column_spec import ColumnSpec

from .arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from .batch import Array, Context, rows_of, uuid_text
from .connection_columns import CONNECTIONS, decryptions
from .expressions.exchange_columns import began_at
from .row_columns import arrow_column, words
from .table_columns import FILES, LEDGER, LIST_BUCKETS, LIST_HEADERS, RECORDS, TIME, TIME_MS, Declared

EXCHANGES = tuple(column for column in r.EXCHANGE_COLUMNS if column.in_table)
RESULTS = r.RESULT_COLUMNS
TABLES: Mapping[str, Sequence[Declared]] = {
    "exchanges": EXCHANGES,
    "results": RESULTS,
    "connections": CONNECTIONS,
    "files": FILES,
    "ledger": LEDGER,
    "records": RECORDS,
}


def arrow_type(name: str) -> Any:
    """The pyarrow type of one of the declared types."""
    import pyarrow as pa

    if name == TIME:
        return pa.timestamp("ns", "UTC")
    if name == LIST_ERRORS:
        fields = [pa.field("code", pa.int16(), nullable=False), pa.field("count", pa.int32(), nullable=False)]
        return pa.list_(pa.field("item", pa.struct(fields), nullable=False))
    if name == TIME_MS:
        return pa.timestamp("ms", "UTC")
    if name == LIST_HEADERS:
        fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
        return pa.list_(pa.field("item", pa.struct(fields), nullable=False))
    if name == LIST_BUCKETS:
        fields = [pa.field("le", pa.int64(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
        return pa.list_(pa.field("item", pa.struct(fields), nullable=False))
    if name == LIST_STRING:
        return pa.list_(pa.field("item", pa.string(), nullable=False))
    return pa.type_for_alias(name)


def arrow_schema(columns: Sequence[Declared]) -> Any:
    """The pyarrow schema of a declared table."""
    import pyarrow as pa

    return pa.schema([pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in columns])


class Texts:
    """The strings, addresses and topic names of a Context as Arrow arrays, decoded once."""

    def __init__(self, context: Context) -> None:
        self.strings = arrow_texts([None if s is None else s.decode("utf-8", "replace") for s in context.strings])
        self._addresses = arrow_texts([*context.addresses, ""])
        self._raw = context.strings
        self._context = context
        known = context.topic_names
        self._topic_of_id: Array = np.full(len(context.strings) + 1, -1, np.int64)  # the last entry is for -1
        for number, name in known.items():
            self._topic_of_id[number] = name

    def string(self, numbers: Array) -> Any:
        """The strings of numbers, null for -1: int (n,) -> pa.Array."""
        return _taken(self.strings, numbers)

    def address(self, numbers: Array, or_null: bool = False) -> Any:
        """The addresses of numbers; for -1 "", or null in a column that may be null."""
        if or_null:
            return self._addresses.take(arrow_indices(numbers, numbers < 0))
        last = len(self._addresses) - 1
        return self._addresses.take(arrow_indices(np.where(numbers < 0, last, numbers)))

    def host(self, numbers: Array, at: Array) -> Any:
        """The names of addresses at times (ns since the epoch), null where there is none."""
        hosts = self._context.hosts
        if hosts is None:
            return arrow_texts([""]).take(arrow_indices(np.zeros(len(numbers), np.int64), np.ones(len(numbers), bool)))
        found = hosts.numbers(numbers, at, self._context.addresses)
        return _taken(arrow_texts([name.text for name in hosts.names] or [""]), found)

    def hosts(self, rows: Array, at: Array) -> dict[str, Any]:
        """The columns with the names of both ends of rows."""
        return {f"{end}_host": self.host(rows[f"{end}_ip"], at) for end in ("client", "broker")}

    def topic_id(self, numbers: Array) -> Any:
        """Topic ids in Kafka's 22-character form, null for -1."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        texts = [uuid_text(self._raw[n]) if n >= 0 else None for n in distinct.tolist()]
        return arrow_texts(texts).take(arrow_indices(inverse))

    def topic(self, topic: Array, topic_id: Array) -> Any:
        """The names of topics, or else the text of their ids, or else null."""
        import pyarrow.compute as pc

        names, ids = self.known_topic(topic, topic_id)
        return pc.coalesce(self.string(names), self.topic_id(ids))

    def known_topic(self, topic: Array, topic_id: Array) -> tuple[Array, Array]:
        """For each topic the number of its name, or else the number of its id. The other number is -1."""
        names = np.where(topic >= 0, topic, self._topic_of_id[topic_id]).astype(np.int64)
        return names, np.where(names < 0, topic_id, -1).astype(np.int64)


def _taken(values: Any, numbers: Array) -> Any:
    return values.take(arrow_indices(numbers, numbers < 0))


def masked(values: Array, kind: str, missing: Array | None = None) -> Any:
    """Values as an Arrow array of a declared type, null where `missing` is true."""
    return arrow_numbers(values, arrow_type(kind), missing)


def exchanges_table(exchanges: Array, errors: Array, topics: Sequence[Array], context: Context) -> Any:
    """The table `exchanges` from EXCHANGE (n,) and ERROR_COUNT rows, in the order of `exchanges`.

    `errors`: ascending by code within an exchange, with exchanges in any order. `topics`: the sources of topics,
    EXCHANGE_TOPIC or RESULT rows.
    """
    from kafkatap.dissector.layouts.catalog import api_name

    e, texts = exchanges, Texts(context)
    api_keys, inverse = np.unique(e["api_key"], return_inverse=True)
    names = [api_name(k) for k in api_keys.tolist()]
    columns = {
        "api_name": words(names, inverse, e["outcome"] == r.ORPHAN_RESPONSE),
        "errors": _error_lists(e["exchange"], errors),
        "topics": _topic_lists(e["exchange"], topics, texts),
        **texts.hosts(e, began_at(e)),
    }
    return _table(EXCHANGES, columns, e, texts)


def _table(declared: Sequence[ColumnSpec], columns: dict[str, Any], rows: Array, texts: Texts) -> Any:
    """A table of rows. `columns`: those that are made of other rows."""
    import pyarrow as pa

    arrays = [
        columns[c.name] if c.name in columns else arrow_column(c, rows, texts, arrow_type(c.type)) for c in declared
    ]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(declared))


def _offsets(exchange: Array, owner: Array) -> tuple[Array, Array]:
    """The order that groups items by exchange, in the order of `exchange`, and the list offsets, int32 (n + 1,).

    `owner`: the exchange of each item. Items of other exchanges are left out."""
    by_number = np.argsort(exchange, kind="stable")
    if len(exchange) == 0:
        return np.zeros(0, np.int64), np.zeros(1, np.int32)
    at = np.minimum(np.searchsorted(exchange[by_number], owner), len(exchange) - 1)
    row = by_number[at]
    kept = np.flatnonzero(exchange[row] == owner)
    order = kept[np.argsort(row[kept], kind="stable")]
    lengths = np.bincount(row[kept], minlength=len(exchange))
    return order, np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def _error_lists(exchange: Array, errors: Array) -> Any:
    import pyarrow as pa

    order, offsets = _offsets(exchange, errors["exchange"])
    kind = arrow_type(LIST_ERRORS)
    values = [
        arrow_numbers(errors["code"][order], pa.int16()),
        arrow_numbers(errors["count"][order], pa.int32()),
    ]
    fields = [kind.value_type.field(i) for i in range(2)]
    return pa.ListArray.from_arrays(
        arrow_numbers(offsets, pa.int32()), pa.StructArray.from_arrays(values, fields=fields), type=kind
    )


def _topic_lists(exchange: Array, sources: Sequence[Array], texts: Texts) -> Any:
    """The distinct topics of each exchange, in the order of their first row."""
    import pyarrow as pa

    owner, topic, topic_id = (np.concatenate([s[name] for s in sources]) for name in ("exchange", "topic", "topic_id"))
    rows = np.stack((*texts.known_topic(topic, topic_id), owner), axis=1)[(topic >= 0) | (topic_id >= 0)]
    rows = rows[is_new(rows)]  # most follow one of the same topic
    same = np.lexsort(rows.T)  # a stable sort, so the first of equal topics comes first
    names, ids, owner = rows[np.sort(same[is_new(rows[same])])].T
    order, offsets = _offsets(exchange, owner)
    topics = texts.topic(names[order], ids[order])
    return pa.ListArray.from_arrays(arrow_numbers(offsets, pa.int32()), topics, type=arrow_type(LIST_STRING))


def results_table(results: Array, exchanges: Array, context: Context) -> Any:
    """The table `results` from RESULT rows. `exchanges`: the EXCHANGE rows that they belong to, in any order."""
    x, texts = results, Texts(context)
    keys = exchanges["key"][rows_of(exchanges["exchange"], x["exchange"])]
    columns = {
        "exchange": masked(keys, "int64"),
        "topic": texts.topic(x["topic"], np.where(_has_name(x, context), x["topic_id"], -1)),
    }
    return _table(RESULTS, columns, x, texts)


def _has_name(results: Array, context: Context) -> Array:
    known = np.zeros(len(context.strings) + 1, bool)
    known[list(context.topic_names)] = True
    answer: Array = known[results["topic_id"]]
    return answer


def connections_table(connections: Array, context: Context) -> Any:
    """The table `connections` from CONNECTION_ROW rows."""
    rows = connections.copy()
    rows["tls_decryption"] = decryptions(connections)
    texts = Texts(context)
    return _table(CONNECTIONS, texts.hosts(rows, rows["first"]), rows, texts)


def files_table(context: Context) -> Any:
    """The table `files`."""
    import pyarrow as pa

    made = {}
    for column in FILES:
        values = [getattr(f, column.name) for f in context.files]
        if column.type == LIST_STRING:
            offsets = np.cumsum([0, *map(len, values)])
            texts = arrow_texts([text for texts in values for text in texts])
            kind = arrow_type(LIST_STRING)
            made[column.name] = pa.ListArray.from_arrays(arrow_numbers(offsets, pa.int32()), texts, type=kind)
        elif column.type == "string":
            made[column.name] = arrow_texts(values)
        else:
            numbers = np.array([0 if value is None else value for value in values], np.int64)
            missing = np.array([value is None for value in values], bool)
            made[column.name] = masked(numbers, column.type, missing)
    return pa.Table.from_arrays([made[c.name] for c in FILES], schema=arrow_schema(FILES))


def ledger_table(context: Context) -> Any:
    """The table `ledger`: one row for each part, including the totals."""
    import pyarrow as pa

    rows = [(section, part, n) for section, parts in context.ledger.items() for part, n in parts.items()]
    sections, names, counts = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [arrow_texts(sections), arrow_texts(names), masked(np.array(counts, np.int64), "int64")]
    return pa.Table.from_arrays(columns, schema=arrow_schema(LEDGER))
