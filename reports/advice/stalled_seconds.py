"""The seconds in which a client's requests wait behind one that takes long by itself: no setting of the client is the
reason.

A request that takes `STALL_NS` or more by itself, at the broker or because packets were lost, stalls its connection.
What begins between its own begin and end waits for that, however few requests are in flight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..counting.count_forms import NUMBER
from ..section_parts.counted import CLIENT, Rows, counted, is_slow, largest, total, without_waits
from ..section_parts.notable import SLOW_NS
from ..section_parts.section import SectionInput
from ..units import SECOND
from .sums import Client

#: Ten times what a report calls slow, and the shortest time after which TCP sends a lost packet again.
STALL_NS = 10 * SLOW_NS
#: Shorter waits behind others add nothing to a mean, and are not counted.
COUNTED_NS = 1_000_000
#: A stall is not followed for longer: clocks that were set make longer ones.
_MOST_SECONDS = 3_600


def _behind(x: Rows) -> Any:
    return x.hol_wait_ns - x.hol_throttle_wait_ns - x.hol_poll_wait_ns - x.hol_unknown_wait_ns


#: Of slow requests. `until`: when the last one was answered that took STALL_NS or more by itself. `behind_ns`: waits
#: for earlier requests, as far as neither quotas nor waits for data explain them; `waited`: how many of COUNTED_NS or
#: more. `time_ns`: all their time.
STALLS = counted(
    "advice.stalls", CLIENT | {"api_key": NUMBER}, is_slow,
    more={"second": lambda x: x.request_first // SECOND},
    last=largest("response_last"),
    until=largest(lambda x: np.where(x.broker_ns - x.waiting_ns + x.loss_ns >= STALL_NS, x.response_last, 0)),
    behind_ns=total(lambda x: np.clip(_behind(x), 0, _MOST_SECONDS * SECOND)),
    waited=total(lambda x: _behind(x) >= COUNTED_NS),
    time_ns=total(lambda x: np.clip(without_waits(x), 0, _MOST_SECONDS * SECOND)),
)  # fmt: skip


class Stalled(NamedTuple):
    """Of a client and an API. `behind_ns`: of the waits behind earlier requests, those in stalled seconds, of
    `waited` requests. `time_ns`: all time of slow requests in these."""

    behind_ns: int = 0
    waited: int = 0
    time_ns: int = 0


NONE = Stalled()
StalledSeconds = dict[tuple[int, int, int], Stalled]


def stalled_seconds(given: SectionInput) -> StalledSeconds:
    """By client_id, client_ip and API. Use `given.once(stalled_seconds)`. Requests of a client wait for those of other
    APIs, too."""
    rows: dict[Client, list[dict[str, int]]] = {}
    for row in given.rows(STALLS.name):
        if row["second"] >= 0:
            rows.setdefault((row["client_id"], row["client_ip"]), []).append(row)
    found: StalledSeconds = {}
    for (client, ip), mine in rows.items():
        stalled: set[int] = set()
        for row in mine:
            if row["until"] > 0:
                last = min(row["until"] // SECOND, row["second"] + _MOST_SECONDS)
                stalled.update(range(row["second"], last + 1))
        for row in mine if stalled else ():
            if row["second"] in stalled:
                key = client, ip, row["api_key"]
                before = found.get(key, NONE)
                found[key] = Stalled(*(had + row[name] for had, name in zip(before, Stalled._fields, strict=True)))
    return found


def stalled_of_client(stalled: StalledSeconds, client: int, ip: int) -> int:
    """The time of all slow requests of a client in stalled seconds, ns."""
    return sum(one.time_ns for (name, address, _), one in stalled.items() if (name, address) == (client, ip))
