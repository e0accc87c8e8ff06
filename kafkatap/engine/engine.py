"""The engine: packets in, finished rows out. The command line, live capture and Spark run the same engine.

`Engine.take(buffer, packets, first, count)` runs reassembly and dissection over packets that lie in `buffer`. It yields
`Batch`es of finished rows; `finish()` yields the rest. No result depends on how packets are cut into blocks.

The first half (`Engine.assembly`) makes `Assembled` parts, the second (`Engine.dissect`) takes them. Each half may
run in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np

from kafkatap.dissector.dissector import Dissector, Finished
from kafkatap.dissector.dtypes import LATE_NS, MAX_FRAME, RESULT
from kafkatap.dissector.framing.connections import PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.dissector.inspection import Inspector
from kafkatap.dissector.programs import loading
from kafkatap.dissector.programs.fact_kinds import rare_apis
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.program import Programs
from kafkatap.dissector.strings import StringTable
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import ROW_OPEN
from kafkatap.reports.batch import Batch, Context, FileInfo, endpoint
from kafkatap.reports.counting.connection_counts import ConnectionCounts, count_connections
from kafkatap.reports.packet_places import PacketPlaces

from .assembly import Assembled, Assembly
from .ended_connections import Counted, EndedConnections
from .endpoints import Endpoints
from .known_twins import SEEN_TWICE, KnownTwins
from .limits import Limits
from .read_options import AS_USUAL, ReadOptions
from .tls.layer import TlsLayer
from .watched_packets import WatchedPackets

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from .selection import Selection

Array = np.ndarray[Any, Any]
#: Of several engines that are one run, each numbers its exchanges within a range of so many numbers.
EXCHANGES = 1 << 40
#: One path, or several.
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def programs_for(name: str, definitions: Definitions | None) -> Programs:
    """The programs of a profile, for the built-in layouts or others."""
    return _built_in(name) if definitions is None else load_programs(name, definitions)


@cache
def _built_in(name: str) -> Programs:
    """Kept, as executors have an engine for every split, and to load one takes 10 ms."""
    return load_programs(name)


def engine_for(
    selection: Selection,
    read: ReadOptions = AS_USUAL,
    *,
    all_results: bool = False,
    tables: bool = True,
    facts: Iterable[int] = (),
    measures: bool = False,
) -> Engine:
    """An engine that decodes what a selection compares. Of APIs that cannot match it decodes only what others need."""
    needed = selection.engine_options
    return Engine(
        read, all_results=all_results or needed.all_results, inspectors=needed.inspectors, apis=needed.apis,
        tables=tables, problems=tables or needed.problems, facts=facts, measures=measures,
    )  # fmt: skip


class _HasStrings(Protocol):
    @property
    def strings(self) -> StringTable: ...
    def string(self, number: int) -> bytes: ...


class Strings(Sequence[bytes | None]):
    """The interned strings by number. They grow while the engine runs."""

    def __init__(self, dissector: _HasStrings) -> None:
        self._dissector = dissector

    def __len__(self) -> int:
        return len(self._dissector.strings)

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes | None]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes | None]:
        if isinstance(number, slice):
            return list(self._dissector.strings[number])
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._dissector.string(number)


def _tokens_of(finished: Finished) -> Batch | None:
    if finished.tokens is None:
        return None
    exchanges, facts = finished.tokens
    return Batch(exchanges, np.zeros(0, RESULT), facts=facts)


def open_definitions(paths: Paths) -> Definitions:
    """`loading.open_definitions` of one path or several, with the compiled programs kept beside the kernels."""
    several = (paths,) if isinstance(paths, (str, os.PathLike)) else tuple(paths)
    return loading.open_definitions(*several)


class Engine:
    """One run over one sequence of packets, decoded as `read` says.

    `all_results`: decode every body for its topics and results, not only failed ones. `inspectors` see every message
    while its bytes are there. `apis`: only exchanges of these APIs must be right in all columns; of other bodies the
    engine reads no more than these need. `tables`: keep a row of each connection and the topics of requests; otherwise
    connections are only counted. `problems`: find the field at which a message is malformed. `measures`: also measure
    windows and round trips of connections, which takes longer. `facts`: the kinds of facts to collect, by number
    (`dissector.programs.fact_kinds`). Those of rare APIs are collected from APIs beside `apis`, too.
    """

    def __init__(
        self,
        read: ReadOptions = AS_USUAL,
        *,
        all_results: bool = False,
        inspectors: Sequence[Inspector] = (),
        apis: frozenset[int] | None = None,
        assembler: Assembler | None = None,
        tables: bool = True,
        problems: bool = True,
        facts: Iterable[int] = (),
        measures: bool = False,
    ) -> None:
        definitions, key_log = read.definitions, read.key_log
        self.facts = facts = frozenset(facts)
        self.assembly = Assembly(assembler, read.ports)
        self.key_log = key_log
        self._has_own_key_log = False
        if key_log is not None:
            key_log.begin_run()
        if measures:
            self.assembler.measure()
        self.hosts = read.hosts
        self.limits = read.limits or Limits()
        if read.limits is not None:
            self.assembler.bound(read.limits.bounds())
        programs, details = programs_for("summary", definitions), programs_for("results", definitions)
        if apis is not None and facts:
            apis |= rare_apis(facts)
        head = None if apis is None else programs_for("head", definitions)
        load_whole = partial(programs_for, "everything", definitions) if problems else None
        self.dissector = Dissector(
            programs,
            details,
            load_whole,
            all_results,
            inspectors,
            apis,
            head,
            read.max_frame or MAX_FRAME,
            late=read.late or LATE_NS,
        )
        self.dissector.strings.limit(self.limits.names)
        if facts:
            self.dissector.collect_facts(self.facts, programs_for("facts", definitions))
        self.tls = TlsLayer(key_log)
        self._endpoints = Endpoints(self.dissector, self.limits.names)
        self.addresses = self._endpoints.addresses
        self.tls.ends_of = self._endpoints.both
        self.strings = Strings(self.dissector)
        #: Where the packets lie that filters name; a selection says which those are.
        self.packet_places = PacketPlaces()
        self._watched = WatchedPackets(self.packet_places)
        self._begun: Array | None = None  # connections whose ends were noted last
        self.packets = 0
        self.first: int | None = None
        self.last: int | None = None
        self.twins = KnownTwins(read.twins)
        self._ended = EndedConnections(tables, self.twins)
        self._given_up = dict.fromkeys(("connections", "requests"), 0)
        self._counted_elsewhere: dict[str, int] = {}  # what another run has counted of what was given up
        #: Called with connections before they end: their numbers, CONNECTION rows, and DIRECTION rows (two for each).
        self.watcher: Callable[[Engine, Array, Array, Array], None] | None = None

    @property
    def engines(self) -> Sequence[Engine]:
        """The engines whose tables have the connections."""
        return (self,)

    @property
    def assembler(self) -> Assembler:
        """The tables of reassembly."""
        return self.assembly.assembler

    def take(self, buffer: Array, packets: Array, first: int, count: int) -> Iterator[Batch]:
        """Read packets[first:count], whose bytes lie in `buffer`; yield batches of finished rows."""
        for part in self.assembly.feed(buffer, packets, first, count):
            yield from self.dissect(part)

    def finish(self) -> Iterator[Batch]:
        """The input is over: end every connection and yield the rows that this finishes."""
        for part in self.assembly.end_all():
            yield from self.dissect(part)

    def sweep(self, idle: int, patience: int) -> Iterator[Batch]:
        """For input without an end: end closed connections and those silent for `idle` ns, and end the exchanges of
        requests that have waited for `patience` ns. Look again at connections that wait for secrets."""
        yield from self.review()
        for part in self.assembly.end_closed(idle):
            yield from self.dissect(part)
        for finished in self.dissector.give_up(self.latest - patience, np.zeros(1, np.uint8)):
            yield from self._batches(finished)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Within this context packets and their payload are not counted: another run counts them."""
        before = self.packets, self.first, self.last
        with self.assembler.uncounted():
            yield
        self.packets, self.first, self.last = before

    def discount(self) -> None:
        """Set the counts of packets, the ledger and the open connections to 0: another run has them."""
        self.packets, self.first, self.last = 0, None, None
        self._ended.discount()
        self._counted_elsewhere = self._all_given_up()
        self.dissector.discount(self.assembly.discount())
        self.tls.discount()

    def dissect(self, part: Assembled) -> Iterator[Batch]:
        """The second half: the exchanges that a part finishes."""
        if part.secrets:
            self.add_secrets(part.secrets)
        self.packets += part.packets
        if part.first is not None and part.last is not None:
            self.first = part.first if self.first is None else min(self.first, part.first)
            self.last = part.last if self.last is None else max(self.last, part.last)
        if len(part.started):
            self.begin(part)
        dissector = self.dissector
        watched = self._watched if self._watched.is_needed else None
        if watched is not None:
            watched.note(part)
        part = self.tls.read(part, self.last or 0)
        if self.tls.oriented:
            self._orient()
        if part.chunk_count:
            whole = (part.block, part.held, part.table, part.chunk_count, part.connections)
            for finished in (
                dissector.feed(*whole) if watched is None else watched.feed(part, dissector, self.tls.tracked)
            ):
                yield from self._batches(finished)
        estimates = self._take_estimates()
        for finished in dissector.drain(part.block, part.held):
            yield from self._batches(finished, estimates)
            estimates = None
        if dissector.open_exchanges > self.limits.waiting:
            yield from self._give_up_oldest(part)
        for finished in dissector.limit_held(self.limits.held, part.block, part.held):
            yield from self._batches(finished)
        if watched is not None:
            watched.forget(part.ended)
        if len(part.ended):
            self._end(part)

    def review(self) -> Iterator[Batch]:
        """While no packets come: look whether a key log that grows has the secrets that connections wait for."""
        return self.dissect(self.assembly.nothing()) if self.tls.is_waiting else iter(())

    def add_secrets(self, data: bytes) -> None:
        """Decrypt the connections that these secrets belong to: a key log that a capture has."""
        if not self._has_own_key_log:
            self._has_own_key_log = True
            if self.key_log is None:
                from .tls.key_log import KeyLog

                self.key_log = KeyLog()
            else:  # a copy, so that the next pass over the captures finds the same secrets at the same places
                import pickle

                self.key_log = pickle.loads(pickle.dumps(self.key_log))
            self.key_log.is_growing = True  # some programs write secrets a moment after the handshake
            self.tls.use(self.key_log)
        assert self.key_log is not None
        self.key_log.add(data)

    def _orient(self) -> None:
        """Note the clients of connections without a SYN that their ClientHello shows."""
        clients = self.dissector.connections["client"]
        for connection, client in self.tls.oriented:
            if connection < len(clients) and clients[connection] < 0:
                clients[connection] = client
        self.tls.oriented.clear()

    def _give_up_oldest(self, part: Assembled) -> Iterator[Batch]:
        """End the exchanges of the requests that wait longest, so that half of the limit is free."""
        before = self._unanswered
        for finished in self.dissector.give_up_oldest(self.limits.waiting // 2, part.block):
            yield from self._batches(finished)
        self._given_up["requests"] += self._unanswered - before

    @property
    def _unanswered(self) -> int:
        counts = self.dissector.frame_counts
        return int(counts.unanswered) + int(counts.response_lost) + int(counts.no_reply_expected)

    def begin(self, part: Assembled) -> None:
        """Note the ends of connections that begin in a part, before their bytes come: once for each part."""
        if self._begun is not part.started:
            self._begun = part.started
            self._endpoints.begin(part.connections, part.started, part.started_flows)

    def _take_estimates(self) -> Array | None:
        """The response times that were estimated since the last call: ESTIMATE, or None."""
        found = self.tls.take_turns()
        if found is None:
            return None
        from .tls.estimates import estimate_rows

        rows, numbers, overheads = found
        return estimate_rows(rows, self.dissector.connections["key"][numbers], self.endpoints(numbers), overheads)

    def _batches(self, finished: Finished, estimates: Array | None = None) -> Iterator[Batch]:
        if len(finished.exchanges) or estimates is not None:
            topics = finished.topics if self.dissector.all_results else None
            yield Batch(
                finished.exchanges, finished.results, finished.marks, topics, finished.provisional, finished.facts,
                estimates, _tokens_of(finished),
            )  # fmt: skip
        elif finished.tokens is not None:
            yield Batch(
                finished.exchanges, finished.results, finished.marks, None, None, finished.facts,
                tokens=_tokens_of(finished),
            )  # fmt: skip

    def _end(self, part: Assembled) -> None:
        if self.watcher is not None:
            self.watcher(self, part.ended, part.ended_rows, part.ended_directions)
        self._given_up["connections"] += part.ended_early
        self._add_ended(self._ended, part)
        if self.tls.tracked:
            self.tls.forget(part.ended)

    def _add_ended(self, ended: EndedConnections, part: Assembled) -> None:
        numbers = part.ended
        both = (2 * numbers[:, None] + (0, 1)).reshape(-1)
        known, streams = taken(self.dissector.connections, numbers), taken(self.dissector.streams, both)
        silences = taken(self.dissector.silences, streams["silence_row"])
        ended.add(
            part, known, self.dissector.samples_of(numbers), streams, silences, self.endpoints(numbers),
            self._endpoints.proxies(numbers), self._tls_rows(numbers), self.key_log is not None,
        )  # fmt: skip

    def _tls_rows(self, connections: Array) -> Array | None:
        """TLS_ROW of connections by number; None if none has TLS."""
        if not self.tls.tracked:
            return None
        from .tls.columns import tls_rows  # only captures with TLS need it

        return tls_rows(self.tls, connections, self.dissector.strings.number_of)

    def section_counts(
        self, wanted: Sequence[str], names: int | None = None, learning: Sequence[frozenset[str]] = ()
    ) -> SectionCounts:
        """New counts of sections over facts (names of `reports.section_parts.registry`), for batches of this engine.
        `names`: the most rows of a form (None: the limit of names). `learning`: as of `Selection.learning`."""
        from kafkatap.reports.section_parts.section_counts import SectionCounts

        return SectionCounts(wanted, names or self.limits.names, lambda: self.other, learning)

    def limit(self, counts: ReportCounts) -> None:
        """Add up the small rows of counts if there are more rows than the limit of names."""
        counts.limit(self.limits.names, lambda: self.other)

    def on_connections(self, watcher: Callable[[Array], None]) -> None:
        """Call `watcher` with the CONNECTION_ROWs of connections when they end."""
        self._ended.on_ended = watcher

    def on_counted(self, watcher: Callable[[Counted], None]) -> None:
        """Call `watcher` with what connections count when they end."""
        self._ended.on_counted = watcher

    def open_counts(self, numbers: Array | None = None, is_known: bool = False) -> Counted:
        """What the connections that did not end count so far. `numbers`: only these; `is_known`: only those that speak
        something known."""
        if is_known:
            rows = self.dissector.connections
            is_open = self.assembler.connections["used"][: len(rows)] == ROW_OPEN
            numbers = np.flatnonzero(is_open & (rows["protocol"][: len(is_open)] != PROTOCOL_UNKNOWN))
        part = self.assembly.as_ended(numbers)
        streams = taken(self.dissector.streams, (2 * part.ended[:, None] + (0, 1)).reshape(-1))
        protocol = taken(self.dissector.connections, part.ended)["protocol"]
        keys = taken(self.dissector.connections, part.ended)["key"]
        tls = None
        if self.tls.tracked:
            from .tls.columns import tls_bytes

            tls = tls_bytes(self.tls, part.ended)
        return Counted.of(part, protocol, streams, tls, self.twins.has(keys))

    def endpoints(self, connections: Array) -> Array:
        """The ends of connections by number: int32 (n, 4), address number and port of the client, then of the broker.

        End a counts as the client if it is not known which end is.
        """
        return self._endpoints.of(connections, self.dissector.connections["client"][connections] == 1)

    @property
    def connections(self) -> Array:
        """CONNECTION_ROW of every connection that ended."""
        return self._ended.rows

    @property
    def connection_counts(self) -> ConnectionCounts:
        """The counts of all connections that ended."""
        counted = self._ended.counted
        return count_connections(self.connections) if counted is None else counted

    def take_connections(self) -> Array:
        """Remove and return the CONNECTION_ROWs so far: for input without an end."""
        rows = self.connections
        self._ended.clear_rows()
        return rows

    @property
    def other(self) -> int:
        """The number of the string in place of those beyond the limits."""
        return self.dissector.strings.other

    @property
    def names_held(self) -> tuple[int, int, int]:
        """How many strings there are, their bytes, and how many addresses."""
        return len(self.dissector.strings), self.dissector.strings.text_used, len(self.addresses)

    def limit_topic_names(self, most: int) -> None:
        """If more than `most` topics by their ids are known, forget the names of all but the latest half of `most`."""
        known = self.dissector.topic_names
        if len(known) > most:
            self.dissector.topic_names = dict(list(known.items())[-most // 2 :])

    def forget_strings(self, kept: Array) -> Array:
        """Forget strings as `Dissector.forget_strings` does: new numbers by old ones.

        No other thread may use the engine meanwhile.
        """
        return self.dissector.forget_strings(kept[kept >= 0])

    def forget_addresses(self, kept: Array) -> Array:
        """Forget all addresses but those in `kept` and those of open connections: `Endpoints.forget`."""
        return self._endpoints.forget(kept, self.assembler.connections["used"] != 0)

    @property
    def topic_names(self) -> dict[int, int]:
        """The string number of each topic id's name, by that of the id, from Metadata and CreateTopics responses."""
        return self.dissector.topic_names

    def set_detail(self, all_results: bool) -> None:
        """From now on decode every body for its topics and results, or only failed ones. Exchanges whose request came
        before may lack its topics."""
        self.dissector.all_results = all_results

    @property
    def has_all_results(self) -> bool:
        """Whether every body is decoded for its topics and results."""
        return self.dissector.all_results

    def shed(self, kept: int | None) -> None:
        """From now on keep so many leading bytes of each message (None: all)."""
        self.dissector.shed(kept)

    def return_memory(self) -> None:
        """Return the memory that large messages needed to the system."""
        self.dissector.return_memory()

    def provisional_rows(self, before: int) -> Batch | None:
        """Provisional rows of requests that will most likely end without an answer, each once.

        These are acks=0 requests from before a time (ns since the epoch), and requests of closed connections. Their
        final rows come later in `Batch`es, whose `provisional` marks them.
        """
        found = self.dissector.provisional(before, self.assembly.is_closed(), *self.assembly.closings())
        if not len(found.exchanges):
            return None
        topics = found.topics if self.dissector.all_results else None
        return Batch(found.exchanges, found.results, found.marks, topics)

    def open_rows(self, connections: Array) -> Array:
        """CONNECTION_ROW of connections by number that did not end so far, as they are now. They go on."""
        made = EndedConnections(True, self.twins)
        self._add_ended(made, self.assembly.as_ended(connections))
        return made.rows

    def waiting_rows(self, before: int) -> Batch | None:
        """The oldest request that waits on each open connection, if it came before a time (ns since the epoch), as a
        row of the outcome in_flight. The final rows come later."""
        rows = self.dissector.waiting_rows(before, self.assembly.is_closed())
        return Batch(rows, np.zeros(0, RESULT)) if len(rows) else None

    def overdue(self, now: int, for_replicas: bool = True) -> Batch:
        """The oldest request of each open connection, if it waits for more than the broker may hold it for data, for
        other members or because of a quota: rows of the outcome in_flight, with `waited_ns` beyond that, ns until `now`
        (ns since the epoch). The final rows come later. `for_replicas`: whether a Produce may be held for replicas."""
        rows, marks = self.dissector.overdue(now, self.assembly.is_closed(), for_replicas)
        return Batch(rows, np.zeros(0, RESULT), marks)

    def longest_waits(self, overdue: Batch) -> dict[str, int]:
        """By broker, the longest wait in `overdue` rows, ns."""
        found: dict[str, int] = {}
        for address, port, ns in overdue.exchanges[["broker_ip", "broker_port", "waited_ns"]].tolist():
            broker = endpoint(self.addresses[address], port)
            found[broker] = max(ns, found.get(broker, 0))
        return found

    @property
    def latest(self) -> int:
        """The latest time of all packets so far, ns since the epoch."""
        return self.assembly.latest

    @property
    def captured_bytes(self) -> int:
        """The captured bytes of all packets so far."""
        return self.assembly.captured_bytes

    @property
    def next_exchange(self) -> int:
        """The number of the next request's exchange."""
        return self.dissector.next_exchange

    def number_exchanges(self, first: int) -> None:
        """From now on exchanges have the numbers from `first` on."""
        self.dissector.number_exchanges(first)

    @property
    def requests_waiting(self) -> int:
        """How many requests of connections that are not closed wait for a response."""
        return self.dissector.count_waiting(self.assembly.is_closed())

    @property
    def connections_open(self) -> int:
        """How many connections are open."""
        return len(self.assembly.open_connections())

    def open_connections(self) -> Array:
        """The numbers of the open connections."""
        return self.assembly.open_connections()

    @property
    def not_captured(self) -> int:
        """Payload bytes of ended connections that the snap length cut off."""
        return self._ended.not_captured

    @property
    def encrypted_share(self) -> float:
        """The part of the TCP payload so far, without duplicates, that is TLS and was not decrypted: 0 to 1."""
        return min(self.encrypted_bytes / self.payload, 1.0) if self.payload else 0.0

    @property
    def decrypted_share(self) -> float:
        """The part of the TCP payload so far, without duplicates, that is TLS and was decrypted: 0 to 1."""
        return min(self.decrypted_bytes / self.payload, 1.0) if self.payload else 0.0

    @property
    def encrypted_bytes(self) -> int:
        """The TCP payload so far that is TLS and was not decrypted."""
        known = self.dissector.connections
        used = self.assembler.connections["used"][: len(known)] == ROW_OPEN
        tls = np.flatnonzero(used & (known["protocol"][: len(used)] == PROTOCOL_TLS))
        skipped = self.dissector.streams["skipped_bytes"]
        encrypted = self._ended.bytes["encrypted"] + self.tls.encrypted_now()
        return encrypted + int(skipped[2 * tls].sum() + skipped[2 * tls + 1].sum())

    @property
    def decrypted_bytes(self) -> int:
        """The TCP payload so far that is TLS and was decrypted."""
        return self._ended.decrypted + self.tls.decrypted_now()

    @property
    def payload(self) -> int:
        """The TCP payload so far, without duplicates."""
        is_open = np.repeat(self.assembler.connections["used"] == ROW_OPEN, 2)
        open_duplicates = int(self.assembler.directions["duplicate_bytes"][is_open].sum())
        of_ended = self._ended.bytes["duplicate"] + self._ended.bytes[SEEN_TWICE]
        return self.assembler.payload_bytes - of_ended - open_duplicates

    def context(
        self, files: Sequence[FileInfo] = (), connections: Array | None = None, is_over: bool = True
    ) -> Context:  # fmt: skip
        """What reports and tables need beside the rows. `connections`: CONNECTION_ROW (None: all that ended).

        `is_over`: whether `finish` was called. Otherwise open connections count as they are now.
        """
        ended = self._ended
        if not is_over:
            ended = ended.copy()
            self._add_ended(ended, self.assembly.as_ended())
        return Context(
            strings=self.strings[:],
            addresses=list(self.addresses),
            topic_names=dict(self.topic_names),
            hosts=self.hosts,
            connections=ended.rows if connections is None else connections,
            files=files,
            ledger=self.ledger() if is_over else self._ledger(ended),
            first=self.first,
            last=self.last,
            packets=self.packets,
            encrypted_share=self.encrypted_share,
            known_versions=self.dissector.programs.known_versions,
            not_captured=ended.not_captured,
            counted=ended.counted if connections is None else None,
        )

    def _ledger(self, ended: EndedConnections) -> dict[str, dict[str, int]]:
        """The ledger so far. `ended`: the ended connections, and the open ones as they are now. The part "unfinished"
        has what is in no other yet."""
        ledger = self.ledger(ended)
        for section in ("payload bytes", "requests"):
            parts = ledger[section]
            total = parts.pop("total")
            ledger[section] = {**parts, "unfinished": total - sum(parts.values()), "total": total}
        return ledger

    def ledger(self, ended: EndedConnections | None = None, with_open: bool = False) -> dict[str, dict[str, int]]:
        """Every packet, payload byte, request and response in exactly one named place. The places add up to "total",
        once the connections are over. `ended`: in place of the connections that ended so far. `with_open`: also the
        bytes of open connections of which it is known what they speak.

        The section "tunnels" has the packets that came through tunnels, if there are any.
        """
        frames = self.dissector.frame_counts
        requests = {
            "answered": int(frames.answered),
            "no_reply_expected": int(frames.no_reply_expected),
            "in_flight": int(frames.in_flight),
            "unanswered": int(frames.unanswered),
            "response_lost": int(frames.response_lost),
            "sasl_tokens": int(frames.request_tokens),
            "header_not_captured": int(frames.requests_headerless),
        }
        responses = {
            "matched": int(frames.answered - frames.out_of_order_responses),
            "out_of_order": int(frames.out_of_order_responses),
            "cut": int(frames.cut_responses),
            "orphan": int(frames.orphan_responses),
            "sasl_tokens": int(frames.response_tokens),
            "header_not_captured": int(frames.responses_headerless),
        }
        tunnels = self.assembler.tunnel_counts
        ended = ended or self._ended
        places = {**ended.bytes, "duplicate packets": ended.duplicates}
        if with_open:
            more = self.open_counts(is_known=True).counts.sum(axis=0).tolist()
            places = {name: count + new for (name, count), new in zip(places.items(), more, strict=True)}
        duplicates = places.pop("duplicate packets")
        packets = {**self.assembler.packet_counts, "duplicate": duplicates}
        packets["tcp"] -= duplicates
        found = {
            "packets": {**packets, "total": self.packets},
            "payload bytes": {**places, "total": self.assembler.payload_bytes},
            "requests": {**requests, "total": int(frames.requests)},
            "responses": {**responses, "total": int(frames.responses)},
            **({"tunnels": {**tunnels, "total": sum(tunnels.values())}} if any(tunnels.values()) else {}),
            **self._beyond_limits(),
        }
        return self.twins.moved(found)

    def _beyond_limits(self) -> dict[str, dict[str, int]]:
        """The section of the ledger with what was given up because of limits; nothing if that is nothing."""
        found = {part: count - self._counted_elsewhere.get(part, 0) for part, count in self._all_given_up().items()}
        total = sum(found.values())
        return {"limits": {**found, "total": total}} if total else {}

    def _all_given_up(self) -> dict[str, int]:
        return {
            **self._given_up,
            "gaps": self.assembler.gaps_given_up,
            "messages": self.dissector.cut_frames,
            "fields": self.dissector.shortened,
            "names": self.dissector.strings.refused + self._endpoints.refused,
        }
