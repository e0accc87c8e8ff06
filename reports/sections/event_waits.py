"""What the outage of a broker costs its clients: waits, and the requests that wait behind these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array
from ..parties import has_own_name
from .event_answers import SECOND
from .event_timeline import Seen
from .slow_times import MEMBER_WAITS

#: A request that began so long before a silence, and was not answered when others were, waits for something else.
BEFORE_NS = SECOND // 10


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
        self._seen, self._outages = seen, outages
        self._people = [_people(seen, *outage) for outage in outages]
        waits, slow = seen.waits, seen.slow
        begin = waits["begin"] + waits["own"]
        self._times = waits["end"] - begin
        usable = ~is_among(waits["api_key"], MEMBER_WAITS) & (self._times > 0)
        self._of_waits = np.where(usable, self._charged(waits, begin, begin + BEFORE_NS, waits["end"]), -1)
        second = slow["second"] * SECOND
        self._of_slow = self._charged(slow, second, np.minimum(second + SECOND - 1, slow["last"]), slow["last"])

    def _charged(self, rows: dict[str, Array], first: Array, last: Array, until: Array) -> Array:
        """The outage for which each row counts, -1: none. `first`, `last`: when its requests began, ns. `until`: when
        they ended: those that an outage of their broker interrupts count for no other one."""
        clients = _clients(rows)
        found = np.full(len(clients), -1)
        order = sorted(enumerate(self._outages), key=lambda one: one[1][1])
        began = [(last >= begin) & (first <= end) & is_among(clients, people)
                 for (_, begin, end), people in zip(self._outages, self._people, strict=True)]  # fmt: skip
        for n, _ in order:
            found[began[n]] = n
        for _, (broker, begin, end) in order:
            found[(rows["broker"] == broker) & (until >= begin) & (first <= end)] = -1
        for n, (broker, _, _) in order:
            found[(rows["broker"] == broker) & began[n]] = n
        return found

    def waited(self, outage: int) -> Waited:
        """The waits of people's requests that began in an outage."""
        rows, seen = np.flatnonzero(self._of_waits == outage), self._seen
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
        slow, mine = self._seen.slow, self._of_slow == outage
        people = [n for n in distinct_values(slow["client_id"][mine]).tolist() if not self._is_own(n)]
        return int(slow["ns"][mine & is_among(slow["client_id"], people)].sum())

    def _is_own(self, client_id: int) -> bool:
        return has_own_name(self._seen.context.text(client_id))


def _people(seen: Seen, broker: int, begin: int, end: int) -> Array:
    """The clients of a broker that no quota delays in a time, as of `_clients`."""
    throttled = seen.throttled
    is_now = (throttled["last"] >= begin) & (throttled["first"] <= end)
    users = _clients(seen.of(seen.answers, seen.answers_of(broker)))
    found: Array = users[~is_among(users, _clients(seen.of(throttled, is_now)))]
    return found


def _clients(columns: dict[str, Array]) -> Array:
    """A number for the client of each row, by its address and client_id."""
    found: Array = (columns["client_ip"].astype(np.int64) << 32) + columns["client_id"]
    return found
