"""The engine: packets in, finished tables out, the same for the command line, live capture and cluster jobs.

`Engine.take(buffer, packets, first, count)` runs reassembly and dissection over packets that lie in `buffer` and yields
`Batch`es of finished rows; `finish()` gives what is left. No result depends on how packets are cut into blocks.

Both are two halves that share nothing but the `Assembled` parts that go from one to the other, so that each may run in
a thread of its own: `assemble` and `assemble_rest` on this side of them, `dissect` on the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from kafkatap.dissector.dissector import Dissector, Finished
from kafkatap.dissector.dtypes import MAX_FRAME
from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA, PROTOCOL_TLS
from kafkatap.dissector.inspection import Inspector
from kafkatap.dissector.programs import loading
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.program import Programs
from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels import store
from kafkatap.kernels.arrays import copied, taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import CHUNK_START, OPENING_HINT, OPENING_UNKNOWN, ROW_OPEN
from kafkatap.reports.batch import CONNECTION_ROW, Batch, Context, FileInfo
from kafkatap.reports.counting.connection_counts import ConnectionCounts

from .captures.readahead import AHEAD
from .endpoints import Endpoints
from .kernel_modules import KERNEL_MODULES
from .open_topics import OpenTopics

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions

    from .selection import Selection

Array = np.ndarray[Any, Any]
_NONE = np.zeros(0, np.int64)

#: Blocks between two looks for connections that are over; how many that begin or close call for one sooner.
REAP_EVERY = 16
REAP_CHANGES = 32_768


@dataclass(frozen=True, slots=True)
class Assembled:
    """What reassembly made of some packets. `block` and `held` hold the bytes until AHEAD more parts were made; all
    else is the receiver's own."""

    block: Array  # uint8
    held: Array  # uint8
    chunks: Array  # CHUNK
    connections: int  # how many rows the table of connections has
    started: Array  # the numbers of connections that began here
    started_serials: Array
    started_flows: Array  # FLOW, their ends
    ended: Array  # the numbers of connections that are over with these chunks
    ended_rows: Array  # CONNECTION
    ended_ways: Array  # DIRECTION, two a connection
    packets: int = 0
    first: int | None = None  # ns since the epoch, of these packets
    last: int | None = None


def _programs(name: str, definitions: Definitions | None) -> Programs:
    return _built_in(name) if definitions is None else load_programs(name, definitions)


@cache
def _built_in(name: str) -> Programs:
    """Kept, as executors have an engine for every split, and to load one takes 10 ms."""
    return load_programs(name)


def engine_for(
    selection: Selection,
    all_results: bool = False,
    ports: Sequence[int] = (),
    definitions: Definitions | None = None,
    tables: bool = True,
    max_frame: int | None = None,
) -> Engine:
    """An engine that decodes what a selection compares. Of APIs that cannot match it decodes only what others need."""
    needed = selection.engine_options
    return Engine(
        all_results or needed.all_results, ports, needed.inspectors, definitions, needed.apis, tables=tables,
        max_frame=max_frame,
    )  # fmt: skip


class Strings(Sequence[bytes | None]):
    """The interned strings by number. They grow while the engine runs."""

    def __init__(self, dissector: Dissector) -> None:
        self._dissector = dissector

    def __len__(self) -> int:
        return len(self._dissector.strings)

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes | None]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes | None]:
        if isinstance(number, slice):
            return [self._dissector.string(n) for n in range(len(self))[number]]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._dissector.string(number)


def open_definitions(folder: str | os.PathLike[str]) -> Definitions:
    """`loading.open_definitions`, with the compiled programs kept beside the kernels."""
    store.use(KERNEL_MODULES)
    return loading.open_definitions(folder)


class Engine:
    """One run over one sequence of packets.

    `all_results`: decode every body for its topics and results, not only what failed. `ports`: hints that brokers
    listen there, for connections that begin in the middle. `inspectors` see every message while its bytes are there.
    `definitions`: layouts of a newer Kafka, laid over the built-in ones. `apis`: only exchanges of these are to be
    right in all columns; of others' bodies no more is read than these need. `tables`: keep a row of each connection,
    and the topics of requests, for tables; else connections are only counted. `max_frame`: as of `Dissector`, bytes
    (None: MAX_FRAME).
    """

    def __init__(
        self,
        all_results: bool = False,
        ports: Sequence[int] = (),
        inspectors: Sequence[Inspector] = (),
        definitions: Definitions | None = None,
        apis: frozenset[int] | None = None,
        assembler: Assembler | None = None,
        tables: bool = True,
        max_frame: int | None = None,
    ) -> None:
        store.use(KERNEL_MODULES)
        self.assembler = assembler or Assembler(pools=AHEAD)
        programs, details = _programs("summary", definitions), _programs("results", definitions)
        head = None if apis is None else _programs("head", definitions)
        load_whole = partial(_programs, "everything", definitions)
        self.dissector = Dissector(
            programs, details, load_whole, all_results, inspectors, apis, head, max_frame or MAX_FRAME
        )
        self._endpoints = Endpoints(len(self.assembler.connections))
        self.addresses = self._endpoints.addresses
        self.strings = Strings(self.dissector)
        self._ports = np.array(ports, np.int32)
        self.packets = 0
        self.first: int | None = None
        self.last: int | None = None
        self._connections: list[Array] = []
        self._counted = None if tables else ConnectionCounts()
        self._topics: list[Array] = []
        self._open_topics = OpenTopics()
        #: Is called with connections that end, before they do: their numbers, CONNECTION and (two each) DIRECTION rows.
        self.watcher: Callable[[Engine, Array, Array, Array], None] | None = None
        self._blocks = 0
        self._reaped_at = 0  # `Assembler.begun_and_closed` when connections that are over were last looked for
        self._now = 0  # the latest time that reassembly saw
        self._bytes = dict.fromkeys(
            ("kafka_frames", "sasl_tokens", "encrypted", "not_kafka", "skipped", "retransmitted", "out_of_window"), 0
        )
        self.not_captured = 0

    def take(self, buffer: Array, packets: Array, first: int, count: int) -> Iterator[Batch]:
        """Take packets[first:count], whose bytes lie in `buffer`; yield batches of what is finished."""
        for part in self.assemble(buffer, packets, first, count):
            yield from self.dissect(part)

    def finish(self) -> Iterator[Batch]:
        """The input is over: end every connection and yield what that finishes."""
        for part in self.assemble_rest():
            yield from self.dissect(part)

    def assemble(self, buffer: Array, packets: Array, first: int, count: int) -> Iterator[Assembled]:
        """The first half of `take`: what reassembly makes of these packets."""
        times = packets["ts"][first:count]
        low, high = int(times.min()), int(times.max())
        self._now = max(self._now, high)
        assembler = self.assembler
        told: tuple[int, int | None, int | None] = (count - first, low, high)
        for chunks in assembler.feed(buffer, packets, first, count):
            yield self._part(buffer, chunks, _NONE, *told)
            told = (0, None, None)
        if told[0]:  # packets without a chunk
            yield self._part(buffer, 0, _NONE, *told)
        assembler.end_block()
        self._blocks += 1
        changes = assembler.begun_and_closed
        if self._blocks % REAP_EVERY == 0 or changes - self._reaped_at > REAP_CHANGES:
            self._reaped_at = changes
            yield from self._end(buffer, everything=False)

    def assemble_rest(self) -> Iterator[Assembled]:
        """The first half of `finish`."""
        yield from self._end(np.zeros(1, np.uint8), everything=True)

    def assemble_closed(self) -> Iterator[Assembled]:
        """The first half of ending the connections that were closed long before the latest packet."""
        yield from self._end(np.zeros(1, np.uint8), everything=False)

    def detached(self, connections: Array) -> Assembled:
        """The first half of dropping connections, which another run continues: they are counted, but do not end."""
        assembler = self.assembler
        rows, directions = assembler.detach(connections)
        return Assembled(
            np.zeros(1, np.uint8), assembler.pool, assembler.chunks[:0], len(assembler.connections), _NONE, _NONE,
            assembler.flows[:0], connections, rows, directions,
        )  # fmt: skip

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Within this context packets and their payload are not counted: another run counts them."""
        before = self.packets, self.first, self.last
        with self.assembler.uncounted():
            yield
        self.packets, self.first, self.last = before

    def discount(self) -> None:
        """Count from here on: what was counted so far, of the ledger and of open connections, counts in another run."""
        self.packets, self.first, self.last = 0, None, None
        self._connections.clear()
        self._bytes = dict.fromkeys(self._bytes, 0)
        self.not_captured = 0
        self.dissector.discount(np.flatnonzero(self.assembler.connections["used"] == ROW_OPEN))
        self.assembler.discount()

    def sweep(self, idle: int, patience: int) -> Iterator[Batch]:
        """End the connections that are over, and those silent for `idle` ns, and give up requests that have waited for
        `patience` ns: for input without an end."""
        nothing = np.zeros(1, np.uint8)
        for part in self._end(nothing, everything=False, idle=idle):
            yield from self.dissect(part)
        for finished in self.dissector.give_up(self._now - patience, nothing):
            yield from self._deliver(finished)

    def _end(self, buffer: Array, everything: bool, idle: int = 0) -> Iterator[Assembled]:
        for chunks, ended in self.assembler.finish(self._now, everything, idle):
            yield self._part(buffer, chunks, ended.astype(np.int64))
            if len(ended):
                self.assembler.release(ended)

    def _part(
        self,
        block: Array,
        count: int,
        ended: Array,
        packets: int = 0,
        first: int | None = None,
        last: int | None = None,
    ) -> Assembled:
        assembler = self.assembler
        chunks = copied(assembler.chunks[:count])
        started = np.flatnonzero(chunks["kind"] == CHUNK_START)
        numbers = chunks["connection"][started].astype(np.int64)
        flows = taken(assembler.flows, assembler.connections["flow"][numbers])
        if len(self._ports) and len(started):
            self._hint(chunks, started, flows)
        ways = (2 * ended[:, None] + (0, 1)).reshape(-1)
        return Assembled(
            block, assembler.pool, chunks, len(assembler.connections),
            numbers, assembler.connections["serial"][numbers], flows,
            ended, taken(assembler.connections, ended), taken(assembler.directions, ways),
            packets, first, last,
        )  # fmt: skip

    def _hint(self, chunks: Array, started: Array, flows: Array) -> None:
        """Tell the client's direction of connections without a SYN whose one end has a broker's port."""
        at_a, at_b = np.isin(flows["a_port"], self._ports), np.isin(flows["b_port"], self._ports)
        hinted = (at_a != at_b) & (chunks["opening"][started] == OPENING_UNKNOWN)
        where = started[hinted]
        chunks["direction"][where] = at_a[hinted]
        chunks["opening"][where] = OPENING_HINT

    def dissect(self, part: Assembled) -> Iterator[Batch]:
        """The second half: the exchanges that are finished with a part."""
        self.packets += part.packets
        if part.first is not None and part.last is not None:
            self.first = part.first if self.first is None else min(self.first, part.first)
            self.last = part.last if self.last is None else max(self.last, part.last)
        if len(part.started):
            self._begin(part)
        dissector = self.dissector
        if len(part.chunks):
            for finished in dissector.feed(part.block, part.held, part.chunks, len(part.chunks), part.connections):
                yield from self._deliver(finished)
        yield from self._deliver(dissector.drain(part.block, part.held))
        if len(part.ended):
            self._close(part)

    def _begin(self, part: Assembled) -> None:
        """Connections that begin in a part, before their bytes."""
        self._endpoints.begin(part.connections, part.started, part.started_flows)

    def _deliver(self, finished: Finished) -> Iterator[Batch]:
        rows = finished.exchanges
        wanted = self.dissector.all_results
        if len(finished.topics):
            if self._counted is None:
                self._topics.append(finished.topics)
            if wanted:
                self._open_topics.add(finished.topics)
        if not len(rows):
            return
        self._set_endpoints(rows, finished.connections)
        topics = self._open_topics.take(rows["exchange"]) if wanted else None
        yield Batch(rows, finished.results, finished.marks, topics, finished.provisional)

    def endpoints(self, connections: Array) -> Array:
        """Addresses and ports (int32, n x 4: client's address number and port, broker's) of connections by number; of
        end a as client where it is not known which end that is."""
        return self._endpoints.of(connections, self.dissector.connections["client"][connections] == 1)

    def _set_endpoints(self, rows: Array, connections: Array) -> None:
        ends = self.endpoints(connections)
        for column, name in enumerate(("client_ip", "client_port", "broker_ip", "broker_port")):
            rows[name] = ends[:, column]

    def _close(self, part: Assembled) -> None:
        """Keep a row of each connection that is over, and count its bytes in the ledger."""
        ended, table = part.ended, part.ended_rows
        if self.watcher is not None:
            self.watcher(self, ended, table, part.ended_ways)
        known = self.dissector.connections[ended]
        rows = np.zeros(len(ended), CONNECTION_ROW)
        rows["connection"] = known["serial"]
        for name in ("first", "last", "handshake_rtt_ns", "packets"):
            rows[name] = table[name]
        self._set_endpoints(rows, ended)
        for name in ("client_id", "software", "software_version", "protocol"):
            rows[name] = known[name]
        rows["sasl_mechanism"] = known["mechanism"]
        rows["orientation_known"] = known["client"] >= 0
        client = np.maximum(known["client"], 0)
        place = 2 * np.arange(len(ended))
        for prefix, side in (("client_", client), ("broker_", 1 - client)):
            ways = part.ended_ways[place + side]
            for name in (
                "retransmitted_bytes", "retransmitted_packets", "out_of_order", "gap_bytes", "gaps", "zero_windows",
            ):  # fmt: skip
                rows[prefix + name] = ways[name]
            rows[prefix + "bytes"] = ways["bytes"] - ways["retransmitted_bytes"] - ways["stray_bytes"]
        if self._counted is None:
            self._connections.append(rows)
        else:
            self._counted.add(rows)
        encrypted = known["protocol"] == PROTOCOL_TLS
        kafka = known["protocol"] == PROTOCOL_KAFKA
        parts = self._bytes
        for d in (0, 1):
            ways = part.ended_ways[d::2]
            streams = self.dissector.streams[2 * ended + d]
            skipped = streams["skipped_bytes"]
            parts["kafka_frames"] += int((streams["frame_bytes"] - streams["token_bytes"]).sum())
            parts["sasl_tokens"] += int(streams["token_bytes"].sum())
            parts["encrypted"] += int(skipped[encrypted].sum())
            parts["skipped"] += int(skipped[kafka].sum())
            parts["not_kafka"] += int(skipped[~encrypted & ~kafka].sum())
            parts["retransmitted"] += int(ways["retransmitted_bytes"].sum())
            parts["out_of_window"] += int(ways["stray_bytes"].sum())
            self.not_captured += int(ways["cut_bytes"].sum())

    @property
    def connections(self) -> Array:
        """CONNECTION_ROW of every connection that is over."""
        return np.concatenate(self._connections) if self._connections else np.zeros(0, CONNECTION_ROW)

    def take_connections(self) -> Array:
        """CONNECTION_ROW of the connections that are over since it was last asked. Once it is, `connections` and
        `topics` no longer hold what came before: for input without an end."""
        rows = self.connections
        self._connections.clear()
        self._topics.clear()
        return rows

    def forget_strings(self, kept: Array) -> Array:
        """`Dissector.forget_strings`, for the engine as well: new numbers by old ones. Nothing of it may be under way
        in another thread."""
        topics = self._open_topics.rows
        old = np.concatenate((kept, topics["topic"], topics["topic_id"]))
        numbers = self.dissector.forget_strings(old[old >= 0])
        for name in ("topic", "topic_id"):
            topics[name] = numbers[topics[name]]
        self._open_topics.replace(topics)
        return numbers

    def forget_addresses(self, kept: Array) -> Array:
        """Forget all addresses but those numbered in `kept` and those of open connections: `Endpoints.forget`."""
        return self._endpoints.forget(kept, self.assembler.connections["used"] != 0)

    @property
    def topics(self) -> Array:
        """EXCHANGE_TOPIC rows so far (all_results only)."""
        return np.concatenate(self._topics) if self._topics else np.zeros(0, EXCHANGE_TOPIC)

    @property
    def encrypted_share(self) -> float:
        """The part of the TCP payload so far that was TLS, 0 to 1."""
        total, known = self._payload_bytes(), self.dissector.connections
        used = self.assembler.connections["used"][: len(known)] == 1
        tls = np.flatnonzero(used & (known["protocol"][: len(used)] == PROTOCOL_TLS))
        skipped = self.dissector.streams["skipped_bytes"]
        encrypted = self._bytes["encrypted"] + int(skipped[2 * tls].sum() + skipped[2 * tls + 1].sum())
        return min(encrypted / total, 1.0) if total else 0.0

    @property
    def topic_names(self) -> dict[int, int]:
        """String number of a topic id -> that of its name, as Metadata and CreateTopics responses told."""
        return self.dissector.topic_names

    def set_detail(self, all_results: bool) -> None:
        """Decode every body for its topics and results from now on, or only what failed. Exchanges that are under way
        may lack the topics of their request."""
        self.dissector.all_results = all_results
        if not all_results:
            self._open_topics.clear()

    def provisional_rows(self, before: int) -> Batch | None:
        """Rows of requests that will most likely end without a response, each once: requests with acks=0 from before a
        time (ns since the epoch), and the waiting requests of closed connections. Their final rows come later, marked
        by `Batch.provisional`. None if there are no such rows."""
        found = self.dissector.provisional(before, self._closed())
        rows = found.exchanges
        if not len(rows):
            return None
        self._set_endpoints(rows, found.connections)
        topics = self._open_topics.look(rows["exchange"]) if self.dissector.all_results else None
        return Batch(rows, found.results, found.marks, topics)

    @property
    def latest(self) -> int:
        """The latest time of all packets so far, ns since the epoch."""
        return self._now

    @property
    def next_exchange(self) -> int:
        """The number of the next request's exchange."""
        return self.dissector.next_exchange

    @property
    def requests_waiting(self) -> int:
        """Requests that a response is expected to, of connections that are not closed."""
        return self.dissector.count_waiting(self._closed())

    @property
    def connections_open(self) -> int:
        """How many connections are there."""
        return len(self.open_connections())

    def open_connections(self) -> Array:
        """The numbers of connections that are there: not closed, and not only asked for by a SYN."""
        rows = self.assembler.connections
        return np.flatnonzero((rows["used"] == 1) & (rows["closed_at"] == 0) & (rows["only_syn"] == 0))

    def _closed(self) -> Array:
        """Which connections are closed by FINs or a RST, by number: uint8."""
        closed: Array = (self.assembler.connections["closed_at"] != 0).view(np.uint8)
        return closed

    def context(self, files: Sequence[FileInfo] = (), connections: Array | None = None) -> Context:
        """What the reports and tables need beside the rows. `connections`: CONNECTION_ROW; None: all that are over."""
        return Context(
            strings=self.strings[:],
            addresses=list(self.addresses),
            topic_names=dict(self.topic_names),
            connections=self.connections if connections is None else connections,
            files=files,
            ledger=self.ledger(),
            first=self.first,
            last=self.last,
            packets=self.packets,
            encrypted_share=self.encrypted_share,
            known_versions=self.dissector.programs.known_versions,
            not_captured=self.not_captured,
            counted=self._counted if connections is None else None,
        )

    def ledger(self) -> dict[str, dict[str, int]]:
        """Every packet, payload byte, request and response in exactly one named place; the parts sum to "total"."""
        frames = self.dissector.frame_counts
        requests = {
            "answered": int(frames.answered),
            "no_reply_expected": int(frames.no_reply_expected),
            "unanswered": int(frames.unanswered),
            "response_lost": int(frames.response_lost),
            "sasl_tokens": int(frames.request_tokens),
            "header_not_captured": int(frames.requests_headerless),
        }
        responses = {
            "matched": int(frames.answered),
            "orphan": int(frames.orphan_responses),
            "sasl_tokens": int(frames.response_tokens),
            "header_not_captured": int(frames.responses_headerless),
        }
        return {
            "packets": {**self.assembler.packet_counts, "total": self.packets},
            "payload bytes": {**self._bytes, "total": self._payload_bytes()},
            "requests": {**requests, "total": int(frames.requests)},
            "responses": {**responses, "total": int(frames.responses)},
        }

    def _payload_bytes(self) -> int:
        """TCP payload on the wire, as the headers tell it: counted where segments are read, not from the parts."""
        return self.assembler.payload_bytes
