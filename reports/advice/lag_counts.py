"""Positions of readers and ends of partitions over time, from which advice says who falls behind."""

from __future__ import annotations

from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import LATEST, MAX, SUM
from ..groups.group_events import appends_of, high_watermarks_of, positions_of
from ..section_parts.gathered import Gathered
from ..section_parts.section_counts import Tally

#: Twice the default of auto.commit.interval.ms, and 20 times the default of fetch.max.wait.ms: readers that keep up
#: are nearer, also after a rebalance without dead members.
LEAST_NS = 10_000_000_000
#: Of one partition. Fewer do not show whether the reader moves.
FETCHES = 3
#: Positions and ends are kept for each two seconds, as the time behind is for people, and ends between are estimated.
SPAN_NS = 2_000_000_000

_PLACE = {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER}
_NO_PLACE = {"topic": OTHER, "topic_id": -1, "partition": -1, "span": -1}
#: The first value says what is small: the oldest.
POSITIONS = CountForm(
    "advice.positions-over-time",
    {"client_id": TEXT, "client_ip": ADDRESS, **_PLACE, "span": NUMBER},
    {"time": MAX, "offset": LATEST, "packet": LATEST, "fetches": SUM},
    {"client_id": OTHER, "client_ip": -1, **_NO_PLACE},
)
ENDS = CountForm("advice.ends-over-time", {**_PLACE, "span": NUMBER}, {"time": MAX, "end": LATEST}, _NO_PLACE)


def read(gathered: Gathered, tally: Tally) -> None:
    keys, times, offsets, at = positions_of(gathered)
    if len(times):
        packets = gathered.column("request_packet_first")[at]
        values = {"time": times, "offset": offsets, "packet": packets, "fetches": 1}
        tally.add(POSITIONS.name, keys | {"span": times // SPAN_NS}, values)
    for place, times, ends in (high_watermarks_of(gathered), appends_of(gathered)):
        if len(times):
            tally.add(ENDS.name, place | {"span": times // SPAN_NS}, {"time": times, "end": ends})
