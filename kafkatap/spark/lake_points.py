"""What several captures of a lake have: those of a broker's host and of a client's, or of two brokers' hosts.

A run joins the captures that it reads. What other runs read has its own rows: with the same key for an exchange, and
another one for a connection, whose key has the time of capture. A report takes each once: an answered exchange
before one that lacks its response, or a part of it; then that of the capture with the most clients of the broker, as
that was made nearest to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, EXCHANGE_COLUMNS, RESULT, RESULT_COLUMNS
from kafkatap.kernels.arrays import groups_of, joined, taken
from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.connection_columns import COLUMNS, CONNECTION_ROW
from kafkatap.reports.counting.count_table import SUM, CountTable
from kafkatap.reports.counting.hour_counts import HOUR, HourCounts
from kafkatap.reports.name_table import NameTable
from kafkatap.reports.table_rows import int64_of, numbers_by_text, rows_of_table

from ..parquet.partitions import exchange_begins
from .lake_query import LakeQuery, isin, read_rows

if TYPE_CHECKING:
    import pyarrow as pa


Array = np.ndarray[Any, Any]
#: Columns of a place: hours since the epoch, the numbers of both ends, and the capture.
_PLACE = ("hour", "client_ip", "broker_ip", "broker_port", "capture")
_HOUR, _CLIENT, _BROKER, _, _CAPTURE = range(len(_PLACE))
_ENDS = ("client_ip", "client_port", "broker_ip", "broker_port")
_BEGIN = ("request_first", "response_first")
#: Columns that say how good a row is, the outcomes of those that lack no response, and the status of a part of one.
_QUALITY, WHOLE_OUTCOMES, IN_PART = ("outcome", "response_status"), ("answered", "no_reply_expected"), "incomplete"
EXCHANGES_READ = tuple(column.name for column in EXCHANGE_COLUMNS if column.dtype)
RESULTS_READ = tuple(column.name for column in RESULT_COLUMNS)
CONNECTIONS_READ = tuple(column.name for column in COLUMNS if column.in_table)


class Shared(NamedTuple):
    """What several captures have. `places`: those that do not count in the rollup. `counts`: their exchanges and
    connections, each once. `left_out`: by outcome, exchanges that are there again."""

    places: Places
    counts: HourCounts
    left_out: Counter[str]


class Places:
    """Rows of `_PLACE`, int64 (n, 5), distinct. `names`: has the numbers of addresses."""

    def __init__(self, rows: Array, names: NameTable) -> None:
        self.rows, self.names = rows, names
        self._all = _rows_by_key(rows)
        self._clients = _rows_by_key(rows[:, [_CLIENT, _CAPTURE]])

    def of(self, rows: pa.Table, hours: Array) -> Array:
        """The place of each row, -1 if it is not among these: int64 (n,)."""
        return self._all.find(np.column_stack((hours, _numbers_of(rows, _PLACE[1:], self.names))))

    def has(self, rows: pa.Table) -> Array:
        """Which rows of the rollup are of these: bool (n,). Rows of connections, which have no broker, are if their
        client and their capture are."""
        if "broker_ip" not in rows.column_names:
            return self.has_client(rows)
        found: Array = self.of(rows, int64_of(rows["hour"], 0) // HOUR) >= 0
        return found

    def has_client(self, rows: pa.Table) -> Array:
        """Which rows have a client and a capture of these: bool (n,)."""
        found: Array = self._clients.find(_numbers_of(rows, ("client_ip", "capture"), self.names)) >= 0
        return found

    def captures(self) -> Any:
        """These captures, as a condition on rows."""
        return isin("capture", np.unique(self.rows[:, _CAPTURE]).tolist())

    def clients(self) -> Any:
        """These clients, as a condition on rows."""
        return isin("client_ip", [self.names.addresses[n] for n in np.unique(self.rows[:, _CLIENT]).tolist()])


class Again:
    """Rows that are there again, by key and capture: int64 (n,) each."""

    def __init__(self, keys: Array, captures: Array) -> None:
        self._rows = _rows_by_key(np.column_stack((keys, captures)))

    def __len__(self) -> int:
        return len(self._rows)

    def has(self, rows: pa.Table, key: str) -> Array:
        """Which rows these are: bool (n,)."""
        found: Array = self._rows.find(_numbers_of(rows, (key, "capture"))) >= 0
        return found


def shared_rows(out: str, query: LakeQuery, files: Sequence[FileInfo], names: NameTable) -> Shared | None:
    """What several captures have among the exchanges of a query, None if nothing. `names`: gets their names."""
    sources, requests = _sources(out, query, _of_one_time(files), names)
    ranks = _ranks(sources, requests)
    counts, left_out, twice = HourCounts(most_rows=None, names=names), Counter[str](), []
    for day, again, places in _again_by_day(out, sources, ranks, files, names):
        twice.append(places)
        for outcome, count in _count_exchanges(out, day, query, Places(places, names), again, counts):
            left_out[outcome] += count
    if not twice:
        return None
    shared = Places(np.concatenate(twice), names)
    _count_connections(out, query, shared, _rank_of(sources, ranks), counts)
    return Shared(shared, counts, left_out)


def exchanges_again(
    out: str, query: LakeQuery, files: Sequence[FileInfo], names: NameTable
) -> Iterator[tuple[int, Again, Array]]:
    """By day since the epoch: the exchanges of a query of which another capture has a better row, and their places."""
    sources, requests = _sources(out, query, _of_one_time(files), names)
    yield from _again_by_day(out, sources, _ranks(sources, requests), files, names)


def _again_by_day(
    out: str, sources: Array, ranks: Array, files: Sequence[FileInfo], names: NameTable
) -> Iterator[tuple[int, Again, Array]]:
    chosen = _at_one_time(sources, files)
    candidates, ranks_there = Places(sources[chosen], names), ranks[chosen]
    for day in np.unique(sources[chosen, _HOUR] // 24).tolist():
        again, places = _exchanges_again(out, day, candidates, ranks_there)
        if len(again):
            yield day, again, places


def _rows_by_key(keys: Array) -> CountTable:
    """A table of distinct keys, in their order of appearance."""
    table = CountTable(keys.shape[1], (SUM,), max(len(keys), 1))
    table.add(keys, np.ones((len(keys), 1), np.int64))
    return table


def _numbers_of(rows: pa.Table, columns: Sequence[str], names: NameTable | None = None) -> Array:
    """Columns as numbers, with addresses as those of `names`: int64 (n, columns)."""
    return np.column_stack([
        numbers_by_text(rows[name], names.address) if names and name.endswith("_ip") else int64_of(rows[name], 0)
        for name in columns
    ])  # fmt: skip


def _of_one_time(files: Sequence[FileInfo]) -> list[int]:
    """The captures during which another one was made."""
    found, latest, capture = set[int](), -1, 0
    for info in sorted((info for info in files if info.last is not None), key=lambda info: info.first or 0):
        if (info.first or 0) <= latest:
            found |= {info.capture, capture}
        if (info.last or 0) > latest:
            latest, capture = info.last or 0, info.capture
    return sorted(found)


def _sources(out: str, query: LakeQuery, captures: Sequence[int], names: NameTable) -> tuple[Array, Array]:
    """The places in these captures, and the number of requests of each: int64 (n, 5) and (n,)."""
    found = CountTable(len(_PLACE), (SUM,))
    wanted = query.hours() & isin("capture", captures)
    for rows in read_rows(out, "rollup", (*_PLACE, "requests"), wanted) if captures else ():
        rows = rows.filter(rows["broker_ip"].is_valid())  # without those that were added up
        hours = int64_of(rows["hour"], 0) // HOUR
        keys = np.column_stack((hours, _numbers_of(rows, _PLACE[1:], names)))
        found.add(keys, int64_of(rows["requests"], 0)[:, None])
    return found.key_rows().copy(), found.value_rows()[:, 0].copy()


def _at_one_time(sources: Array, files: Sequence[FileInfo]) -> Array:
    """The places of whose hour and ends there are captures of the same time: bool (n,)."""
    times = {info.capture: (info.first or 0, info.last or 0) for info in files}
    span = np.array([times[capture] for capture in sources[:, _CAPTURE].tolist()], np.int64).reshape(-1, 2)
    order = np.lexsort((span[:, 0], *sources[:, :_CAPTURE].T))
    ends, (first, last) = sources[order, :_CAPTURE], span[order].T
    is_same = (ends[1:] == ends[:-1]).all(axis=1)
    # If any two captures overlap, then so do two that begin one after the other.
    overlap = is_same & (first[1:] <= last[:-1])
    group = np.cumsum(np.concatenate(([True], ~is_same)))[: len(order)]
    found = np.zeros(len(sources), bool)
    found[order] = np.isin(group, group[1:][overlap])
    return found


def _ranks(sources: Array, requests: Array) -> Array:
    """The rank of each place among those of its broker, the nearest capture first: int64 (n,)."""
    captures = {capture: int(requests[chosen].sum()) for [capture], chosen in groups_of(sources[:, _CAPTURE])}
    found = []
    for (broker, capture), chosen in groups_of(sources[:, _BROKER], sources[:, _CAPTURE]):
        clients, count = len(np.unique(sources[chosen, _CLIENT])), int(requests[chosen].sum())
        found.append((broker, -clients, -count / max(captures[capture], 1), capture, chosen))
    ranks = np.zeros(len(sources), np.int64)
    for rank, (*_, chosen) in enumerate(sorted(found, key=lambda item: item[:-1])):
        ranks[chosen] = rank
    return ranks


def _rank_of(sources: Array, ranks: Array) -> dict[tuple[int, int], int]:
    """The rank of each broker's address and capture."""
    ends = map(tuple, sources[:, [_BROKER, _CAPTURE]].tolist())
    return dict(zip(ends, ranks.tolist(), strict=True))


def begins_of(rows: pa.Table) -> Array:
    """The hour of each exchange, since the epoch: int64 (n,)."""
    first, other = (int64_of(rows[name], -1) for name in _BEGIN)
    found: Array = np.where(first >= 0, first, other) // HOUR
    return found


def _lacks(rows: pa.Table) -> Array:
    """What each exchange lacks: nothing (0), a part of its response (1), or all of it (2): int64 (n,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_lost = pc.invert(pc.is_in(rows["outcome"], pa.array(WHOLE_OUTCOMES)))
    is_cut = pc.equal(rows["response_status"], IN_PART).fill_null(False)
    found: Array = np.where(is_lost.to_numpy(), 2, is_cut.to_numpy()).astype(np.int64)
    return found


def _exchanges_again(out: str, day: int, candidates: Places, ranks: Array) -> tuple[Again, Array]:
    """The exchanges of a day of which another capture has a better row, and the places of all such exchanges with the
    same hour and ends, (n, 5)."""
    parts = [np.zeros((0, 4), np.int64)]
    wanted = of_day(day) & candidates.captures() & candidates.clients()
    for rows in read_rows(out, "exchanges", ("exchange", *_BEGIN, *_PLACE[1:], *_QUALITY), wanted):
        places = candidates.of(rows, begins_of(rows))
        chosen = np.flatnonzero(places >= 0)
        keys = _numbers_of(rows, ("exchange", "capture"))[chosen]
        parts.append(np.column_stack((keys, places[chosen], _lacks(rows)[chosen])))
    keys, captures, places, lacks = np.concatenate(parts).T
    order = np.lexsort((captures, ranks[places], lacks, keys))
    keys, captures, places = keys[order], captures[order], places[order]
    first = np.maximum.accumulate(np.where(np.concatenate(([True], keys[1:] != keys[:-1])), np.arange(len(keys)), 0))
    again = captures != captures[first]
    ends = candidates.rows[:, :_CAPTURE]
    touched = _rows_by_key(np.concatenate((ends[places[again]], ends[places[first[again]]])))
    return Again(keys[again], captures[again]), candidates.rows[touched.find(ends) >= 0]


def _count_exchanges(
    out: str, day: int, query: LakeQuery, places: Places, again: Again, counts: HourCounts
) -> Iterator[tuple[str, int]]:
    """Count the exchanges of these places once. Yield outcomes of those that are there again, and their number."""
    names, wanted = NameTable(), of_day(day) & places.captures()
    parts = read_rows(out, "results", (*RESULTS_READ, "capture"), wanted & _has_error())
    results = joined([results_of(rows.filter(~again.has(rows, "exchange")), names) for rows in parts], RESULT)
    wanted &= places.clients() & query.of_apis()
    for rows in read_rows(out, "exchanges", (*EXCHANGES_READ, "capture"), wanted):
        rows = query.of_ends(rows.filter(places.of(rows, begins_of(rows)) >= 0))
        is_again = again.has(rows, "exchange")
        yield from Counter(rows.filter(is_again)["outcome"].to_pylist()).items()
        rows = rows.filter(~is_again)
        exchanges = rows_of_table(EXCHANGE_COLUMNS, EXCHANGE, rows, names)
        keys, exchanges["exchange"] = exchanges["key"], np.arange(len(exchanges))
        hours = exchange_begins(exchanges) // HOUR
        mine = of_exchanges(results, keys)
        counts.add(exchanges, mine, int64_of(rows["capture"], 0), hours, Context(names.strings, names.addresses))


def of_day(day: int) -> Any:
    return isin("date", [np.datetime64(day, "D").item()])


def _has_error() -> Any:
    import pyarrow.compute as pc

    return pc.field("error_code") != 0


def results_of(rows: pa.Table, names: NameTable) -> Array:
    """Results (RESULT) with the name of their topic, or else its id, as the rollup has them."""
    import pyarrow.compute as pc

    results = rows_of_table(RESULT_COLUMNS, RESULT, rows, names)
    is_id = pc.equal(rows["topic"], rows["topic_id"]).fill_null(False).to_numpy()
    results["topic"][is_id] = -1
    results["topic_id"][~is_id] = -1
    return results


def of_exchanges(results: Array, keys: Array) -> Array:
    """Those results whose exchange has one of these keys, with its place there as the number of the exchange."""
    order = np.argsort(keys)
    at = np.searchsorted(keys[order], results["exchange"]).clip(max=max(len(keys) - 1, 0))
    mine = np.flatnonzero(keys[order][at] == results["exchange"]) if len(keys) else np.zeros(0, np.int64)
    found = taken(results, mine)
    found["exchange"] = order[at[mine]]
    return taken(found, np.argsort(found["exchange"], kind="stable"))


def _count_connections(
    out: str, query: LakeQuery, places: Places, ranks: Mapping[tuple[int, int], int], counts: HourCounts
) -> None:
    """Count the connections of these clients in these captures once."""
    wanted = query.dates() & places.captures() & places.clients()
    columns = ("connection", "capture", *_ENDS, "connection_first", "connection_last")
    parts = [np.zeros((0, len(columns)), np.int64)]
    for rows in read_rows(out, "connections", columns, wanted):
        parts.append(_numbers_of(rows.filter(places.has_client(rows)), columns, places.names))
    again = _connections_again(np.concatenate(parts), ranks)
    for rows in read_rows(out, "connections", (*CONNECTIONS_READ, "capture"), wanted):
        rows = rows.filter(places.has_client(rows) & ~again.has(rows, "connection"))
        hours = int64_of(rows["connection_first"], 0) // HOUR
        rows = query.of_ends(rows.filter(query.has_hours(hours)))
        names = NameTable()
        found = rows_of_table(COLUMNS, CONNECTION_ROW, rows, names)
        captures = int64_of(rows["capture"], 0)
        counts.add_connections(found, captures, found["first"] // HOUR, Context(names.strings, names.addresses))


def _connections_again(found: Array, ranks: Mapping[tuple[int, int], int]) -> Again:
    """The connections that a nearer capture has, too: of the same ends, and of the same time. `found`: key, capture,
    ends, first and last time: int64 (n, 8)."""
    lost = max(ranks.values(), default=0) + 1
    rank = np.array([ranks.get(place, lost) for place in map(tuple, found[:, [4, 1]].tolist())], np.int64)
    again = [np.zeros((0, 2), np.int64)]
    for _, chosen in groups_of(*found[:, 2:6].T):
        rows = found[chosen[np.argsort(rank[chosen], kind="stable")]]
        if (rows[:, 1] == rows[0, 1]).all():
            continue
        kept: list[Array] = []
        for row in rows:
            if any(row[1] != other[1] and row[6] <= other[7] and other[6] <= row[7] for other in kept):
                again.append(row[None, :2])
            else:
                kept.append(row)
    return Again(*np.concatenate(again).T)
