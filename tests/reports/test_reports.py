"""The numbers of each report on a small batch made by hand."""

from __future__ import annotations

from typing import Any

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import TIME_PARTS
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import SECOND, ReportCounts
from kafkatap.reports.model import Report, ReportTable
from kafkatap.reports.sections.ledger import WORDS

from . import rows as made
from .rows import MS, START, connection, context, counted, exchange, result


def small() -> ReportCounts:
    """Four clients' worth of traffic with latency, a long poll, throttling, errors and a request without a response."""
    produce = {"api_key": 0, "api_version": 2, "client_id": made.HOSTILE}
    return counted(
        [
            exchange(0, at=0, broker=2 * MS, total_ns=3 * MS, throttle_time_ms=0),
            exchange(1, at=MS, broker=100 * MS, throttle_time_ms=250),
            exchange(2, at=SECOND, broker=50 * MS, throttle_wait_ns=200 * MS, total_ns=250 * MS, throttle_time_ms=0),
            exchange(3, at=SECOND, broker=500 * MS, long_poll=1, throttle_time_ms=0),
            exchange(4, at=3 * SECOND, **produce, hol_wait_ns=4 * MS, total_ns=5 * MS),
            exchange(5, at=3 * SECOND, **produce, outcome=r.UNANSWERED),
            exchange(6, at=3 * SECOND, api_key=11, api_version=5, client_id=made.FORMULA, broker=3 * SECOND),
        ],
        [
            result(0, 6), result(1, 6, partition=1), result(4, 7, topic=made.MARKUP),
            result(6, 27, kind=r.KIND_GROUP, topic=-1, name=made.GROUP),
            result(6, 5120, kind=r.KIND_RESPONSE, topic=-1),
        ],
    )  # fmt: skip


def report(**parts: Any) -> Report:
    return build_report(small(), context(**parts), curves=True)


def column(table: ReportTable, name: str) -> list[Any]:
    at = [c.name for c in table.columns].index(name)
    return [row[at] for row in table.rows]


def test_rows_have_a_value_for_each_column() -> None:
    whole = report()
    for table in (whole.heading, *whole.tables, whole.ledger):
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert len({c.name for c in table.columns}) == len(table.columns)


def test_latency() -> None:
    table = report().table("latency")
    assert column(table, "api") == ["Produce", "Fetch", "Fetch (long poll)", "JoinGroup"]
    assert column(table, "count") == [2, 3, 1, 1]
    assert column(table, "broker_max_ns") == [MS, 100 * MS, 500 * MS, 3 * SECOND]
    assert column(table, "total_max_ns") == [5 * MS, 250 * MS, 500 * MS, 3 * SECOND]
    p50 = column(table, "broker_p50_ns")[1]
    assert abs(p50 - 50 * MS) < 0.01 * 50 * MS
    assert column(table, "broker_p99_ns")[1] <= 100 * MS
    assert column(table, "unanswered") == [1, 0, 0, 0]
    assert column(table, "hol_waits") == [1, 0, 0, 0]
    assert column(table, "throttle_wait_sum_ns") == [0, 200 * MS, 0, 0]


def test_latency_by_client_broker_and_version() -> None:
    counts = small()
    by_client = build_report(counts, context(), by="client").table("latency")
    assert ("Fetch", "billing", 3) in [row[:3] for row in by_client.rows]
    by_broker = build_report(counts, context(), by="broker").table("latency")
    assert {row[1] for row in by_broker.rows} == {"10.0.0.2:9092"}
    by_version = build_report(counts, context(), by="version").table("latency")
    assert ("Produce", 2, 2) in [row[:3] for row in by_version.rows]


def test_throttle() -> None:
    table = report().table("throttle")
    assert table.rows == [
        ("billing", "Fetch", 4, 1, 0.25, 250, 250, 250, 1, 200 * MS, column(table, "throttle_wait_p99_ns")[0], 200 * MS)
    ]
    assert abs(column(table, "throttle_wait_p99_ns")[0] - 200 * MS) <= 2 * MS


def test_errors() -> None:
    table = report().table("errors")
    first = START + 2 * MS
    assert table.rows[0] == (
        "NOT_LEADER_OR_FOLLOWER", 6, "Fetch", "partition", "orders", "billing", True, 2, first, START + 101 * MS, 2,
    )  # fmt: skip
    assert {row[:6] for row in table.rows[1:]} == {
        ("REQUEST_TIMED_OUT", 7, "Produce", "partition", "[bold]markup[/bold]", "\x1b[31mred\x1b[0m"),
        ("REBALANCE_IN_PROGRESS", 27, "JoinGroup", "group", "group-1", "=cmd|' /C calc'!A0"),
        ("5120 (no name)", 5120, "JoinGroup", "response", None, "=cmd|' /C calc'!A0"),
    }


def test_clients() -> None:
    table = report().table("clients")
    assert column(table, "client_id") == ["billing", "\x1b[31mred\x1b[0m", "=cmd|' /C calc'!A0"]
    assert column(table, "requests") == [4, 2, 1]
    assert column(table, "connections") == [1, 0, 0]
    assert column(table, "oldest_release")[0] == "2.3"
    assert column(table, "removed") == [(), (("Produce", (2,)),), ()]
    assert column(table, "rtt_ns") == [150_000, None, None]
    assert column(table, "failed_exchanges") == [2, 1, 1]
    assert column(table, "error_codes") == [2, 1, 2]


def test_error_totals_are_the_sums_of_the_errors() -> None:
    whole = report()
    totals, detail = whole.table("error_totals"), whole.table("errors")
    assert sum(column(totals, "count")) == sum(column(detail, "count")) == 5
    assert column(totals, "error")[0] == "NOT_LEADER_OR_FOLLOWER"
    assert (column(totals, "count")[0], column(totals, "clients")[0], column(totals, "names")[0]) == (2, 1, 1)


def test_verdicts() -> None:
    """The largest share of the time, and never a count of packets."""

    def verdict(wire: Any, *exchanges: Any) -> Any:
        made = build_report(counted(list(exchanges)), context(connections=wire, last=START + 400 * MS))
        return column(made.table("clients"), "verdict")[0]

    metadata = {"api_key": 3}
    quick, slow = exchange(0, **metadata), exchange(0, broker=90 * MS, total_ns=100 * MS, **metadata)
    again = connection(client_retransmitted_bytes=100, client_retransmitted_packets=5, client_zero_windows=2)
    assert verdict(connection(), quick) == verdict(again, quick) == "ok"
    assert verdict(connection(), slow) == verdict(again, slow) == "broker"
    assert column(build_report(counted([slow]), context()).table("clients"), "verdict") == ["ok"]  # 5 % of 2 s
    behind = {**metadata, "broker": MS, "hol_wait_ns": 80 * MS, "total_ns": 81 * MS}
    assert verdict(connection(), exchange(0, **behind)) == "head-of-line"
    assert verdict(connection(), exchange(0, **behind, hol_throttle_wait_ns=70 * MS)) == "head-of-line"
    muted = exchange(0, broker=MS, throttle_wait_ns=90 * MS, total_ns=100 * MS, **metadata)
    assert verdict(again, muted) == "throttled"
    long = {**metadata, "broker": MS, "total_ns": 100 * MS}
    assert verdict(connection(), exchange(0, **long)) == "network"
    assert verdict(connection(), exchange(0, **long, loss_ns=60 * MS)) == "network"
    assert verdict(connection(), exchange(0, **long, unexplained_ns=60 * MS)) == "unknown"
    # The sender of a request is the client, and of a response the broker; the receiver is the other end.
    for message, sender in (("request", "client"), ("response", "broker")):
        started = exchange(0)[f"{message}_last"] - 50 * MS
        times = {**long, f"{message}_first": started}
        assert verdict(connection(), exchange(0, **times, sender_ns=60 * MS)) == sender
        receiver = {"client": "broker", "broker": "client"}[sender]
        assert verdict(connection(), exchange(0, **times, receiver_ns=60 * MS)) == receiver
    # A Fetch waits for data, a JoinGroup for the other members: that is not slowness.
    assert verdict(connection(), quick, exchange(1, broker=400 * MS, total_ns=400 * MS)) == "ok"
    assert verdict(connection(), quick, exchange(1, api_key=11, broker=3 * SECOND)) == "ok"


def test_unknown_throttle_times_are_not_blamed_on_the_broker() -> None:
    """Responses that are cut before their throttle time, such as by a snap length."""
    again = connection(client_retransmitted_bytes=100, client_retransmitted_packets=5)
    slow = {"api_key": 0, "broker": 90 * MS, "total_ns": 100 * MS}
    cut = {**slow, "response_status": r.INCOMPLETE, "throttle_time_ms": r.NO_INT32}

    def made_of(*exchanges: Any) -> Report:
        return build_report(counted(list(exchanges)), context(connections=again, last=START + 400 * MS))

    unknown = made_of(exchange(0, **cut), exchange(1, **cut), exchange(2, **slow))
    clients = unknown.table("clients")
    assert (column(clients, "verdict"), column(clients, "evidence")) == (
        ["unknown"], ["broker or throttle 90 %, path 10 %"]
    )  # fmt: skip
    assert column(unknown.table("latency"), "evidence") == ["broker or throttle 90 %, path 10 %"]
    sentences = [str(text) for text in column(unknown.table("summary"), "text")]
    assert "broker or throttle 90 %" in sentences[0]
    assert any("throttle time or long poll of 2 exchanges unknown" in text for text in sentences)
    assert unknown.warnings[-1].startswith("2 answered exchanges are cut ")
    known = made_of(exchange(0, **cut), exchange(1, **slow), exchange(2, **slow, throttle_time_ms=3))
    assert column(known.table("clients"), "verdict") == ["broker"]
    # A version without the field, decoded whole; and a Fetch of which max_wait_ms is missing.
    assert not any("are cut" in text for text in made_of(exchange(0, **slow)).warnings)
    fetch = exchange(0, throttle_time_ms=0, request_status=r.INCOMPLETE)
    assert made_of(fetch).warnings[-1].startswith("1 answered exchange is cut ")


def test_a_verdict_has_its_evidence() -> None:
    """The shares add up to 1; another column says what the requests ahead waited for."""
    waits = {"hol_wait_ns": 60 * MS, "hol_throttle_wait_ns": 30 * MS, "hol_poll_wait_ns": 20 * MS}
    mixed = exchange(0, api_key=3, broker=10 * MS, throttle_wait_ns=20 * MS, total_ns=100 * MS, **waits)
    names = [f"{part.name.lower()}_share" for part in TIME_PARTS]

    def evidence(wire: Any, *exchanges: Any) -> list[Any]:
        made = build_report(counted(list(exchanges)), context(connections=wire, last=START + 400 * MS))
        table = made.table("clients")
        shares = [column(table, name)[0] for name in names]
        return [{n: share for n, share in zip(names, shares, strict=True) if share}, column(table, "verdict")[0],
                column(table, "evidence")[0]]  # fmt: skip

    wanted = {"hol_share": 0.6, "throttle_share": 0.2, "broker_share": 0.1, "path_share": 0.1}
    found = [wanted, "head-of-line", "HOL 60 %, throttle 20 %"]
    assert evidence(connection(client_zero_windows=1, client_retransmitted_bytes=900), mixed) == found
    assert evidence(connection(), exchange(0, api_key=3))[1:] == ["ok", None]
    # Of a Fetch the wait for data does not count, nor that of the requests ahead.
    fetch = exchange(1, broker=400 * MS, throttle_wait_ns=30 * MS, total_ns=440 * MS)
    assert evidence(connection(), fetch)[0] == {"throttle_share": 0.75, "path_share": 0.25}
    polled = exchange(1, hol_wait_ns=80 * MS, hol_poll_wait_ns=80 * MS, broker=MS, total_ns=81 * MS)
    assert evidence(connection(), polled)[1:] == ["ok", None]
    latency = build_report(counted([mixed, fetch]), context()).table("latency")
    assert column(latency, "evidence") == ["waiting 91 %, throttle 7 %", "HOL 60 %, throttle 20 %"]
    assert column(latency, "hol_behind") == [None, "throttle 50 %, waiting 33 %"]
    assert column(latency, "throttle_share")[1] == 0.2


def test_requests_before_the_software_was_told_count_with_it() -> None:
    told = {"client_software": made.SOFTWARE, "client_software_version": made.VERSION}
    table = build_report(counted([exchange(0), exchange(1, **told)]), context()).table("clients")
    assert column(table, "software") == ["librdkafka 2.3.0"]
    assert column(table, "requests") == [2]
    assert column(table, "connections") == [1]
    other = {"client_software": made.SOFTWARE, "client_software_version": made.GROUP}
    three = build_report(counted([exchange(0), exchange(1, **told), exchange(2, **other)]), context()).table("clients")
    assert len(three.rows) == 3


def test_timeline_has_its_empty_intervals_too() -> None:
    table = report().table("timeline")
    assert [(t - START) // SECOND for t in column(table, "start")] == [0, 1, 2, 3]
    assert column(table, "requests") == [2, 2, 0, 3]
    assert column(table, "answered") == [2, 2, 0, 2]
    assert column(table, "unanswered") == [0, 0, 0, 1]
    assert column(table, "failed_exchanges") == [2, 0, 0, 2]
    assert column(table, "error_codes") == [2, 0, 0, 3]
    assert column(table, "throttled") == [1, 0, 0, 0]
    assert column(table, "broker_max_ns") == [None, None, None, MS]  # Fetch and JoinGroup wait
    alone = build_report(counted([exchange(0, broker=MS), exchange(1, broker=5 * MS, long_poll=1)]), context())
    assert column(alone.table("timeline"), "broker_max_ns") == [MS]


def test_ledger_and_sentences() -> None:
    whole = report()
    assert ("requests", "unanswered", "unanswered", 1, 0.25) in whole.ledger.rows
    assert ("requests", "no_reply_expected", "no reply expected (acks=0)", 2, 0.4) in report(
        ledger={"requests": {"no_reply_expected": 2, "answered": 3, "total": 5}}
    ).ledger.rows
    assert whole.warnings == ("1 request has no response in this capture.",)
    many = report(ledger={"requests": {"unanswered": 31, "total": 31}}, encrypted_share=0.25)
    assert many.warnings == (
        "31 requests have no response in this capture.",
        "25.0 % of the payload is TLS and was not decrypted.",
    )


def test_gaps_and_the_snap_length_have_sentences() -> None:
    with_gaps = connection(client_gap_bytes=1500, client_gaps=1)
    assert report(connections=with_gaps, not_captured=1, ledger={}).warnings == (
        "1,500 bytes of 1 connection are in no packet of this capture (gaps).",
        "The snap length cut off 1 byte of payload. Total times are right, but error codes, throttle times, client ids "
        "and topics in it are missing.",
    )


def test_each_part_of_the_engine_s_ledger_has_words() -> None:
    from kafkatap.engine.engine import Engine

    engine = Engine()
    engine.dissector.cut_frames = 1  # a section that is there only if a limit was reached
    ledger = engine.context(is_over=False).ledger  # so that the parts are there that no finished run has
    parts = {section: set(parts) - {"total"} for section, parts in ledger.items()}
    assert parts == {section: set(words) for section, words in WORDS.items() if section != "tunnels"}
    assert "limits" not in Engine().ledger()


def test_curves_end_at_all_exchanges() -> None:
    curves = report().curves.latency
    assert curves[0][:2] == ("Fetch", 3)
    for _, _, times, parts in curves:
        assert parts[-1] == 1.0
        assert times == sorted(times)


def test_an_empty_run_has_reports() -> None:
    empty = build_report(ReportCounts(), context(connections=connection()[:0], ledger={}), curves=True)
    assert all(not t.rows for t in empty.tables if t.name not in ("files", "summary"))
    assert column(empty.table("summary"), "finding") == ["no_requests"]
    assert empty.warnings == ()
