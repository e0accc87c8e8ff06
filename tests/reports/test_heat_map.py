"""The counts of the heat map: every exchange in its cell, whatever the merges and intervals."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.reports.counting.counts import SECOND, ReportCounts
from kafkatap.reports.counting.heat_map import COLUMNS, heat_map
from kafkatap.reports.rendering.heat_map import heat_steps, step_of_count
from kafkatap.reports.rendering.plot_style import HEAT

from . import rows as made
from .rows import MS, START


def test_each_exchange_is_in_the_cell_of_its_time_and_duration() -> None:
    times = {(at, broker) for at in (0, 3, 50) for broker in (2 * MS, 40 * MS, 900 * MS)}
    exchanges = [made.exchange(n, at=at * SECOND, broker=broker, api_key=3) for n, (at, broker) in enumerate(times)]
    heat = heat_map(made.counted(exchanges, fine=True))
    assert heat is not None
    found = {
        (column, row)
        for at, broker in times
        for column in [(START + at * SECOND - heat.first) // heat.interval]
        for row in range(len(heat.edges) - 1)
        if heat.edges[row] <= broker < heat.edges[row + 1]
    }
    assert {cell[:2] for cell in heat.cells} == found
    assert sum(count for *_, count in heat.cells) == len(times)
    assert heat.interval == SECOND // 2


def test_long_polls_and_waits_are_left_out_beside_others() -> None:
    exchanges = [made.exchange(0, api_key=1), made.exchange(1, api_key=3), made.exchange(2, long_poll=1)]
    heat = heat_map(made.counted(exchanges))
    assert heat is not None
    assert (sum(count for *_, count in heat.cells), heat.what) == (1, "without Fetch, JoinGroup and SyncGroup")
    alone = heat_map(made.counted(exchanges[:1]))
    assert alone is not None
    assert (sum(count for *_, count in alone.cells), alone.what) == (1, "without long polls")
    assert heat_map(made.counted([])) is None


@pytest.mark.parametrize("seconds", [1, 14, 149, 1500, 86_400, 30 * 86_400])
def test_columns_are_bounded(seconds: int) -> None:
    exchanges = [made.exchange(n, at=n * seconds * SECOND // 20, api_key=3) for n in range(21)]
    heat = heat_map(made.counted(exchanges, fine=True))
    assert heat is not None
    assert max(column for column, *_ in heat.cells) <= COLUMNS
    assert sum(count for *_, count in heat.cells) == 21


def test_merged_counts_make_the_same_map() -> None:
    exchanges = [made.exchange(n, at=n * 300 * MS, broker=(n * 37 % 91 + 1) * MS, api_key=3) for n in range(300)]
    whole = made.counted(exchanges, fine=True)
    merged = ReportCounts(fine=True)
    for start in range(0, 300, 70):
        merged.merge(made.counted(exchanges[start : start + 70], fine=True))
    merged.finish()
    assert heat_map(merged) == heat_map(whole)


def test_steps_of_colour() -> None:
    for most in (1, 2, 7, 8, 9, 100, 1_000_000):
        steps = heat_steps(most)
        assert steps[0] == 1
        assert steps == sorted(set(steps))
        assert len(steps) <= len(HEAT)
        colors = [step_of_count(count, steps) for count in np.unique(np.geomspace(1, most, 50).astype(int)).tolist()]
        assert colors == sorted(colors)
        assert colors[-1] == len(HEAT) - 1
