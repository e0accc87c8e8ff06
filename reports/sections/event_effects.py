"""What followed an event of a broker: partitions with other leaders, errors, groups with another coordinator."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..finding_words import and_more, counted
from ..model import Scalar
from .error_meanings import OF_CHANGES
from .event_leaders import leader_moves
from .event_timeline import Seen
from .folds import AFTER_NS

#: Errors of an event in one line at most.
_NAMED = 2
#: When a leader or coordinator moved, and the partition or key.
Moved = tuple[int, tuple[int, int] | str]


class Effects(NamedTuple):
    """`errors`: (name, codes), the most frequent first."""

    errors: tuple[tuple[str, int], ...] = ()
    clients: int = 0
    partitions: int = 0
    coordinated: int = 0

    def words(self) -> list[str]:
        parts = []
        if self.partitions:
            parts.append(f"{self.partitions:,} partition{'' if self.partitions == 1 else 's'} got another leader")
        if self.coordinated:
            parts.append(f"{self.coordinated:,} group{'' if self.coordinated == 1 else 's'} got another coordinator")
        if self.errors:
            named = ", ".join(f"{codes:,} {name}" for name, codes in self.errors[:_NAMED])
            rest = sum(codes for _, codes in self.errors[_NAMED:])
            parts.append(f"{named}{and_more(rest)} followed to {counted(self.clients, 'client')}")
        return parts

    def numbers(self) -> dict[str, Scalar]:
        made: dict[str, Scalar] = {
            "leaders_moved": self.partitions,
            "coordinators_moved": self.coordinated,
            "errors": sum(n for _, n in self.errors),
        }
        return made | {"clients_with_errors": self.clients} | {f"{name}_codes": codes for name, codes in self.errors}


class AllEffects:
    """The effects of the outages of a capture."""

    def __init__(self, seen: Seen) -> None:
        self._nodes, self._end = seen.brokers.nodes, seen.end
        rows = np.flatnonzero(is_among(seen.errors["error_code"], OF_CHANGES))
        errors = seen.of(seen.errors, rows[np.argsort(seen.errors["first"][rows], kind="stable")])
        self._times, codes = errors["first"], errors["error_code"]
        #: The errors of each code before each row.
        self._counts = {
            error_name(code): np.append(0, np.cumsum(np.where(codes == code, errors["codes"], 0)))
            for code in distinct_values(codes).tolist()
        }
        #: The row before with the same client, -1: none.
        self._before = np.full(len(rows), -1)
        for _, mine in groups_of(errors["client_ip"], errors["client_id"]):
            self._before[mine[1:]] = mine[:-1]
        #: By the node before: when leaders and coordinators moved, and the partition or key.
        self._leaders = defaultdict[int | None, list[Moved]](list)
        self._coordinators = defaultdict[int | None, list[Moved]](list)
        for move in seen.given.once(leader_moves):
            self._leaders[move.old].append((move.time, move[:2]))
        for time, _, key, old, _ in seen.coordinator_moves:
            self._coordinators[old].append((time, key))

    def of(self, broker: int, begin: int, end: int | None) -> Effects:
        """What followed an outage. `end`: when the broker worked again."""
        last, node = self._end if end is None else end + AFTER_NS, self._nodes[broker]
        first, behind = int(np.searchsorted(self._times, begin)), int(np.searchsorted(self._times, last, "right"))
        totals = [(name, int(counts[behind] - counts[first])) for name, counts in self._counts.items()]
        errors = sorted((pair for pair in totals if pair[1]), key=lambda pair: (-pair[1], pair[0]))
        clients = int(np.count_nonzero(self._before[first:behind] < first))
        moved, keys = (len({thing for time, thing in moves.get(node, ()) if begin <= time <= last})
                       for moves in (self._leaders, self._coordinators))  # fmt: skip
        return Effects(tuple(errors), clients, moved, keys)
