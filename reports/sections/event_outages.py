"""Brokers that stop, hang or return, and hosts that do not reach a broker.

All begin with a silence: a broker answers nobody for `SILENCE_NS` or more. What happened meanwhile says which it is:

stop         it closed most of its connections (FIN or RST), or its host refused new ones (RST to a SYN), or it had
             announced that it stops (BrokerHeartbeat, ControlledShutdown)
hang         its connections stay, requests wait that it would answer at once, other brokers answer, and its kernel
             acknowledges: the process does not run (SIGSTOP, a long pause of garbage collection, a disk that blocks)
unreachable  the same, but packets to or from it are sent again: they do not arrive; or a firewall rejects connections:
             ICMP messages refuse them, which hosts do by RST, or RST while the broker's own requests to others go on
cut off      the same for one client's host, while the broker answers others: the path between two hosts is broken;
             or only that host's connections are refused; or a host acknowledges nothing that the broker sends
             (`event_stuck`)

A silence without these is no event: nobody asked. A silence that began before the capture is none either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array
from ..finding_words import counted
from ..findings import ERROR, NOTE, WARNING, Finding, Party, Rule
from ..model import Scalar
from ..units import duration
from .event_answers import SECOND
from .event_effects import AllEffects, Effects
from .event_leaders import leader_moves
from .event_stuck import CUT_OFF, Span, stuck_hosts
from .event_timeline import Gap, Seen
from .event_waits import BEFORE_NS, Costs, Waited, WaitingHosts
from .folds import AFTER_NS

_STOPPED = Rule("broker_stopped", "broker stopped", ERROR, "show")
_HUNG = Rule("broker_hung", "broker hung", ERROR, "show")
_UNREACHABLE = Rule("broker_unreachable", "not reached", ERROR, "show")
_RETURNED = Rule("broker_returned", "returned", NOTE, "show")
#: A silence of a broker. Brokers of healthy clusters answer each second: fetches come back after 500 ms, and clients
#: repeat what is not acknowledged within it.
SILENCE_NS = SECOND
#: Connections that a broker closes as it stops are closed in one go. Threads and slow clients may take this long.
_CLOSING_NS = 2 * SECOND
#: A broker that announces its end has this long to move its leaders away (5 minutes: several retries of
#: controlled.shutdown.max.retries and the controller's own time).
_ANNOUNCED_NS = 300 * SECOND
#: The controller lets a broker go as soon as its leaders moved: within seconds.
_MOVING_NS = 5 * SECOND
#: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH: of a broker that moved its leaders away.
_LEADS_NO_MORE = (6, 74)
#: What stops a process closes its listeners, or those of a host, within this.
_ONE_PROCESS_NS = 5 * SECOND
#: A share of connections that says what holds for all of them: most.
_MOST = 0.5
#: Connections that say more than one does: a single one may have been idle for too long, or sent a request that a
#: broker refuses by closing it.
_SEVERAL = 2
#: Answers to what a broker asked before its end come within this after it: replica.fetch.wait.max.ms is 500 ms.
_ASKED_BEFORE_NS = SECOND // 2
#: No broker that ended has started again and asks within this.
_STARTS_NS = 3 * SECOND
#: A hang is known to this part of its length: its last answer came shortly before a request that waited.
_EXACT = 0.02


class Outage(NamedTuple):
    """`kind`: stop, hang, unreachable. `gap`: without answers. `begin`: ns. `closed_at`: the first close, if any.
    `is_reset`: it closed all with RST, and none with FIN. `is_rejected`: all that were refused were so by ICMP.
    `is_alive`: it refused connections, and its own requests to others were answered meanwhile.
    `moved`: when its leaders began to move away before it closed connections, as they do only if it announced its end,
    to a controller that was not captured."""

    kind: str
    broker: int
    gap: Gap
    begin: int
    closed: int = 0
    closed_at: int | None = None
    refused: int = 0
    unanswered: int = 0
    announced: int | None = None
    packet: int = 0
    is_reset: bool = False
    is_rejected: bool = False
    is_alive: bool = False
    moved: int | None = None

    @property
    def is_controlled(self) -> bool:
        """Whether it was told to stop, and did so in order."""
        return self.announced is not None or self.moved is not None


def _return_of(seen: Seen, broker: int, gap: Gap, begin: int) -> tuple[int | None, int]:
    """When a broker works again, and the packet: it answers, or the controller no longer fences it."""
    node = seen.brokers.nodes[broker]
    if node is not None:
        mine = seen.heartbeats_of(node)
        after = mine[(mine["time"] > begin) & (mine["wants_shutdown"] == 0) & (mine["is_fenced"] == 0)]
        fenced = mine["time"][(mine["time"] > begin) & (mine["is_fenced"] == 1)]
        after = after[after["time"] > fenced.min()] if len(fenced) else after[:0]
        if len(after) and (gap.end is None or after["answered"][0] < gap.end):
            return int(after["answered"][0]), int(after["packet"][0])
    return gap.end, 0 if gap.end is None else _packet_of_answer(seen, broker, gap.end)


def outages(seen: Seen) -> list[Finding]:
    """Findings of stops, hangs, returns and cut-off hosts."""
    found: list[Finding] = []
    silent: list[Outage] = []
    answering = distinct_values(seen.answers["broker"]).tolist()  # a scan of ports makes many brokers that never answer
    for broker in answering:
        silent += _of_broker(seen, broker)
    ends = [_return_of(seen, o.broker, o.gap, o.begin)[0] if o.kind == "stop" else o.gap.end for o in silent]
    costs = Costs(seen, [(o.broker, o.begin, seen.end if end is None else end)
                         for o, end in zip(silent, ends, strict=True)])  # fmt: skip
    effects = AllEffects(seen)
    made: list[list[Finding]] = []
    for n, (o, end) in enumerate(zip(silent, ends, strict=True)):
        made.append([*_findings(seen, o, end, effects.of(o.broker, o.begin, end), costs.waited(n), costs.slow_ns(n))])
    for o, mine in zip(silent, made, strict=True):
        process = _listener_of(seen, o, silent)
        cause = None if process is None else made[process][0].key
        found += [one if cause is None else one._replace(cause=cause) for one in mine]
    for broker in answering:
        found += _starts(seen, broker)
    outages_of = defaultdict[int | None, list[Outage]](list)
    for outage in silent:
        outages_of[outage.broker].append(outage)
    found += _announcements(seen, outages_of)
    spans: list[Span] = [(o.broker, None, o.begin, o.gap.until(seen.end)) for o in silent]
    cut = list(_refused_hosts(seen, spans))
    cut += _cut_off(seen, outages_of, [span for span, _ in cut])
    spans += [span for span, _ in cut]
    return [*found, *(finding for _, finding in cut), *stuck_hosts(seen, spans)]


def _listener_of(seen: Seen, one: Outage, others: Sequence[Outage]) -> int | None:
    """The place of the stop of a broker with a node id, of which this one is another listener (of a controller)."""
    if one.kind != "stop" or one.closed_at is None or seen.brokers.nodes[one.broker] is not None:
        return None
    return next((
        n for n, other in enumerate(others)
        if other.kind == "stop" and other.closed_at is not None and seen.brokers.nodes[other.broker] is not None
        and seen.brokers.ends[other.broker][0] == seen.brokers.ends[one.broker][0]
        and abs(other.closed_at - one.closed_at) <= _ONE_PROCESS_NS
    ), None)  # fmt: skip


def _of_broker(seen: Seen, broker: int) -> Iterator[Outage]:
    own_links = seen.connections_of(broker=broker)
    since = seen.begin
    for gap in seen.gaps(seen.answers_of(broker), SILENCE_NS):
        until = gap.until(seen.end)
        near = (own_links["last"] >= gap.begin - _CLOSING_NS) & (own_links["last"] <= until)
        tries = (own_links["last"] > gap.begin) & (own_links["last"] < until)
        # A listener that never answered is none of this broker, whatever Metadata says (advertised.listeners).
        refused, rejected = (
            int((own_links[n] * own_links["has_answered"])[tries].sum()) for n in ("refused", "rejected")
        )
        first_refused = int(own_links["first_refused"][tries & (own_links["refused"] > 0)].min()) if refused else 0
        unanswered = int(own_links["unanswered"][tries].sum())
        closing = near & (own_links["broker_closed"] > 0) & (own_links["last_close"] >= gap.begin)
        closed = int(own_links["broker_closed"][closing].sum())
        at = int(own_links["first_close"][closing].min()) if closed else None
        is_reset = closed >= _SEVERAL and not own_links["broker_fins"][closing].any()
        announced = _announced(seen, broker, gap, since)
        moved = None if announced is not None or at is None else _moved_away(seen, broker, at, until, since)
        is_told = announced is not None or moved is not None
        is_rejected = bool(rejected) and rejected == refused and not closed
        is_alive = bool(refused) and not own_links["broker_fins"][closing].any() and _asks(seen, broker, first_refused)
        if announced is None and (is_rejected or is_alive):
            yield Outage("unreachable", broker, gap, first_refused, closed, refused=refused, unanswered=unanswered,
                         packet=_packet(seen, None, own_links["gone_packet"][tries]), is_rejected=is_rejected,
                         is_alive=is_alive)  # fmt: skip
            continue
        is_most = (
            closed >= _SEVERAL and at is not None and closed > _MOST * _open_before(own_links, at)
            and bool(refused or unanswered or is_told or _interrupted(seen, broker, at))
        )  # fmt: skip
        if is_most or (refused and (closed or announced is not None)) or (closed and announced is not None):
            first = announced if announced is not None else at if at is not None else gap.begin
            if announced is None and refused:
                first = min(first, first_refused)
            first = first if moved is None else min(first, moved)
            yield Outage("stop", broker, gap, first, closed, at, refused, unanswered, announced,
                         _packet(seen, announced, own_links["gone_packet"][closing | tries]),
                         announced is None and is_reset, moved=moved)  # fmt: skip
            since = until
        elif refused:
            yield Outage("stop", broker, gap, gap.begin, 0, None, refused, unanswered, None,
                         _packet(seen, None, own_links["gone_packet"][tries]))  # fmt: skip
        else:
            kind = _hang_kind(seen, broker, gap, unanswered)
            if kind:
                yield Outage(kind, broker, gap, gap.begin, closed, None, 0, unanswered, None,
                             _first_wait(seen, broker, gap))  # fmt: skip


def _asks(seen: Seen, broker: int, since: int) -> bool:
    """Whether requests of a broker's own clients, such as replica fetchers, go on after it refused connections. Several
    brokers may have one address, and the names of these clients have the node id."""
    node, own = seen.brokers.nodes[broker], seen.rows_of("answers", client_ip=seen.brokers.ends[broker][0])
    answers = seen.of(seen.answers, own)
    rows = np.flatnonzero(
        (answers["broker"] != broker) & (answers["last"] > since + _ASKED_BEFORE_NS)
        & (answers["first"] < since + _STARTS_NS)
    )  # fmt: skip
    names = {seen.context.text(client) or "" for client in distinct_values(answers["client_id"][rows]).tolist()}
    return any(name.startswith(f"broker-{node}-") or name == f"raft-client-{node}" for name in names)


def _interrupted(seen: Seen, broker: int, at: int) -> bool:
    """Whether a broker closed connections with requests that waited: it does not do so to connections that are idle."""
    waits = seen.waits_of(broker)
    closed = ~waits["is_answered"] & (abs(waits["end"] - at) <= _CLOSING_NS)
    return len(distinct_values(waits["connection"][closed])) >= _SEVERAL


def _announced(seen: Seen, broker: int, gap: Gap, since: int) -> int | None:
    """When a broker announced that it stops, before or within a silence. `since`: its last return."""
    node = seen.brokers.nodes[broker]
    if node is None:
        return None
    beats = seen.heartbeats_of(node)
    times = beats["time"][beats["wants_shutdown"] == 1]
    times = times[(times >= max(gap.begin - _ANNOUNCED_NS, since)) & (times <= gap.until(seen.end))]
    if not len(times):
        return None
    return int(times[0])


def _moved_away(seen: Seen, broker: int, closed_at: int, until: int, since: int) -> int | None:
    """When the leaders of a broker began to move away, if they did so shortly before it closed connections: all that
    are known, or it refused what only leaders answer."""
    node, begin = seen.brokers.nodes[broker], max(closed_at - _MOVING_NS, since)
    times = [move.time for move in seen.given.once(leader_moves) if node is not None and move.old == node]
    before = [time for time in times if begin <= time < closed_at]
    if any(closed_at <= time <= until + AFTER_NS for time in times):
        before.clear()
    errors = seen.errors
    refused = (errors["broker"] == broker) & is_among(errors["error_code"], _LEADS_NO_MORE)
    refused &= (errors["first"] >= begin) & (errors["last"] < closed_at)
    if errors["codes"][refused].sum() >= _SEVERAL:
        before += errors["first"][refused].tolist()
    return min(before, default=None)


def _open_before(links: dict[str, Array], at: int) -> int:
    """How many connections of a broker are open before a time."""
    before = links["last"] < at
    begun = int((links["opened"] + links["seen"])[links["first"] < at].sum())
    return max(begun - int((links["client_closed"] + links["broker_closed"])[before].sum()), 0)


def _packet(seen: Seen, announced: int | None, gone: Array) -> int:
    """The packet that shows a stop first: its announcement, or the first FIN or RST. `gone`: of connections."""
    if announced is not None:
        return int(seen.heartbeats["packet"][seen.heartbeats["time"] == announced][0])
    return int(gone.min())


def _overlapping(seen: Seen, gap: Gap, waits: dict[str, Array], behind: Array | int = 0) -> Array:
    """Which waits lie for SILENCE_NS or more, beyond their own wait for data, in a silence. `behind`: the waits behind
    earlier requests, where these do not count."""
    begin = np.maximum(waits["begin"] + waits["own"] + behind, gap.begin)
    mine: Array = waits["begin"] + waits["own"] >= gap.begin - BEFORE_NS
    mine &= np.minimum(waits["end"], gap.until(seen.end)) - begin >= SILENCE_NS
    return mine


def _broken(seen: Seen, gap: Gap) -> tuple[int, int]:
    """The part of a silence in which a path is surely broken, if packets are sent again over it. TCP doubles the time
    to the next try: the path may be back after half of the silence, and others that share it are answered earlier."""
    return gap.begin + SILENCE_NS // 2, (gap.begin + gap.until(seen.end)) // 2


def _hang_kind(seen: Seen, broker: int, gap: Gap, unanswered: int) -> str:
    """hang or unreachable, "" if requests did not wait, or others were silent too."""
    waits = seen.waits_of(broker)
    mine = waits["is_prompt"] & _overlapping(seen, gap, waits, waits["behind"])
    if not mine.any():
        return ""
    has_others = len(seen.answers_of(broker)) < len(seen.answers["broker"])
    until = gap.until(seen.end)
    connections = distinct_values(waits["connection"][mine])
    goes_on = has_others and seen.others_answered(seen.answers_of(broker), gap.begin + SILENCE_NS // 2, until)
    if not goes_on and len(connections) < _SEVERAL:
        return ""  # the only broker, or all: one slow request explains it as well
    if not goes_on and gap.end is None:
        # The capture may have ended, unless the kernel of the broker's host acknowledges all that clients send.
        waiting = distinct_values(waits["connection"][_overlapping(seen, gap, waits)])
        return "hang" if seen.acknowledged_after(waiting, gap.begin + SILENCE_NS) >= _SEVERAL else ""
    resent = distinct_values(waits["connection"][mine & waits["is_resent"]])
    if has_others and len(resent) and not seen.others_answered(seen.answers_of(broker), *_broken(seen, gap)):
        return ""  # a path that all brokers share is broken: `_cut_off`
    if len(resent) <= _MOST * len(connections):
        return "hang"
    return "unreachable" if len(distinct_values(waits["client_ip"][mine])) >= _SEVERAL else ""  # one host: `_cut_off`


def _first_wait(seen: Seen, broker: int, gap: Gap) -> int:
    waits = seen.waits_of(broker)
    mine = np.flatnonzero(_overlapping(seen, gap, waits))
    return int(waits["packet"][mine[np.argmin(waits["begin"][mine])]]) if len(mine) else 0


def _findings(
    seen: Seen, outage: Outage, end: int | None, effects: Effects, waits: Waited, slow_ns: int
) -> Iterator[Finding]:
    """`end`: when the broker worked again. `effects`, `waits`, `slow_ns`: what counts for this outage."""
    if outage.kind == "stop":
        main = _stop(seen, outage, end, effects, waits)
    else:
        main = _hang(seen, outage, effects, waits, slow_ns)
    yield main
    if main.end is not None:
        label = seen.brokers.label(outage.broker)
        packet = _return_of(seen, outage.broker, outage.gap, outage.begin)[1]
        after = main.end - outage.begin
        yield _RETURNED._replace(command="report").found(
            f"{label} works again, after {duration(after)}", seen.brokers.party(outage.broker), begin=main.end,
            packets=[packet], after_ns=after,
        )  # fmt: skip


def _packet_of_answer(seen: Seen, broker: int, at: int) -> int:
    mine = seen.of(seen.answers, seen.answers_of(broker))
    packets = mine["packet"][mine["first"] == at]
    return int(packets.min()) if len(packets) else 0


def _stop(seen: Seen, outage: Outage, end: int | None, effects: Effects, waits: Waited) -> Finding:
    broker, gap = outage.broker, outage.gap
    label = seen.brokers.label(broker)
    if outage.moved is not None:
        parts = [f"{label} stopped, and leaders had moved away before"]
    else:
        parts = [f"{label} {'began to shut down' if outage.announced is not None else 'stopped'}"]
    numbers: dict[str, Scalar] = {"announced": outage.announced is not None}
    if outage.closed and outage.closed_at is not None:
        late = outage.closed_at - outage.begin
        parts.append(
            f"closed {counted(outage.closed, 'connection')}" + (f" {duration(late)} later" if late > 0 else "")
        )
        numbers |= {"closed": outage.closed, "closed_after_ns": late}
    if outage.is_reset:
        parts.append(
            "all with RST and none with FIN, as a host does that does not know them: restarted, or another one that "
            "has its address; or as a firewall rejects them"
        )
    numbers |= {"refused": outage.refused, "unanswered": outage.unanswered, "last_answer": gap.begin}
    severity = WARNING if outage.is_controlled else ERROR
    return _made(seen, _STOPPED, severity, outage, parts, numbers, effects, end, waits)


def _used(waits: dict[str, Array]) -> int:
    """The connections of some waits. Requests behind others on these are no waits of their own (`event_counts`)."""
    return len(distinct_values(waits["connection"]))


def _hang(seen: Seen, outage: Outage, effects: Effects, waits_for_it: Waited, slow_ns: int) -> Finding:
    broker, gap, waits = outage.broker, outage.gap, seen.waits_of(outage.broker)
    waits = seen.of(waits, _overlapping(seen, gap, waits))
    lost = int((np.minimum(waits["end"], gap.until(seen.end)) - np.maximum(waits["begin"], gap.begin)).sum())
    people = len(set(zip(waits["client_ip"].tolist(), waits["client_id"].tolist(), strict=True)))
    is_hang = outage.kind == "hang"
    length = gap.until(seen.end) - gap.begin
    label = seen.brokers.label(broker)
    why = "its kernel acknowledged what came" if is_hang else "packets to it were sent again and not acknowledged"
    if outage.is_rejected:
        why = "a firewall or a router rejects connections to it: ICMP messages refuse them, which the host does by RST"
    elif outage.is_alive:
        why = "its own requests to other brokers went on: a firewall rejects connections to it, or it does not listen"
    least = _least(seen, outage, waits) if people else length
    how_long = duration(length) if length - least <= _EXACT * length else f"{duration(least)} to {duration(length)}"
    parts = [
        f"{label} {'hung' if is_hang else 'was not reached'} for {how_long}"
        + ("" if gap.end is not None else ", and has not answered since"),
        *(
            [f"requests of {counted(people, 'client')} waited on {counted(_used(waits), 'connection')}"]
            if people
            else []
        ),
        why,
    ]
    numbers: dict[str, Scalar] = {
        "silence_ns": length, "least_ns": least, "waits": len(waits["begin"]), "connections": _used(waits),
        "clients": people,
        "refused": outage.refused, "unanswered": outage.unanswered,
        "is_acknowledged": is_hang,
    }  # fmt: skip
    waits_for_it = waits_for_it._replace(lost_ns=max(lost, slow_ns, waits_for_it.lost_ns))
    rule = _HUNG if is_hang else _UNREACHABLE
    return _made(seen, rule, ERROR, outage, parts, numbers, effects, gap.end, waits_for_it)


def _least(seen: Seen, outage: Outage, waits: dict[str, Array]) -> int:
    """How long a broker hung at least, ns: since the first of some waits that it would have answered at once."""
    gap = outage.gap
    due = np.maximum(waits["begin"] + waits["own"], gap.begin)[waits["is_prompt"]]
    return gap.until(seen.end) - int(due.min(initial=gap.until(seen.end)))


def _made(
    seen: Seen, rule: Rule, severity: str, outage: Outage, parts: list[str], numbers: dict[str, Scalar],
    effects: Effects, end: int | None, waits: Waited,
) -> Finding:  # fmt: skip
    if outage.refused:
        parts.append(f"{counted(outage.refused, 'connection')} refused")
    if outage.unanswered:
        parts.append(f"{counted(outage.unanswered, 'connection')} not answered")
    parts += effects.words()
    if outage.kind == "stop":
        parts += [] if end is None else [f"works again after {duration(end - outage.begin)}"]
    return rule.found(
        "; ".join(parts), seen.brokers.party(outage.broker), *(Party("client", name) for name, _ in waits.longest),
        *(Party("error", code) for code, _ in effects.errors), begin=outage.begin, end=end,
        packets=[outage.packet or 0], lost=waits.lost_ns, see=seen.shown(outage.broker, outage.begin, end),
        severity=severity, **numbers, **effects.numbers(),
        longest_wait_ns=max((ns for _, ns in waits.longest), default=0),
    )  # fmt: skip


def _starts(seen: Seen, broker: int) -> Iterator[Finding]:
    """A broker that refused connections, and answers later, without an earlier answer in the capture."""
    mine = seen.answers_of(broker)
    first = int(seen.answers["first"][mine].min())
    links = seen.connections_of(broker=broker)
    refused = int((links["refused"] * links["has_answered"])[links["last"] < first].sum())
    if refused:
        label = seen.brokers.label(broker)
        yield _RETURNED.found(
            f"{label} answers; it had refused {counted(refused, 'connection')} before", seen.brokers.party(broker),
            begin=first, packets=[_packet_of_answer(seen, broker, first)], see=seen.shown(broker, first, None),
            refused=refused,
        )  # fmt: skip


def _announcements(seen: Seen, outages_of: dict[int | None, list[Outage]]) -> Iterator[Finding]:
    """Announced stops whose end the capture does not show. `outages_of`: by broker."""
    for (node,), rows in seen.groups("heartbeats", "node").items():
        beats, broker = seen.heartbeats[rows], seen.brokers.of_node(node)
        times = beats[beats["wants_shutdown"] == 1]
        stops = [outage for outage in outages_of[broker] if outage.kind == "stop"]
        for at, packet in zip(times["time"].tolist(), times["packet"].tolist(), strict=True):
            if any(stop.begin - _CLOSING_NS <= at <= stop.gap.until(seen.end) for stop in stops):
                continue
            yield _STOPPED.found(
                f"{seen.brokers.node_label(node)} began to shut down", seen.brokers.node_party(node), begin=at,
                packets=[packet], see=seen.shown(broker, at, None), severity=WARNING, announced=True,
            )  # fmt: skip
            break


def _refused_hosts(seen: Seen, known: Sequence[Span]) -> Iterator[tuple[Span, Finding]]:
    """Hosts whose connections are refused by a broker that had answered them, and answers others. `known`: outages."""
    links = seen.connections
    chosen = np.flatnonzero((links["refused"] > 0) & links["has_answered"])
    outages_of = defaultdict(list)
    for broker, _, begin, until in known:
        outages_of[broker].append((begin, until))
    for (client_ip, broker), mine in groups_of(links["client_ip"][chosen], links["broker"][chosen]):
        tries, answers = chosen[mine], seen.rows_of("answers", client_ip=client_ip, broker=broker)
        for begin, until in outages_of[broker]:
            tries = tries[(links["last"][tries] < begin - _CLOSING_NS) | (links["first"][tries] > until)]
        for gap in seen.gaps(answers, SILENCE_NS):
            until = gap.until(seen.end)
            during = tries[(links["first_refused"][tries] > gap.begin) & (links["first_refused"][tries] < until)]
            refused = int(links["refused"][during].sum())
            begin = int(links["first_refused"][during].min()) if refused else 0
            # Answers that it owed others come within a second also where it refuses all.
            if refused >= _SEVERAL and seen.others_answered(answers, begin + SILENCE_NS, until, broker):
                yield (broker, client_ip, gap.begin, until), _refusal(seen, client_ip, broker, gap, during, begin)


def _refusal(seen: Seen, client_ip: int, broker: int, gap: Gap, tries: Array, begin: int) -> Finding:
    """`tries`: the rows of connections that were refused."""
    links, until = seen.of(seen.connections, tries), gap.until(seen.end)
    refused, rejected = int(links["refused"].sum()), int(links["rejected"].sum())
    how = "ICMP messages" if rejected == refused else "RST" if not rejected else "RST and ICMP messages"
    host, label = seen.context.address(client_ip) or "?", seen.brokers.label(broker)
    text = (
        f"{label} was closed to {host} for {duration(until - begin)}"
        + ("" if gap.end is not None else ", and has not answered since")
        + f"; {counted(refused, 'connection')} refused by {how}; the broker answered other hosts meanwhile: a firewall "
        "rejects this one"
    )
    return CUT_OFF.found(
        text, Party("host", host), seen.brokers.party(broker), begin=begin, end=gap.end, lost=until - begin,
        packets=[int(links["gone_packet"].min())], see=seen.shown(broker, begin, gap.end, client_ip),
        silence_ns=until - begin, waits=0, connections=refused, unanswered=0, last_answer=gap.begin,
    )  # fmt: skip


def _cut_off(
    seen: Seen, outages_of: dict[int | None, list[Outage]], known: Sequence[Span]
) -> Iterator[tuple[Span, Finding]]:
    """Hosts of clients whose packets to a broker, or from it, do not arrive, while others' do."""
    hosts, known_of = WaitingHosts(seen, SILENCE_NS), defaultdict(list)
    for broker, client_ip, begin, until in known:
        known_of[broker, client_ip].append((begin, until))
    unexplained = _unexplained(seen, outages_of)
    pairs = groups_of(seen.waits["client_ip"][unexplained], seen.waits["broker"][unexplained])
    for (client_ip, broker), _ in pairs:
        waits = seen.of(seen.waits, seen.rows_of("waits", client_ip=client_ip, broker=broker))
        chosen, mine = waits["is_resent"], seen.rows_of("answers", client_ip=client_ip, broker=broker)
        gaps = [gap for gap in seen.gaps(mine, SILENCE_NS) if (chosen & _overlapping(seen, gap, waits)).any()]
        for gap in _joined(gaps):
            until = gap.until(seen.end)
            if any(o.begin < until and o.gap.until(seen.end) > gap.begin for o in outages_of[broker]):
                continue
            if any(begin < until and end > gap.begin for begin, end in known_of[broker, client_ip]):
                continue
            goes_on = seen.others_answered(mine, *_broken(seen, gap), broker)
            if goes_on or not hosts.others_wait(client_ip, broker, gap):
                waiting = (waits["begin"] < until) & (waits["end"] > gap.begin)
                found = _cut(seen, client_ip, broker, gap, seen.of(waits, waiting), goes_on)
                yield (broker, client_ip, gap.begin, until), found


def _unexplained(seen: Seen, outages_of: dict[int | None, list[Outage]]) -> Array:
    """The waits with packets that were sent again which may lie for SILENCE_NS or more in a silence that overlaps no
    outage of their broker. When a broker dies, thousands of hosts wait, and none of them is left."""
    waits = seen.waits
    begin, end = waits["begin"] + waits["own"], waits["end"]
    rows = np.flatnonzero(waits["is_resent"] & (waits["broker"] >= 0) & (end - begin >= SILENCE_NS))
    explained = np.zeros(len(rows), bool)
    for (broker,), mine in groups_of(waits["broker"][rows]):
        outages = sorted(outages_of[broker], key=lambda outage: outage.begin)
        if outages:
            begins = np.array([outage.begin for outage in outages])
            # By then the last of all outages that began before was over.
            over = np.append(0, np.maximum.accumulate([outage.gap.until(seen.end) for outage in outages]))
            # The part in a silence lasts SILENCE_NS: it ends after `begin` and that, and begins before `end` less that.
            before = np.searchsorted(begins, begin[rows[mine]] + SILENCE_NS)
            explained[mine] = over[before] > end[rows[mine]] - SILENCE_NS
    found: Array = rows[~explained]
    return found


def _joined(gaps: list[Gap]) -> list[Gap]:
    """Silences with less than SILENCE_NS between them as one: if packets pass in one direction only, answers come that
    nobody gets."""
    found: list[Gap] = []
    for gap in gaps:
        last = found[-1].end if found else None
        if last is not None and gap.begin - last < SILENCE_NS:
            found[-1] = Gap(found[-1].begin, gap.end)
        else:
            found.append(gap)
    return found


def _cut(
    seen: Seen, client_ip: int, broker: int, gap: Gap, waits: dict[str, Array], goes_on: bool
) -> Finding:  # fmt: skip
    """`waits`: those of the host for the broker in this time."""
    resent, links = seen.of(waits, waits["is_resent"]), seen.connections_of(client_ip=client_ip, broker=broker)
    begin = max(gap.begin, int(resent["begin"].min()))
    until = gap.until(seen.end)
    tries = (links["last"] > begin) & (links["last"] < until)
    unanswered = int(links["unanswered"][tries].sum())
    lost = int((np.minimum(waits["end"], until) - np.maximum(waits["begin"], begin)).sum())
    host = seen.context.address(client_ip) or "?"
    parts = [
        f"no answer of {seen.brokers.label(broker)} reached {host} for {duration(until - begin)}"
        + ("" if gap.end is not None else ", and has not answered since"),
        f"requests waited on {counted(_used(waits), 'connection')}, and their packets were sent again",
        *(["the broker answered other hosts meanwhile"] if goes_on else []),
    ]
    if unanswered:
        parts.append(f"{counted(unanswered, 'connection')} not answered")
    return CUT_OFF.found(
        "; ".join(parts), Party("host", host), seen.brokers.party(broker), begin=begin, end=gap.end, lost=lost,
        packets=[int(resent["packet"][np.argmin(resent["begin"])])], see=seen.shown(broker, begin, gap.end, client_ip),
        silence_ns=until - begin, waits=len(waits["begin"]), connections=_used(waits), unanswered=unanswered,
        last_answer=gap.begin,
    )  # fmt: skip
