"""Rows made by hand: exchanges and results with what a test cares for, the rest harmless."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.facts.fact_rows import FACT, NO_NUMBER
from kafkatap.dissector.programs.fact_kinds import NUMBER_OF, columns_of
from kafkatap.reports.batch import Array, Batch, Context, FileInfo
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import P_KAFKA
from kafkatap.reports.counting.counts import ReportCounts

MS = 1_000_000
START = 1_795_236_239 * 1_000_000_000

#: Strings of the hand-made rows, by number.
STRINGS: list[bytes | None] = [
    b"billing", b"\x1b[31mred\x1b[0m", b"=cmd|' /C calc'!A0", b"orders", bytes(range(16)), b"librdkafka", b"2.3.0",
    b"[bold]markup[/bold]", b"group-1",
]  # fmt: skip
BILLING, HOSTILE, FORMULA, ORDERS, ORDERS_ID, SOFTWARE, VERSION, MARKUP, GROUP = range(9)
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.9"]


def exchange(number: int, at: int = 0, broker: int = MS, **columns: Any) -> Any:
    """One answered Fetch v11 of "billing", `at` ns after START, with `broker` ns of broker time."""
    row = np.zeros(1, r.EXCHANGE)[0]
    values: dict[str, Any] = {
        "exchange": number, "key": number, "client_id": BILLING, "client_software": -1,
        "client_software_version": -1, "client_ip": 0, "broker_ip": 1, "client_port": 40000, "broker_port": 9092,
        "api_key": 1, "api_version": 11,
        "request_first": START + at, "request_last": START + at, "response_first": START + at + broker,
        "response_last": START + at + broker, "request_packet_first": 2 * number + 1,
        "request_packet_last": 2 * number + 1, "response_packet_first": 2 * number + 2,
        "response_packet_last": 2 * number + 2, "request_bytes": 100, "response_bytes": 1000, "broker_ns": broker,
        "total_ns": broker, "throttle_time_ms": r.NO_INT32, "max_wait_ms": r.NO_INT32, "min_bytes": r.NO_INT32,
        "acks": r.NO_INT16, "request_problem": -1, "request_problem_at": r.NO_INT32, "response_problem": -1,
        "response_problem_at": r.NO_INT32, "closed_by": -1, "waited_ns": -1, "tls_version": -1,
    }  # fmt: skip
    values.update(columns)
    if values.get("outcome", 0) != r.ANSWERED:
        values.update(
            response_first=r.NO_TIME, response_last=r.NO_TIME, response_packet_first=0, response_packet_last=0,
            response_bytes=-1, broker_ns=0, total_ns=0,
        )  # fmt: skip
    if values["api_key"] in r.WAITS:
        values.setdefault("waiting_ns", values["broker_ns"])
    others = ("broker_ns", "hol_wait_ns", "throttle_wait_ns", "loss_ns", "receiver_ns", "sender_ns", "unexplained_ns")
    values.setdefault("path_ns", max(values["total_ns"] - sum(values.get(name, 0) for name in others), 0))
    for name, value in values.items():
        row[name] = value
    return row


def result(number: int, code: int = 0, **columns: Any) -> Any:
    """One result of an exchange: partition 0 of "orders"."""
    row = np.zeros(1, r.RESULT)[0]
    values: dict[str, Any] = {
        "exchange": number, "error_code": code, "kind": r.KIND_PARTITION, "topic": ORDERS, "topic_id": -1,
        "partition": 0, "name": -1, "offset": -1, "bytes": -1, "records": -1, "error_message": -1,
    }  # fmt: skip
    values.update(columns)
    for name, value in values.items():
        row[name] = value
    return row


def fact(number: int, name: str, **columns: int) -> Any:
    """A fact of a kind on an exchange: on partition 0 of "orders"."""
    row = np.zeros(1, FACT)[0]
    for column in [f"v{i}" for i in range(10)]:
        row[column] = NO_NUMBER
    for column in ("s0", "s1", "s2", "s3", "topic_id"):
        row[column] = -1
    row["exchange"], row["kind"], row["topic"] = number, NUMBER_OF[name], ORDERS
    names = columns_of(NUMBER_OF[name])
    for column, value in columns.items():
        row[names.get(column, column)] = value
    return row


def batch(exchanges: list[Any], results: list[Any] | None = None, facts: list[Any] | None = None) -> Batch:
    """`facts`: those of each exchange together, in their order."""
    made = Batch(_rows(exchanges, r.EXCHANGE), _rows(results or [], r.RESULT))
    return made if facts is None else made._replace(facts=_rows(facts, FACT))


def _rows(rows: list[Any], kind: Any) -> Array:
    out = np.zeros(len(rows), kind)
    for i, row in enumerate(rows):
        out[i] = row
    return out


def counted(exchanges: list[Any], results: list[Any] | None = None, **options: Any) -> ReportCounts:
    counts = ReportCounts(**options)
    counts.add(batch(exchanges, results))
    counts.finish()
    return counts


def connection(**columns: Any) -> Array:
    rows = np.zeros(1, CONNECTION_ROW)
    values: dict[str, Any] = {
        "client_ip": 0, "broker_ip": 1, "client_port": 40000, "broker_port": 9092, "client_id": BILLING,
        "software": -1, "software_version": -1, "sasl_mechanism": -1, "handshake_rtt_ns": 150_000,
        "protocol": P_KAFKA, "orientation_known": 1, "client_packets": 5, "broker_packets": 6,
        "client_bytes": 1000, "broker_bytes": 9000, "first": START,
        "last": START + 10 * MS,
    }  # fmt: skip
    values.update(columns)
    for name, value in values.items():
        rows[name] = value
    return rows


def context(**parts: Any) -> Context:
    values: dict[str, Any] = {
        "strings": STRINGS, "addresses": ADDRESSES, "connections": connection(), "first": START,
        "last": START + 2_000 * MS, "packets": 40,
        "files": [FileInfo("a.pcap", "pcap", 1, 40, 123_456, ("Ethernet",), START, START + 2_000 * MS)],
        "ledger": {
            "packets": {"TCP payload": 30, "TCP without payload": 10, "total": 40},
            "requests": {"answered": 3, "unanswered": 1, "total": 4},
        },
    }  # fmt: skip
    values.update(parts)
    return Context(**values)
