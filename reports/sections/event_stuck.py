"""Hosts that do not get what a broker sends, as a capture on the broker's side shows it.

Their requests do not arrive either, so no request waits there. The evidence is in the broker's own packets: it sends
them again and again, and nothing acknowledges them (`broker_stuck_ns` of connections), while it answers nothing to that
host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..finding_words import counted
from ..findings import ERROR, Finding, Party, Rule
from ..units import duration
from .event_answers import SECOND
from .event_counts import STUCK
from .event_timeline import Seen, bursts

CUT_OFF = Rule("hosts_cut_off", "cut off", ERROR, "show")
#: A time in which a host does not reach a broker: the broker, the address (None: any), begin, end.
Span = tuple[int, int | None, int, int]


def stuck_hosts(seen: Seen, known: Sequence[Span]) -> Iterator[Finding]:
    """Findings of such hosts. `known`: what other events say."""
    stuck, known_of = seen.columns(STUCK.name), defaultdict[int, list[Span]](list)
    for span in known:
        known_of[span[0]].append(span)
    for burst in bursts(stuck, 0, "client_ip", "broker"):
        client_ip, broker = int(burst["client_ip"][0]), int(burst["broker"][0])
        gaps = seen.gaps(seen.rows_of("answers", client_ip=client_ip, broker=broker), SECOND)
        begin, end = burst.begin, int(burst["heard"].min())
        is_open = bool(burst["is_open"].all()) and any(gap.end is None for gap in gaps)
        until = seen.end if is_open else end
        silent = max((min(gap.until(seen.end), until) - max(gap.begin, begin) for gap in gaps), default=0)
        is_known = any(
            host in (None, client_ip) and first < until and last > begin for _, host, first, last in known_of[broker]
        )
        if silent >= SECOND and not is_known:
            yield _finding(seen, client_ip, broker, begin, None if is_open else end, burst.total("connections"))


def _finding(seen: Seen, client_ip: int, broker: int, begin: int, end: int | None, connections: int) -> Finding:
    length = (seen.end if end is None else end) - begin
    host, label = seen.context.address(client_ip) or "?", seen.brokers.label(broker)
    text = (
        f"{host} acknowledged nothing that {label} sent for {duration(length)}"
        + ("" if end is not None else ", until the end")
        + f"; packets on {counted(connections, 'connection')} were sent again; no request of it "
        "was answered meanwhile"
    )
    return CUT_OFF.found(
        text, Party("host", host), seen.brokers.party(broker), begin=begin, end=end, lost=length,
        see=seen.shown(broker, begin, end, client_ip), silence_ns=length, waits=0, connections=connections,
        unanswered=0, last_answer=begin,
    )  # fmt: skip
