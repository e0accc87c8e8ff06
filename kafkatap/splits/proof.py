"""Run a plan until it is proved: every claim of a split equals the arrival of the split before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from kafkatap.kernels.arrays import joined

from .chains import FlowInSplit
from .decode import Outcome
from .flow_rows import STATE_ROW, FlowStates, as_keys, group_flows
from .flow_state import FlowState
from .plan import Corrections, Plan
from .tasks import SplitResult

#: The rounds after which `prove` gives up. Each round corrects what the round before it found.
ROUNDS = 20


def prove(
    make_plan: Callable[[Corrections], Plan],
    decode: Callable[[Plan, set[int]], Mapping[int, SplitResult]],
    needs_names: bool = True,
) -> tuple[Plan, dict[int, SplitResult]]:
    """Decode, correct the plan and decode the changed splits again, until all claims hold. Return the plan and the
    result of each split. `needs_names`: results need the names of all topic ids. RuntimeError after ROUNDS rounds."""
    corrections = Corrections()
    plan = make_plan(corrections)
    again = {task.split for task in plan.tasks}
    results: dict[int, SplitResult] = {}
    for _ in range(ROUNDS):
        results.update(decode(plan, again))
        outcomes = [results[task.split].outcome for task in plan.tasks]
        needed = compare(outcomes, plan.topic_names if needs_names else None, corrections)
        if needed is None:
            return plan, results
        before, corrections = plan, needed
        plan = make_plan(corrections)
        again = changed_splits(plan, before, outcomes)
    raise RuntimeError(f"the splits of these captures did not fit together after {ROUNDS} rounds")


def changed_splits(plan: Plan, before: Plan, outcomes: Iterable[Outcome]) -> set[int]:
    """The splits whose task differs between two plans, or that met a topic id without the name that it has now.
    `outcomes`: of the plan before."""
    new = plan.topic_names.keys() - before.topic_names.keys()
    old = {task.split: task for task in before.tasks}
    again = {task.split for task in plan.tasks if not task.same(old[task.split])}
    return again | {outcome.split for outcome in outcomes if new & outcome.unnamed}


def compare(
    outcomes: Sequence[Outcome], topic_names: Mapping[bytes, bytes] | None, so_far: Corrections
) -> Corrections | None:
    """The corrections that the plan needs; None if all claims hold. `topic_names` None: no names are needed."""
    found = Corrections(set(so_far.dropped), dict(so_far.histories), dict(so_far.names))
    claims, arrivals = ([getattr(o, name) for o in outcomes] for name in ("claims", "arrivals"))
    wrong = False
    for place, claim, arrival in _differences(claims, arrivals):
        wrong = True
        if (
            claim is None
            or arrival is None
            or place in so_far.histories
            or claim.history.is_equivalent(arrival.history)
        ):
            found.dropped.update(_with_next(place, claims, so_far.dropped))
        else:
            found.histories[place] = arrival.history
    for outcome in outcomes:
        for topic_id, name in outcome.names.items():
            if topic_names is not None and topic_id not in topic_names:
                found.names[topic_id] = name
                wrong = True
    return found if wrong else None


def _with_next(place: FlowInSplit, claims: Sequence[FlowStates], dropped: Iterable[FlowInSplit]) -> list[FlowInSplit]:
    """A head that does not hold, and as many of the next heads of its flow as were dropped before: if they do not hold
    either, each alone would cost a round."""
    flow, split = place
    before = sum(other == flow for other, _ in dropped)
    key = as_keys([flow])
    heads = [n for part in claims for n in part.rows["split"][part.rows["flow"] == key].tolist()]
    at = heads.index(split) if split in heads else len(heads)
    return [place, *((flow, later) for later in heads[at + 1 : at + 1 + before])]


def _differences(
    claims: Sequence[FlowStates], arrivals: Sequence[FlowStates]
) -> Iterator[tuple[FlowInSplit, FlowState | None, FlowState | None]]:
    """The flows and splits whose claim and arrival differ, and both: None where there is none."""
    parts = [*claims, *arrivals]
    rows = joined([part.rows for part in parts], STATE_ROW)
    sizes = [len(part.rows) for part in parts]
    is_claim = np.arange(len(rows)) < sum(sizes[: len(claims)])
    order, starts = group_flows(rows["flow"])
    flows = np.empty(len(rows), np.int64)
    flows[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows)))
    order = np.lexsort((~is_claim, rows["split"], flows))
    one, other = order[:-1], order[1:]
    same = (flows[one] == flows[other]) & (rows["split"][one] == rows["split"][other])
    same &= (rows["digest"][one] == rows["digest"][other]) & (rows["serial"][one] == rows["serial"][other])
    fits = np.zeros(len(rows), bool)
    fits[one[same]] = fits[other[same]] = True
    wrong: dict[FlowInSplit, list[FlowState | None]] = {}
    ends = np.cumsum(sizes)
    for i in np.flatnonzero(~fits).tolist():
        part = parts[int(np.searchsorted(ends, i, "right"))]
        ((key, state),) = FlowStates(rows[i : i + 1], part.strings).by_flow().items()
        wrong.setdefault((key, int(rows["split"][i])), [None, None])[0 if is_claim[i] else 1] = state
    for place, (claim, arrival) in wrong.items():
        yield place, claim, arrival
