"""Plan the second pass: which split decodes which packets of each flow, and what it has to know before.

Files are ordered by time (as in `merge_captures`), and the splits of a file by place. Packets are numbered over all of
them, so files of other splits may come between the files of a pack. Each flow belongs to the first split that has it,
up to its head in the next one, and so on.

If packets of a flow from two files overlap in time, it was captured at both ends. All its packets go to the first
split, which merges them in order of time. The files may be of different batches of a stream (`points_of_run`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.dissector.connection_state import ConnectionFacts
from kafkatap.reassembly.dtypes import LISTENER
from kafkatap.reassembly.fragments import SavedDatagram

from ..captures.pack_reader import NO_PACKETS
from .chains import TASK_FLOW, FlowInSplit, Part, TaskFlows, plan_flows
from .checkpoint import Checkpoint
from .datagrams import datagrams_before, waiting_packets
from .flow_rows import as_keys, flow_bytes, histories, history_rows
from .flow_state import History
from .packet_ranges import union
from .points_of_run import POINT_RANGE, RunPoints, points_of_run
from .split_engine import NOTHING
from .survey import Listener, SplitSurvey, broker_keys

Array = np.ndarray[Any, Any]
_UNKNOWN = History(ConnectionFacts(0), 0)


@dataclass(slots=True)
class SplitTask:
    """The work of one split. Packets are numbered over the whole input.

    `bases`: packets before each of its files. `keep_open`: more captures will come, so open flows stay open at the end.
    `shared`: the flows that other splits have, too. `listeners`: LISTENER rows of the ends that earlier files showed to
    listen; `later_listeners`: by file, those that files of other splits show after this split began. `points`:
    POINT_RANGE of all files, if it has flows captured at both ends; `point_count`: how many points there are.
    `closed_until`, `merged_until`: as of `RunPoints`. `datagrams`: those that wait for fragments at its start;
    `brokers`, `later_brokers`: keys of the ends that earlier and that later splits show to be brokers'.
    `handed_over`: packets that wait at its end, which the next split counts. `capture_end`: the time of the last packet
    of all splits, ns since the epoch.
    """

    split: int
    bases: tuple[int, ...] = ()
    keep_open: bool = False
    shared: TaskFlows = field(default_factory=TaskFlows)
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    later_listeners: dict[int, Array] = field(default_factory=dict)
    brokers: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    later_brokers: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    points: Array = field(default_factory=lambda: np.zeros(0, POINT_RANGE))
    point_count: int = 1
    closed_until: int | None = None
    merged_until: int | None = None
    datagrams: list[SavedDatagram] = field(default_factory=list)
    handed_over: int = 0
    capture_end: int | None = None

    @property
    def heads(self) -> dict[bytes, int]:
        """By flow, the last packet that belongs to an earlier split."""
        rows = self.shared.flows
        return dict(zip(flow_bytes(rows["flow"]), rows["head"].tolist(), strict=True))

    @property
    def histories(self) -> dict[bytes, History]:
        """The history of each flow that starts here at a head, as far as it is known."""
        rows = self.shared.flows[self.shared.flows["has_history"]]
        return dict(zip(flow_bytes(rows["flow"]), histories(rows, self.shared.strings), strict=True))

    @property
    def primed(self) -> dict[bytes, int]:
        """The flows that start here at a head, and that head. NOTHING: after all packets of a checkpoint."""
        rows = self.shared.flows[self.shared.flows["is_primed"]]
        return dict(zip(flow_bytes(rows["flow"]), rows["head"].tolist(), strict=True))

    @property
    def next(self) -> dict[bytes, int]:
        """The flows that a later split continues, and that split."""
        rows = self.shared.next
        return dict(zip(flow_bytes(rows["flow"]), rows["split"].tolist(), strict=True))

    @property
    def follows(self) -> dict[int, dict[bytes, int]]:
        """By split, in order, the flows whose packets this split decodes, each up to a packet. That is a later split,
        or this one for flows captured at both ends."""
        rows, found = self.shared.followed, {}
        starts = np.flatnonzero(np.diff(rows["split"], prepend=-1)).tolist()
        for first, end in zip(starts, [*starts[1:], len(rows)], strict=False):
            some = rows[first:end]
            found[int(some["split"][0])] = dict(zip(flow_bytes(some["flow"]), some["head"].tolist(), strict=True))
        return found

    @property
    def follows_splits(self) -> list[int]:
        """The splits in `follows`."""
        return list(dict.fromkeys(self.shared.followed["split"].tolist()))

    @property
    def primed_ranges(self) -> Array:
        """The packets between which the split finds those up to the heads in `primed`, as of `union`."""
        return _ranges(self.shared.flows[self.shared.flows["is_primed"]])

    @property
    def others_ranges(self) -> Array:
        """The packets between which the split has some that belong to earlier splits, as of `union`."""
        return _ranges(self.shared.flows)

    def followed_ranges(self, split: int) -> Array:
        """The packets of another split between which those are that this split decodes, as of `union`."""
        return _ranges(self.shared.followed[self.shared.followed["split"] == split])

    @property
    def merged(self) -> set[bytes]:
        """The flows captured at both ends whose packets this split decodes."""
        return set(flow_bytes(self.shared.followed["flow"][self.shared.followed["is_merged"]]))

    def same(self, other: SplitTask) -> bool:
        """Whether both are the same work."""
        names = ("split", "bases", "keep_open")
        return self.shared.same(other.shared) and all(getattr(self, name) == getattr(other, name) for name in names)


def _ranges(flows: Array) -> Array:
    """The packets of some flows (TASK_FLOW, FOLLOWED_FLOW) up to their heads, as of `union`."""
    return union(flows["first_packet"], np.minimum(flows["head"], flows["last_packet"]))


@dataclass(slots=True)
class Corrections:
    """Corrections of a plan: heads that do not hold, and histories at other heads. `names`: topic names that only the
    decoding pass found."""

    dropped: set[FlowInSplit] = field(default_factory=set)
    histories: dict[FlowInSplit, History] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """`tasks` in order. `both_ends`: the flows captured at both ends. `packets`, `listeners`: of all splits. `points`:
    if any of that needs them. `datagrams`: those that wait for fragments in captures to come."""

    tasks: list[SplitTask]
    topic_names: dict[bytes, bytes]
    both_ends: set[bytes] = field(default_factory=set)
    resumed: int | None = None  # the split that continues the open flows of a checkpoint
    packets: int = 0
    listeners: Array = field(default_factory=lambda: np.zeros(0, LISTENER))
    points: RunPoints = field(default_factory=RunPoints)
    datagrams: tuple[SavedDatagram, ...] = ()

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
    if checkpoint is not None:
        base = checkpoint.packets
        listeners.add(checkpoint.listeners.tolist())
        names.update(checkpoint.topic_names)
        tasks.append(SplitTask(len(surveys), keep_open=keep_open, listeners=checkpoint.listeners))
    bases = [[NO_PACKETS] * len(numbers) for numbers in files]
    of_split: dict[int, SplitTask] = {}
    for split, place in ordered:
        survey = surveys[split]
        if split not in of_split:
            of_split[split] = SplitTask(split, (), keep_open, listeners=listeners.rows(split))
            tasks.append(of_split[split])
            names.update(survey.topic_names)
        elif len(later := listeners.rows(split)):
            of_split[split].later_listeners[place] = later
        bases[split][place] = base
        base += survey.files[place].report.packets
        listeners.add(survey.listeners[place], split)
    for split, task in of_split.items():
        task.bases = tuple(bases[split])
    capture_end = _capture_end(surveys, checkpoint)
    brokers = np.zeros(0, np.int32)
    for task in tasks:
        task.capture_end, task.brokers = capture_end, brokers
        if task.split in of_split:
            brokers = np.union1d(brokers, broker_keys(surveys[task.split].rows)).astype(np.int32)
    for task in tasks:
        task.later_brokers = np.setdiff1d(brokers, task.brokers)
    earlier = checkpoint.datagrams if checkpoint is not None else ()
    datagrams = _hand_over_datagrams(tasks, surveys, earlier, keep_open)
    names.update(corrections.names)
    parts = [Part(t.split, surveys[t.split], files[t.split][0], t.bases) for t in of_split.values()]
    if checkpoint is not None:
        parts.insert(0, Part(len(surveys), SplitSurvey(len(surveys)), -1, ()))
    shared, both_ends = plan_flows(parts, corrections.dropped, corrections.histories.items(), checkpoint)
    points = RunPoints()
    if both_ends or checkpoint is not None:
        read = ((files[split][place], bases[split][place], surveys[split].files[place]) for split, place in ordered)
        points = points_of_run(read, checkpoint.points if checkpoint is not None else ())
    have_points = checkpoint is not None and any(flow.progress is not None for flow in checkpoint.flows.values())
    for task, flows in zip(tasks, shared, strict=True):
        task.shared, task.point_count = flows, len(points.read)
        if flows.followed["is_merged"].any() or (task is tasks[0] and have_points):
            task.points = points.ranges
        if keep_open:
            task.closed_until = points.closed_until(sum(len(survey.rows) for survey in surveys))
            task.merged_until = points.merged_until
    if checkpoint is not None:
        tasks[0].shared.flows, tasks[0].shared.strings = _resumed_flows(checkpoint, tasks[0], keep_open)
    resumed = None if checkpoint is None else len(surveys)
    if len(points.read) == 1:  # only files that are read as one are in between
        both_ends = set()
    return Plan(tasks, names, both_ends, resumed, base, listeners.all, points, datagrams)


def _capture_end(surveys: Sequence[SplitSurvey], checkpoint: Checkpoint | None) -> int | None:
    """The time of the last packet: of the surveys, or else of the captures before a checkpoint."""
    times = [read.report.last for survey in surveys for read in survey.files if read.report.last is not None]
    if times:
        return max(times)
    return None if checkpoint is None else checkpoint.sums.last


def _hand_over_datagrams(
    tasks: Sequence[SplitTask], surveys: Sequence[SplitSurvey], earlier: Sequence[SavedDatagram], keep_open: bool
) -> tuple[SavedDatagram, ...]:
    """Set which datagrams wait for fragments between the splits. Return those that wait behind the last one.

    `earlier`: those that wait before the first one. `keep_open`: more captures will come."""
    in_order = [surveys[t.split] if t.split < len(surveys) else SplitSurvey(t.split) for t in tasks]
    waiting = datagrams_before(
        [survey.datagrams for survey in in_order], [survey.first for survey in in_order], earlier
    )  # fmt: skip
    for task, datagrams, after in zip(tasks, waiting, waiting[1:], strict=False):
        task.datagrams = datagrams
        if task is not tasks[-1] or keep_open:
            task.handed_over = waiting_packets(after)
    return tuple(waiting[-1]) if keep_open else ()


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


def _resumed_flows(checkpoint: Checkpoint, task: SplitTask, keep_open: bool) -> tuple[Array, list[bytes]]:
    """TASK_FLOW of the open flows of a checkpoint that go on, wait, were closed, or have to end; and their strings."""
    touched = task.follows
    goes_on = {key for heads in touched.values() for key in heads}
    left = [
        (k, f) for k, f in checkpoint.flows.items() if k in goes_on or f.is_closed or f.waiting or not keep_open
    ]  # fmt: skip
    known = [flow.history for _, flow in left]
    rows, strings = history_rows([history or _UNKNOWN for history in known], TASK_FLOW)
    rows["flow"] = as_keys(key for key, _ in left)
    rows["head"], rows["is_primed"] = NOTHING, True
    rows["has_history"] = [history is not None for history in known]
    return rows, strings


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
