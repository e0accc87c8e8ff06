"""Findings of loads made by hand: each change is said once, where it is, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.reports import units
from kafkatap.reports.comparison import side_counts
from kafkatap.reports.comparison.comparison import Compared, compare_sides
from kafkatap.reports.comparison.json_form import comparison_object
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.names import HASHES, masked
from kafkatap.reports.comparison.side_counts import MOST_BLOCKS, SideCounts
from kafkatap.reports.comparison.text import render_comparison

from .loads import COMMIT, METADATA, PRODUCE, SECOND, START, Load, Request, context_of

CLIENTS = {"billing": 4.0, "checkout": 3.0, "audit": 2.0, "search": 2.0}
BEFORE = Load(CLIENTS)


@pytest.fixture(scope="module")
def before() -> Side:
    return BEFORE.side(1)


def findings(compared: Compared) -> list[tuple[Any, ...]]:
    """Kind and words of each finding."""
    return [(row[1], row[2]) for row in compared.table("findings").rows]


def after(**parts: Any) -> Side:
    return BEFORE._replace(**parts).side(2, START + 3600 * SECOND)


def test_the_same_load_has_no_findings(before: Side) -> None:
    found = compare_sides(before, after())
    assert findings(found) == []
    assert found.comparisons > 300


def test_a_slower_client_is_one_finding(before: Side) -> None:
    found = findings(compare_sides(before, after(slower=lambda r: 1.6 if r.client == "audit" else 1)))
    assert found == [("worse", "client audit: slower")]


def test_a_slower_api_is_one_finding(before: Side) -> None:
    found = findings(compare_sides(before, after(slower=lambda r: 1.6 if r.api == METADATA else 1)))
    assert found == [("worse", "Metadata, all clients: slower")]


def test_a_slower_broker_is_one_finding(before: Side) -> None:
    found = findings(compare_sides(before, after(slower=lambda r: 1.6 if r.broker == 1 else 1)))
    assert found == [("worse", "broker 10.0.0.2:9093: slower")]


def test_a_slower_api_of_a_client_is_one_finding(before: Side) -> None:
    def slower(request: Request) -> float:
        return 1.8 if (request.api, request.client) == (PRODUCE, "billing") else 1

    assert findings(compare_sides(before, after(slower=slower))) == [("worse", "client billing, Produce: slower")]


def test_everything_faster_is_one_finding(before: Side) -> None:
    found = compare_sides(before, after(slower=lambda r: 0.6))
    assert findings(found) == [("better", "all clients: faster")]
    assert found.table("findings").rows[0][6] == "broker"


def test_two_changes_are_two_findings_the_larger_first(before: Side) -> None:
    def slower(request: Request) -> float:
        return {"audit": 4.0, "billing": 1.4}.get(request.client, 1)

    found = findings(compare_sides(before, after(slower=slower)))
    assert found == [("worse", "client audit: slower"), ("worse", "client billing: slower")]


def test_a_slow_topic_is_named(before: Side) -> None:
    """All clients write to both topics."""
    found = findings(compare_sides(before, after(slower=lambda r: 3 if r.topic == "payments" else 1)))
    assert found == [("worse", "all clients: slower, on topic payments")]


def test_a_slow_client_that_sends_more_is_no_slowness(before: Side) -> None:
    """Simpson: the slow client's share grows, so the whole has a larger median, but nothing got slower."""
    slow = Load(CLIENTS, slower=lambda r: 10.0 if r.client == "audit" else 1)
    more = slow._replace(rates=CLIENTS | {"audit": 12.0})
    found = compare_sides(slow.side(1), more.side(2))
    kinds = {row[0] for row in findings(found)}
    assert kinds == {"different"}
    assert "client audit: 5" in findings(found)[0][1]
    assert findings(found)[0][1].endswith("times as many requests")


def test_a_new_error_is_found(before: Side) -> None:
    def failing(request: Request) -> float:
        return 0.1 if (request.client, request.api) == ("search", PRODUCE) else 0.0

    found = compare_sides(before, after(failing=failing))
    assert findings(found) == [("worse", "client search, Produce: NOT_LEADER_OR_FOLLOWER is new")]
    assert findings(compare_sides(after(failing=failing), before)) == [
        ("better", "client search, Produce: NOT_LEADER_OR_FOLLOWER is gone")
    ]


def test_clients_that_come_and_go_are_listed(before: Side) -> None:
    rates = {"billing": 4.0, "checkout": 3.0, "audit": 2.0, "shipping": 2.0}
    rows = compare_sides(before, BEFORE._replace(rates=rates).side(3)).table("presence").rows
    assert sorted((row[0], row[2], row[-1]) for row in rows) == [
        ("appeared", "client shipping", True), ("disappeared", "client search", True),
    ]  # fmt: skip


def test_clients_with_random_ids_are_the_same_client() -> None:
    names = ["app-3f2b6c1e-8f1d-4b7a-9c55-0a1b2c3d4e5f-consumer", "app-0b6c1e3f-1d8f-7a4b-559c-5f4e3d2c1b0a-consumer"]
    assert {masked(name) for name in names} == {"app-*-consumer"}
    assert [masked(name) for name in (None, "consumer-1", "deadbeef")] == [None, "consumer-1", "deadbeef"]
    sides = [Load({name: 5.0}).side(n) for n, name in enumerate(names)]
    found = compare_sides(*sides)
    assert findings(found) == []
    assert found.table("presence").rows == []


def test_names_from_the_wire_do_nothing_on_a_terminal() -> None:
    name = "\x1b[31mred\x1b[0m"
    sides = (
        Load({name: 5.0, "b": 5.0}).side(1),
        Load({name: 5.0, "b": 5.0}, slower=lambda r: 2 if r.client == name else 1).side(2),
    )
    found = compare_sides(*sides)
    assert findings(found) == [("worse", f"client {name}: slower")]
    text = "".join(t for line in render_comparison(found, 80) for t, _ in line)
    assert "\x1b" not in text
    assert r"\x1b[31mred" in text
    assert comparison_object(found, "1")["findings"][0]["client_id"] == name


def test_text_fits_the_width(before: Side) -> None:
    found = compare_sides(before, after(slower=lambda r: 1.6 if r.client == "audit" else 1))
    for width in (40, 80, 120, None):
        lines = ["".join(t for t, _ in line).rstrip() for line in render_comparison(found, width, utc=True)]
        assert any(line.endswith("client audit: slower") for line in lines)
        if width:
            assert all(units.cells(line) <= max(width, 42) for line in lines if "kafkatap report" not in line)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_parts_of_a_side_add_up_to_the_whole(seed: int, seconds: int) -> None:
    """Whichever exchanges are in which part: one has short blocks, the other long ones."""
    batches, strings = Load({"a": 2.0, "b": 1.0}, seconds=seconds).batches(seed)
    rng = np.random.default_rng(seed)
    whole, parts = SideCounts(), [SideCounts(), SideCounts()]
    for batch in batches:
        whole.add(batch)
        early = batch.exchanges["request_first"] < START + int(rng.uniform(0, seconds) * SECOND)
        for part, mask in zip(parts, (early, ~early), strict=True):
            part.add(batch.picked(mask))
    parts[0].merge(parts[1])
    assert parts[0].length == whole.length
    for name, form in whole.forms.items():
        merged = parts[0].forms[name]
        assert dict(_rows(merged)) == dict(_rows(form))
        merged.histograms.merge_noted()
        assert int(merged.histograms.counts.sum()) == int(form.histograms.counts.sum())
    blocks = whole.forms["exchanges"].keys()["block"]
    if len(blocks):
        assert blocks.max() - blocks.min() < MOST_BLOCKS
    assert context_of(strings).text(0) == "a"


def _rows(form: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [
        (tuple(key), tuple(value))
        for key, value in zip(form.table.key_rows().tolist(), form.table.value_rows().tolist(), strict=True)
    ]


def test_of_many_clients_the_same_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond MOST_ROWS a part of the clients is added up: the same on both sides, whatever came when."""
    rates = {f"client-{n}": 0.3 + n % 7 for n in range(60)}
    load = Load(rates, apis=(PRODUCE,), brokers=1)
    plain = load.side(5)
    monkeypatch.setattr(side_counts, "MOST_ROWS", 700)
    batches, strings = load.batches(5)
    context = context_of(strings)
    counts = SideCounts()
    for batch in reversed(batches):
        counts.add(batch)
        counts.fold(context.text)
    folded = Side(counts, context, START, START + 60 * SECOND)
    assert 0 < counts.limit < HASHES
    assert all(len(form) <= 700 for form in counts.forms.values())
    total = [side.counts.forms["exchanges"].values()["requests"].sum() for side in (plain, folded)]
    assert total[0] == total[1]
    found = compare_sides(plain, folded)
    assert findings(found) == []
    assert found.table("presence").rows == []


def test_without_memory_for_any_client_all_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_counts, "MOST_ROWS", 1)
    batches, strings = Load({"a": 1.0, "b": 1.0}).batches(1)
    counts = SideCounts()
    counts.add(batches[0])
    counts.add(batches[1])
    counts.fold(context_of(strings).text)
    assert counts.limit == 0
    assert set(counts.forms["exchanges"].keys()["client_id"].tolist()) == {-2}
    assert set(counts.forms["topics"].keys()["topic"].tolist()) == {-2}


def is_rare(request: Request) -> bool:
    return request.client == "audit" and request.api == COMMIT


@pytest.mark.parametrize("others", [0.0, 0.05])
@pytest.mark.parametrize("commits", [0.0, 1.0])
def test_new_errors_of_a_rare_api_come_first(others: float, commits: float) -> None:
    """A client retries commits that fail: before, it had 0.1 a second. `others`: other requests fail as
    before. `commits`: whether other clients commit, too."""
    share = lambda r: others if r.api == METADATA else 0.0  # noqa: E731
    rare = BEFORE._replace(busier=lambda r: 0.05 if is_rare(r) else commits if r.api == COMMIT else 1.0, failing=share)
    storm = rare._replace(
        busier=lambda r: 2.5 if is_rare(r) else commits if r.api == COMMIT else 1.0,
        failing=lambda r: 0.98 if is_rare(r) else share(r),
    )
    found = findings(compare_sides(rare.side(1), storm.side(2, START + 3600 * SECOND)))
    assert found == [("worse", f"client audit, OffsetCommit: {error_name(6)} is new")]


def test_one_cause_with_many_clients_is_one_finding() -> None:
    """26 of 60 clients become slow at one API."""
    clients = {f"svc-{n}": 1.0 for n in range(60)}
    load = Load(clients, brokers=1, apis=(PRODUCE, METADATA))
    slow = load._replace(slower=lambda r: 3.0 if int(r.client[4:]) < 26 and r.api == PRODUCE else 1.0)
    found = findings(compare_sides(load.side(1), slow.side(2, START + 3600 * SECOND)))
    assert len(found) == 1
    assert found[0] == ("worse", "26 clients (svc-0, svc-1, svc-10 and 23 more), Produce: slower")
