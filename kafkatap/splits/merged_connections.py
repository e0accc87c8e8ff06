"""Merge the rows of connections that several splits share. Each row counts the packets of one split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import (
    ALL_MEASURED,
    ALL_SUMS,
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_NO_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    D_NOT_TLS,
    D_UNSUPPORTED,
    D_WRONG_KEY,
    DECRYPTIONS,
    HANDSHAKES,
    NOT_CLOSED,
    OPTION_COLUMNS,
    P_UNKNOWN,
    SCALE_UNKNOWN,
    TLS_COLUMNS,
    TLS_UNKNOWN,
)
from kafkatap.reports.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
_FIRST, _LAST, _RTT, _KNOWN = "connection_first", "connection_last", "handshake_rtt_ns", "orientation_known"
#: Columns of the latest row in which the broker's end is known, or else of the latest row.
_ENDS = ("client_ip", "client_port", "broker_ip", "broker_port", "proxy_ip", "proxy_port")
_NAMES = tuple(column.name for column in TABLES["connections"])
#: Columns of the latest row: it includes what earlier rows had, and later requests may name no client.
_LATEST = ("connection", _LAST, "client_id", "client_software", "client_software_version", "sasl_mechanism")
#: Columns of the first row that has them, and those of the latest row that has them.
_FIRST_KNOWN = ("closed_by", "closed_with", "closed_at")
_LATEST_KNOWN = (_RTT, "reset_by", *(f"{end}_{name}" for end in ("client", "broker") for name in OPTION_COLUMNS))
_MAXIMA = tuple(f"{end}_{name}" for end in ("client", "broker") for name in (
    "window_max", "in_flight_max", "rtt_max_ns", "retransmission_wait_max_ns",
))  # fmt: skip
_MINIMA = ("client_rtt_min_ns", "broker_rtt_min_ns")
#: Of TLS: what each row counts; the decryption, of which the most telling one counts; facts of the handshake, of which
#: the first row that has them counts.
_TLS_SUMS = ("tls_decrypted_bytes", "tls_failed_records", "tls_lost_records", "tls_records", "tls_estimated")
_DECRYPTION = "tls_decryption"
_TLS_FACTS = tuple(name for name in TLS_COLUMNS if name not in (*_TLS_SUMS, _DECRYPTION))
_TLS_FACT_NAMES = tuple(name for name in _NAMES if name.startswith("tls_") and name not in (*_TLS_SUMS, _DECRYPTION))
#: D_... in the order in which they are more telling.
_TELLING = (
    D_NOT_TLS, D_NO_HANDSHAKE, D_NO_KEY_LOG, D_NO_KEY, D_UNSUPPORTED, D_FAILED_HANDSHAKE, D_WRONG_KEY, D_DECRYPTED,
)  # fmt: skip
_SUMS = tuple(
    name
    for name in _NAMES
    if name not in {"protocol", "handshake", _FIRST, _KNOWN, *_ENDS, *_LATEST, *_FIRST_KNOWN, *_LATEST_KNOWN,
                    *_MAXIMA, *_MINIMA, *_TLS_FACT_NAMES, _DECRYPTION}
)  # fmt: skip


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """One row for each connection. All tables have the schema of the first one, which may have `capture`."""
    import pyarrow as pa

    whole = pa.concat_tables(tables).combine_chunks()
    if not whole.num_rows:
        return whole
    connection = whole["connection"].to_numpy()
    order = np.lexsort((whole[_LAST].cast("int64").to_numpy(), connection))
    whole, connection = whole.take(pa.array(order)), connection[order]
    starts = np.flatnonzero(np.concatenate(([True], connection[1:] != connection[:-1])))
    groups = _Groups(starts, len(connection))
    columns = [_merged(field.name, whole, groups) for field in whole.schema]
    return pa.Table.from_arrays(columns, schema=whole.schema)


#: The columns of CONNECTION_ROW that are added up.
_ROW_SUMS = (
    "packets",
    *(f"{end}_{name}" for end in ("client", "broker") for name in (
        "bytes", "retransmitted_bytes", "retransmitted_packets", "out_of_order", "gap_bytes", "gaps", "zero_windows",
        "duplicates", "packets", "spurious_retransmissions",
    )),
    *ALL_SUMS,
    *(name for name in ALL_MEASURED if name not in _MAXIMA + _MINIMA),
    *_TLS_SUMS,
)  # fmt: skip


def merged_connections(rows: Array) -> Array:
    """One CONNECTION_ROW for each connection, by the same rules as `merged_rows`. The rows are in order of splits."""
    if not len(rows):
        return rows
    rows = taken(rows, np.lexsort((rows["last"], rows["connection"])))
    starts = np.flatnonzero(np.concatenate(([True], rows["connection"][1:] != rows["connection"][:-1])))
    groups = _Groups(starts, len(rows))
    merged = taken(rows, groups.latest_rows())
    for name in _ROW_SUMS:
        merged[name] = np.add.reduceat(rows[name], starts)
    for name in ("first", "first_packet"):
        merged[name] = np.minimum.reduceat(rows[name], starts)
    merged["handshake_rtt_ns"] = rows["handshake_rtt_ns"][groups.latest_rows(rows["handshake_rtt_ns"] >= 0)]
    for name in (*_MAXIMA, "handshake", "is_measured"):
        merged[name] = np.maximum.reduceat(rows[name], starts)
    for name in _MINIMA:
        known = rows[name.replace("min_ns", "count")] > 0
        lowest = np.minimum.reduceat(np.where(known, rows[name], np.iinfo(np.int64).max), starts)
        merged[name] = np.where(np.logical_or.reduceat(known, starts), lowest, 0)
    closed = groups.first_rows(rows["closed_with"] != NOT_CLOSED)
    for name in _FIRST_KNOWN:
        merged[name] = rows[name][closed]
    merged["reset_by"] = rows["reset_by"][groups.latest_rows(rows["reset_by"] >= 0)]
    for end in ("client", "broker"):
        known = groups.latest_rows(rows[f"{end}_window_scale"] != SCALE_UNKNOWN)
        for name in OPTION_COLUMNS:
            merged[f"{end}_{name}"] = rows[f"{end}_{name}"][known]
    merged["protocol"] = rows["protocol"][groups.latest_rows(rows["protocol"] != P_UNKNOWN)]
    for name in _TLS_FACTS:
        merged[name] = rows[name][groups.first_rows(rows[name] > (-1 if name in TLS_UNKNOWN else 0))]
    merged[_DECRYPTION] = _most_telling(rows[_DECRYPTION], groups)
    known = groups.latest_rows(rows["orientation_known"] > 0)
    for name in ("orientation_known", *_ENDS):
        merged[name] = rows[name][known]
    return merged


def _most_telling(decryptions: Array, groups: _Groups) -> Array:
    """The most telling decryption (D_...) of each group."""
    ranks = np.argsort(np.array(_TELLING))
    found: Array = np.array(_TELLING)[np.maximum.reduceat(ranks[decryptions], groups.starts)]
    return found


def _merged(name: str, rows: pa.Table, groups: _Groups) -> Any:
    """One column of the merged rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows[name].combine_chunks()
    if name in _SUMS:
        return _reduced(column, groups, np.add, 0)
    if name in _MAXIMA:
        return _reduced(column, groups, np.maximum, 0)
    if name in _MINIMA:
        return _reduced(column, groups, np.minimum, np.iinfo(np.int64).max)
    if name == "handshake":
        known = np.array([HANDSHAKES.index(text) for text in column.to_pylist()], np.int64)
        best = np.maximum.reduceat(known, groups.starts)
        return pa.array([HANDSHAKES[number] for number in best.tolist()], column.type)
    if name == _DECRYPTION:
        known = np.array([DECRYPTIONS.index(text or "") for text in column.to_pylist()], np.int64)
        names = [DECRYPTIONS[number] or None for number in _most_telling(known, groups).tolist()]
        return pa.array(names, column.type)
    if name in _FIRST_KNOWN or name in _TLS_FACT_NAMES:
        return column.take(pa.array(groups.first_rows(column.is_valid().to_numpy(zero_copy_only=False))))
    if name in _LATEST_KNOWN:
        return column.take(groups.latest(column.is_valid()))
    if name == _FIRST:
        firsts = np.minimum.reduceat(column.cast("int64").to_numpy(), groups.starts)
        return pa.array(firsts).cast(column.type)
    if name == "capture":  # that of the first packet
        times = rows[_FIRST].cast("int64").to_numpy()
        firsts = np.repeat(np.minimum.reduceat(times, groups.starts), groups.lengths)
        return column.take(groups.latest(pa.array(times == firsts)))
    if name == "protocol":
        return column.take(groups.latest(pc.not_equal(column, "unknown")))
    if name == _KNOWN or name in _ENDS:
        return column.take(groups.latest(rows[_KNOWN].combine_chunks()))
    return column.take(groups.latest())


def _reduced(column: Any, groups: _Groups, function: np.ufunc, neutral: int) -> Any:
    """The sums, or the like, of a column's values that are not null. `neutral` does not change the result."""
    import pyarrow as pa

    known = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(neutral).to_numpy(zero_copy_only=False)
    found = function.reduceat(values, groups.starts)
    return pa.array(found, mask=~np.logical_or.reduceat(known, groups.starts)).cast(column.type)


class _Groups:
    """Adjacent rows of one connection. `starts`: the first row of each group; `count`: all rows."""

    def __init__(self, starts: Array, count: int) -> None:
        self.starts = starts
        self._lasts = np.concatenate((starts[1:], [count])) - 1
        self._rows = np.arange(count)
        self.lengths = self._lasts - starts + 1

    def latest(self, condition: Any = None) -> Any:
        """As `latest_rows`, in Arrow."""
        import pyarrow as pa

        holds = None if condition is None else condition.fill_null(False).to_numpy(zero_copy_only=False)
        return pa.array(self.latest_rows(holds))

    def latest_rows(self, holds: Array | None = None) -> Array:
        """The last row of each group for which a condition holds (bool), or else the last row."""
        if holds is None:
            return self._lasts
        found = np.maximum.reduceat(np.where(holds, self._rows, -1), self.starts)
        return np.where(found >= 0, found, self._lasts)

    def first_rows(self, holds: Array) -> Array:
        """The first row of each group for which a condition holds (bool), or else the last row."""
        found = np.minimum.reduceat(np.where(holds, self._rows, len(self._rows)), self.starts)
        return np.where(found < len(self._rows), found, self._lasts)
