"""Whether a lake balances: the packets, bytes, requests and responses of its tables, against each other.

A run that reads a capture again without those that share its connections leaves two rows of a connection, one within
the other, or a row that ends before exchanges of its connection. Hours that different runs read balance, but their
connections are cut at the edges. Captures that were forgotten leave none of this, though sums over all captures are not
those of the rows any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES
from kafkatap.reports.finding_words import counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kafkatap.reports.batch import Array, FileInfo

#: Columns that are read of connections and exchanges.
OF_CONNECTIONS = (
    "client_ip", "client_port", "broker_ip", "broker_port", "connection_first", "connection_last", "packets",
    "handshake", "closed_by", "twin_of",
)  # fmt: skip
OF_EXCHANGES = ("outcome", "connection", "request_first")
_ENDS = list(OF_CONNECTIONS[:4])
_AGAIN = "pass all captures of the series to one run"
#: Edges between captures that are named.
_MOST_EDGES = 5
#: The end of a connection. `last`: of its packets, µs since the epoch.
_END = np.dtype([("connection", "i8"), ("last", "i8"), ("capture", "i8")])


class Edges:
    """Connections that go on from one capture to another, and different runs read them. Call `add` for each date,
    ascending. `runs`: the run that read each capture; None: unknown.

    `cut`: connections by the captures before and after the edge. `within`: those that lie within others of the same
    ends, by capture.
    """

    def __init__(self, runs: Mapping[int, str | None]) -> None:
        self._runs = runs
        self.cut: Counter[tuple[int, int]] = Counter()
        self.within: Counter[int] = Counter()
        self._open: pd.DataFrame | None = None  # the latest row of each connection that has no end

    @classmethod
    def between(cls, files: pa.Table) -> Edges:
        """Those of the captures of a lake. `files`: rows of its table."""
        return cls(dict(zip(files["capture"].to_pylist(), files["run"].to_pylist(), strict=True)))

    def add(self, rows: pd.DataFrame) -> None:
        """Look at the connections of a date."""
        import pandas as pd

        rows = (rows if self._open is None else pd.concat([self._open, rows])).sort_values([*_ENDS, "connection_first"])
        latest = rows.drop_duplicates(_ENDS, keep="last")
        self._open = latest[latest["closed_by"].isna()]
        captures = rows["capture"].to_numpy()
        one, two = rows[:-1].reset_index(drop=True), rows[1:].reset_index(drop=True)
        run, later_run = (each["capture"].map(self._runs) for each in (one, two))
        goes_on = (one[_ENDS] == two[_ENDS]).all(axis=1) & (two["handshake"] == "not captured")
        goes_on &= (run != later_run) & run.notna() & later_run.notna()
        is_later = two["connection_first"] >= one["connection_last"]
        for at in np.flatnonzero(goes_on & is_later & one["closed_by"].isna()).tolist():
            self.cut[int(captures[at]), int(captures[at + 1])] += 1
        self.within.update(two["capture"][goes_on & ~is_later].tolist())


class Balance:
    """What the tables have. Call `add` for each date, ascending. `is_whole`: the exchanges are not selected."""

    def __init__(self, files: Mapping[int, FileInfo], edges: Edges, ledger: pa.Table, is_whole: bool) -> None:
        self._files, self._edges, self._is_whole = files, edges, is_whole
        self._ledgers: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for row in ledger.to_pylist():  # each batch of a stream has rows of the captures before it
            self._ledgers[row["capture"]][row["section"]][row["part"]] += row["count"]
        self._packets = 0
        self._outcomes: Counter[tuple[int, str]] = Counter()
        self._ended: Counter[int] = Counter()  # connections that end before exchanges of theirs, by capture
        self._ends = np.zeros(0, _END)

    def add(self, tables: Mapping[str, pa.Table], counted: Mapping[str, pa.Table]) -> None:
        """Look at the rows of a date. `counted`: those that the ledger counts by outcome."""
        if "connections" in tables:
            self._add_connections(tables["connections"])
        if "exchanges" in tables:
            found = counted["exchanges"].group_by(["capture", "outcome"]).aggregate([([], "count_all")])
            for row in found.to_pylist():
                self._outcomes[row["capture"], row["outcome"]] += row["count_all"]
            latest = tables["exchanges"].group_by("connection").aggregate([("request_first", "max")])
            self._compare_ends(latest["connection"].to_numpy(), _microseconds(latest["request_first_max"]))

    def _compare_ends(self, keys: Array, latest: Array) -> None:
        """Find connections that end before their latest request. `latest`: µs; of connections with other exchanges the
        earliest time that there is."""
        if len(self._ends):
            ends = self._ends[np.minimum(np.searchsorted(self._ends["connection"], keys), len(self._ends) - 1)]
            self._ended.update(ends["capture"][(ends["connection"] == keys) & (ends["last"] < latest)].tolist())

    def _add_connections(self, table: pa.Table) -> None:
        rows = table.to_pandas()
        self._packets += int(rows["packets"].sum())
        ends = np.zeros(len(rows), _END)
        ends["connection"], ends["capture"] = rows["connection"], rows["capture"]
        ends["last"] = _microseconds(table["connection_last"])
        self._ends = np.sort(np.concatenate((self._ends, ends)), order="connection")
        self._edges.add(rows)

    def findings(self) -> Iterator[tuple[str, str, int]]:
        """(kind, text, amount) of what is wrong."""
        yield from self._of_captures()
        yield from self._of_all()
        for (one, two), count in self._edges.cut.most_common(_MOST_EDGES):
            text = f"{counted(count, 'connection')} of {self._name(one)} {'goes' if count == 1 else 'go'} on in "
            yield "cut", f"{text}{self._name(two)}, which another run read; {_AGAIN}", count
        if (rest := len(self._edges.cut) - _MOST_EDGES) > 0:
            yield "cut", f"so it is between {counted(rest, 'other pair')} of captures", rest

    def _of_captures(self) -> Iterator[tuple[str, str, int]]:
        """What is wrong within a capture."""
        for capture, info in self._files.items():
            sections = self._ledgers[capture]
            total = sections["packets"]["total"]
            if total != info.packets:
                text = f"{self._name(capture)} has {counted(info.packets, 'packet')}, and its ledger {total:,}"
                yield "balance", f"{text}; run it again", abs(total - info.packets)
            for section, parts in sections.items():
                if rest := 2 * parts["total"] - sum(parts.values()):
                    text = f"the parts of {section} of {self._name(capture)} lack {rest:,} of their total; run it again"
                    yield "balance", text, abs(rest)
            if self._is_whole:
                yield from self._of_requests(capture, sections["requests"])

    def _of_requests(self, capture: int, parts: Counter[str]) -> Iterator[tuple[str, str, int]]:
        for code, outcome in enumerate(OUTCOMES):
            there, wanted = self._outcomes[capture, outcome], parts[outcome]
            if code != ORPHAN_RESPONSE and there != wanted:
                text = (
                    f"{self._name(capture)} has {there:,} exchanges of the outcome {outcome}, and its ledger {wanted:,}"
                )
                yield "balance", f"{text}; run it again", abs(there - wanted)

    def _of_all(self) -> Iterator[tuple[str, str, int]]:
        """What is wrong with the sums of all captures."""
        total: Counter[tuple[str, str]] = Counter()
        for sections in self._ledgers.values():
            for section, parts in sections.items():
                total.update({(section, part): count for part, count in parts.items()})
        packets = total["packets", "tcp"] + total["packets", "duplicate"]
        apart = self._ended.copy()
        if self._packets > packets:
            text = f"connections have {self._packets:,} packets, and the captures {packets:,}: one that shares "
            text += "connections with others was read again without them, or forgotten"
            yield "balance", text, self._packets - packets
            apart.update(self._edges.within)  # otherwise they were captured at two places
        for capture, count in apart.items():
            shared = f"captures that share {counted(count, 'connection')} with it"
            yield "cut", f"{self._name(capture)} was read again without {shared}; {_AGAIN}", count
        answered = total["requests", "answered"]
        matched = total["responses", "matched"] + total["responses", "out_of_order"]
        if apart and matched != answered:
            text = f"{matched:,} responses match a request, and {answered:,} requests are answered"
            yield "balance", text, abs(matched - answered)
        if apart and (count := total["payload bytes", "unfinished"]):
            yield "balance", f"{count:,} payload bytes count in two captures, or in none", abs(count)

    def _name(self, capture: int) -> str:
        info = self._files.get(capture)
        return f"capture {capture}" if info is None else info.path


def _microseconds(times: pa.ChunkedArray) -> Array:
    """Times of a lake as int64, µs since the epoch; the earliest that there is where one is null."""
    import pyarrow.compute as pc

    found: Array = pc.fill_null(times.cast("int64"), -(1 << 63)).to_numpy()
    return found
