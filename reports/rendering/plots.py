"""Plots as SVG and PNG: the distribution of latency, and latency, throttling and error codes over time.

matplotlib is imported when plots are made, with only its Agg and SVG writers. The colours (Okabe and Ito) are safe for
colour-blind people. Each curve also has its own line style and marker, for print in black and white.
"""

from __future__ import annotations

import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .. import units
from ..model import Curve, Report, Value, as_number
from ..sections.timeline import WITHOUT_WAITS

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: The maximum number of curves in the latency plot.
CURVES = len(PALETTE)
#: The 99th percentile of fewer values is close to the maximum, so plots leave it out.
ENOUGH_FOR_P99 = 100
#: The time axis of the distribution starts where the first curve reaches this share, and more than one value.
#: Otherwise a few short times would take most of the axis.
LEFT_OUT = 0.02
_DAY = 86400.0
_SETTINGS = {
    "font.size": 10,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": "#404040",
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
    """Write latency, latency-over-time, throttle-over-time and errors-over-time to `folder`, as .svg and .png.

    Return the paths. The report needs its curves (`build_report(..., curves=True)`). A plot without data is not
    written, and its files from an earlier run are removed.
    """
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with matplotlib.rc_context(_SETTINGS):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        for name, draw in _PLOTS:
            figure = Figure(figsize=(9, 4.8), layout="constrained")
            FigureCanvasAgg(figure)
            drawn = draw(figure, report, utc)
            for suffix in ("svg", "png"):
                path = folder / f"{name}.{suffix}"
                if not drawn:
                    path.unlink(missing_ok=True)
                    continue
                figure.savefig(path, metadata={"Date": None} if suffix == "svg" else None)
                paths.append(path)
    return paths


def _head(figure: Any, axes: Any, report: Report, title: str, count: int, what: str) -> None:
    """Write the title of a plot, and below it the captures, the selection, and the number of values."""
    paths = [units.safe(Path(str(row[0])).name) for row in report.table("files").rows]
    heading = dict(zip((c.name for c in report.heading.columns), report.heading.rows[0], strict=True))
    files = f"{paths[0]} and {len(paths) - 1:,} more files" if len(paths) > 2 else " and ".join(paths)
    only = f"; only {units.safe(str(heading['filters']))}" if heading["filters"] else ""
    cut = " (interrupted)" if heading["interrupted"] else ""
    figure.suptitle(title, x=0.01, ha="left")
    axes.set_title("\n".join(textwrap.wrap(f"{files}{cut}{only}; n = {count:,} {what}", 120)))


def _duration(ms: float, _: object = None) -> str:
    return units.duration(round(ms * 1e6)).replace(".00", "").replace(".0", "")


def _latency(figure: Any, report: Report, utc: bool) -> bool:
    """Plot the share of exchanges that are answered within a time, by API, on a logarithmic time axis in ms."""
    curves = report.curves.latency[:CURVES]
    if not curves:
        return False
    axes = figure.add_subplot()
    # A logarithmic axis needs a start above 0.
    low = max(min(map(_axis_start, curves)), 1000)
    high = max(max(times[-1] for _, _, times, _ in curves), 2 * low)
    left_out = 0
    for n, (label, count, times, parts) in enumerate(curves):
        before = bisect_right(times, low / 1.2)
        left_out += round(count * parts[before - 1]) if before else 0
        x = [max(t, 1000) / 1e6 for t in (times[0], *times)]  # a step at each bucket, from 0 on
        axes.plot(
            x, [0.0, *parts], drawstyle="steps-post", label=f"{units.cut(units.safe(label), 40)}  ({count:,})",
            color=PALETTE[n], linestyle=_STYLES[n], marker=_MARKERS[n], markersize=5, linewidth=1.6,
            markevery=_marks(x, max(x[0], low / 1e6), 9),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(low / 1.2e6, high * 1.2 / 1e6)
    axes.xaxis.set_major_formatter(_duration)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda part, _: f"{100 * part:.0f} %")
    faster = f"; {left_out:,} shorter than the axis shows" if left_out else ""
    axes.set_xlabel(f"broker time (logarithmic){faster}")
    axes.set_ylabel("exchanges answered within it")
    total = len(report.curves.latency)
    most = f" (the {CURVES} most frequent of {total:,})" if total > CURVES else ""
    title = report.table("latency").title.replace("Latency", "Broker time", 1)
    _head(figure, axes, report, title + most, sum(count for _, count, *_ in curves), "exchanges")
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


def _series(report: Report, *names: str) -> tuple[list[datetime], list[list[Value]]]:
    """The starts of the intervals, and the named columns of the timeline."""
    table = report.table("timeline")
    at = [next(i for i, c in enumerate(table.columns) if c.name == name) for name in ("start", *names)]
    starts = [datetime.fromtimestamp(as_number(row[at[0]]) / 1e9, UTC) for row in table.rows]
    return starts, [[row[i] for row in table.rows] for i in at[1:]]


def _time_axis(axes: Any, report: Report, utc: bool) -> None:
    """Format the time axis. The date is in the label, or in the ticks if there are several days."""
    from matplotlib.dates import AutoDateLocator, num2date

    starts, _ = _series(report)
    zone = UTC if utc else datetime.now().astimezone().tzinfo
    step = starts[1] - starts[0] if len(starts) > 1 else timedelta(seconds=1)
    first, last = starts[0].astimezone(zone), (starts[-1] + step).astimezone(zone)
    axes.set_xlim(first - step / 2, last)  # the whole time span, even if few intervals have values
    axes.xaxis.set_major_locator(AutoDateLocator(tz=zone, maxticks=9))
    days = (last - first).total_seconds() / _DAY
    form = "%Y-%m-%d" if days > 8 else "%m-%d %H:%M" if first.date() != last.date() else "%H:%M:%S"
    fine = days * _DAY < 8

    def tick(value: float, _: object) -> str:
        at: datetime = num2date(value, tz=zone)
        return at.strftime("%H:%M:%S.%f")[:-3] if fine else at.strftime(form)

    axes.xaxis.set_major_formatter(tick)
    name = units.zone(int(starts[0].timestamp()) * units.SECOND, utc)
    length = report.table("timeline").title.partition(", ")[2]
    axes.set_xlabel(f"time ({name}) on {first:%Y-%m-%d}, {length}")


def _latency_over_time(figure: Any, report: Report, utc: bool) -> bool:
    starts, (p50, p99, longest, timed) = _series(report, "broker_p50_ns", "broker_p99_ns", "broker_max_ns", "timed")
    if not any(v is not None for v in p50):
        return False
    axes = figure.add_subplot()
    few = [as_number(n) < ENOUGH_FOR_P99 for n in timed]
    p99 = [None if small else value for value, small in zip(p99, few, strict=True)]
    for n, (label, values) in enumerate((("median", p50), ("99th percentile", p99), ("longest", longest))):
        if all(v is None for v in values):
            continue
        y = [float("nan") if v is None else max(as_number(v), 1000) / 1e6 for v in values]
        axes.plot(starts, y, label=label, color=PALETTE[n], linestyle=_STYLES[n], marker=_MARKERS[n], markersize=4.5,
                  linewidth=1.6)  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_duration)
    axes.set_ylabel("broker time (logarithmic)")
    notes = " ".join(report.table("timeline").notes)
    title = f"Broker time over time, {WITHOUT_WAITS if WITHOUT_WAITS in notes else 'without long polls'}"
    _head(figure, axes, report, title, sum(int(as_number(n)) for n in timed), "exchanges")
    _time_axis(axes, report, utc)
    left_out = any(small and v is not None for small, v in zip(few, p50, strict=True))
    note = f"no 99th percentile of fewer than {ENOUGH_FOR_P99} exchanges" if left_out else None
    axes.legend(loc="upper left", ncols=3, bbox_to_anchor=(0, -0.14), title=note, alignment="left")
    return True


def _panels(
    figure: Any, report: Report, utc: bool, title: str, what: str, panels: tuple[tuple[str, str, float, str], ...]
) -> bool:
    """Plot bars. `panels`: (timeline column, label, divisor, colour). `what`: the values of the first panel."""
    starts, columns = _series(report, *(name for name, *_ in panels))
    if not any(v for values in columns for v in values):
        return False
    width = (starts[1] - starts[0]).total_seconds() / _DAY if len(starts) > 1 else 1 / _DAY
    all_axes = figure.subplots(len(panels), sharex=True)
    for axes, (name, label, divisor, color), values in zip(all_axes, panels, columns, strict=True):
        heights = [as_number(v) / divisor for v in values]
        axes.bar(starts, heights, width=0.9 * width, align="edge", color=color)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0, top=None if any(heights) else 1)
        axes.grid(axis="x", visible=False)
        axes.set_axisbelow(True)
        if name != "throttle_wait_sum_ns":
            axes.yaxis.get_major_locator().set_params(integer=True)
    _head(figure, all_axes[0], report, title, sum(int(as_number(v)) for v in columns[0]), what)
    _time_axis(all_axes[-1], report, utc)
    return True


def _throttle_over_time(figure: Any, report: Report, utc: bool) -> bool:
    return _panels(figure, report, utc, "Throttling over time", "throttled responses", (
        ("throttled", "throttled responses", 1, PALETTE[5]),
        ("throttle_wait_sum_ns", "throttle wait, s", 1e9, PALETTE[0]),
    ))  # fmt: skip


def _errors_over_time(figure: Any, report: Report, utc: bool) -> bool:
    return _panels(figure, report, utc, "Error codes over time", "error codes", (
        ("error_codes", "error codes", 1, PALETTE[1]),
        ("unanswered", "requests\nwithout a response", 1, PALETTE[6]),
    ))  # fmt: skip


_PLOTS: tuple[tuple[str, Callable[[Any, Report, bool], bool]], ...] = (
    ("latency", _latency),
    ("latency-over-time", _latency_over_time),
    ("throttle-over-time", _throttle_over_time),
    ("errors-over-time", _errors_over_time),
)
