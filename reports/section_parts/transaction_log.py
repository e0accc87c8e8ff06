"""What happened to each transactional id: a state machine over the events of `transaction_reading`.

A transaction is open from its first request: AddPartitionsToTxn or AddOffsetsToTxn of the producer; for Kafka's second
protocol of transactions (KIP-890) the first Produce with its epoch, or the broker's AddPartitionsToTxn. It ends with
the response to EndTxn, or with a marker that no EndTxn preceded. A marker that aborts names nobody. If the coordinator
that the producer uses was captured, and sent the marker, it aborted the transaction: it timed out or was fenced, as
another producer asked for the same id with InitProducerId. Else the producer's EndTxn may have gone to a coordinator
that was not captured: by whom it was aborted is not known.

The marker of an ended transaction may come after the next one began. Its epoch is not above that of the response to
EndTxn, and that of a later transaction is.

A request that fails because its epoch is old was fenced by the producer that has the id then.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME
from kafkatap.kernels.arrays import dict_rows

from ..batch import Array
from .event_rows import EventKind, EventView
from .section import SectionInput

#: The section that reads them, and the form with its counts of Produce requests.
READ_BY, PRODUCED = "transaction-reading", "transactions.produced"
#: Names of values of events. `timeout_ms`: of INIT. `is_commit`: of END and MARKER. Of END, the epoch and the time of
#: its response. `partitions`: of MARKER. `is_of_broker`: of ADD.
TRANSACTION = EventView(
    transactional_id="s0", producer_id="v0", epoch="v1", timeout_ms="v2", is_commit="v2", is_of_broker="v2",
    next_epoch="v3", partitions="v3", answered="v4",
)  # fmt: skip
#: Kinds of events. BEGIN is made here, from the times of Produce requests.
INIT, ADD, END, MARKER, COMMIT, FAILED, BEGIN = (EventKind(n, TRANSACTION) for n in range(1, 8))
_EMPTY, _OPEN, _COMMITTED, _ABORTED, _FENCED = "empty", "open", "committed", "aborted", "fenced"
#: Error codes of requests whose producer epoch is old: INVALID_PRODUCER_EPOCH, PRODUCER_FENCED.
_OLD_EPOCH = (47, 90)
#: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: the coordinator moves.
_MOVES = (14, 15, 16)
_CONCURRENT = 51  # CONCURRENT_TRANSACTIONS: the coordinator still ends the previous transaction
_COLUMNS = (
    "kind", "time", "transactional_id", "producer_id", "epoch", "timeout_ms", "is_commit", "is_of_broker", "next_epoch",
    "partitions", "answered", "client_id", "client_ip", "broker_ip", "broker_port", "error_code", "outcome",
    "packet",
)  # fmt: skip


class Producer(NamedTuple):
    """A client that uses a transactional id."""

    client_id: int
    client_ip: int


class Fence(NamedTuple):
    """A producer whose epoch was old, and the one that had the id then (None: the coordinator fenced it). `at`: when
    its first such request came. `began`: when the InitProducerId of the other one was answered; None: not captured."""

    victim: Producer
    winner: Producer | None
    error: int
    at: int
    began: int | None = None


Broker = tuple[int, int]  # address, port


class Transactional:
    """One transactional id: `name` is a string's number. -1 and None: unknown. `ends`: when its transactions ended, and
    `ends_by_broker`: of them, those that the coordinator aborted. `aborts`: (time, packet) of those that the producer
    aborted since it committed one."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.owner: Producer | None = None
        self.producer_id = self.epoch = self.timeout_ms = self.longest = self.timed_out_ns = -1
        self.committed = self.aborted = self.aborted_by_broker = self.aborted_elsewhere = self.fenced = self.markers = (
            self.failed
        ) = 0
        self.ends, self.ends_by_broker = array("q"), array("q")
        self.aborts: list[tuple[int, int]] = []
        self.fences: list[Fence] = []
        self.open_ns: int | None = None
        self.opened: int | None = None
        self.state = _EMPTY
        self.first: int | None = None
        self.last = NO_TIME
        self._begun: dict[Producer, int] = {}  # when an InitProducerId of each was answered last
        self._asked: Producer | None = None  # by InitProducerId, while the coordinator ends a transaction
        self._ended = NO_TIME
        self._ended_epoch = -1
        self._coordinator: Broker | None = None

    def asked(self, broker: Broker, error: int) -> None:
        """Note who coordinates: a broker that answered a request for the coordinator."""
        if error in _MOVES:
            self._coordinator = None
        elif not error:
            self._coordinator = broker

    def init(self, at: int, who: Producer, error: int, answer: tuple[int, int], timeout_ms: int) -> None:
        if error:
            self._asked = who if error == _CONCURRENT else self._asked
            self.failed += error != _CONCURRENT
            return
        if self.opened is not None:  # markers were not captured
            self._aborts(at, who, is_known=self._coordinator is not None)  # an EndTxn before would be known
        self._asked = None
        self._begun[who] = at
        self.owner, (self.producer_id, self.epoch), self.timeout_ms = who, answer, timeout_ms
        self.state = _EMPTY

    def add(self, at: int, who: Producer | None, producer_id: int, epoch: int, error: int) -> None:
        if error:
            self._fail(at, who, error)
            return
        if who is not None:
            self.owner = who
        self.producer_id, self.epoch = producer_id, max(epoch, self.epoch if producer_id == self.producer_id else -1)
        if self.opened is None and at > self._ended:
            self.opened, self.state = at, _OPEN

    def end(
        self, at: int, who: Producer, committed: bool, error: int, answer: tuple[int, int], packet: int = 0
    ) -> None:
        if error:
            self._fail(at, who, error)
            return
        self.owner, (self.producer_id, self.epoch) = who, answer
        self._ended_epoch = self.epoch
        self._end(at, committed)
        if not committed:
            self.aborts.append((at, packet))

    def _end(self, at: int, committed: bool) -> None:
        self.committed += committed
        self.aborted += not committed
        self.aborts = [] if committed else self.aborts
        self.state = _COMMITTED if committed else _ABORTED
        self._close(at)

    def marker(self, at: int, epoch: int, partitions: int, committed: bool, sender: int) -> None:
        """`sender`: the address of the broker that sent it."""
        self.markers += partitions
        if self.opened is None or at <= self.opened or epoch <= self._ended_epoch:
            return
        if committed:
            self._end(at, committed)
        else:
            self._aborts(at, self._asked, is_known=self._coordinator is not None and self._coordinator[0] == sender)

    def fail(self, at: int, who: Producer, error: int) -> None:
        self._fail(at, who, error)

    def _fail(self, at: int, who: Producer | None, error: int) -> None:
        if error not in _OLD_EPOCH or who is None:
            self.failed += error != _CONCURRENT
            return
        self.fenced += 1
        winner = self.owner if self.owner != who else None
        if not any(fence[:2] == (who, winner) for fence in self.fences):
            began = None if winner is None else self._begun.get(winner)
            self.fences.append(Fence(who, winner, error, at, began))
        if self.owner == who:
            self.state = _FENCED

    def _aborts(self, at: int, asked: Producer | None, *, is_known: bool) -> None:
        """It was aborted, and no EndTxn was captured. `is_known`: nor was there one."""
        assert self.opened is not None
        self.aborted_by_broker += is_known
        if is_known:
            self.ends_by_broker.append(at)
        self.aborted_elsewhere += not is_known
        if asked is None and is_known:
            self.timed_out_ns = max(self.timed_out_ns, at - self.opened)
        self.state = _ABORTED
        self._close(at)

    def _close(self, at: int) -> None:
        if self.opened is not None:
            self.longest = max(self.longest, at - self.opened)
        self.opened = None
        self.ends.append(at)
        self._ended = at


def followed(given: SectionInput) -> list[Transactional]:
    """All transactional ids of the exchanges that were read: those with an open transaction first, then those with the
    longest one."""
    return given.learned_by(READ_BY).once(followed_here)


def followed_here(given: SectionInput) -> list[Transactional]:
    """The same, of the exchanges of this input alone."""
    found: dict[int, Transactional] = {}
    id_of: dict[int, int] = {}  # by producer id
    for event in _in_order(given):
        kind, at, error, producer_id = event["kind"], event["time"], event["error_code"], event["producer_id"]
        name = id_of.get(producer_id, -1) if kind == MARKER else event["transactional_id"]
        if name < 0:
            continue
        item = found.setdefault(name, Transactional(name))
        item.first = at if item.first is None else item.first
        item.last = max(item.last, at)
        if producer_id >= 0:
            id_of[producer_id] = name
        who, is_answered = Producer(event["client_id"], event["client_ip"]), event["outcome"] == ANSWERED
        if not is_answered and kind != MARKER:
            item.failed += 1
        elif kind == INIT:
            item.init(at, who, error, (producer_id, event["epoch"]), event["timeout_ms"])
        elif kind == END:
            answer = producer_id, event["next_epoch"]
            item.end(event["answered"], who, bool(event["is_commit"]), error, answer, event["packet"])
        elif kind == MARKER:
            item.marker(at, event["epoch"], event["partitions"], bool(event["is_commit"]), event["client_ip"])
        elif kind == FAILED:
            item.fail(at, who, error)
        elif kind == COMMIT:
            if error:
                item.fail(at, who, error)
        else:  # ADD, BEGIN
            item.add(at, None if event["is_of_broker"] else who, producer_id, event["epoch"], error)
        if is_answered and (kind in (INIT, END) or (kind == ADD and not event["is_of_broker"])):
            item.asked((event["broker_ip"], event["broker_port"]), error)
    last = given.context.last
    for item in found.values():
        if item.opened is not None and last is not None:
            item.open_ns = max(last - item.opened, 0)
            item.longest = max(item.longest, item.open_ns)
    return sorted(
        found.values(),
        key=lambda t: (t.open_ns is None, -(t.open_ns or 0), -t.fenced, -t.longest, str(given.context.text(t.name))),
    )


def _in_order(given: SectionInput) -> Iterator[dict[str, int]]:
    """All events, and the first Produce of each producer epoch, in order of time: _COLUMNS by name."""
    events = TRANSACTION.of(given.events(READ_BY))
    columns: dict[str, Array] = {name: events[name].astype(np.int64) for name in _COLUMNS}
    keys, values = given.keys(PRODUCED), given.values(PRODUCED)
    count = len(values["first"])
    begun = {
        "kind": np.full(count, int(BEGIN)), "time": values["first"], "outcome": np.full(count, ANSWERED),
        **{name: keys[name] for name in ("transactional_id", "producer_id", "epoch", "client_id", "client_ip")},
    }  # fmt: skip
    both = {
        name: np.concatenate((columns[name], np.asarray(begun.get(name, np.zeros(count, np.int64)), np.int64)))
        for name in _COLUMNS
    }
    order = np.lexsort([
        both[name] for name in ("timeout_ms", "epoch", "producer_id", "transactional_id", "kind", "time")
    ])  # fmt: skip
    return dict_rows({name: column[order] for name, column in both.items()})
