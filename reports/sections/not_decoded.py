"""Requests of which only the header was read: versions and APIs that the definitions in use do not know."""

from __future__ import annotations

from collections.abc import Sequence

from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns
from ..model import Column, Table, Value

COLUMNS = (
    Column("api", "API", "text", "name of the API; API and its key where that is not known"),
    Column("api_key", "key", "count", "its key", 1),
    Column("api_version", "version", "count", "the version that was sent"),
    Column("requests", "count", "count", "requests of that version"),
    Column("status", "why", "text", "newer_version, older_version, or unknown_api"),
    Column("known_from", "known\nfrom", "count", "oldest version that the definitions know; null: the API is unknown"),
    Column("known_to", "known\nto", "count", "newest version that the definitions know; null: the API is unknown"),
)
NEWER, OLDER, UNKNOWN_API = "newer_version", "older_version", "unknown_api"

#: How many a sentence names before it only counts them.
NAMED = 3
_WHAT = {NEWER: "newer than these definitions", OLDER: "older than these definitions",
         UNKNOWN_API: "not in these definitions"}  # fmt: skip
_REST = ": paired by header, bodies not decoded; --definitions DIR reads a newer Kafka's."


def not_decoded(counts: ReportCounts, context: Context) -> Table:
    """One row for each (API, version) that was asked for and cannot be decoded, the most frequent first."""
    if context.known_versions is None:
        return _table([])
    c = group_columns(counts.groups, tally.GROUP_KEY)
    requests = counts.groups.value_rows()[:, :4].sum(axis=1)
    found: dict[tuple[int, int], int] = {}
    for key, version, n in zip(c["api_key"].tolist(), c["api_version"].tolist(), requests.tolist(), strict=True):
        low, high = context.known_versions.get(key, (0, -1))
        if n and not low <= version <= high:
            found[key, version] = found.get((key, version), 0) + n
    rows: list[tuple[Value, ...]] = []
    for (key, version), n in sorted(found.items(), key=lambda entry: (-entry[1], entry[0])):
        known = context.known_versions.get(key)
        status = UNKNOWN_API if known is None else NEWER if version > known[1] else OLDER
        rows.append((api_label(key), key, version, n, status, *(known or (None, None))))
    return _table(rows)


def _table(rows: list[tuple[Value, ...]]) -> Table:
    notes = ("Requests and responses are paired by their headers; their bodies are not decoded.",)
    return Table("not_decoded", "Not decoded", COLUMNS, rows, notes, shown_from=NAMED + 1)


def sentences(table: Table) -> tuple[str, ...]:
    """What a `not_decoded` table says, one sentence for each reason."""
    said = []
    for status in (NEWER, OLDER, UNKNOWN_API):
        rows = [row for row in table.rows if row[4] == status]
        if len(rows) == 1:
            bound = {NEWER: f" (up to v{rows[0][6]})", OLDER: f" (from v{rows[0][5]})"}.get(status, "")
            said.append(f"{_name(rows[0], '')} is {_WHAT[status]}{bound}{_REST}")
        elif rows:
            names = [_name(row, _known(status, row)) for row in rows[:NAMED]]
            left = len(rows) - len(names)
            names += [f"{left} more"] if left else []
            said.append(f"{', '.join(names[:-1])} and {names[-1]} are {_WHAT[status]}{_REST}")
    return tuple(said)


def _name(row: Sequence[Value], known: str) -> str:
    n = row[3]
    requests = f"{n:,} request{'' if n == 1 else 's'}"
    return f"{row[0]} v{row[2]} ({requests}{known})"


def _known(status: str, row: Sequence[Value]) -> str:
    return {NEWER: f", known up to v{row[6]}", OLDER: f", known from v{row[5]}"}.get(status, "")
