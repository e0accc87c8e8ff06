"""What the outage of a broker costs its clients: waits, and the requests that wait behind these."""

from __future__ import annotations

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


def waited(seen: Seen, broker: int, outage_begin: int, end: int | None) -> Waited:
    """The waits of people's requests that began while a broker was away: at other brokers, too, which wait for it
    (acks=all). Only clients that use the broker count, and none that a quota delays meanwhile; no waits for members
    (JoinGroup, SyncGroup)."""
    waits, until = seen.waits, seen.end if end is None else end
    begin = waits["begin"] + waits["own"]
    mine = (begin >= outage_begin - BEFORE_NS) & (begin <= until) & ~is_among(waits["api_key"], MEMBER_WAITS)
    rows = np.flatnonzero(mine & (waits["end"] > begin))
    rows = rows[is_among(_clients(seen.of(waits, rows)), _people(seen, broker, outage_begin, until))]
    times = waits["end"][rows] - begin[rows]
    lost, longest = 0, dict[str, int]()
    for (client,), of_client in groups_of(waits["client_id"][rows]):
        name = seen.context.text(client)
        if not has_own_name(name):
            lost += int(times[of_client].sum())
            if name is not None:
                longest[name] = int(times[of_client].max())
    return Waited(lost, tuple(sorted(longest.items(), key=lambda one: (-one[1], one[0]))))


def slow_time(seen: Seen, broker: int, begin: int, end: int, away: Array) -> int:
    """The time of slow requests that clients of a broker began while it hung, those behind others too: ns. At other
    brokers too, but those in `away` (bool by broker): these were away as well, and explain theirs. Clients are those of
    `waited`."""
    people = _people(seen, broker, begin, end)
    slow = seen.slow
    mine = (slow["second"] >= begin // SECOND) & (slow["second"] <= end // SECOND) & (slow["last"] >= begin)
    mine &= ~away[slow["broker"]]
    mine &= is_among(_clients(slow), people)
    own = [n for n in distinct_values(slow["client_id"][mine]).tolist() if has_own_name(seen.context.text(n))]
    return int(slow["ns"][mine & ~is_among(slow["client_id"], own)].sum())


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
