"""Captures of real TLS endpoints (samples/tls), their tables, and what belongs together in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kafkatap import analyze

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "tls"
#: Columns of exchanges that are the same in front of a terminator and behind it.
SAME = (
    "api_key", "api_version", "correlation_id", "client_id", "client_software", "client_software_version",
    "request_bytes", "response_bytes", "outcome", "errors", "throttle_time_ms", "request_status", "response_status",
    "acks", "topics",
)  # fmt: skip
TIMES = ("request_first", "request_last", "response_first", "response_last")
Row = dict[str, Any]


@cache
def truth(name: str) -> Any:
    """The truth beside a capture."""
    return json.loads((FOLDER / f"{name}.truth.json").read_text())


@cache
def analysis(name: str, *keys: str) -> Any:
    """A capture with these key logs."""
    return analyze(FOLDER / f"{name}.pcap.zst", keylog=[FOLDER / f"{key}.keys.log" for key in keys] or None)


def without_resumed(lines: str) -> str:
    """A key log without the lines of resumed sessions of TLS 1.2, as Go writes it: of each master secret the first
    line."""
    seen: dict[str, str] = {}
    for line in lines.splitlines(True):
        seen.setdefault(line.split()[-1] if line.startswith("CLIENT_RANDOM") else line, line)
    return "".join(seen.values())


def rows(table: Any) -> list[Row]:
    """An exchanges table as dicts, in order of the requests; times in ns."""
    found = []
    for row in table.to_pylist():
        for name in TIMES:
            row[name] = None if row[name] is None else int(row[name].value)
        found.append(row)
    return sorted(
        found, key=lambda row: (row["request_packet_first"] or row["response_packet_first"], row["correlation_id"])
    )


@cache
def exchanges(name: str, *keys: str) -> Sequence[Row]:
    """The exchanges of a capture with these key logs."""
    return rows(analysis(name, *keys).exchanges)


@cache
def by_client(name: str, *keys: str) -> dict[int, list[Row]]:
    """The same by the client's port."""
    found: dict[int, list[Row]] = {}
    for row in exchanges(name, *keys):
        found.setdefault(row["client_port"], []).append(row)
    return found


@cache
def connections(name: str, *keys: str) -> dict[int, Row]:
    """The rows of connections by the client's port, with the columns of CONNECTION_ROW and texts for numbers."""
    context = analysis(name, *keys).context
    found = {}
    for record in context.connections:
        row: Row = {column: record[column].item() for column in record.dtype.names}
        for column in ("tls_server_name", "tls_alpn", "tls_ja4", "tls_server_certificate", "tls_client_certificate"):
            row[column] = context.text(row[column])
        found[row["client_port"]] = row
    return found


def same(row: Row) -> tuple[Any, ...]:
    """What is equal on both sides of a terminator."""
    return tuple(repr(row[name]) for name in SAME)
