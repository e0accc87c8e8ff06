"""Chains: the splits of each flow in order, and which of them decodes which packets.

`plan_flows` works on arrays: rows of all flows that several splits share are sorted by flow and split, and a kernel
visits each row once. Flows of a single split cost no more than the sort.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import joined, taken, untouched
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.reassembly.dtypes import SHIFT_UNKNOWN

from ..captures.capture_points import CLOSE_NS, SLACK_NS
from ..captures.pack_reader import numbered
from .checkpoint import Checkpoint, FlowSpan, is_at_several_points
from .flow_rows import FLOW_KEY, HISTORY_FIELDS, TEXTS, as_keys, flow_bytes, group_flows, history_rows, renumber_strings
from .flow_state import History
from .split_engine import NOTHING
from .survey import SplitSurvey

Array = np.ndarray[Any, Any]
#: A flow and one of its splits.
FlowInSplit = tuple[bytes, int]

#: The history of a connection, as in `flow_rows`.
HISTORY = record_dtype(*HISTORY_FIELDS)
#: A flow in one split. `task`: the place of the split's task. `file`: of the split, -1 for a row of a checkpoint.
CHAIN_ROW = record_dtype(
    ("first", "i8"),
    ("last", "i8"),
    ("head", "i8"),  # in: the survey's, 0 for none. Out: the last packet that belongs to an earlier split, or NOTHING
    ("settled", "i8"),
    ("first_packet", "i8"),
    ("last_packet", "i8"),
    *HISTORY_FIELDS,
    ("task", "i4"),
    ("file", "i4"),
    ("file_first", "i8"),  # the first time in that file, and the last one
    ("file_last", "i8"),
    ("until", "i8"),  # the latest `last` of this row and those of its flow before it
    ("files_until", "i8"),  # and the latest `file_last`
    ("override", "i4"),  # the row of the history at the head that a correction has; -1
    ("owner", "i4"),  # out: the task that decodes its packets up to the head; -1 for the first row of a chain
    ("opened", "u1"),
    ("renewed", "u1"),
    ("dropped", "u1"),  # 1: the survey's head does not hold
    ("is_first", "u1"),  # of its flow
    ("is_merged", "u1"),  # the flow was captured at both ends. In: of a row of a checkpoint. Out: of all
)


@helper
def _copy_history(source, target):  # type: ignore[no-untyped-def]
    """Copy a history from one row to another."""
    target.serial = source.serial
    target.key = source.key
    target.began = source.began
    target.base_seq_a = source.base_seq_a
    target.base_seq_b = source.base_seq_b
    target.syn_at = source.syn_at
    target.syn_ack_at = source.syn_ack_at
    target.handshake_rtt_ns = source.handshake_rtt_ns
    target.client_id = source.client_id
    target.software = source.software
    target.software_version = source.software_version
    target.mechanism = source.mechanism
    target.advertised = source.advertised
    target.client = source.client
    target.protocol = source.protocol
    target.answers_at_once = source.answers_at_once
    target.rebalance_ms = source.rebalance_ms
    target.source_high = source.source_high
    target.source_low = source.source_low
    target.source_port = source.source_port
    target.tls = source.tls
    target.tls_records_a = source.tls_records_a
    target.tls_records_b = source.tls_records_b
    _copy_options_a(source, target)
    _copy_options_b(source, target)


@helper
def _copy_options_a(source, target):  # type: ignore[no-untyped-def]
    target.shift_a = source.shift_a
    target.mss_a = source.mss_a
    target.sack_permitted_a = source.sack_permitted_a
    target.timestamps_a = source.timestamps_a


@helper
def _copy_options_b(source, target):  # type: ignore[no-untyped-def]
    target.shift_b = source.shift_b
    target.mss_b = source.mss_b
    target.sack_permitted_b = source.sack_permitted_b
    target.timestamps_b = source.timestamps_b


@helper
def _add_later(known, later):  # type: ignore[no-untyped-def]
    """Add what a later split knows of the same connection, as `History.then` does."""
    if later.client >= 0:
        known.client = later.client
    if later.protocol != PROTOCOL_UNKNOWN:
        known.protocol = later.protocol
    if later.answers_at_once >= 0:
        known.answers_at_once = later.answers_at_once
    if later.rebalance_ms >= 0:
        known.rebalance_ms = later.rebalance_ms
    if later.client_id >= 0:
        known.client_id = later.client_id
    if later.software >= 0:
        known.software = later.software
    if later.software_version >= 0:
        known.software_version = later.software_version
    if later.mechanism >= 0:
        known.mechanism = later.mechanism
    if later.source_port >= 0:
        known.source_high = later.source_high
        known.source_low = later.source_low
        known.source_port = later.source_port
    if later.advertised >= 0:
        known.advertised = later.advertised
    if known.tls < 0:
        known.tls = later.tls
    known.tls_records_a += later.tls_records_a
    known.tls_records_b += later.tls_records_b
    if known.base_seq_a < 0:
        known.base_seq_a = later.base_seq_a
    if known.base_seq_b < 0:
        known.base_seq_b = later.base_seq_b
    if later.syn_at != 0:
        known.syn_at = later.syn_at
    if later.syn_ack_at != 0:
        known.syn_ack_at = later.syn_ack_at
    if known.handshake_rtt_ns < 0:
        known.handshake_rtt_ns = later.handshake_rtt_ns
    if known.shift_a == SHIFT_UNKNOWN:
        _copy_options_a(later, known)
    if known.shift_b == SHIFT_UNKNOWN:
        _copy_options_b(later, known)


@helper
def _end_of_flow(rows, first):  # type: ignore[no-untyped-def]
    """The place behind the last row of the flow whose first row is `first`."""
    end = first + 1
    while end < rows.shape[0] and rows[end].is_first == 0:
        end += 1
    return end


@helper
def _is_at_several_points(rows, first, end):  # type: ignore[no-untyped-def]
    """Whether two files that overlap in time have packets of rows[first:end] at about the same time: the flow was
    captured at both ends."""
    lowest = np.int64(-(2**62))
    until, files_until = lowest, lowest
    for i in range(first, end):
        row = rows[i]
        if row.file >= 0:
            before = i - 1
            while before >= first and rows[before].until > row.first - CLOSE_NS:
                if rows[before].files_until <= row.file_first + SLACK_NS:
                    break
                earlier = rows[before]
                is_other = earlier.file >= 0 and earlier.file != row.file
                is_other &= earlier.file_last > row.file_first + SLACK_NS
                if is_other and earlier.last > row.first - CLOSE_NS:
                    return True
                before -= 1
            until, files_until = max(until, np.int64(row.last)), max(files_until, np.int64(row.file_last))
        row.until = until
        row.files_until = files_until
    return False


@helper
def _head(row, known):  # type: ignore[no-untyped-def]
    """The head of a row, 0 for none. `known`: the history of its connection."""
    if row.dropped:
        return np.int64(0)
    if row.head != 0:
        return np.int64(row.head)
    if known.protocol == PROTOCOL_TLS:
        return np.int64(0)
    if known.protocol == PROTOCOL_FOREIGN or (known.protocol == PROTOCOL_UNKNOWN and row.protocol != PROTOCOL_KAFKA):
        return np.int64(row.settled)
    return np.int64(0)


@kernel(CHAIN_ROW, HISTORY, HISTORY, HISTORY)
def chain_flows(rows, overrides, before, state):  # type: ignore[no-untyped-def]
    """Set `head`, `owner` and `is_merged` of rows, which are sorted by flow and task.

    before[i]: the history of the connection of row i at its head. `state`: one row.
    """
    known = state[0]
    owner = np.int64(-1)
    is_merged = False
    for i in range(rows.shape[0]):
        row = rows[i]
        if row.is_first:
            owner = np.int64(row.task)
            is_merged = row.is_merged != 0 or _is_at_several_points(rows, i, _end_of_flow(rows, i))
        if is_merged:
            if row.file >= 0:
                row.head = NOTHING
                row.owner = owner
                row.is_merged = 1
            continue
        if row.is_first:
            _copy_history(row, known)
            continue
        head = _head(row, known)
        row.owner = owner
        row.head = head if head != 0 else np.int64(NOTHING)
        if head != 0:
            if row.override >= 0:
                _copy_history(overrides[row.override], known)
            _copy_history(known, before[i])
            owner = np.int64(row.task)
        if row.opened or row.renewed:
            _copy_history(row, known)
        else:
            _add_later(known, row)
    return 0


# ---------------------------------------------------------------- from surveys to tasks

#: A flow in the task of a split. `head`: the last packet that belongs to an earlier split, or NOTHING. `is_primed`:
#: the split continues it from there. `has_history`: the history at the head is known. `first_packet`, `last_packet`: of
#: the flow in the split.
TASK_FLOW = np.dtype([
    ("flow", FLOW_KEY), ("head", "i8"), ("first_packet", "i8"), ("last_packet", "i8"), *HISTORY_FIELDS,
    ("is_primed", "?"), ("has_history", "?"),
])  # fmt: skip
#: A flow that another split continues, or whose packets there belong to this split, up to a packet.
NEXT_FLOW = np.dtype([("flow", FLOW_KEY), ("split", "i4")])
FOLLOWED_FLOW = np.dtype([
    ("flow", FLOW_KEY), ("split", "i4"), ("head", "i8"), ("first_packet", "i8"), ("last_packet", "i8"),
    ("is_merged", "?"),
])  # fmt: skip


@dataclass(slots=True)
class TaskFlows:
    """The flows of a split's task that other splits have, too: TASK_FLOW, NEXT_FLOW and FOLLOWED_FLOW rows."""

    flows: Array = field(default_factory=lambda: np.zeros(0, TASK_FLOW))
    next: Array = field(default_factory=lambda: np.zeros(0, NEXT_FLOW))
    followed: Array = field(default_factory=lambda: np.zeros(0, FOLLOWED_FLOW))
    strings: list[bytes] = field(default_factory=list)

    def same(self, other: TaskFlows) -> bool:
        """Whether both are the same flows."""
        pairs = ((self.flows, other.flows), (self.next, other.next), (self.followed, other.followed))
        return self.strings == other.strings and all(a.tobytes() == b.tobytes() for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Part:
    """A split to plan: its number, its survey, its file, and the packets before each of its files. A pack counts as one
    file."""

    split: int
    survey: SplitSurvey
    file: int
    bases: Sequence[int]


class _Strings:
    """Numbers strings anew."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, rows: Array, strings: Sequence[bytes]) -> None:
        """Number the strings of rows, which are numbers in `strings`."""
        numbers = np.array([*(self._number(text) for text in strings), -1], np.int32)
        for name in TEXTS:
            rows[name] = numbers[rows[name]]

    def _number(self, text: bytes) -> int:
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


def plan_flows(
    parts: Sequence[Part],
    dropped: Iterable[FlowInSplit] = (),
    histories: Iterable[tuple[FlowInSplit, History]] = (),
    checkpoint: Checkpoint | None = None,
) -> tuple[list[TaskFlows], set[bytes]]:
    """Plan the flows of splits, in order. Return those of each split's task, and the flows captured at both ends.

    With a checkpoint the first part stands for its open flows. `dropped`: heads that do not hold. `histories`: at heads
    where the surveys are wrong.
    """
    strings = _Strings()
    keys, rows = _shared_flows(parts, checkpoint, strings)
    by_place = _Places(keys, [parts[task].split for task in rows["task"].tolist()] if dropped or histories else [])
    for place in dropped:
        rows["dropped"][by_place.of(*place)] = 1
    overrides = np.zeros(0, HISTORY)
    corrected = list(histories)
    if corrected:
        overrides, texts = history_rows([history for _, history in corrected], HISTORY)
        strings.number(overrides, texts)
        rows["override"] = -1
        for number, (place, _) in enumerate(corrected):
            rows["override"][by_place.of(*place)] = number
    before = untouched(max(len(rows), 1), HISTORY)
    chain_flows(rows, overrides, before, np.zeros(1, HISTORY))
    both_ends = set(flow_bytes(keys[rows["is_merged"] > 0]))
    return _task_flows(parts, keys, rows, before, strings), both_ends


class _Places:
    """Finds the row of a flow in a split."""

    def __init__(self, keys: Array, splits: Sequence[int]) -> None:
        self._rows: dict[FlowInSplit, int] = {}
        if len(splits):
            self._rows = {place: i for i, place in enumerate(zip(flow_bytes(keys), splits, strict=True))}

    def of(self, flow: bytes, split: int) -> list[int]:
        """Its place; none, if the flow has no other split."""
        row = self._rows.get((flow, split))
        return [] if row is None else [row]


def _shared_flows(parts: Sequence[Part], checkpoint: Checkpoint | None, strings: _Strings) -> tuple[Array, Array]:
    """The keys of flows that several parts have, and their CHAIN_ROWs, both sorted by flow and part."""
    of_parts = [part.survey.rows["flow"] for part in parts]
    if checkpoint is not None:
        of_parts[0] = as_keys(checkpoint.flows)
    keys = np.concatenate(of_parts) if of_parts else np.zeros(0, FLOW_KEY)
    order, starts = group_flows(keys)
    sizes = np.diff(starts, append=len(keys))
    kept = order[np.repeat(sizes > 1, sizes)]
    is_kept = np.zeros(len(keys), bool)
    is_kept[kept] = True
    chains, end, spans = [], 0, _file_spans(parts)
    for number, (part, mine) in enumerate(zip(parts, of_parts, strict=True)):
        begin, end = end, end + len(mine)
        wanted = np.flatnonzero(is_kept[begin:end])
        if number == 0 and checkpoint is not None:
            chains.append(_rows_of_checkpoint(checkpoint, wanted, strings))
            several = _at_several_points(parts, checkpoint, spans)
            chains[-1]["is_merged"] = [key in several for key in flow_bytes(mine[wanted])]
        else:
            chains.append(_rows_of_part(number, part, wanted, strings))
            chains[-1]["file_first"], chains[-1]["file_last"] = spans.get(part.file, (0, 0))
    place = np.cumsum(is_kept) - 1
    rows = taken(joined(chains, CHAIN_ROW), place[kept])
    sizes = sizes[sizes > 1]
    rows["is_first"][np.cumsum(sizes) - sizes] = 1
    return keys[kept], rows


def _file_spans(parts: Sequence[Part]) -> dict[int, tuple[int, int]]:
    """The first and the last time of each file."""
    found: dict[int, tuple[int, int]] = {}
    for part in parts:
        for read in part.survey.files:
            if read.report.first is not None and read.report.last is not None:
                first, last = found.get(part.file, (read.report.first, read.report.last))
                found[part.file] = min(first, read.report.first), max(last, read.report.last)
    return found


def _at_several_points(
    parts: Sequence[Part], checkpoint: Checkpoint, spans: Mapping[int, tuple[int, int]]
) -> set[bytes]:
    """The open flows of a checkpoint that were captured at several points, in this batch at the latest."""
    found = {key for key, flow in checkpoint.flows.items() if flow.progress is not None}
    for part in parts:
        for key in (part.survey.flows.keys() & checkpoint.spans.keys()) - found:
            flow = part.survey.flows[key]
            if is_at_several_points(FlowSpan(flow.first, flow.last, *spans[part.file]), checkpoint.spans[key]):
                found.add(key)
    return found


def _rows_of_part(number: int, part: Part, wanted: Array, strings: _Strings) -> Array:
    """CHAIN_ROW of some flows of a part, numbered over the whole input."""
    flows = taken(part.survey.rows, wanted)
    rows = _chain_rows(number, part.file, flows)
    strings.number(rows, part.survey.strings)
    for name in ("first", "last", "opened", "renewed"):
        rows[name] = flows[name]
    for name in ("head", "settled", "serial", "first_packet", "last_packet"):
        is_packet = (flows[name] > 0) & (flows[name] < NOTHING)
        rows[name] = flows[name]
        rows[name][is_packet] = numbered(flows[name][is_packet], part.bases)
    return rows


def _rows_of_checkpoint(checkpoint: Checkpoint, wanted: Array, strings: _Strings) -> Array:
    """CHAIN_ROW of some open flows of a checkpoint."""
    left = [flow.state.history for flow in checkpoint.flows.values()]
    flows, texts = history_rows([left[i] for i in wanted.tolist()], HISTORY)
    rows = _chain_rows(0, -1, flows)
    strings.number(rows, texts)
    return rows


def _chain_rows(task: int, file: int, histories: Array) -> Array:
    rows = np.zeros(len(histories), CHAIN_ROW)
    for name, _ in HISTORY_FIELDS:
        rows[name] = histories[name]
    rows["task"], rows["file"], rows["owner"], rows["override"] = task, file, -1, -1
    return rows


def _task_flows(parts: Sequence[Part], keys: Array, rows: Array, before: Array, strings: _Strings) -> list[TaskFlows]:
    """The rows of each task."""
    splits = np.array([part.split for part in parts] or [0], np.int32)
    mine = np.flatnonzero(rows["owner"] >= 0)
    mine = mine[np.argsort(rows["task"][mine], kind="stable")]
    flows = np.zeros(len(mine), TASK_FLOW)
    flows["flow"] = keys[mine]
    for name in ("head", "first_packet", "last_packet"):
        flows[name] = rows[name][mine]
    flows["is_primed"] = flows["has_history"] = flows["head"] < NOTHING
    known = taken(before, mine)
    for name, _ in HISTORY_FIELDS:
        flows[name] = np.where(flows["is_primed"], known[name], -1 if name in TEXTS else 0)
    followed = np.zeros(len(mine), FOLLOWED_FLOW)
    tasks, owners = rows["task"][mine], rows["owner"][mine]
    by_owner = np.argsort(owners, kind="stable")  # and by task
    for name in ("flow", "head", "first_packet", "last_packet"):
        followed[name] = flows[name]
    followed["split"] = splits[tasks]
    followed["is_merged"] = rows["is_merged"][mine] > 0
    followed, primed = taken(followed, by_owner), flows["is_primed"][by_owner]
    following = np.zeros(len(mine), NEXT_FLOW)
    following["flow"], following["split"] = followed["flow"], followed["split"]
    numbers = np.arange(len(parts) + 1)
    own, others = np.searchsorted(tasks, numbers), np.searchsorted(owners[by_owner], numbers)
    found = []
    for n in range(len(parts)):
        some = flows[own[n] : own[n + 1]].copy()
        texts = renumber_strings(some, strings.texts)
        after = slice(others[n], others[n + 1])
        found.append(TaskFlows(some, following[after][primed[after]], followed[after], texts))
    return found
