"""Positions of readers and ends of partitions over time: how the lag of a group grows, and who falls behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import LATEST, MAX, SUM
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from .group import Group, groups_of, shared_clients
from .group_events import appends_of, high_watermarks_of, positions_of
from .group_lag import ASSIGNMENT, CLIENT, Client, Latest, partitions_of
from .group_requests import Partition
from .lag_in_time import growth_per_s

#: Positions and ends are kept for each two seconds, as the time behind is for people, and ends between are estimated.
SPAN_NS = 2_000_000_000

_PLACE = {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER}
_NO_PLACE = {"topic": OTHER, "topic_id": -1, "partition": -1, "span": -1}
#: The first value says what is small: the oldest.
POSITIONS = CountForm(
    "groups.positions-over-time",
    {"client_id": TEXT, "client_ip": ADDRESS, **_PLACE, "span": NUMBER},
    {"time": MAX, "offset": LATEST, "packet": LATEST, "fetches": SUM},
    {"client_id": OTHER, "client_ip": -1, **_NO_PLACE},
)
ENDS = CountForm("groups.ends-over-time", {**_PLACE, "span": NUMBER}, {"time": MAX, "end": LATEST}, _NO_PLACE)


def read(gathered: Gathered, tally: Tally) -> None:
    """Read the offsets of Fetch and Produce."""
    keys, times, offsets, at = positions_of(gathered)
    if len(times):
        packets = gathered.column("request_packet_first")[at]
        values = {"time": times, "offset": offsets, "packet": packets, "fetches": 1}
        tally.add(POSITIONS.name, keys | {"span": times // SPAN_NS}, values)
    for place, times, ends in (high_watermarks_of(gathered), appends_of(gathered)):
        if len(times):
            tally.add(ENDS.name, place | {"span": times // SPAN_NS}, {"time": times, "end": ends})


class Reads(NamedTuple):
    """What a client reads of a partition: its positions over time, its Fetches, and the packet of the last one."""

    positions: list[Latest]
    fetches: int = 0
    last: tuple[int, int] = (0, 0)  # time, packet


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
    """Records/s by which the lag of reads of a group grew on each partition; none where other groups may be the
    readers, and where too little was captured."""
    groups = given.once(groups_of)
    shared = shared_clients(groups)
    read = [
        (group, lag)
        for group in groups
        for lag in group.lag
        if lag.sure in (ASSIGNMENT, CLIENT) and lag.reader not in shared
    ]
    ends, reads = ends_of(given, {(lag.topic, lag.partition) for _, lag in read}), given.once(reads_of)
    found = {}
    for group, lag in read:
        place = lag.topic, lag.partition
        positions = [each for one in reads_on(group, place, reads) for each in one.positions]
        growth = growth_per_s(lag, positions, ends.get(place, ()))
        if growth is not None:
            found[group.name, place] = growth
    return found
