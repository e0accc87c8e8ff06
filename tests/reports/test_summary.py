"""What a report begins with: at most eight lines that agree with the tables, each with a command that a shell takes."""

from __future__ import annotations

import io
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.dissector import dtypes as r
from kafkatap.reports import units
from kafkatap.reports.batch import LIVE, FileInfo
from kafkatap.reports.build import build_report
from kafkatap.reports.commands import command, with_captures
from kafkatap.reports.rendering.text import mild_rows, write_text
from kafkatap.reports.section_parts.selected import Selected

from . import rows as made
from .rows import MS, connection, context, counted, exchange, result
from .test_reports import report, small

LEDGER = {"packets": {"tcp": 40, "total": 40}, "payload bytes": {"kafka_frames": 100, "total": 100}}
PRODUCE = {"api_key": 0, "api_version": 9}


def found(
    *exchanges: Any, results: Any = (), selected: Selected | None = None, **parts: Any
) -> dict[str, dict[str, Any]]:
    """The rows of the summary by finding."""
    whole = build_report(counted(list(exchanges), list(results)), context(ledger=LEDGER, **parts), selected=selected)
    table = whole.table("summary")
    names = [c.name for c in table.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in table.rows}  # type: ignore[misc]


def test_nothing_is_wrong() -> None:
    rows = found(exchange(0, **PRODUCE), exchange(1))
    assert list(rows) == ["none"]
    assert rows["none"]["text"].startswith("All 2 requests were answered, or expected no answer.")
    assert rows["none"]["command"] is None


def test_the_usual_start_is_no_error() -> None:
    start = exchange(0, api_key=11, api_version=5)
    usual = result(0, 79, kind=r.KIND_RESPONSE, topic=-1)
    rows = found(start, results=[usual])
    assert list(rows) == ["none"]
    assert "None was slow, failed beyond what clients mend by themselves or throttled" in rows["none"]["text"]
    assert "errors" in found(start, results=[usual, result(0, 25, kind=r.KIND_GROUP, topic=-1, name=made.GROUP)])


def test_slow_clients_come_first_that_lost_most() -> None:
    """With their API and its parts. What a Fetch waits for data is no cost."""
    slow = [
        exchange(n, broker=30 * MS, throttle_wait_ns=10 * MS, total_ns=40 * MS, client_id=made.ORDERS, **PRODUCE)
        for n in range(3)
    ]
    quick = exchange(3, broker=20 * MS, **PRODUCE)
    longest = exchange(4, api_key=19, broker=100 * MS)
    rows = found(*slow, quick, longest, exchange(5, broker=500 * MS, long_poll=1))
    row = rows["slow_broker"]
    assert row["text"] == 'client "orders": Produce p99 40.0 ms; broker 75 %, throttle 25 %; 1 other client too'
    assert row["command"] == "kafkatap report --by client --api Produce --client orders CAPTURE"
    numbers = dict(row["numbers"])
    assert row["time_lost_ns"] == (3 * 30 + 20 + 100) * MS
    assert (numbers["api"], numbers["requests"], numbers["time_ns"]) == ("Produce", 3, 120 * MS)
    assert (numbers["broker_share"], numbers["throttle_share"]) == (0.75, 0.25)
    assert row["parties"] == (("client", "orders"), ("broker", "10.0.0.2:9092"), ("client", "billing"))
    assert list(rows) == ["slow_broker", "throttled"]


def test_a_fetch_is_slow_by_what_is_not_its_wait() -> None:
    waited = exchange(0, broker=400 * MS, throttle_wait_ns=30 * MS, total_ns=430 * MS)
    rows = found(waited)
    assert list(rows) == ["throttled"]
    assert rows["throttled"]["text"] == (
        'client "billing": Fetch 30.0 ms on average besides its wait for data; throttle wait 30.0 ms '
        "in total over its requests, 100 % of its time"
    )
    assert list(found(exchange(0, broker=400 * MS))) == ["none"]


def test_retransmissions_and_closed_windows_are_no_verdict() -> None:
    again = connection(client_retransmitted_bytes=300, client_retransmitted_packets=6, client_zero_windows=4)
    rows = found(exchange(0, broker=30 * MS, **PRODUCE), connections=again)
    assert list(rows) == ["slow_broker"]
    lost = exchange(0, broker=MS, loss_ns=90 * MS, total_ns=100 * MS, **PRODUCE)
    assert found(lost, connections=again)["slow_network"]["text"] == (
        'client "billing": Produce p99 100 ms; loss 90 %, path 9 %'
    )


def test_losses_are_one_line() -> None:
    files = [FileInfo("a.pcap", "pcap", 1, 40, 100, drops=7, damage="cut short")]
    ledger = {
        "requests": {"response_lost": 1, "total": 1},
        "payload bytes": {"skipped": 50, "kafka_frames": 150, "total": 200},
    }
    gaps = connection(client_gap_bytes=1500, client_gaps=1)
    whole = build_report(
        counted([exchange(0)]), context(files=files, ledger=ledger, connections=gaps, not_captured=9, interrupted=True)
    )
    [row] = whole.table("summary").rows
    shown = dict(zip((c.name for c in whole.table("summary").columns), row, strict=True))
    assert (shown["finding"], shown["severity"], shown["label"]) == ("lost", "error", "lost")
    assert shown["command"] == "kafkatap report --ledger CAPTURE"
    assert dict(shown["numbers"])["gap_bytes"] == 1500
    assert shown["text"] == (
        "reading was interrupted, 1 damaged file, 7 packets dropped during capture, 1.5 KiB in gaps, 9 B cut off by "
        "the snap length, 1 response missing, 50 B (25.0 %) not parsed"
    )


MANY = 1_000_000
WHOLE = {"kafka_frames": MANY, "total": MANY}


@pytest.mark.parametrize(
    ("gap", "ledger", "severity"),
    [
        (999, {"payload bytes": WHOLE}, "note"),
        (1_000, {"payload bytes": WHOLE}, "warning"),
        (999, {"payload bytes": WHOLE, "requests": {"response_lost": 1}}, "warning"),  # of one request
        (999, {"payload bytes": WHOLE, "packets": {"bad_header": 1}}, "warning"),
        (999, {"payload bytes": {**WHOLE, "skipped": 10_000}}, "warning"),
        (0, {"payload bytes": {**WHOLE, "skipped": 99_999}}, "note"),  # what the capture begins with
        (0, {"payload bytes": {**WHOLE, "skipped": 100_000}}, "warning"),
        (0, {"payload bytes": {**WHOLE, "out_of_window": 10_000}}, "warning"),
        (0, {"payload bytes": {**WHOLE, "skipped": 10_000}, "packets": {"bad_header": 1}}, "warning"),
    ],
)
def test_little_that_is_lost_is_a_note(gap: int, ledger: dict[str, dict[str, int]], severity: str) -> None:
    gaps = connection(client_gap_bytes=gap, client_gaps=int(gap > 0))
    table = build_report(counted([exchange(0)]), context(ledger=ledger, connections=gaps)).table("summary")
    rows = {row["finding"]: row for row in table.named_rows()}
    assert rows["lost"]["severity"] == severity
    if severity == "note":
        assert "and little was lost" in str(rows["none"]["text"])


def test_losses_of_a_selection_are_those_of_its_responses() -> None:
    lost = {"requests": {"response_lost": 9, "total": 20}, "packets": {"bad_header": 2, "total": 40}}
    counts = counted([exchange(0), exchange(1, outcome=r.RESPONSE_LOST)])
    whole = build_report(counts, context(ledger=lost), selected=Selected("--client billing"))
    table = whole.table("summary")
    row = dict(zip((c.name for c in table.columns), table.rows[-1], strict=True))
    assert row["text"] == "1 response missing; in the whole capture: 2 packets with invalid headers"
    assert row["command"] == "kafkatap report --client billing --ledger CAPTURE"


def test_at_most_eight_lines_at_the_very_beginning() -> None:
    """Each with a command. The rest is counted."""
    unknown = exchange(7, api_key=999, api_version=0)
    everything = context(connections=connection(client_gap_bytes=9), encrypted_share=0.5, not_captured=5,
                         known_versions={1: ((0, 20),)})  # fmt: skip
    counts = small()
    codes = [exchange(10 + n, api_key=3) for n in range(6)]
    counts.add(
        made.batch([unknown, *codes], [result(10 + n, 30 + n, kind=r.KIND_RESPONSE, topic=-1) for n in range(6)])
    )
    whole = build_report(counts, everything)
    out = io.StringIO()
    write_text(whole, out, utc=True, captures=["a.pcap"])
    *lines, last = out.getvalue().split("\n\n")[0].splitlines()
    lines = [f"{text}{command}" for text, command in zip(lines[::2], lines[1::2], strict=True)]
    left = len(whole.table("summary").rows) - len(mild_rows(whole.table("summary"))) - len(lines)
    assert last == f"… and {left} more findings (-n all shows them)"
    assert 5 <= len(lines) <= 8 < len(whole.table("summary").rows)
    assert all(("kafkatap report" in line or "kafkatap show" in line) and " a.pcap" in line for line in lines)


def test_names_that_a_terminal_changes_are_in_no_command() -> None:
    hostile = exchange(0, broker=30 * MS, client_id=made.HOSTILE, **PRODUCE)
    assert found(hostile)["slow_broker"]["command"] == "kafkatap report --by client --api Produce CAPTURE"
    rows = found(exchange(0, client_id=made.FORMULA, broker=30 * MS, **PRODUCE))
    assert shlex.split(rows["slow_broker"]["command"])[6:8] == ["--client", "=cmd|' /C calc'!A0"]


@given(st.text())
def test_a_shell_reads_each_word_back(text: str) -> None:
    if "\0" not in text:
        assert shlex.split(units.shell_word(text)) == [text]


def test_commands_keep_the_selection() -> None:
    options = (("by", "client"), ("client", "-x y"), ("v", ""))
    assert command(context(), None, options) == "kafkatap report --by client --client='-x y' -v CAPTURE"
    # Two values of one option are alternatives, so the second one would select more.
    assert command(context(), "--client 'a*'", options) == "kafkatap report --client 'a*' --by client -v CAPTURE"
    selected = "--client=-x --filter 'api == Fetch or error'"
    assert command(context(), selected, (("filter", "outcome == unanswered"),), "show") == (
        "kafkatap show --client=-x --filter '(api == Fetch or error) and outcome == unanswered' CAPTURE"
    )
    live = context(files=[FileInfo("eth0", LIVE, 1, 40, 100)])
    assert command(live, None, (("filter", "error"),), "show") == ""  # nothing to read again


@pytest.mark.parametrize(
    ("captures", "end"),
    [
        (["a b.pcap"], "'a b.pcap'"),
        (["a.pcap", "b.pcap"], "a.pcap b.pcap"),
        (["-"], "CAPTURE"),
        ([], "CAPTURE"),
        (["x" * 200], "CAPTURE"),
        (["a\x1b.pcap"], "CAPTURE"),
    ],
)
def test_captures_are_named_if_that_helps(captures: list[str], end: str) -> None:
    assert with_captures("kafkatap report CAPTURE", captures) == f"kafkatap report {end}"


def test_the_ledger_is_one_line_unless_wanted() -> None:
    out = io.StringIO()
    write_text(report(), out, utc=True)
    assert out.getvalue().splitlines()[-1] == (
        "Ledger: 40 packets (75.0 % TCP payload), 4 requests (75.0 % answered); --ledger shows every part"
    )
    whole = io.StringIO()
    write_text(report(), whole, utc=True, whole_ledger=True)
    assert whole.getvalue().splitlines()[-1] == "The parts of each section add up to its total."


def test_a_client_that_holds_back_by_itself_lost_the_throttle_time() -> None:
    """No request of it waits on the wire (KIP-219)."""
    held = [exchange(n, throttle_time_ms=400, broker=2 * MS, client_id=made.ORDERS, **PRODUCE) for n in range(3)]
    row = found(*held)["throttled"]
    assert row["time_lost_ns"] == 3 * 400 * MS
    assert row["text"] == (
        'client "orders": 3 throttled responses, throttle time 1.20 s in total over its responses, '
        "in which the client itself sends nothing"
    )


def test_records_that_a_reader_misses_come_before_slow_requests() -> None:
    slow = [exchange(n, broker=500 * MS, client_id=made.ORDERS, **PRODUCE) for n in range(1, 9)]
    rows = found(exchange(0), *slow, results=[result(0, 1)])
    assert next(iter(rows)) == "errors"
    assert "auto.offset.reset says which records the client skips or reads again" in rows["errors"]["text"]
    assert "%" not in rows["errors"]["text"]


def test_a_failed_disk_explains_the_errors_that_follow_on_its_topics() -> None:
    """KAFKA_STORAGE_ERROR is retriable, but no retry mends it. What other topics answer does not follow from it."""
    exchanges = [exchange(n, n * 1000 * MS, api_key=3, api_version=9) for n in range(4)]
    rows = [
        result(0, 56),
        *(result(n, 5) for n in (1, 2)),
        result(3, 3, topic=made.BILLING),
    ]
    table = build_report(counted(exchanges, rows), context(ledger=LEDGER)).table("summary")
    lines = [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]
    first, *rest = lines
    assert [row["cause"] for row in rest if "UNKNOWN_TOPIC" in str(row["text"])] == [None]
    assert [row["cause"] for row in rest if "LEADER_NOT" in str(row["text"])] == ["errors"]
    assert (first["label"], first["severity"]) == ("disk failed", "error")
    assert "a log directory of broker 10.0.0.2:9092 failed" in str(first["text"])
    assert "2 LEADER_NOT_AVAILABLE followed" in str(first["text"])


def test_connections_of_lost_responses_are_not_those_of_unanswered_requests() -> None:
    client_closed = {"closed_by": r.CLOSED_BY_CLIENT, **PRODUCE}
    lost = [exchange(n, outcome=r.RESPONSE_LOST, **client_closed) for n in (1, 2)]
    silent = [exchange(n, outcome=r.UNANSWERED, **client_closed) for n in (3, 4)]
    row = found(*silent, *lost)["unanswered"]
    assert row["text"] == (
        '2 requests have no response: Produce 2; all by client "billing"; the client closed the connection of all'
    )
    assert row["severity"] == "note"


def test_errors_that_clients_retried_are_one_line() -> None:
    exchanges = [exchange(n, api_key=10, api_version=3) for n in range(3)]
    rows = found(*exchanges, results=[result(0, 14), result(1, 15), result(2, 15)])
    assert "errors" not in rows
    assert str(rows["retried"]["text"]).startswith(
        "3 errors that clients may retry, to 1 client: COORDINATOR_NOT_AVAILABLE 2, COORDINATOR_LOAD_IN_PROGRESS 1"
    )
    assert "error in (COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS)" in str(rows["retried"]["command"])


def test_the_first_question_of_an_admin_client_is_no_failure() -> None:
    """It asks for a group of the new protocol first, and then for one of the old protocol."""
    ask = exchange(1, api_key=69, api_version=0)
    assert "errors" not in found(exchange(0), ask, results=[result(1, 35, kind=r.KIND_GROUP)])
    assert "errors" in found(exchange(0), ask, results=[result(1, 30, kind=r.KIND_GROUP)])
