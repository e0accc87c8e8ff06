"""Chunks in, finished exchanges out: the owner of the tables of framing, correlation and decoding.

`feed(block, held, chunks, count)` reads what reassembly made of one block. `drain(block, held)` decodes the bodies of
the frames so far and returns the finished exchanges. Frames point into the block, so drain before its bytes change;
`feed` drains by itself when a table is full.

`connection_states`, `resume` and `discount` are for drivers that read one connection in several runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import grown, is_among, return_memory, taken, untouched
from kafkatap.kernels.table import Column, SlotTable, Table
from kafkatap.kernels.writers import written

from . import expiry
from .decoding import BodyDecoder, choose_programs
from .drain import DRAINED, NEEDS_INSPECTION, drain_frames
from .dtypes import EXCHANGE, EXCHANGE_STRINGS, IN_FLIGHT, LATE_NS, MAX_FRAME, NO_TIME, RESULT, WAITS
from .framing.buffers import FREE_KEPT, BufferPool
from .framing.chunks import read_chunks
from .framing.connections import CONNECTION, CONNECTION_SUMS, SILENCE, SILENCE_SUMS, STREAM, STREAM_SUMS
from .framing.known_brokers import PLACES, add_key
from .framing.samples import SAMPLE, SAMPLES
from .framing.tables import (
    CLOSED_BY_BIT,
    FRAME_COUNTS,
    FRAMING_STATE,
    FULL_DEFERRED,
    FULL_EXCHANGES,
    FULL_FINISHED,
    FULL_JOBS,
    FULL_POOL,
    FULL_SEGMENTS,
    FULL_SILENCES,
    FULL_STRINGS,
    FULL_TEXT,
    HEAD_KEPT,
    LINK,
    SEGMENT,
    Tables,
)
from .held_frames import HEAD_ONLY, cut_frames, drop_searched, held_bytes
from .inspection import Frames, Inspector
from .programs.machine import JOB
from .programs.program import Programs
from .strings import Strings, StringTable

if TYPE_CHECKING:
    from .connection_state import ConnectionFacts
    from .facts.fact_collector import FactCollector

Array = np.ndarray[Any, Any]
#: The one topic whose id is fixed, and that no Metadata response names (KIP-500).
METADATA_TOPIC, METADATA_TOPIC_ID = b"__cluster_metadata", bytes(15) + b"\1"
#: `most_kept` of a dissector that keeps all of each frame.
_KEEP_ALL = 2**62
#: Places of counts in a FRAMING_STATE.
_FULL, _JOBS, _FINISHED, _DEFERRED, _POOL_TOP, _FREE_LARGE_BYTES, _NEW_SOURCES = (
    FRAMING_STATE.names.index(name)  # type: ignore[union-attr]
    for name in ("full", "jobs", "finished", "deferred", "pool_top", "free_large_bytes", "new_sources")
)
#: Connections for which there is room at first.
_CONNECTIONS = 256
#: The API, and the value of acks, with which a request waits for replicas.
_PRODUCE, _ALL = 0, -1
_NO_BYTES, _NO_MARKS = np.zeros(0, np.uint8), np.zeros(0, np.uint64)


class Finished(NamedTuple):
    """The result of one drain. The arrays are the receiver's own."""

    exchanges: Array  # EXCHANGE
    results: Array  # RESULT
    topics: Array  # EXCHANGE_TOPIC; empty if not every body is decoded with its details
    marks: Array | None  # uint64, by exchange: bits that inspectors set; None without inspectors
    provisional: Array | None = (
        None  # uint8, by exchange: 1 + the outcome of its provisional row, 0 (LINK); None without any
    )
    facts: Array | None = None  # FACT, in order of their exchanges; None without a collector of facts
    #: EXCHANGE and FACT rows of bare SASL tokens, if there are any and a collector of facts wants them.
    tokens: tuple[Array, Array] | None = None


class Dissector:
    """Kafka's side of the engine.

    `programs` decode the bodies. `details` (the RESULTS profile) decode responses with error codes, or every body if
    `all_results` is set. `load_whole` loads the programs of the EVERYTHING profile, which name the field at which a
    message is malformed. `inspectors` see the messages of each drain. `apis`: of other APIs than these only `head` is
    decoded (in the first `head_kept` bytes of the frame), which suffices for right rows of these. `max_frame`: of a
    larger frame (with its size field) only the first 64 KiB are decoded; its status is then `too_large`.
    `late`: ns; a request that has waited for less when the capture ends is in flight.

    The ends of connections mean nothing here: `ends` passes them on to exchanges.

    Large tables take memory only where they are used.
    """

    def __init__(
        self,
        programs: Programs,
        details: Programs,
        load_whole: Callable[[], Programs] | None,
        all_results: bool = False,
        inspectors: Sequence[Inspector] = (),
        apis: frozenset[int] | None = None,
        head: Programs | None = None,
        max_frame: int = MAX_FRAME,
        head_kept: int = HEAD_KEPT,
        late: int = LATE_NS,
    ) -> None:
        self.programs = programs
        self.strings = StringTable()
        self.cut_frames = 0  # frames that `limit_held` has cut
        chosen = choose_programs(programs, details, None if apis is None else head, apis or frozenset())
        self._index = chosen.framed_index
        self._decoder = BodyDecoder(chosen, load_whole, self.strings)
        self._connections = Table(
            _CONNECTIONS, moves=True, connections=CONNECTION, samples=Column(SAMPLE, SAMPLES),
            streams=Column(STREAM, 2), ends=Column(np.int32, 8),
        )  # fmt: skip
        self._silences = Table(64, silences=SILENCE)
        self._segments = SlotTable(4_096, segments=SEGMENT)
        self._exchanges = SlotTable(65_536, exchanges=EXCHANGE, links=LINK, marks=np.uint64)
        self._pool = BufferPool()
        self._jobs: Array = untouched(49_152, JOB)
        self._finished: Array = np.zeros(98_304, np.int32)
        self._state: Array = np.zeros(1, FRAMING_STATE)
        self._numbers: Array = self._state.view(np.int64)  # numpy takes a microsecond for a field of a record
        self._state[0].max_frame = max_frame
        self._state[0].head_kept = head_kept
        self._state[0].next_exchange = 1
        self._state[0].late = late
        self._counts: Array = np.zeros(1, FRAME_COUNTS)
        self._brokers: Array = np.zeros(PLACES, np.int32)
        self._missed: Array = np.zeros(PLACES, np.int32)
        self._has_provisional = False
        self._bound: _BoundKernels | None = None
        #: Called before a drain with connections that have a new source by a PROXY header: it changes their `ends`.
        self.on_sources: Callable[[Array], None] | None = None
        self._all_results, self._inspectors = all_results, tuple(inspectors)
        self._facts: FactCollector | None = None
        self._decoder.set_mode(all_results, bool(inspectors))
        self._is_limited = False
        self.shed(None)
        self.name_topic(METADATA_TOPIC_ID, METADATA_TOPIC)

    # Tables. They are other arrays after a feed or a drain.

    @property
    def all_results(self) -> bool:
        """Whether every body is decoded with its details, and not only responses with error codes."""
        return self._all_results

    @all_results.setter
    def all_results(self, value: bool) -> None:
        self._all_results = value
        self._set_mode()

    @property
    def inspectors(self) -> tuple[Inspector, ...]:
        """What sees the messages of each drain."""
        return self._inspectors

    @inspectors.setter
    def inspectors(self, value: Sequence[Inspector]) -> None:
        self._inspectors = tuple(value)
        self._set_mode()

    def collect_facts(self, kinds: Iterable[int], programs: Programs) -> None:
        """From now on collect facts of these kinds (`programs.fact_kinds`), with programs of the profile `facts`."""
        from .facts.fact_collector import FactCollector  # few runs need it

        self._facts = FactCollector(kinds, programs, self.strings)
        self._set_mode()

    def _set_mode(self) -> None:
        self._decoder.set_mode(self._all_results, bool(self._inspectors) or self._facts is not None)

    @property
    def ends(self) -> Array:
        """The ends of connections, int32, eight for each: address number and port of the client, then of the broker,
        if end a is the client; then if end b is. The caller writes them before the bytes of a connection come."""
        return self._connections["ends"]

    @property
    def connections(self) -> Array:
        """CONNECTION rows, by number."""
        return self._connections["connections"]

    @property
    def streams(self) -> Array:
        """STREAM rows, two for each connection."""
        return self._connections["streams"]

    def samples_of(self, connections: Array) -> Array:
        """The samples of connections by number: SAMPLE (n, SAMPLES)."""
        places = connections[:, None] * SAMPLES + np.arange(SAMPLES)
        is_sampled = np.repeat(self.connections["is_sampled"][connections] != 0, SAMPLES)
        found = np.zeros(places.size, SAMPLE)
        found[is_sampled] = taken(self._connections["samples"], places.reshape(-1)[is_sampled])
        return found.reshape(-1, SAMPLES)

    @property
    def silences(self) -> Array:
        """SILENCE rows, by the numbers in `STREAM.silence_row`."""
        return self._silences["silences"]

    @property
    def exchanges(self) -> Array:
        """EXCHANGE rows by slot, of open exchanges."""
        return self._exchanges["exchanges"]

    @property
    def links(self) -> Array:
        """LINK rows by slot."""
        return self._exchanges["links"]

    @property
    def segments(self) -> Array:
        """SEGMENT rows, of the buffers that are searched."""
        return self._segments["segments"]

    @property
    def pool(self) -> Array:
        """The bytes of all stream buffers (uint8)."""
        return self._pool.data

    @property
    def pool_used(self) -> int:
        """The bytes of the pool up to the last buffer in use."""
        return int(self._numbers.item(_POOL_TOP))

    @property
    def frame_counts(self) -> Any:
        """A FRAME_COUNTS record: each frame so far in one place."""
        return self._counts[0]

    @property
    def next_exchange(self) -> int:
        """The number of the next request's exchange."""
        return int(self._state[0].next_exchange)

    def number_exchanges(self, first: int) -> None:
        """The next exchanges have the numbers from `first` on."""
        self._state[0].next_exchange = first

    # Strings and topics.

    def string(self, number: int) -> bytes:
        """The bytes of an interned string."""
        return self.strings[number]

    @property
    def topic_names(self) -> dict[int, int]:
        """String number of a topic's id -> that of its name."""
        return self._decoder.topic_names

    @topic_names.setter
    def topic_names(self, names: dict[int, int]) -> None:
        self._decoder.topic_names = names

    def name_topic(self, topic_id: bytes, name: bytes) -> None:
        """Note the name of a topic."""
        self.topic_names[self.strings.number_of(topic_id)] = self.strings.number_of(name)

    # Brokers, by the keys of their ends.

    def brokers(self) -> Array:
        """The keys of the ends that are known to be brokers', int32."""
        return _keys_in(self._brokers)

    @property
    def broker_count(self) -> int:
        """How many ends are known to be brokers'."""
        return int(self._brokers[0])

    def learn_brokers(self, keys: Array) -> None:
        """Note ends that other runs show to be brokers', int32 keys."""
        for key in keys.tolist():
            add_key(self._brokers, key)

    def missed(self) -> Array:
        """The keys of the ends to which lone requests went that would be exchanges, were they known to be brokers'."""
        return _keys_in(self._missed)

    def set_heads_from(self, time: int) -> None:
        """Packets before a time (ns since the epoch) are not the heads of connections."""
        self._state[0].heads_from = time

    def forget_strings(self, kept: Array) -> Array:
        """Forget all strings but those numbered in `kept` (int64, any order) and those that open exchanges and
        connections need. Return the new numbers by the old ones, int64 (strings + 1,): -1 for a forgotten string, and
        for -1. Numbers outside this dissector are the caller's to change."""
        from .connection_state import NAMES

        count = len(self.strings)
        topic_names = np.array(list(self.topic_names.items()), np.int64).reshape(-1, 2)
        is_open = self._exchanges.taken_rows()
        everywhere, open_topics = slice(None), self._decoder.open_topics
        columns: list[tuple[Array, str, Any]] = [
            *((self.connections, name, everywhere) for name in NAMES),
            *((self.exchanges, name, is_open) for name in EXCHANGE_STRINGS),
            (self.links, "name", is_open),
            *((self._decoder.partitions["partitions"], name, everywhere) for name in ("topic", "topic_id")),
            *((open_topics["topics"], name, open_topics.taken_rows()) for name in ("topic", "topic_id")),
        ]
        if self._facts is not None:
            columns += [(table, name, everywhere) for table, name in self._facts.string_columns()]
        needed = np.zeros(count + 1, bool)  # the last stands for -1
        needed[kept] = True
        needed[topic_names.reshape(-1)] = True
        for table, name, rows in columns:
            values = table[name][rows]
            needed[values[values < count]] = True
        numbers = self.strings.keep(needed[:-1])
        for table, name, rows in columns:
            values = table[name][rows]
            table[name][rows] = numbers[np.where(values < count, values, -1)]
        self.topic_names = dict(zip(*numbers[topic_names].T.tolist(), strict=True)) if len(topic_names) else {}
        return numbers

    def return_memory(self) -> None:
        """Return the memory that large messages needed, and no open exchange needs, to the system. Between drains."""
        self._decoder.return_memory()
        if self._facts is not None:
            self._facts.return_memory()
        return_memory(self._jobs)
        self._pool.return_memory(self._state, len(self._pool.data))

    # Connections that are read in several runs.

    def connection_states(self, connections: Array) -> Iterator[bytes]:
        """All that later packets of each connection (int64 numbers) can depend on: bytes that can be compared."""
        from .connection_state import write_states

        tables = self._tables()
        return written(lambda first, out, ends: write_states(tables, connections, first, out, ends), len(connections))

    def waiting(self, connection: int) -> Iterable[int]:
        """The slots of the exchanges that wait for their response, in order."""
        from .connection_state import waiting_slots

        return waiting_slots(self, connection)

    def resume(self, connection: int, facts: ConnectionFacts) -> None:
        """Write the facts of a connection that began earlier: before its START chunk, which is OPENING_RESUMED."""
        self.reserve(connection + 1)
        from .connection_state import set_facts

        set_facts(self, connection, facts)

    def discount(self, connections: Array) -> None:
        """Count again from here: all frames, and the bytes of the streams of these connections (numbers)."""
        self._counts[0] = np.zeros(1, FRAME_COUNTS)[0]
        streams = (2 * connections[:, None] + (0, 1)).reshape(-1)
        for name in ("frame_bytes", "token_bytes", "skipped_bytes", "proxy_bytes", "foreign_bytes"):
            self.streams[name][streams] = 0
        for name in STREAM_SUMS:
            self.streams[name][streams] = 0
        for name in SILENCE_SUMS:
            self.silences[name][self.streams["silence_row"][streams]] = 0
        for name in CONNECTION_SUMS:
            self.connections[name][connections] = 0

    # Chunks.

    @property
    def shortened(self) -> int:
        """How many messages had more fields than are read of one."""
        return self._decoder.shortened

    def shed(self, kept: int | None) -> None:
        """From the next frames on, keep only `kept` leading bytes of each (None: all). Boundaries are still found;
        bodies that go on are `incomplete`."""
        self._shed_to = _KEEP_ALL if kept is None else kept
        self._state[0].most_kept = min(self._shed_to, HEAD_ONLY) if self._is_limited else self._shed_to

    def limit_held(self, limit: int, block: Array, held: Array) -> Iterator[Finished]:
        """Keep frames that are not complete within `limit` bytes (`held_frames`), after a drain of this block."""
        if self.pool_used <= limit and not self._is_limited:
            return
        now = held_bytes(self.streams)
        if now <= limit:
            if self._is_limited and now < limit // 2:
                self._is_limited = False
                self.shed(self._shed_to)
            return
        self._is_limited = True
        self.shed(self._shed_to)
        self.cut_frames += cut_frames(self.streams)
        number = 0
        while number < len(self.streams):
            number = drop_searched(self._tables(), number)
            yield from self.drain(block, held)

    @property
    def open_exchanges(self) -> int:
        """How many exchanges are not finished."""
        return self._exchanges.in_use

    def give_up_oldest(self, count: int, block: Array) -> Iterator[Finished]:
        """Finish the oldest requests that wait, until no more than `count` wait."""
        times = self.exchanges["request_last"][self._exchanges.taken_rows()]
        more = len(times) - count
        if more > 0:
            yield from self.give_up(int(np.partition(times, more - 1)[more - 1]) + 1, block)

    def reserve(self, connections: int) -> None:
        """Make room for connections numbered below `connections`."""
        if self._connections.reserve(connections):
            self._bound = None

    def feed(self, block: Array, held: Array, chunks: Array, count: int, connections: int) -> Iterator[Finished]:
        """Read chunks[:count], of connections numbered below `connections`. Yield what has to be drained meanwhile."""
        self.reserve(connections)
        done = 0
        while True:
            done = self._kernels().read_chunks(block, held, chunks, done, count)
            if done == count:
                return
            numbers = self._numbers
            full = numbers.item(_FULL)
            if numbers.item(_JOBS) or numbers.item(_FINISHED) or numbers.item(_DEFERRED):
                yield from self.drain(block, held)
            elif full == FULL_JOBS:
                self._jobs = grown(self._jobs, used=0)
            elif full == FULL_DEFERRED:
                self._pool.deferred = grown(self._pool.deferred, used=0)
            self._grow(full)

    def _grow(self, full: int) -> None:
        """Grow what a drain does not empty."""
        if full == FULL_FINISHED:
            self._finished = grown(self._finished, used=0)
        elif full == FULL_EXCHANGES:
            self._exchanges.grow()
        elif full == FULL_POOL:
            self._pool.grow(self.pool_used)
        elif full == FULL_SEGMENTS:
            self._segments.grow()
        elif full == FULL_SILENCES:
            self._silences.grow()
        elif full == FULL_STRINGS:
            self.strings.grow()
        elif full == FULL_TEXT:
            self.strings.grow_text()
        self._bound = None

    def give_up(self, before: int, block: Array) -> Iterator[Finished]:
        """Finish the requests that came before a time (ns since the epoch) and still wait: nothing will answer them."""
        connection = 0
        while connection < len(self.connections):
            connection = expiry.expire(self._tables(), before, connection)
            yield from self.drain(block, block)

    def provisional(self, before: int, closed: Array, closers: Array, closed_at: Array) -> Finished:
        """Provisional rows of requests that will most likely end without an answer (`expiry`): with acks=0 that came
        before a time, and all of `closed` connections (uint8, by number). Each comes once. `closers` and
        `closed_at`: by connection, the direction that closed it, and when."""
        slots = []
        found: Array = np.zeros(4_096, np.int32)
        while True:
            count = expiry.mark_provisional(self._tables(), before, closed, found)
            slots.append(found[:count].copy())
            if count < len(found):
                break
        chosen = np.concatenate(slots)
        rows = taken(self.exchanges, chosen)
        rows["outcome"] = self.links["provisional"][chosen] - 1
        connections = self.links["connection"][chosen]
        by_broker = closers[connections] != self.connections["client"][connections]
        is_closed = (closed[connections] != 0) & (rows["acks"] != 0)
        rows["closed_by"] = np.where(is_closed, by_broker, -1)
        sent = np.where(rows["request_last"] != NO_TIME, rows["request_last"], rows["request_first"])
        rows["waited_ns"] = np.where(is_closed & (sent != NO_TIME), np.maximum(closed_at[connections] - sent, 0), -1)
        self.links["provisional"][chosen] += CLOSED_BY_BIT * (rows["closed_by"] + 1).astype(np.uint8)
        self._set_ends(rows, connections)
        self._has_provisional = self._has_provisional or len(chosen) > 0
        return Finished(
            rows, np.zeros(0, RESULT), self._decoder.topics_of(rows["exchange"], self.links["topics"][chosen]),
            self._exchanges["marks"][chosen] if self.inspectors else None,
        )  # fmt: skip

    def waiting_rows(self, before: int, closed: Array) -> Array:
        """The oldest waiting request of each connection that is not `closed` (uint8, by number), if it came before a
        time: EXCHANGE rows of the outcome in_flight."""
        numbers, rows, _ = self._oldest_waiting(before, closed)
        return self._in_flight(rows, numbers)

    def _in_flight(self, rows: Array, connections: Array) -> Array:
        """Rows of waiting requests of these connections (numbers), with their ends and the outcome in_flight."""
        rows["outcome"] = IN_FLIGHT
        self._set_ends(rows, connections)
        return rows

    def _set_ends(self, rows: Array, connections: Array) -> None:
        ends = self.ends.reshape(-1, 4)[2 * connections + (self.connections["client"][connections] == 1)]
        for column, name in enumerate(("client_ip", "client_port", "broker_ip", "broker_port")):
            rows[name] = ends[:, column]

    def overdue(self, now: int, closed: Array, for_replicas: bool = True) -> tuple[Array, Array | None]:
        """Of the connections that are not `closed` (uint8, by number), the oldest request, if it waits for more than
        the broker may hold it for data or for other members, or because of a quota: EXCHANGE rows of the outcome
        in_flight, whose `waited_ns` is how much more, ns until `now`; and their marks, if there are inspectors.

        A Produce may wait for replicas, with acks=all, as long as its timeout; not if `for_replicas` is False."""
        numbers, rows, wait_ms = self._oldest_waiting(now, closed)
        may_wait = (rows["acks"] == _ALL) & for_replicas
        wait_ms = np.where((rows["api_key"] == _PRODUCE) & ~may_wait, 0, wait_ms)
        known = taken(self.connections, numbers)
        read = np.maximum.reduce([rows["request_last"], known["previous_response"], known["mute_end"]])
        beyond = now - read - wait_ms.astype(np.int64) * 1_000_000
        api = rows["api_key"]
        is_unknown = is_among(api, WAITS) & (wait_ms == 0) & (rows["max_wait_ms"] != 0)  # bodies are not read
        chosen = np.flatnonzero((beyond > 0) & ~is_unknown)
        numbers, rows = numbers[chosen], taken(rows, chosen)
        rows["waited_ns"] = beyond[chosen]
        marks = self._exchanges["marks"][known["waiting_first"][chosen]] if self.inspectors else None
        return self._in_flight(rows, numbers), marks

    def _oldest_waiting(self, before: int, closed: Array) -> tuple[Array, Array, Array]:
        """The oldest waiting request of each connection that is not `closed`, if it came before a time: the number of
        the connection, its EXCHANGE row, and its `wait_ms`."""
        count = min(len(closed), len(self.connections))
        known = self.connections[:count]
        numbers = np.flatnonzero((known["is_open"] != 0) & (known["waiting_first"] >= 0) & (closed[:count] == 0))
        slots = known["waiting_first"][numbers].astype(np.int64)
        links = taken(self.links, slots)
        rows = taken(self.exchanges, slots)
        sent = rows["request_last"]
        chosen = np.flatnonzero((links["no_reply"] == 0) & (links["token"] == 0) & (sent != NO_TIME) & (sent < before))
        return numbers[chosen], taken(rows, chosen), links["wait_ms"][chosen]

    def count_waiting(self, closed: Array) -> int:
        """Count the requests that expect a response, of connections that are not `closed` (uint8, by number)."""
        return int(expiry.count_waiting(closed, self.connections, self.links))

    def drain(self, block: Array, held: Array) -> Iterator[Finished]:
        """Decode the frames so far, and yield the finished exchanges: in several parts if the messages have very many
        fields."""
        yield self._drain_part(block, held)
        while self._numbers.item(_JOBS):
            yield self._drain_part(block, held)

    def _drain_part(self, block: Array, held: Array) -> Finished:
        numbers, decoder = self._numbers, self._decoder
        if numbers.item(_NEW_SOURCES):
            self._apply_sources()
        count, top = numbers.item(_FINISHED), numbers.item(_POOL_TOP)
        rows: Array = np.empty(count, EXCHANGE)
        marks: Array = np.empty(count, np.uint64) if self.inspectors else _NO_MARKS
        provisional: Array = np.empty(count, np.uint8) if self._has_provisional else _NO_BYTES
        while True:
            need = self._kernels().drain_frames(block, held, rows, marks, provisional)
            if need == DRAINED:
                break
            if need == NEEDS_INSPECTION:
                self._inspect(block, held)
            else:
                decoder.make_room(need, self._tables(), block, held)
                self._bound = None
        decoder.note_topic_names()
        if numbers.item(_FREE_LARGE_BYTES) >= FREE_KEPT:
            self._pool.return_memory(self._state, top, FREE_KEPT)
        made = decoder.made
        tokens = None
        bare_tokens = count - numbers.item(_FINISHED) - made  # they come last in `rows`
        if bare_tokens and self._facts is not None and self._facts.has_tokens:
            bare = rows[count - bare_tokens :][::-1].copy()
            tokens = bare, self._facts.take(bare)
        return Finished(
            rows[:made] if made < count else rows,
            decoder.results,
            decoder.topics,
            marks[:made] if self.inspectors else None,
            provisional[:made] if self._has_provisional else None,
            None if self._facts is None else self._facts.take(rows[:made]),
            tokens,
        )

    def _apply_sources(self) -> None:
        self._state[0].new_sources = 0
        found = np.flatnonzero(self.connections["is_source_new"])
        self.connections["is_source_new"][found] = 0
        if self.on_sources is not None:
            self.on_sources(found)

    def _inspect(self, block: Array, held: Array) -> None:
        t = self._tables()
        programs = self._decoder.details if self.all_results else self._decoder.bodies
        jobs = t.jobs[: self._numbers.item(_JOBS)]
        if not len(jobs):
            return
        frames = Frames(jobs, programs, t.exchanges, t.links, (block, held, t.pool), self._exchanges["marks"])
        for inspector in self.inspectors:
            inspector.look(frames)
        if self._facts is not None:
            self._facts.look(frames)

    def _kernels(self) -> _BoundKernels:
        """The kernels with the tables of now."""
        bound = self._bound
        if bound is None or bound.strings is not self.strings.arrays:
            tables = self._tables()
            drained = self._decoder.tables(len(self._jobs), self.ends, self._exchanges["marks"])
            bound = self._bound = _BoundKernels(
                read_chunks.bound(tables), drain_frames.bound(tables, drained), tables, tables.strings
            )
        return bound

    def _tables(self) -> Tables:
        bound, strings = self._bound, self.strings.arrays
        if bound is not None and bound.strings is strings:
            return bound.tables
        pool, decoder = self._pool, self._decoder
        return Tables(
            pool.data, self.connections, self._connections["samples"], self.streams, self.silences, self.segments,
            self._segments.free, self.exchanges, self.links, self._exchanges.free, self._finished, self._jobs, strings,
            self.programs.code, self._index, decoder.tape, decoder.scratch, pool.free, pool.deferred, self._state,
            self._counts, self._brokers, self._missed,
        )  # fmt: skip


def _keys_in(places: Array) -> Array:
    keys: Array = places[1:][places[1:] != 0]
    return keys


class _BoundKernels(NamedTuple):
    """Kernels with their tables, for as long as no table is replaced."""

    read_chunks: Callable[..., int]
    drain_frames: Callable[..., int]
    tables: Tables
    strings: Strings
