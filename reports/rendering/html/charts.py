"""The charts of a report's page: the plots that it has data for, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...model import Report
from ..plots import draw, height_of
from .page import PageFigure
from .svg import themed_svg


class _Chart(NamedTuple):
    """`name`: as in `plots.PLOTS`. `beside`: the table above which it stands. `height`: in inches; 0: what it needs."""

    name: str
    beside: str
    height: float


#: Inches. A page has the title beside the plot, which needs less height.
_WIDTH, _HEAD = 11.5, 0.5
_CHARTS = (
    _Chart("latency-heat-map", "latency", 3.9),
    _Chart("latency", "latency", 3.9),
    _Chart("throttle-over-time", "throttle", 3.4),
    _Chart("errors-over-time", "error_totals", 3.4),
    _Chart("latency-over-time", "timeline", 3.4),
    _Chart("topic-matrix", "topic_clients", 0.0),
    _Chart("rebalances", "rebalances", 0.0),
)


def chart_figures(report: Report, utc: bool) -> Sequence[PageFigure]:
    """The charts of a report with curves. It needs matplotlib."""
    figures = []
    for chart in _CHARTS:
        height = chart.height or height_of(chart.name, report) - _HEAD
        plot = draw(chart.name, report, utc, size=(_WIDTH, height), has_head=False)
        if plot is None:
            continue
        title = plot.head["title"]
        svg = themed_svg(plot, chart.name, title)
        figures.append(PageFigure(
            chart.name, f"{title}, {plot.head['note']}", svg.element, svg.css, beside=chart.beside, span=svg.span
        ))  # fmt: skip
    return figures
