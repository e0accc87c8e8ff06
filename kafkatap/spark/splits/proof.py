"""Run a plan until it is proved: every claim of a split equals the arrival of the split before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from .decode import Outcome
from .plan import Corrections, Plan

#: The rounds after which `prove` gives up. Each round corrects what the round before it found.
ROUNDS = 20
Result = TypeVar("Result")


def prove(
    make_plan: Callable[[Corrections], Plan],
    decode: Callable[[Plan, set[int]], Mapping[int, Result]],
    outcome_of: Callable[[Result], Outcome],
) -> tuple[Plan, dict[int, Result]]:
    """Decode, correct the plan and decode the changed splits again, until all claims hold. Return the plan and the
    result of each split. RuntimeError after ROUNDS rounds."""
    corrections = Corrections()
    plan = make_plan(corrections)
    again = {task.split for task in plan.tasks}
    results: dict[int, Result] = {}
    for _ in range(ROUNDS):
        results.update(decode(plan, again))
        outcomes = [outcome_of(results[task.split]) for task in plan.tasks]
        needed = compare(outcomes, plan.topic_names, corrections)
        if needed is None:
            return plan, results
        before, corrections = plan, needed
        plan = make_plan(corrections)
        again = changed_splits(plan, before)
    raise RuntimeError(f"the splits of these captures did not fit together after {ROUNDS} rounds")


def changed_splits(plan: Plan, before: Plan) -> set[int]:
    """The splits whose task differs between two plans."""
    if plan.topic_names != before.topic_names:
        return {task.split for task in plan.tasks}
    old = {task.split: task for task in before.tasks}
    return {t.split for t in plan.tasks if not t.same(old[t.split])}


def compare(outcomes: Sequence[Outcome], topic_names: Mapping[bytes, bytes], so_far: Corrections) -> Corrections | None:
    """The corrections that the plan needs; None if all claims hold."""
    claims = {(key, o.split): state for o in outcomes for key, state in o.claims.items()}
    arrivals = {place: state for o in outcomes for place, state in o.arrivals.items()}
    found = Corrections(set(so_far.dropped), dict(so_far.histories), dict(so_far.names))
    wrong = False
    for place in claims.keys() | arrivals.keys():
        claim, arrival = claims.get(place), arrivals.get(place)
        if claim is not None and arrival is not None:
            if claim.is_same(arrival):
                continue
            if place not in so_far.histories and not claim.history.is_equivalent(arrival.history):
                found.histories[place] = arrival.history
                wrong = True
                continue
        found.dropped.add(place)
        wrong = True
    for outcome in outcomes:
        for topic_id, name in outcome.names.items():
            if topic_id not in topic_names:
                found.names[topic_id] = name
                wrong = True
    return found if wrong else None
