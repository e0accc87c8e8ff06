"""Plots as SVG, PNG and figures: latency, throttling and error codes over time, the distribution of latency,
rebalances, and the matrix of clients and topics.

matplotlib is imported when plots are made, with only its Agg and SVG writers. `draw` makes one figure, for files, pages
and notebooks alike.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kafkatap.output_file import OutputFiles

from .. import units
from ..model import Curve, Report, as_number
from ..sections.timeline import WITHOUT_WAITS
from .heat_map import latency_heat_map
from .plot_style import (
    MARKERS,
    MEANING,
    PALETTE,
    SETTINGS,
    STYLES,
    Plot,
    clock,
    duration,
    series,
    step_of,
    table_of,
    time_axis,
)
from .row_plots import CLIENTS, GROUPS, rebalances, topic_matrix

#: The maximum number of curves in the latency plot.
CURVES = len(PALETTE)
#: The 99th percentile of fewer values is close to the maximum, so plots leave it out.
ENOUGH_FOR_P99 = 100
#: The time axis of the distribution starts where the first curve reaches this share, and more than one value.
#: Otherwise a few short times would take most of the axis.
LEFT_OUT = 0.02
_WIDTH, _HEIGHT = 9.0, 4.8
#: Metadata by the form of a picture: its generator, by which a later run knows it (`kafkatap.replaceable`).
_GENERATOR: Mapping[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Title": "kafkatap"}, "png": {"Software": "kafkatap"}
}  # fmt: skip


def write_plots(report: Report, folder: Path, utc: bool = False, overwrite: bool = False) -> list[Path]:
    """Write the plots of PLOTS to `folder`, as .svg and .png. Return the paths.

    The report needs its curves (`build_report(..., curves=True)`). A plot without data is not written, and its files
    from an earlier run are removed. `overwrite`: as of `OutputFile`.
    """
    import matplotlib

    with OutputFiles(folder, overwrite=overwrite) as files:
        for name in PLOTS:
            plot = draw(name, report, utc)
            for suffix in ("svg", "png"):
                if plot is None:
                    files.drop(f"{name}.{suffix}")
                    continue
                made = files.add(f"{name}.{suffix}")
                with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Glyph .* missing")  # names from the wire
                    plot.figure.savefig(made, format=suffix, metadata=_GENERATOR[suffix])
        return files.publish()


def draw(
    name: str,
    report: Report,
    utc: bool = False,
    *,
    size: tuple[float, float] | None = None,
    has_head: bool = True,
    figure_class: Any = None,
) -> Plot | None:
    """One of PLOTS; None if the report has no data for it. `size`: width and height in inches. `has_head`: with its
    title in it. `figure_class`: instead of matplotlib's Figure."""
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = (figure_class or Figure)(figsize=size or (_WIDTH, height_of(name, report)), layout="constrained")
        FigureCanvasAgg(figure)
        plot = Plot(figure, report, utc, has_head)
        return plot if PLOTS[name](plot) else None


def height_of(name: str, report: Report) -> float:
    """The height of a plot in inches: those with a line for each group or client need more for many."""
    for plot, table_name, column, most, more in (
        ("rebalances", "rebalances", "group", GROUPS, 1.6), ("topic-matrix", "topic_clients", "client_id", CLIENTS, 2.6)
    ):  # fmt: skip
        table = table_of(report, table_name)
        if plot == name and table is not None:
            return max(more + 0.27 * min(len({row[column] for row in table.named_rows()}), most), 2.6)
    return _HEIGHT


def _latency(plot: Plot) -> bool:
    """Plot the share of exchanges that are answered within a time, by API, on a logarithmic time axis in ms."""
    report = plot.report
    curves = report.curves.latency[:CURVES]
    if not curves:
        return False
    axes = plot.figure.add_subplot()
    # A logarithmic axis needs a start above 0.
    low = max(min(map(_axis_start, curves)), 1000)
    high = max(max(times[-1] for _, _, times, _ in curves), 2 * low)
    left_out = 0
    for n, (name, count, times, parts) in enumerate(curves):
        before = bisect_right(times, low / 1.2)
        left_out += round(count * parts[before - 1]) if before else 0
        x = [max(t, 1000) / 1e6 for t in (times[0], *times)]  # a step at each bucket, from 0 on
        shares = [0.0, *parts]
        marks = _marks(x, max(x[0], low / 1e6), 9)
        shown = units.cut(units.safe(name), 40)
        axes.plot(
            x, shares, drawstyle="steps-post", label=f"{shown}  ({count:,})",
            color=PALETTE[n], linestyle=STYLES[n], marker=MARKERS[n], markersize=5, linewidth=1.6,
            markevery=marks, gid=f"curve-{n}",
        )  # fmt: skip
        plot.titles[f"curve-{n}"] = f"{shown}: {count:,} exchanges"
        plot.tips[f"curve-{n}"] = [
            f"{shown}\n{units.share(shares[i])} of {count:,} within {units.duration(round(x[i] * 1e6))}" for i in marks
        ]
    axes.set_xscale("log")
    axes.set_xlim(low / 1.2e6, high * 1.2 / 1e6)
    axes.xaxis.set_major_formatter(duration)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda part, _: f"{100 * part:.0f} %")
    faster = f"; {left_out:,} shorter than the axis shows" if left_out else ""
    axes.set_xlabel(f"broker time (logarithmic){faster}")
    axes.set_ylabel("exchanges answered within it")
    total = len(report.curves.latency)
    most = f" (the {CURVES} most frequent of {total:,})" if total > CURVES else ""
    table = table_of(report, "latency")
    title = "Broker time by API" if table is None else table.title.replace("Latency", "Broker time", 1)
    plot.set_head(axes, title + most, sum(count for _, count, *_ in curves), "exchanges")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return True


def _axis_start(curve: Curve) -> int:
    """The start of the axis for one curve, ns."""
    _, count, times, parts = curve
    return times[min(bisect_left(parts, max(LEFT_OUT, 1.5 / count)), len(times) - 1)]


def _marks(x: Sequence[float], low: float, wanted: int) -> list[int]:
    """The indexes of markers, evenly spaced on the logarithmic axis from `low` on."""
    high = x[-1]
    if high <= low:
        return [len(x) - 1]
    steps = [low * (high / low) ** (n / wanted) for n in range(wanted + 1)]
    return sorted({min(bisect_left(x, s), len(x) - 1) for s in steps})


def _timeline_axis(plot: Plot, axes: Any) -> None:
    """The time axis of the timeline: the whole time span, even if few intervals have values."""
    starts, _ = series(plot.report)
    step = step_of(starts)
    length = plot.report.table("timeline").title.partition(", ")[2]
    time_axis(axes, starts[0] - step / 2, starts[-1] + step, plot.utc, f", {length}")


def _latency_over_time(plot: Plot) -> bool:
    names = ("broker_p50_ns", "broker_p99_ns", "broker_max_ns", "timed")
    starts, (p50, p99, longest, timed) = series(plot.report, *names)
    if not any(v is not None for v in p50):
        return False
    axes = plot.figure.add_subplot()
    few = [as_number(n) < ENOUGH_FOR_P99 for n in timed]
    p99 = [None if small else value for value, small in zip(p99, few, strict=True)]
    lines = (("median", p50), ("99th percentile", p99), ("longest", longest))
    for n, (name, values) in enumerate(lines):
        if all(v is None for v in values):
            continue
        y = [float("nan") if v is None else max(as_number(v), 1000) / 1e6 for v in values]
        axes.plot(starts, y, label=name, color=PALETTE[n], linestyle=STYLES[n], marker=MARKERS[n], markersize=4.5,
                  linewidth=1.6)  # fmt: skip
    tips = []
    for n, start in enumerate(starts):
        times = [(name, values[n]) for name, values in lines if values[n] is not None]
        told = "".join(f"\n{name} {units.duration(int(as_number(value)))}" for name, value in times)
        tips.append(f"{clock(start, plot.utc)}: {as_number(timed[n]):,} exchanges{told}")
    plot.bands(axes, starts, step_of(starts), tips, "latency")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(duration)
    axes.set_ylabel("broker time (logarithmic)")
    notes = " ".join(plot.report.table("timeline").notes)
    title = f"Broker time over time, {WITHOUT_WAITS if WITHOUT_WAITS in notes else 'without long polls'}"
    plot.set_head(axes, title, sum(int(as_number(n)) for n in timed), "exchanges")
    _timeline_axis(plot, axes)
    plot.marks(axes)
    left_out = any(small and v is not None for small, v in zip(few, p50, strict=True))
    note = f"no 99th percentile of fewer than {ENOUGH_FOR_P99} exchanges" if left_out else None
    axes.legend(loc="upper left", ncols=3, bbox_to_anchor=(0, -0.14), title=note, alignment="left")
    return True


def _panels(plot: Plot, title: str, what: str, panels: tuple[tuple[str, str, float, str], ...]) -> bool:
    """Plot bars. `panels`: (timeline column, label, divisor, colour). `what`: the values of the first panel."""
    starts, columns = series(plot.report, *(name for name, *_ in panels))
    if not any(v for values in columns for v in values):
        return False
    step = step_of(starts)
    all_axes = plot.figure.subplots(len(panels), sharex=True)
    tips = [clock(start, plot.utc) for start in starts]
    for (name, text, _, _), values in zip(panels, columns, strict=True):
        for n, value in enumerate(values):
            plain = int(as_number(value))
            shown = units.duration(plain) if name.endswith("_ns") else f"{plain:,}"
            tips[n] += f"\n{text.replace(chr(10), ' ').removesuffix(', s')}: {shown}"
    for axes, (name, text, divisor, color), values in zip(all_axes, panels, columns, strict=True):
        heights = [as_number(v) / divisor for v in values]
        axes.bar(starts, heights, width=0.9 * step, align="edge", color=color)
        axes.set_ylabel(text)
        axes.set_ylim(bottom=0, top=None if any(heights) else 1)
        axes.grid(axis="x", visible=False)
        if name != "throttle_wait_sum_ns":
            axes.yaxis.get_major_locator().set_params(integer=True)
        plot.bands(axes, starts, step, tips, name)
    plot.set_head(all_axes[0], title, sum(int(as_number(v)) for v in columns[0]), what)
    _timeline_axis(plot, all_axes[-1])
    plot.marks(*all_axes)
    return True


def _throttle_over_time(plot: Plot) -> bool:
    return _panels(plot, "Throttling over time", "throttled responses", (
        ("throttled", "throttled responses", 1, MEANING["throttle"]),
        ("throttle_wait_sum_ns", "throttle wait, s", 1e9, MEANING["throttle"]),
    ))  # fmt: skip


def _errors_over_time(plot: Plot) -> bool:
    return _panels(plot, "Error codes over time", "error codes", (
        ("error_codes", "error codes", 1, MEANING["bad"]),
        ("unanswered", "requests\nwithout a response", 1, PALETTE[6]),
    ))  # fmt: skip


#: Functions that draw, by the names of files. Each returns False if the report has no data for it.
PLOTS: Mapping[str, Callable[[Plot], bool]] = MappingProxyType({
    "latency": _latency,
    "latency-heat-map": latency_heat_map,
    "latency-over-time": _latency_over_time,
    "throttle-over-time": _throttle_over_time,
    "errors-over-time": _errors_over_time,
    "rebalances": rebalances,
    "topic-matrix": topic_matrix,
})  # fmt: skip
