"""The findings of `lagging_groups`. Few reports have some, so they are imported late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import units
from ..findings import Finding, Party
from ..groups.group import Group, groups_of, shared_clients
from ..groups.group_lag import ASSIGNMENT, CLIENT, Client, Latest, PartitionLag
from ..groups.group_requests import Partition
from ..groups.lag_growth import Commits, Reads, commits_of, ends_of, reads_of, reads_on
from ..groups.lag_in_time import FallBack, commits_fall_back, fall_back
from ..groups.offsets_over_time import FETCHES, LEAST_NS
from ..section_parts.section import SectionInput
from .open_transactions import cause_of
from .signature import Signature
from .sums import THROTTLED, throttle_times
from .unread_findings import Unread, UnreadBy, unread_of

#: Rates from here on have no fractions.
_WHOLE = 10


_QUOTA = "consumer_byte_rate, request_percentage"
_RAISE = "Raise the quota of the client, or let it read less. Members that work less or more members do not help."
#: A member has fetched what it did not commit if its reads lack no more than this part of that lag.
_FETCHED = 0.1


class _Late(NamedTuple):
    """A partition on which a reader falls back, or the commits of a group do. `records`: the lag of these.
    `is_fetched`: the reader has fetched nearly all of it. `is_stopped`: the group has stopped to commit."""

    lag: PartitionLag
    fall: FallBack
    packet: int
    records: int
    of_commits: bool = False
    is_fetched: bool = False
    is_stopped: bool = False


def findings(given: SectionInput, signature: Signature) -> list[Finding]:
    groups, unread = given.once(groups_of), given.once(unread_of)
    shared = shared_clients(groups)
    suspects = [
        (group, [lag for lag in group.lag if (lag.lag or lag.committed_lag) and not _is_unread(lag, unread)])
        for group in groups
        if group.known_until is None
    ]
    wanted = {(lag.topic, lag.partition) for _, lags in suspects for lag in lags}
    if not wanted:
        return []
    ends, reads, commits = ends_of(given, wanted), given.once(reads_of), given.once(commits_of)
    throttled = given.once(throttle_times)
    made = []
    for group, lags in suspects:
        late = []
        for lag in lags:
            is_own = lag.sure in (ASSIGNMENT, CLIENT) and lag.reader not in shared
            found = _late(group, lag, reads, ends) if is_own and lag.lag else None
            mine = commits.get(group.name, {}).get((lag.topic, lag.partition))
            if found is None and mine is not None and lag.committed_lag:
                found = _late_commits(group, lag, mine, reads if is_own else {}, ends)
            late += [] if found is None else [found]
        causes = defaultdict(list)
        for one in late:
            causes[_cause(given, one.lag)].append(one)
        made += [_finding(signature, group, found, throttled)._replace(cause=cause) for cause, found in causes.items()]
    return made


def _is_unread(lag: PartitionLag, unread: Mapping[UnreadBy, Unread]) -> bool:
    """Whether another finding says that its reader leaves it unread."""
    return lag.reader is not None and (lag.group, lag.reader, (lag.topic, lag.partition)) in unread


def _late_commits(
    group: Group,
    lag: PartitionLag,
    commits: Commits,
    reads: dict[Client, dict[Partition, Reads]],
    ends: dict[Partition, list[Latest]],
) -> _Late | None:
    """What a group's commits fall back on a partition, if they do."""
    mine, until = ends.get((lag.topic, lag.partition), []), max(commits.written, default=0)
    end = max(mine, default=Latest(until, 0)).time
    is_read = lag.reader in reads and _reads_on(group, lag.reader, reads[lag.reader], until, end)
    found = commits_fall_back(commits.offsets, commits.written, mine, is_read)
    if found is None:
        return None
    is_fetched = is_read and lag.lag is not None and lag.lag <= _FETCHED * found.lag
    return _Late(lag, found.fall, commits.last[1], found.lag, True, is_fetched, found.is_stopped)


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
    if lag.reader not in reads or not _reads_on(group, lag.reader, reads[lag.reader], fall.until, fall.until):
        return None
    return _Late(lag, fall, max(one.last for one in mine)[1], lag.lag or 0)


def _reads_on(group: Group, reader: Client, reads: dict[Partition, Reads], until: int, end: int) -> bool:
    """Whether a reader is a member at the last end that is known; or, of those that choose their partitions, still
    fetches any. A job that has ended lags until the next one."""
    names = [name for name, row in group.members.items() if name and row.client == reader]
    if names:
        return any(group.is_member_at(name, end) for name in names)
    return max(one.last[0] for one in reads.values()) >= until - LEAST_NS


def _cause(given: SectionInput, lag: PartitionLag) -> tuple[Any, ...] | None:
    if lag.reader is None or lag.position is None:
        return None
    return cause_of(given, lag.reader, (lag.topic, lag.partition, lag.position))


def _finding(signature: Signature, group: Group, found: list[_Late], throttled: dict[Client, int]) -> Finding:
    worst = max(found, key=lambda one: (one.records, one.fall.behind_ns))
    fall, lag, total = worst.fall, worst.records, sum(one.records for one in found)
    read = [one for one in group.lag if one.position is not None or one.committed is not None]
    rate = f"{fall.records_per_s:,.0f}" if fall.records_per_s >= _WHOLE else f"{fall.records_per_s:.2g}"
    least = "at least " if fall.is_at_least else ""
    place = f"{worst.lag.topic}-{worst.lag.partition}{' by its commits' if worst.of_commits else ''}"
    text = (
        f'group "{group.name}" is {lag:,} records ({least}{units.duration(fall.behind_ns)}) behind on '
        f"{place} and falls back {rate} records/s; "
        f"{len(found)} of {len(read)} partitions" + (f", {total:,} records" if len(found) > 1 else "")
    )
    if worst.is_stopped:
        text += f"; its last commit was {units.duration(fall.until - (worst.lag.committed_at or fall.until))} before"
    waited = 0 if worst.lag.reader is None else throttled.get(worst.lag.reader, 0)
    is_throttled = waited >= THROTTLED * (fall.until - fall.since)
    if is_throttled:
        text += f"; a quota holds its client back: throttle time {units.duration(waited)} in total over its responses"
    elif worst.is_fetched:
        text += "; its client has fetched nearly all of them: its own work is slow"
    address, client = worst.lag.reader or (None, None)
    parties = (Party("group", group.name), *_parties((("client", client), ("host", address))))
    name = () if set("*?[") & set(group.name) else (("group", group.name),)
    rule = signature.rule._replace(setting=_QUOTA, remedy=_RAISE) if is_throttled else signature.rule
    return rule.found(
        text, *parties, Party("topic", worst.lag.topic), begin=min(one.fall.since for one in found),
        packets=[worst.packet], lost=max(one.fall.behind_ns for one in found), see=[("sections", "groups"), *name],
        lag=lag, behind_ns=fall.behind_ns, lag_all=total, partition=worst.lag.partition, position=worst.lag.position,
        committed=worst.lag.committed, is_of_commits=worst.of_commits, is_fetched=worst.is_fetched,
        partitions=len(found), partitions_read=len(read), falls_back_per_s=round(fall.records_per_s, 2),
        appended_per_s=round(fall.appended_per_s, 2),
    )  # fmt: skip


def _parties(names: Iterable[tuple[str, str | None]]) -> Iterable[Party]:
    return (Party(kind, name) for kind, name in names if name is not None)
