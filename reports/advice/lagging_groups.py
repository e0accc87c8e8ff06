"""Groups that fall behind: a reader whose lag grows, or that does not read at all, or commits that fall back."""

from __future__ import annotations

from ..findings import Finding
from ..groups.offsets_over_time import COMMITS, ENDS, FETCHES, LEAST_NS, POSITIONS, SPAN_NS
from ..section_parts.section import SectionInput
from .signature import Signature


def _findings(given: SectionInput) -> list[Finding]:
    if not given.once(may_lag):
        return []
    from .lag_findings import findings

    return findings(given, LAGGING_GROUPS)


def may_lag(given: SectionInput) -> bool:
    """Whether the end of a partition passed the last position of one of its readers, or the last commit of a group,
    long enough ago. Most captures have none, and need not look at groups."""
    passed: dict[tuple[str | None, int], list[tuple[int, int]]] = {}
    for row in given.rows(ENDS.name):
        place = given.context.topic(row["topic"], row["topic_id"]), row["partition"]
        passed.setdefault(place, []).append((row["time"], row["end"]))
    last: dict[tuple[tuple[str | None, int], tuple[int, ...]], tuple[int, int]] = {}
    for form, who in ((POSITIONS, ("client_id", "client_ip")), (COMMITS, ("group",))):
        for row in given.rows(form.name):
            place = given.context.topic(row["topic"], row["topic_id"]), row["partition"]
            key = place, tuple(row[name] for name in who)
            last[key] = max(last.get(key, (0, 0)), (row["time"], row["offset"]))
    for (place, _), (_, offset) in last.items():
        ends = passed.get(place, [])
        beyond = [time for time, end in ends if end > offset]
        if beyond and max(time for time, _ in ends) - min(beyond) >= LEAST_NS - SPAN_NS:
            return True
    return False


LAGGING_GROUPS = Signature(
    "lagging_group",
    "a group falls behind the end of a partition",
    "A member fetches a partition from offsets further and further behind the high watermark, or from the same "
    "offset, or not at all. Or the group commits such offsets.",
    "members of the group, max.poll.records, partitions",
    "Let members work less on each record, or on several at once, or add members up to the number of partitions. If "
    "the position stands still, look for what holds the member: a record that it cannot process, a pause, a lock.",
    f"the end passed the position {LEAST_NS // 1_000_000_000} s ago, twice auto.commit.interval.ms, and the lag of "
    f"reads grew by as much, over {FETCHES} Fetches. Not for readers that left the group or that several groups share, "
    f"and if the coordinator was not captured to the end. Commits count just after each, from {FETCHES} on, if the "
    "group is behind by twice their longest interval; if they stop, after three times that. Time lost: since the end "
    "passed the position, or the commit.",
    _findings,
    on_request=True,
    label="lagging",
)  # fmt: skip
