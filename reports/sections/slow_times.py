"""When requests were slow, and how much time that cost: counts of each second, which the section `events` reads.

A request is slow if it takes `SLOW_NS` or more, without waits for data and members. It counts in the second in which it
began. Slow requests that waited for lost segments also count by the hosts at both ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kafkatap.kernels.arrays import dict_rows, is_among

from ..batch import Array, Context
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..findings import NOTICED_NS
from ..section_parts.counted import (
    BROKER,
    CONNECTIONS,
    Counted,
    Rows,
    counted,
    is_slow,
    largest,
    least,
    total,
    without_waits,
)
from ..section_parts.section import SectionInput
from ..units import SECOND

#: JoinGroup and SyncGroup wait for other members.
MEMBER_WAITS = (11, 14)
#: The share of the lost time that may pass before a slow time begins, and after it is over: single requests.
_OUTSIDE = 0.05
#: Longer requests are those of a clock that was set: their sum must not overflow.
_MOST_NS = 86_400 * SECOND
#: A person notices a client that loses this share of the seconds in which it has slow requests.
NOTICED_SHARE = 0.2


def _second(x: Rows) -> Any:
    return x.request_first // SECOND


def slow_ns(x: Rows) -> Any:
    """The time of requests without waits for data and members, ns."""
    return np.minimum(without_waits(x), _MOST_NS)


def _loss_ns(x: Rows) -> Any:
    return np.minimum(x.loss_ns + x.hol_loss_wait_ns, _MOST_NS)


SLOW = counted(
    "events.slow", {"client_id": TEXT, "api_key": NUMBER}, is_slow, more={"second": _second},
    last=largest("response_last"), first=least("request_first"), requests=total(1), ns=total(slow_ns),
)  # fmt: skip
#: The same by client and broker, without MEMBER_WAITS.
SLOW_AT = counted(
    "events.slow-at", {"client_ip": ADDRESS, **BROKER, "client_id": TEXT},
    lambda x: is_slow(x) & ~is_among(x.api_key, MEMBER_WAITS), more={"second": _second},
    last=largest("response_last"), ns=total(slow_ns),
)  # fmt: skip
LOSS = counted(
    "events.loss", {"client_ip": ADDRESS, "broker_ip": ADDRESS}, lambda x: is_slow(x) & (_loss_ns(x) > 0),
    more={"second": _second},
    last=largest("response_last"), first=least("request_first"), requests=total(1), ns=total(_loss_ns),
)  # fmt: skip
#: Connections whose responses arrived later than they were captured.
RESENT = counted(
    "events.resent", {"client_id": TEXT, "client_ip": ADDRESS, "broker_ip": ADDRESS},
    lambda x: x.response_resent_ns > 0, of=CONNECTIONS,
    last=largest("last"), first=least("first"), connections=total(1), ns=total("response_resent_ns"),
)  # fmt: skip
COUNTS = (SLOW, SLOW_AT, LOSS, RESENT)


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
#: By the addresses of client and broker.
_Ends = tuple[str | None, str | None]


class LossTimes(NamedTuple):
    """`times`: when slow requests waited for lost segments. `resent`: how much later responses arrived than they were
    captured, by the client's number, ns."""

    times: Mapping[_Ends, SlowTime] = {}
    resent: Mapping[_Ends, Mapping[int, int]] = {}


_Who = TypeVar("_Who")


class Times(dict[_Who, SlowTime]):
    """By whose time it is. `rows`: the values of their counts, with their seconds."""

    def __init__(self, rows: Mapping[_Who, dict[str, Array]]) -> None:
        super().__init__((who, _slow_time(mine)) for who, mine in rows.items())
        self._rows = rows

    def within(self, people: Iterable[_Who], spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """The time of slow requests of several that began in some spans, and of the others: ns."""
        inside = outside = 0
        for who in people:
            if who in self._rows:
                rows = self._rows[who]
                is_in = np.zeros(len(rows["ns"]), bool)
                for begin, end in spans:
                    is_in |= (rows["last"] >= begin) & (rows["first"] <= end)
                inside, outside = inside + int(rows["ns"][is_in].sum()), outside + int(rows["ns"][~is_in].sum())
        return inside, outside

    def together(self, people: Iterable[_Who]) -> SlowTime:
        """The slow requests of several."""
        found = [self._rows[who] for who in people if who in self._rows]
        if not found:
            return NEVER
        rows = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        seconds, at = np.unique(rows["second"], return_inverse=True)
        first, last = np.full(len(seconds), np.iinfo(np.int64).max), np.zeros(len(seconds), np.int64)
        np.minimum.at(first, at, rows["first"])
        np.maximum.at(last, at, rows["last"])
        sums = {name: np.zeros(len(seconds), np.int64) for name in ("requests", "ns")}
        for name, total_of in sums.items():
            np.add.at(total_of, at, rows[name])
        return _slow_time({"first": first, "last": last, **sums})


SlowTimes = Times[tuple[str | None, int]]


def slow_times(given: SectionInput) -> SlowTimes | None:
    """By client and API. None if there were too many for the memory, so that earlier ones are not known."""
    context = given.context
    return _times(given, SLOW, lambda row: (context.text(row["client_id"]), row["api_key"]))


def noticed_ns(context: Context) -> float:
    """From how much lost time on a person notices a client, in a short capture too, ns."""
    return min(NOTICED_NS, NOTICED_SHARE * ((context.last or 0) - (context.first or 0)))


def loss_times(given: SectionInput) -> LossTimes | None:
    """What lost segments cost, by the addresses of client and broker; None as of `slow_times`."""

    def ends(row: Mapping[str, int]) -> _Ends:
        return given.context.address(row["client_ip"]), given.context.address(row["broker_ip"])

    times = _times(given, LOSS, ends)
    if times is None:
        return None
    resent: dict[_Ends, Counter[int]] = defaultdict(Counter)
    for row in given.rows(RESENT.name):
        resent[ends(row)][row["client_id"]] += row["ns"]
    return LossTimes(times, resent)


def _times(given: SectionInput, form: Counted, who: Callable[[dict[str, int]], _Who]) -> Times[_Who] | None:
    """`who`: of a row, whose time it is."""
    keys, values = given.keys(form.name), {**given.values(form.name), "second": given.keys(form.name)["second"]}
    if (keys["second"] < 0).any():
        return None
    names = [who(row) for row in dict_rows(keys)]
    rows: dict[_Who, list[int]] = defaultdict(list)
    for row in np.argsort(keys["second"], kind="stable").tolist():
        rows[names[row]].append(row)
    return Times({each: {name: column[mine] for name, column in values.items()} for each, mine in rows.items()})


def _slow_time(rows: dict[str, Array]) -> SlowTime:
    """`rows`: values of SLOW or LOSS by second, in order of time."""
    spent = np.cumsum(rows["ns"])
    total = int(spent[-1])
    begin, end = np.minimum(np.searchsorted(spent, (_OUTSIDE * total, (1 - _OUTSIDE) * total)), len(spent) - 1)
    return SlowTime(
        int(rows["requests"].sum()), total, len(spent), int(rows["first"][begin]), int(rows["last"][: end + 1].max())
    )
