"""The joined exchanges as an Arrow table: both clocks of each (docs/tables.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME, OUTCOMES
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.reports.batch import Context
from kafkatap.reports.row_columns import words
from kafkatap.reports.table_columns import TIME, TableColumn
from kafkatap.reports.tables import Texts, arrow_schema, masked

from .log_join import Joined
from .log_line import PARTS

_AS = "as in `exchanges`"
_IN_LOG = "`totalTimeMs`, `requestQueueTimeMs` and so on; `throttleTimeMs` is null before Kafka 0.11"
COLUMNS = (
    TableColumn("exchange", "int64", _AS),
    TableColumn("connection", "int64", _AS),
    TableColumn("client_ip", "string", _AS),
    TableColumn("broker_ip", "string", _AS),
    TableColumn("client_port", "int32", _AS),
    TableColumn("broker_port", "int32", _AS),
    TableColumn("correlation_id", "int32", _AS),
    TableColumn("client_id", "string", _AS, True),
    TableColumn("api_key", "int16", _AS),
    TableColumn("api_name", "string", _AS),
    TableColumn("api_version", "int16", _AS),
    TableColumn("outcome", "string", "answered or no_reply_expected; others if the log has what the capture lost"),
    TableColumn("long_poll", "bool", _AS),
    TableColumn("request_first", TIME, _AS, True),
    TableColumn("request_last", TIME, _AS, True),
    TableColumn("response_first", TIME, _AS, True),
    TableColumn("response_last", TIME, _AS, True),
    TableColumn("broker_ns", "int64", _AS, True),
    TableColumn("hol_wait_ns", "int64", _AS, True),
    TableColumn("throttle_wait_ns", "int64", _AS, True),
    TableColumn("total_ns", "int64", _AS, True),
    TableColumn("log_end", TIME, "time of the line, by the broker's clock; without a zone as UTC", True),
    TableColumn("log_offset_ns", "int64", "how far the log's clock is ahead of the capturing one", True),
    TableColumn("log_total_ns", "int64", _IN_LOG, True),
    TableColumn("log_request_queue_ns", "int64", _IN_LOG, True),
    TableColumn("log_local_ns", "int64", _IN_LOG, True),
    TableColumn("log_remote_ns", "int64", _IN_LOG, True),
    TableColumn("log_throttle_ns", "int64", _IN_LOG, True),
    TableColumn("log_response_queue_ns", "int64", _IN_LOG, True),
    TableColumn("log_send_ns", "int64", _IN_LOG, True),
    TableColumn("difference_ns", "int64", "`broker_ns` - `log_total_ns`", True),
    TableColumn("listener", "string", "listener; empty before Kafka 0.10"),
    TableColumn("log_file", "string", "path of the log"),
    TableColumn("log_line", "int32", "line in it, from 1"),
)  # fmt: skip


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
