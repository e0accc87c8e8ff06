"""The account of time: the total time of an exchange is the sum of its parts, each with one cause.

`TIME_PARTS` names the parts, in the order in which reports list them, and `parts_of` has their columns. Every report,
table and output takes parts, names and words from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .dtypes import DURATION_COLUMNS

Array = np.ndarray[Any, Any]

#: The columns of EXCHANGE that are durations, ns, in the order of the table `exchanges`. 0 where they do not apply.
DURATIONS = tuple(column.name for column in DURATION_COLUMNS if column.in_table)


class TimePart(NamedTuple):
    """A part of the total time. `column`: of EXCHANGE, less those of `without`, and those of `beside` added. `meaning`:
    for help texts."""

    name: str
    column: str
    meaning: str
    without: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that it is made of."""
        return self.column, *self.without, *self.beside


#: The parts of total_ns. No two overlap, and they sum to it.
TIME_PARTS = (
    TimePart(
        "HOL", "hol_wait_ns", "head-of-line wait: behind an earlier request of the connection", ("hol_round_trip_ns",)
    ),
    TimePart("throttle", "throttle_wait_ns", "throttle wait: a quota held the response back, or muted the connection"),
    TimePart("waiting", "waiting_ns", "for data (Fetch, ShareFetch) or other members (JoinGroup, SyncGroup)"),
    TimePart(
        "broker",
        "broker_ns",
        "the broker worked on the request, or waited for its followers",
        ("waiting_ns", "round_trip_ns"),
    ),
    TimePart("loss", "loss_ns", "until a lost segment was sent again and acknowledged"),
    TimePart("receiver", "receiver_ns", "the receive window was full or closed: its program read too slowly"),
    TimePart("sender", "sender_ns", "the sender could send, and did not: its program, or Nagle's algorithm"),
    TimePart(
        "path",
        "path_ns",
        "the path: round trips, also from the capture point to the broker, bandwidth, congestion window",
        beside=("round_trip_ns", "hol_round_trip_ns"),
    ),
    TimePart("unexplained", "unexplained_ns", "in no other part"),
)


def parts_of(rows: Mapping[str, Any] | Array) -> dict[str, Any]:
    """The parts by name, ns: of EXCHANGE rows int64 (n,) each, or of summed DURATIONS by column name."""
    return {
        part.name: rows[part.column]
        - sum(rows[name] for name in part.without)
        + sum(rows[name] for name in part.beside)
        for part in TIME_PARTS
    }
