"""The rollup of a lake: the rows of `HourCounts` as tables, and back.

A row has the counts of one capture and one UTC hour. Rows add up: sums by addition, maxima and minima as such, and
histograms by adding the counts of equal buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES, RESOURCE_DOC, RESULT_KINDS, TOPIC_DOC
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.layouts.catalog import api_name

from .arrow_arrays import arrow_numbers
from .batch import Array, Context
from .connection_words import PROTOCOLS
from .counting.connection_counts import CONNECTIONS
from .counting.count_forms import ADDRESS, TEXT, CountForm, FormCounts
from .counting.count_table import EMPTY, MIN, SUM
from .counting.counts import ERRORS, GROUPS
from .counting.histogram import buckets, keys_of, largest
from .counting.hour_counts import FURTHER, HOUR, HourCounts
from .row_columns import words
from .table_columns import LIST_BUCKETS, TIME, TableColumn
from .table_rows import int64_of, numbers_by_text, numbers_of_ids, numbers_of_texts
from .tables import Texts, arrow_schema, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

#: The form of each table.
FORMS: Mapping[str, CountForm] = {"rollup": GROUPS, "rollup_errors": ERRORS, "rollup_connections": CONNECTIONS}
#: Columns that have another name than the key of the form.
_NAMES = {"software": "client_software", "software_version": "client_software_version"}
#: Keys that are words by number.
_WORDS: Mapping[str, Sequence[str]] = {"kind": RESULT_KINDS, "protocol": PROTOCOLS}
#: Keys with -1 for null.
_NULLABLE = ("api_key", "api_version")
_TYPES = {
    "api_key": "int16", "api_version": "int16", "error_code": "int16", "broker_port": "int32", "long_poll": "bool",
    "first": TIME, "last": TIME,
}  # fmt: skip
#: Keys that reports of a lake do not have: 0.
_LEFT_OUT = ("client_port",)
_HOUR = TableColumn("hour", TIME, "begin of the UTC hour in which the requests or connections begin")
_HISTOGRAM = "histogram in ns: the number of values (`count`) in each bucket, and its largest (`le`)"
_HISTOGRAMS = {
    "throttle_time_ms": "the same in ms, of values above zero", "rtt": "histogram of these round trips, as in `rollup`",
}  # fmt: skip
_SUM_OF = "sum of this column of `exchanges`"
_SUM_OF_BYTES = "sum of this column of `exchanges`, without the bytes that were cut off"
_MAX_OF = "largest value in `exchanges`"
_DOCS = {
    "api_key": "number of the API; null for responses without a request",
    "api_version": "version of the API",
    "client_id": "client_id of the requests",
    "software": "client software (KIP-511)",
    "software_version": "client software (KIP-511)",
    "client_ip": "the client's address",
    "broker_ip": "the broker's address; null for rows that were added up",
    "broker_port": "the broker's port",
    "long_poll": "Fetches that waited for their whole max_wait_ms",
    "error_code": "the error code",
    "kind": "as in `results`",
    "topic": TOPIC_DOC,
    "topic_id": "id of the topic, if its name is unknown",
    "name": RESOURCE_DOC,
    "protocol": "as in `connections`",
    "tls_ja4": "JA4 of clients that do not name their software",
    **dict.fromkeys(OUTCOMES, "exchanges with this outcome"),
    "request_bytes": _SUM_OF_BYTES,
    "response_bytes": _SUM_OF_BYTES,
    "throttle_known": "responses with the field throttle_time_ms",
    "throttled": "responses with throttle_time_ms above zero",
    "throttle_time_ms": _SUM_OF,
    "throttle_time_ms_max": _MAX_OF,
    "broker_ns": _SUM_OF,
    "broker_max": _MAX_OF,
    "total_ns": _SUM_OF,
    "total_max": _MAX_OF,
    "hol_waits": "exchanges with a head-of-line wait",
    "hol_wait_ns": _SUM_OF,
    "hol_wait_max": _MAX_OF,
    "hol_throttle_wait_ns": _SUM_OF,
    "hol_poll_wait_ns": _SUM_OF,
    "hol_unknown_wait_ns": "part of `hol_wait_ns` behind requests whose throttle times were not captured",
    "hol_loss_wait_ns": _SUM_OF,
    "throttle_waits": "exchanges with a throttle wait",
    "throttle_wait_ns": _SUM_OF,
    "throttle_wait_max": _MAX_OF,
    "waiting_ns": _SUM_OF,
    "round_trip_ns": _SUM_OF,
    "hol_round_trip_ns": _SUM_OF,
    "loss_ns": _SUM_OF,
    "receiver_ns": _SUM_OF,
    "sender_ns": _SUM_OF,
    "nagle_ns": _SUM_OF,
    "path_ns": _SUM_OF,
    "unexplained_ns": _SUM_OF,
    "client_ns": "part of `receiver_ns` and `sender_ns` at the client's end",
    "failed_exchanges": "exchanges with at least one error code",
    "failed_ns": "sum of their total time, without waits for data and members",
    "error_codes": "non-zero error codes",
    "unknown_waits": "answered exchanges whose throttle_time_ms or max_wait_ms was not captured",
    "unknown_broker_ns": "part of `broker_ns` that may contain throttle waits or long polls",
    "client_closed": "requests without a response whose connection this end closed",
    "broker_closed": "requests without a response whose connection this end closed",
    "cut": "those that had not come whole then",
    "first": "time of the first and of the last",
    "last": "time of the first and of the last",
    "count": "number of these error codes",
    "packet": "packet in its run with the last byte of the first such response",
    "connections": "connections",
    "bytes": "TCP payload of both directions, without retransmissions",
    "retransmitted_bytes": "payload of every retransmission",
    "retransmitted_packets": "retransmitted packets",
    "spurious_retransmissions": "those that the other end did not need",
    "client_zero_windows": "how often clients closed their receive window",
    "gap_bytes": "payload that was not captured",
    "connections_with_gaps": "those with gaps",
    "one_sided": "those with packets of one direction only",
    "tls_connections": "those that use TLS",
    "rtt_max": "longest round trip of a handshake, ns",
}  # fmt: skip


class _Derived(NamedTuple):
    """A column that is made of others, and is not read back. `make`: its values, from the counts of the form."""

    column: TableColumn
    make: Callable[[FormCounts], Any]


def _named(key: str, name: Callable[[int], str], nullable: bool) -> Callable[[FormCounts], Any]:
    def make(counts: FormCounts) -> Any:
        numbers, codes = np.unique(counts.keys()[key], return_inverse=True)
        missing = numbers[codes] == -1 if nullable else None
        return words([name(number) for number in numbers.tolist()], codes, missing)

    return make


def _requests(counts: FormCounts) -> Any:
    values = counts.values()
    total = np.sum([values[name] for name in OUTCOMES[:ORPHAN_RESPONSE]], axis=0)
    return arrow_numbers(total.astype(np.int64), arrow_type("int64"))


#: By the key or value that they follow.
_DERIVED = {
    "api_key": _Derived(
        TableColumn("api_name", "string", "name of the API", True), _named("api_key", api_name, nullable=True)
    ),
    "error_code": _Derived(
        TableColumn("error_name", "string", "Kafka's name of the error code"),
        _named("error_code", error_name, nullable=False),
    ),
    OUTCOMES[ORPHAN_RESPONSE]: _Derived(
        TableColumn("requests", "int64", "requests: the sum of all outcomes but orphan_response"), _requests
    ),
}  # fmt: skip


def _keys(form: CountForm) -> Mapping[str, str]:
    """The keys of a table beside PLACE."""
    return {**FURTHER.get(form.name, {}), **form.keys}


def _columns(form: CountForm) -> tuple[TableColumn, ...]:
    found = [_HOUR]
    for key, kind in _keys(form).items():
        if key in _LEFT_OUT:
            continue
        is_text = kind in (TEXT, ADDRESS)
        type_ = "string" if is_text or key in _WORDS else _TYPES.get(key, "int64")
        found.append(TableColumn(_NAMES.get(key, key), type_, _DOCS[key], is_text or key in _NULLABLE))
        if key in _DERIVED:
            found.append(_DERIVED[key].column)
    for value, operation in form.values.items():
        found.append(TableColumn(value, _TYPES.get(value, "int64"), _DOCS[value], operation != SUM))
        if value in _DERIVED:
            found.append(_DERIVED[value].column)
    for metric in form.metrics:
        found.append(TableColumn(f"{metric}_histogram", LIST_BUCKETS, _HISTOGRAMS.get(metric, _HISTOGRAM)))
    return tuple(found)


#: The columns of each table.
ROLLUP_TABLES: Mapping[str, tuple[TableColumn, ...]] = MappingProxyType(
    {name: _columns(form) for name, form in FORMS.items()}
)
#: The column behind them in `rollup_table`.
_CAPTURE = TableColumn("capture", "int64")


def rollup_table(table: str, counts: HourCounts) -> pa.Table:
    """The rows of a table, with a column `capture` at the end."""
    import pyarrow as pa

    form, found = FORMS[table], counts[FORMS[table].name]
    keys, values = found.keys(), found.values()
    texts = Texts(Context(counts.names.strings, counts.names.addresses, counts.names.topic_names))
    columns = [arrow_numbers(keys["hour"] * HOUR, arrow_type(TIME))]
    for key, kind in _keys(form).items():
        if key in _LEFT_OUT:
            continue
        if key == "topic":
            columns.append(texts.topic(keys["topic"], keys["topic_id"]))
        elif key == "topic_id":
            columns.append(texts.topic_id(texts.known_topic(keys["topic"], keys["topic_id"])[1]))
        elif kind == TEXT:
            columns.append(texts.string(keys[key]))
        elif kind == ADDRESS:
            columns.append(texts.address(keys[key], or_null=True))
        elif key in _WORDS:
            columns.append(words(_WORDS[key], keys[key]))
        else:
            missing = keys[key] == -1 if key in _NULLABLE else None
            columns.append(_numbers(keys[key], _TYPES.get(key, "int64"), missing))
        if key in _DERIVED:
            columns.append(_DERIVED[key].make(found))
    for value, operation in form.values.items():
        numbers = values[value]
        missing = None if operation == SUM else (numbers < 0) | (numbers == EMPTY[MIN])
        columns.append(_numbers(numbers, _TYPES.get(value, "int64"), missing))
        if value in _DERIVED:
            columns.append(_DERIVED[value].make(found))
    columns += [_histograms(found, metric) for metric in form.metrics]
    columns.append(arrow_numbers(keys["capture"], pa.int64()))
    return pa.Table.from_arrays(columns, schema=arrow_schema([*ROLLUP_TABLES[table], _CAPTURE]))


def _numbers(numbers: Array, kind: str, missing: Array | None) -> Any:
    """Numbers as an Arrow array of a declared type, which are cut to it."""
    if kind not in ("bool", "int64", TIME):
        limits = np.iinfo(kind)
        numbers = np.clip(numbers, limits.min, limits.max).astype(kind)
    return arrow_numbers(numbers if missing is None else np.where(missing, 0, numbers), arrow_type(kind), missing)


def _histograms(counts: FormCounts, metric: str) -> Any:
    """The histogram of each row as a list of its buckets, ascending."""
    import pyarrow as pa

    kind = arrow_type(LIST_BUCKETS)
    rows, bucket, count = counts.buckets(metric)
    order = np.lexsort((bucket, rows))
    ends = np.cumsum(np.bincount(rows, minlength=len(counts)))
    values = [arrow_numbers(largest(bucket[order]), pa.int64()), arrow_numbers(count[order], pa.int64())]
    structs = pa.StructArray.from_arrays(values, fields=list(kind.value_type))
    offsets = arrow_numbers(np.concatenate(([0], ends)).astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(offsets, structs, type=kind)


def add_rollup(table: str, rows: pa.Table, counts: HourCounts) -> None:
    """Add rows of a table, in its columns and `capture`, to counts. Missing columns are null."""
    form, count = FORMS[table], rows.num_rows
    if not count:
        return
    names, there = counts.names, set(rows.column_names)
    keys = []
    for key, kind in _keys(form).items():
        name = _NAMES.get(key, key)
        if key in _LEFT_OUT or name not in there:
            keys.append(np.full(count, 0 if key in _LEFT_OUT else -1, np.int64))
        elif kind == ADDRESS:
            keys.append(numbers_by_text(rows[name], names.address))
        elif key == "topic_id":
            keys.append(numbers_of_ids(rows[name], names))
        elif kind == TEXT:
            keys.append(numbers_of_texts(rows[name], names))
        elif key in _WORDS:
            keys.append(numbers_by_text(rows[name], {word: number for number, word in enumerate(_WORDS[key])}.get))
        else:
            keys.append(int64_of(rows[name], -1))
    key_rows = np.stack(keys, axis=1)
    if "topic_id" in form.keys:  # the text of an id is no name
        topic, topic_id = (list(_keys(form)).index(name) for name in ("topic", "topic_id"))
        key_rows[key_rows[:, topic_id] >= 0, topic] = -1
    values = [
        int64_of(rows[value], EMPTY[operation]) if value in there else np.full(count, EMPTY[operation], np.int64)
        for value, operation in form.values.items()
    ]
    histograms, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, metric in enumerate(form.metrics):
        if f"{metric}_histogram" in there:
            owners, bucket, found = _buckets_of(rows[f"{metric}_histogram"])
            histograms.append(keys_of(owners, number, bucket))
            times.append(found)
    places = np.column_stack((int64_of(rows["capture"], 0), int64_of(rows["hour"], 0) // HOUR, key_rows))
    counts.add_form(form, places, np.stack(values, axis=1), np.concatenate(histograms), np.concatenate(times))


def _buckets_of(column: Any) -> tuple[Array, Array, Array]:
    """(row, bucket, count) of lists."""
    import pyarrow.compute as pc

    rows, structs = pc.list_parent_indices(column), pc.list_flatten(column)
    les, times = (pc.struct_field(structs, name).to_numpy() for name in ("le", "count"))
    return rows.to_numpy().astype(np.int64), buckets(les), times
