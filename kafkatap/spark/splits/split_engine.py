"""The engine over one split of a capture: what it adds up is only what this split stands for.

A TCP flow (4-tuple) may go on from an earlier split, and on into later ones. Per flow and split the plan names a
packet, its *head*: what comes up to it belongs to the split before, what comes after it to this one. So the engine runs
in three steps, in each of which every flow sees its packets in order, so that its connections fare as they would in one
run:

    prime   the packets up to each flow's head; nothing they finish counts here, only the state that they leave
    own     the split's packets, without those that belong to other splits
    follow  packets of later splits up to the next head of each flow (or to the end), which belong here

`claims` are digests of the flows' states at their heads, `arrivals` at the next heads: the same flow's arrival at one
split and claim at the next have to be equal, else the head was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kafkatap.dissector.framing import connections as dialog_rows
from kafkatap.kernels.arrays import as_bytes, copied, taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ACK, LISTENER, OPENING_RESUMED, OPENING_SYN, SYN
from kafkatap.reassembly.flows import flow_keys
from kafkatap.reports.batch import Batch

from ...engine import Assembled, Engine
from .handover import History, history_of, resume, state_digest

Array = np.ndarray[Any, Any]
#: A head beyond all packets: the split has nothing of the flow for itself.
NOTHING = 2**62
#: Exchanges of a split are numbered from here on, times the split's number plus one.
EXCHANGES_A_SPLIT = 1 << 32

_STREAMS = ("frame_bytes", "token_bytes", "skipped_bytes")


class SplitAssembler(Assembler):
    """Leaves out the segments that belong to other splits, and keeps flows where they are in the table."""

    def __init__(self, **options: Any) -> None:
        super().__init__(keep_flows=True, segment_filter=self._own_segments, **options)
        #: Of each flow named here only packets behind this one are assembled.
        self.heads: Mapping[bytes, int] = {}
        self.known = 0  # flows whose head is in `_from`
        self._from: Array = np.zeros(256, np.int64)
        #: (flow, packet) of the segments of each call of the kernel, if a list.
        self.seen: list[tuple[Array, Array]] | None = None

    def _own_segments(self, segments: Array) -> Iterator[Array]:
        if self.seen is not None:
            self.seen.append((segments["flow"].copy(), segments["packet"].copy()))
        if not self.heads or not len(segments):
            yield segments
            return
        kept, answers = self._sieve(segments)
        # Who listens is known from the packet that shows it, be it another split's.
        before = 0
        for place in (*answers.tolist(), len(segments)):
            yield taken(segments, kept[np.searchsorted(kept, before) : np.searchsorted(kept, place)])
            self.learn_answers(segments[place : place + 1])
            before = place

    def _sieve(self, segments: Array) -> tuple[Array, Array]:
        """The places of the segments that are this split's, and of SYN-ACKs that are not."""
        flows = len(self.flows)
        if flows > len(self._from):
            self._from = np.concatenate((self._from, np.zeros(flows, np.int64)))
        if flows > self.known:
            for number, key in enumerate(self.flow_keys(self.known), self.known):
                self._from[number] = self.heads.get(key, 0)
            self.known = flows
        mine = segments["packet"] > self._from[segments["flow"]]
        answers = ~mine & (segments["tcp_flags"] & (SYN | ACK) == SYN | ACK)
        return np.flatnonzero(mine), np.flatnonzero(answers)


class SplitEngine(Engine):
    """`histories`: what earlier splits knew of the connection that each flow was in, by flow. `heads`: by flow, up to
    which packet it belongs to another split. `split` numbers exchanges; connections bear their first packet's number.
    """

    assembler: SplitAssembler

    def __init__(
        self,
        split: int,
        histories: Mapping[bytes, History] | None = None,
        heads: Mapping[bytes, int] | None = None,
        listeners: Array | None = None,
        **options: Any,
    ) -> None:
        super().__init__(assembler=SplitAssembler(), **options)
        self.dissector.state[dialog_rows.NEXT_EXCHANGE] = (split + 1) * EXCHANGES_A_SPLIT + 1
        self._resumed: dict[bytes, History] = dict(histories or {})
        self._heads = dict(heads or {})
        self._before: dict[str, Any] = {}
        self.shared: set[int] = set()  # numbers of the connections that other splits have a part of
        self._numbers: dict[bytes, int] = {}  # of the strings in histories
        self._began: dict[int, int] = {}  # first packet's time of resumed connections, by slot
        self._known: dict[int, History] = {}  # what they are to know when they are primed
        self._listeners: Array = np.zeros(0, LISTENER) if listeners is None else listeners
        self.assembler.learn_listeners(self._listeners)

    # The three steps. Each takes blocks of packets whose bytes lie in `buffer`.

    def prime(self, buffer: Array, packets: Array, count: int) -> None:
        """Take packets that belong to earlier splits."""
        with self.assembler.uncounted():
            for _ in self.take(buffer, packets, 0, count):
                pass
        for c, history in self._known.items():
            resume(self, c, history)
        self._known.clear()

    def own(self) -> None:
        """From here on packets belong to this split: what was added up so far does not."""
        self.packets, self.first, self.last = 0, None, None
        self.assembler.heads = self._heads
        self.assembler.forget_listeners()
        self.assembler.learn_listeners(self._listeners)
        self._connections.clear()
        assembler = self.assembler
        # What nothing can come for any more was ended where it began.
        latest = assembler.flows["connection"]
        kept = set(self._alive(latest[latest >= 0].tolist()))
        old = [c for c in np.flatnonzero(assembler.connections["used"] == 1).tolist() if c not in kept]
        assembler.detach(np.array(old, np.int64))
        over = np.flatnonzero(assembler.connections["used"] != 1)
        begun = np.flatnonzero(assembler.connections["used"] == 1)
        self.shared.update(self.dissector.dialogs["serial"][begun].tolist())
        both = (2 * over[:, None] + (0, 1)).reshape(-1)
        streams = copied(self.dissector.streams)
        for c in begun.tolist():
            if self._unread(c):
                streams["skipped_bytes"][2 * c : 2 * c + 2] += self._searched(c)
        assembler.discount()
        as_bytes(streams).reshape(len(streams), -1)[both[both < len(streams)]] = 0
        self._before = {
            "state": self.dissector.state.copy(),
            "bytes": dict(self._bytes),
            "not_captured": self.not_captured,
            "streams": streams,
        }

    def follow(self, buffer: Array, packets: Array, count: int) -> Iterator[Batch]:
        """Take packets of a later split that belong here."""
        heads = self.assembler.heads
        read = self.packets, self.first, self.last
        self.assembler.heads = {}
        with self.assembler.uncounted():
            yield from self.take(buffer, packets, 0, count)
        self.assembler.heads = heads
        self.packets, self.first, self.last = read

    def current(self, flows: list[bytes]) -> dict[bytes, int]:
        """The connection that each of these flows is in now; those without one are left out."""
        wanted = set(flows)
        numbers = self.assembler.flows["connection"]
        return {
            key: int(numbers[i])
            for i, key in enumerate(self.assembler.flow_keys())
            if key in wanted and numbers[i] >= 0
        }

    def states(self, flows: list[bytes]) -> dict[bytes, tuple[bytes, History]]:
        """The digest of each flow's state, and what is known of its connection. Flows without one are left out."""
        return {key: (state_digest(self, c), history_of(self, c)) for key, c in self.current(flows).items()}

    def hand_over(self, flows: list[bytes]) -> None:
        """Other splits go on with these flows: count what there was of their connections, but do not end them."""
        ended = np.array(self._alive(list(self.current(flows).values())), np.int64)
        if not len(ended):
            return
        assembler = self.assembler
        for c in ended.tolist():
            if self._unread(c):
                self.dissector.streams["skipped_bytes"][2 * c : 2 * c + 2] += self._searched(c)
        rows, directions = assembler.detach(ended)
        none = np.zeros(0, np.int64)
        part = Assembled(
            np.zeros(1, np.uint8), assembler.pool, assembler.chunks[:0], len(assembler.connections),
            none, none, assembler.flows[:0], ended, rows, directions,
        )  # fmt: skip
        self._close(part)
        self.shared.update(self.dissector.dialogs["serial"][ended].tolist())

    def end_closed(self) -> Iterator[Batch]:
        """End the connections that were closed long ago, as seen from the latest packet."""
        for part in self._end(np.zeros(1, np.uint8), everything=False):
            yield from self.dissect(part)

    def open_flows(self) -> dict[bytes, tuple[tuple[bytes, History], bool]]:
        """Of each flow that is in a connection: its state as of `states`, and whether that was closed."""
        keys = self.assembler.flow_keys()
        current = self.current(keys)
        closed = self.assembler.connections["closed_at"]
        return {key: (state, bool(closed[current[key]])) for key, state in self.states(keys).items()}

    def _alive(self, connections: list[int]) -> list[int]:
        """These connections and those before them on the same 4-tuples that packets may still come for, ascending."""
        return sorted(
            {*connections, *(c for c in (self.assembler.earlier_connection(c) for c in connections) if c >= 0)}
        )

    def _unread(self, c: int) -> bool:
        """Whether nothing of connection `c` is read any more: what other splits know of it has no bytes."""
        return int(self.dissector.dialogs["protocol"][c]) in (dialog_rows.TLS, dialog_rows.FOREIGN)

    def _searched(self, c: int) -> list[int]:
        """Bytes of both directions that lie in search buffers."""
        found = [0, 0]
        for side in (0, 1):
            number = int(self.dissector.streams["marks_first"][2 * c + side])
            while number >= 0:
                found[side] += int(self.dissector.marks["wire"][number])
                number = int(self.dissector.marks["next"][number])
        return found

    def began(self, c: int) -> int:
        """When connection `c` began, be it in an earlier split."""
        return self._began.get(c, int(self.assembler.connections["first"][c]))

    def _begin(self, part: Assembled) -> None:
        super()._begin(part)
        at = np.flatnonzero(part.chunks["kind"] == dialog_rows.START)
        part.chunks["at"][at] = part.chunks["packet"][at]
        if not self._resumed:
            return
        self.dissector.make_room(part.connections)
        for place, c, key in zip(at.tolist(), part.started.tolist(), flow_keys(part.started_flows), strict=True):
            history = self._resumed.pop(key, None)
            if history is None or part.chunks["opening"][place] == OPENING_SYN:
                continue
            part.chunks["at"][place] = history.connection
            part.chunks["opening"][place] = OPENING_RESUMED
            history.put(self.dissector, c, self._numbers)
            self._began[c] = history.first
            self._known[c] = history
            self.assembler.connections["handshake_rtt_ns"][c] = history.handshake_rtt_ns

    def _close(self, part: Assembled) -> None:
        self._less(part)
        super()._close(part)

    def _less(self, part: Assembled) -> None:
        """Take off what belongs to earlier splits; what began there began when it did."""
        for i, c in enumerate(part.ended.tolist()):
            first = self._began.pop(c, None)
            if first is not None:
                part.ended_rows["first"][i] = first
        if not self._before:
            return
        both = (2 * part.ended[:, None] + (0, 1)).reshape(-1)
        there = both[both < len(self._before["streams"])]
        for name in _STREAMS:
            self.dissector.streams[name][there] -= self._before["streams"][name][there]
            self._before["streams"][name][there] = 0

    def ledger(self) -> dict[str, dict[str, int]]:
        found = super().ledger()
        if self._before:
            counts = self.dissector.state
            mine = counts.copy()
            mine[dialog_rows.COUNTS :] -= self._before["state"][dialog_rows.COUNTS :]
            self.dissector.state, kept = mine, counts
            found = super().ledger()
            self.dissector.state = kept
            section = found["payload bytes"]
            for name, count in self._before["bytes"].items():
                section[name] -= count
        return found

    @property
    def uncaptured(self) -> int:
        """Bytes that the snap length cut off, of this split's packets."""
        return self.not_captured - int(self._before.get("not_captured", 0))
