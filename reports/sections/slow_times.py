"""When requests were slow, and how much time that cost: counts of each second, which the section `events` reads.

A request is slow if it takes `SLOW_NS` or more, without waits for data and members. It counts in the second in which it
began.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from ..batch import Array
from ..counting.count_forms import NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..findings import NOTICED_NS
from ..section_parts.gathered import Gathered
from ..section_parts.notable import SLOW_NS
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from ..units import SECOND

SLOW = CountForm(
    "events.slow",
    {"client_id": TEXT, "api_key": NUMBER, "second": NUMBER},
    {"last": MAX, "first": MIN, "requests": SUM, "ns": SUM},
    {"client_id": OTHER, "api_key": -1, "second": -1},
)
#: The share of the lost time that may pass before a slow time begins, and after it is over: single requests.
_OUTSIDE = 0.05
#: Longer requests are those of a clock that was set: their sum must not overflow.
_MOST_NS = 86_400 * SECOND
#: A person notices a client that loses this share of the seconds in which it has slow requests.
NOTICED_SHARE = 0.2


def read_slow(gathered: Gathered, tally: Tally) -> None:
    """Count the slow requests."""
    own = gathered.column("total_ns") - gathered.column("waiting_ns") - gathered.column("hol_poll_wait_ns")
    chosen = np.flatnonzero((gathered.column("outcome") == ANSWERED) & (own >= SLOW_NS))
    if len(chosen):
        begin = gathered.column("request_first")[chosen]
        keys = {"client_id": gathered.column("client_id")[chosen], "api_key": gathered.column("api_key")[chosen]}
        spent = np.minimum(own[chosen], _MOST_NS)
        values = {"last": gathered.column("response_last")[chosen], "first": begin, "requests": 1, "ns": spent}
        tally.add(SLOW.name, keys | {"second": begin // SECOND}, values)


class SlowTime(NamedTuple):
    """The slow requests of a client and API. `ns`: their time, in `seconds` different seconds. From `begin` to `end`
    nearly all of it passed."""

    requests: int
    ns: int
    seconds: int
    begin: int
    end: int

    @property
    def is_noticed(self) -> bool:
        return self.ns >= max(NOTICED_NS, NOTICED_SHARE * self.seconds * SECOND)


NEVER = SlowTime(0, 0, 0, 0, 0)
SlowTimes = dict[tuple[str | None, int], SlowTime]


def slow_times(given: SectionInput) -> SlowTimes | None:
    """By client and API. None if there were too many for the memory, so that earlier ones are not known."""
    keys, values = given.keys(SLOW.name), given.values(SLOW.name)
    if (keys["second"] < 0).any():
        return None
    rows: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    for row in np.argsort(keys["second"], kind="stable").tolist():
        rows[given.context.text(int(keys["client_id"][row])), int(keys["api_key"][row])].append(row)
    return {who: _slow_time({name: column[mine] for name, column in values.items()}) for who, mine in rows.items()}


def _slow_time(rows: dict[str, Array]) -> SlowTime:
    """`rows`: values of SLOW, in order of time."""
    spent = np.cumsum(rows["ns"])
    total = int(spent[-1])
    begin, end = np.minimum(np.searchsorted(spent, (_OUTSIDE * total, (1 - _OUTSIDE) * total)), len(spent) - 1)
    return SlowTime(
        int(rows["requests"].sum()), total, len(spent), int(rows["first"][begin]), int(rows["last"][: end + 1].max())
    )
