"""`JoinedEngine`: several engines in threads, each with the connections that the kernel gives to it, as one engine.

    engine = joined([Engine(...), ...])
    for batches, packets in engine.rounds(shares):      # shares[n]: the packets of engine n
        ...

In a round each engine reads the packets that are there for it. While the caller counts what they found, the next round
runs. Kernels, which take most of the time, release the interpreter's lock. Rows have the numbers of all engines
(`joined_names`). Whatever else is read of the engines waits for the end of a round: then they rest.

What connections tell about each other, engines tell each other whenever they rest: which ends listen or are brokers'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from kafkatap.dissector.dissector import Finished
from kafkatap.kernels.arrays import joined as all_of
from kafkatap.reports.batch import Array, Batch, Context, FileInfo
from kafkatap.reports.connection_columns import CONNECTION_ROW

from ..engine.assembly import Assembled, Assembly
from ..engine.ended_connections import EndedConnections
from ..engine.engine import EXCHANGES, Engine, Strings
from ..splits.capture_ledgers import sum_ledgers
from .joined_names import JoinedNames, OwnNames

Watcher = Callable[..., None]  #: `Engine.watcher`


class Share(Protocol):
    """The packets of one engine: a `packet_source.Capture`."""

    def parts(self, assembly: Assembly) -> Iterator[Assembled]: ...
    @property
    def has_more(self) -> bool: ...


class _Round(NamedTuple):
    """What an engine found in a round."""

    batches: list[Batch]
    packets: int


class Member(Engine):
    """One of several engines. Its rows have the numbers of all. `order`: its number."""

    def join(self, names: JoinedNames, order: int) -> None:
        """Use the numbers of all from now on: before the first packet."""
        self.own = OwnNames(names)
        self.number_exchanges(order * EXCHANGES + 1)

    def read(self, share: Share) -> _Round:
        """Read the packets that are there."""
        batches: list[Batch] = []
        packets = 0
        for part in share.parts(self.assembly):
            batches += self.dissect(part)
            packets += part.packets
        return _Round(batches, packets)

    def _batches(self, finished: Finished, estimates: Array | None = None) -> Iterator[Batch]:
        for batch in super()._batches(finished, estimates):
            yield self.own.batch(batch, self)

    def provisional_rows(self, before: int) -> Batch | None:
        found = super().provisional_rows(before)
        return None if found is None else self.own.batch(found, self)

    def waiting_rows(self, before: int) -> Batch | None:
        found = super().waiting_rows(before)
        return None if found is None else self.own.batch(found, self)

    def overdue(self, now: int, for_replicas: bool = True) -> Batch:
        return self.own.batch(super().overdue(now, for_replicas), self)

    def open_rows(self, connections: Array) -> Array:
        return self.own.connections(super().open_rows(connections), self)

    def take_connections(self) -> Array:
        return self.own.connections(super().take_connections(), self)


class JoinedEngine(Engine):
    """An engine to those who read its rows, counts and names. Its tables are those of `engines`, which rest when they
    are asked for."""

    def __init__(self, members: Sequence[Member]) -> None:
        one = members[0]
        self._members = tuple(members)
        self.limits, self.facts, self.key_log, self.packet_places, self.hosts = (
            one.limits,
            one.facts,
            one.key_log,
            one.packet_places,
            one.hosts,
        )
        self._names = JoinedNames()
        for order, member in enumerate(members):
            member.join(self._names, order)
        self.strings, self.addresses = Strings(self._names), self._names.addresses
        self._threads: list[ThreadPoolExecutor] = []
        self._ids: list[int] = []
        self._running: list[Future[_Round]] = []
        self._found: list[_Round] = []  # in rounds that are over, and nobody has taken
        self._told = [(0, 0)] * len(members)  # listeners and brokers of which each engine has told others
        self._watching = threading.Lock()
        self._share_knowledge()

    # ---------------------------------------------------------------- rounds

    def rounds(self, shares: Sequence[Share]) -> Iterator[tuple[Iterable[Batch], int]]:
        """The batches of the packets that are there, and how many packets these are, by engine."""
        if not self._running and not self._found:
            self._start(shares)
        found = self._take()
        if any(share.has_more for share in shares):
            self._start(shares)
        yield from found

    @property
    def is_running(self) -> bool:
        """Whether a round runs."""
        return bool(self._running)

    def settled(self) -> Iterator[Batch]:
        """Let the engines rest; yield the batches that nobody has taken."""
        for each in self._take():
            yield from each.batches

    def native_threads(self) -> list[int]:
        """The threads of the engines, by the system's ids. Does not wait for a round."""
        self._begin()
        return self._ids

    def _begin(self) -> None:
        if not self._threads:  # they have the rights that this thread has by now
            self._threads += [ThreadPoolExecutor(1, f"kafkatap-engine-{n}") for n in range(len(self._members))]
            self._ids = [each.submit(threading.get_native_id).result() for each in self._threads]

    def _start(self, shares: Sequence[Share]) -> None:
        self._begin()
        self._running += [
            thread.submit(member.read, share)
            for thread, member, share in zip(self._threads, self._members, shares, strict=True)
        ]

    def _rest(self) -> tuple[Member, ...]:
        """Wait until all engines rest, and return them."""
        if self._running:
            running, self._running = self._running, []
            self._found += [each.result() for each in running]
            self._share_knowledge()
        return self._members

    def _take(self) -> list[_Round]:
        self._rest()
        found, self._found = self._found, []
        return found

    def _share_knowledge(self) -> None:
        """Tell each engine what others know of connections that may be its own."""
        members = self._members
        latest = max(each.assembly.latest for each in members)
        for member in members:
            member.assembly.latest = latest
            member.own.name_topics(member)
        known = [(each.assembler.listener_count, each.dissector.broker_count) for each in members]
        if known == self._told:
            return
        for member, (listeners, brokers), (said, said_brokers) in zip(members, known, self._told, strict=True):
            for other in members:
                if other is not member and listeners != said:
                    other.assembler.learn_listeners(member.assembler.listeners)
                if other is not member and brokers != said_brokers:
                    other.dissector.learn_brokers(member.dissector.brokers())
        self._told = [(each.assembler.listener_count, each.dissector.broker_count) for each in members]

    # ---------------------------------------------------------------- rows

    @property
    def engines(self) -> Sequence[Engine]:
        return self._rest()

    def sweep(self, idle: int, patience: int) -> Iterator[Batch]:
        yield from self.settled()
        for each in self._members:
            yield from each.sweep(idle, patience)

    def finish(self) -> Iterator[Batch]:
        yield from self.settled()
        for each in self._members:
            yield from each.finish()
            each.own.name_topics(each)
        for thread in self._threads:
            thread.shutdown()

    def provisional_rows(self, before: int) -> Batch | None:
        return _joined(each.provisional_rows(before) for each in self._rest())

    def waiting_rows(self, before: int) -> Batch | None:
        return _joined(each.waiting_rows(before) for each in self._rest())

    def overdue(self, now: int, for_replicas: bool = True) -> Batch:
        found = _joined(each.overdue(now, for_replicas) for each in self._rest())
        assert found is not None
        return found

    def take_connections(self) -> Array:
        return all_of([each.take_connections() for each in self._rest()], CONNECTION_ROW)

    # ---------------------------------------------------------------- names

    @property
    def topic_names(self) -> dict[int, int]:
        return self._names.topic_names

    @property
    def other(self) -> int:
        return self._names.strings.other

    @property
    def names_held(self) -> tuple[int, int, int]:
        every = [each.names_held for each in self._rest()]
        every.append((len(self._names.strings), self._names.strings.text_used, len(self.addresses)))
        strings, text, addresses = (max(counts) for counts in zip(*every, strict=True))
        return strings, text, addresses

    def limit_topic_names(self, most: int) -> None:
        for each in self._rest():
            each.limit_topic_names(most)

    def forget_strings(self, kept: Array) -> Array:
        needed = np.zeros(len(self._names.strings), bool)
        needed[kept[kept >= 0]] = True
        for each in self._rest():
            each.own.forget_strings(each, needed)
        for each in self._members:
            needed[each.own.strings[:-1]] = True
        numbers = self._names.keep_strings(needed)
        for each in self._members:
            each.own.strings = numbers[each.own.strings]
        return numbers

    def forget_addresses(self, kept: Array) -> Array:
        needed = np.zeros(len(self.addresses), bool)
        needed[kept[kept >= 0]] = True
        for each in self._rest():
            each.own.forget_addresses(each, needed)
        for each in self._members:
            needed[each.own.addresses[:-1]] = True
        numbers = self._names.keep_addresses(needed)
        for each in self._members:
            each.own.addresses = numbers[each.own.addresses]
        return numbers

    # ---------------------------------------------------------------- how much is decoded

    @property
    def has_all_results(self) -> bool:
        return self._members[0].has_all_results

    def set_detail(self, all_results: bool) -> None:
        for each in self._rest():
            each.set_detail(all_results)

    def shed(self, kept: int | None) -> None:
        for each in self._rest():
            each.shed(kept)

    def return_memory(self) -> None:
        for each in self._rest():
            each.return_memory()

    # ---------------------------------------------------------------- counts

    @property
    def watcher(self) -> Watcher | None:
        return self._members[0].watcher

    @watcher.setter
    def watcher(self, value: Watcher | None) -> None:
        for each in self._members:
            each.watcher = None if value is None else partial(self._watch, value)

    def _watch(self, watcher: Watcher, engine: Engine, *ended: Array) -> None:
        with self._watching:  # engines may end connections at the same time
            watcher(engine, *ended)

    @property
    def first(self) -> int | None:
        return min((each.first for each in self._rest() if each.first is not None), default=None)

    @first.setter
    def first(self, value: int | None) -> None:
        for each in self._rest():
            each.first = value

    @property
    def last(self) -> int | None:
        return max((each.last for each in self._rest() if each.last is not None), default=None)

    @last.setter
    def last(self, value: int | None) -> None:
        for each in self._rest():
            each.last = value

    @property
    def latest(self) -> int:
        return max(each.latest for each in self._rest())

    @property
    def packets(self) -> int:  # type: ignore[override]
        return self._sum("packets")

    @property
    def captured_bytes(self) -> int:
        return self._sum("captured_bytes")

    @property
    def next_exchange(self) -> int:
        """The next exchange of each engine has this number from now on, but for what is added to tell them apart."""
        number = max(each.next_exchange % EXCHANGES for each in self._rest())
        for order, each in enumerate(self._members):
            each.number_exchanges(order * EXCHANGES + number)
        return number

    @property
    def requests_waiting(self) -> int:
        return self._sum("requests_waiting")

    @property
    def connections_open(self) -> int:
        return self._sum("connections_open")

    @property
    def not_captured(self) -> int:
        return self._sum("not_captured")

    @property
    def encrypted_bytes(self) -> int:
        return self._sum("encrypted_bytes")

    @property
    def decrypted_bytes(self) -> int:
        return self._sum("decrypted_bytes")

    @property
    def payload(self) -> int:
        return self._sum("payload")

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self._rest())

    def ledger(self, ended: EndedConnections | None = None, with_open: bool = False) -> dict[str, dict[str, int]]:
        return sum_ledgers(each.ledger(with_open=with_open) for each in self._rest())

    def context(
        self, files: Sequence[FileInfo] = (), connections: Array | None = None, is_over: bool = True
    ) -> Context:  # fmt: skip
        assert connections is not None and is_over, "live capture keeps the rows of connections"  # noqa: PT018
        return self._rest()[0].context(files, connections)._replace(
            strings=self.strings[:], addresses=list(self.addresses), topic_names=dict(self.topic_names),
            ledger=self.ledger(), first=self.first, last=self.last, packets=self.packets,
            encrypted_share=self.encrypted_share, not_captured=self.not_captured,
        )  # fmt: skip


def _joined(batches: Iterable[Batch | None]) -> Batch | None:
    """The exchanges of batches that have only exchanges, topics and marks; None where there are none."""
    some = [batch for batch in batches if batch is not None]
    if len(some) < 2:
        return some[0] if some else None
    one = some[0]
    return one._replace(
        exchanges=np.concatenate([each.exchanges for each in some]),
        results=np.concatenate([each.results for each in some]),
        marks=_column([each.marks for each in some]), topics=_column([each.topics for each in some]),
    )  # fmt: skip


def _column(parts: Sequence[Array | None]) -> Array | None:
    some = [part for part in parts if part is not None]
    return np.concatenate(some) if some else None
