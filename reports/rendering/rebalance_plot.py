"""The rebalance timeline: a line for each group, and on it its rebalances with their causes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from .. import units
from ..model import as_number
from .plot_style import LINE, MEANING, PALETTE, Plot, at, clock, label, table_of, time_axis

#: Groups that are shown: those with the most rebalances.
GROUPS = 20
#: The colour of each cause. The last one is for other causes.
_CAUSES = {
    "join": PALETTE[0], "leave": PALETTE[4], "rejoin": PALETTE[5], "session timeout": MEANING["bad"],
    "subscription": PALETTE[2], "not captured": MEANING["none"], "other": PALETTE[6],
}  # fmt: skip
#: A rebalance is at least this share of the time span wide, so that it can be seen.
_WIDTH = 0.004


def rebalances(plot: Plot) -> bool:
    """Draw the table `rebalances` of the section `groups`."""
    table = table_of(plot.report, "rebalances")
    if table is None or not table.rows:
        return False
    rows = table.named_rows()
    counts = Counter(row["group"] for row in rows)
    groups = [group for group, _ in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:GROUPS]]
    (heading,) = plot.report.heading.named_rows()
    first, last = at(int(as_number(heading["first"]))), at(int(as_number(heading["last"])))
    last = max(last, first + timedelta(milliseconds=1))
    least = (last - first) * _WIDTH
    axes = plot.figure.add_subplot()
    used = set()
    for n, row in enumerate(rows):
        if row["group"] not in groups:
            continue
        place = groups.index(row["group"])
        cause = str(row["trigger"]) if str(row["trigger"]) in _CAUSES else "other"
        used.add(cause)
        start = at(int(as_number(row["start"])))
        took = max(timedelta(microseconds=as_number(row["duration_ns"]) / 1000), least)
        gid = f"rebalance-{n}"
        axes.barh(place, took, left=start, height=0.62, color=_CAUSES[cause], gid=gid, zorder=3)
        who = f" of {label(row['who'], 40)}" if row["who"] else ""
        told = [
            f"{label(row['group'], 60)}, generation {row['generation']}",
            f"{clock(start, plot.utc)}: {label(row['trigger'])}{who}",
            f"took {units.duration(int(as_number(row['duration_ns'])))}"
            + (
                f", a partition without a member for {units.duration(int(as_number(row['stop_ns'])))}"
                if row["stop_ns"]
                else ""
            ),
            *([label(row["reason"], 120)] if row["reason"] else []),
        ]
        plot.tips[gid] = ["\n".join(told)]
    axes.hlines(range(len(groups)), first, last, color=LINE, linewidth=1, zorder=1)
    axes.set_yticks(range(len(groups)), [f"{label(group)}  ({counts[group]:,})" for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    time_axis(axes, first, last, plot.utc)
    plot.marks(axes)
    more = f" (the {GROUPS} groups with most of them, of {len(counts):,})" if len(counts) > GROUPS else ""
    plot.set_head(axes, f"Rebalances{more}", sum(counts.values()), "rebalances")
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color, label=cause) for cause, color in _CAUSES.items() if cause in used]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), title="cause", handlelength=1,
                handleheight=1, alignment="left")  # fmt: skip
    return True
