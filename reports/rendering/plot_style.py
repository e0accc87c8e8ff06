"""What all plots share: colours, matplotlib's settings, titles, and axes of time.

The colours of curves (Okabe and Ito) are safe for colour-blind people. Each curve also has its own line style and
marker, for print in black and white. A page replaces all of these colours by its own (`html.svg`), for light and dark.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .. import units
from ..model import Report, ReportTable, Value, as_number

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b4608f", "#b98500", "#2f9bd0", "#3b3f45")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: Colours with a meaning, as in the tables of a page.
MEANING = {
    "broker": "#3a6fb5", "network": "#9a4f9b", "throttle": "#138a8f", "client": "#b97a12", "bad": "#b7361f",
    "none": "#a9b0b8",
}  # fmt: skip
#: Steps of a heat map, from few to many.
HEAT = ("#deebf5", "#c3dcee", "#9ec8e3", "#6fadd5", "#448fc3", "#2270ac", "#0f5291", "#08336b")
INK, SOFT, LINE = "#1d2024", "#636a73", "#e3e5e8"
_DAY = 86400.0
#: Events in a chart at most: the first ones.
MARKS = 40
SETTINGS = {
    "font.size": 10,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "kafkatap",
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "text.parse_math": False,
}
#: The gids of invisible bars, each with a tooltip, begin with this.
HIT = "hit-"


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot that is drawn. `has_head`: draw its title; a page has it beside the plot.

    `tips`: for the gid of an artist the tooltips of what it draws, in order. `titles`: those of whole artists.
    `head`: title and note, once they are known.
    """

    figure: Any
    report: Report
    utc: bool
    has_head: bool = True
    tips: dict[str, list[str]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    head: dict[str, str] = field(default_factory=dict)

    def set_head(self, axes: Any, title: str, count: int, what: str) -> None:
        """Write the title, and below it the captures, the selection, and the number of values."""
        self.head.update(title=title, note=f"{count:,} {what}")
        if not self.has_head:
            return
        report = self.report
        files = table_of(report, "files")
        paths = [] if files is None else [units.safe(Path(str(row["path"])).name) for row in files.named_rows()]
        (heading,) = report.heading.named_rows()
        named = f"{paths[0]} and {len(paths) - 1:,} more files" if len(paths) > 2 else " and ".join(paths)
        only = f"only {units.safe(str(heading['filters']))}" if heading["filters"] else ""
        cut = " (interrupted)" if heading["interrupted"] else ""
        self.figure.suptitle(title, x=0.01, ha="left")
        parts = filter(None, (named + cut, only, f"n = {count:,} {what}"))
        axes.set_title("\n".join(textwrap.wrap("; ".join(parts), 120)))

    def bands(self, axes: Any, starts: Sequence[datetime], step: timedelta, tips: Sequence[str], name: str) -> None:
        """Add an invisible bar over the whole height for each interval, with its tooltip."""
        from matplotlib.collections import PolyCollection
        from matplotlib.dates import date2num

        edges = [(x, x + step.total_seconds() / _DAY) for x in map(date2num, starts)]
        shapes = [((a, 0), (b, 0), (b, 1), (a, 1)) for a, b in edges]
        gid = f"{HIT}{name}"
        axes.add_collection(
            PolyCollection(shapes, alpha=0, linewidths=0, gid=gid, transform=axes.get_xaxis_transform(), zorder=5),
            autolim=False,
        )
        self.tips[gid] = list(tips)

    def marks(self, *axes: Any) -> None:
        """Mark events on charts over time, whose limits are set: a line where each begins, a band until it ends."""
        from matplotlib.dates import date2num

        low, high = axes[0].get_xlim()
        found = [(float(date2num(at(mark.begin))), mark) for mark in self.report.curves.marks[:MARKS]]
        for number, (begin, mark) in enumerate(found):
            end = begin if mark.end is None else float(date2num(at(mark.end)))
            if end < low or begin > high:
                continue
            told = f"{clock(at(mark.begin), self.utc)} {mark.label}: {label(mark.text, 300)}"
            for place, each in enumerate(axes):
                gid = f"event-{number}-{place}"
                each.axvspan(max(begin, low), min(end, high), color=MEANING["bad"], alpha=0.12, linewidth=0, zorder=0.5)
                each.axvline(begin, color=MEANING["bad"], linestyle=(0, (4, 3)), linewidth=1.3, zorder=6, gid=gid)
                self.titles[gid] = told
        axes[0].set_xlim(low, high)


def table_of(report: Report, name: str) -> ReportTable | None:
    """A table of the report, or None."""
    return next((table for table in report.tables if table.name == name), None)


def duration(ms: float, _: object = None) -> str:
    """The text of a tick in ms."""
    return units.duration(round(ms * 1e6)).replace(".00", "").replace(".0", "")


def label(text: Value, cells: int = 28) -> str:
    """A text from the wire as a label."""
    return units.cut(units.safe("(none)" if text is None else str(text) or "(empty)"), cells)


def at(ns: int) -> datetime:
    """A time as matplotlib takes it."""
    return datetime.fromtimestamp(ns / 1e9, UTC)


def series(report: Report, *names: str) -> tuple[list[datetime], list[list[Value]]]:
    """The starts of the timeline's intervals, and its named columns. Both are empty without a timeline."""
    table = table_of(report, "timeline")
    if table is None:
        return [], [[] for _ in names]
    rows = table.named_rows()
    return [at(int(as_number(row["start"]))) for row in rows], [[row[name] for row in rows] for name in names]


def step_of(starts: Sequence[datetime]) -> timedelta:
    """The length of the intervals."""
    return starts[1] - starts[0] if len(starts) > 1 else timedelta(seconds=1)


def time_axis(axes: Any, first: datetime, last: datetime, utc: bool, more: str = "") -> None:
    """Format the time axis from `first` to `last`. The date is in the label, or in the ticks if there are several
    days. `more`: the end of the label."""
    from matplotlib.dates import AutoDateLocator, num2date

    zone = UTC if utc else datetime.now().astimezone().tzinfo
    first, last = first.astimezone(zone), last.astimezone(zone)
    axes.set_xlim(first, last)
    axes.xaxis.set_major_locator(AutoDateLocator(tz=zone, maxticks=9))
    days = (last - first).total_seconds() / _DAY
    form = "%Y-%m-%d" if days > 8 else "%m-%d %H:%M" if first.date() != last.date() else "%H:%M:%S"
    fine = days * _DAY < 8

    def tick(value: float, _: object) -> str:
        moment: datetime = num2date(value, tz=zone)
        return moment.strftime("%H:%M:%S.%f")[:-3] if fine else moment.strftime(form)

    axes.xaxis.set_major_formatter(tick)
    name = units.zone(int(first.timestamp()) * units.SECOND, utc)
    axes.set_xlabel(f"time ({name}) on {first:%Y-%m-%d}{more}")


def clock(moment: datetime, utc: bool) -> str:
    """The time of a tooltip."""
    return units.clock(round(moment.timestamp() * 1000) * 1_000_000, utc, 0 if not moment.microsecond else 3)
