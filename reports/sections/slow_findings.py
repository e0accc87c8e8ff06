"""Who is slow, and where the time goes; who is throttled.

"Slow" are the requests of a client and an API whose 99th percentile of total time is at least `notable.SLOW_NS`. Of
APIs that wait for data or members, the mean of the rest of their time is that long. So are rare requests that cost so
much time that a person notices (`slow_times`). Clients whose slow requests cost less than `NOTICED_NS` in all have no
finding, unless that is much of the capture. Those whose time went to the same place are one finding: on whose
fault it is as of `sufferers`, or on the client that lost most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, WAITS
from kafkatap.kernels.arrays import distinct_values, is_among

from .. import units
from ..batch import Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.histogram import P99
from ..counting.rollup import Rolled, api_label, group_columns, roll_up, value_columns
from ..finding_words import api_value, counted, listed, others_too, sentence
from ..findings import NOTE, WARNING, Finding, Party
from ..model import ReportTable, Row, Value, as_number
from ..parties import client_option, client_parties, client_text
from ..section_parts.notable import AUTHENTICATE, SLOW_NS
from .clients import by_verdict, verdict
from .failure_findings import exchanges_by_client, lasting
from .own_brokers import own_by
from .slow_times import NEVER, SlowTime, SlowTimes, noticed_ns
from .sufferers import MOSTLY, Fault, Suffering, Unit, Units, fault, numbers_of, people, suffering
from .time_shares import Spent, has_unknown_waits, percent, spent

#: A client holds back by itself if its requests waited on the wire for less than this part of the throttle time.
_HOLDS_BACK = 0.1
#: A person notices a request that takes this long, and many that take half of it.
_LONG_NS = 100_000_000
#: Nor is anything below this noticed if it comes now and then, and nearly all requests are quick.
_SHORT_NS = 2 * _LONG_NS
#: A client is slow in an outage if it is so many times as slow there as at other times.
_MUCH_MORE = 3
#: Slow requests in fewer of the seconds than this come now and then.
_DENSE = 0.5
#: Verdicts as the ids of findings.
_IDS = {
    "broker": "slow_broker", "head-of-line": "slow_head_of_line", "network": "slow_network", "client": "slow_client",
    "unknown": "slow_unknown", "throttled": "throttled",
}  # fmt: skip


class SlowRequests(NamedTuple):
    """The requests of one client and API that are slow. `parts`: without waits for data and members. `p99`, `longest`:
    total time, ns. `brokers`: the time of `parts`, ns, by broker. `slow`: those of SLOW_NS or more; None: not known."""

    client: str | None
    api_key: int
    parts: Spent
    answered: int
    p99: int
    longest: int
    is_known: bool
    brokers: dict[str, int]
    slow: SlowTime | None = None

    @property
    def waits(self) -> bool:
        return self.api_key in WAITS

    @property
    def mean(self) -> int:
        return self.parts.total // max(self.answered, 1)

    @property
    def is_slow(self) -> bool:
        if self.slow is not None and self.slow.is_noticed:
            return True
        if self.waits:
            return self.mean >= SLOW_NS
        # Behind a request that waits for data or members, the total time is long, but none of it is lost.
        return self.p99 >= SLOW_NS and self.parts.total >= SLOW_NS

    @property
    def lost(self) -> int:
        """The time of slow requests; of all, if it is not known which are slow: ns."""
        return self.parts.total if self.slow is None else self.slow.ns

    @property
    def is_noticed(self) -> bool:
        if self.slow is None or (self.mean if self.waits else self.p99) >= _LONG_NS:
            return True
        if not self.waits and self.p99 < SLOW_NS and self.longest < _SHORT_NS and not _is_dense(self.slow):
            return False
        return self.slow.is_noticed and 2 * self.slow.ns >= _LONG_NS * self.slow.requests


def slow_requests(counts: ReportCounts, context: Context, times: SlowTimes | None) -> list[SlowRequests]:
    """The slow requests, those that lost most time first."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    slow = (values["total_max"] >= SLOW_NS) & (columns["api_key"] >= 0)
    if not slow.any():
        return []
    names = {n: context.text(n) for n in distinct_values(columns["client_id"]).tolist()}
    labels: list[tuple[int | str | None, ...] | None] = [
        (names[client], key) if key >= 0 else None
        for client, key in zip(columns["client_id"].tolist(), columns["api_key"].tolist(), strict=True)
    ]
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, labels)
    p99 = rolled.percentiles(tally.M_TOTAL, rolled.values["total_max"], (P99,))[:, 0].tolist()
    found = []
    longest = rolled.values["total_max"].tolist()
    for i, (client, key) in enumerate(rolled.keys):
        if longest[i] < SLOW_NS:  # none of its requests is slow
            continue
        made = SlowRequests(
            None if client is None else str(client), int(key or 0), spent(rolled, i).without_waiting(),
            int(rolled.values["answered"][i]), p99[i], longest[i],
            not has_unknown_waits(rolled, i), {},
            None if times is None else times.get((None if client is None else str(client), int(key or 0)), NEVER),
        )  # fmt: skip
        if made.is_slow:
            found.append(made._replace(brokers=_by_broker(rolled, i, columns, values, context)))
    return sorted(found, key=lambda s: (-s.lost, s.client or "", s.api_key))


def _by_broker(
    rolled: Rolled, row: int, columns: dict[str, np.ndarray], values: dict[str, np.ndarray], context: Context
) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for g in np.flatnonzero(rolled.row_of == row).tolist():
        name = endpoint(context.address(int(columns["broker_ip"][g])), int(columns["broker_port"][g]))
        found[name] += int(values["total_ns"][g] - values["waiting_ns"][g] - values["hol_poll_wait_ns"][g])
    return found


def slow_findings(
    counts: ReportCounts, context: Context, clients: ReportTable, times: SlowTimes | None, units: Units | None,
    outages: Sequence[tuple[int, int]] = (),
) -> list[Finding]:  # fmt: skip
    """One finding for each place where time goes, and one on throttled clients. Those that wait behind throttled
    requests are among them. Logins of clients of which some fail are findings of their own: brokers delay the answer.
    `times`: of slow requests; `units`: who asked whom; None: not known. Clients that are slow in `outages` (begin, end,
    ns) are apart from those that are slow all the time."""
    by_client: dict[str | None, list[SlowRequests]] = defaultdict(list)
    logins: dict[str | None, list[SlowRequests]] = defaultdict(list)
    slow = slow_requests(counts, context, times)
    tried = exchanges_by_client(counts, context) if any(one.api_key == AUTHENTICATE for one in slow) else {}
    for one in slow:
        of_client = tried.get((one.client, api_label(one.api_key))) if one.api_key == AUTHENTICATE else None
        (logins if of_client is not None and of_client.failed else by_client)[one.client].append(one)
    groups: dict[str, list[list[SlowRequests]]] = defaultdict(list)
    in_outages: dict[str, list[list[SlowRequests]]] = defaultdict(list)
    refused: dict[str, list[list[SlowRequests]]] = defaultdict(list)
    inner = _own_clients(counts, context, by_client)
    between = [
        requests for client, requests in by_client.items() if client in inner and _is_material(requests, context)
    ]
    for client, requests in by_client.items():
        if client in inner:
            continue
        total = requests[0].parts
        for one in requests[1:]:
            total = total.plus(one.parts)
        found_at = verdict(True, total, all(one.is_known for one in requests))
        is_throttled = found_at == "head-of-line" and total.hol_throttle > total.parts["HOL"] // 2
        if is_throttled or found_at == "throttled":
            groups["throttled"].append(requests)
        elif _is_material(requests, context):
            (in_outages if _is_in(outages, requests, times, context) else groups)[found_at].append(requests)
    for (login,) in logins.values():
        if _is_material((login,), context):
            refused[verdict(True, login.parts, login.is_known)].append([login])
    held_back = clients.named_rows("throttled", "throttle_wait_sum_ns", "hol_throttle_wait_sum_ns")
    throttled = _throttled(held_back, groups.pop("throttled", []), _throttle_times(counts, context))
    if units is not None and groups:
        units = units.without(_own_clients(counts, context, {unit.client for unit in units.asked}))
    blame = Blame(counts, context, times, units)
    found = [_slow(name, group, context, blame) for name, group in groups.items()]
    found += [_slow(name, group, context) for name, group in refused.items()]
    for name, group in in_outages.items():
        made = _slow(name, group, context)
        found.append(made._replace(numbers={**made.numbers, "is_in_outages": True}))
    found += [_between_brokers(between, context)] if between else []
    return [*found, *([] if throttled is None else [throttled])]


def _is_in(
    outages: Sequence[tuple[int, int]], requests: Sequence[SlowRequests], times: SlowTimes | None, context: Context
) -> bool:
    """Whether a client is slow in outages, and not, or much less, at other times."""
    if times is None or not outages:
        return False
    inside, outside = times.within([(one.client, one.api_key) for one in requests], outages)
    if inside < MOSTLY * (inside + outside):
        return False
    whole = (context.last or 0) - (context.first or 0)
    length, until = 0, context.first or 0
    for begin, end in sorted(outages):
        length += max(end - max(begin, until), 0)
        until = max(until, end)
    return inside * max(whole - length, 0) >= _MUCH_MORE * outside * length


def _is_material(requests: Sequence[SlowRequests], context: Context) -> bool:
    """Whether the slow requests of a client cost time that a person notices, in a short capture too."""
    return any(one.slow is None for one in requests) or sum(one.lost for one in requests) >= noticed_ns(context)


class Blame(NamedTuple):
    """What shows whose fault slow requests are. `units`: of people's clients."""

    counts: ReportCounts
    context: Context
    times: SlowTimes | None
    units: Units | None

    def of(self, name: str, group: Sequence[list[SlowRequests]]) -> tuple[Suffering, Fault | None] | None:
        """Who suffers of what a group is slow of, and whose fault it is. None: not known."""
        if self.units is None:
            return None
        apis = {one.api_key for requests in group for one in requests}
        found = suffering(self.units, apis, {requests[0].client for requests in group})
        whose = fault(name, found)
        return found, whose if whose is None or _is_there(name, self.requests(group, whose.of).parts) else None

    def requests(self, group: Sequence[list[SlowRequests]], of: Collection[Unit]) -> SlowRequests:
        """The requests of an API by all that suffer: of the one that cost most."""
        assert self.units is not None
        clients, named = {unit.client for unit in of}, self.units.brokers
        slow, lost = {one.api_key for requests in group for one in requests}, defaultdict[int, int](int)
        for unit in of:
            for api in slow & self.units.asked[unit].keys():
                lost[api] += self.units.asked[unit][api].ns
        key = max(lost, key=lambda api: (lost[api], -api))
        columns = group_columns(self.counts.groups, tally.GROUP_KEY)
        names = ("api_key", "client_id", "client_ip", "broker_ip", "broker_port")
        labels: list[tuple[int | str | None, ...] | None] = [
            (key,)
            if api == key and (self.context.text(client), self.context.address(ip), named.get((broker, port))) in of
            else None
            for api, client, ip, broker, port in zip(*(columns[name].tolist() for name in names), strict=True)
        ]
        rolled = roll_up(self.counts.groups, tally.GROUP_VALUES, self.counts.histograms, labels)
        p99 = int(rolled.percentiles(tally.M_TOTAL, rolled.values["total_max"], (P99,))[0, 0])
        when = None if self.times is None else self.times.together([(client, key) for client in clients])
        return SlowRequests(
            None, key, spent(rolled, 0).without_waiting(), int(rolled.values["answered"][0]), p99,
            int(rolled.values["total_max"][0]), not has_unknown_waits(rolled, 0), {}, when,
        )  # fmt: skip


def _is_there(name: str, parts: Spent) -> bool:
    """Whether most time of all that suffer went where that of the first client did. At a broker is not in windows that
    are full."""
    most = parts.parts["broker"] + parts.parts["HOL"] if name == "broker" else by_verdict(parts)[name]
    return 2 * most >= parts.total


def _slow(name: str, group: Sequence[list[SlowRequests]], context: Context, blame: Blame | None = None) -> Finding:
    """`blame`: None: the client that lost most is named."""
    group = sorted(group, key=lambda requests: -sum(one.lost for one in requests))
    worst = group[0]
    first = worst[0]
    lost = sum(_lost(name, one) for requests in group for one in requests)
    brokers: dict[str, int] = defaultdict(int)
    for requests in group:
        for one in requests:
            for broker, ns in one.brokers.items():
                brokers[broker] += ns
    at, time = max(brokers.items(), key=lambda pair: (pair[1], pair[0]), default=("", 0))
    at_one = name in ("broker", "head-of-line") and time >= MOSTLY * sum(brokers.values())
    judged = None if blame is None else blame.of(name, group)
    found, whose = judged or (None, None)
    subject, left = client_text(first.client), len(group) - 1
    numbers: dict[str, int | float] = {"clients": len(group)}
    evidence: list[str | None] = (
        [f"{percent(time / sum(brokers.values()))} of the time at broker {at}"]
        if at_one and name == "broker" and len(brokers) > 1
        else []
    )
    if whose is not None and blame is not None:
        first = blame.requests(group, whose.of)
        subject, evidence = _subject(whose), _evidence(whose)
        left = len({requests[0].client for requests in group} - {unit.client for unit in whose.of})
    if found is not None:
        numbers = {**numbers_of(found, found.hit if whose is None else whose.of)}
    ahead = first.parts.hol_in_words() if name == "head-of-line" else None
    behind = f"the requests ahead: {ahead}" if ahead else None
    if behind and first.parts.parts["HOL"]:
        numbers["ahead_broker_share"] = first.parts.hol_broker / first.parts.parts["HOL"]
    if name == "network" and 2 * first.parts.round_trip > first.parts.total:
        behind = "mostly round trips to the broker"
    parts = [f"{subject}: {_times(first)}", _while(first.slow, context), first.parts.in_words(is_known=first.is_known)]
    label = api_label(first.api_key)
    shares = zip(first.parts.parts, first.parts.shares().values(), strict=True)
    parties = [party for one in group for party in client_parties(one[0].client)]
    if whose is None:
        own = len(client_parties(worst[0].client))
        parties[own:own] = [Party("broker", at)] if at_one or len(brokers) == 1 else []
    else:
        kind = "host" if whose.kind == "host" else "broker"
        parties = [*(Party(kind, each) for each in whose.names), *parties]
    see = client_option(first.client) if whose is None else _option(whose)
    return Finding(
        _IDS[name], WARNING if any(one.is_noticed for requests in group for one in requests) else NOTE, "slow",
        sentence([*parts, behind, *evidence, *others_too(left)]), lost,
        begin=first.slow.begin if first.slow else None, end=first.slow.end if first.slow else None,
        numbers={
            "verdict": name, "api": label, **numbers, **_numbers(first),
            **({"round_trip_ns": first.parts.round_trip} if first.parts.round_trip else {}),
            **{f"{part.lower()}_share": share for part, share in shares if share},
        },
        parties=tuple(parties),
        options=(("by", "client"), ("api", api_value(label)), *see),
    )  # fmt: skip


def _subject(whose: Fault) -> str:
    if whose.kind == "cluster":
        return "both brokers" if len(whose.names) == 2 else f"all {len(whose.names)} brokers"
    return f"{whose.kind} {whose.names[0]}"


def _evidence(whose: Fault) -> list[str | None]:
    """Who suffers, and who does not: `7 clients of 4 hosts; 5 clients at other brokers are well`."""
    clients, hosts = len(people(whose.of)), len({unit.host for unit in whose.of})
    where = f" of {counted(hosts, 'host')}" if hosts > 1 else ""
    elsewhere = "at other brokers" if whose.kind == "broker" else "of other hosts"
    well = f"{counted(len(people(whose.well)), 'client')} {elsewhere} not slow" if whose.well else None
    return [f"{counted(clients, 'client')}{where}", well]


def _option(whose: Fault) -> tuple[tuple[str, str | None], ...]:
    if whose.kind == "cluster":
        return ()
    if whose.kind == "broker":
        return (("filter", f'broker == "{whose.names[0]}"'),)
    end = "client_ip" if whose.names[0] in {unit.host for unit in whose.of} else "broker_ip"
    return (("filter", f'{end} == "{whose.names[0]}"'),)


def _own_clients(counts: ReportCounts, context: Context, clients: Collection[str | None]) -> set[str | None]:
    """Those of some clients that only brokers and controllers have."""
    if not clients:
        return set()
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    numbers = [n for n in distinct_values(columns["client_id"]).tolist() if context.text(n) in clients]
    chosen = is_among(columns["client_id"], numbers)
    who = zip(*(columns[name][chosen].tolist() for name in ("client_id", "client_ip", "api_key")), strict=True)
    brokers = {found for ip in distinct_values(columns["broker_ip"]).tolist() if (found := context.address(ip))}
    used: dict[str | None, set[int]] = defaultdict(set)
    hosts: dict[str | None, set[str | None]] = defaultdict(set)
    for client, ip, api in set(who):
        used[context.text(client)].add(api)
        hosts[context.text(client)].add(context.address(ip))
    return {
        client for client, apis in used.items()
        if all(own_by(client, host, apis, False, brokers) for host in hosts[client])
    }  # fmt: skip


def _is_dense(slow: SlowTime) -> bool:
    """Whether requests were slow all the time, and not now and then."""
    return max(slow.seconds * units.SECOND, slow.ns) >= _DENSE * (slow.end - slow.begin)


def _while(slow: SlowTime | None, context: Context) -> str | None:
    """`for 12.5 s, until the end`; `in 3 s of 94.3 s` if requests were slow now and then."""
    if slow is None or (words := lasting(slow.begin, slow.end, context)) is None:
        return None
    return words if _is_dense(slow) else words.replace("for ", f"in {slow.seconds} s of ", 1)


def _between_brokers(group: Sequence[list[SlowRequests]], context: Context) -> Finding:
    """Slow requests between brokers and controllers: nobody waits for them as such, so they cost no time of people."""
    made = _slow("unknown", group, context)
    return made._replace(id="slow_between_brokers", severity=NOTE, time_lost_ns=0,
                         text=f"between brokers: {made.text}")  # fmt: skip


def _lost(name: str, one: SlowRequests) -> int:
    """The time of slow requests that went where most of it did."""
    total = one.parts.total
    return one.lost * by_verdict(one.parts)[name] // total if name != "unknown" and total else one.lost


def _times(one: SlowRequests) -> str:
    if one.waits:
        what = "data" if one.api_key in FETCHES else "members"
        if one.slow is not None and one.mean < SLOW_NS:
            many = f"{one.slow.requests:,} of {one.answered:,} {api_label(one.api_key)} requests"
            return f"{many} {units.duration(one.slow.ns // one.slow.requests)} on average besides their wait for {what}"
        return f"{api_label(one.api_key)} {units.duration(one.mean)} on average besides its wait for {what}"
    longest = f", longest {units.duration(one.longest)}" if one.longest > one.p99 else ""
    return f"{api_label(one.api_key)} p99 {units.duration(one.p99)}{longest}"


def _numbers(one: SlowRequests) -> dict[str, int | float]:
    """The times of one client and API; `time_ns`: all of it, without waits for data and members."""
    return {
        "requests": one.answered, "total_p99_ns": one.p99, "total_max_ns": one.longest, "mean_ns": one.mean,
        "time_ns": one.parts.total,
        **({} if one.slow is None else {"slow_requests": one.slow.requests, "slow_ns": one.slow.ns}),
    }  # fmt: skip


def _throttle_time(row: Row) -> int:
    """The time that would not have passed without a quota, also behind throttled requests, ns."""
    return int(as_number(row["throttle_wait_sum_ns"])) + int(as_number(row["hol_throttle_wait_sum_ns"]))


def _throttle_times(counts: ReportCounts, context: Context) -> dict[Value, int]:
    """The summed throttle_time_ms of clients, ns."""
    found: dict[Value, int] = defaultdict(int)
    times = counts.groups.value_rows()[:, list(tally.GROUP_VALUES).index("throttle_time_ms")]
    clients = group_columns(counts.groups, tally.GROUP_KEY)["client_id"]
    for g in np.flatnonzero(times).tolist():
        found[context.text(int(clients[g]))] += int(times[g]) * 1_000_000
    return found


def _also(others: Sequence[tuple[Value, int]]) -> list[str]:
    """Further clients with their times, as a part of a sentence."""
    named = [f"{client_text(name).removeprefix('client ')} {units.duration(ns)}" for name, ns in others]
    return [f"also {listed(named)}"] if named else []


def _throttled(rows: list[Row], slow: Sequence[list[SlowRequests]], announced: dict[Value, int]) -> Finding | None:
    """The client that a quota holds back longest. `slow`: the requests of clients that lost most of their time so.
    `announced`: the throttle times of clients."""

    def held_back(row: Row) -> int:
        """The throttle time of a client that sends nothing meanwhile, so that no request waits."""
        time = announced.get(row["client_id"], 0)
        return time if _throttle_time(row) < _HOLDS_BACK * time else 0

    def cost(row: Row) -> int:
        return max(_throttle_time(row), held_back(row))

    def own(row: Row) -> int:
        """What it waited itself, not behind its throttled requests."""
        return max(int(as_number(row["throttle_wait_sum_ns"])), held_back(row))

    rows = [row for row in rows if row["throttled"] or _throttle_time(row)]
    if not rows:
        return None
    # Waits behind throttled requests overlap where a client sends several at once, so they rank nobody.
    ranked = sorted(rows, key=lambda row: (-own(row), -cost(row), str(row["client_id"])))
    worst = ranked[0]
    wait, share = int(as_number(worst["throttle_wait_sum_ns"])), as_number(worst["throttle_share"])
    behind = int(as_number(worst["hol_throttle_wait_sum_ns"]))
    responses = int(as_number(worst["throttled"]))
    mine = next((requests[0] for requests in slow if requests[0].client == worst["client_id"]), None)
    numbers: dict[str, int | float] = {
        "throttled": responses,
        "throttle_wait_ns": wait,
        "hol_throttle_wait_ns": behind,
        "throttle_time_ns": announced.get(worst["client_id"], 0),
        "throttle_share": share,
        "clients": len(rows),
    }
    text = sentence(
        [
            f"{client_text(worst['client_id'])}: {_times(mine)}" if mine else client_text(worst["client_id"]) + ":",
        ]
    )
    of_time = f", {percent(share)} of its time" if share and not behind else ""
    summed = " in total over its requests" if responses != 1 else ""
    waited = f"throttle wait {units.duration(wait)}{summed}{of_time}"
    waited += f", and {units.duration(behind)} behind throttled requests" if behind else ""
    if held_back(worst):
        summed = " in total over its responses" if responses != 1 else ""
        waited = f"throttle time {units.duration(held_back(worst))}{summed}, in which the client itself sends nothing"
    many = f"{counted(responses, 'throttled response')}, " if responses else ""
    text += f"{'; ' if mine else ' '}{many}{waited}"
    also = _also([(row["client_id"], own(row)) for row in ranked[1:]])
    return Finding(
        "throttled", WARNING, "throttled", sentence([text, *also]),
        sum(map(cost, rows)),
        begin=mine.slow.begin if mine and mine.slow else None, end=mine.slow.end if mine and mine.slow else None,
        numbers=numbers | ({} if mine is None else _numbers(mine)),
        parties=tuple(party for row in ranked for party in client_parties(row["client_id"])),
        options=(("by", "client"), *client_option(worst["client_id"])),
    )  # fmt: skip
