"""The Arrow tables of the library."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafkatap.dissector import dtypes as r
from kafkatap.reports import tables
from kafkatap.reports.batch import Context

from . import rows as made
from .rows import MS, START, batch, connection, context, exchange, result

#: Names and types that users rely on.
CONTRACT = {
    "connection": "int64", "client_ip": "string", "broker_ip": "string", "client_port": "int32",
    "broker_port": "int32", "client_id": "string", "client_software": "string", "client_software_version": "string",
    "api_key": "int16", "api_name": "string", "api_version": "int16", "correlation_id": "int32",
    "request_first": "timestamp[ns, tz=UTC]", "request_last": "timestamp[ns, tz=UTC]",
    "response_first": "timestamp[ns, tz=UTC]", "response_last": "timestamp[ns, tz=UTC]",
    "request_packet_first": "int64", "response_packet_last": "int64", "request_bytes": "int64",
    "response_bytes": "int64", "outcome": "string", "throttle_time_ms": "int32", "request_status": "string",
    "response_status": "string", "acks": "int16", "max_wait_ms": "int32", "min_bytes": "int32",
}  # fmt: skip


def error_counts(*rows: tuple[int, int, int]) -> np.ndarray:
    out = np.zeros(len(rows), r.ERROR_COUNT)
    for i, (number, code, count) in enumerate(rows):
        out[i]["exchange"], out[i]["code"], out[i]["count"] = number, code, count
    return out


def test_the_contract() -> None:
    schema = tables.arrow_schema(tables.EXCHANGES)
    assert {name: str(schema.field(name).type) for name in CONTRACT} == CONTRACT
    errors = schema.field("errors").type
    assert errors.value_type.field("code").type == pa.int16()
    assert errors.value_type.field("count").type == pa.int32()
    assert set(tables.TABLES) == {"exchanges", "results", "connections", "files", "ledger", "records"}


def test_exchanges() -> None:
    rows = batch(
        [
            exchange(7, throttle_time_ms=5),
            exchange(3, outcome=r.UNANSWERED, client_id=-1, api_key=999),
            exchange(5, client_id=made.HOSTILE, max_wait_ms=500),
        ],
        [
            result(7, 6), result(7, 6, partition=1), result(7, 3, topic=-1, topic_id=made.ORDERS_ID), result(5),
            result(5, topic=made.BILLING), result(5, partition=1), result(99),
        ],
    )  # fmt: skip
    errors = error_counts((7, 3, 1), (7, 6, 2), (99, 1, 1))
    table = tables.exchanges_table(rows.exchanges, errors, [rows.results], context())
    table.validate(full=True)
    first, second, third = table.to_pylist()
    assert first["errors"] == [{"code": 3, "count": 1}, {"code": 6, "count": 2}]
    assert first["topics"] == ["orders", "AAECAwQFBgcICQoLDA0ODw"]
    assert first["throttle_time_ms"] == 5
    assert first["client_ip"] == "10.0.0.1"
    assert first["request_first"].value == START
    assert first["response_first"].value == START + MS
    assert first["broker_ns"] == MS
    assert second["outcome"] == "unanswered"
    assert second["api_name"] == "API 999"
    nulls = ("client_id", "response_first", "response_packet_last", "response_bytes", "throttle_time_ms", "broker_ns")
    assert all(second[name] is None for name in (*nulls, "response_status", "acks"))
    assert second["errors"] == []
    assert third["client_id"] == "\x1b[31mred\x1b[0m"
    assert third["topics"] == ["orders", "billing"]
    assert third["max_wait_ms"] == 500


def test_a_malformed_message_has_the_field_and_its_place() -> None:
    row = exchange(0, response_status=r.MALFORMED, response_problem=made.MARKUP, response_problem_at=37)
    row["request_status"], row["request_problem_at"] = r.TRAILING_BYTES, 101
    table = tables.exchanges_table(batch([row]).exchanges, error_counts(), [batch([]).results], context())
    table.validate(full=True)
    got = table.to_pylist()[0]
    assert (got["response_problem"], got["response_problem_at"]) == ("[bold]markup[/bold]", 37)
    assert (got["request_problem"], got["request_problem_at"]) == (None, 101)


def test_orphan_responses_have_no_request() -> None:
    row = exchange(0)
    row["outcome"], row["request_first"], row["request_last"] = r.ORPHAN_RESPONSE, r.NO_TIME, r.NO_TIME
    row["request_packet_first"] = row["request_packet_last"] = 0
    row["request_bytes"] = -1
    empty = batch([])
    table = tables.exchanges_table(batch([row]).exchanges, error_counts(), [empty.results], context())
    got = table.to_pylist()[0]
    nulls = ("api_key", "api_name", "api_version", "request_first", "request_bytes", "request_status", "total_ns")
    assert all(got[name] is None for name in (*nulls, "request_packet_first"))
    assert got["response_first"].value == START + MS


def test_results() -> None:
    given = batch([exchange(1, key=2**62 + 1), exchange(0, key=2**62 + 7)], [
        result(0, 3, offset=10), result(0, topic=-1, topic_id=made.ORDERS_ID, partition=r.NO_INT32),
        result(1, kind=r.KIND_GROUP, topic=-1, name=made.GROUP),
    ])  # fmt: skip
    for known, name in (({}, None), ({made.ORDERS_ID: made.ORDERS}, "orders")):
        table = tables.results_table(given.results, given.exchanges, context(topic_names=known))
        table.validate(full=True)
        one, two, three = table.to_pylist()
        assert [row["exchange"] for row in (one, two, three)] == [2**62 + 7, 2**62 + 7, 2**62 + 1]
        assert (one["topic"], one["topic_id"], one["error_code"], one["offset"]) == ("orders", None, 3, 10)
        assert (two["topic"], two["topic_id"], two["partition"]) == (name, "AAECAwQFBgcICQoLDA0ODw", None)
        assert (three["kind"], three["name"], three["topic"]) == ("group", "group-1", None)


def test_connections_files_and_ledger() -> None:
    whole = context()
    row = tables.connections_table(connection(handshake_rtt_ns=-1, protocol=2), whole).to_pylist()[0]
    assert (row["client_ip"], row["handshake_rtt_ns"], row["protocol"]) == ("10.0.0.1", None, "tls")
    assert row["connection_first"].value == START
    file = tables.files_table(whole).to_pylist()[0]
    assert (file["path"], file["link_types"], file["drops"]) == ("a.pcap", ["Ethernet"], None)
    assert {"section": "requests", "part": "unanswered", "count": 1} in tables.ledger_table(whole).to_pylist()


def test_empty_tables() -> None:
    nothing, none = Context(), batch([])
    for table in (
        tables.exchanges_table(none.exchanges, error_counts(), [none.results], nothing),
        tables.results_table(none.results, none.exchanges, nothing),
        tables.connections_table(nothing.connections, nothing),
        tables.files_table(nothing),
        tables.ledger_table(nothing),
    ):
        table.validate(full=True)
        assert table.num_rows == 0


def test_a_topic_of_an_exchange_is_listed_once() -> None:
    """Named by its id in one place and by its name in another; an id whose name is not known stays."""
    rows = batch([exchange(7)], [
        result(7), result(7, topic_id=made.ORDERS_ID), result(7, topic=-1, topic_id=made.ORDERS_ID),
    ])  # fmt: skip
    for known, topics in (({made.ORDERS_ID: made.ORDERS}, ["orders"]), ({}, ["orders", "AAECAwQFBgcICQoLDA0ODw"])):
        table = tables.exchanges_table(rows.exchanges, error_counts(), [rows.results], context(topic_names=known))
        assert table["topics"].to_pylist() == [topics]
