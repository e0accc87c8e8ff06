"""What the outage of a broker costs its clients: waits, and the requests that wait behind these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array
from ..parties import has_own_name
from .event_answers import SECOND
from .event_timeline import NO_ROWS, Gap, Seen
from .slow_times import MEMBER_WAITS

#: A request that began so long before a silence, and was not answered when others were, waits for something else.
BEFORE_NS = SECOND // 10
_CLIENT = ("client_ip", "client_id")


class Waited(NamedTuple):
    """Waits for a broker: their sum, ns, and the longest of each client."""

    lost_ns: int = 0
    longest: tuple[tuple[str, int], ...] = ()


class Costs:
    """What outages cost: a wait counts once.

    It counts for the outage of its broker. At other brokers, which wait for the one that is away (acks=all), it counts
    for the outage that began last. Only clients that use the broker that is away count, and none that a quota delays
    meanwhile; no waits for members (JoinGroup, SyncGroup).
    """

    def __init__(self, seen: Seen, outages: Sequence[tuple[int, int, int]]) -> None:
        """`outages`: broker, begin, end (ns) of each."""
        self._seen, throttled = seen, seen.throttled
        self._brokers, self._begins, self._ends = np.array(outages, np.int64).reshape(-1, 3).T
        rows = np.flatnonzero(is_among(seen.answers["broker"], self._brokers))
        answers = {name: seen.answers[name][rows] for name in ("broker", *_CLIENT)}
        self._clients = distinct_values(_clients(answers))
        count = len(self._clients)
        users = distinct_values(answers["broker"] * count + self._numbers(answers))
        # Each outage, in order of their begin, with each client of its broker.
        order = np.argsort(self._begins, kind="stable")
        bounds = (np.searchsorted(users, (self._brokers[order] + more) * count).tolist() for more in (0, 1))
        people = [users[first:behind] % count for first, behind in zip(*bounds, strict=True)]
        of, person = np.repeat(order, [len(some) for some in people]), np.concatenate([NO_ROWS, *people])
        delayed = _overlap(self._numbers(throttled), throttled["first"], throttled["last"],
                           person, self._begins[of], self._ends[of])  # fmt: skip
        self._of, self._person = of[~delayed], person[~delayed]
        waits, slow = seen.waits, seen.slow
        begin = waits["begin"] + waits["own"]
        self._times = waits["end"] - begin
        usable = ~is_among(waits["api_key"], MEMBER_WAITS) & (self._times > 0)
        self._waits = self._charged(waits, begin, begin + BEFORE_NS, waits["end"], usable)
        second = slow["second"] * SECOND
        self._slow = self._charged(slow, second, np.minimum(second + SECOND - 1, slow["last"]), slow["last"])

    def _charged(
        self, rows: dict[str, Array], first: Array, last: Array, until: Array, usable: Array | bool = True
    ) -> dict[int, Array]:
        """The `usable` rows that count for each outage. `first`, `last`: when their requests began, ns; these ascend
        together. `until`: when they ended: those that an outage of their broker interrupts count for no other one."""
        if not len(self._of):
            return {}
        near = np.flatnonzero(usable & (last >= self._begins.min()) & (first <= self._ends.max()))
        first, last, broker, count = first[near], last[near], rows["broker"][near], len(self._seen.brokers) + 1
        clients = self._numbers({name: rows[name][near] for name in _CLIENT})
        found = self._latest(clients, first, last, self._person)
        found[_overlap(self._brokers, self._begins, self._ends, broker, first, until[near])] = -1
        own = self._latest(clients * count + broker, first, last, self._person * count + self._brokers[self._of])
        charged = np.where(own >= 0, own, found)
        some = np.flatnonzero(charged >= 0)
        return {outage: near[some[mine]] for (outage,), mine in groups_of(charged[some])}

    def _latest(self, keys: Array, first: Array, last: Array, of_people: Array) -> Array:
        """For each row the outage that began last, of those with its key in which it began; -1: none. `of_people`: the
        keys of outages and their clients."""
        by_last = _Ordered(keys, last)
        begin = by_last.places(of_people, self._begins[self._of])
        behind = _Ordered(keys, first).places(of_people, self._ends[self._of], "right")
        some = np.flatnonzero(begin < behind)
        some = some[np.argsort(begin[some], kind="stable")]
        found = np.full(len(keys), -1)
        found[by_last.order] = _values_on_top(begin[some], behind[some], self._of[some], len(keys))
        return found

    def waited(self, outage: int) -> Waited:
        """The waits of people's requests that began in an outage."""
        rows, seen = self._waits.get(outage, NO_ROWS), self._seen
        times = self._times[rows]
        lost, longest = 0, dict[str, int]()
        for (client,), of_client in groups_of(seen.waits["client_id"][rows]):
            name = seen.context.text(client)
            if not has_own_name(name):
                lost += int(times[of_client].sum())
                if name is not None:
                    longest[name] = int(times[of_client].max())
        return Waited(lost, tuple(sorted(longest.items(), key=lambda one: (-one[1], one[0]))))

    def slow_ns(self, outage: int) -> int:
        """The time of slow requests that began in an outage, those behind others too: ns."""
        slow = self._seen.of(self._seen.slow, self._slow.get(outage, NO_ROWS))
        people = [n for n in distinct_values(slow["client_id"]).tolist() if not self._is_own(n)]
        return int(slow["ns"][is_among(slow["client_id"], people)].sum())

    def _is_own(self, client_id: int) -> bool:
        return has_own_name(self._seen.context.text(client_id))

    def _numbers(self, columns: dict[str, Array]) -> Array:
        """The place of the client of each row among those of brokers that were away, -1: it is none of these."""
        clients = _clients(columns)
        at = np.searchsorted(self._clients, clients)
        found: Array = np.where(at < np.searchsorted(self._clients, clients, "right"), at, -1)
        return found


class WaitingHosts:
    """The hosts that wait for brokers, with waits of `shortest` ns or more."""

    def __init__(self, seen: Seen, shortest: int) -> None:
        waits, self._shortest, self._end = seen.waits, shortest, seen.end
        due = waits["begin"] + waits["own"]
        long = np.flatnonzero(waits["end"] - due >= shortest)
        self._due = _Ordered(waits["broker"][long], due[long])
        rows = long[self._due.order]
        self._hosts, self._ends = waits["client_ip"][rows].tolist(), waits["end"][rows].tolist()

    def others_wait(self, client_ip: int, broker: int, gap: Gap) -> bool:
        """Whether hosts other than one wait so long for a broker in a silence."""
        times = np.array((gap.begin - BEFORE_NS, gap.until(self._end) - self._shortest + 1))
        first, behind = self._due.places(np.array((broker, broker)), times).tolist()
        least = gap.begin + self._shortest
        # The last ones first: all but those from before the silence last into it, so the search is short.
        return any(self._hosts[at] != client_ip and self._ends[at] >= least for at in range(behind - 1, first - 1, -1))


class _Ordered:
    """Rows in order of a key and a time, int64 (n,) each."""

    def __init__(self, keys: Array, times: Array) -> None:
        self._times = distinct_values(times)
        codes = self._codes(keys, times, "left")
        self.order = np.argsort(codes, kind="stable")
        self._in_order = codes[self.order]

    def places(self, keys: Array, times: Array, side: Literal["left", "right"] = "left") -> Array:
        """The place of each key and time in `order`, as of np.searchsorted."""
        found: Array = np.searchsorted(self._in_order, self._codes(keys, times, side))
        return found

    def _codes(self, keys: Array, times: Array, side: Literal["left", "right"]) -> Array:
        found: Array = keys * (len(self._times) + 1) + np.searchsorted(self._times, times, side)
        return found


def _overlap(of_keys: Array, begins: Array, ends: Array, keys: Array, first: Array, last: Array) -> Array:
    """For each row, whether it overlaps a span with its key: more of these began by its end than were over before."""
    begun, over = _Ordered(of_keys, begins).places(keys, last, "right"), _Ordered(of_keys, ends).places(keys, first)
    found: Array = begun > over
    return found


def _values_on_top(begin: Array, behind: Array, values: Array, count: int) -> Array:
    """For each of `count` places the value of the last range that covers it, -1: none. `begin` ascends."""
    found, at, open_ranges = np.full(count, -1), 0, list[tuple[int, int]]()
    ranges = zip([*begin.tolist(), count], [*behind.tolist(), count], [*values.tolist(), -1], strict=True)
    for start, end, value in ranges:
        while open_ranges and at < start:
            until, top = open_ranges[-1]
            found[at : min(until, start)] = top
            if until <= start:
                open_ranges.pop()
            at = max(at, min(until, start))
        at = start
        open_ranges.append((end, value))
    return found


def _clients(columns: dict[str, Array]) -> Array:
    """A number for the client of each row, by its address and client_id."""
    found: Array = (columns["client_ip"].astype(np.int64) << 32) + columns["client_id"]
    return found
