"""Where the total time of exchanges went: sums of its parts (`dissector.time_parts`), as shares and in words.

Every section takes the parts of time from here. A head-of-line wait is a part of its own. What the requests ahead
waited for meanwhile is in `HOL_BEHIND`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.time_parts import TIME_PARTS, parts_of

from ..batch import Array
from ..counting.rollup import Rolled
from ..model import Column

#: The column with the share of each part.
SHARES = {part.name: f"{part.name.lower()}_share" for part in TIME_PARTS}
COLUMNS = tuple(
    Column(SHARES[part.name], f"{part.name}\nshare", "share", f"share of the time: {part.meaning}", 9)
    for part in TIME_PARTS
)
EVIDENCE = "the two largest parts of the time in words"
HOL_BEHIND = Column("hol_behind", "HOL wait\nbehind", "text",
                    "what the requests ahead waited for during head-of-line waits", 3)  # fmt: skip

NAMES = tuple(part.name for part in TIME_PARTS)
#: What broker time and waiting may be, if the throttle times of most exchanges are unknown.
UNKNOWN_WAITS = {"broker": "broker or throttle", "waiting": "waiting or throttle"}
#: Parts in words at most, and the least share of one.
_MOST_PARTS, _LEAST_SHARE = 2, 0.01
_OF_BROKER = ("answered", "unknown_waits", "broker_ns", "waiting_ns", "unknown_broker_ns")


#: What `Spent` is made of: the parts, and the columns of its other fields.
_BESIDE = {
    "client": "client_ns", "nagle": "nagle_ns", "hol_throttle": "hol_throttle_wait_ns",
    "hol_waiting": "hol_poll_wait_ns", "hol_unknown": "hol_unknown_wait_ns", "hol_loss": "hol_loss_wait_ns",
    "broker_trip": "round_trip_ns", "hol_trip": "hol_round_trip_ns",
}  # fmt: skip
_SPENT = (*(name for part in TIME_PARTS for name in part.columns), *_BESIDE.values())


class Spent(NamedTuple):
    """Summed total time by its parts, ns: by name, in the order of TIME_PARTS.

    Parts of parts, which are in no sum: `client` of receiver and sender, at the client's end; `nagle` of sender;
    `hol_throttle`, `hol_waiting`, `hol_unknown`, `hol_loss` of HOL: the requests ahead were throttled, waited for data
    or members, were throttled or at the broker, or waited for lost segments; `broker_trip`, `hol_trip` of path: the
    round trip from the capture point to the broker, during broker time and head-of-line wait.
    """

    parts: Mapping[str, int]
    client: int = 0
    nagle: int = 0
    hol_throttle: int = 0
    hol_waiting: int = 0
    hol_unknown: int = 0
    hol_loss: int = 0
    broker_trip: int = 0
    hol_trip: int = 0

    @property
    def round_trip(self) -> int:
        """The round trips from the capture point to the broker."""
        return self.broker_trip + self.hol_trip

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        both = {name: ns + other.parts.get(name, 0) for name, ns in self.parts.items()}
        return Spent(both, *(a + b for a, b in zip(self[1:], other[1:], strict=True)))

    def without_waiting(self) -> Spent:
        """Without waits for data and members, also those of requests ahead."""
        parts = {**self.parts, "waiting": 0, "HOL": max(self.parts["HOL"] - self.hol_waiting, 0)}
        return self._replace(parts=parts, hol_waiting=0)

    def shares(self) -> dict[str, float | None]:
        """The values of COLUMNS: each part as a share of all parts, 0 to 1. None if there is no time."""
        total = self.total
        return {SHARES[name]: part / total if total else None for name, part in self.parts.items()}

    def in_words(self, names: Mapping[str, str] = UNKNOWN_WAITS, *, is_known: bool = True) -> str | None:
        """`broker 71 %, throttle 20 %`. `is_known`: whether most throttle times are. None if there is no time."""
        return in_words({(name if is_known else names.get(name, name)): ns for name, ns in self.parts.items()})

    def hol_in_words(self) -> str | None:
        """What the requests ahead waited for: `throttle 60 %, broker 40 %`. None without a head-of-line wait."""
        ahead = {"throttle": self.hol_throttle, "waiting": self.hol_waiting, "loss": self.hol_loss,
                 UNKNOWN_WAITS["broker"]: self.hol_unknown}  # fmt: skip
        return in_words({**ahead, "broker": self.hol_broker})

    @property
    def hol_broker(self) -> int:
        """The part of HOL in which the requests ahead were at the broker."""
        ahead = self.hol_throttle + self.hol_waiting + self.hol_loss + self.hol_unknown
        return max(self.parts["HOL"] - ahead, 0)


def in_words(parts: Mapping[str, int]) -> str | None:
    """The largest parts of a time. None if there is none."""
    total = sum(parts.values())
    if not total:
        return None
    largest = sorted(parts.items(), key=lambda part: -part[1])[:_MOST_PARTS]
    return ", ".join(f"{name} {percent(ns / total)}" for name, ns in largest if ns >= _LEAST_SHARE * total)


NOTHING = Spent(dict.fromkeys(NAMES, 0))


def has_unknown_waits(rolled: Rolled, row: int) -> bool:
    """Whether throttle time or long polls are unknown for most answered exchanges of a row of a rollup, or for most of
    their broker time, because these bytes were not captured. -1: no row."""
    if row < 0:
        return False
    v = {name: int(rolled.values[name][row]) for name in _OF_BROKER}
    own = v["broker_ns"] - v["waiting_ns"]
    return 2 * v["unknown_waits"] > v["answered"] or 2 * v["unknown_broker_ns"] > own


def percent(share: float) -> str:
    """`71 %`."""
    return f"{100 * share:.0f} %"


def spent(rolled: Rolled, row: int) -> Spent:
    """The parts of one row of a rollup. -1: no time."""
    if row < 0:
        return NOTHING
    values: dict[str, Any] = {name: int(rolled.values[name][row]) for name in _SPENT}
    return Spent(parts_of(values), *(values[name] for name in _BESIDE.values()))


def lost_ns(values: Mapping[str, Array]) -> Array:
    """The total time of many rows without waits for data and members, also those of requests ahead: int64 (rows,)."""
    parts = spent_columns(values)
    ahead = np.minimum(parts["hol_waiting"], parts["HOL"])
    return np.asarray(sum(parts[name] for name in NAMES if name != "waiting")) - ahead


def spent_columns(values: Mapping[str, Array]) -> dict[str, Array]:
    """The fields of `Spent`, and each of its parts, by name, of the values of many rows: int64 (rows,) each."""
    return {**parts_of(values), **{name: values[column] for name, column in _BESIDE.items()}}
