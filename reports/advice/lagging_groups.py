"""Groups that fall behind: a reader whose lag grows, or that does not read at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import units
from ..counting.count_table import LATEST, MAX, SUM
from ..findings import WARNING, Finding, Party
from ..groups.group import Group, groups_of, shared_clients
from ..groups.group_events import appends_of, high_watermarks_of, positions_of
from ..groups.group_lag import ASSIGNMENT, CLIENT, Client, Latest, PartitionLag, partitions_of
from ..groups.group_requests import Partition
from ..groups.lag_in_time import FallBack, fall_back
from ..questions.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..questions.gathered import Gathered
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .open_transactions import cause_of
from .signature import Signature

#: Twice the default of auto.commit.interval.ms, and 20 times the default of fetch.max.wait.ms: readers that keep up
#: are nearer, also after a rebalance without dead members.
_LEAST_NS = 10_000_000_000
#: Of one partition. Fewer do not show whether the reader moves.
_FETCHES = 3
#: Positions and ends are kept for each two seconds, as the time behind is for people, and ends between are estimated.
_SPAN_NS = 2_000_000_000
#: Rates from here on have no fractions.
_WHOLE = 10

_PLACE = {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER}
_NO_PLACE = {"topic": OTHER, "topic_id": -1, "partition": -1, "span": -1}
#: The first value says what is small: the oldest.
_POSITIONS = CountForm(
    "advice.positions-over-time",
    {"client_id": TEXT, "client_ip": ADDRESS, **_PLACE, "span": NUMBER},
    {"time": MAX, "offset": LATEST, "packet": LATEST, "fetches": SUM},
    {"client_id": OTHER, "client_ip": -1, **_NO_PLACE},
)
_ENDS = CountForm("advice.ends-over-time", {**_PLACE, "span": NUMBER}, {"time": MAX, "end": LATEST}, _NO_PLACE)


def _read(gathered: Gathered, tally: Tally) -> None:
    keys, times, offsets, at = positions_of(gathered)
    if len(times):
        packets = gathered.column("request_packet_first")[at]
        values = {"time": times, "offset": offsets, "packet": packets, "fetches": 1}
        tally.add(_POSITIONS.name, keys | {"span": times // _SPAN_NS}, values)
    for place, times, ends in (high_watermarks_of(gathered), appends_of(gathered)):
        if len(times):
            tally.add(_ENDS.name, place | {"span": times // _SPAN_NS}, {"time": times, "end": ends})


class _Reads(NamedTuple):
    """What a client reads of a partition: its positions over time, its Fetches, and the packet of the last one."""

    positions: list[Latest]
    fetches: int = 0
    last: tuple[int, int] = (0, 0)  # time, packet


class _Late(NamedTuple):
    """A partition on which a reader falls back."""

    lag: PartitionLag
    fall: FallBack
    packet: int


def _findings(given: SectionInput) -> list[Finding]:
    groups = given.once(groups_of)
    shared = shared_clients(groups)
    suspects = [
        (group, [lag for lag in group.lag if lag.lag and lag.sure in (ASSIGNMENT, CLIENT) and lag.reader not in shared])
        for group in groups
        if group.stale_since is None
    ]
    wanted = {(lag.topic, lag.partition) for _, lags in suspects for lag in lags}
    if not wanted:
        return []
    ends, reads = _ends(given, wanted), _reads(given)
    made = []
    for group, lags in suspects:
        late = [found for lag in lags if (found := _late(group, lag, reads, ends)) is not None]
        causes = defaultdict(list)
        for one in late:
            causes[_cause(given, one.lag)].append(one)
        made += [_finding(group, found)._replace(cause=cause) for cause, found in causes.items()]
    return made


def _ends(given: SectionInput, wanted: set[Partition]) -> dict[Partition, list[Latest]]:
    """The ends of some partitions over time."""
    keys, values = given.keys(_ENDS.name), given.values(_ENDS.name)
    found = defaultdict(list)
    for row, partition in partitions_of(keys, given.context):
        if partition in wanted:
            found[partition].append(Latest(int(values["time"][row]), int(values["end"][row])))
    return found


def _reads(given: SectionInput) -> dict[Client, dict[Partition, _Reads]]:
    context = given.context
    keys, values = given.keys(_POSITIONS.name), given.values(_POSITIONS.name)
    found: dict[Client, dict[Partition, _Reads]] = defaultdict(dict)
    for row, partition in partitions_of(keys, context):
        client = context.address(int(keys["client_ip"][row])), context.text(int(keys["client_id"][row]))
        time, packet = int(values["time"][row]), int(values["packet"][row])
        before = found[client].get(partition, _Reads([]))
        before.positions.append(Latest(time, int(values["offset"][row])))
        found[client][partition] = _Reads(
            before.positions, before.fetches + int(values["fetches"][row]), max(before.last, (time, packet))
        )
    return found


def _late(
    group: Group, lag: PartitionLag, reads: dict[Client, dict[Partition, _Reads]], ends: dict[Partition, list[Latest]]
) -> _Late | None:
    """What a group falls back on a partition, if it does, and still has a reader for it."""
    place = (lag.topic, lag.partition)
    mine = [reads[client][place] for client in group.clients if place in reads.get(client, ())]
    if sum(one.fetches for one in mine) < _FETCHES:
        return None
    fall = fall_back(lag, [each for one in mine for each in one.positions], ends.get(place, ()))
    if fall is None or min(fall.behind_ns, fall.fallen_ns) < _LEAST_NS:
        return None
    if lag.reader not in reads or not _reads_on(group, lag.reader, reads[lag.reader], fall.until):
        return None
    return _Late(lag, fall, max(one.last for one in mine)[1])


def _reads_on(group: Group, reader: Client, reads: dict[Partition, _Reads], until: int) -> bool:
    """Whether a reader is a member at the end; or, of those that choose their partitions, still fetches any. A job that
    has ended lags until the next one."""
    names = [name for name, row in group.members.items() if name and row.client == reader]
    if names:
        return any(map(group.is_member_now, names))
    return max(one.last[0] for one in reads.values()) >= until - _LEAST_NS


def _cause(given: SectionInput, lag: PartitionLag) -> tuple[Any, ...] | None:
    if lag.reader is None or lag.position is None:
        return None
    return cause_of(given, lag.reader, (lag.topic, lag.partition, lag.position))


def _finding(group: Group, found: list[_Late]) -> Finding:
    worst = max(found, key=lambda one: (one.fall.behind_ns, one.lag.lag or 0))
    fall, lag, total = worst.fall, worst.lag.lag or 0, sum(one.lag.lag or 0 for one in found)
    read = [one for one in group.lag if one.position is not None]
    rate = f"{fall.records_per_s:,.0f}" if fall.records_per_s >= _WHOLE else f"{fall.records_per_s:.2g}"
    least = "at least " if fall.is_at_least else ""
    text = (
        f'group "{group.name}" is {lag:,} records ({least}{units.duration(fall.behind_ns)}) behind on '
        f"{worst.lag.topic}-{worst.lag.partition} and falls back {rate} records/s; "
        f"{len(found)} of {len(read)} partitions" + (f", {total:,} records" if len(found) > 1 else "")
    )
    address, client = worst.lag.reader or (None, None)
    parties = (Party("group", group.name), *_parties((("client", client), ("host", address))))
    name = () if set("*?[") & set(group.name) else (("group", group.name),)
    return Finding(
        LAGGING_GROUPS.id, WARNING, LAGGING_GROUPS.label, text, max(one.fall.behind_ns for one in found),
        min(one.fall.since for one in found), None,
        {"lag": lag, "behind_ns": fall.behind_ns, "lag_all": total, "partition": worst.lag.partition,
         "position": worst.lag.position, "partitions": len(found), "partitions_read": len(read),
         "falls_back_per_s": round(fall.records_per_s, 2), "appended_per_s": round(fall.appended_per_s, 2)},
        (worst.packet,), (*parties, Party("topic", worst.lag.topic)), LAGGING_GROUPS.setting, LAGGING_GROUPS.remedy,
        (("sections", "groups"), *name),
    )  # fmt: skip


def _parties(names: Iterable[tuple[str, str | None]]) -> Iterable[Party]:
    return (Party(kind, name) for kind, name in names if name is not None)


LAGGING_GROUPS = Signature(
    "lagging_group",
    "a group falls behind the end of a partition",
    "A reader fetches a partition from offsets that fall further and further behind the high watermark, or from the "
    "same one again and again, or not at all, while its group has it as a member.",
    "members of the group, max.poll.records, partitions",
    "Let members work less on each record, or on several at once, or add members up to the number of partitions. If "
    "the position stands still, look for what holds the member: a record that it cannot process, a pause, a lock.",
    f"the end passed the position {_LEAST_NS // 1_000_000_000} s ago, twice auto.commit.interval.ms, and the lag grew "
    "by as much in the capture: readers that keep up are nearer, and those that catch up come nearer. Both "
    "are as of the last time that the partition's end was captured. It takes "
    f"{_FETCHES} Fetches or more, and the lag must not have risen or fallen by half as much before or since, as that "
    "of readers that read now and then. The lag is that of reads: commits may be rare. There is no finding for readers "
    "that have left the group, for clients that several groups share, and if the group's coordinator was not captured "
    "to the end. Time lost is how long ago the end passed the position. An open transaction that holds the reader at "
    "its position is the cause of it.",
    _findings,
    (_POSITIONS, _ENDS),
    _read,
    facts=("fetch", "fetch partition", "fetched partition", "batch", "produced partition"),
    on_request=True,
    label="lagging",
    follows=("expelled_members",),
)  # fmt: skip
