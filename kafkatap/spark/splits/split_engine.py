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
from kafkatap.kernels.arrays import as_bytes, copied, grown, taken
from kafkatap.reassembly import headers
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ACK, FLOW, LISTENER, SYN
from kafkatap.reports.batch import Batch

from ...engine import Assembled, Engine
from .connection_state import ConnectionState, History, history_of, resume, state_digest, under_way

Array = np.ndarray[Any, Any]
#: Bytes of a FLOW record that name the flow: the addresses and ports of its ends.
KEY_BYTES = 40
#: A head beyond all packets: the split has nothing of the flow for itself.
NOTHING = 2**62
#: Exchanges of a split are numbered from here on, times the split's number plus one.
EXCHANGES_A_SPLIT = 1 << 32

_WAYS = (
    "retransmitted_bytes", "retransmitted_packets", "out_of_order", "gap_bytes", "gaps", "zero_windows", "bytes",
    "stray_bytes", "cut_bytes",
)  # fmt: skip
_STREAMS = ("frame_bytes", "token_bytes", "skipped_bytes")


def flow_keys(flows: Array) -> list[bytes]:
    """What names each flow: FLOW (n,) -> n times KEY_BYTES bytes."""
    raw = as_bytes(np.ascontiguousarray(flows)).reshape(len(flows), FLOW.itemsize)[:, :KEY_BYTES]
    whole = np.ascontiguousarray(raw).tobytes()
    return [whole[i : i + KEY_BYTES] for i in range(0, len(whole), KEY_BYTES)]


class SplitAssembler(Assembler):
    """Leaves out the segments that belong to other splits, and keeps flows where they are in the table."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: Of each flow named here only packets behind this one are taken.
        self.heads: Mapping[bytes, int] = {}
        self.known = 0  # flows whose head is in `_from`
        self._from: Array = np.zeros(256, np.int64)
        #: (flow, packet) of the segments of each call of the kernel, when somebody asks to know.
        self.seen: list[tuple[Array, Array]] | None = None

    def keys(self, first: int = 0) -> list[bytes]:
        return flow_keys(self.flows[first : int(self.counts[headers.FLOWS])])

    def classified(self, block: Array, packets: Array, first: int, count: int) -> Iterator[tuple[Array, Array]]:
        """The flow and the packet of each segment of packets[first:count], without putting them together."""
        while first < count:
            first = headers.read_headers(
                block, packets, first, count, self.counts, self.flows, self.buckets, self.segments
            )
            segments = self.segments[: int(self.counts[headers.SEGMENTS])]
            yield segments["flow"].copy(), segments["packet"].copy()
            if self.counts[headers.STOPPED] == headers.FLOWS_FULL:
                self._grow_flows()

    def _assemble(self, block: Array, count: int) -> Iterator[int]:
        if self.seen is not None and count:
            segments = self.segments[:count]
            self.seen.append((segments["flow"].copy(), segments["packet"].copy()))
        if not self.heads or not count:
            yield from super()._assemble(block, count)
            return
        kept, answers = self._sieve(count)
        # Who listens is known from the packet on that tells it, be it another split's.
        segments = copied(self.segments[:count])
        before = 0
        for place in (*answers.tolist(), count):
            mine = kept[np.searchsorted(kept, before) : np.searchsorted(kept, place)]
            if len(mine):
                as_bytes(self.segments)[: len(mine) * segments.itemsize] = as_bytes(taken(segments, mine))
                yield from super()._assemble(block, len(mine))
            if place < count:
                self._learn_listener(segments[place])
            before = place

    def _learn_listener(self, answer: Any) -> None:
        flow, end = self.flows[answer["flow"]], "b" if answer["direction"] else "a"
        row = [(flow[f"{end}_high"], flow[f"{end}_low"], flow[f"{end}_port"])]
        self.learn_listeners(np.array(row, LISTENER))

    def _sieve(self, count: int) -> tuple[Array, Array]:
        """The places of the segments that are this split's, and of SYN-ACKs that are not."""
        flows = int(self.counts[headers.FLOWS])
        if flows > len(self._from):
            self._from = np.concatenate((self._from, np.zeros(flows, np.int64)))
        if flows > self.known:
            for number, key in enumerate(self.keys(self.known), self.known):
                self._from[number] = self.heads.get(key, 0)
            self.known = flows
        segments = self.segments[:count]
        mine = segments["packet"] > self._from[segments["flow"]]
        answers = ~mine & (segments["tcp_flags"] & (SYN | ACK) == SYN | ACK)
        return np.flatnonzero(mine), np.flatnonzero(answers)

    def _grow_flows(self) -> None:
        self.flows = grown(self.flows)
        self._hash_flows()


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
        counts = self.assembler.counts.copy()
        for _ in self.take(buffer, packets, 0, count):
            pass
        self._uncount(counts)
        for c, history in self._known.items():
            resume(self.assembler, c, history)
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
        latest = assembler.flows["connection"][: int(assembler.counts[headers.FLOWS])]
        kept = set(self._alive(latest[latest >= 0].tolist()))
        old = [c for c in np.flatnonzero(assembler.connections["used"] == 1).tolist() if c not in kept]
        assembler.connections["used"][old] = 2
        over = np.flatnonzero(assembler.connections["used"] != 1)
        begun = np.flatnonzero(assembler.connections["used"] == 1)
        self.shared.update(self.dissector.dialogs["serial"][begun].tolist())
        both = (2 * over[:, None] + (0, 1)).reshape(-1)
        streams, ways = copied(self.dissector.streams), copied(assembler.directions)
        for c in begun.tolist():
            if self._unread(c):
                streams["skipped_bytes"][2 * c : 2 * c + 2] += self._searched(c)
        packets = assembler.connections["packets"].copy()
        packets[over] = 0
        as_bytes(ways).reshape(len(ways), -1)[both] = 0
        as_bytes(streams).reshape(len(streams), -1)[both[both < len(streams)]] = 0
        self._before = {
            "state": self.dissector.state.copy(),
            "bytes": dict(self._bytes),
            "not_captured": self.not_captured,
            "streams": streams,
            "ways": ways,
            "packets": packets,
        }

    def follow(self, buffer: Array, packets: Array, count: int) -> Iterator[Batch]:
        """Take packets of a later split that belong here."""
        counts, heads = self.assembler.counts.copy(), self.assembler.heads
        read = self.packets, self.first, self.last
        self.assembler.heads = {}
        yield from self.take(buffer, packets, 0, count)
        self.assembler.heads = heads
        self.packets, self.first, self.last = read
        self._uncount(counts)

    def _uncount(self, counts: Array) -> None:
        """These packets are counted where they were read."""
        for place in (*range(len(headers.CATEGORIES)), headers.PAYLOAD):
            self.assembler.counts[place] = counts[place]

    def current(self, flows: list[bytes]) -> dict[bytes, int]:
        """The connection that each of these flows is in now; those without one are left out."""
        wanted = set(flows)
        numbers = self.assembler.flows["connection"]
        return {
            key: int(numbers[i]) for i, key in enumerate(self.assembler.keys()) if key in wanted and numbers[i] >= 0
        }

    def states(self, flows: list[bytes]) -> dict[bytes, ConnectionState]:
        """The state of each flow's connection. Flows without one are left out."""
        return {key: self.state_of(c) for key, c in self.current(flows).items()}

    def state_of(self, c: int) -> ConnectionState:
        """The state of connection `c`."""
        history = history_of(self.assembler, self.dissector, c, self.began(c))
        return ConnectionState(state_digest(self.assembler, self.dissector, c), history)

    def detach(self, flows: list[bytes]) -> None:
        """Count what these flows' connections had so far without ending them: other splits continue them."""
        ended = np.array(self._alive(list(self.current(flows).values())), np.int64)
        if not len(ended):
            return
        assembler = self.assembler
        for c in ended.tolist():
            if self._unread(c):
                self.dissector.streams["skipped_bytes"][2 * c : 2 * c + 2] += self._searched(c)
        ways = (2 * ended[:, None] + (0, 1)).reshape(-1)
        none = np.zeros(0, np.int64)
        part = Assembled(
            np.zeros(1, np.uint8), assembler.pool, assembler.chunks[:0], len(assembler.connections),
            none, none, assembler.flows[:0], ended, taken(assembler.connections, ended),
            taken(assembler.directions, ways),
        )  # fmt: skip
        self._close(part)
        self.shared.update(self.dissector.dialogs["serial"][ended].tolist())
        assembler.connections["used"][ended] = 2
        assembler.flows["connection"][assembler.connections["flow"][ended]] = -1

    def end_closed(self) -> Iterator[Batch]:
        """End the connections that were closed long ago, as seen from the latest packet."""
        for part in self._end(np.zeros(1, np.uint8), everything=False):
            yield from self.dissect(part)

    def open_flows(self) -> dict[bytes, tuple[ConnectionState, bool]]:
        """The state of each flow that has a connection, and whether that connection was closed."""
        keys = self.assembler.keys()
        current = self.current(keys)
        closed = self.assembler.connections["closed_at"]
        return {key: (state, bool(closed[current[key]])) for key, state in self.states(keys).items()}

    def _alive(self, connections: list[int]) -> list[int]:
        """These connections and those before them on the same 4-tuples that packets may still come for, ascending."""
        return sorted({*connections, *(c for c in (under_way(self.assembler, c) for c in connections) if c >= 0)})

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
            if history is None or part.chunks["captured"][place] == 1:
                continue
            part.chunks["at"][place] = history.connection
            part.chunks["captured"][place] = dialog_rows.RESUMED
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
        before = part.ended[part.ended < len(self._before["packets"])]
        rows = np.arange(len(part.ended))[part.ended < len(self._before["packets"])]
        part.ended_rows["packets"][rows] -= self._before["packets"][before]
        self._before["packets"][before] = 0
        both = (2 * before[:, None] + (0, 1)).reshape(-1)
        places = (2 * rows[:, None] + (0, 1)).reshape(-1)
        for name in _WAYS:
            part.ended_ways[name][places] -= self._before["ways"][name][both]
            self._before["ways"][name][both] = 0
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
