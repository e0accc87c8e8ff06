"""The history of a group from its events: members, and rebalances with their causes.

A rebalance ends with a new generation (classic) or epoch (KIP-848, share, streams). Responses name it. The cause is the
first of what happened since the generation before: a member joins, leaves, or rejoins with a reason. Some causes are
not on the wire. If members hear of a rebalance (REBALANCE_IN_PROGRESS) before any request explains it, and a member is
missing afterwards, its session timed out. A join has the cause of the expulsion before it, if the same consumer joins
again: the group answered UNKNOWN_MEMBER_ID to its old member id, or it had left because of max.poll.interval.ms.

start   the first byte of the request that causes it; of a session timeout the member's last request and the timeout of
        its JoinGroup, or else when the first member hears of it
end     the last SyncGroup response of the generation; or the last heartbeat response that moves a member to the epoch,
        or gives it more partitions. A response that repeats them is no part of it: the first one of another coordinator
        does, and one to a static member that comes back.
stop    the longest time that a partition had no member, ending in this rebalance. A member of an eager assignor gives
        up all partitions with its JoinGroup request, other members those that a response takes away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .group_epochs import Epochs
from .group_events import BEAT, CLASSIC
from .group_generations import Generations
from .group_rebalances import History, Member, Seen
from .group_requests import Event


def history_of(events: Sequence[Event], seen: Mapping[str, Seen]) -> History:
    """The history of one group. `seen`: its members by their ids."""
    beats = [event for event in events if event.kind == BEAT]
    history = History(beats[-1].type if beats else CLASSIC)
    history.members = {name: Member(name, s.client, s.address, s.instance) for name, s in seen.items()}
    of_epochs = {event.member for event in beats}  # their commits may be refused, too
    classic = [event for event in events if event.kind != BEAT and event.member not in of_epochs]
    Generations(history, classic, seen).run()
    if beats:
        Epochs(history, beats, seen).run()
    history.expulsions.sort()
    return history
