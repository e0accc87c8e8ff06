"""Plots as SVG and PNG: the distribution of latency by API, and latency, throttling and errors over time.

matplotlib is imported when plots are made, with its Agg and SVG writers alone. Colours are those of Okabe and Ito,
which the colour-blind tell apart; each curve has its own line style and marker too, for print in black and white.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from . import units
from .model import Report, Value
from .timeline import WITHOUT_WAITS

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: Curves in the latency plot: more cannot be told apart.
CURVES = len(PALETTE)
_SETTINGS = {
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d8d8d8",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "kafkatap",
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "text.parse_math": False,
}


def write_plots(report: Report, folder: Path, utc: bool = False) -> list[Path]:
    """Write latency, timeline, throttle and errors, each as .svg and .png, into `folder`; return the paths written.

    The report needs its curves (`build_report(..., curves=True)`). A plot with nothing to show is left out.
    """
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    plots: tuple[tuple[str, Callable[[Any, Report, bool], bool]], ...] = (
        ("latency", _latency),
        ("latency-over-time", _latency_over_time),
        ("throttle-over-time", _throttle_over_time),
        ("errors-over-time", _errors_over_time),
    )
    with matplotlib.rc_context(_SETTINGS):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        for name, draw in plots:
            figure = Figure(figsize=(9, 4.8), layout="constrained")
            FigureCanvasAgg(figure)
            if not draw(figure, report, utc):
                continue
            for suffix in ("svg", "png"):
                path = folder / f"{name}.{suffix}"
                figure.savefig(path, metadata={"Date": None} if suffix == "svg" else None)
                paths.append(path)
    return paths


def _latency(figure: Any, report: Report, utc: bool) -> bool:
    """How many exchanges were answered within a time, by API: time on a logarithmic axis, in ms."""
    curves = report.curves.latency[:CURVES]
    if not curves:
        return False
    axes = figure.add_subplot()
    for n, (label, count, times, parts) in enumerate(curves):
        # A step at each bucket, from 0 on; from 1 µs on, for the axis.
        x = [max(t, 1000) / 1e6 for t in (times[0], *times)]
        axes.plot(
            x, [0.0, *parts], drawstyle="steps-post", label=f"{units.safe(label)}  ({count:,})",
            color=PALETTE[n], linestyle=_STYLES[n], marker=_MARKERS[n], markersize=5, linewidth=1.6,
            markevery=_marks(x, 9),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda ms, _: units.duration(round(ms * 1e6)).replace(".00", "").replace(".0", ""))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda part, _: f"{100 * part:.0f} %")
    axes.set_xlabel("broker time (logarithmic)")
    axes.set_ylabel("exchanges answered within it")
    left = len(report.curves.latency) - len(curves)
    axes.set_title("Broker time by API" + (f" (the {CURVES} most frequent of {CURVES + left})" if left else ""))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return True


def _marks(x: Sequence[float], wanted: int) -> list[int]:
    """Points for markers, evenly far apart on the logarithmic axis."""
    from bisect import bisect_left

    low, high = x[0], x[-1]
    if high <= low:
        return [0]
    steps = [low * (high / low) ** (n / wanted) for n in range(wanted + 1)]
    return sorted({min(bisect_left(x, s), len(x) - 1) for s in steps})


def _series(report: Report, *names: str) -> tuple[list[datetime], list[list[Value]]]:
    """Beginnings of intervals, and the named columns of the timeline."""
    table = report.table("timeline")
    at = [next(i for i, c in enumerate(table.columns) if c.name == name) for name in ("start", *names)]
    starts = [datetime.fromtimestamp(int(row[at[0]] or 0) / 1e9, UTC) for row in table.rows]
    return starts, [[row[i] for row in table.rows] for i in at[1:]]


def _time_axis(axes: Any, report: Report, utc: bool) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = UTC if utc else datetime.now().astimezone().tzinfo
    locator = AutoDateLocator(tz=zone, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))
    table = report.table("timeline")
    starts = [datetime.fromtimestamp(int(row[0] or 0) / 1e9, UTC) for row in table.rows]
    step = starts[1] - starts[0] if len(starts) > 1 else timedelta(seconds=1)
    axes.set_xlim(starts[0] - step / 4, starts[-1] + step)  # also where few of them have a value
    first = table.rows[0][0]
    name = units.zone(int(first), utc) if isinstance(first, int) else "UTC"
    axes.set_xlabel(f"time ({name}), {table.title.partition(', ')[2]}")


def _latency_over_time(figure: Any, report: Report, utc: bool) -> bool:
    starts, columns = _series(report, "broker_p50_ns", "broker_p99_ns", "broker_max_ns")
    if not any(v is not None for v in columns[0]):
        return False
    axes = figure.add_subplot()
    for n, (label, values) in enumerate(zip(("median", "99th percentile", "longest"), columns, strict=True)):
        y = [float("nan") if v is None else max(float(v), 1000.0) / 1e6 for v in values]
        axes.plot(starts, y, label=label, color=PALETTE[n], linestyle=_STYLES[n], marker=_MARKERS[n], markersize=4.5,
                  linewidth=1.6)  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda ms, _: units.duration(round(ms * 1e6)).replace(".00", "").replace(".0", ""))
    axes.set_ylabel("broker time (logarithmic)")
    notes = " ".join(report.table("timeline").notes)
    axes.set_title(f"Broker time over time, {WITHOUT_WAITS if WITHOUT_WAITS in notes else 'without long polls'}")
    _time_axis(axes, report, utc)
    axes.legend(loc="upper left", ncols=3, bbox_to_anchor=(0, -0.14))
    return True


def _panels(
    figure: Any, report: Report, utc: bool, title: str, panels: tuple[tuple[str, str, float, str], ...]
) -> bool:
    """Bars over time, a panel each: (column of the timeline, label, divisor, colour)."""
    starts, columns = _series(report, *(name for name, *_ in panels))
    if not any(v for values in columns for v in values):
        return False
    width = (starts[1] - starts[0]).total_seconds() / 86400 if len(starts) > 1 else 1 / 86400
    all_axes = figure.subplots(len(panels), sharex=True)
    for axes, (name, label, divisor, color), values in zip(all_axes, panels, columns, strict=True):
        heights = [float(v or 0) / divisor for v in values]
        axes.bar(starts, heights, width=0.9 * width, align="edge", color=color)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0, top=None if any(heights) else 1)
        axes.grid(axis="x", visible=False)
        axes.set_axisbelow(True)
        if name != "wait_sum_ns":
            axes.yaxis.get_major_locator().set_params(integer=True)
    all_axes[0].set_title(title)
    _time_axis(all_axes[-1], report, utc)
    return True


def _throttle_over_time(figure: Any, report: Report, utc: bool) -> bool:
    return _panels(figure, report, utc, "Throttling over time", (
        ("throttled", "throttled responses", 1, PALETTE[5]),
        ("wait_sum_ns", "delay on the wire, s", 1e9, PALETTE[0]),
    ))  # fmt: skip


def _errors_over_time(figure: Any, report: Report, utc: bool) -> bool:
    return _panels(figure, report, utc, "Errors over time", (
        ("errors", "error codes", 1, PALETTE[1]),
        ("unanswered", "requests\nwithout a response", 1, PALETTE[6]),
    ))  # fmt: skip
