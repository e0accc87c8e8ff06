"""Plots: which are made, and what their titles, axes and curves say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.batch import FileInfo
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import SECOND
from kafkatap.reports.model import Report
from kafkatap.reports.rendering import plots
from kafkatap.reports.rendering.plots import write_plots
from kafkatap.reports.section_parts.selected import Selected

from . import rows as made
from .rows import MS
from .test_reports import report, small


def test_plots(tmp_path: Path) -> None:
    paths = write_plots(report(), tmp_path, utc=True)
    assert [p.name for p in paths] == [
        f"{name}.{suffix}"
        for name in ("latency", "latency-heat-map", "latency-over-time", "throttle-over-time", "errors-over-time")
        for suffix in ("svg", "png")
    ]
    assert all(p.stat().st_size > 5000 for p in paths)
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


def drawn(name: str, whole: Report) -> Any:
    """The axes of a plot."""
    plot = plots.draw(name, whole, utc=True)
    assert plot is not None
    plot.figure.canvas.draw()
    return plot.figure.axes[0]


def test_plots_of_an_earlier_run_do_not_stay(tmp_path: Path) -> None:
    write_plots(report(), tmp_path, utc=True)
    (tmp_path / "mine.png").touch()
    quiet = build_report(made.counted([made.exchange(0)]), made.context(), curves=True)
    write_plots(quiet, tmp_path, utc=True)
    assert {p.stem for p in tmp_path.iterdir()} == {"latency", "latency-heat-map", "latency-over-time", "mine"}
    assert write_plots(build_report(made.counted([]), made.context(), curves=True), tmp_path) == []
    assert [p.name for p in tmp_path.iterdir()] == ["mine.png"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("latency", "n = 6 exchanges"), ("latency-over-time", "n = 1 exchanges"),
        ("throttle-over-time", "n = 1 throttled responses"), ("errors-over-time", "n = 5 error codes"),
    ],
)  # fmt: skip
def test_plots_name_their_captures_filter_and_count(name: str, count: str) -> None:
    whole = build_report(small(), made.context(), curves=True, selected=Selected("--client 'b\x1b*'"))
    assert drawn(name, whole).get_title(loc="left") == rf"a.pcap; only --client 'b\x1b*'; {count}"
    files = [FileInfo(f"/x/{n}.pcap", "pcap", 1, 1, 1) for n in range(4)]
    assert "0.pcap and 3 more files; " in drawn(name, report(files=files)).get_title(loc="left")
    assert "a.pcap (interrupted); " in drawn(name, report(interrupted=True)).get_title(loc="left")


def test_the_latency_plot_is_by_what_the_table_is_by() -> None:
    whole = build_report(small(), made.context(), by="client", curves=True)
    axes = drawn("latency", whole)
    assert axes.figure.get_suptitle() == "Broker time by API and client"
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown[:2] == ["Fetch billing  (3)", "Fetch (long poll) billing  (1)"]


def test_a_few_short_times_do_not_stretch_the_plot() -> None:
    times = [0, 500, *(2 * MS + n * 10_000 for n in range(300))]
    whole = build_report(
        made.counted([made.exchange(n, broker=t) for n, t in enumerate(times)]), made.context(), curves=True
    )
    axes = drawn("latency", whole)
    low, high = axes.get_xlim()
    assert 1 < low < 2 < 5 < high < 7  # ms
    assert axes.get_xlabel() == "broker time (logarithmic); 2 shorter than the axis shows"


def test_a_99th_percentile_of_few_values_is_not_drawn() -> None:
    exchanges = [made.exchange(n, at=(n >= 3) * SECOND, broker=n * MS, api_key=3) for n in range(200)]
    axes = drawn("latency-over-time", build_report(made.counted(exchanges), made.context(), curves=True))
    lines = {line.get_label(): [y == y for y in line.get_ydata()] for line in axes.get_lines()}
    assert lines == {"median": [True, True], "99th percentile": [False, True], "longest": [True, True]}
    assert axes.get_legend().get_title().get_text() == "no 99th percentile of fewer than 100 exchanges"


@pytest.mark.parametrize(
    ("seconds", "tick"), [(1, r"04:4\d:\d\d\.\d{3}"), (60, r"04:4\d:\d\d"), (86_400, r"11-2\d \d\d:00")]
)
def test_ticks_are_times_and_the_axis_says_the_date(seconds: int, tick: str) -> None:
    exchanges = [made.exchange(n, at=n * seconds * SECOND, api_key=3) for n in range(3)]
    axes = drawn("latency-over-time", build_report(made.counted(exchanges), made.context(), curves=True))
    texts = [label.get_text() for label in axes.get_xticklabels()]
    assert texts
    assert all(re.fullmatch(tick, text) for text in texts), texts
    assert axes.get_xlabel().startswith("time (UTC) on 2026-11-21, ")
    assert axes.xaxis.get_offset_text().get_text() == ""
