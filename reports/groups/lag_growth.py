"""What readers and groups do over time, and how fast the lag of each partition grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..section_parts.section import SectionInput
from .group import Group, groups_of, shared_clients
from .group_lag import ASSIGNMENT, CLIENT, Client, Latest, partitions_of
from .group_requests import Partition
from .lag_in_time import commits_growth_per_s, growth_per_s
from .offsets_over_time import COMMITS, ENDS, POSITIONS


class Reads(NamedTuple):
    """What a client reads of a partition: its positions over time, its Fetches, and the packet of the last one."""

    positions: list[Latest]
    fetches: int = 0
    last: tuple[int, int] = (0, 0)  # time, packet


class Commits(NamedTuple):
    """The committed offsets of a group on a partition over time, the times at which it wrote some, and the packet of
    the last one."""

    offsets: list[Latest]
    written: list[int]
    last: tuple[int, int] = (0, 0)  # time, packet


def commits_of(given: SectionInput) -> dict[str, dict[Partition, Commits]]:
    """What each group commits. Use `given.once(commits_of)`."""
    keys, values = given.keys(COMMITS.name), given.values(COMMITS.name)
    found: dict[str, dict[Partition, Commits]] = defaultdict(dict)
    for row, partition in partitions_of(keys, given.context):
        mine = found[given.context.text(int(keys["group"][row])) or ""]
        time, packet = int(values["time"][row]), int(values["packet"][row])
        before = mine.get(partition, Commits([], []))
        before.offsets.append(Latest(time, int(values["offset"][row])))
        if values["commits"][row] > 0:
            before.written.append(time)
        mine[partition] = before._replace(last=max(before.last, (time, packet)))
    return found


def ends_of(given: SectionInput, wanted: Collection[Partition]) -> dict[Partition, list[Latest]]:
    """The ends of some partitions over time."""
    keys, values = given.keys(ENDS.name), given.values(ENDS.name)
    found = defaultdict(list)
    for row, partition in partitions_of(keys, given.context):
        if partition in wanted:
            found[partition].append(Latest(int(values["time"][row]), int(values["end"][row])))
    return found


def reads_of(given: SectionInput) -> dict[Client, dict[Partition, Reads]]:
    """What each client reads. Use `given.once(reads_of)`."""
    context = given.context
    keys, values = given.keys(POSITIONS.name), given.values(POSITIONS.name)
    found: dict[Client, dict[Partition, Reads]] = defaultdict(dict)
    for row, partition in partitions_of(keys, context):
        client = context.address(int(keys["client_ip"][row])), context.text(int(keys["client_id"][row]))
        time, packet = int(values["time"][row]), int(values["packet"][row])
        before = found[client].get(partition, Reads([]))
        before.positions.append(Latest(time, int(values["offset"][row])))
        found[client][partition] = Reads(
            before.positions, before.fetches + int(values["fetches"][row]), max(before.last, (time, packet))
        )
    return found


def reads_on(group: Group, place: Partition, reads: Mapping[Client, Mapping[Partition, Reads]]) -> list[Reads]:
    """What the members of a group read of a partition."""
    return [reads[client][place] for client in group.clients if place in reads.get(client, ())]


def growths(given: SectionInput) -> dict[tuple[str, Partition], float]:
    """Records/s by which the lag of a group grew on each partition: of its commits if it commits, or else of reads.
    None where too little was captured, or other groups may be the readers."""
    groups, commits, reads = given.once(groups_of), given.once(commits_of), given.once(reads_of)
    shared = shared_clients(groups)
    ends = ends_of(given, {(lag.topic, lag.partition) for group in groups for lag in group.lag})
    found = {}
    for group in groups:
        for lag in group.lag:
            place = lag.topic, lag.partition
            growth = None
            mine = commits.get(group.name, {}).get(place)
            if mine is not None:
                growth = commits_growth_per_s(mine.offsets, mine.written, ends.get(place, ()))
            if growth is None and lag.sure in (ASSIGNMENT, CLIENT) and lag.reader not in shared:
                positions = [each for one in reads_on(group, place, reads) for each in one.positions]
                growth = growth_per_s(lag, positions, ends.get(place, ()))
            if growth is not None:
                found[group.name, place] = growth
    return found
