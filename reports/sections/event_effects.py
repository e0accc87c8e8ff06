"""What followed an event of a broker: partitions with other leaders, errors, groups with another coordinator."""

from __future__ import annotations

from typing import NamedTuple

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array
from ..finding_words import and_more
from ..model import Scalar
from .event_answers import SECOND
from .event_brokers import clients_text
from .event_leaders import leader_moves
from .event_timeline import Seen

#: Error codes that follow from a broker that is gone or comes back: its leaders, coordinators, replicas and members.
#: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE,
#: STALE_CONTROLLER_EPOCH (the broker was the controller), NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS,
#: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
#: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NOT_CONTROLLER, FETCH_SESSION_ID_NOT_FOUND,
#: INVALID_FETCH_SESSION_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, STALE_BROKER_EPOCH, INELIGIBLE_REPLICA,
#: DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED.
CODES = (5, 6, 7, 8, 9, 11, 13, 14, 15, 16, 19, 20, 22, 25, 27, 41, 70, 71, 74, 75, 77, 101, 102, 107)
#: Effects end with the broker's return, or this long after it or after the beginning: clients repeat within seconds.
AFTER_NS = 10 * SECOND
#: Errors of an event in one line at most.
_NAMED = 2


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
            parts.append(f"{named}{and_more(rest)} followed to {clients_text(self.clients)}")
        return parts

    def numbers(self) -> dict[str, Scalar]:
        made: dict[str, Scalar] = {
            "leaders_moved": self.partitions,
            "coordinators_moved": self.coordinated,
            "errors": sum(n for _, n in self.errors),
        }
        return made | {"clients_with_errors": self.clients} | {f"{name}_codes": codes for name, codes in self.errors}


def window(seen: Seen, begin: int, end: int | None) -> tuple[int, int]:
    """The time in which effects of an outage count."""
    return begin, (seen.end if end is None else end + AFTER_NS)


def is_effect(errors: dict[str, Array]) -> Array:
    found: Array = is_among(errors["error_code"], CODES)
    return found


def effects_of(seen: Seen, broker: int, begin: int, end: int | None) -> Effects:
    first, last = window(seen, begin, end)
    errors = seen.errors
    mine = is_effect(errors) & (errors["first"] >= first) & (errors["first"] <= last)
    codes = errors["error_code"][mine]
    totals = sorted(
        ((error_name(int(code)), int(errors["codes"][mine][codes == code].sum())) for code in distinct_values(codes)),
        key=lambda pair: (-pair[1], pair[0]),
    )
    people = set(zip(errors["client_ip"][mine].tolist(), errors["client_id"][mine].tolist(), strict=True))
    node = seen.brokers.nodes[broker]
    moved = {m[:2] for m in seen.given.once(leader_moves) if m.old == node and first <= m.time <= last}
    keys = {key for time, _, key, old, _ in seen.coordinator_moves if old == node and first <= time <= last}
    return Effects(tuple(totals), len(people), len(moved), len(keys))
