"""Positions of readers, commits of groups and ends of partitions over time: how lag grows, and who falls behind."""

from __future__ import annotations

from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import LATEST, MAX, SUM
from ..section_parts.gathered import Gathered
from ..section_parts.section_counts import Tally
from .group_events import appends_of, committed_of, high_watermarks_of, positions_of

#: Twice the default of auto.commit.interval.ms, and 20 times the default of fetch.max.wait.ms: readers that keep up
#: are nearer, also after a rebalance without dead members.
LEAST_NS = 10_000_000_000
#: Fetches of a partition. Fewer do not show whether the reader moves.
FETCHES = 3
#: Positions and ends are kept for each two seconds, as the time behind is for people, and ends between are estimated.
SPAN_NS = 2_000_000_000

_PLACE = {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER}
_NO_PLACE = {"topic": OTHER, "topic_id": -1, "partition": -1, "span": -1}
#: The first value says what is small: the oldest.
POSITIONS = CountForm(
    "groups.positions-over-time",
    {"client_id": TEXT, "client_ip": ADDRESS, **_PLACE, "span": NUMBER},
    {"time": MAX, "offset": LATEST, "packet": LATEST, "fetches": SUM},
    {"client_id": OTHER, "client_ip": -1, **_NO_PLACE},
)
COMMITS = CountForm(
    "groups.commits-over-time",
    {"group": TEXT, **_PLACE, "span": NUMBER},
    {"time": MAX, "offset": LATEST, "packet": LATEST, "commits": SUM},
    {"group": OTHER, **_NO_PLACE},
)
ENDS = CountForm("groups.ends-over-time", {**_PLACE, "span": NUMBER}, {"time": MAX, "end": LATEST}, _NO_PLACE)


def read(gathered: Gathered, tally: Tally) -> None:
    """Read the offsets of Fetch, of commits, and of Produce."""
    keys, times, offsets, at = positions_of(gathered)
    if len(times):
        packets = gathered.column("request_packet_first")[at]
        values = {"time": times, "offset": offsets, "packet": packets, "fetches": 1}
        tally.add(POSITIONS.name, keys | {"span": times // SPAN_NS}, values)
    for commits, (keys, times, offsets, at) in committed_of(gathered):
        packets = gathered.column("request_packet_first")[at]
        values = {"time": times, "offset": offsets, "packet": packets, "commits": commits}
        tally.add(COMMITS.name, keys | {"span": times // SPAN_NS}, values)
    for place, times, ends in (high_watermarks_of(gathered), appends_of(gathered)):
        if len(times):
            tally.add(ENDS.name, place | {"span": times // SPAN_NS}, {"time": times, "end": ends})
