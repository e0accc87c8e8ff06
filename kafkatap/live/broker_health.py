"""Connections by broker: opened, refused, unanswered, reset, retransmitted packets, zero windows, round trips.

The tables of `reassembly` have sums for each connection since it began. Once a second `BrokerHealth` reads the
connections that had packets, and adds what is new to the counts of their brokers. It reads a connection that ends when
it ends. A broker here is an end that clients connect to, also one that does not answer. Ends that do not speak Kafka
are left out. TLS may hide Kafka and is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_UNKNOWN
from kafkatap.kernels.arrays import grown, taken
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reports.batch import Array, endpoint
from kafkatap.reports.connection_words import PROTOCOLS

from .latency_buckets import BUCKET_BOUNDS

if TYPE_CHECKING:
    from ..engine.engine import Engine

SECOND = 1_000_000_000
#: What is counted for a broker, int64 each: connections and packets; handshakes by round trip, a bucket for each of
#: BUCKET_BOUNDS and one above them; the sum of the round trips, ns.
COUNTS = (
    "opened", "refused", "unanswered", "reset_by_client", "reset_by_broker", "client_retransmitted",
    "broker_retransmitted", "client_zero_windows", "broker_zero_windows",
)  # fmt: skip
RTTS = tuple(f"rtt_{bound}" for bound in (*BUCKET_BOUNDS, "more"))
VALUES = (*COUNTS, *RTTS, "rtt_ns")
#: ns after which a SYN counts as unanswered: clients repeat it after one second.
ANSWER_TIME = SECOND
#: Brokers of one second, and since the start, at most. The rest is added up as OTHER.
MOST, MOST_EVER = 200, 1_000
OTHER = "(other)"
#: How many single seconds are kept.
KEPT = 60
_BOUNDS_NS = np.array(BUCKET_BOUNDS) * SECOND
#: What was counted for a connection already: bits, and sums of both directions.
_OPENED, _REFUSED, _UNANSWERED, _RESET, _ROUND_TRIP = (1 << n for n in range(5))
_COUNTED = record_dtype(("serial", "i8"), ("sums", "i8", (4,)), ("bits", "u1"))
_SUMS = ("retransmitted_packets", "zero_windows")

Rows = dict[str, Array]  #: by broker: int64 (VALUES,)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """The connections of one broker in a window. `round_trip`: ns, None without a handshake."""

    name: str
    protocol: str
    open: int  # now
    opened: int
    refused: int
    unanswered: int
    resets: int
    retransmitted: int
    zero_windows: int
    round_trip: int | None  # mean of the handshakes

    @property
    def failed(self) -> int:
        """Connections that could not be opened, or were reset."""
        return self.refused + self.unanswered + self.resets


def value(row: Array, name: str) -> int:
    return int(row[VALUES.index(name)])


def added(rows: Mapping[str, Array]) -> Array:
    """The counts of all brokers: int64 (VALUES,)."""
    return sum(rows.values(), np.zeros(len(VALUES), np.int64))


def round_trips(row: Array) -> int:
    """The number of handshakes with a round trip."""
    return int(row[len(COUNTS) : -1].sum())


def mean_round_trip(row: Array) -> int | None:
    """ns."""
    seen = round_trips(row)
    return value(row, "rtt_ns") // seen if seen else None


class BrokerHealth:
    """`open`: open connections by broker. `protocols`: the protocol of each broker, if it is known. `is_selected`:
    whether a broker, by its name, counts."""

    def __init__(self, is_selected: Callable[[str], bool] = lambda name: True) -> None:
        self.is_selected = is_selected
        self.open: dict[str, int] = {}
        self.protocols: dict[str, int] = {}
        self._counted: dict[Engine, Array] = {}  # by engine, of its connections by number
        self._now: Rows = {}  # of the current second
        self._seconds: deque[Rows] = deque(maxlen=KEPT)
        self._start: Rows = {}
        self._since = 0  # packets before this time were counted

    def end_second(self, engine: Engine, now: int) -> Rows:
        """The counts by broker of the second that ends at `now` (ns since the epoch)."""
        self.open = {}
        for one in engine.engines:
            rows = one.assembler.connections
            used = rows["used"] == 1
            numbers = np.flatnonzero(used & ((rows["last"] >= self._since) | (rows["only_syn"] != 0)))
            ways = taken(one.assembler.directions, (2 * numbers[:, None] + (0, 1)).reshape(-1))
            self._count(one, numbers, taken(rows, numbers), ways, now)
            there = one.open_connections()
            brokers, of = self._brokers(one, there[one.dissector.connections["client"][there] >= 0])
            for name, count in zip(brokers, np.bincount(of, minlength=len(brokers)).tolist(), strict=True):
                self.open[name] = self.open.get(name, 0) + count
        self._since = engine.latest - SECOND
        made = _bounded({name: row for name, row in self._now.items() if self._is_shown(name)}, MOST)
        self._now = {}
        self._seconds.append(made)
        _add(self._start, made)
        self._start = _bounded(self._start, MOST_EVER)
        return made

    def add_ended(self, engine: Engine, numbers: Array, rows: Array, ways: Array) -> None:
        """Count connections that end now: CONNECTION rows, and two DIRECTION rows each."""
        self._count(engine, numbers, rows, ways, None)

    def counts(self, seconds: int | None) -> Rows:
        """Counts by broker of the last seconds; None: since the start."""
        if seconds is None:
            return dict(self._start)
        total: Rows = {}
        for rows in list(self._seconds)[-seconds:]:
            _add(total, rows)
        return total

    def rows(self, seconds: int | None) -> list[BrokerRow]:
        """Every broker with connections now or in the last seconds (None: since the start), the most failures first."""
        found = {name: np.zeros(len(VALUES), np.int64) for name in self.open if self._is_shown(name)}
        _add(found, self.counts(seconds))
        rows = [self._row(name, row) for name, row in found.items()]
        return sorted(rows, key=lambda row: (-row.failed, -row.open, row.name))

    def _row(self, name: str, row: Array) -> BrokerRow:
        def both(what: str) -> int:
            return value(row, f"client_{what}") + value(row, f"broker_{what}")

        return BrokerRow(
            name, PROTOCOLS[self.protocols.get(name, PROTOCOL_UNKNOWN)], self.open.get(name, 0), value(row, "opened"),
            value(row, "refused"), value(row, "unanswered"),
            value(row, "reset_by_client") + value(row, "reset_by_broker"), both("retransmitted"),
            both("zero_windows"), mean_round_trip(row),
        )  # fmt: skip

    def skip(self, seconds: int) -> None:
        """Add so many seconds without counts."""
        self._seconds.extend({} for _ in range(seconds))

    def reset(self) -> None:
        """Remove all counts."""
        self._start = {}
        self._seconds.clear()

    def _count(self, engine: Engine, numbers: Array, rows: Array, ways: Array, now: int | None) -> None:
        """Add what is new for these connections. `now`: None if they end."""
        client = engine.dissector.connections["client"][numbers].astype(np.int64)
        known = np.flatnonzero(client >= 0)
        numbers, client, rows = numbers[known], client[known], taken(rows, known)
        ways = taken(ways, (2 * known[:, None] + np.stack((client, 1 - client), axis=1)).reshape(-1))
        known_counts = self._counted.get(engine, np.zeros(256, _COUNTED))
        if len(known_counts) < len(engine.assembler.connections):
            known_counts = grown(known_counts, len(engine.assembler.connections))
        self._counted[engine] = known_counts
        counted = taken(known_counts, numbers)
        counted[counted["serial"] != rows["serial"]] = np.zeros(1, _COUNTED)[0]
        sums = np.concatenate([ways[name].reshape(-1, 2) for name in _SUMS], axis=1).astype(np.int64)
        bits = _bits(rows, client, now)
        new = bits & ~counted["bits"]
        new[counted["bits"] & _UNANSWERED != 0] &= ~np.uint8(_REFUSED)  # an attempt counts once
        by_client = (new & _RESET != 0) & (rows["reset_by"] == client)
        by_broker = (new & _RESET != 0) & ~by_client
        round_trip = new & _ROUND_TRIP != 0
        values = np.zeros((len(numbers), len(VALUES)), np.int64)
        for column, found in enumerate((new & _OPENED, new & _REFUSED, new & _UNANSWERED, by_client, by_broker)):
            values[:, column] = found != 0
        values[:, 5 : len(COUNTS)] = sums - counted["sums"]
        rtts = rows["handshake_rtt_ns"][round_trip]
        values[round_trip, len(COUNTS) + np.searchsorted(_BOUNDS_NS, rtts)] = 1
        values[round_trip, -1] = rtts
        counted["serial"], counted["sums"], counted["bits"] = rows["serial"], sums, counted["bits"] | bits
        known_counts[numbers] = counted
        self._add_values(engine, numbers, values)

    def _add_values(self, engine: Engine, numbers: Array, values: Array) -> None:
        brokers, of = self._brokers(engine, numbers)
        total = np.zeros((len(brokers), len(VALUES)), np.int64)
        np.add.at(total, of, values)
        _add(self._now, {name: row for name, row in zip(brokers, total, strict=True) if row.any()})
        known = taken(engine.dissector.connections, numbers)
        protocols = np.where(
            (known["protocol"] == PROTOCOL_UNKNOWN) & (known["not_kafka_since"] > 0),
            PROTOCOL_FOREIGN,
            known["protocol"],
        )
        if len(self.protocols) > 10 * MOST_EVER:
            self.protocols = {name: found for name, found in self.protocols.items() if found == PROTOCOL_KAFKA}
        for place, found in sorted(set(zip(of.tolist(), protocols.tolist(), strict=True)), key=lambda pair: -pair[1]):
            name = brokers[place]
            if found != PROTOCOL_UNKNOWN and self.protocols.get(name) != PROTOCOL_KAFKA:
                self.protocols[name] = found  # prefer Kafka to TLS, and TLS to other protocols

    def _is_shown(self, name: str) -> bool:
        """Whether a broker counts: it is selected, and it may speak Kafka."""
        protocol = self.protocols.get(name, PROTOCOL_UNKNOWN)
        return protocol in (PROTOCOL_UNKNOWN, PROTOCOL_KAFKA, PROTOCOL_TLS) and self.is_selected(name)

    def _brokers(self, engine: Engine, numbers: Array) -> tuple[list[str], Array]:
        """The brokers of connections, and the index of each connection's broker: int64 (n,)."""
        ends = engine.endpoints(numbers).astype(np.int64)
        codes, of = np.unique(ends[:, 2] << 16 | ends[:, 3], return_inverse=True)
        return [endpoint(engine.addresses[code >> 16], code & 0xFFFF) for code in codes.tolist()], of.reshape(-1)


def _bits(rows: Array, client: Array, now: int | None) -> Array:
    """The bits of connections: uint8 (n,)."""
    asked = (rows["syn_at"] != 0) & (rows["syn_ack_at"] == 0)
    is_answered = (rows["reset_by"] == 1 - client) | (rows["is_unreachable"] != 0)
    refused = asked & is_answered & (rows["handshake_rtt_ns"] < 0)
    waited = np.ones(len(rows), bool) if now is None else now - rows["first"] >= ANSWER_TIME
    unanswered = asked & ~refused & (rows["only_syn"] != 0) & (rows["closed_at"] == 0) & waited
    reset = (rows["reset_by"] >= 0) & ~refused & (rows["packets"] > 1)
    found: Array = (
        (rows["syn_ack_at"] != 0) * _OPENED | refused * _REFUSED | unanswered * _UNANSWERED | reset * _RESET
        | (rows["handshake_rtt_ns"] >= 0) * _ROUND_TRIP
    ).astype(np.uint8)  # fmt: skip
    return found


def _add(total: Rows, rows: Rows) -> None:
    for name, row in rows.items():
        total[name] = total[name] + row if name in total else row


def _bounded(rows: Rows, most: int) -> Rows:
    """At most so many brokers: those with the most events, and the sum of the others."""
    if len(rows) <= most:
        return rows
    busiest = sorted(rows, key=lambda name: -int(rows[name][: len(COUNTS)].sum()))
    kept = {name: rows[name] for name in busiest[: most - 1] if name != OTHER}
    kept[OTHER] = added({name: row for name, row in rows.items() if name not in kept})
    return kept
