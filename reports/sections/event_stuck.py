"""Hosts that do not get what a broker sends, as a capture on the broker's side shows it.

Their requests do not arrive either, so no request waits there. The evidence is in the broker's own packets: it sends
them again and again, and nothing acknowledges them (`broker_stuck_ns` of connections), while it answers nothing to that
host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kafkatap.kernels.arrays import groups_of

from ..finding_words import counted
from ..findings import ERROR, Finding, Party
from ..units import duration
from .event_answers import SECOND
from .event_counts import STUCK
from .event_timeline import Seen, runs

#: A time in which a host does not reach a broker: the broker, the address (None: any), begin, end.
Span = tuple[int, int | None, int, int]


def stuck_hosts(seen: Seen, known: Sequence[Span]) -> Iterator[Finding]:
    """Findings of such hosts. `known`: what other events say."""
    stuck, known_of = seen.columns(STUCK.name), defaultdict[int, list[Span]](list)
    for span in known:
        known_of[span[0]].append(span)
    for (client_ip, broker), of_pair in groups_of(stuck["client_ip"], stuck["broker"]):
        mine = seen.of(stuck, of_pair)
        gaps = seen.gaps(seen.rows_of("answers", client_ip=client_ip, broker=broker), SECOND)
        for rows in runs(mine, 0):
            begin, end = int(mine["first"][rows].min()), int(mine["heard"][rows].min())
            is_open = bool(mine["is_open"][rows].all()) and any(gap.end is None for gap in gaps)
            until = seen.end if is_open else end
            silent = max((min(gap.until(seen.end), until) - max(gap.begin, begin) for gap in gaps), default=0)
            is_known = any(
                host in (None, client_ip) and first < until and last > begin
                for _, host, first, last in known_of[broker]
            )
            if silent >= SECOND and not is_known:
                yield _finding(seen, client_ip, broker, begin, None if is_open else end,
                               int(mine["connections"][rows].sum()))  # fmt: skip


def _finding(seen: Seen, client_ip: int, broker: int, begin: int, end: int | None, connections: int) -> Finding:
    length = (seen.end if end is None else end) - begin
    host, label = seen.context.address(client_ip) or "?", seen.brokers.label(broker)
    text = (
        f"{host} acknowledged nothing that {label} sent for {duration(length)}"
        + ("" if end is not None else ", until the end")
        + f"; packets on {counted(connections, 'connection')} were sent again; no request of it "
        "was answered meanwhile"
    )
    return Finding(
        "hosts_cut_off", ERROR, "cut off", text, length, begin, end,
        {"silence_ns": length, "waits": 0, "connections": connections, "unanswered": 0, "last_answer": begin},
        (), (Party("host", host), seen.brokers.party(broker)),
        options=seen.shown(broker, begin, end, client_ip), command="show",
    )  # fmt: skip
