"""Connections that an end closed after the same time without a message: something limits how long they may be idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .. import units
from ..section_parts.section import SectionInput
from .connection_limit import OPENED
from .stretches import stretches_of

#: Connections that ended so. Once or twice may be chance.
LEAST = 3
#: Shorter pauses are no idleness: clients close the connection with which they began, and those that are done.
IDLE_NS = 2 * units.SECOND
#: How far their pauses are apart at most, as a share; and the part of all connections that ended idle.
_APART, _MOST = 0.03, 0.8
#: A client that ends closes all its connections within this. Those that a limit closes end alone.
_ALONE_NS = units.SECOND // 2
#: Client ids: one program may wait as long each time before it ends.
_CLIENTS = 2
#: The numbers of the client's id and address, and of the broker's address and port.
Pair = tuple[int, int, int, int]


class IdleClosed(NamedTuple):
    """How many connections of a client at a broker one end closed after `idle_ns` without a message."""

    connections: int
    idle_ns: int
    by_broker: bool


class _Ended(NamedTuple):
    closed_at: int
    idle_ns: int
    who: Pair
    by_broker: bool


def idle_closed(given: SectionInput) -> dict[Pair, IdleClosed]:
    """By client and broker. Nothing if there were too many connections to keep each."""
    rows = list(given.rows(OPENED.name))
    if sum(row["closed_at"] >= 0 for row in rows) < LEAST or any(row["connection"] == -1 for row in rows):
        return {}
    connections, _ = stretches_of(given, {(row["client_ip"], row["broker_ip"]) for row in rows})
    ended: dict[tuple[int, ...], list[_Ended]] = defaultdict(list)
    longest: dict[tuple[int, ...], int] = defaultdict(int)
    for row in rows:
        one = connections.get(row["connection"])
        if one is None or sum(stretch.requests for stretch in one.stretches) < row["exchanges"]:
            continue
        end, is_open = one.who[1:], row["closed_at"] < 0
        idle = (given.context.last or 0 if is_open else row["closed_at"]) - one.stretches[-1].last
        pauses = [later.first - before.last for before, later in pairwise(one.stretches) if later.answered]
        longest[end] = max(longest[end], idle, *pauses, 0)
        if not is_open and idle >= IDLE_NS and not one.stretches[-1].unanswered:
            ended[end].append(_Ended(row["closed_at"], idle, one.who, not row["by_client"]))
    found: dict[Pair, IdleClosed] = {}
    for ends, of_end in ended.items():
        same = _limited(of_end, longest[ends])
        usual = int(np.median([one.idle_ns for one in same])) if same else 0
        for who in {one.who for one in same}:
            found[who] = IdleClosed(sum(one.who == who for one in same), usual, same[0].by_broker)
    return found


def _limited(ended: Sequence[_Ended], longest: int) -> list[_Ended]:
    """Those that a limit closed, at one host and broker. `longest`: that a connection of these was idle."""
    usual = float(np.median([one.idle_ns for one in ended]))
    same = [one for one in ended if abs(one.idle_ns - usual) <= _APART * usual]
    if len(same) < max(LEAST, _MOST * len(ended)) or longest > usual * (1 + _APART):
        return []
    if len({one.by_broker for one in same}) > 1:
        return []
    alone = [
        one for one in same
        if all(abs(one.closed_at - other.closed_at) > _ALONE_NS for other in ended if other is not one)
    ]  # fmt: skip
    is_limit = len(alone) >= LEAST and (same[0].by_broker or len({one.who[0] for one in alone}) >= _CLIENTS)
    return same if is_limit else []
