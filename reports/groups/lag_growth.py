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
    columns = _columns(given, COMMITS.name, "group", "time", "offset", "packet", "commits")
    found: dict[str, dict[Partition, Commits]] = defaultdict(dict)
    for row, partition in partitions_of(given.keys(COMMITS.name), given.context):
        group, time, offset, packet, commits = columns[row]
        mine = found[given.context.text(group) or ""]
        before = mine.get(partition) or Commits([], [])
        before.offsets.append(Latest(time, offset))
        if commits > 0:
            before.written.append(time)
        mine[partition] = Commits(before.offsets, before.written, max(before.last, (time, packet)))
    return found


def _columns(given: SectionInput, form: str, *names: str) -> list[tuple[int, ...]]:
    """Some columns of the rows of a form."""
    columns = given.keys(form) | given.values(form)
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


def ends_of(given: SectionInput, wanted: Collection[Partition]) -> dict[Partition, list[Latest]]:
    """The ends of some partitions over time."""
    columns = _columns(given, ENDS.name, "time", "end")
    found = defaultdict(list)
    for row, partition in partitions_of(given.keys(ENDS.name), given.context):
        if partition in wanted:
            found[partition].append(Latest(*columns[row]))
    return found


def reads_of(given: SectionInput) -> dict[Client, dict[Partition, Reads]]:
    """What each client reads. Use `given.once(reads_of)`."""
    context = given.context
    columns = _columns(given, POSITIONS.name, "client_ip", "client_id", "time", "offset", "packet", "fetches")
    found: dict[Client, dict[Partition, Reads]] = defaultdict(dict)
    for row, partition in partitions_of(given.keys(POSITIONS.name), context):
        client_ip, client_id, time, offset, packet, fetches = columns[row]
        mine = found[context.address(client_ip), context.text(client_id)]
        before = mine.get(partition) or Reads([])
        before.positions.append(Latest(time, offset))
        mine[partition] = Reads(before.positions, before.fetches + fetches, max(before.last, (time, packet)))
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
