"""What error codes mean, what to do, what brokers say of them, and which of them a retry never mends."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafkatap.dissector.kafka.error_codes import code_of, error_codes
from kafkatap.reports.findings import ERROR, NOTE, Finding
from kafkatap.reports.sections.error_codes import errors
from kafkatap.reports.sections.error_words import (
    NO_WORDS,
    ErrorWords,
    denied,
    error_words,
    fenced_words,
    unit_of_timestamps,
)
from kafkatap.reports.sections.failure_findings import error_findings
from tests.reports.rows import BILLING, GROUP, MARKUP, ORDERS, context, counted, exchange, result
from tests.support.section_runs import QUESTIONS, section_input

SECOND = 1_000_000_000
_JOIN = 11


def test_every_code_says_what_to_do() -> None:
    for code, each in error_codes().items():
        assert bool(each.remedy) == (code != 0), each.name
        assert code == 0 or (each.remedy[-1] == "." and each.remedy[0].isupper()), each.name
        assert not each.setting or each.setting.strip() == each.setting, each.name
    assert error_codes()[36].is_harmless
    assert not error_codes()[77].is_harmless


def found(
    error: str, failed: int, answered: int, well: float = 0, words: ErrorWords = NO_WORDS, **more: Any
) -> Finding:
    """The finding on a code that the first of some requests had, one each 100 ms. `well`: seconds after the last of
    these, in which the others were answered."""
    code = code_of(error)
    assert code is not None
    times = [n * SECOND // 10 for n in range(failed)]
    times += [times[-1] + int((well + n / 10) * SECOND) for n in range(answered)]
    rows = [exchange(n, at, api_key=_JOIN, api_version=5) for n, at in enumerate(times)]
    counts = counted(rows, [result(n, code, **more) for n in range(failed)])
    (one,) = error_findings(errors(counts, context()), counts, context(), words)
    return one


@pytest.mark.parametrize(
    ("error", "failed", "answered", "well", "severity"),
    [
        ("NOT_COORDINATOR", 10, 0, 0, ERROR),
        ("NOT_COORDINATOR", 9, 0, 0, NOTE),
        ("NOT_COORDINATOR", 15, 5, -1.9, ERROR),
        ("NOT_COORDINATOR", 14, 5, -1.9, NOTE),  # less than 75 %
        ("NOT_COORDINATOR", 102, 68, -6.8, ERROR),  # 60 % of them, for 10 s
        ("NOT_COORDINATOR", 102, 69, -6.9, NOTE),
        ("NOT_COORDINATOR", 99, 66, -6.6, NOTE),
        ("NOT_COORDINATOR", 20, 1, 1.0, ERROR),
        ("NOT_COORDINATOR", 20, 1, 1.1, NOTE),  # the last one went well
        ("REBALANCE_IN_PROGRESS", 9, 0, 0, NOTE),
        ("REBALANCE_IN_PROGRESS", 10, 0, 0, ERROR),
        ("TOPIC_ALREADY_EXISTS", 50, 0, 0, NOTE),
        ("INVALID_TOPIC_EXCEPTION", 1, 9, 1, ERROR),
    ],
)
def test_what_never_succeeds_is_no_retry(error: str, failed: int, answered: int, well: float, severity: str) -> None:
    one = found(error, failed, answered, well)
    assert (one.severity, one.label) == (severity, "failing" if severity == ERROR else "retried")


@pytest.mark.parametrize(
    ("failed", "well", "others", "severity"),
    [
        (101, 0, 300, ERROR),  # all Metadata failed for 10 s until the end, whatever Produce did
        (100, 0, 300, NOTE),
        (101, 33, 300, ERROR),
        (101, 34, 300, NOTE),  # less than 75 % of Metadata
    ],
)
def test_an_api_that_never_succeeds_again(failed: int, well: int, others: int, severity: str) -> None:
    number = code_of("UNKNOWN_TOPIC_OR_PARTITION")
    assert number is not None
    rows = [exchange(n, n * SECOND // 10, api_key=3, api_version=9) for n in range(failed)]
    rows += [exchange(failed + n, n, api_key=3, api_version=9) for n in range(well)]
    produced = [exchange(failed + well + n, n, api_key=0, api_version=9) for n in range(others)]
    results = [result(n, number) for n in range(failed)] + [result(failed + well, number)]  # and one Produce
    counts = counted([*rows, *produced], results)
    (one,) = error_findings(errors(counts, context()), counts, context())
    assert one.severity == severity


@pytest.mark.parametrize(("topics", "lines"), [(1, 1), (2, 2), (3, 3), (4, 1)])
def test_each_unknown_topic_has_a_line(topics: int, lines: int) -> None:
    numbers = [ORDERS, BILLING, GROUP, MARKUP][:topics]
    unknown, other = code_of("UNKNOWN_TOPIC_OR_PARTITION"), code_of("NOT_LEADER_OR_FOLLOWER")
    assert unknown is not None
    assert other is not None
    rows = [exchange(n, n * SECOND, api_key=3, api_version=9) for n in range(topics)]
    made = [
        error_findings(errors(counts, context()), counts, context())
        for code in (unknown, other)
        for counts in (counted(rows, [result(n, code, topic=number) for n, number in enumerate(numbers)]),)
    ]
    assert [len(each) for each in made] == [lines, 1]
    assert len({one.key for one in made[0]}) == lines
    if lines > 1:
        assert all(one.parties[0].kind == "topic" for one in made[0])


def test_a_line_has_what_the_code_says_and_what_to_change() -> None:
    one = found("COORDINATOR_NOT_AVAILABLE", 20, 0, words=ErrorWords(nodes=1))
    assert "no coordinator can be named" in one.text
    assert "Metadata names 1 broker, and its topic needs 3" in one.text
    assert one.setting.startswith("offsets.topic.replication.factor")
    assert "Metadata names" not in found("COORDINATOR_NOT_AVAILABLE", 20, 0, words=ErrorWords(nodes=3)).text
    short = found("COORDINATOR_NOT_AVAILABLE", 3, 0, words=ErrorWords(nodes=1))
    assert (short.setting, short.remedy) == ("", "")
    assert "no coordinator" not in short.text


def test_the_broker_is_quoted_and_cut() -> None:
    code = code_of("INVALID_RECORD")
    assert code is not None
    one = found("INVALID_RECORD", 2, 0, words=ErrorWords({code: "no key in t-0 " + "x" * 500}))
    assert 'the broker says "no key in t-0 xx' in one.text
    assert one.text.endswith('…"')
    assert len(one.text) < 600
    retried = code_of("NOT_COORDINATOR")
    assert retried is not None
    assert "says" not in found("NOT_COORDINATOR", 20, 0, words=ErrorWords({retried: "Not coordinator."})).text


@pytest.mark.parametrize(
    ("digits", "unit"), [(10, None), (13, None), (15, None), (16, "microseconds"), (19, "nanoseconds"), (20, None)]
)
def test_timestamps_in_another_unit_are_no_wrong_clock(digits: int, unit: str | None) -> None:
    words = f"Timestamp {'1' * digits} of message with offset 0 is out of range"
    assert unit_of_timestamps(words) == unit
    one = found("INVALID_TIMESTAMP", 5, 0, words=ErrorWords({32: words}))
    assert (f"timestamps of records are in {unit}" in one.text) == (unit is not None)
    assert ("the clock of the client's host is wrong" in one.text) == (unit is None)
    assert bool(one.setting) == (unit is None)


def test_denials_name_principal_operation_resource_and_host() -> None:
    one = found("GROUP_AUTHORIZATION_FAILED", 1, 0, words=ErrorWords(users={"billing": ["etl"]}), kind=3, name=8)
    assert one.label == "denied"
    assert "(group group-1" in one.text.replace("groups", "group")
    assert 'no ACL allows Read to user "etl" from 10.0.0.1' in one.text
    assert denied(["Produce", "Fetch"], [], ["10.0.0.1"]) == "no ACL allows Read, Write to its principal from 10.0.0.1"


def test_who_fenced_a_producer() -> None:
    """Where that was captured. Of a client of which it was not, the meaning of the code stays."""
    given = section_input(QUESTIONS / "transactions.pcap.zst", ["transactions", "events"])
    words = error_words(given).fenced[47]
    assert list(words) == ["payout-old"]
    assert re.fullmatch(
        r'client "payout-new" \(127.0.0.1\) began with the same transactional.id "payout" .* before \(InitProducerId\)',
        words["payout-old"],
    )
    assert error_words(section_input(QUESTIONS / "transactions.pcap.zst", "events")).fenced == {}
    usual = "another producer began with the same transactional.id, or"
    for client, code in (("billing", 47), ("other", 47), ("billing", 90)):
        one = found("INVALID_PRODUCER_EPOCH", 1, 0, words=ErrorWords(fenced={code: {client: "who"}}))
        is_known = (client, code) == ("billing", 47)
        assert (one.text.endswith("; who"), usual in one.text) == (is_known, not is_known)
    assert fenced_words({"a": "x", "b": "y"}, ["a", "b", "c"]) == ("x and 1 more", False)


def test_other_codes_make_none_lasting() -> None:
    rows = [exchange(n, n * SECOND // 10, api_key=_JOIN, api_version=5) for n in range(100)]
    counts = counted(rows, [result(n, 16 if n >= 90 else 15) for n in range(100)])
    made = {one.numbers["code"]: one for one in error_findings(errors(counts, context()), counts, context())}
    assert (made[16].numbers["failed_share"], made[16].severity) == (1.0, NOTE)
