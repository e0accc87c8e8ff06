"""Events that one side lacks are its first findings, with what followed folded under them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkatap import analyze, compare
from kafkatap.reports.comparison.comparison import compare_sides
from kafkatap.reports.comparison.side_events import events_of_side
from kafkatap.reports.findings import ERROR, Finding, Party

from .loads import SECOND, START, Load, Request
from .test_findings import BEFORE, findings

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "events"
TRANSACTIONS = SAMPLES.parent / "questions" / "transactions.pcap.zst"
HANG, QUIET = SAMPLES / "hang.pcap.zst", SAMPLES / "quota.pcap.zst"
TRUTH = json.loads((SAMPLES / "hang.truth.json").read_text())["steps"]
LATER = START + 3600 * SECOND
PARTIES = (Party("broker", "10.0.0.2:9093"), Party("error", "NOT_LEADER_OR_FOLLOWER"))


def event(lost: int = 0, begin: int = LATER, end: int | None = LATER + 10 * SECOND) -> Finding:
    return Finding(
        "broker_hung", ERROR, "broker hung", "broker 2 hung", lost, begin, end, {"errors": 50}, (7,), PARTIES
    )


def is_at_hung(request: Request) -> bool:
    return request.broker == 1


def found_with(load: Load, *events: Finding) -> list[tuple[str, str]]:
    after = load.side(2, LATER)._replace(events=events)
    return findings(compare_sides(BEFORE.side(1), after))


@pytest.mark.parametrize(("words", "kind"), [("+0.9s", "worse"), ("+11.5s", "better")])
def test_a_hang_is_the_first_finding_of_its_side(words: str, kind: str) -> None:
    """The script stopped the process of broker 3, and continued it: samples/events/hang.truth.json."""
    found = compare(str(HANG), split=words)
    row = found.as_json()["findings"][0]
    assert (row["kind"], row["event"], row["broker"]) == (kind, "broker_hung", "10.77.0.3:9092")
    begin, end = (found.table("findings").rows[0][n] for n in (-2, -1))
    assert isinstance(begin, int)
    assert isinstance(end, int)
    assert abs(begin / 1e9 - TRUTH["hung"]) < 0.05
    assert abs(end / 1e9 - TRUTH["continued"]) < 0.05
    shown = str(found)
    assert shown.index("hung for 10.0 s") < shown.index("when  ")


def test_an_event_of_both_sides_is_no_difference() -> None:
    assert not any(row["event"] for row in compare(str(HANG), str(HANG)).as_json()["findings"])


def test_leaders_that_moved_are_mentioned() -> None:
    """No request waits for it; it explains the errors of its side."""
    found = compare(str(SAMPLES.parent / "apache-4.3.pcap.zst"), split="2026-11-21 04:44:17 UTC")
    (row,) = (row for row in found.as_json()["findings"] if row["event"])
    assert (row["kind"], row["event"], row["broker"]) == ("different", "leaders_moved", None)
    assert "leaders of 7 partitions moved, most from broker 3" in str(found)


def test_quiet_sides_have_no_event() -> None:
    assert not any(row["event"] for row in compare(str(QUIET), split="+6s").as_json()["findings"])


def test_selected_exchanges_have_no_event() -> None:
    """A broker that does not answer the selected exchanges may answer others."""
    assert not any(
        row["event"]
        for row in compare(analyze(str(QUIET)), analyze(str(HANG), filter="api == Produce")).as_json()["findings"]
    )


def test_slower_requests_are_folded_under_the_event_that_explains_them() -> None:
    slow = BEFORE._replace(slower=lambda r: 1.6 if is_at_hung(r) else 1)
    assert any("slower" in text for _, text in found_with(slow))
    assert found_with(slow, event(lost=3600 * SECOND)) == [("worse", "broker 2 hung")]


def test_slower_requests_that_lost_more_than_the_event_took_are_kept() -> None:
    slow = BEFORE._replace(slower=lambda r: 1.6 if is_at_hung(r) else 1)
    found = found_with(slow, event(lost=1))
    assert found[0] == ("worse", "broker 2 hung")
    assert any("slower" in text for _, text in found[1:])


def test_slower_requests_at_other_brokers_are_kept() -> None:
    slow = BEFORE._replace(slower=lambda r: 1 if is_at_hung(r) else 1.6)
    assert any("slower" in text for _, text in found_with(slow, event(lost=3600 * SECOND))[1:])


def test_its_errors_are_folded() -> None:
    failing = BEFORE._replace(failing=lambda r: 0.2 if is_at_hung(r) else 0)
    assert any("NOT_LEADER_OR_FOLLOWER" in text for _, text in found_with(failing))
    assert found_with(failing, event()) == [("worse", "broker 2 hung")]


def test_an_event_is_of_each_side_in_which_it_lasts() -> None:
    whole, cut = (START, START + 60 * SECOND), (START, LATER + 4 * SECOND)
    assert events_of_side([event()], *whole) == ()
    assert events_of_side([event()], *cut) == (event(),)
    assert events_of_side([event()], LATER + 4 * SECOND, LATER + 60 * SECOND) == (event(),)
    lasting = event(end=None)
    assert events_of_side([lasting], LATER, LATER + SECOND) == (lasting,)
    assert events_of_side([lasting], LATER + 60 * SECOND, LATER + 90 * SECOND) == (lasting,)


@pytest.mark.parametrize(
    ("words", "kind", "spans"),
    [
        ("+5s", "different", "4.11 s before, 5.92 s after"),
        ("+9s", "different", "8.11 s before, 1.92 s after"),
        ("+0.9s", "worse", "15.0 ms before, 10.0 s after"),  # its begin, but for rounding
    ],
)
def test_a_hang_that_spans_the_split_is_of_both_sides(words: str, kind: str, spans: str) -> None:
    found = compare(str(HANG), split=words)
    (row,) = (row for row in found.as_json()["findings"] if row["event"])
    assert (row["kind"], row["event"]) == (kind, "broker_hung")
    assert row["evidence"].endswith(f"it spans both sides: {spans}")


def test_windows_of_one_capture_have_the_event_between_them() -> None:
    found = compare(analyze(HANG, end="+3s"), analyze(HANG, start="+8s"))
    (row,) = (row for row in found.as_json()["findings"] if row["event"])
    assert (row["kind"], row["event"]) == ("different", "broker_hung")


def test_an_event_that_follows_from_another_is_no_story_and_not_missing() -> None:
    followed = event()._replace(cause=("hosts_cut_off", None, 0))
    sides = BEFORE.side(1)._replace(events=(event(begin=START, end=START + SECOND),)), BEFORE.side(2, LATER)
    assert findings(compare_sides(*sides)) == [("better", "broker 2 hung")]
    assert findings(compare_sides(sides[0], sides[1]._replace(events=(followed,)))) == []


@pytest.mark.parametrize(
    ("words", "held", "fenced"),
    [("+1s", "worse", "worse"), ("+3s", "different", "worse"), ("+6s", "better", "better")],
)
def test_transactions_that_hang_or_were_fenced_are_events(words: str, held: str, fenced: str) -> None:
    """`holder` kept a transaction open for 4 s, and `payout-new` fenced `payout-old`: make_transactions.py."""
    found = compare(str(TRANSACTIONS), split=words).as_json()["findings"]
    kinds = {row["event"]: row["kind"] for row in found if row["event"]}
    assert kinds == {"open_transaction": held, "producer_fenced": fenced}
    (text,) = (row["finding"] for row in found if row["event"] == "producer_fenced")
    assert text.endswith('was fenced by client "payout-new" (127.0.0.1): INVALID_PRODUCER_EPOCH')


def test_a_transaction_that_is_open_in_both_captures_is_no_difference() -> None:
    assert not any(row["event"] for row in compare(str(TRANSACTIONS), str(TRANSACTIONS)).as_json()["findings"])
