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
from kafkatap.reports.rendering.text import write_text
from kafkatap.reports.sections.commands import command, with_captures

from . import rows as made
from .rows import MS, connection, context, counted, exchange, result
from .test_reports import report, small

LEDGER = {"packets": {"tcp": 40, "total": 40}, "payload bytes": {"kafka_frames": 100, "total": 100}}
PRODUCE = {"api_key": 0, "api_version": 9}


def found(*exchanges: Any, results: Any = (), selected: str | None = None, **parts: Any) -> dict[str, dict[str, Any]]:
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
    assert "None was slow, failed beyond a usual start or throttled" in rows["none"]["text"]
    assert "errors" in found(start, results=[usual, result(0, 27, kind=r.KIND_GROUP, topic=-1, name=made.GROUP)])


def test_the_slowest_api_is_the_one_that_costs_most() -> None:
    """With its parts and the client that has most of it. What a Fetch waits for data is no cost."""
    slow = [
        exchange(n, broker=30 * MS, throttle_wait_ns=10 * MS, total_ns=40 * MS, client_id=made.ORDERS, **PRODUCE)
        for n in range(3)
    ]
    quick = exchange(3, broker=20 * MS, **PRODUCE)
    longest = exchange(4, api_key=19, broker=100 * MS)
    rows = found(*slow, quick, longest, exchange(5, broker=500 * MS, long_poll=1))
    text = rows["slow_api"]["text"]
    assert text.startswith("Produce: total p99 ")
    assert text.endswith("; broker 79 %, throttle 21 %; 86 % of it by client orders")
    assert rows["slow_api"]["command"] == "kafkatap report --by client --api Produce CAPTURE"
    assert (rows["slow_api"]["api"], rows["slow_api"]["client_id"]) == ("Produce", "orders")


def test_a_fetch_is_slow_by_what_is_not_its_wait() -> None:
    waited = exchange(0, broker=400 * MS, throttle_wait_ns=30 * MS, total_ns=430 * MS)
    rows = found(waited)
    assert rows["slow_api"]["text"] == (
        "Fetch: 30.0 ms on average besides its wait for data; throttle 100 %; all of it by client billing"
    )
    assert "slow_api" not in found(exchange(0, broker=400 * MS))


def test_a_client_with_a_lossy_network() -> None:
    again = connection(client_retransmitted_bytes=300, client_retransmitted_packets=6)
    rows = found(exchange(0, broker=30 * MS, **PRODUCE), connections=again)
    assert rows["network"]["text"] == "billing: total p99 30.0 ms; retransmitted 3.0 %"
    assert rows["network"]["command"] == "kafkatap report --by client --client billing CAPTURE"
    closed = connection(client_zero_windows=1)
    rows = found(exchange(0, broker=MS, total_ns=100 * MS, **PRODUCE), connections=closed)
    assert rows["slow_client"]["text"] == (
        "billing: total p99 100 ms; client 99 %, broker 1 %; it closed its receive window 1 time"
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
    assert (row[0], row[1], row[5]) == ("lost", "lost", "kafkatap report -v CAPTURE")
    assert row[2] == (
        "reading was interrupted, 1 damaged file, 7 packets dropped during capture, 1.5 KiB in gaps, 9 B cut off by "
        "the snap length, 1 response missing, 50 B (25.0 %) in no message that was found"
    )


def test_losses_of_a_selection_are_those_of_its_responses() -> None:
    lost = {"requests": {"response_lost": 9, "total": 20}, "packets": {"bad_header": 2, "total": 40}}
    counts = counted([exchange(0), exchange(1, outcome=r.RESPONSE_LOST)])
    whole = build_report(counts, context(ledger=lost), selected="--client billing")
    row = whole.table("summary").rows[-1]
    assert row[2] == "1 response missing; in the whole capture: 2 packets with invalid headers"
    assert row[5] == "kafkatap report --client billing -v CAPTURE"


def test_at_most_eight_lines_at_the_very_beginning() -> None:
    again = connection(client_retransmitted_bytes=300, client_retransmitted_packets=6, client_gap_bytes=9)
    unknown = exchange(7, api_key=999, api_version=0)
    everything = context(connections=again, encrypted_share=0.5, known_versions={1: ((0, 20),)}, not_captured=5)
    counts = small()
    counts.add(made.batch([unknown]))
    whole = build_report(counts, everything)
    assert 5 <= len(whole.table("summary").rows) <= 8
    out = io.StringIO()
    write_text(whole, out, utc=True, captures=["a.pcap"])
    lines = out.getvalue().split("\n\n")[0].splitlines()
    assert len(lines) == len(whole.table("summary").rows)
    assert all(("kafkatap report" in line or "kafkatap show" in line) and " a.pcap" in line for line in lines)


def test_names_that_a_terminal_changes_are_in_no_command() -> None:
    hostile = exchange(0, broker=30 * MS, client_id=made.HOSTILE, **PRODUCE)
    again = connection(client_id=made.HOSTILE, client_retransmitted_bytes=300, client_retransmitted_packets=6)
    assert found(hostile, connections=again)["network"]["command"] == "kafkatap report --by client CAPTURE"
    quoted = connection(client_id=made.FORMULA, client_retransmitted_bytes=300, client_retransmitted_packets=6)
    rows = found(exchange(0, client_id=made.FORMULA, broker=30 * MS, **PRODUCE), connections=quoted)
    assert shlex.split(rows["network"]["command"])[4:6] == ["--client", "=cmd|' /C calc'!A0"]


@given(st.text())
def test_a_shell_reads_each_word_back(text: str) -> None:
    if "\0" not in text:
        assert shlex.split(units.shell_word(text)) == [text]


def test_commands_keep_the_selection() -> None:
    options = (("by", "client"), ("client", "-x y"), ("v", ""))
    assert command(context(), None, options) == "kafkatap report --by client --client='-x y' -v CAPTURE"
    # Two values of one option are alternatives, so the second one would select more.
    assert command(context(), "--client 'a*'", options) == "kafkatap report --client 'a*' --by client -v CAPTURE"
    live = context(files=[FileInfo("eth0", LIVE, 1, 40, 100)])
    assert command(live, None, (("filter", "error"),), "show") == "kafkatap live --filter error"


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
    assert with_captures("kafkatap live", captures) == "kafkatap live"


def test_the_ledger_is_one_line_unless_wanted() -> None:
    out = io.StringIO()
    write_text(report(), out, utc=True)
    assert out.getvalue().splitlines()[-1] == (
        "Ledger: 40 packets (75.0 % TCP payload), 4 requests (75.0 % answered); -v shows every part"
    )
    whole = io.StringIO()
    write_text(report(), whole, utc=True, whole_ledger=True)
    assert whole.getvalue().splitlines()[-1] == "The parts of each section add up to its total."
