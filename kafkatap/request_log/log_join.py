"""`LogJoin`: the exchanges of a run joined with the lines of request logs.

`add` takes batches while a run goes on, and keeps the exchanges whose client port and correlation id are in a log (136
bytes each), and 19 bytes of each other one. `joined` then pairs them:

1. Pairs have the same client, port of the broker, correlation id and API, and the same broker. If no address of a
   broker in the logs is in the captures (NAT, or a log without it), any broker will do.
2. The most common difference between the time of a line and the end of its exchange, over all such pairs of a log file,
   is the offset between its clock, with its time zone, and the capturing clock.
3. Pairs must fit in time within FIT_NS after that. Of several that fit (a port was used again), the nearest counts.

What finds no partner is counted by reason on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE, NO_REPLY_EXPECTED, NO_TIME, ORPHAN_RESPONSE
from kafkatap.kernels.arrays import joined as concatenated
from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.connection_words import P_TLS

from .log_files import LogFile, RequestLog

Array = np.ndarray[Any, Any]
#: How far the end of a line may be from that of its exchange, by clocks that agree, ns.
FIT_NS = 5_000_000_000
#: Differences this close to each other are of one clock. No time zone is further from UTC than this, ns.
WINDOW_NS, ZONES_NS = 2_000_000_000, (14 * 60 + 30) * 60_000_000_000
#: The time of a line has ms, so pairs may be off by this even if nothing is late, ns.
MS = 1_000_000
_API_VERSIONS, _ENVELOPE, _AUTHENTICATION = 18, 58, (17, 36)

_KEPT_NAMES = (
    "key", "connection", "request_first", "request_last", "response_first", "response_last", "broker_ns", "hol_wait_ns",
    "throttle_wait_ns", "total_ns", "client_ip", "broker_ip", "client_port", "broker_port", "client_id",
    "correlation_id", "api_key", "api_version", "outcome", "long_poll",
)  # fmt: skip
#: The columns of EXCHANGE that are kept of an exchange that may be in a log.
KEPT = np.dtype([(name, EXCHANGE.fields[name][0]) for name in _KEPT_NAMES])  # type: ignore[index]
_OTHER = np.dtype([("end", "i8"), ("broker_ip", "i4"), ("broker_port", "i4"), ("api_key", "i2"), ("outcome", "u1")])

_CONNECTION = np.dtype([(name, "i4") for name in ("client_ip", "client_port", "protocol")])

#: Why a request of the captures is in no log, and why a line is in no capture; in the order of the checks.
REQUEST_REASONS = (
    "its request was not captured", "of another broker", "before the log begins", "after the log ends",
    "authentication: the broker does not log it", "Envelope: the broker logs what is in it", "it has no response",
    "not in the log",
)  # fmt: skip
LINE_REASONS = (
    "of another broker", "before the capture", "after the capture", "forwarded in an Envelope",
    "its connection is encrypted (TLS)",
    "its connection is not in the capture", "not found in its connection",
)  # fmt: skip


class Unmatched(NamedTuple):
    """How many of one side have no partner: `side` is "capture" or "log", `of`: all of that side."""

    side: str
    reason: str
    number: int
    of: int


class FileFacts(NamedTuple):
    """A log file. `first`, `last`: times of its lines, ns since the epoch by its own clock. `offset_ns`: how far it is
    ahead of the capturing clock, None: unknown."""

    file: LogFile
    joined: int
    first: int | None
    last: int | None
    offset_ns: int | None


class Joined(NamedTuple):
    """`exchanges` (KEPT) and `lines` (LINE) that belong together, row by row, in order of `request_first`, and
    `offsets`: by row, that of the line's file. `captured`: by API key, the answered requests to brokers of the logs."""

    exchanges: Array
    lines: Array
    offsets: Array
    log: RequestLog
    files: list[FileFacts]
    unmatched: list[Unmatched]
    captured: dict[int, int]

    @property
    def is_answered(self) -> Array:
        """Whether both clocks measured the exchange to its end: bool by row."""
        answered: Array = (self.exchanges["outcome"] == ANSWERED) & (self.lines["total"] >= 0)
        return answered


def _keys(ports: Array, correlation_ids: Array) -> Array:
    """Client port and correlation id as one int64 each."""
    made: Array = (ports.astype(np.int64) << 32) | (correlation_ids.astype(np.int64) & 0xFFFFFFFF)
    return made


def end_of(rows: Array) -> Array:
    """When the broker was done with exchanges (KEPT or EXCHANGE): the response's last byte, or the request's."""
    end: Array = np.where(rows["response_last"] != NO_TIME, rows["response_last"], rows["request_last"])
    return end


class LogJoin:
    """`by_client`: the report is also to be by client."""

    def __init__(self, log: RequestLog, by_client: bool = False) -> None:
        self.log = log
        self.by_client = by_client
        self._known = np.unique(_keys(log.lines["client_port"], log.lines["correlation_id"]))
        self._ports = np.unique(log.lines["client_port"])
        self._kept: list[Array] = []
        self._others: list[Array] = []
        self._connections: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Add the exchanges of a batch."""
        rows = batch.exchanges
        keys = _keys(rows["client_port"], rows["correlation_id"])
        at = np.minimum(np.searchsorted(self._known, keys), max(len(self._known) - 1, 0))
        has_request = rows["outcome"] != ORPHAN_RESPONSE
        is_kept = (self._known[at] == keys) & has_request if len(self._known) else np.zeros(len(rows), bool)
        self._kept.append(_copied(rows, np.flatnonzero(is_kept), KEPT))
        self._others.append(_others(rows, np.flatnonzero(~is_kept)))

    def add_connections(self, rows: Array) -> None:
        """Add CONNECTION_ROWs of connections that ended: of those with a port that is in the logs."""
        self._connections.append(_copied(rows, np.flatnonzero(np.isin(rows["client_port"], self._ports)), _CONNECTION))

    def also(self, watcher: Callable[[Array], None]) -> Callable[[Array], None]:
        """`add_connections`, and another watcher of the engine."""

        def add(rows: Array) -> None:
            watcher(rows)
            self.add_connections(rows)

        return add

    def joined(self, context: Context) -> Joined:
        """Pair the exchanges so far with the lines. `context`: of the run."""
        exchanges = concatenated(self._kept, KEPT)
        others = concatenated(self._others, _OTHER)
        lines = self.log.lines
        clients, brokers = self._addresses(context, exchanges)
        left, right = _candidates(exchanges, lines, clients, brokers)
        offsets = self._offsets(exchanges, lines, left, right)
        left, right = _nearest(exchanges, lines, left, right, offsets)
        order = np.lexsort((exchanges["key"][left], exchanges["request_first"][left]))
        left, right = left[order], right[order]
        is_paired, is_used = np.zeros(len(exchanges), bool), np.zeros(len(lines), bool)
        is_paired[left], is_used[right] = True, True
        everything = concatenated([others, _others(exchanges, np.arange(len(exchanges)))], _OTHER)
        is_elsewhere = self._is_elsewhere(right, everything, context)
        unpaired = concatenated([others, _others(exchanges, np.flatnonzero(~is_paired))], _OTHER)
        unmatched = [
            *self._why_no_line(unpaired, len(everything), brokers, offsets, bool(len(lines) and is_elsewhere.all())),
            *self._why_no_exchange(np.flatnonzero(~is_used), clients, offsets, context, is_elsewhere),
        ]
        is_counted = (everything["outcome"] == ANSWERED) & ~self._is_other(everything, brokers)
        answered = everything["api_key"][is_counted]
        apis, counts = np.unique(answered, return_counts=True)
        return Joined(
            exchanges[left], lines[right], offsets[lines["file"][right]], self.log, self._files(right, offsets),
            unmatched, dict(zip(apis.tolist(), counts.tolist(), strict=True)),
        )  # fmt: skip

    def _addresses(self, context: Context, exchanges: Array) -> tuple[Array, Array]:
        """The capture's number of each line's client and broker; -1: not in the capture. All -2 for brokers that any
        broker of the capture may be."""
        numbers = {address: n for n, address in enumerate(context.addresses)}
        of_log = np.array([*(numbers.get(address, -1) for address in self.log.addresses), -1], np.int64)
        clients, brokers = of_log[self.log.lines["client"]], of_log[self.log.lines["broker"]]
        if not np.isin(brokers, exchanges["broker_ip"]).any():
            brokers = np.full(len(brokers), -2, np.int64)
        return clients, brokers

    def _offsets(self, exchanges: Array, lines: Array, left: Array, right: Array) -> Array:
        """The offset of each file: int64, NO_TIME: unknown. Of a file without candidates it is that of all."""
        known = lines["end"][right] >= 0
        left, right = left[known], right[known]
        apart = lines["end"][right] - end_of(exchanges)[left]
        offsets = np.full(max(len(self.log.files), 1), NO_TIME, np.int64)
        if len(apart):
            offsets[:] = _most_common(apart)
            files = lines["file"][right]
            for file in np.unique(files).tolist():
                offsets[file] = _most_common(apart[files == file])
        return offsets

    def _is_other(self, rows: Array, brokers: Array) -> Array:
        """Whether the broker of rows (_OTHER) is in no log: bool."""
        if not (brokers >= 0).any():
            return np.zeros(len(rows), bool)
        ends = np.unique((brokers << 16) | self.log.lines["broker_port"])
        other: Array = ~np.isin(_broker_ends(rows), ends)
        return other

    def _is_elsewhere(self, used: Array, everything: Array, context: Context) -> Array:
        """Whether lines are of a broker that is not in the capture: those of files without a partner, with an end of a
        broker that no exchange has. `used`: lines with a partner. `everything`: _OTHER of all exchanges."""
        lines = self.log.lines
        numbers = {address: n for n, address in enumerate(context.addresses)}
        of_log = np.array([*(numbers.get(address, -1) for address in self.log.addresses), -1], np.int64)
        is_seen = np.isin((of_log[lines["broker"]] << 16) | lines["broker_port"], _broker_ends(everything))
        has_partner = np.isin(lines["file"], np.unique(lines["file"][used]))
        found: Array = (lines["broker"] >= 0) & ~is_seen & ~has_partner
        return found

    def _why_no_line(
        self, rows: Array, of: int, brokers: Array, offsets: Array, are_all_elsewhere: bool
    ) -> list[Unmatched]:
        lines, mine = self.log.lines, _broker_ends(rows)
        is_other = self._is_other(rows, brokers) | are_all_elsewhere
        timed = lines[(lines["end"] >= 0) & (offsets[lines["file"]] != NO_TIME)]
        times = timed["end"] - offsets[timed["file"]]
        first, last = (int(times.min()), int(times.max())) if len(times) else (NO_TIME, 2**63 - 1)
        is_sasl = np.isin(rows["api_key"], _AUTHENTICATION)
        is_sasl |= (rows["api_key"] == _API_VERSIONS) & np.isin(mine, mine[is_sasl])  # the one before it
        reasons = (
            rows["outcome"] == ORPHAN_RESPONSE, is_other, rows["end"] < first - MS, rows["end"] > last + MS,
            is_sasl, rows["api_key"] == _ENVELOPE, ~np.isin(rows["outcome"], (ANSWERED, NO_REPLY_EXPECTED)),
            np.ones(len(rows), bool),
        )  # fmt: skip
        return _counted("capture", REQUEST_REASONS, reasons, of)

    def _why_no_exchange(
        self, unused: Array, clients: Array, offsets: Array, context: Context, is_elsewhere: Array
    ) -> list[Unmatched]:
        lines = self.log.lines[unused]
        seen = concatenated(self._connections, _CONNECTION)
        offset = offsets[lines["file"]]
        is_timed = (lines["end"] >= 0) & (offset != NO_TIME)
        times = np.where(is_timed, lines["end"] - np.where(is_timed, offset, 0), 0)
        encrypted, known = (np.zeros(len(lines), bool) for _ in range(2))
        if len(seen):
            places = (seen["client_ip"].astype(np.int64) << 16) | seen["client_port"]
            mine = (clients[unused] << 16) | lines["client_port"]
            known = np.isin(mine, places)
            encrypted = np.isin(mine, places[seen["protocol"] == P_TLS])
        first, last = context.first or 0, context.last or 0
        reasons = (
            is_elsewhere[unused], is_timed & (times - np.maximum(lines["total"], 0) < first),
            is_timed & (times > last + MS), lines["is_forwarded"] != 0, encrypted, ~known, np.ones(len(lines), bool),
        )  # fmt: skip
        return _counted("log", LINE_REASONS, reasons, len(self.log.lines))

    def _files(self, used: Array, offsets: Array) -> list[FileFacts]:
        lines = self.log.lines
        joined = np.bincount(lines["file"][used], minlength=len(self.log.files)).tolist()
        made = []
        for n, file in enumerate(self.log.files):
            times = lines["end"][(lines["file"] == n) & (lines["end"] >= 0)]
            first, last = (int(times.min()), int(times.max())) if len(times) else (None, None)
            offset = int(offsets[n]) if offsets[n] != NO_TIME else None
            made.append(FileFacts(file, joined[n], first, last, offset))
        return made


def _most_common(apart: Array) -> int:
    """The median of the differences that are most frequent, within WINDOW_NS. Those that no time zone explains count
    only if there are no others."""
    near = apart[np.abs(apart) <= ZONES_NS]
    sorted_ = np.sort(near if len(near) else apart)
    counts = np.searchsorted(sorted_, sorted_ + WINDOW_NS, "right") - np.arange(len(sorted_))
    first = int(np.argmax(counts))
    return int(np.median(sorted_[first : first + counts[first]]))


def _broker_ends(rows: Array) -> Array:
    """Address number and port of brokers as one int64 each."""
    made: Array = (rows["broker_ip"].astype(np.int64) << 16) | rows["broker_port"]
    return made


def _copied(rows: Array, places: Array, kind: np.dtype[Any]) -> Array:
    made = np.zeros(len(places), kind)
    for name in kind.names or ():
        made[name] = rows[name][places]
    return made


def _others(rows: Array, places: Array) -> Array:
    made = np.zeros(len(places), _OTHER)
    for name in ("broker_ip", "broker_port", "api_key", "outcome"):
        made[name] = rows[name][places]
    made["end"] = end_of(rows)[places]
    return made


def _counted(side: str, reasons: tuple[str, ...], masks: tuple[Array, ...], of: int) -> list[Unmatched]:
    """Each row counts for the first reason that holds."""
    left = np.ones(len(masks[0]), bool)
    made = []
    for reason, mask in zip(reasons, masks, strict=True):
        count = int((left & mask).sum())
        left &= ~mask
        if count:
            made.append(Unmatched(side, reason, count, of))
    return made


def _candidates(exchanges: Array, lines: Array, clients: Array, brokers: Array) -> tuple[Array, Array]:
    """All pairs of rows (of `exchanges`, of `lines`) with the same client, ports, correlation id, API and broker."""
    ours, theirs = (_keys(rows["client_port"], rows["correlation_id"]) for rows in (exchanges, lines))
    order = np.argsort(theirs, kind="stable")
    theirs = theirs[order]
    first, last = np.searchsorted(theirs, ours, "left"), np.searchsorted(theirs, ours, "right")
    counts = last - first
    left = np.repeat(np.arange(len(exchanges)), counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = order[np.repeat(first, counts) + within]
    fits = exchanges["client_ip"][left] == clients[right]
    fits &= (lines["broker_port"][right] < 0) | (exchanges["broker_port"][left] == lines["broker_port"][right])
    fits &= (brokers[right] < 0) | (exchanges["broker_ip"][left] == brokers[right])
    fits &= (lines["api_key"][right] < 0) | (exchanges["api_key"][left] == lines["api_key"][right])
    fits &= lines["is_forwarded"][right] == 0
    return left[fits], right[fits]


def _nearest(exchanges: Array, lines: Array, left: Array, right: Array, offsets: Array) -> tuple[Array, Array]:
    """Of candidates those that fit in time, each row once: the nearest pairs first."""
    offset = offsets[lines["file"][right]]
    is_timed = (lines["end"][right] >= 0) & (offset != NO_TIME)
    apart = np.where(is_timed, np.abs(lines["end"][right] - offset - end_of(exchanges)[left]), 0)
    chosen = np.flatnonzero(apart <= FIT_NS)
    chosen = chosen[np.argsort(apart[chosen], kind="stable")]
    # One pass is enough for rows that are unique; the others take the nearest that is free.
    left, right = left[chosen], right[chosen]
    free_left, free_right = np.ones(len(exchanges), bool), np.ones(len(lines), bool)
    single = _is_single(left) & _is_single(right)
    taken = [np.flatnonzero(single)]
    rest = []
    for i in np.flatnonzero(~single).tolist():
        if free_left[left[i]] and free_right[right[i]]:
            free_left[left[i]] = free_right[right[i]] = False
            rest.append(i)
    picked = np.concatenate([*taken, np.array(rest, np.int64)])
    return left[picked], right[picked]


def _is_single(values: Array) -> Array:
    """Whether each value occurs once: bool."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    single: Array = counts[inverse.reshape(-1)] == 1
    return single
