"""Waits of Produce requests with acks=all for followers.

A leader answers such a request when each in-sync follower has fetched beyond its records: with an offset in its Fetch,
a follower says that it has everything before it. So a capture at the leader's host shows who was last. Its wait is
charged to that follower. A part of it is the leader's: while it has the follower's Fetch in its hands (it appends, or
sends). The rest is the follower's own time: it was not back yet, or wrote what it had fetched.

A follower that was in time for the request before, and is behind when a request is answered, has left the in-sync
replicas. That request waited for it until then.

A follower is slow only beside another one that was in time, and while it fetches on the same connection. One that comes
back on another connection, or whose last Fetch has no response, was away: that is an outage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME, UNANSWERED
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.kernels.arrays import distinct_values, taken, value_counts

from ..batch import Array, Context
from .event_rows import EventKind, EventView, events_of, events_of_facts
from .gathered import FactRows, Gathered
from .section import Section, SectionInput
from .section_counts import Tally

_FETCHED = EventView(offset="v0", follower="v1", answered_at="v2")
#: Kinds of events. WRITTEN, by partition: the offset after its last record, and when the broker had the request. _FETCH
#: and, by partition, _POSITION: the offset, the broker id, and when it was answered. NOT_WRITTEN, by partition: an
#: answer with an error, or without an offset.
KINDS = WRITTEN, _FETCH, _POSITION, NOT_WRITTEN = (
    EventKind(1, EventView(end_offset="v0", begin="v1")), EventKind(2, _FETCHED), EventKind(3, _FETCHED),
    EventKind(4, EventView(error_code="v0", begin="v1")),
)  # fmt: skip
#: The section that reads them.
READ_BY = "follower-reading"
#: The kinds of facts that `read` needs.
FACTS = ("produced partition", "batch", "fetch", "fetch partition")
_ALL = -1
#: How a topic's id is found without Metadata: requests that are compared, how many there must be and the share of them
#: that must fit, and topics that are tried.
_SAMPLE, _FEWEST, _CERTAIN, _MOST_UNNAMED = 256, 5, 0.8, 64
#: Followers of a partition that are looked at.
_MOST_FOLLOWERS = 32


# ---------------------------------------------------------------- reading


def read(gathered: Gathered, tally: Tally) -> None:
    """Note the end of what each Produce with acks=all wrote, and each Fetch of a follower with its positions."""
    _note_written(gathered, tally)
    _note_fetches(gathered, tally)


def _note_written(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("produced partition")
    chosen = (gathered.column("acks") == _ALL) & (gathered.column("outcome") == ANSWERED)
    rows = rows.where(chosen[rows.exchange])
    is_written = (rows["error_code"] == 0) & (rows["base_offset"] >= 0)
    for kind, some in ((WRITTEN, rows.where(is_written)), (NOT_WRITTEN, rows.where(~is_written))):
        if not len(some):
            continue
        events = events_of_facts(gathered, some, kind)
        answered = gathered.column("response_first")[some.exchange]
        events["time"], events["begin"] = answered, answered - gathered.column("broker_ns")[some.exchange]
        if kind is WRITTEN:
            events["end_offset"] = some["base_offset"] + _records_of(gathered, some)
        else:
            events["error_code"] = some["error_code"]
        tally.note(events)


def _records_of(gathered: Gathered, rows: FactRows) -> Array:
    """The number of records that a request has for each partition of its response, at least 1."""
    batches = gathered.facts("batch")
    both = (rows, batches)
    exchange = np.concatenate([each.exchange for each in both])
    topic, topic_id, partition = (
        np.concatenate([each[name] for each in both]).astype(np.int64) for name in ("topic", "topic_id", "partition")
    )
    topic = np.where(topic_id >= 0, 2 * topic_id + 1, 2 * topic)
    _, place = np.unique(topic << 31 | partition & 0x7FFFFFFF, return_inverse=True)
    _, group = np.unique(exchange * (len(place) + 1) + place, return_inverse=True)
    counts = np.maximum(batches["records"], 0)
    sums = np.bincount(group[len(rows) :], counts, minlength=int(group.max()) + 1).astype(np.int64)
    found: Array = np.maximum(sums[group[: len(rows)]], 1)
    return found


def _note_fetches(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("fetch")
    replica = np.maximum(rows["replica_id"], rows["replica_state_id"])
    rows, replica = rows.where(replica >= 0), replica[replica >= 0]
    if not len(rows):
        return
    of_exchange = np.full(len(gathered), -1, np.int64)
    of_exchange[rows.exchange] = replica
    events = events_of(gathered, rows.exchange, _FETCH)
    _fill_fetch(gathered, events, rows.exchange, of_exchange)
    tally.note(events)
    positions = gathered.facts("fetch partition")
    positions = positions.where((of_exchange[positions.exchange] >= 0) & (positions["offset"] != NO_NUMBER))
    if len(positions):
        events = events_of_facts(gathered, positions, _POSITION)
        events["offset"] = positions["offset"]
        _fill_fetch(gathered, events, positions.exchange, of_exchange)
        tally.note(events)


def _fill_fetch(gathered: Gathered, events: Array, exchange: Array, replica: Array) -> None:
    rows = gathered.rows(exchange)
    events["time"] = rows["request_last"]
    events["follower"] = replica[exchange]
    events["answered_at"] = rows["response_first"]


# ---------------------------------------------------------------- joining


class Waits(NamedTuple):
    """One row for each partition of a Produce request with acks=all that a follower was seen to fetch.

    `events`: its event. `follower`: the broker id that is charged, -1: each follower was ahead. `wait_ns`: from when
    the broker had the request until that follower's Fetch. `own_ns`: of it, the follower's own time. `is_left`: the
    follower left the in-sync replicas. `is_slow`: it was not away, and another follower was in time. `followers`: the
    broker ids that fetch the partition.
    """

    events: Array
    follower: Array
    wait_ns: Array
    own_ns: Array
    is_left: Array
    is_slow: Array
    followers: tuple[int, ...]


class _Held:
    """The time that a leader has a Fetch of one connection in its hands."""

    def __init__(self, fetches: Array) -> None:
        self._from = fetches["time"]
        #: Whether the connection was closed before the last response.
        self.is_closed = bool(len(fetches)) and fetches["outcome"][-1] == UNANSWERED
        until = np.where(fetches["answered_at"] == NO_TIME, fetches["time"], fetches["answered_at"])
        self._lengths = np.maximum(until - self._from, 0)
        self._sums = np.concatenate([[0], np.cumsum(self._lengths)])

    def until(self, times: Array) -> Array:
        """The summed time before each of some times."""
        at = np.searchsorted(self._from, times, side="right")
        last = np.maximum(at - 1, 0)
        part = np.minimum(np.maximum(times - self._from[last], 0), self._lengths[last])
        found: Array = np.where(at > 0, self._sums[last] + part, 0)
        return found


#: A partition of a topic: its name or id, and its number.
Partition = tuple[str | None, int]


def all_waits(given: SectionInput) -> list[tuple[str | None, Waits]]:
    """The waits of a run, as of `waits_of`."""
    return list(waits_of(given.events(READ_BY), given.context))


def waits_of(events: Array, context: Context) -> Iterator[tuple[str | None, Waits]]:
    """The waits of each partition, with its topic."""
    positions = _by_partition(_POSITION.among(events), context)
    if not positions:
        return
    fetches = _FETCH.among(events)
    held = {key: _Held(rows) for key, rows in _grouped(fetches, fetches["connection"])}
    written = _by_partition(WRITTEN.among(events), context)
    ids = _unnamed(written, positions)
    for (topic, partition), rows in written.items():
        fetched = positions.get((ids.get(topic, topic), partition))
        if fetched is None:
            continue
        for leader, mine in _grouped(rows, rows["broker_ip"]):
            at_leader = fetched[fetched["broker_ip"] == leader]
            # Followers may use another address of the leader than clients.
            yield topic, _partition_waits(mine, at_leader if len(at_leader) else fetched, held)


def _by_partition(rows: Array, context: Context) -> dict[Partition, Array]:
    """The events of each partition, by the topic's name: requests may have its name or its id."""
    keys = np.stack([rows["topic"], rows["topic_id"], rows["partition"]], axis=1)
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    places: dict[Partition, int] = {}
    place = [
        places.setdefault((context.topic(topic, topic_id), partition), len(places))
        for topic, topic_id, partition in distinct.tolist()
    ]
    names = list(places)
    return {names[key]: found for key, found in _grouped(rows, np.array(place, np.int64)[group])}


def _grouped(rows: Array, keys: Array) -> Iterator[tuple[int, Array]]:
    """Rows by their key (int64), in the same order."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(taken(rows, order), first[1:]), strict=True) if len(rows) else ()


def _unnamed(written: dict[Partition, Array], positions: dict[Partition, Array]) -> dict[str | None, str | None]:
    """By topic, the id under which followers fetch it, where no Metadata response was captured that names both.

    Only the right id has, for nearly each request, a follower that gets ahead of it between request and response.
    """
    missing = sorted({key for key in written if key not in positions}, key=str)
    others = sorted({topic for topic, _ in positions if not any(topic == name for name, _ in written)}, key=str)
    scores: dict[str | None, dict[str | None, list[int]]] = {}
    for topic, partition in missing[:_MOST_UNNAMED]:
        rows = written[topic, partition][:_SAMPLE]
        for other in others[:_MOST_UNNAMED]:
            if (other, partition) not in positions:
                continue
            fetched = positions[other, partition]
            ahead = np.zeros(len(rows), bool)
            for follower in _followers(fetched):
                times = _acknowledged(rows, fetched[fetched["follower"] == follower])
                ahead |= (times >= rows["begin"]) & (times <= rows["time"])
            score = scores.setdefault(topic, {}).setdefault(other, [0, 0])
            score[0] += int(ahead.sum())
            score[1] += len(rows)
    found: dict[str | None, str | None] = {}
    for topic, by_id in scores.items():
        best = max(by_id, key=lambda other: by_id[other][0] / by_id[other][1])
        ahead_of, requests = by_id[best]
        if requests >= _FEWEST and ahead_of >= _CERTAIN * requests:
            found[topic] = best
    return found


def _partition_waits(written: Array, positions: Array, held: dict[int, _Held]) -> Waits:
    begin, end = written["begin"], written["time"]
    followers = _followers(positions)
    of_follower = [positions[positions["follower"] == each] for each in followers]
    acknowledged = np.stack([_acknowledged(written, each) for each in of_follower])
    in_time = acknowledged <= end
    left = np.stack([_is_left(begin, end, each) for each in in_time])
    until = np.where(left, end, np.where(in_time, acknowledged, begin))
    last = np.argmax(until, axis=0)
    at = (last, np.arange(len(written)))
    wait = np.maximum(until[at] - begin, 0)
    own = np.zeros(len(written), np.int64)
    is_slow = (in_time.sum(axis=0) - in_time[at]) > 0
    for number in range(len(followers)):
        mine = np.flatnonzero(last == number)
        for connection in distinct_values(of_follower[number]["connection"]).tolist():
            hands = held[connection]
            own[mine] -= hands.until(begin[mine] + wait[mine]) - hands.until(begin[mine])
        is_slow[mine] &= ~_is_away(taken(written, mine), of_follower[number], held)
    own = np.clip(own + wait, 0, wait)
    follower = np.where(wait > 0, np.array(followers)[last], -1)
    return Waits(written, follower, wait, own, left[at] & (wait > 0), is_slow, tuple(followers))


def _is_away(written: Array, positions: Array, held: dict[int, _Held]) -> Array:
    """For which requests a follower came back on another connection than it had when they began, or never."""
    before = np.searchsorted(positions["time"], written["begin"], side="right") - 1
    after = np.searchsorted(np.maximum.accumulate(positions["offset"]), written["end_offset"], side="left")
    link = positions["connection"][np.maximum(before, 0)]
    is_closed = np.array([held[each].is_closed for each in link.tolist()], bool)
    is_back = after < len(positions)
    is_other = positions["connection"][np.minimum(after, len(positions) - 1)] != link
    found: Array = (before >= 0) & np.where(is_back, is_other, is_closed)
    return found


def _followers(positions: Array) -> list[int]:
    """The broker ids that fetch a partition: those with the most positions if there are too many, ascending."""
    found, counts = value_counts(positions["follower"])
    most: list[int] = found[np.sort(np.argsort(-counts, kind="stable")[:_MOST_FOLLOWERS])].tolist()
    return most


def _is_left(begin: Array, end: Array, in_time: Array) -> Array:
    """Which requests a follower was too late for, although it was in sync when they began.

    It is removed when the first of several such requests is answered. Until then it was in sync, if it was in time for
    the request before.
    """
    at = np.arange(len(end))
    before = np.maximum.accumulate(np.where(in_time, at, -1))  # the last request that it was in time for
    removed = end[np.minimum(before + 1, len(end) - 1)]
    found: Array = ~in_time & (before >= 0) & ((begin < removed) | (before + 1 == at))
    return found


def _acknowledged(written: Array, positions: Array) -> Array:
    """When a follower first fetched at or beyond the end of each request."""
    ahead = np.maximum.accumulate(positions["offset"])
    at = np.searchsorted(ahead, written["end_offset"], side="left")
    times = np.append(positions["time"], np.iinfo(np.int64).max)
    found: Array = times[at]
    return found


def follower_addresses(given: SectionInput) -> dict[int, str | None]:
    """The address of each follower, by its broker id."""
    fetches, context = _FETCH.among(given.events(READ_BY)), given.context
    ends = zip(fetches["follower"].tolist(), fetches["client_ip"].tolist(), strict=True)
    return {node: context.address(ip) for node, ip in ends}


class Charges(NamedTuple):
    """What requests waited for, by the key of their exchange: int64 (n,) each but `is_slow`, which is bool.

    `wait`: how long, ns. `follower`: -1 for none. `own`: of the wait the follower's own time. `is_slow`: whether that
    one was slow (`Waits`).
    """

    exchange: Array
    wait: Array
    follower: Array
    own: Array
    is_slow: Array


def charged_requests(given: SectionInput) -> Charges:
    """The longest wait of each request over its partitions."""
    found = [waits for _, waits in given.once(all_waits)]
    parts = [(each.events["exchange"], each.wait_ns, each.follower, each.own_ns, each.is_slow) for each in found]
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)] or [np.zeros(0, np.int64)] * 5
    order = np.lexsort(columns[::-1])
    exchange, last = np.unique(columns[0][order][::-1], return_index=True)
    wait, follower, own, is_slow = (column[order[::-1][last]] for column in columns[1:])
    return Charges(exchange, wait, follower, own, is_slow.astype(bool) | (wait == 0))


#: What reads them, once for the section `replication` and for advice.
READING = Section(READ_BY, facts=FACTS, read=read, reads_notable=True)
