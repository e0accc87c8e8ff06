"""Positions of readers, commits of groups and ends of partitions over time: how lag grows, and who falls behind."""

from __future__ import annotations

from typing import Any

from ..counting.count_forms import TEXT
from ..section_parts.counted import CLIENT, PLACE, Rows, began, counted, ended, largest, latest, total
from ..section_parts.section import Section
from . import group_events
from .group_events import (
    COMMIT_PARTITIONS,
    FACTS,
    FETCHED_OFFSETS,
    READ_BY,
    end_of_appended,
    has_end,
    is_appended,
    is_committed,
    is_fetched,
    is_position,
    of_fetching_group,
    of_group,
    read,
)

#: Twice the default of auto.commit.interval.ms, and 20 times the default of fetch.max.wait.ms: readers that keep up
#: are nearer, also after a rebalance without dead members.
LEAST_NS = 10_000_000_000
#: Fetches of a partition. Fewer do not show whether the reader moves.
FETCHES = 3
#: Positions and ends are kept for each two seconds, as the time behind is for people, and ends between are estimated.
SPAN_NS = 2_000_000_000


def _span_of_end(x: Rows) -> Any:
    return ended(x) // SPAN_NS


#: The first value says what is small: the oldest.
POSITIONS = counted(
    "groups.positions-over-time", CLIENT | PLACE, is_position, of=("fetch partition",),
    more={"span": lambda x: began(x) // SPAN_NS}, beside=("fetch",),
    time=largest(began), offset=latest("offset"), packet=latest("request_packet_first"), fetches=total(1),
)  # fmt: skip
COMMITS = counted(
    "groups.commits-over-time", {"group": TEXT, **PLACE}, is_committed, of=COMMIT_PARTITIONS,
    more={"group": of_group, "span": _span_of_end}, beside=("committed partition",),
    time=largest(ended), offset=latest("offset"), packet=latest("request_packet_first"), commits=total(1),
)  # fmt: skip
ENDS = counted(
    "groups.ends-over-time", PLACE, has_end, of=("fetched partition",),
    more={"span": lambda x: x.response_last // SPAN_NS}, time=largest("response_last"), end=latest("high_watermark"),
)  # fmt: skip
COUNTS = (
    POSITIONS, COMMITS, ENDS,
    COMMITS.also(
        FETCHED_OFFSETS, is_fetched, {"group": of_fetching_group}, time=ended, offset="offset",
        packet="request_packet_first", commits=0,
    ),
    ENDS.also(("produced partition",), is_appended, beside=("batch",), time="response_last", end=end_of_appended),
)  # fmt: skip

#: What reads groups, once for the section `groups` and for advice.
READING = Section(READ_BY, facts=FACTS, counts=(*group_events.COUNTS, *COUNTS), read=read, reads_notable=True)
