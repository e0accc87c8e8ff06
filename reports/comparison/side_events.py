"""Events of brokers that only one side has, as stories: a broker that stopped, hung, or was not reached; moved leaders.

Such an event is plain evidence, so no test is made of it. What followed from it is folded under it: its errors, its
broker's refused connections and missing responses, and slower requests if most of the time that they lost passed within
the event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kafkatap.dissector.kafka.error_codes import error_name

from ..findings import NOTE, Finding
from .judging import TIMES, Change, Judged
from .leaves import Side
from .measures import WAITING
from .presence import Presence
from .quality import Quality
from .stories import BETTER, DIFFERENT, WORSE, Story, in_order

#: Sections whose findings are the events.
EVENT_SECTIONS = ("events",)
#: The events of a broker, or of a path to it, that make others wait; and leaders that moved, which explain errors.
_KINDS = frozenset(("broker_stopped", "broker_hung", "broker_unreachable", "hosts_cut_off", "leaders_moved"))
#: A share that says what holds for all: most.
_MOST = 0.5


def events_of_side(found: Iterable[Finding], first: int, last: int) -> tuple[Finding, ...]:
    """The events of brokers of which the most lies between two times, ns. Those that follow from others are left out.

    One without an end lasts until `last`, and is of the side in which it begins.
    """
    kept = []
    for event in found:
        if event.id in _KINDS and event.cause is None and event.begin is not None:
            end = event.begin if event.end is None else event.end
            within = min(end, last) - max(event.begin, first)
            is_mine = within > _MOST * (end - event.begin) if end > event.begin else first <= event.begin < last
            if is_mine:
                kept.append(event)
    return tuple(kept)


def with_events(
    stories: Sequence[Story], sides: tuple[Side, Side], judged: Judged, quality: Quality
) -> list[Story]:  # fmt: skip
    """The stories, and one for each event that the other side lacks, with what followed folded under it. No event
    is added if a side cannot show what brokers did."""
    if "broker" in quality.entities:
        return list(stories)
    names = [{_name(event) for event in side.events} for side in sides]
    left = list(stories)
    made = []
    for n, side in enumerate(sides):
        for event in side.events:
            is_judged = event.severity != NOTE or quality.allows("error")  # leaders are in bodies, as codes are
            if is_judged and _name(event) not in names[1 - n]:
                kind = DIFFERENT if event.severity == NOTE else WORSE if n else BETTER
                follows = [story for story in left if story.kind == kind and _follows(story, event, judged, n)]
                left = [story for story in left if story not in follows]
                changes = tuple(change for story in follows for change in story.changes[:1])
                made.append(Story(kind, changes, _impact(event, judged, n), 0.0, event=event))
    return in_order([*made, *left])


def _name(event: Finding) -> tuple[object, ...]:
    return (event.id, *(party for party in event.parties if party.kind != "error"))


def _impact(event: Finding, judged: Judged, side: int) -> float:
    """The share of all waiting time of its side that it took."""
    if not len(judged.leaves):
        return 0.0
    waiting = float(judged.leaves.value("total_ns")[side].sum())
    return min(event.time_lost_ns / max(waiting, 1.0), 1.0)


def _follows(story: Story, event: Finding, judged: Judged, side: int) -> bool:
    """Whether a story is what followed from an event of its side."""
    broker = event.party("broker")
    errors = {party.name for party in event.parties if party.kind == "error"}
    if story.presence is not None:
        return _presence_follows(story.presence, event, broker, errors)
    first = story.changes[0]
    name = first.measure.name
    if name.startswith("error "):
        return error_name(int(name.split()[1])) in errors
    if name in ("unanswered", "refused"):
        return first.cell.key.broker == broker
    return name in (*TIMES, *WAITING) and "topic" not in first.cell.kind and _passed_within(first, event, judged, side)


def _presence_follows(one: Presence, event: Finding, broker: str | None, errors: set[str]) -> bool:
    if one.what == "error code":
        count = event.numbers.get("errors", 0)
        return error_name(one.key.code or 0) in errors and isinstance(count, int) and one.exchanges <= count
    return one.what == "broker" and one.key.broker == broker


def _passed_within(change: Change, event: Finding, judged: Judged, side: int) -> bool:
    """Whether most of the time that the requests of a cell lost is of the event's broker and passed within the event.

    What they lost is their total time beyond the mean of the other side, leaf by leaf.
    """
    leaves, members = judged.leaves, change.cell.members
    total = [part.sum(axis=0)[members] for part in leaves.value("total_ns")]
    answered = [part.sum(axis=0)[members] for part in leaves.value("answered")]
    lost = total[side] - answered[side] * total[1 - side] / np.maximum(answered[1 - side], 1)
    lost = np.where(answered[1 - side] > 0, lost, 0)
    mine = np.array([leaves.keys[n].broker == event.party("broker") for n in members.tolist()], bool)
    there = float(lost[mine].sum())
    return there > _MOST * float(lost.sum()) > 0 and event.time_lost_ns > _MOST * there
