"""Requests of unknown APIs or versions: only their headers are decoded."""

from __future__ import annotations

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE
from kafkatap.dissector.layouts.vendors import vendor_of

from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns
from ..model import Column, ReportTable, Row, in_columns

COLUMNS = (
    Column("api", "API", "text", "name of the API, or 'API' and its key if it is unknown"),
    Column("api_key", "key", "count", "key of the API", 1),
    Column("api_version", "version", "count", "version of the requests"),
    Column("requests", "count", "count", "requests of that version"),
    Column("status", "status", "text", "newer_version, older_version or unknown_api"),
    Column("known_from", "known\nfrom", "count", "oldest known version; null: the API is unknown"),
    Column("known_to", "known\nto", "count", "newest known version below a newer one; null: the API is unknown"),
    Column("vendor", "vendor", "text", "vendor who uses this key; null: none is known", 1),
)
NEWER, OLDER, UNKNOWN_API = "newer_version", "older_version", "unknown_api"

#: A sentence names at most this many versions and counts the rest.
NAMED = 3
_REASONS = {NEWER: "newer than these definitions", OLDER: "older than these definitions",
            UNKNOWN_API: "not in these definitions"}  # fmt: skip
_REST = (
    ". Requests are matched with responses, but bodies are not decoded. Load their definitions with --definitions PATH."
)


def not_decoded(counts: ReportCounts, context: Context) -> ReportTable:
    """One row for each requested (API, version) that cannot be decoded, the most frequent first."""
    if context.known_versions is None:
        return _table([])
    c = group_columns(counts.groups, tally.GROUP_KEY)
    requests = counts.groups.value_rows()[:, :ORPHAN_RESPONSE].sum(axis=1)
    found: dict[tuple[int, int], int] = {}
    for key, version, n in zip(c["api_key"].tolist(), c["api_version"].tolist(), requests.tolist(), strict=True):
        known = context.known_versions.get(key, ())
        # Rows that --max-names added up have no version: -1.
        if n and version >= 0 and not any(low <= version <= high for low, high in known):
            found[key, version] = found.get((key, version), 0) + n
    rows: list[Row] = []
    for (key, version), n in sorted(found.items(), key=lambda entry: (-entry[1], entry[0])):
        known = context.known_versions.get(key, ())
        below = [high for _, high in known if high < version]
        status = UNKNOWN_API if not known else NEWER if below else OLDER
        low, high = (known[0][0], below[-1] if below else known[-1][1]) if known else (None, None)
        rows.append({
            "api": api_label(key), "api_key": key, "api_version": version, "requests": n, "status": status,
            "known_from": low, "known_to": high, "vendor": vendor_of(key) or None,
        })  # fmt: skip
    return _table(rows)


def _table(rows: list[Row]) -> ReportTable:
    notes = ("Requests are matched with responses by their headers. Bodies are not decoded.",)
    return ReportTable("not_decoded", "Not decoded", COLUMNS, in_columns(COLUMNS, rows), notes, shown_from=NAMED + 1)


def not_decoded_warnings(table: ReportTable) -> tuple[str, ...]:
    """Warnings from a `not_decoded` table: one sentence for each reason."""
    found = []
    for status in (NEWER, OLDER, UNKNOWN_API):
        rows = [row for row in table.named_rows() if row["status"] == status]
        if len(rows) == 1:
            first = rows[0]
            bound = {NEWER: f" (up to v{first['known_to']})", OLDER: f" (from v{first['known_from']})"}.get(status, "")
            known = _known(status, first) if status == UNKNOWN_API else ""
            found.append(f"{_name(first, known)} is {_REASONS[status]}{bound}{_REST}")
        elif rows:
            names = [_name(row, _known(status, row)) for row in rows[:NAMED]]
            left = len(rows) - len(names)
            names += [f"{left} more"] if left else []
            found.append(f"{', '.join(names[:-1])} and {names[-1]} are {_REASONS[status]}{_REST}")
    return tuple(found)


def _name(row: Row, known: str) -> str:
    n = row["requests"]
    requests = f"{n:,} request{'' if n == 1 else 's'}"
    return f"{row['api']} v{row['api_version']} ({requests}{known})"


def _known(status: str, row: Row) -> str:
    vendor = f", a key of {row['vendor']}" if row["vendor"] else ""
    bounds = {NEWER: f", known up to v{row['known_to']}", OLDER: f", known from v{row['known_from']}"}
    return bounds.get(status, vendor)
