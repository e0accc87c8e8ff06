"""Where the total time of exchanges went, as shares. They are the evidence of a verdict.

A head-of-line wait counts as what the request ahead waited for: a quota, the broker's work, or data and other members
of a group. Only the last kind is left as head-of-line wait.
"""

from __future__ import annotations

from typing import NamedTuple

from ..counting.rollup import Rolled
from ..model import Column

COLUMNS = (
    Column(
        "broker_share",
        "broker\nshare",
        "share",
        "share of the time: broker time, and head-of-line wait while the broker worked on requests ahead",
        9,
    ),
    Column(
        "hol_share",
        "HOL\nshare",
        "share",
        "share of the time: head-of-line wait behind requests that wait for data or other members",
        9,
    ),
    Column(
        "throttle_share",
        "throttle\nshare",
        "share",
        "share of the time: throttle wait, and head-of-line wait behind throttled requests",
        9,
    ),
    Column("transfer_share", "transfer\nshare", "share", "share of the time: transfer of requests and responses", 9),
)
CLIENT_COLUMN = Column(
    "client_share",
    "client\nshare",
    "share",
    "share of the time: transfer of a client that closed its receive window (it is not in transfer_share)",
    9,
)
EVIDENCE = "the two largest parts of the time in words"

#: Parts in words at most, and the least share of one.
_MOST_PARTS, _LEAST_SHARE = 2, 0.01


class Spent(NamedTuple):
    """Parts of the summed total time of answered exchanges, ns. `hol`: behind requests that wait for data or members.
    `client`: transfer that a closed receive window delayed."""

    broker: int = 0
    hol: int = 0
    throttle: int = 0
    transfer: int = 0
    client: int = 0

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(*(a + b for a, b in zip(self, other, strict=True)))

    def shares(self) -> tuple[float | None, ...]:
        """Each part as a share of all parts, 0 to 1. None if there is no time."""
        total = sum(self)
        return tuple(part / total if total else None for part in self)

    def in_words(self, names: tuple[str, ...]) -> str | None:
        """`broker 71 %, throttle 20 %`. `names`: one for each part. None if there is no time."""
        total = sum(self)
        if not total:
            return None
        parts = sorted(zip(self, names, strict=True), key=lambda part: -part[0])[:_MOST_PARTS]
        return ", ".join(f"{name} {percent(ns / total)}" for ns, name in parts if ns >= _LEAST_SHARE * total)


#: Names of the parts in words. The broker time of WAITS is a wait for data or for other members.
NAMES = ("broker", "HOL", "throttle", "transfer", "client")
WAITING_NAMES = ("waiting", *NAMES[1:])
#: What broker time may be, if the throttle times of most exchanges are unknown.
UNKNOWN_WAIT = "broker or throttle"


def has_unknown_waits(rolled: Rolled, row: int) -> bool:
    """Whether throttle time or long polls are unknown for most answered exchanges of a row of a rollup, because these
    bytes were not captured. -1: no row."""
    return row >= 0 and 2 * int(rolled.values["unknown_waits"][row]) > int(rolled.values["answered"][row])


def names_of(rolled: Rolled, row: int, *, waits: bool = False) -> tuple[str, ...]:
    """The names of the parts of a row of a rollup. `waits`: of APIs of WAITS."""
    if has_unknown_waits(rolled, row):
        return ("waiting or throttle" if waits else UNKNOWN_WAIT, *NAMES[1:])
    return WAITING_NAMES if waits else NAMES


def percent(share: float) -> str:
    """`71 %`."""
    return f"{100 * share:.0f} %"


def spent(rolled: Rolled, row: int) -> Spent:
    """The parts of one row of a rollup. -1: no time."""
    if row < 0:
        return Spent()
    total, broker, hol, hol_throttle, hol_poll, throttle = (
        int(rolled.values[name][row])
        for name in (
            "total_ns",
            "broker_ns",
            "hol_wait_ns",
            "hol_throttle_wait_ns",
            "hol_poll_wait_ns",
            "throttle_wait_ns",
        )
    )
    return Spent(
        broker=broker + hol - hol_throttle - hol_poll,
        hol=hol_poll,
        throttle=throttle + hol_throttle,
        transfer=total - broker - hol - throttle,
    )
