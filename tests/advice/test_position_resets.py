"""Readers that lose their position: how many records they skip or read again, and what is no evidence for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from kafkatap.dissector.dtypes import KIND_PARTITION
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.reports.batch import Batch
from kafkatap.reports.findings import ERROR, Finding, Party
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.advice import findings
from kafkatap.reports.sections.folding import folded
from kafkatap.reports.sections.folds import Known
from tests.reports.rows import BILLING, MS, START, STRINGS, batch, context, counted, exchange, fact, result
from tests.support.section_runs import section_input

from .advice_samples import FOLDER, found, of, truth

END, BEGINNING = -1, -2
OUT_OF_RANGE = 1
FOLLOWER, FOLLOWER_NAME = len(STRINGS), b"broker-2-fetcher-0"


def by_client(made: Sequence[Finding]) -> dict[str | None, Finding]:
    return {finding.party("client"): finding for finding in made}


def test_the_recording_has_what_the_readers_say() -> None:
    made, readers = by_client(of("position-reset", "position_reset")), truth("position-reset")["readers"]
    assert set(made) == {"dwh-loader", "archive", "moved"}  # `strict` stopped, with an error
    for name in ("dwh-loader", "archive"):
        assert made[name].numbers["asked"] == readers[name]["last_before"] + 1
        assert made[name].numbers["to"] == readers[name]["first_after"]
        assert made[name].numbers["records"] == readers[name]["first_after"] - readers[name]["last_before"] - 1
        assert made[name].label == "records lost"
    assert made["moved"].numbers["asked"] == truth("position-reset")["moved_from"]
    assert made["moved"].numbers["to"] == readers["moved"]["first_after"]
    assert (made["moved"].label, made["moved"].numbers["direction"]) == ("position reset", -1)
    assert readers["strict"]["errors"] == ["_AUTO_OFFSET_RESET"]
    deleted_ns = truth("position-reset")["deleted_ms"] * MS
    assert all((finding.begin or 0) > deleted_ns for finding in made.values())


def test_readers_that_had_read_what_is_deleted_are_not_named() -> None:
    assert found("position-reset-right") == ()
    assert all(not reader["errors"] for reader in truth("position-reset-right")["readers"].values())


def test_the_usual_report_of_large_captures_names_the_same_readers() -> None:
    made = findings(section_input(FOLDER / "position-reset.pcap.zst", "first-lines"))
    texts = [finding.text for finding in made if finding.id == "position_reset"]
    assert len(texts) == 2  # to the end, and to the beginning
    assert all("lost its position in clicks-0" in text or "and 1 more lost" in text for text in texts)


class Step(NamedTuple):
    """What a reader does, in ms: `fetch` an offset, be `refused` it, or ask for the offset of a `timestamp`."""

    at: int
    what: str
    offset: int
    timestamp: int = END
    partition: int = 0
    client: int = BILLING
    host: int = 0
    error: int = 0


def fetch(at: int, offset: int, **columns: int) -> Step:
    return Step(at, "fetch", offset, **columns)


def refused(at: int, offset: int, **columns: int) -> Step:
    return Step(at, "refused", offset, **columns)


def listed(at: int, timestamp: int, offset: int, **columns: int) -> Step:
    return Step(at, "list", offset, timestamp, **columns)


#: The broker deleted what `billing` had not read, and it went to the end.
TO_THE_END = (fetch(0, 90), refused(100, 100), listed(150, END, 1100), fetch(200, 1100))


def batch_of(steps: Sequence[tuple[int, Step]], sections: str) -> Batch:
    exchanges, results, facts = [], [], []
    for number, step in steps:
        place = {"partition": step.partition}
        api = 2 if step.what == "list" else 1
        exchanges.append(exchange(number, step.at * MS, api_key=api, client_id=step.client, client_ip=step.host))
        error = OUT_OF_RANGE if step.what == "refused" else step.error
        if error:
            results.append(result(number, error, kind=KIND_PARTITION, partition=step.partition))
        if step.what == "list":
            facts.append(fact(number, "list offsets partition", **place, timestamp=step.timestamp))
            facts.append(fact(number, "listed partition", **place, error_code=step.error, offset=step.offset))
        elif sections == "advice":
            end = -1 if error else 5000
            facts.append(fact(number, "fetch partition", **place, offset=step.offset))
            facts.append(fact(number, "fetched partition", **place, error_code=error, high_watermark=end))
    return batch(exchanges, results, facts)


def given_of(*steps: Step, sections: str = "advice", runs: int = 1, most: int = 1000) -> SectionInput:
    """What the findings are made of: steps that several runs read, each a part of them."""
    ordered = list(enumerate(sorted(steps)))
    total = SectionCounts((sections,), most, lambda: 0)
    for run in range(runs):
        part = SectionCounts((sections,), most, lambda: 0)
        for one in np.array_split(np.arange(len(ordered)), 2 * runs)[2 * run : 2 * run + 2]:
            part.add(batch_of([ordered[i] for i in one], sections))
            part.finish()
        total.merge(part)
    rows = [exchange(number, step.at * MS) for number, step in ordered]
    return SectionInput(total, counted(rows), context(strings=[*STRINGS, FOLLOWER_NAME]), {})


def resets(*steps: Step, **options: Any) -> list[Finding]:
    return [finding for finding in findings(given_of(*steps, **options)) if finding.id == "position_reset"]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_reader_that_goes_to_the_end_skips_records(runs: int) -> None:
    (finding,) = resets(*TO_THE_END, runs=runs)
    assert finding.text == (
        'client "billing" (10.0.0.1) skipped 1,000 records of orders-0: it asked for offset 100, which the log no '
        "longer has (OFFSET_OUT_OF_RANGE), and went on at the end of the log, 1,100 (auto.offset.reset=latest). "
        "Retention (or DeleteRecords) had deleted the first of them; the log may still have later ones"
    )
    assert (finding.severity, finding.label, finding.begin) == (ERROR, "records lost", START + 101 * MS)
    assert finding.numbers["records"] == 1000
    assert finding.setting == "retention.ms, retention.bytes, auto.offset.reset"
    shown = "(error == OFFSET_OUT_OF_RANGE or api == ListOffsets) and partition == 0"
    assert finding.options[0] == ("filter", shown)


def test_a_reader_that_goes_to_the_beginning_missed_what_was_deleted() -> None:
    (finding,) = resets(refused(100, 100), listed(150, BEGINNING, 700), fetch(200, 700))
    assert finding.label == "records lost"
    assert "missed 600 records of orders-0" in finding.text
    assert "went on at the beginning of the log, 700 (auto.offset.reset=earliest)" in finding.text


def test_a_log_that_ends_before_is_read_again() -> None:
    """The topic was made anew."""
    (finding,) = resets(refused(100, 4000), listed(150, BEGINNING, 0), fetch(200, 0))
    assert finding.label == "position reset"
    assert finding.text == (
        'client "billing" (10.0.0.1) reads up to 4,000 records of orders-0 again: it asked for offset 4,000, which the '
        "log does not have (OFFSET_OUT_OF_RANGE), and went on at the beginning of the log, 0 "
        "(auto.offset.reset=earliest). The log ends before: a topic made anew, an unclean leader election, or a "
        "position from elsewhere"
    )
    assert finding.setting.startswith("unclean.leader.election.enable")
    (finding,) = resets(refused(100, 4000), listed(150, END, 3999), fetch(200, 3999))
    assert "went back by 1 record on orders-0" in finding.text


def test_a_time_is_by_duration() -> None:
    (finding,) = resets(refused(100, 100), listed(150, 1_795_000_000_000, 900), fetch(200, 900))
    assert "went on at an offset by its time, 900 (auto.offset.reset=by_duration)" in finding.text
    assert finding.numbers["records"] == 800


def test_partitions_and_clients_of_a_topic_are_one_line() -> None:
    other = (refused(300, 50, partition=1, host=1), listed(350, END, 90, partition=1, host=1))
    (finding,) = resets(*TO_THE_END, *other)
    assert 'client "billing" (10.0.0.1) and 1 more skipped 1,040 records of 2 partitions of orders: on orders-0 it' in (
        finding.text
    )
    assert finding.options[0] == ("filter", "error == OFFSET_OUT_OF_RANGE or api == ListOffsets")
    numbers = finding.numbers
    assert (numbers["partitions"], numbers["clients"], numbers["resets"], numbers["asked"]) == (2, 2, 2, 100)
    assert Party("partition", "orders-0") in finding.parties
    assert {party.name for party in finding.parties if party.kind == "host"} == {"10.0.0.1", "10.0.0.2"}


def test_without_fetch_requests_the_line_says_where_it_went() -> None:
    (finding,) = resets(*TO_THE_END, sections="first-lines")
    assert finding.text == (
        'client "billing" (10.0.0.1) lost its position in orders-0: the log does not have the offset that it was at '
        "(OFFSET_OUT_OF_RANGE), and it asked for the end of the log, 1,100 (auto.offset.reset=latest). What it had not "
        "read before is skipped"
    )
    assert (finding.label, finding.numbers["records"], finding.options[0]) == (
        "position reset", None, ("sections", "advice"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [
        TO_THE_END[:2],  # nothing followed
        (*TO_THE_END[:2], listed(50, END, 1100)),  # before it
        (*TO_THE_END[:2], listed(30_200, END, 1100)),  # long after it
        (*TO_THE_END[:2], listed(150, END, 1100, partition=1)),
        (*TO_THE_END[:2], listed(150, END, 1100, client=3)),
        (*TO_THE_END[:2], listed(150, END, 1100, host=1)),
        (*TO_THE_END[:2], listed(150, END, 1100, error=6)),
        (*TO_THE_END[:2], listed(150, END, NO_NUMBER)),  # version 0 has no such offset
        (*TO_THE_END[:3], listed(160, BEGINNING, 700)),  # a program that looks at both ends
        (*TO_THE_END[:3], fetch(200, 700)),  # it went elsewhere
        (refused(100, 100), listed(150, END, 100)),
        (fetch(100, 100, error=6), listed(150, END, 1100)),  # another error
        (fetch(100, 100), listed(150, END, 1100)),  # a program that watches lag
        (refused(100, 100, client=FOLLOWER), listed(150, END, 1100, client=FOLLOWER)),
    ],
)
def test_less_is_no_evidence(steps: tuple[Step, ...]) -> None:
    assert len(resets(*TO_THE_END)) == 1
    assert resets(*steps) == []


def test_of_several_errors_the_last_before_the_answer_counts() -> None:
    (finding,) = resets(refused(90, 100), *TO_THE_END)
    assert finding.numbers["resets"] == 1
    again = (refused(5000, 1200), listed(5050, END, 3000), fetch(5060, 3000))
    (finding,) = resets(*TO_THE_END, *again)
    assert (finding.numbers["resets"], finding.numbers["records"], finding.numbers["asked"]) == (2, 2800, 1200)


def test_many_answers_of_others_leave_the_latest() -> None:
    """Rows are bounded, and those of a program that watches lag before are older."""
    watched = [listed(i, END, i + 1, partition=i, client=3) for i in range(60)]
    late = [step._replace(at=step.at + 1000) for step in TO_THE_END]
    assert len(resets(*watched, *late, most=16)) == 1


# ------------------------------------------------------------ the line on the error code


def errors(*parties: Party, code: str = "OFFSET_OUT_OF_RANGE") -> Finding:
    return Finding("errors", ERROR, "failing", "", 0, START, START, {"error": code, "codes": 1}, parties=parties)


CLIENT, TOPIC = Party("client", "billing"), Party("topic", "orders")


@pytest.mark.parametrize(
    ("line", "is_folded"),
    [
        (errors(CLIENT, TOPIC), True),
        (errors(CLIENT, Party("client", "audit"), TOPIC), False),
        (errors(CLIENT, TOPIC, Party("topic", "clicks")), False),
        (errors(CLIENT, TOPIC, code="NOT_LEADER_OR_FOLLOWER"), False),
    ],
)
def test_the_line_on_the_code_follows_from_it(line: Finding, is_folded: bool) -> None:
    given = given_of(*TO_THE_END)
    (reset,) = resets(*TO_THE_END)
    found = folded([("advice", reset), ("", line)], Known(given.context))
    assert [finding.cause for _, finding in found] == [None, reset.key if is_folded else None]
