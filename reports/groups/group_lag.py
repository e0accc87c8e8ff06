"""Lag of groups: committed offsets and positions beside the ends of partitions.

committed   the latest offset that an OffsetCommit wrote, or an OffsetFetch read
position    the offset of the latest Fetch request of the group's reader, or a later commit
end         the latest high watermark of a Fetch response, or the end of what Produce appended or ListOffsets found

Fetch requests name no group, so readers are joined to groups. `sure` says how:

assignment  the partition is assigned to a member, and its address and client_id fetch it
client      a member's address and client_id fetch it, and belong to this group only
shared      they belong to several groups, so the reads may be another group's
commits     nothing that was captured fetches it for the group
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..batch import Array, Context
from ..counting.count_table import EMPTY, MAX
from ..section_parts.section import SectionInput
from .group_rebalances import History
from .group_requests import Partition

ASSIGNMENT, CLIENT, SHARED, COMMITS = SURE = ("assignment", "client", "shared", "commits")
_NONE = EMPTY[MAX]

Client = tuple[str | None, str | None]  # address, client_id


class Latest(NamedTuple):
    """A value and its time."""

    time: int
    value: int


@dataclass(slots=True)
class PartitionLag:
    """Offsets and times in ns, None: not captured. `reader`: address and client_id."""

    group: str
    topic: str
    partition: int
    committed: int | None
    committed_at: int | None
    commits: int
    position: int | None
    position_at: int | None
    end: int | None
    reader: Client | None
    sure: str

    @property
    def committed_lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)

    @property
    def lag(self) -> int | None:
        return None if self.position is None or self.end is None else max(self.end - self.position, 0)


class Offsets(NamedTuple):
    """What was captured: ends by partition; positions by client and partition; commits by group and partition."""

    ends: Mapping[Partition, int]
    positions: Mapping[Client, Mapping[Partition, Latest]]
    committed: Mapping[str, Mapping[Partition, tuple[Latest, int]]]


def read_offsets(given: SectionInput) -> Offsets:
    """The forms, with the names of topics. A topic known by name and by id is one."""
    context = given.context
    ends: dict[Partition, int] = {}
    watermarks: dict[Partition, Latest] = {}
    keys, values = given.keys("groups.ends"), given.values("groups.ends")
    for row, partition in partitions_of(keys, context):
        if values["end"][row] != _NONE:
            ends[partition] = max(ends.get(partition, 0), int(values["end"][row]))
        if values["time"][row] != _NONE:
            found = Latest(int(values["time"][row]), int(values["high_watermark"][row]))
            watermarks[partition] = max(watermarks.get(partition, found), found)
    for partition, found in watermarks.items():
        ends[partition] = max(ends.get(partition, 0), found.value)
    positions: dict[Client, dict[Partition, Latest]] = {}
    keys, values = given.keys("groups.positions"), given.values("groups.positions")
    for row, partition in partitions_of(keys, context):
        client = context.address(int(keys["client_ip"][row])), context.text(int(keys["client_id"][row]))
        found = Latest(int(values["time"][row]), int(values["offset"][row]))
        mine = positions.setdefault(client, {})
        mine[partition] = max(mine.get(partition, found), found)
    return Offsets(ends, positions, _committed(given))


def _committed(given: SectionInput) -> dict[str, dict[Partition, tuple[Latest, int]]]:
    committed: dict[str, dict[Partition, tuple[Latest, int]]] = {}
    keys, values = given.keys("groups.committed"), given.values("groups.committed")
    for row, partition in partitions_of(keys, given.context):
        group = committed.setdefault(given.context.text(int(keys["group"][row])) or "", {})
        found, commits = Latest(int(values["time"][row]), int(values["offset"][row])), int(values["commits"][row])
        before, more = group.get(partition, (found, 0))
        group[partition] = max(before, found), commits + more
    return committed


def partitions_of(keys: Mapping[str, Array], context: Context) -> Iterable[tuple[int, Partition]]:
    """The rows of a form with a topic and a partition."""
    names: dict[tuple[int, int], str | None] = {}
    for row, (topic, topic_id, partition) in enumerate(
        zip(keys["topic"].tolist(), keys["topic_id"].tolist(), keys["partition"].tolist(), strict=True)
    ):
        number = topic, topic_id
        if number not in names:
            names[number] = context.topic(topic, topic_id)
        name = names[number]
        if name is not None and partition >= 0:
            yield row, (name, partition)


def lag_of(
    group: str, history: History | None, clients: Sequence[Client], shared: frozenset[Client], offsets: Offsets
) -> list[PartitionLag]:
    """The partitions of a group, in order. `clients`: its members' addresses and client_ids. `shared`: those that other
    groups have too."""
    committed = offsets.committed.get(group, {})
    assigned = _assigned(history)
    partitions = set(committed) | set(assigned)
    for client in clients:
        if client not in shared or not assigned:
            partitions.update(offsets.positions.get(client, ()))
    found = []
    for partition in sorted(partitions):
        reader, latest, sure = _position(partition, assigned.get(partition), clients, shared, offsets)
        if sure == SHARED and partition not in committed:
            continue  # more likely another group's
        commit, commits = committed.get(partition, (None, 0))
        if latest is not None and commit is not None and commit.time > latest.time:
            latest = Latest(commit.time, max(commit.value, latest.value))
        end = offsets.ends.get(partition)
        if end is not None:  # nobody reads or commits beyond it: the capture shows an earlier end
            end = max([end, *(known.value for known in (commit, latest) if known is not None)])
        found.append(
            PartitionLag(
                group, *partition, commit.value if commit else None, commit.time if commit else None, commits,
                latest.value if latest else None, latest.time if latest else None, end, reader, sure,
            )
        )  # fmt: skip
    return found


def _assigned(history: History | None) -> dict[Partition, Client]:
    """The client that has each partition, or had it last."""
    if history is None:
        return {}
    found = {}
    for partition, name in history.last_owners.items():
        member = history.members.get(name)
        if member is not None:
            found[partition] = member.address, member.client
    return found


def _position(
    partition: Partition,
    assigned: Client | None,
    clients: Sequence[Client],
    shared: frozenset[Client],
    offsets: Offsets,
) -> tuple[Client | None, Latest | None, str]:
    if assigned is not None:
        latest = offsets.positions.get(assigned, {}).get(partition)
        if latest is not None:
            return assigned, latest, ASSIGNMENT
    readers = [(offsets.positions[c][partition], c) for c in clients if partition in offsets.positions.get(c, ())]
    own = [item for item in readers if item[1] not in shared]
    if not readers:
        return assigned, None, COMMITS
    latest, client = max(own or readers, key=lambda item: item[0])
    return client, latest, CLIENT if own else SHARED
