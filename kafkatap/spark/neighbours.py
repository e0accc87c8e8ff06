"""What a lake has beside the rows that a run replaces: captures that share connections with its own, and records.

A run over one hour of a series would decode its connections without their beginnings and ends, and the rows of the
other hours would still have its packets. So it is refused, and the message names the others.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.reports.finding_words import counted

from ..parquet.partitions import DAY_NS
from .balance import OF_CONNECTIONS, Edges
from .lake_query import isin, read_rows
from .output.delta import is_delta, read_table
from .output.run_tables import file_infos, first_date

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from kafkatap.reports.batch import Array, FileInfo

#: Captures that the message names.
_NAMED = 3


class SharedConnections(ValueError):
    """Captures of a run share connections with others of a lake. The message names these, and says what to do."""


def check_neighbours(out: str, files: Sequence[FileInfo], replaced: Collection[int] = ()) -> None:
    """SharedConnections if captures of a run have exchanges in a lake, of connections of which captures that are not of
    the run have others. `files`: those of the run. `replaced`: it replaces the runs with these numbers, and goes on
    from what is before them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (is_delta(out, "files") and is_delta(out, "exchanges")):
        return
    rows = read_table(out, "files")
    there = {info.capture: info.path for info in file_infos(rows)}
    apart = rows.filter(pc.invert(pc.is_in(rows["run_number"], pa.array(replaced, pa.int64()))))["capture"].to_pylist()
    own = np.array(sorted({info.capture for info in files} & there.keys()), np.int64)
    if set(apart).isdisjoint(own.tolist()) or len(own) == len(there):
        return
    since = first_date(out, files)
    if since is None:
        return
    mine = np.zeros(0, np.int64)
    for keys, captures in _connections(out, since):
        mine = np.union1d(mine, keys[np.isin(captures, own)])
    parts = np.zeros((0, 2), np.int64)  # of these connections: key and capture
    for keys, captures in _connections(out, since):
        found = np.column_stack((keys, captures))[np.isin(keys, mine) & np.isin(captures, list(there))]
        parts = np.unique(np.concatenate((parts, found)), axis=0)
    is_own = np.isin(parts[:, 1], own)
    is_shared = np.isin(parts[:, 0], np.intersect1d(parts[is_own, 0], parts[~is_own, 0]))
    if is_shared.any():
        one, others = (
            sorted(there[capture] for capture in np.unique(parts[is_shared & chosen, 1]).tolist())
            for chosen in (is_own, ~is_own)
        )
        rest = f" and {counted(len(others) - _NAMED, 'other capture')}" if len(others) > _NAMED else ""
        raise SharedConnections(
            f"{out}: connections of {one[0]} go on in {', '.join(others[:_NAMED])}{rest}, whose rows are there. Read "
            "all of them in one run, or remove the others with `kafkatap lake forget`"
        )


def cut_note(out: str, files: Sequence[FileInfo], since: str | None) -> str | None:
    """A sentence on connections that captures of a run share with captures that other runs read; None if there are
    none. `files`: those of the run, whose rows are published. `since`: as of `first_date`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = read_table(out, "files", ["capture", "run", "path"])
    names = dict(zip(rows["capture"].to_pylist(), rows["path"].to_pylist(), strict=True))
    own = {info.capture for info in files}
    lasts = [info.last for info in files if info.last is not None]
    if since is None or not lasts or own == names.keys():
        return None
    until = np.datetime64(max(lasts) // DAY_NS + 1, "D").item()
    wanted = _from(since) & (pc.field("date") <= pc.scalar(until))
    edges, parts = Edges.between(rows), [*read_rows(out, "connections", (*OF_CONNECTIONS, "capture"), wanted)]
    if parts:
        edges.add(pa.concat_tables(parts).to_pandas())
    cut = [(count, pair) for pair, count in edges.cut.items() if own & set(pair)]
    if not cut:
        return None
    one, two = max(cut)[1]
    return (
        f"{counted(sum(count for count, _ in cut), 'connection')} go on in captures that another run read, such as "
        f"from {names[one]} in {names[two]}: requests at the edge may lack their response. Pass the series to one run, "
        "or let it arrive (`--checkpoint`)."
    )


def has_records(out: str, files: Sequence[FileInfo]) -> bool:
    """Whether a lake has records of captures. `files`: these captures."""
    own = isin("capture", [info.capture for info in files])
    return is_delta(out, "records") and next(read_rows(out, "records", ("capture",), own), None) is not None


def _connections(out: str, since: str) -> Iterator[tuple[Array, Array]]:
    """The connections of exchanges, and the captures that have these; some rows at a time. `since`: the first date."""
    for rows in read_rows(out, "exchanges", ("connection", "capture"), _from(since)):
        yield rows["connection"].to_numpy(), rows["capture"].to_numpy()


def _from(date: str) -> pc.Expression:
    """The rows of this date and later ones, as a condition."""
    import pyarrow.compute as pc

    return pc.field("date") >= pc.scalar(datetime.date.fromisoformat(date))
