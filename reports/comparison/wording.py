"""Findings in words: titles, lines for changes, where the time went, how sure that is, commands that show more."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kafkatap.dissector.dtypes import FETCHES, WAITS
from kafkatap.dissector.kafka.error_codes import error_name

from .. import units
from ..commands import command, is_showable
from ..counting.rollup import api_label
from ..finding_words import listed
from ..findings import Finding
from ..tls_software import probable_software
from .judging import SIZES, TIMES, Change
from .leaves import Key, Side
from .measures import MEANS, RANKS, RATES, SHARES, TAIL
from .names import OTHERS
from .presence import TLS_SOFTWARE, Presence
from .stories import DIFFERENT, PARTS, Story, valuation

ARROW = "→"
WAITS_FOR = {
    "HOL": "head-of-line wait", "throttle": "throttle wait", "loss": "time of loss",
    "receiver": "time with a full receive window", "sender": "time of idle senders", "path": "transfer time",
}  # fmt: skip
#: Parts that added less than this share of a change are not named.
_MUCH = 0.05
#: The verdict on a finding by the measure, or the part of the time, with most of the change.
WHERE = {
    "broker": "broker", "HOL": "head-of-line", "throttle": "throttle", "throttled": "throttle", "loss": "network",
    "path": "network", "receiver": "receiver", "sender": "sender",
}  # fmt: skip


def scope(key: Key) -> str:
    """What a finding is on: `client metrics, Produce`."""
    parts = []
    if key.client is not None:
        parts.append(f"client {key.client}")
    if key.api is not None:
        parts.append(api_label(key.api))
    if key.broker is not None:
        parts.append(f"broker {key.broker}")
    if key.topic is not None:
        parts.append(f"topic {key.topic}")
    return ", ".join(parts)


def scope_of(change: Change) -> str:
    """The same, with a client without an id, and everything."""
    kind, key = change.cell.kind, change.cell.key
    if "client" in kind and key.client is None:
        named = scope(key)
        return f"clients without an id{', ' + named if named else ''}"
    if "clients" in kind:
        named = scope(key)
        return f"these clients{', ' + named if named else ''}"
    if not kind:
        return "all clients"
    named = scope(key)
    return f"{named}, all clients" if kind == ("api",) else named


def times(ratio: float) -> str:
    """A ratio: `4.2 times`, `25 %`."""
    return f"{ratio:.3g} times" if ratio >= 1.995 else f"{100 * (ratio - 1):.0f} %"


def _more(change: Change, more: str, fewer: str) -> str:
    """`4.2 times as many`, `25 % fewer`."""
    ratio = change.ratio
    if ratio in (0, math.inf):
        return more if change.direction > 0 else fewer
    if ratio >= 1:
        return f"{ratio:.3g} times {more}" if ratio >= 1.995 else f"{100 * (ratio - 1):.0f} % {more}"
    return f"{100 * (1 - ratio):.0f} % {fewer}"


def many_clients(clients: Sequence[str]) -> str:
    """`26 clients (a, b, c and 23 more)`."""
    return f"{len(clients):,} clients ({listed(clients)})"


def title(story: Story) -> str:
    """`client metrics, Produce: throttled by a quota`."""
    if story.event is not None:
        return story.event.text
    if story.clients:
        first = story.changes[0]
        named = scope(first.cell.key)
        return f"{many_clients(story.clients)}{', ' + named if named else ''}: {_title(first)}"
    if story.presence is not None:
        return presence_title(story.presence)
    first = story.changes[0]
    judged = next((c for c in story.changes if valuation(c) == story.kind), first)
    if first is judged or valuation(first) != DIFFERENT or first.cell.key.api in FETCHES:
        on_topic = story.topic is not None and judged.measure.name == "total"
        return f"{scope_of(judged)}: {_title(judged)}" + (f", on topic {story.topic}" if on_topic else "")
    return f"{scope_of(first)}: {_title(first)}, and {_title(judged)}"  # a cause and what came of it


def _title(change: Change) -> str:
    name, up = change.measure.name, change.direction > 0
    api = change.cell.key.api
    if name in ("throttle", "throttled"):
        if up:
            return "throttled by a quota" if change.a == 0 else "throttled more"
        return "no longer throttled" if change.b == 0 else "throttled less"
    if name == "unanswered":
        return _more(change, "more requests without a response", "fewer requests without a response")
    if name.startswith("error"):
        code = error_name(int(name.split()[1]))
        if change.a == 0:
            return f"{code} is new"
        return f"{code} is gone" if change.b == 0 else _more(change, f"more {code}", f"fewer {code}")
    if name in SIZES:
        what = "responses" if api in FETCHES else "batches" if name == "records" else "requests"
        return f"{what} are {_more(change, 'larger', 'smaller').replace('times larger', 'times as large')}"
    if name in TIMES:
        if api in WAITS:
            return "waits longer for data" if up else "waits less for data"
        text = ("the slowest requests are " if change.measure.test == TAIL else "") + ("slower" if up else "faster")
        return f"{text} at the broker" if name == "broker" else text
    if name in WAITS_FOR:
        return f"{'more' if up else 'less'} {WAITS_FOR[name]}"
    if name == "rate":
        return _more(change, "as many requests" if change.ratio >= 1.995 else "more requests", "fewer requests")
    if name == "refused":
        return "more refused connections" if up else "fewer refused connections"
    if name == "retransmitted":
        return "more retransmissions" if up else "fewer retransmissions"
    if name == "rtt":
        return "longer round trips" if up else "shorter round trips"
    return name


def presence_title(one: Presence) -> str:
    """`broker 10.0.0.3:9092 no longer answers`."""
    named = what_of(one)
    if one.what == "error code":
        return f"{scope(one.key) or 'all clients'}: {named} {'is new' if one.appeared else 'is gone'}"
    if one.what == "broker":
        if one.appeared:
            return f"{named} is new"
        return f"{named} {'no longer answers' if one.asked or one.refused else 'is no longer used'}"
    return f"{named} {'appeared' if one.appeared else 'disappeared'}"


def what_of(one: Presence) -> str:
    """`client billing`, `Produce version 12 of client billing`."""
    key = one.key
    if one.what == "version":
        client = "clients without an id" if key.client is None else f"client {key.client}"
        return f"{api_label(key.api or 0)} version {key.version} of {client}"
    if one.what == "error code":
        return error_name(key.code or 0)
    if one.what == TLS_SOFTWARE:
        probable = probable_software(key.ja4 or "")
        return f"{one.what}: {'unknown' if probable is None else probable.in_words} (JA4 {key.ja4})"
    if one.what == "API":
        return api_label(key.api or 0)
    value = getattr(key, one.what)
    return f"{one.what} {value if value is not None else '(none)'}"


def label(change: Change) -> str:
    """What a change is of: `total time, median`."""
    name, test = change.measure.name, change.measure.test
    api = change.cell.key.api
    if name in TIMES:
        return f"{name} time, {'99th percentile' if test == TAIL else 'median'}"
    if name in WAITS_FOR:
        return f"{WAITS_FOR[name]}, mean"
    if name == "size":
        return "bytes of a response" if api in FETCHES else "bytes of a request"
    if name == "records":
        return "records of a response" if api in FETCHES else "records of a batch"
    if name.startswith("error"):
        return f"responses with {error_name(int(name.split()[1]))}"
    return {
        "throttled": "throttled responses", "unanswered": "requests without a response", "rate": "requests",
        "refused": "refused connections", "opened": "opened connections", "retransmitted": "retransmitted packets",
        "rtt": "round trip, median",
    }[name]  # fmt: skip


def number(change: Change, value: float) -> str:
    """A value of a change."""
    name, test = change.measure.name, change.measure.test
    if not math.isfinite(value):
        return "-"
    if test in (SHARES,):
        return units.share(value)
    if test == RATES:
        return f"{value:.3g}/s"
    if name == "size":
        return units.size(round(value))
    if name == "records":
        return f"{value:.3g}"
    assert test in (RANKS, TAIL, MEANS)
    return units.duration(round(value))


def line(change: Change) -> str:
    """`2.30 ms → 850 ms (370 times)`."""
    ratio = change.ratio
    shown = "" if ratio in (0, math.inf) else f" ({_times(ratio)})"
    return f"{number(change, change.a)} {ARROW} {number(change, change.b)}{shown}"


def _times(ratio: float) -> str:
    if ratio >= 1.995:
        return f"{ratio:.3g} times" if ratio < 1000 else f"{ratio:,.0f} times"
    return f"{100 * (ratio - 1):+.0f} %"


def verdict(story: Story) -> tuple[str | None, str | None]:
    """Where the time went, and a sentence."""
    if story.event is not None:
        return None, None
    timed = [c for c in story.changes if c.measure.name in (*TIMES, *WAITS_FOR, "throttled")]
    if not timed:
        return None, None
    whole = [c for c in timed if c.measure.name in ("total", "throttled", "throttle")]
    if not story.times:
        return WHERE.get(timed[0].measure.name), None
    (ta, tb), *rest = story.times
    added = tb - ta
    if not whole or abs(added) < 1_000 or (added > 0) != (whole[0].direction > 0):
        return WHERE.get(timed[0].measure.name), None
    parts = sorted(((b - a) / added, name, b - a) for (a, b), name in zip(rest, PARTS, strict=True))[::-1]
    listed = ", ".join(
        f"{name} {'+' if part > 0 else ''}{units.duration(round(part))}"
        for share, name, part in parts
        if abs(share) >= _MUCH
    )
    how = "added to" if added > 0 else "saved of"
    # Behind throttled requests most of the time is head-of-line wait: the cause is the quota.
    is_throttled = whole[0].direction > 0 and whole[0].measure.name in ("throttle", "throttled")
    return "throttle" if is_throttled else WHERE.get(
        parts[0][1]
    ), f"{units.duration(round(abs(added)))} {how} a request on average: {listed}"


def sureness(q: float) -> str:
    """How sure a finding is, in words. An event, which is no matter of chance, has q = 0."""
    return "almost certain" if q <= 1e-6 else "very sure" if q <= 1e-3 else "sure"


def evidence(story: Story, lengths: tuple[int, int]) -> str:
    """How sure a finding is, with its numbers. `lengths`: of the blocks of both sides, ns."""
    if story.event is not None:
        packets = story.event.packets
        first = f" from packet {packets[0]:,} on" if packets else ""
        if story.spans is not None:
            before, after = map(units.duration, story.spans)
            return f"{sureness(story.q)}: packets show it{first}; it spans both sides: {before} before, {after} after"
        return f"{sureness(story.q)}: packets show it{first}, and no such event is on the other side"
    if story.presence is not None:
        one = story.presence
        seen, not_seen = ("after", "before") if one.appeared else ("before", "after")
        blocks = f"in {one.blocks} of {one.of} blocks of time {seen}, and in 0 of {one.others} {not_seen}"
        if one.what == "broker":
            return f"{sureness(one.q)} (p {one.p:.1g}): it answered {blocks}{_tried(one, not_seen)}"
        many = "1 response" if one.exchanges == 1 else f"{one.exchanges:,} responses"
        return f"{sureness(one.q)} (p {one.p:.1g}): {many} with it, {blocks}"
    change = min(story.changes, key=lambda c: c.q)
    d = change.difference
    length = units.step(lengths[0]) if lengths[0] == lengths[1] else " and ".join(units.step(n) for n in lengths)
    name = change.measure.name
    what = "values" if change.measure.test != RATES else "connections" if name in ("refused", "opened") else "requests"
    counts = f"{change.count_a:,.0f} and {change.count_b:,.0f} {what}"
    superior = change.superiority
    rank = "" if superior is None else f"; {_compared(change)} in {100 * superior:.0f} % of pairs"
    in_blocks = "" if not change.measure.is_timed else f" in {d.blocks_a} and {d.blocks_b} blocks of {length}"
    return f"{sureness(story.q)} (p {max(d.p, 1e-300):.1g}): {counts}{in_blocks}{rank}"


def _compared(change: Change) -> str:
    """`a request after is slower than one before`."""
    name, is_fetch = change.measure.name, change.cell.key.api in FETCHES
    if name == "size":
        return f"a {'response' if is_fetch else 'request'} after is larger than one before"
    if name == "records":
        return f"a {'response' if is_fetch else 'batch'} after has more records than one before"
    if name == "rtt":
        return "a round trip after is longer than one before"
    return "a request after is slower than one before"


def _tried(one: Presence, when: str) -> str:
    """What clients sent a broker that does not answer."""
    if not one.asked and not one.refused:
        return f"; no client tried it {when}"
    many = "1 connection" if one.refused == 1 else f"{one.refused:,} connections"
    return f"; {when} it got {one.asked:,} requests, and {many} to it failed"


def more(story: Story, side: Side, selected: str | None) -> str:
    """The command that shows more of a side."""
    if story.event is not None:
        return _more_of_event(story.event, side, selected)
    key = story.changes[0].cell.key if story.presence is None else story.presence.key
    options = (
        ("sections", _sections(story)),
        ("client", key.client if key.client not in (None, OTHERS) and is_showable(key.client) else None),
        ("api", None if key.api is None else api_label(key.api)),
        ("broker", key.broker),
    )
    return command(side.context, selected, options)


def _more_of_event(event: Finding, side: Side, selected: str | None) -> str:
    """The command of an event on its side; the events of the other one."""
    if event in side.events:
        return command(side.context, None, event.options, event.command)
    sections = dict(event.options).get("sections", "events")
    return command(side.context, selected, (("sections", sections), ("broker", address_of(event))))


def address_of(event: Finding) -> str | None:
    """The broker of an event, if its address is known."""
    name = event.party("broker")
    return name if name is not None and ":" in name else None


def _sections(story: Story) -> str:
    if story.presence is not None:
        return "connections" if story.presence.what == "broker" else "errors"
    names = {c.measure.name.split()[0] for c in story.changes}
    found = []
    if names & {"throttle", "throttled"}:
        found.append("throttle")
    if names & {"error", "unanswered"}:
        found.append("errors")
    if names & {"refused", "retransmitted", "rtt"}:
        found.append("connections")
    if names & {"size", "records"}:
        found.append("topics")
    return ",".join([*dict.fromkeys(["latency", *found])])
