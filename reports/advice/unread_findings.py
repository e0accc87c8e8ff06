"""The findings of `unread_partitions`. Few reports have some, so they are imported late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import parties, units
from ..finding_words import and_more, counted
from ..findings import Finding, Party
from ..groups.group import Group, groups_of, shared_clients
from ..groups.group_lag import Client, Latest, partitions_of
from ..groups.group_requests import Partition
from ..groups.lag_growth import Commits, Reads, commits_of, ends_of, reads_of
from ..groups.offsets_over_time import FETCHES, LEAST_NS
from ..section_parts.section import SectionInput
from .answered_fetches import ANSWERS
from .open_transactions import cause_of
from .signature import Signature
from .sums import THROTTLED, throttle_times

#: Whose it is: a group, a client and a partition.
UnreadBy = tuple[str, Client, Partition]


class Unread(NamedTuple):
    """A partition that a member of a group leaves unread from `since` to `until`, ns. `behind_ns`: since the end passed
    its position. `lag`: records at the end of that time. `grown`: those that were written since. `is_alone`: the member
    fetches nothing else."""

    group: str
    client: Client
    place: Partition
    since: int
    until: int
    behind_ns: int
    lag: int
    grown: int
    position: int
    packet: int
    is_alone: bool


def unread_of(given: SectionInput) -> dict[UnreadBy, Unread]:
    """The partitions that members leave unread. Use `given.once(unread_of)`."""
    groups, reads, commits = given.once(groups_of), given.once(reads_of), given.once(commits_of)
    shared, answers, throttled = shared_clients(groups), _answers(given), given.once(throttle_times)
    ends = ends_of(given, {place for mine in reads.values() for place in mine})
    found = {}
    for group in groups:
        for client in group.clients if group.known_until is None else ():
            mine = {} if client in shared else reads.get(client, {})
            for place, one in mine.items():
                answer = answers.get((client, place), (0, 0))
                committed = commits.get(group.name, {}).get(place)
                unread = _unread(group, client, place, mine, answer, committed, ends.get(place, ()))
                if unread is None or throttled.get(client, 0) >= THROTTLED * (unread.until - unread.since):
                    continue
                if cause_of(given, client, (*place, max(one.positions).value)) is None:
                    found[group.name, client, place] = unread
    return found


def _answers(given: SectionInput) -> dict[tuple[Client, Partition], tuple[int, int]]:
    """The last answer to each reader about a partition, and the last that sent it to another replica; 0: none."""
    context, found = given.context, dict[tuple[Client, Partition], tuple[int, int]]()
    keys, values = given.keys(ANSWERS.name), given.values(ANSWERS.name)
    for row, place in partitions_of(keys, context):
        client = context.address(int(keys["client_ip"][row])), context.text(int(keys["client_id"][row]))
        before = found.get((client, place), (0, 0))
        mine = max(int(values["time"][row]), 0), max(int(values["redirected"][row]), 0)
        found[client, place] = max(before[0], mine[0]), max(before[1], mine[1])
    return found


def _unread(
    group: Group,
    client: Client,
    place: Partition,
    reads: Mapping[Partition, Reads],
    answer: tuple[int, int],
    committed: Commits | None,
    ends: Sequence[Latest],
) -> Unread | None:
    one, (answered, redirected) = reads[place], answer
    asked, position = max(one.positions)
    if one.fetches < FETCHES or answered < asked or redirected or not ends:
        return None
    since = max(asked, answered)
    until = min(_known_until(group, client, since), max(ends).time)
    known = sorted(end for end in ends if end.time <= until)
    beyond = [end for end in known if end.value > position]
    # What it had fetched may take it a while: it works as long as it commits further.
    offsets = [] if committed is None else [each for each in committed.offsets if each.time <= until]
    farthest = max((each.value for each in offsets), default=0)
    moved = min((each.time for each in offsets if each.value == farthest), default=0)
    if farthest > position or not beyond or beyond[-1].value == beyond[0].value:
        return None
    if until - max(since, moved, beyond[0].time) < LEAST_NS:
        return None
    others = [other.last[0] for its, other in reads.items() if its != place]
    return Unread(
        group.name, client, place, since, until, until - max(since, beyond[0].time), beyond[-1].value - position,
        beyond[-1].value - max(known[0].value, position), position, one.last[1],
        max(others, default=0) < until - LEAST_NS,
    )  # fmt: skip


def _known_until(group: Group, client: Client, since: int) -> int:
    """Until when a client lives as a member of a group, after a time, and keeps its partitions: until its last request
    that names it, or the next rebalance. 0: it is not known."""
    names = [name for name, row in group.members.items() if name and row.client == client and row.last > since]
    names = [name for name in names if group.members[name].first <= since]
    if not names:
        return 0
    left = [] if group.history is None else [group.history.members[name].left for name in names]
    changes = [rebalance.start for rebalance in group.rebalances if rebalance.end > since]
    return min([*(group.members[name].last for name in names), *(at for at in left if at is not None), *changes])


def findings(given: SectionInput, signature: Signature) -> list[Finding]:
    members = defaultdict[tuple[str, Client], list[Unread]](list)
    for (group, client, _), one in given.once(unread_of).items():
        members[group, client].append(one)
    return list(_found(signature, members))


def _found(signature: Signature, members: Mapping[tuple[str, Client], list[Unread]]) -> Iterator[Finding]:
    for (group, (address, client)), found in members.items():
        worst = max(found, key=lambda one: (one.behind_ns, one.lag))
        since, until = min(one.since for one in found), max(one.until for one in found)
        lag, places = sum(one.lag for one in found), sorted(one.place for one in found)
        where = f"{worst.place[0]}-{worst.place[1]}{and_more(len(found) - 1)}"
        rate = worst.grown * units.SECOND / max(worst.behind_ns, 1)
        lives = "though it sends heartbeats" if worst.is_alone else "though it fetches others"
        text = (
            f'{parties.client_text(client, address or "")} of group "{group}" has not fetched {where} for '
            f"{units.duration(until - since)}, {lives}: {counted(lag, 'record')} behind, {rate:,.1f} more each second"
        )
        name = () if set("*?[") & set(group) else (("group", group),)
        yield signature.rule.found(
            text, Party("group", group), *parties.client_parties(client, address or ""),
            *(Party("topic", topic) for topic in dict.fromkeys(topic for topic, _ in places)),
            begin=since, end=until, packets=[worst.packet], lost=worst.behind_ns, see=[("sections", "groups"), *name],
            partition=worst.place[1], partitions=len(found), lag=lag, behind_ns=worst.behind_ns,
            position=worst.position, records_per_s=round(rate, 2), is_alone=worst.is_alone,
        )  # fmt: skip
