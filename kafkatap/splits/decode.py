"""`SplitRun`: the second pass over a split.

`batches` yields the finished rows of the split. Afterwards `outcome` has the states to compare with other splits, and
the sums over this split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.dissector.inspection import Inspector
from kafkatap.reports.batch import Batch, gathered

from ..captures.pack_reader import PackReader
from ..engine.read_options import AS_USUAL, ReadOptions
from .capture_ledgers import CaptureIndex, CaptureLedgers, Ledger, sum_ledgers
from .flow_rows import FlowStates, flow_bytes
from .flow_state import FlowState, History
from .packet_ranges import ClearBytes, meets
from .plan import SplitTask
from .points_of_run import note_points
from .sasl_bytes import SaslFrames, shows_sasl
from .seam_reader import SeamReader
from .seams import Seam, SeamPackets, followed_by, joined, part_of
from .secrets import CaptureSecrets, unknown_randoms
from .split_engine import NOTHING, SplitEngine

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Outcome:
    """`claims`: states of flows at the heads of this split. `arrivals`: states at the heads of the splits that continue
    them. `names`: topic names by id that this split found. `unnamed`: topic ids in its rows whose names it was not
    given. `ledgers`: by the identity of the capture that was read when something was counted; 0 if it has none.
    `first`, `last`: times of its own packets, ns since the epoch. `followed`: bytes of later splits that it read.
    `without_key`: client randoms of which it had no secrets."""

    split: int
    claims: FlowStates = field(default_factory=FlowStates)
    arrivals: FlowStates = field(default_factory=FlowStates)
    names: dict[bytes, bytes] = field(default_factory=dict)
    unnamed: set[bytes] = field(default_factory=set)
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    not_captured: int = 0
    first: int | None = None
    last: int | None = None
    followed: int = 0
    without_key: frozenset[bytes] = frozenset()

    @property
    def ledger(self) -> Ledger:
        """The sum of `ledgers`."""
        return sum_ledgers(self.ledgers.values())


class SplitRun:
    """`seams` reads the packets from this split and later ones that belong to the connections of this split.
    `secrets`: those that captures have. `captures`: those of all packets. `engine_options`: as of `Engine`."""

    def __init__(
        self,
        task: SplitTask,
        seams: SeamReader,
        topic_names: Mapping[bytes, bytes],
        read: ReadOptions = AS_USUAL,
        *,
        all_results: bool = True,
        inspectors: Sequence[Inspector] = (),
        apis: frozenset[int] | None = None,
        secrets: CaptureSecrets | None = None,
        captures: CaptureIndex | None = None,
        **engine_options: Any,
    ) -> None:
        self.task = task
        self._primed, self._next, self._follows, self._merged = task.primed, task.next, task.follows, task.merged
        self.read = read
        #: How much of messages is decoded: options of its engine.
        self.decodes: dict[str, Any] = {"all_results": all_results, "apis": apis}
        #: With `task.keep_open`: the flows that are open at the end, as of `SplitEngine.open_flows`.
        self.open_flows: dict[bytes, tuple[FlowState, bool, int | None]] = {}
        #: The flows that end at the end, amid SASL.
        self.amid_sasl: set[bytes] = set()
        #: How far each point saw those that were captured at several, and their packets that wait (`OpenFlow`).
        self.progress: dict[bytes, Array | None] = {}  # None: merged in order of time, though of one point
        self.waiting: dict[bytes, Seam] = {}
        self._seams = seams
        self._secrets = secrets or CaptureSecrets()
        self._starts = seams.block_starts(task.split)
        self._names = topic_names
        self._sasl = SaslFrames(bool(seams.authenticating))
        self._split = SplitEngine(
            task.histories, task.heads, task.listeners, task.datagrams, read=read, all_results=all_results,
            inspectors=(*inspectors, self._sasl) if task.keep_open else inspectors, apis=apis, **engine_options,
        )  # fmt: skip
        self.engine = self._split.engine
        self.engine.assembly.capture_end, self.engine.assembly.closed_until = task.capture_end, task.closed_until
        self.engine.dissector.learn_brokers(task.brokers)
        self._learn(self._secrets.before)
        for topic_id, name in topic_names.items():
            self.engine.dissector.name_topic(topic_id, name)
        self.outcome = Outcome(task.split)
        self._topic_ids: set[int] = set()  # numbers of the topic ids without a name beside them in rows
        self._file: int | None = None  # of the split, that is read
        self._ledgers = CaptureLedgers(self.engine, captures or CaptureIndex.of(()))

    def batches(self, reader: PackReader | None) -> Iterator[Batch]:
        """The finished rows of this split. `reader` has bases; None: all packets are in seams."""
        for batch in gathered(self.engine.twins.left_out_of(self._batches(reader))):
            self._ledgers.add(batch.exchanges)
            for rows in (batch.results, batch.topics):
                if rows is not None and len(rows):
                    self._topic_ids.update(np.unique(rows["topic_id"][rows["topic"] < 0]).tolist())
            yield batch
        self._fill_outcome()

    def _batches(self, reader: PackReader | None) -> Iterator[Batch]:
        split, task = self._split, self.task
        if reader is None and (self._seams.progress or len(task.points)):
            split.assembler.expect_points(task.point_count)
            split.points = task.points
        if reader is None:  # when open flows began, fewer ends may have been known to listen
            split.assembler.forget_listeners()
        if self._primed:
            with closing(self._seams.open(task.split, self._primed, task.primed_ranges)) as before:
                split.prime(before, self._primed)
        for key, c in split.current(self._seams.progress).items():
            split.assembler.restore_progress(c, self._seams.progress[key])
        for key, c in split.current(self.left).items():
            serial, last = split.assembler.connections["serial"][c], self.left[key].packets["number"][-1]
            self._ledgers.resume(int(serial), int(last))
        if reader is not None:
            self.outcome.claims = split.states(self._primed)
            self.outcome.claims.rows["split"] = task.split
        split.begin_split()
        self._ledgers.discount()
        if reader is not None:
            yield from self._own_packets(reader)
        split.assembler.hand_over_fragments(task.handed_over)
        yield from self._follow()
        arrivals = self.outcome.arrivals = split.states(self._next)
        arrivals.rows["split"] = [self._next[key] for key in flow_bytes(arrivals.rows["flow"])]
        yield from split.detach(list(self._next))
        if task.keep_open:
            yield from self._leave_open(list(self.waiting))
            yield from split.end_closed()
            yield from self._leave_open(None)
        self.engine.dissector.learn_brokers(task.later_brokers)
        yield from split.finish()

    def _leave_open(self, flows: list[bytes] | None) -> Iterator[Batch]:
        """Leave flows (None: all) open at the end of the run."""
        split = self._split
        found = split.open_flows(flows)
        for key, c in split.current(found).items():
            history = found[key][0].history
            if self.is_authenticating(key, history) and not self._notes_tokens(c):
                del found[key]
                self.amid_sasl.add(key)
        self.open_flows.update(found)
        for key, c in split.current(found.keys() & (self._merged | self._seams.progress.keys())).items():
            self.progress[key] = split.assembler.progress_of(c) if self.task.point_count > 1 else None
        yield from split.detach(list(found))

    def _notes_tokens(self, c: int) -> bool:
        """Note the parts of tokens that connection `c` has. If it is not known where they are, the connection ends
        here, as if no more was captured."""
        both = slice(2 * c, 2 * c + 2)
        used, held = self.engine.dissector.streams["used"][both], self._split.assembler.directions["held_count"][both]
        if (held[used == 0] > 0).any():
            return False
        return not used.any() or self._sasl.add_parts(self.engine.dissector, c)

    def without_tokens(self, flow: bytes, kept: Seam, whole: Seam) -> Seam:
        """Packets that are kept of an open flow, with filler in place of SASL tokens. `whole`: all that it had."""
        state, _, earlier = self.open_flows[flow]
        if state.history.tls is not None:
            return kept
        keys = [state.history.facts.key, *([] if earlier is None else [earlier])]
        was_authenticating = flow in self._seams.authenticating
        is_whole = flow in self.left or state.history.handshake[0] > 0
        return self._sasl.blanked(keys, kept, whole, was_authenticating, is_whole)

    def is_authenticating(self, flow: bytes, history: History) -> bool:
        """As of `OpenFlow`, for a connection that is not TLS."""
        before = flow in self._seams.authenticating
        return history.tls is None and self._sasl.is_authenticating(history.facts.key, before)

    def _own_packets(self, reader: PackReader) -> Iterator[Batch]:
        """Read the split. Blocks without packets of other splits need no filter, and most are read in one pass."""
        split, others = self._split, self.task.others_ranges
        clear = None if self._starts is None else ClearBytes(others, self._starts)
        while reader.fill():
            numbers = reader.packets["number"]
            first, last = int(numbers[reader.position]), int(numbers[reader.count - 1])
            self._begin_file(reader.file, first)
            split.filters = self._starts is None or meets(others, first, last)
            self._learn(reader.take_secrets())
            yield from split.take(reader.buffer, reader.packets, reader.position, reader.count)
            reader.position = reader.count
            part = reader.part
            while part is not None and clear is not None and part.is_between_blocks and part.next_block():
                if clear.are_clear(part.reached, part.block_end):
                    yield from split.read(part)
                else:
                    part.scan_block()

    def _learn(self, secrets: bytes) -> None:
        """Decrypt with secrets of captures from here on."""
        if secrets:
            self.engine.add_secrets(secrets)

    @property
    def left(self) -> Mapping[bytes, Seam]:
        """The packets of open flows of a checkpoint."""
        return self._seams.left

    def last_packets(self, flows: Sequence[bytes], most: int) -> dict[bytes, Seam]:
        """The last packets that this run had of some flows, in order: at least `most` of each, or all."""
        found: dict[bytes, Seam] = {}
        for split, heads in reversed(self._parts(flows)):
            wanted = {k: head for k, head in heads.items() if k not in found or len(found[k].packets) < most}
            for key, seam in self._seams.cut(split, wanted, most).items():
                found[key] = joined([seam, found[key]]) if key in found else seam
        return found

    def _parts(self, flows: Iterable[bytes]) -> list[tuple[int, dict[bytes, int]]]:
        """The splits with packets that this run had of some flows, each up to a packet."""
        own, heads = self.task.split, dict.fromkeys(flows, NOTHING)
        later = [(split, some) for split, some in self._follows.items() if split != own]
        return [(own, heads), *((split, {k: h for k, h in some.items() if k in heads}) for split, some in later)]

    def packets_of_merged_flows(self) -> dict[bytes, Seam]:
        """All packets that this run had of each flow in `open_flows` that was captured at several points, in order."""
        task = self.task
        parts = [self._seams.cut(*part) for part in self._parts(self.progress)]
        found = {}
        for key in self.progress:
            seams = [part[key] for part in parts if key in part]
            if not seams:
                continue
            if task.split in self._seams.places:
                found[key] = self._decoded(key, seams)
            else:
                later = [*seams[1:], *([self._seams.waiting[key]] if key in self._seams.waiting else [])]
                found[key] = followed_by(seams[0], self._decoded(key, later))
        return found

    def _decoded(self, flow: bytes, seams: Iterable[Seam]) -> Seam:
        """The packets of a flow that was captured at several points which this run decoded, in order."""
        now, later = self._in_turn(seams)
        return now if flow in self.waiting else followed_by(now, later)

    def _in_turn(self, seams: Iterable[Seam]) -> tuple[Seam, Seam]:
        """The packets of a flow that was captured at several points, in order of time: those to decode now, and those
        that wait."""
        whole, until = joined(seams, by_time=True), self.task.merged_until
        note_points(whole.packets, self.task.points)
        end = len(whole.packets) if until is None else int(np.searchsorted(whole.times, until, "right"))
        if end == len(whole.packets):
            return whole, joined(())
        return part_of(whole, 0, end), part_of(whole, end, len(whole.packets))

    def _begin_file(self, file: int, packet: int) -> None:
        """Note that the next packets are from a file of the split."""
        if file == self._file:
            return
        self._file = file
        self._ledgers.begin(packet)
        if file in self.task.later_listeners:
            self._split.learn_listeners(self.task.later_listeners[file])

    def _follow(self) -> Iterator[Batch]:
        split_engine = self._split
        waiting = self._seams.waiting
        merged = {k: [waiting[k]] if k in waiting else [] for k in sorted(self._merged | waiting.keys())}
        for split, heads in self._follows.items():
            self._learn(self._secrets.later.get(split, b""))
            chained = {key: head for key, head in heads.items() if key not in merged}
            if chained:
                with closing(self._seams.open(split, chained, self.task.followed_ranges(split))) as reader:
                    yield from split_engine.follow(reader, chained, self._ledgers.begin)
                    self.outcome.followed += reader.bytes_read
            for key, seam in self._seams.cut(split, {k: h for k, h in heads.items() if k in merged}).items():
                merged[key].append(seam)
        if len(self.task.points):
            split_engine.assembler.expect_points(self.task.point_count)
        for key, seams in merged.items():
            now, later = self._in_turn(seams)
            yield from split_engine.follow(SeamPackets(now))
            if len(later.packets):
                self.waiting[key] = later
        while over := sorted(self._cannot_wait()):
            for key in over:
                yield from split_engine.follow(SeamPackets(self.waiting.pop(key)))

    def _cannot_wait(self) -> set[bytes]:
        """The flows whose packets must not wait: there is no state to leave them with, or they can have tokens."""
        states = self._split.states(self.waiting).by_flow()
        with_sasl = {
            flow for flow, state in states.items()
            if self.is_authenticating(flow, state.history) or shows_sasl(self.waiting[flow])
        }  # fmt: skip
        return (self.waiting.keys() - states.keys()) | with_sasl

    def _fill_outcome(self) -> None:
        engine, outcome = self.engine, self.outcome
        dissector = engine.dissector
        outcome.ledgers = self._ledgers.finish()
        outcome.not_captured = engine.not_captured
        outcome.without_key = unknown_randoms(engine.key_log)
        outcome.first, outcome.last = engine.first, engine.last
        found = {dissector.string(number) for number in self._topic_ids - {-1}}
        outcome.unnamed = found - self._names.keys()
        for number, name in engine.topic_names.items():
            outcome.names[dissector.string(number)] = dissector.string(name)
        for topic_id, topic in self._names.items():
            dissector.name_topic(topic_id, topic)

    @property
    def topic_names(self) -> Mapping[bytes, bytes]:
        """Topic names by id, of all splits."""
        return self._names

    @property
    def capture(self) -> int:
        """As of `CaptureLedgers`."""
        return self._ledgers.capture

    def are_shared(self, connections: Array) -> Array:
        """Whether other splits share connections with these keys (int64): bool (n,)."""
        return np.isin(connections, np.array(sorted(self._split.shared), np.int64))
