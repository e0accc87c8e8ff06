"""A member leaves one of its partitions unread: it paused it, or its application hangs."""

from __future__ import annotations

from ..findings import Finding
from ..groups.offsets_over_time import FETCHES, LEAST_NS
from ..section_parts.section import SectionInput
from .answered_fetches import ANSWER_COUNTS
from .lagging_groups import may_lag
from .signature import Signature


def _findings(given: SectionInput) -> list[Finding]:
    if not given.once(may_lag):
        return []
    from .unread_findings import findings

    return findings(given, UNREAD_PARTITIONS)


UNREAD_PARTITIONS = Signature(
    "unread_partition",
    "a member leaves a partition unread",
    "A member of a group stops fetching a partition, and commits nothing more of it, while records are written to "
    "it. It sends heartbeats, and may fetch other partitions.",
    "resume() of that partition, or how the consumer handles a record",
    "If the application pauses the partition, look for the resume() that is missing; if it hangs in a record, take a "
    "thread dump. `max.poll.interval.ms` bounds how long it may hang before another member gets the partition.",
    f"{LEAST_NS // 1_000_000_000} s between two rebalances, since the last answer, or the last offset that was "
    f"committed; {FETCHES} Fetches before, and records at two times since. Not for readers that several groups share, "
    "that are throttled, that wait for an open transaction or were sent to another replica, and if the coordinator was "
    "not captured to the end. Time lost: since the end passed the position.",
    _findings,
    counts=ANSWER_COUNTS,
    on_request=True,
    label="unread",
)  # fmt: skip
