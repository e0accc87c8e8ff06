"""Plan the second pass: which split decodes which packets of each flow, and what it has to know before.

Files are ordered by time (as in `merge_captures`), and the splits of a file by place. Packets are numbered over all of
them, so files of other splits may come between the files of a pack. Each flow belongs to the first split that has it,
up to its head in the next one, and so on.

If packets of a flow from two files overlap in time, it was captured at both ends. All its packets go to the first
split, which merges them in order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.reassembly.dtypes import LISTENER

from ...captures.merge import SLACK_NS
from ...captures.pack_reader import NO_PACKETS, numbered
from .flow_state import History
from .split_engine import NOTHING
from .survey import FlowSeen, Listener, SplitSurvey

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

Array = np.ndarray[Any, Any]
#: A flow and one of its splits.
FlowInSplit = tuple[bytes, int]


@dataclass(slots=True)
class SplitTask:
    """The work of one split. Packets are numbered over the whole input.

    `bases`: packets before each of its files. `captures`: the identities of its files. `keep_open`: more captures
    will come, so open flows stay open at the end. `heads`: by flow, the last packet that belongs to an earlier
    split. `primed`: the flows that start here at a head. `next`: the flows that a later split continues, and that
    split. `follows`: by split, the flows whose packets this split decodes, each up to a packet. That is a later
    split, or this one for `merged`: the flows captured at both ends. `listeners`: LISTENER rows of the ends that
    earlier files showed to listen; `later_listeners`: by file, those that files of other splits show after this
    split began.
    """

    split: int
    bases: tuple[int, ...] = ()
    captures: tuple[int, ...] = ()
    keep_open: bool = False
    heads: dict[bytes, int] = field(default_factory=dict)
    histories: dict[bytes, History] = field(default_factory=dict)
    primed: list[bytes] = field(default_factory=list)
    next: dict[bytes, int] = field(default_factory=dict)
    follows: dict[int, dict[bytes, int]] = field(default_factory=dict)
    merged: set[bytes] = field(default_factory=set)
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    later_listeners: dict[int, Array] = field(default_factory=dict)

    @property
    def own_heads(self) -> dict[bytes, int]:
        """The heads of the flows in `primed`. NOTHING: all packets of a checkpoint."""
        return {key: self.heads.get(key, NOTHING) for key in self.primed}

    def same(self, other: SplitTask) -> bool:
        """Whether both are the same work."""
        names = ("split", "bases", "keep_open", "heads", "histories", "primed", "next", "follows", "merged")
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
    def bases(self) -> dict[int, tuple[int, ...]]:
        """Packets before each file of each split."""
        return {task.split: task.bases for task in self.tasks}


def make_plan(
    surveys: Sequence[SplitSurvey],
    files: Sequence[Sequence[int]],
    corrections: Corrections | None = None,
    checkpoint: Checkpoint | None = None,
    keep_open: bool = False,
) -> Plan:
    """`surveys[i]` is the survey of split i, `files[i]` the numbers of its files. Splits of one file are adjacent.

    `checkpoint`: what earlier batches left; one more split, of the next number, continues those of their open flows
    that go on, were closed, or have to end. `keep_open`: more captures will come.
    """
    corrections = corrections or Corrections()
    ordered = _in_order(surveys, files)
    tasks: list[SplitTask] = []
    base = 0
    listeners = _Listeners()
    names: dict[bytes, bytes] = {}
    flows: dict[bytes, list[int]] = {}
    if checkpoint is not None:
        base = checkpoint.packets
        listeners.add(checkpoint.listeners.tolist())
        names.update(checkpoint.topic_names)
        tasks.append(_resumed_task(checkpoint, surveys, keep_open))
    bases = [[NO_PACKETS] * len(numbers) for numbers in files]
    captures = _captures(surveys, files)
    of_split: dict[int, SplitTask] = {}
    for split, place in ordered:
        survey = surveys[split]
        if split not in of_split:
            of_split[split] = SplitTask(split, (), captures[split], keep_open, listeners=listeners.rows(split))
            tasks.append(of_split[split])
            names.update(survey.topic_names)
            for key in survey.flows:
                flows.setdefault(key, []).append(split)
        elif len(later := listeners.rows(split)):
            of_split[split].later_listeners[place] = later
        bases[split][place] = base
        base += survey.files[place].report.packets
        listeners.add(survey.listeners[place], split)
    for split, task in of_split.items():
        task.bases = tuple(bases[split])
    names.update(corrections.names)
    plan = Plan(
        tasks, names, resumed=None if checkpoint is None else len(surveys), packets=base, listeners=listeners.all
    )  # fmt: skip
    of_split.update({task.split: task for task in tasks})
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
        task.follows = {split: task.follows[split] for split in of_split if split in task.follows}
    return plan


class _Listeners:
    """The ends that listen, in the order in which files show them, and what each split was given of them."""

    def __init__(self) -> None:
        self._found: dict[Listener, int] = {}  # and the split that found it first
        self._in_order: list[Listener] = []
        self._given: dict[int, int] = {}  # by split

    def add(self, found: Iterable[Listener], split: int = -1) -> None:
        for one in found:
            if one not in self._found:
                self._found[one] = split
                self._in_order.append(one)

    def rows(self, split: int) -> Array:
        """Those that other splits found since the last call for this split."""
        new = self._in_order[self._given.get(split, 0) :]
        self._given[split] = len(self._in_order)
        return _rows([one for one in new if self._found[one] != split])

    @property
    def all(self) -> Array:
        return _rows(self._in_order)


def _rows(listeners: list[Listener]) -> Array:
    return np.array(listeners, LISTENER) if listeners else np.zeros(0, LISTENER)


def _captures(surveys: Sequence[SplitSurvey], files: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The identities of the files of each split. Only the first part of a file has it in its survey."""
    known = {
        number: read.capture
        for survey, numbers in zip(surveys, files, strict=True)
        for number, read in zip(numbers, survey.files, strict=False)
        if read.capture
    }
    return [tuple(known.get(number, 0) for number in numbers) for numbers in files]


def _resumed_task(checkpoint: Checkpoint, surveys: Sequence[SplitSurvey], keep_open: bool) -> SplitTask:
    """The task of the split that continues the open flows of a checkpoint."""
    split = len(surveys)
    task = SplitTask(split, keep_open=keep_open)
    touched = {key for survey in surveys for key in survey.flows}
    for key, left in checkpoint.flows.items():
        if key in touched or left.is_closed or not keep_open:
            task.primed.append(key)
            if left.history is not None:
                task.histories[key] = left.history
    return task


def _in_order(surveys: Sequence[SplitSurvey], files: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(split, place in the split) of each part of a file with packets, in the order of packet numbers."""
    times: dict[int, int] = {}
    found = []
    for split, (survey, numbers) in enumerate(zip(surveys, files, strict=True)):
        for place, read in enumerate(survey.files):
            if read.head_time is not None:
                time = times.setdefault(numbers[place], read.head_time)
                found.append((time, numbers[place], split, place))
    return [(split, place) for _, _, split, place in sorted(found)]


def _overlap(surveys: Sequence[SplitSurvey], files: Sequence[Sequence[int]], key: bytes, splits: Sequence[int]) -> bool:
    last: dict[int, int] = {}
    for split in splits:
        seen, file = surveys[split].flows[key], files[split][0]
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
        history = _placed(surveys[owner].flows[key], tasks[owner].bases)
    for split in splits[1:]:
        seen, task = surveys[split].flows[key], tasks[split]
        head = 0 if (key, split) in corrections.dropped else seen.head
        if not head and (key, split) not in corrections.dropped and _is_other(history, seen):
            head = seen.settled
        head = numbered(head, task.bases) if head else NOTHING
        tasks[owner].follows.setdefault(split, {})[key] = task.heads[key] = head
        if head < NOTHING:
            history = task.histories[key] = corrections.histories.get((key, split), history)
            task.primed.append(key)
            tasks[owner].next[key] = split
            owner = split
        later = _placed(seen, task.bases)
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


def _placed(seen: FlowSeen, bases: Sequence[int]) -> History:
    assert seen.history is not None
    return seen.history.numbered_from(bases)
