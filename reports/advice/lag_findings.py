"""The findings of `lagging_groups`. Few reports have some, so they are imported late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import units
from ..findings import WARNING, Finding, Party
from ..groups.group import Group, groups_of, shared_clients
from ..groups.group_lag import ASSIGNMENT, CLIENT, Client, Latest, PartitionLag
from ..groups.group_requests import Partition
from ..groups.lag_in_time import FETCHES, LEAST_NS, FallBack, fall_back
from ..groups.offsets_over_time import Reads, ends_of, reads_of, reads_on
from ..section_parts.section import SectionInput
from .open_transactions import cause_of
from .signature import Signature

#: Rates from here on have no fractions.
_WHOLE = 10


class _Late(NamedTuple):
    """A partition on which a reader falls back."""

    lag: PartitionLag
    fall: FallBack
    packet: int


def findings(given: SectionInput, signature: Signature) -> list[Finding]:
    groups = given.once(groups_of)
    shared = shared_clients(groups)
    suspects = [
        (group, [lag for lag in group.lag if lag.lag and lag.sure in (ASSIGNMENT, CLIENT) and lag.reader not in shared])
        for group in groups
        if group.known_until is None
    ]
    wanted = {(lag.topic, lag.partition) for _, lags in suspects for lag in lags}
    if not wanted:
        return []
    ends, reads = ends_of(given, wanted), given.once(reads_of)
    made = []
    for group, lags in suspects:
        late = [found for lag in lags if (found := _late(group, lag, reads, ends)) is not None]
        causes = defaultdict(list)
        for one in late:
            causes[_cause(given, one.lag)].append(one)
        made += [_finding(signature, group, found)._replace(cause=cause) for cause, found in causes.items()]
    return made


def _late(
    group: Group, lag: PartitionLag, reads: dict[Client, dict[Partition, Reads]], ends: dict[Partition, list[Latest]]
) -> _Late | None:
    """What a group falls back on a partition, if it does, and still has a reader for it."""
    place = (lag.topic, lag.partition)
    mine = reads_on(group, place, reads)
    if sum(one.fetches for one in mine) < FETCHES:
        return None
    fall = fall_back(lag, [each for one in mine for each in one.positions], ends.get(place, ()))
    if fall is None or min(fall.behind_ns, fall.fallen_ns) < LEAST_NS:
        return None
    if lag.reader not in reads or not _reads_on(group, lag.reader, reads[lag.reader], fall.until):
        return None
    return _Late(lag, fall, max(one.last for one in mine)[1])


def _reads_on(group: Group, reader: Client, reads: dict[Partition, Reads], until: int) -> bool:
    """Whether a reader is a member at the end; or, of those that choose their partitions, still fetches any. A job that
    has ended lags until the next one."""
    names = [name for name, row in group.members.items() if name and row.client == reader]
    if names:
        return any(map(group.is_member_now, names))
    return max(one.last[0] for one in reads.values()) >= until - LEAST_NS


def _cause(given: SectionInput, lag: PartitionLag) -> tuple[Any, ...] | None:
    if lag.reader is None or lag.position is None:
        return None
    return cause_of(given, lag.reader, (lag.topic, lag.partition, lag.position))


def _finding(signature: Signature, group: Group, found: list[_Late]) -> Finding:
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
        signature.id, WARNING, signature.label, text, max(one.fall.behind_ns for one in found),
        min(one.fall.since for one in found), None,
        {"lag": lag, "behind_ns": fall.behind_ns, "lag_all": total, "partition": worst.lag.partition,
         "position": worst.lag.position, "partitions": len(found), "partitions_read": len(read),
         "falls_back_per_s": round(fall.records_per_s, 2), "appended_per_s": round(fall.appended_per_s, 2)},
        (worst.packet,), (*parties, Party("topic", worst.lag.topic)), signature.setting, signature.remedy,
        (("sections", "groups"), *name),
    )  # fmt: skip


def _parties(names: Iterable[tuple[str, str | None]]) -> Iterable[Party]:
    return (Party(kind, name) for kind, name in names if name is not None)
