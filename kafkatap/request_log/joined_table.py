"""The joined exchanges as an Arrow table: both clocks of each (docs/tables.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME, OUTCOMES
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.reports.batch import Context
from kafkatap.reports.row_columns import words
from kafkatap.reports.tables import TIME, TableColumn, Texts, arrow_schema, masked

from .log_join import Joined
from .log_line import PARTS

COLUMNS = (
    TableColumn("exchange", "int64"),
    TableColumn("connection", "int64"),
    *(TableColumn(name, "string") for name in ("client_ip", "broker_ip")),
    *(TableColumn(name, "int32") for name in ("client_port", "broker_port", "correlation_id")),
    TableColumn("client_id", "string", True),
    TableColumn("api_key", "int16"),
    TableColumn("api_name", "string"),
    TableColumn("api_version", "int16"),
    TableColumn("outcome", "string"),
    TableColumn("long_poll", "bool"),
    *(TableColumn(name, TIME, True) for name in ("request_first", "request_last", "response_first", "response_last")),
    *(TableColumn(name, "int64", True) for name in ("broker_ns", "hol_wait_ns", "throttle_wait_ns", "total_ns")),
    TableColumn("log_end", TIME, True),
    TableColumn("log_offset_ns", "int64", True),
    *(TableColumn(f"log_{part}_ns", "int64", True) for part in PARTS),
    TableColumn("difference_ns", "int64", True),
    TableColumn("listener", "string"),
    TableColumn("log_file", "string"),
    TableColumn("log_line", "int32"),
)


def joined_table(joined: Joined, context: Context) -> Any:
    """The pyarrow.Table of the joined exchanges, in order of their requests."""
    import pyarrow as pa

    e, lines, texts = joined.exchanges, joined.lines, Texts(context)
    untimed = e["outcome"] != ANSWERED
    keys, inverse = np.unique(e["api_key"], return_inverse=True)
    columns: dict[str, Any] = {
        "exchange": masked(e["key"], "int64"),
        "client_ip": texts.address(e["client_ip"]),
        "broker_ip": texts.address(e["broker_ip"]),
        "client_id": texts.string(e["client_id"]),
        "api_name": words([api_name(key) for key in keys.tolist()], inverse.reshape(-1)),
        "outcome": words(OUTCOMES, e["outcome"]),
        "long_poll": masked(e["long_poll"] != 0, "bool"),
        "log_end": masked(lines["end"], TIME, lines["end"] < 0),
        "log_offset_ns": masked(joined.offsets, "int64", joined.offsets == NO_TIME),
        "difference_ns": masked(e["broker_ns"] - lines["total"], "int64", untimed | (lines["total"] < 0)),
        "listener": words(joined.log.listeners, lines["listener"]),
        "log_file": words([file.path for file in joined.log.files], lines["file"]),
        "log_line": masked(lines["line"], "int32"),
    }
    for name in ("request_first", "request_last", "response_first", "response_last"):
        columns[name] = masked(e[name], TIME, e[name] == NO_TIME)
    for name in ("broker_ns", "hol_wait_ns", "throttle_wait_ns", "total_ns"):
        columns[name] = masked(e[name], "int64", untimed)
    for part in PARTS:
        columns[f"log_{part}_ns"] = masked(lines[part], "int64", lines[part] < 0)
    for column in COLUMNS:
        if column.name not in columns:
            columns[column.name] = masked(e[column.name], column.type)
    return pa.Table.from_arrays([columns[c.name] for c in COLUMNS], schema=arrow_schema(COLUMNS))
