"""Plan the second pass: which split decodes which packets of each flow, and what it has to know before.

Splits are ordered by the time of their files (as in `merge_captures`), and within a file by place. Packets are
numbered over all of them. Each flow belongs to the first split that has it, up to its head in the next one, and so on.

If packets of a flow from two files overlap in time, it was captured at both ends. All its packets go to the first
split, which merges them in order of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.reassembly.dtypes import LISTENER

from ...captures.merge import SLACK_NS
from .flow_state import History
from .split_engine import NOTHING
from .survey import FlowSeen, SplitSurvey

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

Array = np.ndarray[Any, Any]
#: A flow and one of its splits.
FlowInSplit = tuple[bytes, int]


@dataclass(slots=True)
class SplitTask:
    """The work of one split. `base`: packets of the whole input before it. `number`: numbers its exchanges;
    `keep_open`: more captures will come, so open flows stay open at the end. `heads`: by flow, the last packet (over
    the whole input) that belongs to an earlier split. `primed`: the flows that start here at a head. `next`: the flows
    that a later split continues, and that split. `follows`: by split, the flows whose packets this split decodes, each
    up to a packet (numbered in that split). That is a later split, or this one for `merged`: the flows captured at both
    ends."""

    split: int
    base: int = 0
    number: int = 0
    keep_open: bool = False
    heads: dict[bytes, int] = field(default_factory=dict)
    histories: dict[bytes, History] = field(default_factory=dict)
    primed: list[bytes] = field(default_factory=list)
    next: dict[bytes, int] = field(default_factory=dict)
    follows: dict[int, dict[bytes, int]] = field(default_factory=dict)
    merged: set[bytes] = field(default_factory=set)
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))

    @property
    def local_heads(self) -> dict[bytes, int]:
        """The heads of the flows in `primed`, numbered in this split. NOTHING: all packets of a checkpoint."""
        return {key: self.heads[key] - self.base if key in self.heads else NOTHING for key in self.primed}

    def same(self, other: SplitTask) -> bool:
        """Whether both are the same work."""
        names = ("split", "base", "number", "keep_open", "heads", "histories", "primed", "next", "follows", "merged")
        return all(getattr(self, name) == getattr(other, name) for name in names)


@dataclass(slots=True)
class Corrections:
    """Corrections of a plan: heads that do not hold, and histories at other heads. `names`: topic names that only the
    decoding pass found."""

    dropped: set[FlowInSplit] = field(default_factory=set)
    histories: dict[FlowInSplit, History] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """`tasks` in order. `both_ends`: the flows captured at both ends. `packets`, `listeners`: of all splits."""

    tasks: list[SplitTask]
    topic_names: dict[bytes, bytes]
    both_ends: set[bytes] = field(default_factory=set)
    resumed: int | None = None  # the split that continues the open flows of a checkpoint
    packets: int = 0
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))

    @property
    def bases(self) -> dict[int, int]:
        """Packets before each split, to add to the packet numbers of its seams."""
        return {task.split: 0 if task.split == self.resumed else task.base for task in self.tasks}


def make_plan(
    surveys: Sequence[SplitSurvey],
    files: Sequence[int],
    corrections: Corrections | None = None,
    checkpoint: Checkpoint | None = None,
    keep_open: bool = False,
) -> Plan:
    """`surveys[i]` is the survey of split i, which belongs to file `files[i]`. Splits of one file are adjacent.

    `checkpoint`: what earlier batches left; one more split, of the next number, continues those of their open flows
    that go on, were closed, or have to end. `keep_open`: more captures will come.
    """
    corrections = corrections or Corrections()
    order = _in_order(surveys, files)
    tasks, base, before = [], 0, 0
    listeners: dict[tuple[int, ...], None] = {}
    names: dict[bytes, bytes] = {}
    flows: dict[bytes, list[int]] = {}
    if checkpoint is not None:
        base, before = checkpoint.packets, checkpoint.splits
        listeners.update(dict.fromkeys(checkpoint.listeners.tolist()))
        names.update(checkpoint.topic_names)
        tasks.append(_resumed_task(checkpoint, surveys, keep_open))
    for split in order:
        survey = surveys[split]
        tasks.append(SplitTask(split, base, before + split, keep_open, listeners=_rows(listeners)))
        base += survey.packets
        listeners.update(dict.fromkeys(survey.listeners.tolist()))
        names.update(survey.topic_names)
        for key in survey.flows:
            flows.setdefault(key, []).append(split)
    names.update(corrections.names)
    plan = Plan(
        tasks, names, resumed=None if checkpoint is None else len(surveys), packets=base, listeners=_rows(listeners)
    )  # fmt: skip
    of_split = {task.split: task for task in tasks}
    for key, splits in flows.items():
        left = None if checkpoint is None else checkpoint.flows.get(key)
        if left is not None or len(splits) > 1:
            if _overlap(surveys, files, key, splits):
                _merge(plan, of_split, key, splits, left is not None)
            elif left is not None:
                _chain(of_split, surveys, corrections, key, [len(surveys), *splits], left.state.history)
            else:
                _chain(of_split, surveys, corrections, key, splits)
    for task in tasks:
        task.follows = {split: task.follows[split] for split in order if split in task.follows}
    return plan


def _resumed_task(checkpoint: Checkpoint, surveys: Sequence[SplitSurvey], keep_open: bool) -> SplitTask:
    """The task of the split that continues the open flows of a checkpoint."""
    split = len(surveys)
    task = SplitTask(split, checkpoint.packets, checkpoint.splits + split, keep_open)
    touched = {key for survey in surveys for key in survey.flows}
    for key, left in checkpoint.flows.items():
        if key in touched or left.is_closed or not keep_open:
            task.primed.append(key)
            if left.history is not None:
                task.histories[key] = left.history
    return task


def _rows(listeners: Mapping[tuple[int, ...], None]) -> Array:
    return np.array(list(listeners), LISTENER) if listeners else np.zeros(0, LISTENER)


def _in_order(surveys: Sequence[SplitSurvey], files: Sequence[int]) -> list[int]:
    times: dict[int, int] = {}
    for survey, file in zip(surveys, files, strict=True):
        if survey.packets:
            times.setdefault(file, survey.head_time)
    with_packets = [i for i, survey in enumerate(surveys) if survey.packets]
    return sorted(with_packets, key=lambda i: (times[files[i]], files[i], i))


def _overlap(surveys: Sequence[SplitSurvey], files: Sequence[int], key: bytes, splits: Sequence[int]) -> bool:
    last: dict[int, int] = {}
    for split in splits:
        seen, file = surveys[split].flows[key], files[split]
        if any(other != file and seen.first + SLACK_NS < end for other, end in last.items()):
            return True
        last[file] = max(seen.last, last.get(file, seen.last))
    return False


def _merge(plan: Plan, tasks: Mapping[int, SplitTask], key: bytes, splits: Sequence[int], goes_on: bool) -> None:
    plan.both_ends.add(key)
    owner = plan.resumed if goes_on and plan.resumed is not None else splits[0]
    tasks[owner].merged.add(key)
    for split in splits:
        tasks[split].heads[key] = NOTHING
        tasks[owner].follows.setdefault(split, {})[key] = NOTHING


def _chain(
    tasks: Mapping[int, SplitTask],
    surveys: Sequence[SplitSurvey],
    corrections: Corrections,
    key: bytes,
    splits: Sequence[int],
    history: History | None = None,
) -> None:
    """Plan one flow through its splits, in order. `history`: of its connection in the first split, if not the
    survey's."""
    owner = splits[0]
    if history is None:
        history = _placed(surveys[owner].flows[key], tasks[owner].base)
    for split in splits[1:]:
        seen, task = surveys[split].flows[key], tasks[split]
        head = 0 if (key, split) in corrections.dropped else seen.head
        if not head and (key, split) not in corrections.dropped and _is_other(history, seen):
            head = seen.settled
        tasks[owner].follows.setdefault(split, {})[key] = head or NOTHING
        if head:
            task.heads[key] = task.base + head
            history = task.histories[key] = corrections.histories.get((key, split), history)
            task.primed.append(key)
            tasks[owner].next[key] = split
            owner = split
        else:
            task.heads[key] = NOTHING
        later = _placed(seen, task.base)
        history = later if seen.opened or seen.renewed else history.then(later)


def _is_other(history: History, seen: FlowSeen) -> bool:
    """Whether a flow is not Kafka, by its history before a split and by the survey of that split."""
    if history.facts.protocol in (PROTOCOL_TLS, PROTOCOL_FOREIGN):
        return True
    return (
        history.facts.protocol == PROTOCOL_UNKNOWN
        and seen.history is not None
        and seen.history.facts.protocol != PROTOCOL_KAFKA
    )


def _placed(seen: FlowSeen, base: int) -> History:
    assert seen.history is not None
    return seen.history.numbered_from(base)
