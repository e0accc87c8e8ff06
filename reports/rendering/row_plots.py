"""Plots with a row for each group or client: rebalances over time, and the matrix of clients and topics."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from .. import units
from ..model import Value, as_number
from .plot_style import LINE, MEANING, PALETTE, Plot, at, clock, label, table_of, time_axis

#: Clients and topics that are shown: those with the most bytes.
CLIENTS, TOPICS = 24, 24
_COLORS = {"writes": PALETTE[1], "reads": PALETTE[0], "replicates": MEANING["none"]}
#: The opacity of the fewest and of the most bytes.
_FAINT, _FULL = 0.25, 1.0
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
    """Draw the table `rebalances` of the section `groups`: a line for each group, and on it its rebalances with their
    causes."""
    table = table_of(plot.report, "rebalances")
    if table is None or not table.rows:
        return False
    rows = table.named_rows()
    counts = Counter(row["group"] for row in rows)
    groups = _most(counts, GROUPS)
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
    _add_legend(axes, _CAUSES, used, "cause", "center left", 0.5)
    return True


def topic_matrix(plot: Plot) -> bool:
    """Draw the table `topic_clients` of the section `topics`: who writes and who reads what, and how many bytes.

    A cell has two halves: what the client writes on the left, what it reads on the right. The more bytes, the stronger
    is its colour.
    """
    table = table_of(plot.report, "topic_clients")
    if table is None or not table.rows:
        return False
    cells: dict[tuple[Value, Value, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    clients: Counter[Value] = Counter()
    topics: Counter[Value] = Counter()
    for row in table.named_rows():
        client, topic, role = row["client_id"], row["topic"], str(row["role"])
        amount, records = int(as_number(row["batch_bytes"])), int(as_number(row["records"]))
        for n, value in enumerate((amount, records, int(as_number(row["requests"])))):
            cells[client, topic, role][n] += value
        clients[client] += amount
        topics[topic] += amount
    shown_clients, shown_topics = _most(clients, CLIENTS), _most(topics, TOPICS)
    largest = max(amount for amount, *_ in cells.values())
    axes = plot.figure.add_subplot()
    used = set()
    for n, ((client, topic, role), (amount, records, requests)) in enumerate(sorted(cells.items(), key=str)):
        if client not in shown_clients or topic not in shown_topics:
            continue
        x, y = shown_topics.index(topic), shown_clients.index(client)
        color = _COLORS.get(role, PALETTE[6])
        used.add(role)
        part = math.log1p(amount) / math.log1p(largest) if largest else 0
        gid = f"cell-{n}"
        left = x - 0.44 if role == "writes" else x + 0.02
        axes.bar(left, 0.84, 0.42, y - 0.42, align="edge", color=color, alpha=_FAINT + (_FULL - _FAINT) * part, gid=gid)
        plot.tips[gid] = [
            f"{label(client, 60)} {label(role)} {label(topic, 60)}\n{units.size(amount)}, {records:,} records, "
            f"{requests:,} requests"
        ]
    axes.set_xticks(range(len(shown_topics)), [label(topic, 24) for topic in shown_topics], rotation=40, ha="right",
                    rotation_mode="anchor")  # fmt: skip
    axes.set_yticks(range(len(shown_clients)), [label(client, 28) for client in shown_clients])
    axes.set_xlim(-0.6, len(shown_topics) - 0.4)
    axes.set_ylim(len(shown_clients) - 0.4, -0.6)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    left_out = "" if len(clients) <= CLIENTS and len(topics) <= TOPICS else (
        f" (the largest of {len(clients):,} clients and {len(topics):,} topics)"
    )  # fmt: skip
    plot.set_head(axes, f"Clients and topics{left_out}", len(cells), "pairs of a client and a topic")
    _add_legend(axes, _COLORS, used, "stronger: more bytes", "upper left", 1.0)
    return True


def _most(counts: Counter[Value], wanted: int) -> list[Value]:
    return [value for value, _ in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:wanted]]


def _add_legend(axes: Any, colors: Mapping[str, str], used: Collection[str], title: str, loc: str, y: float) -> None:
    """A legend of the colours that were used, beside the plot at height `y`."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color, label=name) for name, color in colors.items() if name in used]
    axes.legend(handles=handles, loc=loc, bbox_to_anchor=(1.0, y), title=title, handlelength=1, handleheight=1,
                alignment="left")  # fmt: skip
