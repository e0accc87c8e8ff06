"""Captures of one load before and after a change that was made on purpose: the first finding is that change."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap import analyze
from kafkatap.comparison.compared import Comparison, compare
from kafkatap.reports.comparison.comparison import compare_sides
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.side_counts import SideCounts
from kafkatap.reports.model import ReportTable
from tests.support.broker import missing_compiler
from tests.support.namespaces import cannot_build

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "compare"
TRUTH = json.loads((SAMPLES / "changes.truth.json").read_text())


@cache
def compared(before: str, after: str) -> Comparison:
    return compare(SAMPLES / f"{before}.pcap.zst", SAMPLES / f"{after}.pcap.zst")


def rows(table: ReportTable) -> list[dict[str, Any]]:
    return [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]


def test_a_quota_is_found_first() -> None:
    found = compared("before", "quota")
    first = rows(found.table("findings"))[0]
    (client,) = TRUTH["quota"]
    assert first["finding"] == f"client {client}, Produce: throttled by a quota"
    assert (first["kind"], first["verdict"]) == ("worse", "throttle")
    assert first["time_shares"].split(": ")[1].startswith("HOL +7.")
    assert {row["on"] for row in rows(found.table("changes")) if row["number"] == 1} == {f"client {client}, Produce"}


def test_larger_batches_are_found_first() -> None:
    """Linger of 5 and 200 ms: 30 messages a second in batches of 1 and of 6."""
    found = compared("before", "batching")
    first = rows(found.table("findings"))[0]
    (client,) = TRUTH["linger_ms"]
    assert first["finding"].startswith(f"client {client}, Produce: batches are 6.")
    records = next(row for row in rows(found.table("changes")) if row["measure"] == "records" and row["number"] == 1)
    assert (round(records["before"], 1), round(records["after"])) == (1.0, 6)
    assert records["superiority"] > 0.99
    assert "more records than one before in 100 % of pairs" in first["evidence"]


def test_a_stopped_broker_is_found_first() -> None:
    found = compared("three-brokers", "two-brokers")
    first = rows(found.table("findings"))[0]
    assert first["finding"] == f"broker {TRUTH['stopped']} is no longer used"  # its clients learned so before
    assert first["kind"] == "worse"
    gone = rows(found.table("presence"))[0]
    assert (gone["change"], gone["broker"], gone["is_sure"]) == ("disappeared", TRUTH["stopped"], True)
    assert not any(row["kind"] == "worse" for row in rows(found.table("findings"))[1:])


@pytest.mark.parametrize("split", ["+17s", "+8s", "+26s"])
def test_halves_of_a_steady_capture_are_the_same(split: str) -> None:
    found = compare(SAMPLES / "steady.pcap.zst", split=split)
    assert found.findings == []
    assert not any(row["is_sure"] for row in rows(found.table("presence")))
    assert found.worse == found.better == found.different == 0


def test_random_splits_of_a_steady_capture_find_nothing() -> None:
    rng = np.random.default_rng(1)
    run = analyze(SAMPLES / "steady.pcap.zst")._run(all_results=True)
    batches, context = list(run.batches()), run.context()
    first, last = context.first or 0, context.last or 0
    for _ in range(12):
        length = int(rng.uniform(0.4, 1) * (last - first))
        start = first + int(rng.uniform(0, 1) * (last - first - length))
        cut = start + int(rng.uniform(0.25, 0.75) * length)
        sides = []
        for begin, end in ((start, cut), (cut, start + length)):
            counts = SideCounts()
            for batch in batches:
                at = batch.exchanges["request_first"]
                counts.add(batch.picked((at >= begin) & (at < end)))
            sides.append(Side(counts, context, begin, end))
        assert compare_sides(*sides).table("findings").rows == []


@pytest.mark.parametrize("name", ["steady", "quota", "two-brokers"])
def test_a_capture_is_the_same_as_itself(name: str) -> None:
    found = compared(name, name)
    assert found.findings == []
    assert found.table("presence").rows == []


@pytest.mark.parametrize(
    ("before", "after"), [("before", "quota"), ("before", "batching"), ("three-brokers", "two-brokers")]
)
def test_the_other_way_round_it_is_the_other_way_round(before: str, after: str) -> None:
    there, back = compared(before, after), compared(after, before)

    def changes(found: Comparison, sides: tuple[str, str]) -> set[tuple[Any, ...]]:
        return {
            (row["on"], row["measure"], row["test"], round(row[sides[0]], 3), round(row[sides[1]], 3))
            for row in rows(found.table("changes"))
        }

    assert changes(there, ("before", "after")) == changes(back, ("after", "before"))
    swapped = {"worse": "better", "better": "worse", "different": "different"}

    def kinds(found: Comparison) -> list[tuple[str, Any, Any, Any]]:
        return [(row["kind"], row["client_id"], row["api"], row["broker"]) for row in rows(found.table("findings"))]

    turned = [(swapped[kind], *on) for kind, *on in kinds(back)]
    if before == "three-brokers":  # a broker that is gone is worse, one that is new is different
        turned = [
            ("worse", *on) if tuple(on) == (None, None, TRUTH["stopped"]) else (kind, *on) for kind, *on in turned
        ]
    assert sorted(map(str, kinds(there))) == sorted(map(str, turned))
    assert {row["name"] for row in rows(there.table("presence"))} == {
        row["name"] for row in rows(back.table("presence"))
    }


def test_a_capture_that_is_too_short_says_so() -> None:
    found = compare(SAMPLES / "steady.pcap.zst", split="+1s", end="+2s")
    assert found.findings == []
    assert len(found.warnings) == 2
    assert "is short" in found.warnings[0]


def test_samples_are_small_and_described() -> None:
    text = (SAMPLES / "README.md").read_text()
    for path in SAMPLES.glob("*.pcap.zst"):
        assert path.stat().st_size < 300_000
        assert f"`{path.name.removesuffix('.pcap.zst')}`" in text


@pytest.mark.long
def test_the_script_records_such_changes(tmp_path: Path) -> None:
    if why := cannot_build() or missing_compiler():
        pytest.skip(why)
    command = [sys.executable, str(SAMPLES / "make_changes.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    first = {
        after: compare(tmp_path / f"{before}.pcap.zst", tmp_path / f"{after}.pcap.zst").findings[0]
        for before, after in (("before", "quota"), ("before", "batching"), ("three-brokers", "two-brokers"))
    }
    assert first["quota"] == "client metrics, Produce: throttled by a quota"
    assert first["batching"].startswith("client metrics, Produce: batches are")
    assert first["two-brokers"].startswith("broker 10.77.0.3:9092")
