"""Which findings follow from others: they get a `cause`, and are folded under it.

* A slow client under the advice or the event that explains most of its lost time, or the longest requests ahead of its
  own; a client whose login fails, under that.
* A quota that begins under the line on throttled clients, which says what it costs. A storm of connections under the
  advice on it, which says what to change. Rebalances under the members that a group lost or waited for in that time. A
  burst of errors under the line on that error code, which says whose they are.
* Error codes and unanswered requests under events that explain them: an outage, moved leaders, a rebalance, topics that
  come or go. Error codes under another one that says why (`error_meanings`), and offsets out of range under the line
  on where the reader went.
* Unanswered requests, and clients that connect for each message or again and again, under idle connections that the
  path drops, if those are theirs, or under a limit of connections, if the broker closed theirs for it.
* A group that falls behind under what keeps its client from reading: packets that never arrive, a quota, or a
  rebalance that was held up for most of the time.
* Silences of a broker under the first of them, if there are several.
* Advice on clients that wait, and on those that connect again, under an outage of the broker in that time: no setting
  of a client explains these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter

import numpy as np

from .. import units
from ..batch import Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns
from ..finding_words import listed, sentence
from ..findings import NOTE, Finding, Party
from ..model import as_number
from .error_meanings import MEANINGS
from .failure_findings import lasting

#: A cause explains most of what follows: at least this share of its time, or of its number.
_MOST = 0.5
#: Clients note an event up to this much before the packet that shows it: clocks of capture points, and other brokers
#: that hear of it first.
_BEFORE_NS = units.SECOND
#: Effects come within this after an event is over: clients repeat within seconds (`event_effects.AFTER_NS`).
_AFTER_NS = 10 * units.SECOND
#: Outages of a broker, or of the path to it.
_OUTAGES = frozenset(("broker_stopped", "broker_hung", "broker_unreachable", "hosts_cut_off"))
#: Silences of a broker, and from how many on they are one line: a pause now and then may have another reason each.
_SILENCES, _REPEATS = frozenset(("broker_hung", "broker_unreachable")), 3
#: Error codes that follow from an event by what they say, whatever its line names.
_CODES_OF: Mapping[str, frozenset[str]] = {
    "leaders_moved": frozenset((
        "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    )),
    "coordinator_moved": frozenset(("NOT_COORDINATOR",)),
    "group_rebalanced": frozenset(("REBALANCE_IN_PROGRESS",)),
    "topic_created": frozenset(("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "LEADER_NOT_AVAILABLE")),
    "topic_deleted": frozenset(("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")),
}  # fmt: skip
#: Advice that an outage explains as well: requests wait behind those that the broker does not answer, and clients give
#: up and connect again.
_BY_OUTAGE = frozenset(("one_connection", "request_timeout", "reconnect_storm", "slow_follower", "dying_members"))
#: Advice that says what a slow client does, and not why; and on records that wait, not requests.
_NO_CAUSES = frozenset(("lagging_group", "open_transaction", "fetch_waits", "dying_members", "held_rebalance"))
#: Events that make no request slow: the time that members wait for each other is none of a slow request.
_NO_WAITS = frozenset(("quota_began", "group_rebalanced"))
#: Advice that says why a group rebalances.
_ON_MEMBERS = ("dying_members", "expelled_members", "held_rebalance")
#: Advice on connections that are lost: the path drops idle ones, or the broker closes those over a limit.
_ON_LOST_CONNECTIONS = ("idle_dropped", "connection_limit")
#: Advice that says why a client connects so often, or why packets do not pass between two hosts.
_ON_CONNECTIONS = frozenset(("connection_each_message", "reconnect_storm"))
#: Findings that say more of an event's clients.
_LINES = {"quota_began": {"throttled"}, "connection_storm": _ON_CONNECTIONS | {"connection_limit"}}
#: By client or host, a finding and its place among all.
ByClient = Mapping[tuple[str, str], tuple[int, Finding]]
#: Findings by a party.
ByParty = Mapping[Party, Sequence[Finding]]


def folded(found: Sequence[tuple[str, Finding]], counts: ReportCounts, context: Context) -> list[tuple[str, Finding]]:
    """The findings (section, finding), with the causes of those that follow from others."""
    found = _repeats_in_one(found)
    keys = {finding.key for _, finding in found}
    all_of_them = [finding for _, finding in found if finding.cause is None]
    events = [f for section, f in found if section == "events" and f.cause is None]
    advice = [f for section, f in found if section == "advice" and f.cause is None and f.id not in _NO_CAUSES]
    lost_at = _unanswered_by_broker(counts, context)
    lines = {event: _by_client(all_of_them, ids) for event, ids in _LINES.items()}
    on_parties = _by_party(all_of_them, {"mtu_black_hole", "hosts_cut_off", *_ON_MEMBERS})
    made = []
    for section, finding in found:
        if finding.cause is not None:
            made.append((section, finding if finding.cause in keys else finding._replace(cause=None)))
            continue
        cause = None
        if finding.id.startswith("slow_") and section != "advice":
            cause = _cause_of_slow(finding, events, advice, all_of_them) or _failed_login(finding, all_of_them)
        elif finding.id in ("errors", "sasl_failed"):
            cause = (
                _lost_position(finding, advice)
                or _cause_of_errors(finding, events)
                or _told_by_another(finding, all_of_them)
            )
        elif finding.id == "unanswered":
            cause = _of_lost_connections(finding, advice) or _cause_of_unanswered(events, lost_at)
        elif section == "events":
            cause = _better_line(finding, all_of_them, lines, on_parties)
        elif finding.id == "lossy_host":
            cause = _cut_off(finding, on_parties)
        elif finding.id == "lagging_group":
            cause = _cause_of_lag(finding, all_of_them, context)
        elif section == "advice" and finding.id in _BY_OUTAGE:
            cause = _outage_of(finding, events)
        if section == "advice" and finding.id in _ON_CONNECTIONS and cause is None:
            cause = _of_connections(finding, advice)
        made.append((section, finding if cause is None else finding._replace(cause=cause.key)))
    return [(section, _with_effects(finding, made, context)) for section, finding in made]


def _repeats_in_one(found: Sequence[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """A broker that hangs again and again is one line: the first silence, with the others folded under it."""
    silences: dict[object, list[Finding]] = {}
    for section, finding in found:
        if section == "events" and finding.id in _SILENCES and finding.cause is None:
            silences.setdefault((finding.id, finding.parties[:1]), []).append(finding)
    heads: dict[object, Finding] = {}
    causes: dict[object, Finding] = {}
    for alike in silences.values():
        if len(alike) >= _REPEATS:
            first, *rest = sorted(alike, key=lambda finding: finding.begin or 0)
            heads[first.key] = _repeated(first, rest)
            causes |= {finding.key: first for finding in rest}
    return [
        (section, heads.get(finding.key) or _caused(finding, causes.get(finding.key))) for section, finding in found
    ]


def _caused(finding: Finding, cause: Finding | None) -> Finding:
    return finding if cause is None else finding._replace(cause=cause.key)


def _repeated(first: Finding, rest: Sequence[Finding]) -> Finding:
    """The first of several silences of a broker, with the number, the span and the length of all."""
    every = [int(as_number(finding.numbers["silence_ns"])) for finding in (first, *rest)]
    last = rest[-1]
    until = (last.begin or 0) + every[-1]
    what, _, how = first.text.partition(f" for {units.duration(every[0])}")
    times = f"{len(every):,} times in {units.duration(until - (first.begin or 0))}"
    lengths = f"{units.duration(sorted(every)[len(every) // 2])} each, longest {units.duration(max(every))}"
    return first._replace(
        text=f"{what} {times}, {lengths}{how}", end=last.end,
        time_lost_ns=sum(finding.time_lost_ns for finding in (first, *rest)),
        numbers={**first.numbers, "times": len(every), "longest_silence_ns": max(every), "sum_silence_ns": sum(every)},
        packets=tuple(finding.packets[0] for finding in (first, *rest[:9]) if finding.packets),
    )  # fmt: skip


def _with_effects(finding: Finding, found: Sequence[tuple[str, Finding]], context: Context) -> Finding:
    """An error code that explains others, with what followed; a quota with the groups that fall behind."""
    if finding.id == "throttled":
        late = [f for _, f in found if f.cause == finding.key and f.id == "lagging_group"]
        behind = [f'"{f.party("group")}" of client "{f.party("client")}"' for f in late]
        return finding._replace(text=sentence([finding.text, f"behind: group {listed(behind)}" if behind else None]))
    if finding.id != "errors" or finding.numbers["error"] not in MEANINGS:
        return finding
    effects = [f for _, f in found if f.cause == finding.key and f.id == "errors"]
    if not effects:
        return finding
    names = listed([f"{as_number(f.numbers['codes']):,} {f.numbers['error']}" for f in effects])
    last = max(f.end or 0 for f in effects)
    return finding._replace(
        text=sentence([finding.text, f"{names} followed", lasting(finding.begin or 0, last, context)]), end=last
    )


def _clients(finding: Finding) -> set[tuple[str, str]]:
    """The clients of a finding, or its hosts if it names none."""
    for kind in ("client", "host"):
        named = {(party.kind, party.name) for party in finding.parties if party.kind == kind}
        if named:
            return named
    return set()


def _of_connections(finding: Finding, advice: Sequence[Finding]) -> Finding | None:
    """Why a client connects so often: its idle connections are dropped, or the broker closes new ones of its host."""
    for cause in _ON_LOST_CONNECTIONS:
        for one in advice:
            if one.id == cause and _clients(one) >= _clients(finding):
                return one
    return None


def _by_client(found: Sequence[Finding], ids: Collection[str]) -> ByClient:
    """The first of these findings on each client or host, with its place."""
    made: dict[tuple[str, str], tuple[int, Finding]] = {}
    for place, finding in enumerate(found):
        for client in _clients(finding) if finding.id in ids else ():
            made.setdefault(client, (place, finding))
    return made


def _by_party(found: Sequence[Finding], ids: Collection[str]) -> ByParty:
    """These findings by each of their parties, in order."""
    made: dict[Party, list[Finding]] = defaultdict(list)
    for finding in found:
        for party in dict.fromkeys(finding.parties) if finding.id in ids else ():
            made[party].append(finding)
    return made


def _better_line(
    event: Finding, found: Sequence[Finding], lines: Mapping[str, ByClient], on_parties: ByParty
) -> Finding | None:
    """The line that says more of the same. `lines`: those on the clients of an event. `on_parties`: those on its host
    or group."""
    if event.id in lines:
        on_clients = [lines[event.id][client] for client in _clients(event) if client in lines[event.id]]
        return min(on_clients, key=itemgetter(0))[1] if on_clients else None
    if event.id == "error_burst":
        name = event.party("error")
        return next((f for f in found if f.id in ("errors", "sasl_failed") and f.numbers["error"] == name), None)
    if event.id == "hosts_cut_off":  # packets of the full size only
        on_host = on_parties.get(Party("host", event.party("host") or ""), ())
        return next((f for f in on_host if f.id == "mtu_black_hole"), None)
    if event.id == "group_rebalanced":
        on_group = on_parties.get(Party("group", event.party("group") or ""), ())
        return next((f for f in on_group if f.id in _ON_MEMBERS and _rebalances(f, event)), None)
    return None


def _rebalances(finding: Finding, event: Finding) -> bool:
    """Whether a finding on members of a group is on the time of its rebalances."""
    begin, end = event.begin or 0, event.end or event.begin or 0
    is_in_time = end >= (finding.begin or 0) - _BEFORE_NS and (finding.end is None or begin <= finding.end + _AFTER_NS)
    return finding.party("group") == event.party("group") and is_in_time


def _cut_off(lossy: Finding, on_parties: ByParty) -> Finding | None:
    """The time in which nothing passed at all, if it cost most of what was lost, or nothing was lost at other times."""
    on_host = on_parties.get(Party("host", lossy.party("host") or ""), ())
    cut = [f for f in on_host if f.id == "hosts_cut_off"]
    if not cut or sum(f.time_lost_ns for f in cut) >= _MOST * lossy.time_lost_ns:
        return cut[0] if cut else None
    is_timed = lossy.begin is not None and lossy.end is not None
    return next((
        f for f in cut
        if is_timed and _is_in_time(lossy, f) and (lossy.begin or 0) >= (f.begin or 0) - _BEFORE_NS
        and (f.end is None or (lossy.end or 0) <= f.end + _AFTER_NS)
    ), None)  # fmt: skip


def _outage_of(finding: Finding, events: Sequence[Finding]) -> Finding | None:
    """An outage of the broker that a finding is on, in the time that it is on."""
    begin, broker = finding.begin, finding.party("broker")
    for event in events if broker is not None else ():
        if event.id in _OUTAGES and event.begin is not None and begin is not None and broker == event.party("broker"):
            is_in_time = begin >= event.begin - _BEFORE_NS and (
                event.end is None or (finding.end or begin) <= event.end + _AFTER_NS
            )
            if is_in_time or (finding.time_lost_ns and event.time_lost_ns >= _MOST * finding.time_lost_ns):
                return event
    return None


def _cause_of_lag(finding: Finding, found: Sequence[Finding], context: Context) -> Finding | None:
    """What keeps the client from reading, if it is on its host too where a host is named; or the group for most of the
    time since it falls behind."""
    last, since = context.last or 0, finding.begin or 0
    for held in found:
        if held.id == "held_rebalance" and held.party("group") == finding.party("group"):
            time = (last if held.end is None else held.end) - max(held.begin or 0, since)
            if time >= _MOST * (last - since):
                return held
    for cause in ("mtu_black_hole", "throttled"):
        for other in found:
            if other.id == cause and _clients(other) & _clients(finding):
                hosts = {party.name for party in other.parties if party.kind == "host"}
                if not hosts or finding.party("host") in hosts:
                    return other
    return None


def _cause_of_slow(
    finding: Finding, events: Sequence[Finding], advice: Sequence[Finding], found: Sequence[Finding]
) -> Finding | None:
    """Advice on the same clients, or events, that cost most of the time."""
    clients = {party.name for party in finding.parties if party.kind == "client"}
    if finding.id == "slow_network":
        for lossy in found:
            if lossy.id == "lossy_host" and next(iter(finding.parties), None) in lossy.parties:
                return lossy
    throttled = next((f for f in found if f.id == "throttled"), None)
    if throttled and clients <= {party.name for party in throttled.parties if party.kind == "client"}:
        return throttled if throttled.time_lost_ns > finding.time_lost_ns else None
    mine = [f for f in advice if f.party("client") in clients]
    if all(("client", finding.party("client")) not in f.parties for f in mine):
        mine = []  # it is on others than the client that lost most
    for causes in (mine, [f for f in events if f.id not in _NO_WAITS and _is_of_both(finding, f)]):
        cost = sum(f.time_lost_ns for f in causes)
        if causes and cost and cost >= _MOST * finding.time_lost_ns:
            return max(causes, key=lambda f: f.time_lost_ns)
    if finding.id == "slow_head_of_line":  # behind requests that waited for a follower, or a broker that was away
        longest = as_number(finding.numbers.get("total_max_ns"))
        for late in advice:
            waited = as_number(late.numbers.get("wait_max_ns"))
            names = {party.name for party in late.parties if party.kind == "client"}
            if late.id == "slow_follower" and clients & names and waited >= _MOST * longest:
                return late
        for event in events:
            waited = as_number(event.numbers.get("longest_wait_ns"))
            if ("client", finding.party("client")) in event.parties and waited >= _MOST * longest:
                return event
    return None


def _is_of_both(finding: Finding, event: Finding) -> bool:
    """Whether an event was in the time of a slow client. If it names who waited, it has to name the client that lost
    most; else the broker at which the time passed. It names no brokers that waited."""
    is_named = finding.id != "slow_between_brokers"
    names = {party.name for party in event.parties if party.kind == "client" and is_named}
    client, brokers = finding.party("client"), (finding.party("broker"), event.party("broker"))
    is_other = client not in names if names and client is not None else None not in brokers and brokers[0] != brokers[1]
    return not is_other and _is_in_time(finding, event)


def _is_in_time(finding: Finding, event: Finding) -> bool:
    """Whether a finding is on the time of an event, or shortly after it. One without a time is."""
    if finding.begin is None or event.begin is None:
        return True
    is_after = event.end is not None and finding.begin > event.end + _AFTER_NS
    return not is_after and (finding.end or finding.begin) >= event.begin - _BEFORE_NS


def _failed_login(finding: Finding, found: Sequence[Finding]) -> Finding | None:
    """Brokers delay the answer to a login that fails."""
    if finding.numbers.get("api") != "SaslAuthenticate":
        return None
    failed = [f for f in found if f.id == "sasl_failed"]
    if not _clients(finding) <= {client for f in failed for client in _clients(f)}:
        return None
    return next((f for f in failed if ("client", finding.party("client")) in f.parties), None)


def _cause_of_errors(finding: Finding, events: Sequence[Finding]) -> Finding | None:
    """An event whose line has the error code, if such events have most of the codes, or of which the code says so, and
    that began before."""
    name = str(finding.numbers["error"])
    followed = sum(int(as_number(event.numbers.get(f"{name}_codes"))) for event in events)
    is_most = followed >= _MOST * as_number(finding.numbers.get("codes"))
    topics = {party.name for party in finding.parties if party.kind == "topic"}
    for event in events:
        if event.begin is None or finding.begin is None or finding.begin < event.begin - _BEFORE_NS:
            continue
        if event.id == "group_rebalanced" and name == "UNKNOWN_MEMBER_ID" and event.numbers.get("timed_out"):
            clients = {party for party in finding.parties if party.kind == "client"}
            if clients <= set(event.parties) and finding.begin <= (event.end or event.begin) + _AFTER_NS:
                return event
        if event.severity != NOTE and event.id not in ("error_burst", "group_rebalanced"):
            if is_most and any(party.kind == "error" and party.name == name for party in event.parties):
                return event
        elif name in _CODES_OF.get(event.id, ()) and finding.begin <= (event.end or event.begin) + _AFTER_NS:
            changed = {party.name for party in event.parties if party.kind == "topic"}
            if not changed or (topics and topics <= changed):
                return event
    return None


def _lost_position(finding: Finding, advice: Sequence[Finding]) -> Finding | None:
    """Where the readers went after the error, if that is known of all its clients and topics."""
    if finding.numbers["error"] != "OFFSET_OUT_OF_RANGE":
        return None
    resets = [f for f in advice if f.id == "position_reset"]
    known = {party for f in resets for party in f.parties}
    hit = {party for party in finding.parties if party.kind in ("client", "topic")}
    return max(resets, key=lambda f: as_number(f.numbers["records"])) if hit and hit <= known else None


def _told_by_another(finding: Finding, found: Sequence[Finding]) -> Finding | None:
    """Another error code on the same topics that says why this one came."""
    topics = {party for party in finding.parties if party.kind == "topic"}
    for other in found:
        meaning = MEANINGS.get(str(other.numbers.get("error")))
        if meaning is None or finding.numbers["error"] not in meaning.follows or not topics:
            continue
        begins = (finding.begin or 0, (other.begin or 0) - _BEFORE_NS)
        if begins[0] >= begins[1] and topics <= set(other.parties):
            return other
    return None


def _unanswered_by_broker(counts: ReportCounts, context: Context) -> dict[str, int]:
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    numbers = counts.groups.value_rows()[:, list(tally.GROUP_VALUES).index("unanswered")]
    found: dict[str, int] = {}
    for g in np.flatnonzero(numbers).tolist():
        name = endpoint(context.address(int(columns["broker_ip"][g])), int(columns["broker_port"][g]))
        found[name] = found.get(name, 0) + int(numbers[g])
    return found


def _of_lost_connections(unanswered: Finding, advice: Sequence[Finding]) -> Finding | None:
    """The idle connections that the path dropped, or those over a limit, on which most of them were sent."""
    for cause in _ON_LOST_CONNECTIONS:
        lost = [f for f in advice if f.id == cause]
        count = sum(as_number(f.numbers["unanswered"]) for f in lost)
        if lost and count >= _MOST * as_number(unanswered.numbers["unanswered"]):
            return max(lost, key=lambda f: as_number(f.numbers["unanswered"]))
    return None


def _cause_of_unanswered(events: Sequence[Finding], lost_at: dict[str, int]) -> Finding | None:
    """An outage of the broker that has most of them."""
    outages = [f for f in events if f.party("broker") and f.id.startswith(("broker_", "hosts_"))]
    of = {f.party("broker"): f for f in outages}
    if not of or sum(n for name, n in lost_at.items() if name in of) < _MOST * sum(lost_at.values()):
        return None
    return max(outages, key=lambda f: (lost_at.get(str(f.party("broker")), 0), as_number(f.numbers.get("unanswered"))))
