"""What the outage of a broker costs its clients: waits, and the requests that wait behind these."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..parties import has_own_name
from .event_answers import SECOND
from .event_counts import THROTTLED
from .event_timeline import Seen
from .slow_times import MEMBER_WAITS, SLOW_AT

#: A request that began so long before a silence, and was not answered when others were, waits for something else.
_BEFORE_NS = SECOND // 10


class Waited(NamedTuple):
    """Waits for a broker: their sum, ns, and the longest of each client."""

    lost_ns: int = 0
    longest: tuple[tuple[str, int], ...] = ()


def waited(seen: Seen, broker: int, outage_begin: int, end: int | None) -> Waited:
    """The waits of people's requests that began while a broker was away: at other brokers, too, which wait for it
    (acks=all). Only clients that use the broker count, and none that a quota delays meanwhile; no waits for members
    (JoinGroup, SyncGroup)."""
    waits, until = seen.waits, seen.end if end is None else end
    people = _people(seen, broker, outage_begin, until)
    begin = waits["begin"] + waits["own"]
    mine = (begin >= outage_begin - _BEFORE_NS) & (begin <= until) & ~is_among(waits["api_key"], MEMBER_WAITS)
    lost, longest = 0, dict[str, int]()
    for row in np.flatnonzero(mine & (waits["end"] > begin)).tolist():
        name = seen.context.text(int(waits["client_id"][row]))
        if (int(waits["client_ip"][row]), int(waits["client_id"][row])) in people:
            time = int(waits["end"][row] - begin[row])
            lost += time
            if name is not None:
                longest[name] = max(longest.get(name, 0), time)
    return Waited(lost, tuple(sorted(longest.items(), key=lambda one: (-one[1], one[0]))))


def slow_time(seen: Seen, broker: int, begin: int, end: int, others: Set[int]) -> int:
    """The time of slow requests that clients of a broker began while it hung, those behind others too: ns. At other
    brokers too, but `others`: these were away as well, and explain theirs. Clients as of `waited`."""
    people = _people(seen, broker, begin, end)
    slow = seen.columns(SLOW_AT.name)
    mine = (slow["second"] >= begin // SECOND) & (slow["second"] <= end // SECOND) & (slow["last"] >= begin)
    mine &= ~is_among(slow["broker"], sorted(others))
    who = zip(slow["client_ip"].tolist(), slow["client_id"].tolist(), strict=True)
    mine &= np.fromiter((one in people for one in who), bool, len(mine))
    return int(slow["ns"][mine].sum())


def _people(seen: Seen, broker: int, begin: int, end: int) -> set[tuple[int, int]]:
    """The clients of a broker, besides the cluster's own, that no quota delays in a time."""
    answers, throttled = seen.answers, seen.columns(THROTTLED.name)
    is_now = (throttled["last"] >= begin) & (throttled["first"] <= end)
    found = _clients(seen.of(answers, answers["broker"] == broker)) - _clients(seen.of(throttled, is_now))
    return {one for one in found if not has_own_name(seen.context.text(one[1]))}


def _clients(columns: dict[str, Array]) -> set[tuple[int, int]]:
    return set(zip(columns["client_ip"].tolist(), columns["client_id"].tolist(), strict=True))
