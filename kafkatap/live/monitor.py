"""The loop of live capture: packets from a source, through the engine, to the counts of each second and to sinks.

One thread runs it. Other threads read (`reading`, `status`) under its lock, which it releases between blocks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Protocol, cast

from kafkatap.kernels.arrays import joined
from kafkatap.reassembly.pcap_writer import pcap_size
from kafkatap.reports.batch import LIVE, Array, Batch, Context, FileInfo
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.section_parts.section_counts import SectionCounts

from ..engine.assembly import Assembled, Assembly
from ..engine.engine import Engine
from ..engine.selection import EVERYTHING, Selection, Selector
from .background import farewell
from .broker_health import BrokerHealth, added
from .capture.interfaces import addresses
from .count_windows import KEPT, Windows
from .event_watch import EventWatch
from .governor import HEAD_BYTES, HEADERS, Governor
from .joined_engine import JoinedEngine, Share
from .memory_limits import MemoryLimits, NamedCounts, fold_small_rows, forget_names
from .process_memory import resident
from .provisional_rows import revoked_rows, without_confirmed
from .sink import Sink
from .status import Status

SECOND = 1_000_000_000
#: Seconds after which the memory that large messages needed is returned.
RETURN_MEMORY = 5
#: Seconds at most to read the waiting packets at the end.
LAST_PACKETS = 10.0
#: Seconds for which a source may hold packets back: a little more than afpacket_ring.RETIRE_MS.
LAST_BLOCK = 0.1
#: ns before a request with acks=0 counts as not answered. Brokers that answer it nevertheless do so faster.
ANSWERED_ALL_THE_SAME = 100_000_000


class Source(Protocol):
    """Where packets come from: `packet_source.Capture`, or a file in tests."""

    @property
    def names(self) -> tuple[str, ...]:
        """The interfaces."""

    def wait(self, seconds: float) -> None:
        """Wait until packets arrive, at most so long."""

    def parts(self, assembly: Assembly) -> Iterator[Assembled]:
        """What reassembly makes of the packets that are there. A part's bytes are valid until the next part."""

    def blocks(self) -> Iterator[tuple[Array, Array, int]]:
        """Instead of `parts`: (buffer, PACKET rows, count) of the packets that are there. The bytes are valid until the
        next block."""

    def counters(self) -> tuple[int, int]:
        """Packets that passed the filter, and how many of them the kernel dropped, since the start."""

    @property
    def backlog(self) -> float:
        """The full part of the buffer of waiting packets, 0 to 1."""

    @property
    def has_more(self) -> bool:
        """Whether so many packets wait that a round is worth its cost."""

    def stop(self) -> None:
        """Let no more packets in. Those that are there can still be read."""

    def unread(self) -> int:
        """Packets that are there and were not read."""

    def close(self) -> None: ...


class SharedSource(Source, Protocol):
    """The same for a `JoinedEngine`: packets that are shared out to its engines."""

    @property
    def shares(self) -> Sequence[Share]:
        """Those of each engine."""

    def recorded(self) -> Iterator[tuple[Array, Array, int]]:
        """All of them, as of `blocks`."""


class Monitor:
    """`windows` has the counts, `engine` the names. Only exchanges of the `selection` count. `sections`: the names of
    sections over facts to count; the engine has to collect these facts."""

    def __init__(
        self,
        source: Source,
        engine: Engine,
        *,
        selection: Selection = EVERYTHING,
        sinks: Sequence[Sink] = (),
        governor: Governor | None = None,
        limits: MemoryLimits | None = None,
        clock: Callable[[], int] = time.time_ns,
        sections: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.engine = engine
        self.sinks = list(sinks)
        self.governor = governor or Governor()
        self.limits = limits or MemoryLimits()
        self._selection = selection
        self._addresses: frozenset[str] = frozenset()  # of this host, if only its brokers are selected
        self._selector = Selector(selection, engine)
        self._follow_addresses()
        self.lock = RLock()
        self._readers = 0
        self._clock = clock
        self.windows = Windows(self._counts)
        self._slice = self._counts()
        self.sections = self._section_counts(sections) if sections else None
        self._ended: deque[Array] = deque()  # CONNECTION_ROW of ended connections
        self._ended_rows = 0
        self.unread = 0  # packets that waited at the end and were not read in time
        self.forgotten = 0  # ended connections without a kept row
        self._reset_asked = self._reopen_asked = False
        self.longest_waits: Mapping[str, int] = {}  # of selected brokers, ns: `Engine.longest_waits`
        now = clock()
        self._second = now // SECOND
        self.health = BrokerHealth(lambda name: self._selector.selection.has_broker(name))
        engine.watcher = self.health.add_ended
        is_watched = self.sections is not None and any(s.name == "events" for s in self.sections.sections)
        self.events = EventWatch(engine, self.governor.watch) if is_watched else None
        self._base = _Base()
        self._counted_from = 0  # the first exchange whose provisional row may be counted
        self._last = (0, 0, 0)  # packets, payload bytes and drops at the end of the last second
        self._drops: deque[int] = deque(maxlen=10)
        self.status = Status(
            now, now, source.names, 0, 0.0, 0.0, 0, 0, self.governor.level, now, "", 0.0, 0, 0, 0, 0.0
        )  # fmt: skip
        self._apply_level()

    @property
    def counts_all(self) -> bool:
        """Whether every exchange counts: there is no selection."""
        return not self._selector.selection

    def run(self, stop: Callable[[], bool]) -> None:
        """Read packets until `stop` returns True, then read the waiting packets, and end."""
        self.governor.begin()
        try:
            while not stop():
                self.source.wait(0.2)
                while self.step() and not stop() and self._has_more():
                    if self._readers:
                        time.sleep(0.0002)  # let other threads have the lock
                    rest = self.governor.pause()
                    if rest:
                        time.sleep(rest)
            self._read_rest()
        finally:
            self.finish()

    def _has_more(self) -> bool:
        """Whether to read on at once. Each round has a fixed cost, so few packets are left to gather."""
        engine = self.engine
        return engine.is_running if isinstance(engine, JoinedEngine) else self.source.has_more

    def _read_rest(self) -> None:
        """Read what arrived before the end. The kernel holds some packets back until their block expires."""
        self.source.stop()
        ended = time.monotonic()
        while (waited := time.monotonic() - ended) < LAST_PACKETS:
            self.source.wait(0.05)
            if not self.step() and waited > LAST_BLOCK:
                return

    def step(self) -> int:
        """Read the packets that are there; return how many. Call it at least once a second, also without packets."""
        taken = 0
        with self.lock:
            if self._reset_asked:
                self._reset()
            for batches, packets in self._rounds():
                self._add(batches)
                taken += packets
            now = self._clock()
            if self.governor.check_backlog(now, self.source.backlog):
                self._apply_level()
            if now // SECOND != self._second:
                self._end_second(now)
        return taken

    def _rounds(self) -> Iterator[tuple[Iterable[Batch], int]]:
        """What the packets that are there finish, and how many these are."""
        if not isinstance(self.engine, JoinedEngine):
            for part in self._parts():
                yield self.engine.dissect(part), part.packets
            return
        source = cast(SharedSource, self.source)
        readers = [sink for sink in self.sinks if sink.reads_packets]
        for block in source.recorded() if readers else ():
            for sink in readers:
                sink.add_packets(*block)
        yield from self.engine.rounds(source.shares)

    def _parts(self) -> Iterator[Assembled]:
        """What reassembly makes of the packets that are there, after the sinks that read packets have seen them."""
        readers = [sink for sink in self.sinks if sink.reads_packets]
        if not readers:
            yield from self.source.parts(self.engine.assembly)
            return
        for buffer, packets, count in self.source.blocks():
            for sink in readers:
                sink.add_packets(buffer, packets, count)
            yield from self.engine.assembly.feed(buffer, packets, 0, count)

    def _add(self, batches: Iterable[Batch]) -> None:
        for whole in batches:
            for batch in self.selected(whole):
                if self.sections is not None:
                    self.sections.add(batch)
                if not len(batch.exchanges):  # only estimates
                    continue
                for sink in self.sinks:
                    sink.add_batch(batch, self.engine)
                self._slice.add(without_confirmed(batch))
                if self.events is not None:
                    self.events.add(without_confirmed(batch))
            for wrong in revoked_rows(whole, self._counted_from):
                counts = self._counts()
                for batch in self.selected(wrong):
                    counts.add(batch)
                self._slice.subtract(counts)

    def _follow_addresses(self) -> None:
        """Select the brokers at the addresses that this host has now, if only its own are wanted."""
        if not self._selection.is_local:
            return
        try:
            found = addresses()
        except OSError:  # those of the second before
            found = self._addresses
        if found != self._addresses or self._selector.selection is self._selection:
            self._addresses = found
            self._selector = Selector(self._selection.at_brokers(found), self.engine)

    def _add_provisional(self, now: int) -> None:
        """Count the requests that will most likely end without a response now, not when they end."""
        whole = self.engine.provisional_rows(now - ANSWERED_ALL_THE_SAME)
        if whole is None:
            return
        for batch in self.selected(whole):
            for sink in self.sinks:
                sink.add_provisional(batch, self.engine)
            self._slice.add(batch)
            if self.events is not None:
                self.events.add(batch)

    def selected(self, batch: Batch) -> Iterable[Batch]:
        """The selected exchanges of a batch. They are judged at once, by the names that are known now."""
        picked = self._selector.pick(batch)
        return () if picked is None else (picked,)

    def _end_second(self, now: int) -> None:
        missed = min(now // SECOND - self._second - 1, KEPT)
        self._second = now // SECOND
        self._follow_addresses()
        self._add(self.engine.sweep(self.limits.idle_now(self.engine), self.limits.patience_now(self.engine)))
        self._add_provisional(now)
        self._show_waiting(now)
        self._keep_connections()
        if self.events is not None:
            if self.source.counters()[1] > self._last[2]:
                self.events.note_drops(now)
            for finding in self.events.end_second(self.engine, max(missed, 0) + 1, now):
                for sink in self.sinks:
                    sink.add_event(finding)
        self._publish_slice(now)
        self.health.skip(missed)
        for _ in range(missed):
            nothing = self._counts()
            nothing.seal()
            self.windows.add(nothing)
        if self._reopen_asked:
            self._reopen_asked = False
            for sink in self.sinks:
                sink.reopen(self.engine)
        self._limit_memory()
        self._update_status(now)
        self._slice = self._counts()

    def _show_waiting(self, now: int) -> None:
        """Note how long requests wait, and show the sinks the selected ones that wait for too long."""
        overdue = self.engine.overdue(now)
        waits = self.engine.longest_waits(overdue)
        self.longest_waits = {name: ns for name, ns in waits.items() if self._selector.selection.has_broker(name)}
        for batch in self.selected(overdue):
            for sink in self.sinks:
                sink.add_waiting(batch, self.engine)

    def _publish_slice(self, now: int) -> None:
        """Pass the counts since the last call to the windows and to the sinks. A sink may fail: what comes after goes
        to new counts."""
        counts, self._slice = self._slice, self._counts()
        counts.seal()
        self.windows.add(counts)
        health = self.health.end_second(self.engine, now)
        for sink in self.sinks:
            sink.add_health(health)
            sink.end_second(now, counts, self.engine)

    def _update_status(self, now: int) -> None:
        """Set the status, and let the governor judge the second."""
        engine, governor = self.engine, self.governor
        _, dropped = self.source.counters()
        payload = engine.ledger()["payload bytes"]["total"]
        packets, before, dropped_before = self._last
        self._last = engine.packets, payload, dropped
        self._drops.append(dropped - dropped_before)
        seconds = max(1e-9, (now - self.status.now) / SECOND)
        if governor.judge_second(now, dropped - dropped_before):
            self._apply_level()
        self.status = Status(
            now=now,
            started=self.status.started,
            interfaces=self.source.names,
            packets=engine.packets,
            packet_rate=(engine.packets - packets) / seconds,
            byte_rate=(payload - before) / seconds,
            dropped=dropped,
            dropped_lately=sum(self._drops),
            level=governor.level,
            level_since=governor.since,
            reason=governor.reason,
            cpu=governor.cpu,
            memory=resident(),
            connections=engine.connections_open,
            waiting=engine.requests_waiting,
            longest_waits=self.longest_waits,
            encrypted_share=engine.encrypted_share,
            decrypted_share=engine.decrypted_share,
            last_packet=engine.latest,
            unwritten=_sums(sink.unwritten() for sink in self.sinks),
            events_late=0 if self.events is None else self.events.late,
            troubles=added(self.health.counts(len(self._drops))),
        )

    def _apply_level(self) -> None:
        """Decode as much as the governor's level allows."""
        self.engine.set_detail(self.governor.topics)
        self.engine.shed(HEAD_BYTES if self.governor.level >= HEADERS else None)

    def _limit_memory(self) -> None:
        """Keep memory within its limits."""
        if self._second % RETURN_MEMORY == 0:
            self.engine.return_memory()
        fold_small_rows(self.windows.start, self.limits, self.engine)
        if not self.limits.names_full(self.engine):
            return
        for sink in self.sinks:
            sink.resolve_names(self.engine)
        if self.events is not None:
            self.events.restart(self.engine)
        for counts in self.windows.every():
            fold_small_rows(counts, self.limits, self.engine)
        kept = list(self._ended)
        every: list[NamedCounts] = [*self.windows.every(), *([] if self.sections is None else [self.sections])]
        numbers = forget_names(self.engine, every, kept, self.limits.topic_names)
        for named in every:
            named.renumber(*(each[:-1] for each in numbers))
        self._selector.forget()

    def _keep_connections(self) -> None:
        rows = self.engine.take_connections()
        if not len(rows):
            return
        for sink in self.sinks:
            sink.add_connections(rows, self.engine)
        if self.sections is not None:
            self.sections.add_connections(rows)
        if self.events is not None:
            self.events.add_connections(rows)
        self._ended.append(rows)
        self._ended_rows += len(rows)
        while self._ended_rows > self.limits.ended and len(self._ended) > 1:
            gone = len(self._ended.popleft())
            self._ended_rows -= gone
            self.forgotten += gone

    @contextmanager
    def reading(self, window: int | None) -> Iterator[ReportCounts]:
        """The counts of the last `window` seconds (None: since the start). The loop waits for the end of the block."""
        self._readers += 1
        try:
            with self.lock:
                yield self.windows.start if window is None else self.windows.last(window)
        finally:
            self._readers -= 1

    def reset(self) -> None:
        """Restart all counts soon. Safe in signal handlers."""
        self._reset_asked = True

    def reopen(self) -> None:
        """Let the sinks end their files and begin new ones, within a second. Safe in signal handlers."""
        self._reopen_asked = True

    def _reset(self) -> None:
        self._reset_asked = False
        self._publish_slice(self._clock())  # sinks do not restart
        self.windows.reset()
        self.health.reset()
        if self.sections is not None:
            self.sections = self._section_counts(self.sections.wanted)
        self._ended.clear()
        self._ended_rows = self.forgotten = 0
        engine = self.engine
        engine.first = engine.last = None
        self._counted_from = engine.next_exchange
        # What is still open counts from now on. So totals start from the parts that have a place in the ledger.
        ledger = {
            name: {**parts, "total": sum(parts.values()) - parts["total"]} for name, parts in engine.ledger().items()
        }
        self._base = _Base(engine.packets, self.source.counters(), ledger, engine.captured_bytes)
        self.status = replace(self.status, started=self._clock())

    def finish(self) -> None:
        """End all connections, and close the sinks."""
        with self.lock:
            self.source.stop()
            self.unread = self.source.unread()
            self._add(self.engine.finish())
            self._keep_connections()
            self._publish_slice(self._clock())
            with farewell():
                for sink in self.sinks:
                    sink.close(self.engine)
            self.status = replace(self.status, dropped=self.source.counters()[1])

    def context(self) -> Context:
        """What a report shows besides the counts: since the start, or the last reset."""
        engine, base = self.engine, self._base
        _, dropped = self.source.counters()
        connections = joined(list(self._ended), CONNECTION_ROW)
        packets = engine.packets - base.packets
        size = pcap_size(packets, engine.captured_bytes - base.captured_bytes)
        info = FileInfo(
            ", ".join(self.source.names), LIVE, base.packets + 1, packets, size, (), engine.first, engine.last,
            dropped - base.counters[1] + self.unread,
        )  # fmt: skip
        context = engine.context([info], connections)
        ledger = {
            section: {part: count - base.ledger.get(section, {}).get(part, 0) for part, count in parts.items()}
            for section, parts in context.ledger.items()
        }
        return context._replace(ledger=ledger, packets=packets, left_out_connections=self.forgotten)

    def _section_counts(self, wanted: Sequence[str]) -> SectionCounts:
        return self.engine.section_counts(wanted, self.limits.strings)

    def _counts(self) -> ReportCounts:
        return ReportCounts(by_topic=self.governor.topics)


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of counts by name."""
    made: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            made[name] = made.get(name, 0) + count
    return made


@dataclass(frozen=True, slots=True)
class _Base:
    """The totals at the last reset."""

    packets: int = 0
    counters: tuple[int, int] = (0, 0)
    ledger: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    captured_bytes: int = 0
