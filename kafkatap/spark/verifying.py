"""`verify`: what is wrong with a lake. `forget`: remove captures from it. Both need no Java, and runs may go on.

A check reads a few columns of the tables, date by date, so it needs the memory of one date's keys.
"""

from __future__ import annotations

import datetime
import fnmatch
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import OUTCOMES
from kafkatap.reports.counting.hour_counts import HOUR
from kafkatap.reports.finding_words import counted
from kafkatap.reports.section_parts.stored import EXCHANGES_KEPT, STORED_TABLE
from kafkatap.reports.units import iso

from . import section_tables
from .balance import OF_CONNECTIONS, OF_EXCHANGES, Balance, Edges
from .lake_options import KEY_LOG, remembered_options
from .output.delta import active_files, check_tables, is_delta, naming_table, open_table, read_table
from .output.delta_schema import LAKE_TABLES, tables_of_run
from .output.folders import Folder
from .output.publication import Published, open_publication
from .output.report_files import delete_old_reports
from .output.run_tables import file_infos
from .series import Series

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.reports.batch import FileInfo

Array = np.ndarray[Any, Any]


class LakeFinding(NamedTuple):
    """One thing that is wrong. `kind`: as of `verify`. `text`: a sentence. `amount`: of rows, hours or captures."""

    kind: str
    text: str
    amount: int


def _not_writable(out: str) -> str:
    """Why rows of this version do not fit into the lake; "" if they do."""
    try:
        check_tables(out)
    except OSError as error:
        return str(error).removeprefix(f"{out}: ")
    return ""


def verify(out: str) -> Iterator[LakeFinding]:
    """Check the tables of a lake. FileNotFoundError if it has none.

    * schema: an earlier version of kafkatap made the lake, and no run of this one can write to it
    * missing: tables of the lake, or files of a table, that are gone; nothing else is said of their rows
    * unfinished: rows of captures that are not in `files`, or results without their exchange: a run was killed
    * double: exchanges or connections that one capture has more than once, and captures that are in `files` twice
    * overlap: exchanges that several captures have, as they were captured at several places
    * rollup: exchanges, error codes or connections that the rollup does not count, or counts more than once
    * balance: packets, bytes, requests or responses of a table that are not those of another one (`balance`)
    * cut: connections that go on in a capture of another run, so that requests there have no answer
    * gap: whole hours without a packet, between others, in the captures of a broker
    * sections: tables of sections that were made before the counts of the lake changed
    * damage: captures of which a part could not be read, or is zeros
    """
    rows = read_table(out, "files")
    files = file_infos(rows)
    whole, is_there = [], True
    if reason := _not_writable(out):
        is_there = False
        yield LakeFinding("schema", reason, 1)
    for table in tables_of_run(is_delta(out, "records")):
        if not is_delta(out, table):
            if reason:
                continue
            is_there &= table == STORED_TABLE
            yield LakeFinding("missing", f"there is no table {table}; run all captures again", 1)
        elif gone := _gone(out, table):
            is_there = False
            text = f"{table}: {_files(len(gone))} gone, such as {gone[0]}; run all captures again"
            yield LakeFinding("missing", text, len(gone))
        elif table in _READ:
            whole.append(table)
    for capture, count in Counter(info.capture for info in files).items():
        if count > 1:
            yield LakeFinding("double", f"files: capture {capture} is there {count:,} times; run it again", count - 1)
    found = _Rows({info.capture: info for info in files}, whole)
    balance = _balance(out, rows, files) if is_there else None
    once = _CountedOnce()
    for tables in _by_date(out, whole):
        counted = once.rows(tables)
        found.add(tables, counted)
        if balance is not None:
            balance.add(tables, counted)
    of_rows = list(found.findings())
    yield from of_rows
    if balance is not None and not any(finding.kind in _OF_ROWS for finding in of_rows):
        yield from itertools.starmap(LakeFinding, balance.findings())
    yield from _gaps(files, found.brokers)
    if STORED_TABLE in whole and section_tables.is_outdated(out):
        yield LakeFinding("sections", f"{section_tables.FOLDER}: older than the lake; run `kafkatap lake sections`", 1)
    for info in files:
        if info.damage:
            yield LakeFinding("damage", f"{info.path}: {info.damage}", 1)
        elif info.empty_packets or info.first == 0:
            yield LakeFinding("damage", f"{info.path}: zeros in place of packets; read a whole copy", 1)


#: Kinds of findings on rows that are lost, or there twice: then nothing balances.
_OF_ROWS = ("unfinished", "double", "rollup")


def _balance(out: str, rows: pa.Table, files: Sequence[FileInfo]) -> Balance:
    is_whole = remembered_options(out).keys() <= {KEY_LOG}
    return Balance({info.capture: info for info in files}, Edges.between(rows), read_table(out, "ledger"), is_whole)


_MESSAGES = "exchanges with their messages"
#: What the rollup counts: the rows, and the sums of the rollup; each a table with columns to sum up, or its rows.
_OF_ROLLUP: Mapping[str, tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]] = {
    "exchanges": (("exchanges", ()), ("rollup", OUTCOMES)),
    "error codes": (("rollup", ("error_codes",)), ("rollup_errors", ("count",))),
    "results with an error code": (("results", ("error_code",)), ("rollup_errors", ("count",))),
    "connections": (("connections", ()), ("rollup_connections", ("connections",))),
    _MESSAGES: (("rollup", OUTCOMES), (STORED_TABLE, ("rows",))),
}
#: The columns that are read of each table: first its key, or that of its exchange, or none.
_READ = {
    "exchanges": ("exchange", "capture", "broker_ip", *OF_EXCHANGES),
    "connections": ("connection", "capture", *OF_CONNECTIONS),
    "results": ("exchange", "capture", "records", "error_code", "run_number"),
    "records": ("exchange", "capture", "run_number"),
    "rollup": ("capture", "error_codes", *OUTCOMES),
    "rollup_errors": ("capture", "count"),
    "rollup_connections": ("capture", "connections"),
    STORED_TABLE: ("capture", "form", "rows", "layout"),
}


def _gone(out: str, table: str) -> list[str]:
    """The files of a table that are not there."""
    there = Folder(out).sizes(table)
    return [file.path for file in active_files(open_table(out, table)) if f"{table}/{file.path}" not in there]


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count:,} files are"


def _by_date(out: str, names: Iterable[str]) -> Iterator[dict[str, pa.Table]]:
    """The rows of these tables of each date, by table. Results have the date of their exchange."""
    import pyarrow.compute as pc

    tables = {table: open_table(out, table) for table in names}
    dates = {file.date for table in tables.values() for file in active_files(table)}
    datasets = {name: table.to_pyarrow_dataset() for name, table in tables.items()}
    for date in sorted(map(str, dates)):
        is_then = pc.field("date") == pc.scalar(datetime.date.fromisoformat(date))
        found = {}
        for name, dataset in datasets.items():
            with naming_table(out, name):
                columns = [column for column in _READ[name] if column in dataset.schema.names]
                found[name] = dataset.to_table(columns=columns, filter=is_then)
        yield found


class _CountedOnce:
    """Leaves out the rows of connections that are others once more (`twin_of`), which no count has."""

    def __init__(self) -> None:
        self._twins = np.zeros(0, np.int64)  # their keys

    def rows(self, tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        """The others of a date. Dates come in ascending order."""
        import pyarrow as pa

        connections, exchanges = tables.get("connections"), tables.get("exchanges")
        if connections is not None and "twin_of" in connections.column_names:
            twins = connections.filter(connections["twin_of"].is_valid())["connection"].to_numpy()
            self._twins = np.concatenate((self._twins, twins))
        if not len(self._twins) or connections is None or exchanges is None:
            return tables
        are_left_out = np.isin(exchanges["connection"].to_numpy(), self._twins)
        of_results = exchanges["exchange"].to_numpy()[are_left_out]
        left_out = {
            "connections": connections["twin_of"].is_valid().to_numpy(),
            "exchanges": are_left_out,
            "results": np.isin(tables["results"]["exchange"].to_numpy(), of_results) if "results" in tables else None,
        }
        return {
            name: rows if left_out.get(name) is None else rows.filter(pa.array(~left_out[name]))
            for name, rows in tables.items()
        }


class _Rows:
    """What is wrong with rows. `known`: the captures of the table `files`. `tables`: those that have all their rows.
    `brokers`: exchanges by capture and broker."""

    def __init__(self, known: Mapping[int, FileInfo], tables: Collection[str]) -> None:
        self.brokers: dict[int, Counter[str]] = defaultdict(Counter)
        self._known = known
        self._identities = np.array(list(known), np.int64)
        self._unknown: Counter[str] = Counter()
        self._doubles: Counter[tuple[str, int]] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._lost = 0  # exchanges of results
        self._stale = 0  # exchanges that lack their records, or of which only records are there
        self._rows_lacking: Counter[int] = Counter()  # rows of `section_counts`
        self._with_messages: set[int] = set()  # captures with counts of messages
        #: What the rollup lacks, by what it counts, and by capture. Below 0: it has too many.
        self._not_in_rollup: dict[str, Counter[int]] = {
            what: Counter() for what, sums in _OF_ROLLUP.items() if {table for table, _ in sums}.issubset(tables)
        }

    def add(self, tables: Mapping[str, pa.Table], counted: Mapping[str, pa.Table]) -> None:
        """Look at the rows of a date. `counted`: those that the rollup counts."""
        for name, rows in tables.items():
            captures = rows["capture"].to_numpy()
            self._unknown[name] += int((~np.isin(captures, self._identities)).sum())
            if name in ("exchanges", "connections"):
                self._compare(name, rows[0].to_numpy(), captures)
        if STORED_TABLE in tables:
            counted = {**counted, STORED_TABLE: self._count_messages(tables[STORED_TABLE])}
        self._add_rollup(counted)
        if "exchanges" not in tables:
            return
        exchanges = tables["exchanges"]
        for row in exchanges.group_by(["broker_ip", "capture"]).aggregate([([], "count_all")]).to_pylist():
            self.brokers[row["capture"]][row["broker_ip"]] += row["count_all"]
        if "results" in tables:
            results = np.unique(tables["results"]["exchange"].to_numpy())
            self._lost += int((~np.isin(results, exchanges["exchange"].to_numpy())).sum())
        if {"results", "records"} <= tables.keys():
            self._compare_records(tables["results"], tables["records"], exchanges["exchange"].to_numpy())

    def _add_rollup(self, tables: Mapping[str, pa.Table]) -> None:
        """Compare the rollup of a date with the rows that it counts: error codes with those that it sums up itself."""
        for what, lacking in self._not_in_rollup.items():
            of_rows, of_rollup = (_sums(tables[table], *columns) for table, columns in _OF_ROLLUP[what])
            lacking.update(of_rows)
            lacking.subtract(of_rollup)
            if what == _MESSAGES:
                self._with_messages |= of_rollup.keys()

    def _count_messages(self, rows: pa.Table) -> pa.Table:
        """Compare the number of rows of `section_counts` with what these say themselves. Return those that say so."""
        is_total = np.array(rows["form"].to_pylist()) == EXCHANGES_KEPT
        totals = rows.filter(is_total)
        for capture, count in zip(totals["capture"].to_pylist(), totals["layout"].to_pylist(), strict=True):
            self._rows_lacking[capture] += int(count)
        self._rows_lacking.subtract(rows["capture"].to_numpy()[~is_total].tolist())
        return totals

    def _compare_records(self, results: pa.Table, records: pa.Table, exchanges: Array) -> None:
        """Count the exchanges whose records are not there, though their run wrote some of the capture, and those of
        records alone."""
        import pyarrow.compute as pc

        of_results = results.filter(pc.greater(results["records"], 0))
        there = np.unique(records["exchange"].to_numpy())
        has_some = np.isin(_by_run(of_results), _by_run(records))
        lacking = np.setdiff1d(of_results["exchange"].to_numpy()[has_some], there)
        self._stale += len(lacking) + int((~np.isin(there, exchanges)).sum())

    def _compare(self, table: str, keys: Array, captures: Array) -> None:
        """Count the keys that are there again, in the same capture or in another one."""
        order = np.lexsort((captures, keys))
        keys, captures = keys[order], captures[order]
        again = np.flatnonzero(keys[1:] == keys[:-1])
        for first, second in zip(captures[again].tolist(), captures[again + 1].tolist(), strict=True):
            if first == second:
                self._doubles[table, first] += 1
            elif table == "exchanges":
                self._pairs[first, second] += 1

    def findings(self) -> Iterator[LakeFinding]:
        for table, count in self._unknown.items():
            if count:
                text = f"{table}: {count:,} rows of captures that are not in files; a run was killed, so run it again"
                yield LakeFinding("unfinished", text, count)
        if self._lost:
            text = f"results: {self._lost:,} exchanges that are not in exchanges; a run was killed, so run it again"
            yield LakeFinding("unfinished", text, self._lost)
        if self._stale:
            text = f"records: those of {self._stale:,} exchanges are missing, or without the exchange; run it again"
            yield LakeFinding("unfinished", text, self._stale)
        for what, counts in self._not_in_rollup.items():
            if what == _MESSAGES and (old := self._without_messages(counts)):
                text = f"{counted(len(old), 'capture')} without counts of messages, such as {self._name(old[0])}: an "
                yield LakeFinding("rollup", f"{text}earlier version read them; run them again", len(old))
                counts = Counter({capture: count for capture, count in counts.items() if capture not in old})
            for capture, count in counts.items():
                if count and capture in self._known:  # those of others are unfinished
                    verb = "lacks" if count > 0 else "counts twice"
                    counts_of = STORED_TABLE if what == _MESSAGES else "the rollup"
                    text = f"{counts_of} {verb} {abs(count):,} {what} of {self._name(capture)}; run the capture again"
                    yield LakeFinding("rollup", text, abs(count))
        for capture, count in self._rows_lacking.items():
            if count and capture in self._known:
                verb = "lacks" if count > 0 else "has too many: "
                text = f"{STORED_TABLE} {verb} {abs(count):,} rows of {self._name(capture)}; run the capture again"
                yield LakeFinding("rollup", text, abs(count))
        for (table, capture), count in self._doubles.items():
            text = f"{table}: {count:,} rows of {self._name(capture)} are there more than once"
            yield LakeFinding("double", text, count)
        for (one, two), count in self._pairs.items():
            text = f"{count:,} exchanges are in both {self._name(one)} and {self._name(two)}; count each key once"
            yield LakeFinding("overlap", text, count)

    def _without_messages(self, counts: Mapping[int, int]) -> list[int]:
        """The captures without any counts of messages. `counts`: what these lack."""
        return [n for n, lacking in counts.items() if lacking and n in self._known and n not in self._with_messages]

    def _name(self, capture: int) -> str:
        info = self._known.get(capture)
        return f"capture {capture}" if info is None else info.path


def _by_run(rows: pa.Table) -> Array:
    """A number for the capture of each row and the run that wrote it. Lakes of earlier versions have no such runs."""
    captures: Array = rows["capture"].to_numpy()
    return captures ^ rows["run_number"].fill_null(0).to_numpy() if "run_number" in rows.column_names else captures


def _sums(rows: pa.Table, *columns: str) -> Counter[int]:
    """The sum of columns by capture; without columns, the number of rows. Of error codes, the number that is not 0."""
    captures, codes = np.unique(rows["capture"].to_numpy(), return_inverse=True)
    weights = (
        np.sum([rows[n].to_numpy() != 0 if n == "error_code" else rows[n].to_numpy() for n in columns], axis=0)
        if columns
        else np.ones(rows.num_rows, np.int64)
    )
    totals = np.zeros(len(captures), np.int64)
    np.add.at(totals, codes.reshape(-1), weights)
    return Counter(dict(zip(captures.tolist(), totals.tolist(), strict=True)))


#: Hours. A longer gap may be of a capture with a wrong clock.
_LONG_GAP = 31 * 24


def _gaps(files: Sequence[FileInfo], counts: Mapping[int, Mapping[str, int]]) -> Iterator[LakeFinding]:
    """The hours without a packet, between others, of the captures of each broker. `counts`: exchanges by capture and
    broker. A capture is that of the broker with the most."""
    hours: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for info in files:
        if info.first is not None and info.last is not None and counts.get(info.capture):
            of_capture = counts[info.capture]
            broker = max(sorted(of_capture), key=lambda name: of_capture[name])
            hours[broker].append((info.first // HOUR, info.last // HOUR))
    for broker, spans in sorted(hours.items()):
        reached = min(spans)[1]
        for end, last in sorted(spans):
            begin, reached = reached + 1, max(reached, last)
            if end <= begin:
                continue
            span = f"{iso(begin * HOUR)[:16]} to {iso(end * HOUR)[:16]} UTC"
            text = f"no packet from {span} in the captures of broker {broker}"
            if end - begin > _LONG_GAP:
                text += f"; was the clock of {_beside(files, begin, end)} wrong?"
            yield LakeFinding("gap", text, end - begin)


def _beside(files: Sequence[FileInfo], begin: int, end: int) -> str:
    """The captures on both sides of a gap: the last one before, and the first one after it."""
    before = max((f for f in files if f.last and f.last // HOUR < begin), key=lambda f: f.last or 0)
    after = min((f for f in files if f.first and f.first // HOUR >= end), key=lambda f: f.first or 0)
    return f"{before.path} or {after.path}"


def named_captures(out: str, names: Iterable[str]) -> list[FileInfo]:
    """The captures of a lake with these paths, parts of paths after a slash, globs of either, or identities.
    FileNotFoundError if a name matches none."""
    files = file_infos(read_table(out, "files"))
    found: dict[int, FileInfo] = {}
    for name in names:
        chosen = [
            info
            for info in files
            if name == str(info.capture) or any(fnmatch.fnmatchcase(info.path, p) for p in (name, f"*/{name}"))
        ]
        if not chosen:
            raise FileNotFoundError(f"{out}: it has no capture {name}; its table files lists those that it has")
        found |= {info.capture: info for info in chosen}
    return list(found.values())


def forget(out: str, captures: Collection[int]) -> Published:
    """Remove the rows of captures (identities) from all tables of a lake. No run goes on from states with them."""
    tables = [table for table in LAKE_TABLES if is_delta(out, table)]
    with open_publication(out) as publication:
        Series(out).forget(captures)
        published = publication.publish([], tables, captures)
    if section_tables.are_there(out):
        list(section_tables.update_sections(out))
    delete_old_reports(out)
    return published
