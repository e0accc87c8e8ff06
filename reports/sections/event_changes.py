"""Events of a cluster's state: leaders and coordinators move, topics come and go, errors burst, groups rebalance.

What an outage of a broker explains is no event of its own: it is folded into the outage (`event_effects`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.kernels.arrays import distinct_values, groups_of

from ..counting.rollup import api_label
from ..finding_words import NAMED, counted, listed, sentence
from ..findings import NOTE, WARNING, Finding, Party, Rule
from ..units import duration
from .event_answers import SECOND
from .event_counts import CREATED, DELETED, REBALANCES, TRANSACTIONS
from .event_leaders import leader_moves
from .event_replicas import Change, in_sync_changes
from .event_timeline import Seen, around, bursts

if TYPE_CHECKING:
    from ..groups.group_rebalances import Rebalance
    from ..section_parts.section import SectionInput

_LEADERS = Rule("leaders_moved", "leaders moved", NOTE, "show")
_SHRANK, _GREW = Rule("isr_shrank", "ISR shrank", NOTE, "show"), Rule("isr_grew", "ISR grew", NOTE, "show")
_COORDINATOR = Rule("coordinator_moved", "coordinator moved", NOTE, "show")
_CREATED = Rule("topic_created", "topic created", NOTE, "show")
_DELETED = Rule("topic_deleted", "topic deleted", NOTE, "show")
_BURST_OF_ERRORS = Rule("error_burst", "errors", command="show")
_REBALANCED = Rule("group_rebalanced", "rebalance", NOTE)
#: Changes of the same kind within this are one event. Clients ask for metadata again within seconds of a change.
_TOGETHER_NS = 10 * SECOND
#: A burst ends with a silence of this length: five times the longest pause between two tries of a client
#: (retry.backoff.max.ms, 1 s).
_PAUSE_NS = 5 * SECOND
#: Fewer codes are no burst: one request that is tried again until it times out makes about as many.
_BURST = 10
#: Codes within this are of one response, or of responses that were in flight together.
_AT_ONCE_NS = SECOND // 10
#: Codes that belong to usual work: MEMBER_ID_REQUIRED and UNSUPPORTED_VERSION of a start, REBALANCE_IN_PROGRESS of a
#: rebalance, sessions of Fetch that the broker gave up.
_USUAL = frozenset(((79, 11), (35, 18), (27, 12), (27, 8), (27, 14), (70, 1), (71, 1)))
#: Each transaction may begin so, until the one before has ended.
_CONCURRENT_TRANSACTIONS = 51
#: Fewer rebalances are usual work. So are those by which a group grows.
_MANY_REBALANCES = 3
#: Of a rebalance in which a session timed out: how long its member was silent, and its partitions had none.
_GONE = ("silent", "without_member")
#: What a person notices.
_NOTICED_NS = SECOND


def changes(seen: Seen) -> list[Finding]:
    """Findings of changes."""
    of = (_leaders, _in_sync, _coordinators, _topics, _bursts, _rebalances)
    return [found for find in of for found in find(seen)]


def _leaders(seen: Seen) -> Iterator[Finding]:
    moves = seen.given.once(leader_moves)
    for run in _together(np.array([move.time for move in moves], np.int64)):
        mine = [moves[row] for row in run]
        count = len({move[:2] for move in mine})
        old = Counter(move.old for move in mine).most_common()[0][0]
        new = Counter(new for *_, new in {(*move[:2], move.new) for move in mine})
        listing = [f"{n:,} to broker {node}" for node, n in sorted(new.items(), key=lambda each: (-each[1], each[0]))]
        text = f"leaders of {counted(count, 'partition')} moved, most from {seen.brokers.node_label(old)}"
        apis = ",".join(api_label(key) for key in sorted({move.api_key for move in mine}))
        begin, end = mine[0].time, mine[-1].time
        yield _LEADERS.found(
            f"{text}: {listed(listing)}", seen.brokers.node_party(old), begin=begin, end=end, packets=[mine[0].packet],
            see=(*around(min(move.asked for move in mine), end), ("api", apis)), partitions=count,
        )  # fmt: skip


def _in_sync(seen: Seen) -> Iterator[Finding]:
    """In-sync replicas that partitions lost and gained, each in events of their own."""
    changes = seen.given.once(in_sync_changes)
    for rule, word, lost in ((_SHRANK, "shrank", True), (_GREW, "grew", False)):

        def nodes(change: Change, lost: bool = lost) -> frozenset[int]:
            return change.before - change.after if lost else change.after - change.before

        mine = [change for change in changes if nodes(change)]
        for run in _together(np.array([change.time for change in mine], np.int64)):
            together = [mine[row] for row in run]
            places = {(change[:2], node) for change in together for node in nodes(change)}
            by_node = sorted(Counter(node for _, node in places).items(), key=lambda each: (-each[1], each[0]))
            listing = [f"broker {node} {'left' if lost else 'joined'} {n:,}" for node, n in by_node]
            many = len({place for place, _ in places})
            begin, end = together[0].time, together[-1].time
            apis = ",".join(api_label(key) for key in sorted({change.api_key for change in together}))
            yield rule.found(
                f"in-sync replicas of {counted(many, 'partition')} {word}: {listed(listing)}",
                seen.brokers.node_party(by_node[0][0]), begin=begin, end=end, packets=[together[0].packet],
                see=(*around(min(change.asked for change in together), end), ("api", apis)),
                partitions=many, fewest=min(len(change.after) for change in together),
            )  # fmt: skip


def _together(times: Any) -> list[Any]:
    """Runs of ascending times that are at most _TOGETHER_NS apart: their indexes."""
    if not len(times):
        return []
    return list(np.split(np.arange(len(times)), np.flatnonzero(np.diff(times) > _TOGETHER_NS) + 1))


def _coordinators(seen: Seen) -> Iterator[Finding]:
    """Moves of coordinators. Several brokers may name the same one."""
    latest: dict[tuple[str, int, int], int] = {}
    for time, packet, key, old, new in seen.coordinator_moves:
        before = latest.get((key, old, new))
        latest[key, old, new] = time
        if before is not None and time - before <= _TOGETHER_NS:
            continue
        text = f'the coordinator of "{key}" moved from {seen.brokers.node_label(old)} to {seen.brokers.node_label(new)}'
        yield _COORDINATOR.found(
            text, Party("group", key), begin=time, packets=[packet],
            see=(*around(time, None), ("api", "FindCoordinator")), from_node=old, to_node=new,
        )  # fmt: skip


def _topics(seen: Seen) -> Iterator[Finding]:
    """Topics that were created or deleted, those of a client within _TOGETHER_NS in one event."""
    context = seen.context
    for kind, rule, word in ((CREATED, _CREATED, "created"), (DELETED, _DELETED, "deleted")):
        events = seen.events[seen.events["kind"] == kind]
        for (client,), of_client in groups_of(events["client_id"].astype(np.int64)):
            mine = events[of_client]
            for run in _together(mine["time"]):
                rows = mine[run]
                topics = list(dict.fromkeys(
                    context.topic(int(t), int(i)) or "(name not captured)"
                    for t, i in zip(rows["topic"], rows["topic_id"], strict=True)
                ))  # fmt: skip
                who, at = context.text(client), int(rows["time"][0])
                by = f'by "{who}" ({context.address(int(rows["client_ip"][0]))})'
                subject = f"topic {topics[0]} was" if len(topics) == 1 else f"{len(topics):,} topics were"
                names = "" if len(topics) == 1 else f": {listed(topics)}"
                yield rule.found(
                    f"{subject} {word} {by}{names}", *(Party("topic", topic) for topic in topics[:NAMED]), begin=at,
                    packets=[int(rows["packet"][0])],
                    see=(*around(at, None), ("api", "CreateTopics" if kind == CREATED else "DeleteTopics")),
                    topics=len(topics),
                )  # fmt: skip


def _bursts(seen: Seen) -> Iterator[Finding]:
    """Error codes that begin within the capture and come often."""
    errors = seen.errors
    usual = np.zeros(len(errors["second"]), bool)
    for code, api_key in _USUAL:
        usual |= (errors["error_code"] == code) & (errors["api_key"] == api_key)
    usual |= _between_transactions(seen)
    for code in distinct_values(errors["error_code"][~usual]).tolist():
        for burst in bursts(seen.of(errors, (errors["error_code"] == code) & ~usual), _PAUSE_NS):
            begin, last, codes = burst.begin, burst.last, burst.total("codes")
            if codes < _BURST or last - begin < _AT_ONCE_NS or begin - seen.begin < _PAUSE_NS:
                continue
            people = set(zip(burst["client_ip"].tolist(), burst["client_id"].tolist(), strict=True))
            apis = Counter[str]()
            for key, count in zip(burst["api_key"].tolist(), burst["codes"].tolist(), strict=True):
                apis[api_label(key)] += count
            is_over = seen.end - last >= _PAUSE_NS
            text = (
                f"{codes:,} {error_name(code)} in {listed([api for api, _ in apis.most_common()])} to "
                f"{counted(len(people), 'client')} within {duration(last - begin)}"
                + ("" if is_over else ", and goes on")
            )
            yield _BURST_OF_ERRORS.found(
                text, Party("error", error_name(code)), begin=begin, end=last if is_over else None,
                packets=[burst.packet], see=(*around(begin, last), ("filter", f"error == {error_name(code)}")),
                code=code, codes=codes, clients=len(people),
            )  # fmt: skip


def _between_transactions(seen: Seen) -> Any:
    """Which errors are CONCURRENT_TRANSACTIONS while transactions end: within _PAUSE_NS. Nobody knows whose these are:
    they end at their coordinator, which may move."""
    errors, ended = seen.errors, seen.columns(TRANSACTIONS.name)["last"]
    near = np.searchsorted(ended, errors["last"] + _PAUSE_NS, "right")
    near -= np.searchsorted(ended, errors["last"] - _PAUSE_NS)
    return (errors["error_code"] == _CONCURRENT_TRANSACTIONS) & (near > 0)


def _rebalances(seen: Seen) -> Iterator[Finding]:
    """New generations (JoinGroup) and epochs (KIP-848) of groups, those within _TOGETHER_NS in one event."""
    keys, values = seen.given.keys(REBALANCES.name), seen.given.values(REBALANCES.name)
    is_known = (keys["number"] > 0) & (values["members"] > 0)
    for (group,), of_group in groups_of(keys["group"]):
        rows = of_group[is_known[of_group]]
        if not len(rows):
            continue
        rows = _joined_together(keys, values, rows[np.argsort(values["first"][rows], kind="stable")])
        grown = _growing(keys, values, rows)
        ends = np.maximum.accumulate(values["last"][rows])
        breaks = np.flatnonzero(values["first"][rows][1:] - ends[:-1] > _TOGETHER_NS) + 1
        for run in np.split(rows, breaks):
            begin, end = int(values["first"][run].min()), int(values["last"][run].max())
            name = seen.context.text(group) or ""
            numbers, at = np.unique(keys["number"][run], return_inverse=True)
            low, high = int(numbers[0]), int(numbers[-1])
            word = "generation" if keys["is_epoch"][run[0]] == 0 else "epoch"
            times = "" if len(numbers) == 1 else f" {len(numbers):,} times"
            span = f"{word} {low}" if low == high else f"{word}s {low} to {high}"
            members = int(np.bincount(at, weights=values["members"][run]).max())
            known = [r for r in _history(seen, name) if low <= r.number <= high and r.start <= end and r.heard >= begin]
            lost = {r.who for r in known if r.has_timed_out and r.who is not None}
            before = values["members"][of_group][keys["number"][of_group] == low - 1].sum()
            if max(members, before) < 2 and len(numbers) < 2 and not lost:
                continue  # the only member joined: nobody was interrupted
            begin = min([begin, *(r.start for r in known)])
            during = "in" if len(numbers) == 1 else "within"
            text = f'group "{name}" rebalanced{times} ({span}) {during} {duration(end - begin)}'
            text += f", {members:,} member{'' if members == 1 else 's'}"
            costly = [number for number in numbers.tolist() if number not in grown]
            mine = of_group[(keys["is_epoch"][of_group] == 0) & np.isin(keys["number"][of_group], costly)]
            waited = int(values["waited_ns"][mine].sum()) if len(costly) >= _MANY_REBALANCES else 0
            is_costly = waited >= _NOTICED_NS
            if is_costly:
                text += f", which waited for each other for {duration(waited)} in total"
            by = {r.who for r in known}
            gone = [r for r in known if r.has_timed_out]
            silent, stop = (max((getattr(r, name) or 0 for r in gone), default=0) for name in _GONE)
            most = "up to " if len(gone) > 1 else ""
            longest = "up to " if len(gone) > 1 or any(r.is_at_least for r in gone) else ""
            text = sentence([
                text, _causes_text(known), f"no heartbeat for {most}{duration(silent)}" if silent else None,
                f"partitions without a living member for {longest}{duration(stop)}" if stop else None,
            ])  # fmt: skip
            yield _REBALANCED.found(
                text, Party("group", name), *(Party("client", each) for each in sorted(lost)), begin=begin, end=end,
                packets=[int(values["packet"][run].min())], lost=max(waited if is_costly else 0, stop),
                see=[("sections", "groups")], severity=WARNING if is_costly or lost else NOTE,
                rebalances=len(numbers), first_number=low, last_number=high, waited_ns=waited, timed_out=len(lost),
                silent_ns=silent, without_member_ns=stop,
                **({"by": next(iter(by))} if known and len(by) == 1 and None not in by else {}),
            )  # fmt: skip


def _history(seen: Seen, name: str) -> Sequence[Rebalance]:
    """The rebalances of a group with their causes, if requests of groups were read."""
    return seen.given.once(_histories).get(name, ())


def _histories(given: SectionInput) -> dict[str, Sequence[Rebalance]]:
    """The rebalances of all groups by name."""
    # Most captures have no rebalance, and need not load what knows groups.
    from ..groups.group import groups_of as all_groups
    from ..groups.group_events import READ_BY

    if READ_BY not in {section.name for section in given.sections.sections}:
        return {}
    return {group.name: group.rebalances for group in reversed(given.once(all_groups))}


def _causes_text(rebalances: Sequence[Rebalance]) -> str | None:
    """`leave of poller-a, rejoin of poller-a`; of more causes than a line has, how many of each kind."""
    found = Counter((f"{r.trigger} of {r.who}" if r.who else r.trigger) for r in rebalances)
    if len(found) > NAMED:
        found = Counter(r.trigger for r in rebalances)
    named = [f"{cause} {count}" if count > 1 else cause for cause, count in found.most_common()]
    return f"cause{'' if len(named) == 1 else 's'}: {listed(named)}" if named else None


def _joined_together(keys: dict[str, Any], values: dict[str, Any], rows: Any) -> Any:
    """Rows of REBALANCES without members that join a generation after it began: static members that come back.
    Members hear of an epoch one after another."""
    answered: dict[int, int] = {}
    kept = []
    for row in rows.tolist():
        first, last = int(values["first"][row]), int(values["last"][row])  # last < first if a clock was set back
        until = answered.setdefault(int(keys["number"][row]), max(first, last))
        if keys["is_epoch"][row] or first <= until:
            kept.append(row)
    return np.array(kept, np.int64)


def _growing(keys: dict[str, Any], values: dict[str, Any], rows: Any) -> set[int]:
    """The numbers of the rebalances after which a group had more members than ever before. `rows`: in order of time."""
    members = Counter[int]()
    for row in rows.tolist():
        members[int(keys["number"][row])] += int(values["members"][row])
    most, found = 0, set()
    for number, count in members.items():
        if count > most:
            most = count
            found.add(number)
    return found
