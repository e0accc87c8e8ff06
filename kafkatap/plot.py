"""Plots of a report, as matplotlib figures: `plot.latency(report)`.

A figure belongs to nobody: pyplot does not know it, and its settings stay as they are. It has `savefig`, and a notebook
shows it. `kafkatap report --plots` and `--html` draw the same plots.

    from kafkatap import analyze, plot

    report = analyze("capture.pcap").report()
    plot.latency(report).savefig("latency.svg")

matplotlib is an extra: `pip install 'kafkatap[plots]'`.
"""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

from .reports.rendering.plot_style import table_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .reports.model import Report

__all__ = [
    "errors_over_time", "latency", "latency_heatmap", "latency_over_time", "rebalances", "throttle_over_time",
    "topic_matrix",
]  # fmt: skip


def latency(report: Report, *, utc: bool = False) -> Figure:
    """The share of exchanges that are answered within a time, by API, or by what the report is by.

    This and all other functions: ValueError if the report has no data for the plot, and says what it needs. `utc`: show
    times in UTC instead of local time.
    """
    return _figure("latency", report, utc, "no exchange was answered")


def latency_heatmap(report: Report, *, utc: bool = False) -> Figure:
    """How many exchanges had which broker time, over time."""
    return _figure("latency-heat-map", report, utc, "no exchange was answered")


def latency_over_time(report: Report, *, utc: bool = False) -> Figure:
    """The median, the 99th percentile and the longest broker time of each interval of the timeline."""
    return _figure("latency-over-time", report, utc, "no exchange was answered", "timeline", "timeline")


def throttle_over_time(report: Report, *, utc: bool = False) -> Figure:
    """Throttled responses, and the throttle wait, of each interval of the timeline."""
    return _figure("throttle-over-time", report, utc, "nothing was throttled", "timeline", "timeline")


def errors_over_time(report: Report, *, utc: bool = False) -> Figure:
    """Error codes, and requests without a response, of each interval of the timeline."""
    return _figure("errors-over-time", report, utc, "nothing failed", "timeline", "timeline")


def rebalances(report: Report, *, utc: bool = False) -> Figure:
    """The rebalances of each group over time, with their causes."""
    return _figure("rebalances", report, utc, "no group rebalanced", "groups", "rebalances")


def topic_matrix(report: Report, *, utc: bool = False) -> Figure:
    """Which client writes and reads which topic, and how much."""
    return _figure("topic-matrix", report, utc, "no client writes or reads a topic", "topics", "topic_clients")


def _figure(name: str, report: Report, utc: bool, empty: str, section: str = "", table: str = "") -> Figure:
    from .reports.rendering.plots import draw

    if table and table_of(report, table) is None:
        raise ValueError(f"the report has no section {section!r}; make it with report(sections=[..., {section!r}])")
    made = draw(name, report, utc, figure_class=_figure_class())
    if made is None:
        if not table and not report.curves.latency and _has_answers(report):
            raise ValueError("the report has no curves; make it with report(curves=True)")
        raise ValueError(f"the report has nothing to plot: {empty}")
    figure: Figure = made.figure
    return figure


def _has_answers(report: Report) -> bool:
    """Whether the latency table, if there is one, has rows."""
    found = table_of(report, "latency")
    return found is None or bool(found.rows)


@cache
def _figure_class() -> Any:
    """A Figure that a notebook shows also without pyplot."""
    from matplotlib.figure import Figure

    class ReportFigure(Figure):
        """A figure of a report."""

        def _repr_png_(self) -> bytes:
            import warnings

            file = io.BytesIO()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Glyph .* missing")  # names from the wire
                self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return ReportFigure
