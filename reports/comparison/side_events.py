"""Events that only one side has, as stories: a broker that stopped, hung, or was not reached; moved leaders; a
transaction that holds back readers, or was fenced. One that lasts from one side into the other is of both.

Such an event is plain evidence, so no test is made of it. What followed from it is folded under it: its errors, its
broker's refused connections and missing responses, and slower requests if most of the time that they lost passed within
the event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kafkatap.dissector.kafka.error_codes import error_name

from .. import kinds
from ..advice.open_transactions import OPEN_TRANSACTIONS
from ..advice.parties import client_option, client_parties, client_words
from ..findings import ERROR, NOTE, Finding, Party
from ..section_parts.section import SectionInput
from ..section_parts.selected import Selected
from ..section_parts.transaction_log import followed
from ..sections.advice import all_advice
from ..sections.events import all_events
from .judging import TIMES, Change, Judged
from .leaves import Side
from .measures import WAITING
from .presence import Presence
from .quality import Quality
from .stories import BETTER, DIFFERENT, WORSE, Story, in_order

#: The events of transactions; of a broker, or of a path to it, that make others wait; and leaders that moved, which
#: explain errors.
_OF_TRANSACTIONS = frozenset((OPEN_TRANSACTIONS.id, kinds.FENCED))
_KINDS = _OF_TRANSACTIONS | kinds.OUTAGES | {kinds.LEADERS}
#: A share that says what holds for all: most.
_MOST = 0.5
#: An event is of one side if this share of it is: who splits at its begin or end does not hit it exactly.
_NEARLY_ALL = 0.95


def all_side_events(given: SectionInput) -> list[Finding]:
    """The events of what was read, of any kind."""
    return [*given.once(all_events), *given.once(all_advice), *_fences(given)]


def _fences(given: SectionInput) -> list[Finding]:
    """Producers that requests with an old epoch show as fenced."""
    context, found = given.context, []
    for item in followed(given):
        for victim, winner, error, at, _ in item.fences:
            name, code = context.text(item.name) or "", error_name(error)
            by = "the coordinator" if winner is None else client_words(context, winner.client_id, winner.client_ip)
            text = f'transaction "{name}": {client_words(context, *victim)} was fenced by {by}: {code}'
            parties = (Party("producer", name), *client_parties(context, *victim), Party("error", code))
            found.append(Finding(
                kinds.FENCED, ERROR, "fenced", text, 0, at, at, {"errors": item.fenced}, parties=parties,
                options=(("sections", "transactions"), *client_option(context, victim.client_id)),
            ))  # fmt: skip
    return found


def events_of_side(found: Iterable[Finding], first: int, last: int) -> tuple[Finding, ...]:
    """The events that were going on between two times, ns; those that follow from others too. One without an end lasts
    until the end of the capture."""
    side = Selected("", (first, last))
    return tuple(event for event in found if event.id in _KINDS and event.begin is not None and side.has_time_of(event))


def with_events(
    stories: Sequence[Story], sides: tuple[Side, Side], judged: Judged, quality: Quality
) -> list[Story]:  # fmt: skip
    """The stories, and one for each event that the other side lacks, with what followed folded under it. An event that
    lasts from one side into the other is DIFFERENT, unless nearly all of it is on one. No event is added if a side
    cannot show what brokers did."""
    if "broker" in quality.entities:
        return list(stories)
    names = [{_name(event) for event in side.events} for side in sides]
    left = list(stories)
    made = []
    for n, side in enumerate(sides):
        for event in side.events:
            spans = _spans(event, sides)
            is_told = bool(n) if spans is not None else _name(event) in names[1 - n]
            if is_told or event.cause is not None or not _is_judged(event, quality):
                continue
            own = n if spans is None else _side_of(spans)
            kind = DIFFERENT if event.severity == NOTE or own is None else WORSE if own else BETTER
            follows = [s for s in left if own is not None and s.kind == kind and _follows(s, event, judged, own)]
            left = [story for story in left if story not in follows]
            changes = tuple(change for story in follows for change in story.changes[:1])
            made.append(Story(kind, changes, _impact(event, judged, n), 0.0, event=event, spans=spans))
    return in_order([*made, *left])


def _side_of(spans: tuple[int, int]) -> int | None:
    """The side on which nearly all of an event is; None: it is on both."""
    shares = [part / max(sum(spans), 1) for part in spans]
    return next((n for n, share in enumerate(shares) if share >= _NEARLY_ALL), None)


def _is_judged(event: Finding, quality: Quality) -> bool:
    """Whether both sides would show it: leaders and transactions are in bodies, as codes are."""
    in_bodies = event.severity == NOTE or event.id in _OF_TRANSACTIONS
    return quality.allows("error") and "topic" not in quality.entities if in_bodies else True


def _spans(event: Finding, sides: tuple[Side, Side]) -> tuple[int, int] | None:
    """How long an event lasted on each side, ns, if it began on the first one and lasted into the second one."""
    before, after = sides
    is_same = any((_name(other), other.begin) == (_name(event), event.begin) for other in after.events)
    if not is_same or event.begin is None or before.last > after.first or event.begin >= before.last:
        return None
    end = after.last if event.end is None else min(event.end, after.last)
    return before.last - max(event.begin, before.first), end - after.first


def _name(event: Finding) -> tuple[object, ...]:
    parties = event.parties[:1] if event.id in _OF_TRANSACTIONS else event.parties
    return (event.id, *(party for party in parties if party.kind != "error"))


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
        return broker is not None and first.cell.key.broker == broker
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
