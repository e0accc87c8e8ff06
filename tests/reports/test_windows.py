"""Detectors learn from everything that is read; a time window cuts events afterwards.

Each event of a recording is in the report of a window around it, with the same times and the same text. Events outside
the window are not. Counts are those of the window.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap.engine.selection import Selection
from kafkatap.reports.kinds import MOMENTS
from kafkatap.reports.literals import Moment
from kafkatap.reports.section_parts.registry import OVER_FACTS
from kafkatap.splits.run_options import RunOptions
from tests.support.captures import unpacked
from tests.support.section_runs import section_input
from tests.ways.reports import assert_same, in_shards, one_engine, over_splits

SECOND = 1_000_000_000
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RECORDINGS = sorted(
    path for folder in ("events", "advice") for path in (SAMPLES / folder).rglob("*.pcap.zst")
    if not path.name.endswith("-right.pcap.zst")
)  # fmt: skip
#: What identifies an event: a report of a window and one of everything have the same.
Event = tuple[str, int | None, int | None, str]


def events(path: Path, selection: Selection | None = None) -> set[Event]:
    """The findings of the sections events and advice."""
    given = section_input(path, ("events", "advice"), selection=selection or Selection())
    found = [each for section in given.sections.sections if section.findings for each in given.once(section.findings)]
    return {(each.id, each.begin, each.end, each.text) for each in found}


def window(start: int, end: int, **more: Any) -> Selection:
    return Selection.of(start=Moment(start), end=Moment(end), **more)


def is_within(event: Event, start: int, end: int) -> bool:
    name, begin, until, _ = event
    assert begin is not None
    until = begin if name in MOMENTS else until
    return begin < end and (until is None or until >= start)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.split(".")[0])
def test_a_window_has_the_events_within_it(path: Path) -> None:
    whole = events(path)
    timed = {event for event in whole if event[1] is not None}
    for around in sorted(timed, key=lambda event: event[:2])[:: max(len(timed) // 2, 1)]:
        start, end = around[1] - 2 * SECOND, around[1] + 2 * SECOND  # type: ignore[operator]
        found = events(path, window(start, end))
        assert around in found
        assert {event for event in found if event[1] is not None} == {e for e in timed if is_within(e, start, end)}


@pytest.mark.parametrize("options", [{}, {"clients": ["*"]}, {"apis": ["Produce"]}], ids=str)
def test_leaders_are_known_from_before_the_window(samples: Path, options: dict[str, Any]) -> None:
    """The broker that led is in Metadata before the window, and in no exchange of these selections."""
    path = samples / "apache-4.3.pcap.zst"
    (moved,) = (event for event in events(path) if event[0] == "leaders_moved")
    assert moved[1] is not None
    found = events(path, window(moved[1] - 2 * SECOND, moved[1] + 2 * SECOND, **options))
    assert moved in found


def test_events_of_a_filter_are_on_its_parties(samples: Path) -> None:
    """Brokers are judged by all traffic: one that does not answer a client that asks nothing is no event."""
    path = samples / "apache-4.3.pcap.zst"
    found = events(path, Selection.of(clients=["greedy-producer"]))
    assert {event[0] for event in found} == {"quota_began", "leaders_moved"}
    assert all("greedy-producer" in event[3] for event in found if event[0] == "quota_began")
    assert found <= events(path)


@pytest.mark.parametrize("options", [{}, {"clients": ["*-etl-*", "greedy*"]}], ids=str)
def test_windows_in_splits_and_shards(samples: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    path = unpacked(samples, "apache-4.3", tmp_path)
    (moved,) = (event for event in events(path) if event[0] == "leaders_moved")
    assert moved[1] is not None
    selection = window(moved[1] - 2 * SECOND, moved[1] + 2 * SECOND, **options)
    options = RunOptions(selection=selection, wanted=tuple(OVER_FACTS))
    wanted = one_engine([path], options)
    assert "leaders_moved" in {row["event"] for row in wanted["reports"]["events"]}
    assert_same(over_splits([path], 3, options), wanted)
    assert_same(in_shards([path], 2, options), wanted)
