"""`kafkatap.plot`: figures of a report, which pyplot does not know, and what they say when there is nothing to draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import _pylab_helpers
from matplotlib.figure import Figure

from kafkatap import analyze, plot
from kafkatap.reports.build import build_report
from kafkatap.reports.model import Curves, Report
from kafkatap.reports.rendering.html.notebook import ROWS
from tests.reports import rows as made
from tests.reports.hostile import HOSTILE, hostile_report
from tests.reports.test_reports import report

SECTIONS = ["latency", "timeline", "groups", "topics"]


@pytest.fixture(scope="module")
def whole(samples: Path) -> Report:
    return analyze(samples / "apache-4.3.pcap.zst").report(sections=SECTIONS)


@pytest.mark.parametrize("name", plot.__all__)
def test_each_function_returns_a_figure(whole: Report, name: str, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    figure = getattr(plot, name)(whole, utc=True)
    assert isinstance(figure, Figure)
    assert figure.get_suptitle()
    assert figure.axes
    assert figure._repr_png_().startswith(b"\x89PNG")
    figure.savefig(tmp_path / "figure.svg")
    assert dict(matplotlib.rcParams) == before
    assert not _pylab_helpers.Gcf.figs  # no figure of pyplot


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("latency", "no exchange was answered"), ("latency_heatmap", "no exchange was answered"),
        ("latency_over_time", "no exchange was answered"), ("throttle_over_time", "nothing was throttled"),
        ("errors_over_time", "nothing failed"),
        ("rebalances", r"no section 'groups'; make it with report\(sections="), ("topic_matrix", "no section 'topics'"),
    ],
)  # fmt: skip
def test_nothing_to_draw(name: str, words: str) -> None:
    empty = build_report(made.counted([]), made.context(), curves=True)
    with pytest.raises(ValueError, match=words):
        getattr(plot, name)(empty)


def test_a_report_without_curves() -> None:
    with pytest.raises(ValueError, match=r"no curves; make it with report\(curves=True\)"):
        plot.latency(report().replace(curves=Curves()))


def test_notebooks_show_hostile_names_as_texts(samples: Path) -> None:
    hostile = hostile_report()
    shown: list[Any] = [hostile, hostile.table("clients"), analyze(samples / "apache-4.3.pcap.zst", client=HOSTILE[0])]
    for value in shown:
        html = value._repr_html_()
        assert "&lt;/script&gt;" in html
        assert "<script" not in html
        assert "<img" not in html
        assert not set("\x00\x1b\u202e") & set(html)


def test_notebooks_show_the_first_rows(whole: Report) -> None:
    table = whole.table("group_partitions")
    html = table._repr_html_()
    assert html.count("<tr>") == ROWS + 1
    assert f"… {len(table.rows) - ROWS:,} more" in html
    assert "<details>" in whole._repr_html_()
    assert whole.table("latency")._repr_html_().count("p99.9") == 2
