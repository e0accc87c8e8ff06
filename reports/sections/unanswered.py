"""What is known of requests without a response: since when, and whether the broker's host acknowledged them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from kafkatap.dissector.dtypes import UNANSWERED

from ..section_parts.section import SectionInput
from .event_counts import LINKS, WAIT


class Unanswered(NamedTuple):
    """`first`: when the first one was sent, ns since the epoch. `packet`: that one's. `lost`: how many were sent again,
    and never acknowledged. `acknowledged`: how many were. Of the others neither is known."""

    first: int
    packet: int
    lost: int
    acknowledged: int


def unanswered_requests(given: SectionInput) -> Unanswered | None:
    """What the section `events` notes of them; None without any, or if there were too many events to keep."""
    waits = WAIT.among(given.events("events"))
    silent = waits[waits["answered"] < 0]
    chosen = silent[silent["outcome"] == UNANSWERED]
    if not len(chosen) or given.sections.dropped.get("events"):
        return None
    keys, values = given.keys(LINKS.name)["connection"].tolist(), given.values(LINKS.name)
    columns = (values[name].tolist() for name in ("lost_bytes", "unacknowledged_bytes"))
    ends = dict(zip(keys, zip(*columns, strict=True), strict=True))
    found = {True: 0, False: 0}
    after: dict[int, int] = defaultdict(int)  # bytes of later requests of the connection
    names = ("connection", "outcome", "request_bytes")
    for connection, outcome, size in reversed(list(zip(*(silent[name].tolist() for name in names), strict=True))):
        lost, unacknowledged = ends.get(connection, (0, -1))
        behind = after[connection]
        after[connection] += size
        if outcome == UNANSWERED and (behind < lost or 0 <= unacknowledged <= behind):
            found[behind < lost] += 1
    return Unanswered(int(chosen["time"][0]), int(chosen["packet"][0]), found[True], found[False])
