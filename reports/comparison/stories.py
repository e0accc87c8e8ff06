"""Say the same change once: `Story`s of changes.

For each measure and direction, the cells are found that say it best. A cell speaks for its leaves if the cells inside
it agree along every part of the key: of those that can be judged, most have changed the same way. So a slower client is
one line, and so is an API that became slower for all clients. What a cell explains is taken out, and the rest is judged
again. Then changes of nearly the same set of leaves are put into one story.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import WAITS
from kafkatap.dissector.time_parts import DURATIONS, TIME_PARTS

from ..batch import Array
from ..findings import Finding
from .cells import Within
from .judging import FEWEST, SIZES, TIMES, Change, Demands, Judged, compare
from .leaves import Leaves
from .measures import RANKS, TAIL, WAITING, Measure, parts_of_time
from .presence import Presence

#: The parts of the total time.
PARTS = tuple(part.name for part in TIME_PARTS)
WORSE, BETTER, DIFFERENT = "worse", "better", "different"
#: Cells inside that must have changed the same way: by number, and by exchanges.
_MOST, _MOST_WEIGHT = 0.6, 0.7
#: How much of the exchanges of two cells must be the same, of the smaller and of the larger one, for one story.
_SAME_SMALL, _SAME_LARGE = 0.8, 0.75
_AGREES_P = 0.05
#: Topics among which the one with a change is searched, at most.
_MOST_TOPICS = 50
#: The share of the requests from which on a broker that is gone is a finding.
_MUCH = 0.05


class Story(NamedTuple):
    """A finding. `kind`: WORSE, BETTER or DIFFERENT. `changes`: the most important first. `presence`: a broker or error
    code that appeared or disappeared. `impact`: for the order. `q`: of the surest change. `times`: the mean total time
    of A and B, ns, and its PARTS. `topic`: the only topic with the change. `clients`: those of a story of several
    (`joined`). `event`: what only this side has (`side_events`), with what followed as `changes`. `spans`: how
    long it lasted on A and on B, ns, if it began on A and lasted into B."""

    kind: str
    changes: tuple[Change, ...]
    impact: float
    q: float
    presence: Presence | None = None
    times: tuple[tuple[float, float], ...] = ()
    topic: str | None = None
    clients: tuple[str, ...] = ()
    event: Finding | None = None
    spans: tuple[int, int] | None = None


class Scale(NamedTuple):
    """What impacts are measured by: `waiting`: total time in a second, of the side with more. `requests`: in a second,
    of both sides together. `rates`: of each leaf, float (leaves, 2)."""

    waiting: float
    requests: float
    rates: Array
    means: dict[str, tuple[Array, Array]]


def tell(judged: Judged, presence: Sequence[Presence], demands: Demands) -> list[Story]:
    """The findings, those that got worse first, each with the largest impact first."""
    leaves = judged.leaves
    stories: list[Story] = []
    if len(leaves):
        scale = _scale(leaves)
        within = Within(judged.cells)
        spoken = _speakers(judged, within, demands)
        topics = _topics_by_owner(judged.topics)
        stories += [_on_topic(_story(group, scale), judged, topics, demands) for group in _groups(spoken, scale)]
        stories += _topic_stories(judged, spoken, scale, demands)
    stories += _other_stories(judged, demands)
    codes = [(c.measure.name, c.cell.key.api) for story in stories for c in story.changes]
    stories += [_gone(one) for one in presence if one.q <= demands.rate and _matters(one) and not _is_told(one, codes)]
    return in_order(stories)


def in_order(stories: Sequence[Story]) -> list[Story]:
    """The stories of what got worse first, each kind with its events first, then with the largest impact first."""
    order = {WORSE: 0, BETTER: 1, DIFFERENT: 2}
    return sorted(stories, key=lambda story: (order[story.kind], story.event is None, -story.impact))


def _speakers(judged: Judged, within: Within, demands: Demands) -> list[Change]:
    """The changes of cells that speak for their leaves."""
    by_measure: dict[tuple[str, str, int], list[Change]] = {}
    at: dict[tuple[object, ...], Change] = {}
    names = {cell.name for cell in judged.cells}
    for change in judged.changes:
        if change.cell.name in names and "topic" not in change.cell.kind and _is_of_exchanges(change):
            at[change.cell.name, change.measure.name, change.measure.test] = change
            if change.is_sure(demands.rate):
                by_measure.setdefault((change.measure.name, change.measure.test, change.direction), []).append(change)
    found: list[Change] = []
    for (name, test, direction), changes in by_measure.items():
        good = [c for c in changes if _speaks(c, within, at, (name, test), direction, demands)]
        found += _covering(good or changes, judged.leaves, demands)
    return found


def _is_of_exchanges(change: Change) -> bool:
    return change.measure.name not in ("opened", "refused", "rtt", "retransmitted")


def _speaks(
    change: Change, within: Within, at: dict[tuple[object, ...], Change], measure: tuple[str, str], direction: int,
    demands: Demands,
) -> bool:  # fmt: skip
    """Whether the cells inside a cell agree with it, and none of them is nearly the whole."""
    least = max(math.log1p(demands.ratio), min(_size(change), 10.0)) / 2
    for part in ("api", "client", "broker"):
        if part in change.cell.kind:
            continue
        inside = within.along(change.cell, part)
        own = [at[cell.name, *measure] for cell in inside if (cell.name, *measure) in at]
        own = [c for c in own if min(c.count_a, c.count_b) >= FEWEST]
        if not own:
            continue
        weights = np.array([c.count_a + c.count_b for c in own])
        agree = np.array([
            c.direction == direction and c.difference.p < _AGREES_P and _size(c) >= least
            for c in own
        ])  # fmt: skip
        if len(own) == 1 or weights.max() > 0.95 * weights.sum():
            if agree[int(weights.argmax())]:
                return False  # the cell inside says the same, and says more
            continue
        if agree.mean() < _MOST or weights[agree].sum() < _MOST_WEIGHT * weights.sum() or agree.sum() < 2:
            return False
    return True


def _size(change: Change) -> float:
    ratio = change.ratio
    return math.inf if ratio in (0, math.inf) else abs(math.log(ratio))


def _covering(changes: list[Change], leaves: Leaves, demands: Demands) -> list[Change]:
    """The fewest cells that say it all: those with the most exchanges first, then what is still sure without them."""
    found: list[Change] = []
    explained = np.zeros(len(leaves), bool)
    for change in sorted(changes, key=lambda c: (-(c.count_a + c.count_b) * min(_size(c), 3.0), len(c.cell.kind))):
        members = change.cell.members
        left = members[~explained[members]]
        if not len(left):
            continue
        if len(left) < len(members):
            again = compare(leaves, change.cell._replace(members=left), change.measure, demands)
            whole = change.count_a + change.count_b
            if again is None or again.count_a + again.count_b < 0.3 * whole:
                continue
            if not again.is_large or again.difference.p > demands.rate / 10 or again.direction != change.direction:
                continue
            change = again._replace(q=max(change.q, again.difference.p))
        found.append(change)
        explained[members] = True
    return found


def _scale(leaves: Leaves) -> Scale:
    value = {name: leaves.value(name) for name in ("requests", "answered", *DURATIONS)}
    seconds = [max(float(s.sum()), 1e-9) for s in leaves.seconds]
    waits = np.array([key.api in WAITS for key in leaves.keys], bool)
    waiting = max(float(value["total_ns"][s][:, ~waits].sum()) / seconds[s] for s in (0, 1))
    rates = np.stack([value["requests"][s].sum(0) / seconds[s] for s in (0, 1)], axis=1)
    means = {}
    answered = [np.maximum(value["answered"][s].sum(0), 1e-9) for s in (0, 1)]
    for name, parts in {"total": value["total_ns"], **parts_of_time(value)}.items():
        means[name] = (parts[0].sum(0) / answered[0], parts[1].sum(0) / answered[1])
    return Scale(max(waiting, 1.0), max(float(rates.sum()) / 2, 1e-9), rates, means)


def _groups(changes: list[Change], scale: Scale) -> list[list[Change]]:
    """Changes of nearly the same leaves."""
    groups: list[tuple[set[int], float, list[Change]]] = []
    groups_with: dict[int, list[int]] = {}  # the groups that have a leaf
    members_of = [(change, set(change.cell.members.tolist())) for change in changes]
    weighed = [(_weight(members, scale), change, members) for change, members in members_of]
    for weight, change, members in sorted(weighed, key=lambda one: -one[0]):
        for number in sorted({number for leaf in members for number in groups_with.get(leaf, ())}):
            own, own_weight, group = groups[number]
            both = _weight(own & members, scale)
            small, large = sorted((own_weight, weight))
            if both >= _SAME_SMALL * small and both >= _SAME_LARGE * large:
                group.append(change)
                break
            if both >= _SAME_SMALL * small and _says_no_more(change, group):
                break
        else:
            for leaf in members:
                groups_with.setdefault(leaf, []).append(len(groups))
            groups.append((members, weight, [change]))
    return [group for _, _, group in groups]


def _says_no_more(change: Change, group: list[Change]) -> bool:
    """Whether a group of more leaves says already that times changed this way."""
    if change.measure.name not in TIMES:
        return False
    return any(
        c.measure.name in TIMES and c.direction == change.direction
        and (c.measure.test == RANKS or change.measure.test == TAIL)
        for c in group
    )  # fmt: skip


def _weight(members: set[int], scale: Scale) -> float:
    return float(scale.rates[sorted(members)].sum()) if members else 0.0


def valuation(change: Change) -> str:
    """WORSE, BETTER or DIFFERENT. A Fetch waits for data, so its times alone say neither."""
    name = change.measure.name
    key = change.cell.key
    if name in SIZES or name in ("rate", "opened"):
        return DIFFERENT
    if name in (*TIMES, *WAITING[2:]) and key.api in WAITS:
        return DIFFERENT
    return WORSE if change.direction > 0 else BETTER


def _impact(change: Change, scale: Scale) -> float:
    """How much a change matters: the share of all waiting time that it adds, and so on; not negative."""
    members = change.cell.members
    rates = scale.rates[members].mean(axis=1)
    share = float(rates.sum()) / scale.requests
    name = change.measure.name
    if name in (*TIMES, *WAITING):
        a, b = scale.means[name]
        return abs(float(((b - a)[members] * rates).sum())) / scale.waiting
    if name in SIZES or name == "rate":
        follows = 0.5 if change.cell.key.api in WAITS else 1.0
        return min(_size(change), 4.0) / 4 * share * follows * (0.5 if name == "rate" else 1.0)
    return abs(change.b - change.a) * share * 3


#: The order of changes in a story: causes before consequences.
_FIRST = (
    "throttle", "throttled", "unanswered", "error", "size", "total", "broker", "HOL", *WAITING[2:], "rate",
)  # fmt: skip


def _place(change: Change) -> int:
    name = change.measure.name.split()[0].replace("records", "size")
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _story(group: list[Change], scale: Scale) -> Story:
    impacts = {WORSE: 0.0, BETTER: 0.0, DIFFERENT: 0.0}
    for change in group:
        kind = valuation(change)
        impacts[kind] = max(impacts[kind], _impact(change, scale))
    kind = DIFFERENT
    if impacts[WORSE] or impacts[BETTER]:
        kind = WORSE if impacts[WORSE] >= impacts[BETTER] else BETTER
    if impacts[kind] == 0 and any(valuation(c) != DIFFERENT for c in group):
        kind = valuation(next(c for c in group if valuation(c) != DIFFERENT))
    q = min(change.q for change in group)
    sure = min(1.0, 0.5 - math.log10(max(q, 1e-12)) / 12)
    largest = max(group, key=lambda c: len(c.cell.members)).cell.members
    means = []
    rates = scale.rates[largest].mean(axis=1)
    weight = rates / max(float(rates.sum()), 1e-9)
    for name in ("total", *PARTS):
        a, b = scale.means[name]
        means.append((float(a[largest] @ weight), float(b[largest] @ weight)))
    load = {"rate": _FIRST.index("size")} if kind == DIFFERENT else {}
    ordered = tuple(sorted(group, key=lambda c: (load.get(c.measure.name, _place(c)), -_impact(c, scale))))
    return Story(kind, ordered, impacts[kind] * sure, q, None, tuple(means))


def _topics_by_owner(topics: Leaves) -> dict[tuple[int | None, str | None], list[int]]:
    """The leaves of topics by their API and client."""
    found: dict[tuple[int | None, str | None], list[int]] = {}
    for n, key in enumerate(topics.keys):
        found.setdefault((key.api, key.client), []).append(n)
    return found


def _on_topic(
    story: Story, judged: Judged, by_owner: Mapping[tuple[int | None, str | None], list[int]], demands: Demands
) -> Story:
    """The story with the topic that it is on, if all other topics of the same requests have not changed."""
    first = next((c for c in story.changes if c.measure.name == "total" and valuation(c) == story.kind), None)
    if first is None or judged.topic_total is None:
        return story
    leaves, topics = judged.leaves, judged.topics
    measure: Measure = judged.topic_total
    own = {(leaves.keys[n].api, leaves.keys[n].client) for n in first.cell.members.tolist()}
    members: dict[str | None, list[int]] = {}
    for n in sorted(n for owner in own for n in by_owner.get(owner, ())):
        members.setdefault(topics.keys[n].topic, []).append(n)
    if not 2 <= len(members) <= _MOST_TOPICS:
        return story
    least = max(math.log1p(demands.ratio), min(_size(first), 10.0)) / 2
    changed = []
    for topic, numbers in members.items():
        found = compare(topics, first.cell._replace(members=np.array(numbers, np.int64)), measure, demands)
        if found is None:
            return story  # nobody can tell
        if found.direction == first.direction and found.difference.p < _AGREES_P and _size(found) >= least:
            changed.append(topic)
    return story._replace(topic=changed[0]) if len(changed) == 1 else story


def _topic_stories(judged: Judged, spoken: list[Change], scale: Scale, demands: Demands) -> list[Story]:
    """Stories of topics whose clients and APIs have none of the same measure and direction."""
    told: set[tuple[str, int, int | None, str | None]] = set()
    for change in spoken:
        for n in change.cell.members.tolist():
            key = judged.leaves.keys[n]
            told.add((change.measure.name, change.direction, key.api, key.client))
    found: list[Story] = []
    seen: set[tuple[str, str | None]] = set()
    for change in judged.changes:
        if "topic" not in change.cell.kind or not change.is_sure(demands.rate):
            continue
        name = change.measure.name, change.cell.key.topic
        members = change.cell.members
        keys = [judged.topics.keys[n] for n in members.tolist()]
        left = members[[(change.measure.name, change.direction, key.api, key.client) not in told for key in keys]]
        if name in seen or not len(left):
            continue
        if len(left) < len(members):
            again = compare(judged.topics, change.cell._replace(members=left), change.measure, demands)
            if again is None or not again.is_large or again.difference.p > demands.rate / 10:
                continue
            change = again._replace(q=max(change.q, again.difference.p))
        seen.add(name)
        share = (change.count_a + change.count_b) / 2 / max(sum(s.seconds for s in judged.leaves.sides), 1e-9)
        impact = min(_size(change), 4.0) / 4 * min(share / scale.requests, 1.0) / 2
        found.append(Story(valuation(change), (change,), impact, change.q))
    return found


def _other_stories(judged: Judged, demands: Demands) -> list[Story]:
    """Stories of connections: refused ones, round trips, retransmissions; the broadest cell of each."""
    found = []
    for name in ("refused", "retransmitted", "rtt"):
        for direction in (1, -1):
            sure = [c for c in judged.changes
                    if c.measure.name == name and c.is_sure(demands.rate) and c.direction == direction]  # fmt: skip
            brokers = [c for c in sure if c.cell.kind == ("broker",)]
            clients = [c for c in sure if c.cell.kind == ("client",)]
            whole = [c for c in sure if not c.cell.kind]
            chosen = whole if len(brokers) != 1 and len(clients) != 1 else brokers[:1] if len(brokers) == 1 else clients
            for change in chosen or sure[:1]:
                impact = min(abs(change.b - change.a), 1.0) if name == "retransmitted" else 0.1
                found.append(Story(valuation(change), (change,), impact, change.q))
    return found


def _is_told(one: Presence, codes: Sequence[tuple[str, int | None]]) -> bool:
    """Whether a story has an error code already. `codes`: measures of stories, with their APIs."""
    return any(
        name == f"error {one.key.code}" and (one.key.api is None or api in (None, one.key.api)) for name, api in codes
    )


def _matters(one: Presence) -> bool:
    """Whether it is an error code, or a broker that served many requests or that clients still try."""
    if one.what == "error code":
        return True
    return one.what == "broker" and (one.share >= _MUCH or one.asked + one.refused > 0)


def _gone(one: Presence) -> Story:
    if one.what == "error code":
        return Story(WORSE if one.appeared else BETTER, (), one.share / 100, one.q, one)
    return Story(DIFFERENT if one.appeared else WORSE, (), 2 * one.share, one.q, one)
