"""The matrix of clients and topics: who writes and who reads what, and how many bytes.

A cell has two halves: what the client writes on the left, what it reads on the right. The more bytes, the stronger is
its colour.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from .. import units
from ..model import Value, as_number
from .plot_style import MEANING, PALETTE, Plot, label, table_of

#: Clients and topics that are shown: those with the most bytes.
CLIENTS, TOPICS = 24, 24
_COLORS = {"writes": PALETTE[1], "reads": PALETTE[0], "replicates": MEANING["none"]}
#: The opacity of the fewest and of the most bytes.
_FAINT, _FULL = 0.25, 1.0


def topic_matrix(plot: Plot) -> bool:
    """Draw the table `topic_clients` of the section `topics`."""
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
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color, label=role) for role, color in _COLORS.items() if role in used]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="stronger: more bytes",
                handlelength=1, handleheight=1, alignment="left")  # fmt: skip
    return True


def _most(counts: Counter[Value], wanted: int) -> list[Value]:
    return [value for value, _ in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:wanted]]
