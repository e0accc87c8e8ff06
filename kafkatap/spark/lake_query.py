"""What a report of a lake is of: the rows of its tables that a query selects."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.reports.batch import endpoint
from kafkatap.reports.counting.hour_counts import HOUR
from kafkatap.reports.units import iso

from .output.delta import naming_table, open_table, read_table

if TYPE_CHECKING:
    import re

    import pyarrow as pa
    import pyarrow.compute as pc

    from kafkatap.reports.hosts.host_table import HostTable
    from kafkatap.reports.literals import Moment

    from ..engine.selection import Selection

Array = np.ndarray[Any, Any]
#: Rows that are read at once: one of the rollup has five histograms.
_ROWS = 8_192
#: No hour is later.
_LATEST = 1 << 21


class LakeQuery(NamedTuple):
    """What a report is of. `begin`, `end`: hours since the epoch, None: no limit. `clients`: matches client_ids and
    addresses. `selection`: decides on brokers, and has the text of all options. `apis`: keys. `captures`: only those;
    None: all. `hosts`: names of addresses, in `clients` too."""

    selection: Selection
    begin: int | None = None
    end: int | None = None
    clients: re.Pattern[str] | None = None
    apis: frozenset[int] | None = None
    captures: frozenset[int] | None = None
    hosts: HostTable | None = None

    @property
    def chooses_ends(self) -> bool:
        """Whether it is of some clients, brokers or APIs alone."""
        return self.clients is not None or self.apis is not None or bool(self.selection.brokers)

    def dates(self) -> pc.Expression:
        """The dates of its hours, and its captures, as a condition on the rows of a table."""
        import pyarrow as pa
        import pyarrow.compute as pc

        date = pc.field("date")
        wanted = pc.scalar(True) if self.captures is None else isin("capture", sorted(self.captures))
        if self.begin is not None:
            wanted &= date >= pa.scalar(self.begin // 24, pa.date32())
        if self.end is not None:
            wanted &= date <= pa.scalar(self.end // 24, pa.date32())
        return wanted

    def hours(self) -> pc.Expression:
        """Its hours, as a condition on the rows of a table of the rollup."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted, hour = self.dates(), pc.field("hour")
        if self.begin is not None:
            wanted &= hour >= pa.scalar(self.begin * (HOUR // 1000), pa.timestamp("us", "UTC"))
        if self.end is not None:
            wanted &= hour < pa.scalar(self.end * (HOUR // 1000), pa.timestamp("us", "UTC"))
        return wanted

    @property
    def span(self) -> tuple[int, int]:
        """From when to when its hours are, ns since the epoch."""
        return (self.begin or 0) * HOUR, (_LATEST if self.end is None else self.end) * HOUR

    def has_hours(self, hours: Array) -> Array:
        """Which hours since the epoch it has: int64 (n,) -> bool (n,)."""
        found = np.ones(len(hours), bool)
        if self.begin is not None:
            found &= hours >= self.begin
        if self.end is not None:
            found &= hours < self.end
        return found

    def of_apis(self) -> pc.Expression:
        """Its APIs, as a condition on the rows of a table."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.apis is None:
            return pc.scalar(True)
        return pc.field("api_key").isin(pa.array(sorted(self.apis), pa.int16()))

    def of_ends(self, rows: pa.Table) -> pa.Table:
        """The rows of its clients and brokers. Tables without a column of an end have those of all."""
        return self._of_brokers(self._of_clients(rows))

    def _of_clients(self, rows: pa.Table) -> pa.Table:
        if self.clients is None or not rows.num_rows:
            return rows
        clients, found = self.clients, np.zeros(rows.num_rows, bool)
        for name in ("client_id", "client_ip"):
            if name in rows.column_names:
                found |= _where(rows, (name,), lambda text: text is not None and bool(clients.match(text)))
        if self.hosts is not None and "client_ip" in rows.column_names:
            found |= _where(rows, ("client_ip",), self._is_named)
        return rows.filter(found)

    def _is_named(self, address: str | None) -> bool:
        """Whether an address has the name of one of its clients in its hours."""
        if address is None or self.hosts is None or self.clients is None:
            return False
        first, last = (self.begin or 0) * HOUR, (_LATEST if self.end is None else self.end) * HOUR
        names = (name for host in self.hosts.within(address, first, last) for name in host.texts)
        return any(self.clients.match(name) for name in names)

    def _of_brokers(self, rows: pa.Table) -> pa.Table:
        if not self.selection.brokers or "broker_ip" not in rows.column_names or not rows.num_rows:
            return rows
        has = self.selection.has_broker
        return rows.filter(_where(rows, ("broker_ip", "broker_port"), lambda ip, port: has(endpoint(ip, port))))


def captures_of(out: str, cluster: str | None) -> frozenset[int] | None:
    """The captures of a cluster (a name, or a glob); None without one. ValueError if the lake has no such cluster."""
    if cluster is None:
        return None
    rows = read_table(out, "files", ("capture", "cluster")).to_pylist()
    found = frozenset(row["capture"] for row in rows if fnmatch.fnmatchcase(row["cluster"] or "", cluster))
    if not found:
        there = sorted({row["cluster"] for row in rows if row["cluster"]})
        named = f"it has {', '.join(there)}" if there else "its captures have none (--path-pattern of kafkatap spark)"
        raise ValueError(f"{out} has no cluster {cluster}; {named}")
    return found


def hours_of(selection: Selection) -> tuple[int | None, int | None]:
    """The window of a selection, as hours since the epoch. ValueError if it is not of whole hours."""
    begin, end = (None if each is None else hour_of(each) for each in selection.window or (None, None))
    return begin, end


def hour_of(moment: Moment) -> int:
    """A moment as hours since the epoch. ValueError if it is no whole hour."""
    if not moment.is_absolute:
        raise ValueError(f"{moment.text} has no date, and a lake has many days: give both, as 2026-11-21T08:00Z")
    at = moment.at(0)
    if at % HOUR:
        raise ValueError(
            f"{iso(at)[:16]} UTC is no whole hour, and the counts of a lake are by hour; for less than an hour, use "
            f"its captures"
        )
    return at // HOUR


def isin(column: str, values: Sequence[Any]) -> pc.Expression:
    """That a column has one of some values, as a condition on rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.field(column).isin(pa.array(values))


def read_rows(out: str, table: str, columns: Sequence[str], wanted: pc.Expression) -> Iterator[pa.Table]:
    """The rows of a table that match, in parts, without the columns that it lacks. OSError names the table."""
    import pyarrow as pa

    dataset = open_table(out, table).to_pyarrow_dataset()
    there = set(dataset.schema.names)
    names = [name for name in columns if name in there]
    batches = dataset.to_batches(names, wanted, _ROWS, batch_readahead=1, fragment_readahead=1)
    while True:
        with naming_table(out, table):
            batch = next(batches, None)
        if batch is None:
            return
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _where(rows: pa.Table, names: tuple[str, ...], holds: Any) -> Array:
    """Where a condition on some columns holds: bool (n,). It is asked once for each distinct value."""
    import pyarrow as pa

    texts = rows.select(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    found = np.zeros(rows.num_rows, bool)
    for values in texts.group_by(list(names)).aggregate([("row", "list")]).to_pylist():
        found[values["row_list"]] = holds(*(values[name] for name in names))
    return found
