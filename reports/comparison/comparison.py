"""`compare_sides`: the comparison of two sides, as tables of plain values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values

from ..batch import Context
from ..counting.connection_counts import connection_totals
from ..counting.rollup import api_label
from ..encryption import decrypted_share
from ..model import Column, ReportTable, Row, in_columns
from . import wording
from .joined import joined
from .judging import Change, Demands, judge
from .leaves import Forms, Key, Side, blocks_of
from .presence import ENTITIES, Presence, find_presence
from .quality import OF_EXCHANGES, Quality, both, encrypted_brokers, incomplete, qualities
from .side_events import with_events
from .statistics import false_discovery
from .stories import BETTER, DIFFERENT, WORSE, Story, tell

SIDE_NAMES = ("before", "after")
DEMANDS = Demands()
#: A side with fewer exchanges, or shorter, says too little.
_FEWEST_EXCHANGES, _SHORTEST = 100, 5.0

SIDES = (
    Column("side", "side", "text", "before or after"),
    Column("captures", "captures", "texts", "captures that were read"),
    Column("selection", "only", "text", "options that select exchanges of this side, if any"),
    Column("first", "first", "time", "time of the first packet, or where the side begins; null: no packets"),
    Column("last", "last", "time", "time of the last packet, or where the side ends; null: no packets"),
    Column("seconds", "seconds", "number", "length of the side"),
    Column("requests", "requests", "count", "requests of this side"),
    Column("client_ids", "client ids", "count", "different client ids, without those that are counted as (other)"),
    Column("brokers", "brokers", "count", "brokers"),
    Column("block_ns", "block", "ns", "length of a block of time", 3),
    Column("blocks", "blocks", "count", "number of blocks", 3),
    Column("encrypted_share", "encrypted", "share", "share of the TCP payload that is TLS, and was not decrypted", 2),
    Column("decrypted_share", "decrypted", "share", "share of the TCP payload that is TLS, and was decrypted", 2),
)
FINDINGS = (
    Column("number", "#", "count", "number of the finding, from 1: those that got worse, then better, then different"),
    Column("kind", "kind", "text", "worse, better, or different (neither)"),
    Column("finding", "finding", "text", "what has changed, in words", end="sentence"),
    Column("client_id", "client", "text", "client_id that it is on, if it is one", 9),
    Column("api", "API", "text", "API that it is on, if it is one", 9),
    Column("broker", "broker", "text", "broker that it is on, if it is one", 9, end="broker"),
    Column("verdict", "where", "text",
           f"where the time went: {', '.join(dict.fromkeys(wording.WHERE.values()))}; null: no time changed, "
           "or none of these changed most"),
    Column("time_shares", "time", "text", "how much each of these added to the mean total time, in words", 9),
    Column("sure", "sure", "text", "sure, very sure, or almost certain", 1),
    Column("evidence", "evidence", "text", "the numbers behind it: values, blocks, p", 9),
    Column("false_discovery_rate", "FDR", "number", "the false discovery rate at which it is a finding", 9),
    Column("impact", "impact", "number", "how much it matters, for the order; 1: as much as all waiting together", 9),
    Column("command_before", "more before", "text", "command that shows more of the side before", 9),
    Column("command_after", "more after", "text", "command that shows more of the side after", 9),
    Column("event", "event", "text",
           "an event that one side lacks, or that spans both: its id in the section events or advice", 9),
    Column("begin", "begin", "time", "when the event began", 9),
    Column("end", "end", "time", "when the event was over; empty: it lasts", 9),
)  # fmt: skip
CHANGES = (
    Column("number", "#", "count", "number of the finding that it belongs to"),
    Column("on", "on", "text", "client, API, broker, or all clients", end="sentence"),
    Column("client_id", "client", "text", "client_id, if it is one", 9),
    Column("api", "API", "text", "API, if it is one", 9),
    Column("broker", "broker", "text", "broker, if it is one", 9, end="broker"),
    Column("measure", "measure", "text",
           "total, broker, HOL, throttle, loss, receiver, sender, path (ns); size (bytes); records; throttled, "
           "unanswered, error N, retransmitted (shares); rate, refused (by second); rtt (ns)", 9),
    Column("test", "test", "text", "ranks, slowest, means, shares or rates (docs/compare.md)", 9),
    Column("what", "what", "text", "the measure in words"),
    Column("before", "before", "number", "its value before, in the unit of the measure", 9),
    Column("after", "after", "number", "its value after", 9),
    Column("change", "change", "text", "both values in words"),
    Column("ratio", "ratio", "number", "after by before; null: from or to zero", 9),
    Column("superiority", "superiority", "number",
           "ranks: the probability that a value after is larger than one before (equal ones count half)", 9),
    Column("p", "p", "number", "probability of such a difference by chance", 9),
    Column("false_discovery_rate", "FDR", "number", "the false discovery rate at which it is a finding", 9),
    Column("count_before", "values before", "count", "values (exchanges, batches, requests) before", 9),
    Column("count_after", "values after", "count", "values after", 9),
    Column("blocks_before", "blocks before", "count", "blocks of time with values before", 9),
    Column("blocks_after", "blocks after", "count", "blocks of time with values after", 9),
    Column("design_effect_before", "design effect", "number",
           "how much more the means of blocks scatter than those of independent values would; null: unknown", 9),
    Column("design_effect_after", "design effect", "number", "the same after", 9),
)  # fmt: skip
PRESENCE = (
    Column("change", "change", "text", "appeared (only after) or disappeared (only before)"),
    Column("what", "what", "text", ", ".join(what for what, _, _ in ENTITIES)),
    Column("name", "name", "text", "it in words", end="sentence"),
    Column("client_id", "client", "text", "client_id, if it is of one", 9),
    Column("api", "API", "text", "API, if it is of one", 9),
    Column("broker", "broker", "text", "broker, if it is one", 9, end="broker"),
    Column("topic", "topic", "text", "topic, if it is one", 9),
    Column("version", "version", "count", "version of the API, if it is one", 9),
    Column("ja4", "JA4", "text", "JA4 of the ClientHellos without its first part, if it is TLS software", 9),
    Column("exchanges", "exchanges", "count", "exchanges with it on its side; of TLS software: connections"),
    Column("share", "share", "share",
           "their share of that side's exchanges, or of its connections with a ClientHello", 2),
    Column("blocks", "blocks", "count", "blocks of time in which it was seen", 9),
    Column("of_blocks", "of blocks", "count", "blocks of that side", 9),
    Column("other_blocks", "other blocks", "count", "blocks of the other side, in which it was not seen", 9),
    Column("p", "p", "number", "probability of that by chance", 9),
    Column("is_sure", "sure", "flag", "false: it may be missing on the other side by chance"),
)  # fmt: skip
TABLES = {"sides": SIDES, "findings": FINDINGS, "changes": CHANGES, "presence": PRESENCE}


class Compared(NamedTuple):
    """The comparison of two sides. `worse`, `better`, `different`: the number of findings of each kind. `comparisons`:
    how many were judged, and `too_few`: how many could not be, for want of data. `left_out`: sentences for each side
    that is incomplete, with what is therefore not compared, and a command that shows more. `warnings`: other sentences.
    `verdict`: how much has changed, in a sentence.
    """

    tables: tuple[ReportTable, ...]
    worse: int
    better: int
    different: int
    comparisons: int
    too_few: int
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    verdict: str

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """`left_out` and `warnings`."""
        return (*(f"{text} More: {command}" for text, command in self.left_out), *self.warnings)

    def table(self, name: str) -> ReportTable:
        """One of the tables `sides`, `findings`, `changes` and `presence`. KeyError for an unknown name."""
        tables = {table.name: table for table in self.tables}
        if name not in tables:
            raise KeyError(f"a comparison has no table {name!r}; it has {', '.join(tables)}")
        return tables[name]


def compare_sides(
    before: Side, after: Side, demands: Demands = DEMANDS, selected: tuple[str | None, str | None] = (None, None)
) -> Compared:
    """Compare two sides. `selected`: the options that select the exchanges of each."""
    sides = before, after
    limit = min(side.counts.limit for side in sides)
    for side in sides:
        side.counts.limit_clients(limit, side.context.text)  # the same clients on both sides
    is_empty = not all(len(side.counts.forms["exchanges"]) for side in sides)
    pair = qualities(sides)
    quality = both(pair)
    forms = Forms(sides)
    presence = _captured(forms, quality.also((), OF_EXCHANGES) if is_empty else quality)
    judged = judge(forms, demands, quality)
    rates = false_discovery(np.array([one.p for one in presence]))
    presence = [one._replace(q=float(q)) for one, q in zip(presence, rates, strict=True)]
    stories = joined(tell(judged, presence, demands), judged, demands)
    if not is_empty:
        stories = with_events(stories, sides, judged, quality)
    lengths = before.counts.length, after.counts.length
    kinds = [story.kind for story in stories]
    tables: tuple[ReportTable, ...] = (
        ReportTable(
            "sides", "Sides", SIDES,
            in_columns(SIDES, (_side_row(n, side, selected[n]) for n, side in enumerate(sides))),
        ),
        ReportTable(
            "findings", "All findings", FINDINGS,
            in_columns(FINDINGS, (
                _finding_row(n, story, sides, selected, lengths, quality) for n, story in enumerate(stories, 1)
            )),
            empty="nothing has changed, as far as these captures show",
        ),
        ReportTable(
            "changes", "Changes behind the findings", CHANGES,
            in_columns(CHANGES, (
                _change_row(n, change) for n, story in enumerate(stories, 1) for change in story.changes
            )),
        ),
        ReportTable(
            "presence", "Appeared and disappeared", PRESENCE,
            in_columns(PRESENCE, (
                _presence_row(one, demands) for one in sorted(presence, key=lambda o: (o.q > demands.rate, -o.share))
            )),
            empty="nothing",
        ),
    )  # fmt: skip
    if (hosts := before.context.hosts) is not None:
        from ..hosts.named_tables import with_hosts

        span = min(before.first, after.first), max(before.last, after.last)
        tables = tuple(with_hosts(table, hosts, span) for table in tables)
    return Compared(
        tables, kinds.count(WORSE), kinds.count(BETTER), kinds.count(DIFFERENT), judged.comparisons, judged.too_few,
        tuple(filter(None, map(incomplete, SIDE_NAMES, sides, pair))), tuple(_warnings(sides, pair)),
        _verdict(sides, selected, kinds, judged.comparisons),
    )  # fmt: skip


def _captured(forms: Forms, quality: Quality) -> list[Presence]:
    """What only one side has and the capture of the other one would show."""
    hidden = [encrypted_brokers(side.context) for side in forms.sides]
    return [
        one for one in find_presence(forms, quality.entities)
        if one.what != "broker" or one.key.broker not in hidden[0 if one.appeared else 1]
    ]  # fmt: skip


def _side_row(n: int, side: Side, selected: str | None) -> Row:
    exchanges = side.counts.forms["exchanges"]
    keys = exchanges.keys()
    brokers = distinct_values(np.stack((keys["broker_ip"], keys["broker_port"]), axis=1), axis=0)
    clients = keys["client_id"]
    has_packets = side.context.first is not None
    return {
        "side": SIDE_NAMES[n], "captures": tuple(f.path for f in side.context.files), "selection": selected,
        "first": side.first if has_packets else None, "last": side.last if has_packets else None,
        "seconds": side.seconds if has_packets else 0.0, "requests": int(exchanges.values()["requests"].sum()),
        "client_ids": len(distinct_values(clients[clients >= 0])), "brokers": len(brokers),
        "block_ns": side.counts.length, "blocks": blocks_of(side, "exchanges")[1],
        "encrypted_share": side.context.encrypted_share, "decrypted_share": decrypted_share(side.context),
    }  # fmt: skip


def _finding_row(
    n: int,
    story: Story,
    sides: tuple[Side, Side],
    selected: tuple[str | None, str | None],
    lengths: tuple[int, int],
    quality: Quality,
) -> Row:
    event = story.event
    if event is not None:
        key = Key(broker=wording.address_of(event))
    else:
        key = story.presence.key if story.presence is not None else story.changes[0].cell.key
    where, time_shares = wording.verdict(story) if quality.allows("broker") else (None, None)
    return {
        "number": n, "kind": story.kind, "finding": wording.title(story), **_place(key), "verdict": where,
        "time_shares": time_shares, "sure": wording.sureness(story.q), "evidence": wording.evidence(story, lengths),
        "false_discovery_rate": story.q, "impact": round(story.impact, 6),
        "command_before": wording.more(story, sides[0], selected[0]),
        "command_after": wording.more(story, sides[1], selected[1]), "event": None if event is None else event.id,
        "begin": None if event is None else event.begin, "end": None if event is None else event.end,
    }  # fmt: skip


def _place(key: Key) -> Row:
    """The client, API and broker that a row is on."""
    return {
        "client_id": key.client, "api": None if key.api is None else api_label(key.api), "broker": key.broker
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _change_row(n: int, change: Change) -> Row:
    ratio, d = change.ratio, change.difference
    return {
        "number": n, "on": wording.scope_of(change), **_place(change.cell.key), "measure": change.measure.name,
        "test": change.measure.test, "what": wording.label(change), "before": _finite(change.a),
        "after": _finite(change.b), "change": wording.line(change), "ratio": None if ratio == 0 else _finite(ratio),
        "superiority": change.superiority, "p": d.p, "false_discovery_rate": change.q,
        "count_before": round(change.count_a), "count_after": round(change.count_b), "blocks_before": d.blocks_a,
        "blocks_after": d.blocks_b, "design_effect_before": _finite(d.effect_a),
        "design_effect_after": _finite(d.effect_b),
    }  # fmt: skip


def _presence_row(one: Presence, demands: Demands) -> Row:
    return {
        "change": "appeared" if one.appeared else "disappeared", "what": one.what, "name": wording.what_of(one),
        **_place(one.key), "topic": one.key.topic, "version": one.key.version, "ja4": one.key.ja4,
        "exchanges": one.exchanges, "share": one.share, "blocks": one.blocks, "of_blocks": one.of,
        "other_blocks": one.others, "p": one.p, "is_sure": one.q <= demands.rate,
    }  # fmt: skip


def _warnings(sides: tuple[Side, Side], pair: tuple[Quality, Quality]) -> list[str]:
    """What makes the comparison weak."""
    found = []
    requests = [side.counts.requests for side in sides]
    for name, side, count, quality in zip(SIDE_NAMES, sides, requests, pair, strict=True):
        if not count:
            continue
        if count < _FEWEST_EXCHANGES or side.seconds < _SHORTEST:
            found.append(
                f"The side {name} is short: {count:,} requests in {side.seconds:.1f} s. Only large changes can be "
                "found; capture for a minute or more."
            )
        lost = _lost(side.context)
        if lost and not quality.causes:
            found.append(
                f"The side {name} misses packets ({lost}): times and missing responses there are less certain."
            )
    seconds = [side.seconds for side in sides]
    if all(requests) and max(seconds) > 20 * min(seconds):
        found.append("One side is more than 20 times as long as the other: it may hold other times of day.")
    return found


def _is_same(sides: tuple[Side, Side], selected: tuple[str | None, str | None]) -> bool:
    """Whether both sides are the same packets, read twice."""
    a, b = (side.context for side in sides)
    facts = [(c.first, c.last, c.packets, c.not_captured, c.ledger) for c in (a, b)]
    return (
        selected[0] == selected[1] and facts[0] == facts[1] and a.packets > 0 and list(a.strings) == list(b.strings)
        and np.array_equal(a.connections, b.connections)
    )  # fmt: skip


def _verdict(
    sides: tuple[Side, Side], selected: tuple[str | None, str | None], kinds: list[str], comparisons: int
) -> str:
    """How much has changed."""
    empty = [name for name, side in zip(SIDE_NAMES, sides, strict=True) if not side.counts.requests]
    if empty:
        which = f"the side {empty[0]} has" if len(empty) == 1 else "both sides have"
        return f"There is nothing to compare: {which} no requests."
    if _is_same(sides, selected):
        return "Both sides are the same capture: nothing has changed."
    if not comparisons:
        return "Nothing can be compared: both sides have too few requests in common."
    if not kinds:
        return f"Nothing has changed, as far as {comparisons:,} comparisons show."
    counts = f"{kinds.count(WORSE):,} worse, {kinds.count(BETTER):,} better, {kinds.count(DIFFERENT):,} different"
    return f"{counts} (of {comparisons:,} comparisons)"


def _lost(context: Context) -> str:
    gaps = connection_totals(context).total("gap_bytes")
    drops = sum(f.drops or 0 for f in context.files)
    parts = [f"{drops:,} dropped during capture"] * bool(drops) + [f"{gaps:,} bytes in gaps"] * bool(gaps)
    return ", ".join(parts)
