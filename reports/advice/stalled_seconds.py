"""The seconds in which a client's requests wait behind one that takes long by itself: no setting of the client is the
reason.

A request that takes `STALL_NS` or more by itself, at the broker or because packets were lost, stalls its connection.
What begins between its own begin and end waits for that, however few requests are in flight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, SUM
from ..section_parts.gathered import Gathered
from ..section_parts.notable import SLOW_NS
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from ..units import SECOND
from .sums import Client

#: Ten times what a report calls slow, and the shortest time after which TCP sends a lost packet again.
STALL_NS = 10 * SLOW_NS
#: Shorter waits behind others add nothing to a mean, and are not counted.
COUNTED_NS = 1_000_000
#: A stall is not followed for longer: clocks that were set make longer ones.
_MOST_SECONDS = 3_600

#: Of slow requests. `until`: when the last one was answered that took STALL_NS or more by itself. `behind_ns`: waits
#: for earlier requests, as far as neither quotas nor waits for data explain them; `waited`: how many of COUNTED_NS or
#: more. `time_ns`: all their time.
STALLS = CountForm(
    "advice.stalls",
    {"client_id": TEXT, "client_ip": ADDRESS, "api_key": NUMBER, "second": NUMBER},
    {"last": MAX, "until": MAX, "behind_ns": SUM, "waited": SUM, "time_ns": SUM},
    {"client_id": OTHER, "client_ip": -1, "api_key": -1, "second": -1},
)


class Stalled(NamedTuple):
    """Of a client and an API. `behind_ns`: of the waits behind earlier requests, those in stalled seconds, of
    `waited` requests. `time_ns`: all time of slow requests in these."""

    behind_ns: int = 0
    waited: int = 0
    time_ns: int = 0


NONE = Stalled()
StalledSeconds = dict[tuple[int, int, int], Stalled]


def read(gathered: Gathered, tally: Tally) -> None:
    """Count slow requests by second."""
    total = gathered.column("total_ns") - gathered.column("waiting_ns") - gathered.column("hol_poll_wait_ns")
    at = np.flatnonzero((gathered.column("outcome") == ANSWERED) & (total >= SLOW_NS))
    if not len(at):
        return
    rows = gathered.rows(at)
    own = rows["broker_ns"] - rows["waiting_ns"] + rows["loss_ns"]
    behind = rows["hol_wait_ns"] - rows["hol_throttle_wait_ns"] - rows["hol_poll_wait_ns"] - rows["hol_unknown_wait_ns"]
    begin, limit = rows["request_first"], _MOST_SECONDS * SECOND
    keys = {name: rows[name] for name in ("client_id", "client_ip", "api_key")} | {"second": begin // SECOND}
    tally.add(STALLS.name, keys, {
        "last": rows["response_last"], "until": np.where(own >= STALL_NS, rows["response_last"], 0),
        "behind_ns": np.clip(behind, 0, limit), "waited": behind >= COUNTED_NS,
        "time_ns": np.clip(total[at], 0, limit),
    })  # fmt: skip


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
