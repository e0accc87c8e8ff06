"""The latency heat map: how many exchanges took how long, over time.

Its cells have steps of colour, on a logarithmic scale from one exchange to the most in a cell. So a single slow
exchange is still visible beside thousands of fast ones.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from .. import units
from .plot_style import HEAT, Plot, at, clock, duration, time_axis

_DAY = 86400.0


def latency_heat_map(plot: Plot) -> bool:
    """Draw the heat map of `report.curves`."""
    heat = plot.report.curves.heat
    if heat is None or not heat.cells:
        return False
    from matplotlib.collections import PolyCollection
    from matplotlib.dates import date2num

    axes = plot.figure.add_subplot()
    most = max(count for *_, count in heat.cells)
    steps = heat_steps(most)
    shapes, colors, tips = [], [], []
    width = heat.interval / 1e9 / _DAY
    for column, row, count in heat.cells:
        start = heat.first + column * heat.interval
        x = date2num(at(start))
        low, high = heat.edges[row] / 1e6, heat.edges[row + 1] / 1e6
        shapes.append([(x, low), (x + width, low), (x + width, high), (x, high)])
        colors.append(HEAT[step_of_count(count, steps)])
        tips.append(
            f"{clock(at(start), plot.utc)}\n{units.duration(heat.edges[row])} to "
            f"{units.duration(heat.edges[row + 1])}: {count:,} exchange{'' if count == 1 else 's'}"
        )
    axes.add_collection(PolyCollection(shapes, facecolors=colors, edgecolors="none", gid="heat", antialiaseds=False))
    plot.tips["heat"] = tips
    axes.set_yscale("log")
    axes.set_ylim(heat.edges[0] / 1e6, heat.edges[-1] / 1e6)
    axes.yaxis.set_major_formatter(duration)
    axes.set_ylabel("broker time (logarithmic)")
    axes.grid(axis="x", visible=False)
    last = heat.first + (1 + max(column for column, *_ in heat.cells)) * heat.interval
    first = at(heat.first)
    time_axis(
        axes, first, max(at(last), first + timedelta(seconds=1e-3)), plot.utc, f", {units.step(heat.interval)} each"
    )
    plot.marks(axes)
    total = sum(count for *_, count in heat.cells)
    plot.set_head(axes, f"Broker time over time, {heat.what}", total, "exchanges")
    _add_scale(axes, steps)
    return True


def heat_steps(most: int) -> list[int]:
    """The least count of each step of colour, ascending."""
    steps = len(HEAT)
    if most <= steps:
        return list(range(1, most + 1))
    found = [max(n + 1, round(most ** (n / steps))) for n in range(steps)]
    return [1, *found[1:]]


def step_of_count(count: int, steps: list[int]) -> int:
    """The step of a count, spread over all colours if there are fewer steps than colours."""
    step = max(n for n, least in enumerate(steps) if count >= least)
    return step if len(steps) == len(HEAT) else math.ceil((step + 1) * len(HEAT) / len(steps)) - 1


def _add_scale(axes: Any, steps: list[int]) -> None:
    """A legend: the least count of each colour."""
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=HEAT[step_of_count(least, steps)], label=f"{least:,}") for least in steps]
    axes.legend(
        handles=patches[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), title="exchanges\nfrom", handlelength=1,
        handleheight=1, labelspacing=0.25,
    )  # fmt: skip
