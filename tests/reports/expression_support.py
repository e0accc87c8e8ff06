"""A naive judge of filter expressions: row by row, on the tables of an analysis as plain Python values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kafkatap.dissector.kafka.error_codes import error_codes

MS = 1_000_000
ERROR_CODES = {name: code for code, (name, *_) in error_codes().items()}


def plain_rows(analysis: Any) -> list[dict[str, Any]]:
    """The exchanges as dicts, times in ns, each with its results under "results"; "asked_ids" (topics that a request
    names by id) are left empty."""
    exchanges, results = ns_rows(analysis.exchanges), ns_rows(analysis.results)
    by_key: dict[int, list[dict[str, Any]]] = {}
    for result in results:
        by_key.setdefault(result["exchange"], []).append(result)
    for row in exchanges:
        row["results"], row["asked_ids"] = by_key.get(row["exchange"], []), []
    return exchanges


def ns_rows(table: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    for i, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


#: The values that a name has in an exchange, null left out.
def values_of(row: dict[str, Any], name: str) -> list[Any]:
    results = row["results"]
    found: list[Any]
    if name == "client":
        found = [row["client_id"], row["client_ip"]]
    elif name == "broker":
        found = [row["broker_ip"], f":{row['broker_port']}", f"{row['broker_ip']}:{row['broker_port']}"]
    elif name == "error":
        found = [e["code"] for e in row["errors"]] or [0]
    elif name == "topic":
        found = [*row["topics"], *row["asked_ids"], *(r["topic"] for r in results), *(r["topic_id"] for r in results)]
    elif name in ("partition", "kind", "error_code", "bytes", "records", "offset", "name"):
        found = [r[name] for r in results]
    elif name == "packet":
        found = list(_packets(row))
    elif name == "size":
        found = [row["request_bytes"], row["response_bytes"]]
    else:
        column, factor = _COLUMNS.get(name, (name, 1))
        value = row[column]
        found = [None if value is None else value * factor if factor != 1 else value]
    return [value for value in found if value is not None]


_COLUMNS = {
    "api": ("api_key", 1), "version": ("api_version", 1), "latency": ("total_ns", 1), "broker_time": ("broker_ns", 1),
    "hol_wait": ("hol_wait_ns", 1), "throttle_wait": ("throttle_wait_ns", 1), "throttle": ("throttle_time_ms", MS),
    "max_wait_ms": ("max_wait_ms", MS),
}  # fmt: skip


def _packets(row: dict[str, Any]) -> Iterator[int]:
    for end in ("request", "response"):
        if row[f"{end}_packet_first"] is not None:
            yield from range(row[f"{end}_packet_first"], row[f"{end}_packet_last"] + 1)


def holds(row: dict[str, Any], name: str, op: str, value: Any) -> bool:
    """One comparison; `value` in the unit of the tables' ns, bytes, keys and codes."""
    if op in ("!=", "!~", "not in"):
        return not holds(row, name, {"!=": "==", "!~": "~", "not in": "in"}[op], value)
    values = values_of(row, name)
    if op == "":
        return any(v is not False for v in values) and not (name == "error" and values == [0])
    if op == "in":
        return any(holds(row, name, "==", each) for each in value)
    if value is None:
        return not values
    if op == "~":
        return any(re.search(value, v) is not None for v in values)
    compare = {
        "==": lambda v: v == value, "<": lambda v: v < value, "<=": lambda v: v <= value,
        ">": lambda v: v > value, ">=": lambda v: v >= value,
    }[op]  # fmt: skip
    return any(map(compare, values))
