"""Join stories that have one cause: many clients with the same change, errors and the retries that follow them.

A change is judged for each client by itself. So a cause that hits 26 of 60 clients makes 26 stories, and none for all
clients, as most of them have not changed. And a client whose rare requests fail repeats them: its errors are the
finding, and the rate follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kafkatap.kernels.arrays import distinct_values

from ..batch import Array
from .judging import TIMES, Change, Demands, Judged, compare
from .leaves import Key
from .measures import TAIL
from .stories import Story, in_order

#: Clients with the same change that make one story: two can have two causes.
MANY_CLIENTS = 3
#: The share of the failed exchanges of a code from which on they are those of one client or API: the rest is noise.
NEARLY_ALL = 0.95
#: The share of the requests from which on the slow clients explain the slowest requests of all.
_EXPLAINED = 0.2


def joined(stories: Sequence[Story], judged: Judged, demands: Demands) -> list[Story]:
    """The stories with one for each cause."""
    found = [_where_it_fails(story, judged) for story in stories]
    found = _without_retries(found)
    return in_order(_without_tails(_of_many_clients(found, judged, demands), judged))


def _where_it_fails(story: Story, judged: Judged) -> Story:
    """A story of failed exchanges on the client and the API that have nearly all of them."""
    for part in ("client", "api"):
        if story.changes and _is_failure(story.changes[0]) and part not in story.changes[0].cell.kind:
            story = story._replace(changes=(_on_one(story.changes[0], part, judged), *story.changes[1:]))
    return story


def _on_one(change: Change, part: str, judged: Judged) -> Change:
    """A change of failed exchanges, of the only client or API (`part` of the key) that has them, if one has."""
    side = change.measure.part[1 if change.direction > 0 else 0].sum(axis=0)
    parts: dict[str | int | None, list[int]] = {}
    for n in change.cell.members.tolist():
        parts.setdefault(getattr(judged.leaves.keys[n], part), []).append(n)
    counts = {name: float(side[members].sum()) for name, members in parts.items()}
    name = max(counts, key=lambda one: counts[one])
    if len(counts) < 2 or name is None or counts[name] < NEARLY_ALL * sum(counts.values()):
        return change
    members = np.array(parts[name], np.int64)
    kind = tuple(p for p in ("client", "api", "broker", "topic") if p == part or p in change.cell.kind)
    key = change.cell.key._replace(**{part: name})  # type: ignore[arg-type]
    a, n, b, m = (float(total.sum()) for total in change.measure.totals(members))
    cell = change.cell._replace(kind=kind, key=key, members=members)
    return change._replace(cell=cell, a=a / max(n, 1), b=b / max(m, 1), count_a=n, count_b=m)


def _is_failure(change: Change) -> bool:
    return change.measure.name == "unanswered" or change.measure.name.startswith("error ")


def _without_retries(stories: list[Story]) -> list[Story]:
    """Without stories of more requests where more requests fail."""
    failing: list[Key] = [
        story.changes[0].cell.key for story in stories
        if story.changes and _is_failure(story.changes[0]) and story.changes[0].direction > 0
    ]  # fmt: skip
    for story in stories:
        if story.presence is not None and story.presence.what == "error code" and story.presence.appeared:
            failing.append(story.presence.key)

    def is_retry(story: Story) -> bool:
        if not story.changes or any(c.measure.name != "rate" or c.direction < 0 for c in story.changes):
            return False
        own = story.changes[0].cell.key
        return own.api is not None and any(
            key.api == own.api and (key.client is None or own.client in (None, key.client)) for key in failing
        )

    return [story for story in stories if not is_retry(story)]


def _of_many_clients(stories: list[Story], judged: Judged, demands: Demands) -> list[Story]:
    """Stories of the same change of many clients as one, in the place of the first."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for n, story in enumerate(stories):
        if story.changes and story.changes[0].cell.key.client is not None:
            first = story.changes[0]
            key = first.cell.key._replace(client=None)
            name = (story.kind, key, first.cell.kind, first.measure.name, first.direction, story.topic)
            groups.setdefault(name, []).append(n)
    result: list[Story | None] = list(stories)
    for numbers in groups.values():
        if len(numbers) >= MANY_CLIENTS:
            result[numbers[0]] = _as_one([stories[n] for n in numbers], judged, demands)
            for n in numbers[1:]:
                result[n] = None
    return [story for story in result if story is not None]


def _as_one(stories: Sequence[Story], judged: Judged, demands: Demands) -> Story:
    changes = []
    largest = stories[0]
    for change in largest.changes:
        parts = [c for story in stories for c in story.changes if c.measure.name == change.measure.name
                 and c.measure.test == change.measure.test and c.direction == change.direction]  # fmt: skip
        members = distinct_values(np.concatenate([c.cell.members for c in parts]))
        key = change.cell.key._replace(client=None)
        kind = tuple("clients" if part == "client" else part for part in change.cell.kind)
        cell = change.cell._replace(kind=kind, key=key, members=members)
        source = judged.topics if "topic" in kind else judged.leaves
        again = compare(source, cell, change.measure, demands)
        changes.append((again or change)._replace(cell=cell, q=min(c.q for c in parts)))
    clients = tuple(sorted(str(story.changes[0].cell.key.client) for story in stories))
    impact = math.fsum(story.impact for story in stories)
    return largest._replace(changes=tuple(changes), impact=impact, clients=clients, times=_mean_times(stories))


def _mean_times(stories: Sequence[Story]) -> tuple[tuple[float, float], ...]:
    """The times of stories, each client with the same weight."""
    timed = [story.times for story in stories if story.times]
    if not timed:
        return ()
    mean = np.mean(np.array(timed), axis=0)
    return tuple((float(a), float(b)) for a, b in mean)


def _without_tails(stories: list[Story], judged: Judged) -> list[Story]:
    """Without stories of the slowest requests of more clients than those that are slower."""
    slow = [set(story.changes[0].cell.members.tolist()) for story in stories
            if story.clients and story.changes[0].measure.name in TIMES]  # fmt: skip
    counts: list[Array] = [side.sum(axis=0) for side in judged.leaves.value("requests")] if slow else []

    def is_explained(story: Story) -> bool:
        first = story.changes[0] if story.changes else None
        if first is None or story.clients or first.measure.test != TAIL:
            return False
        own = set(first.cell.members.tolist())
        whole = _requests(counts, own)
        return any(_requests(counts, own & members) >= _EXPLAINED * whole for members in slow)

    return [story for story in stories if not is_explained(story)]


def _requests(counts: list[Array], members: set[int]) -> float:
    return float(sum(side[sorted(members)].sum() for side in counts))
