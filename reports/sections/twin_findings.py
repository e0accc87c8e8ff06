"""The first line of a report on connections that are seen twice, under two addresses (`reports.twins`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import kinds, units
from ..batch import Array, Context, endpoint
from ..counting import tally
from ..counting.count_forms import ADDRESS, NUMBER
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns
from ..finding_words import NAMED, listed
from ..finding_words import counted as many
from ..findings import NOTE, WARNING, Finding, Party, Rule
from ..section_parts.counted import BROKER, CONNECTION, CONNECTIONS, counted, largest, least, total
from ..section_parts.section import Section, SectionInput
from ..section_parts.section_counts import SectionCounts
from ..section_parts.selected import Selected
from ..twins import COLUMNS, SAMPLE_COLUMNS, find_twins, may_be_twins, twin_keys

RULE = Rule(kinds.SEEN_TWICE, "seen twice", WARNING)
#: The same in a run that leaves one side out.
COUNTED_ONCE = Rule(kinds.SEEN_TWICE, "seen twice", NOTE)
#: The same of a proxy at which requests wait.
HOLDS_BACK = Rule(kinds.SEEN_TWICE, "proxy", WARNING)
#: So much more time requests take before it, in all, and of all of their time.
_HELD_NS, _HELD_SHARE = 1_000_000_000, 0.2

_SAMPLES: Any = {name: largest(name) for name in SAMPLE_COLUMNS}
#: The connections that may be seen twice.
TWINS = counted(
    "twins", CONNECTION | {"client_ip": ADDRESS, "client_port": NUMBER} | BROKER,
    may_be_twins, of=CONNECTIONS, newest="last", rows=20_000,
    connections=total(1), first=least("first"), last=largest("last"), first_packet=least("first_packet"),
    exchanges=total("exchanges"), total_ns=total("total_ns"), left_out=total(lambda x: x.twin_of != 0),
    proxy_port=largest("proxy_port"),
    client_sequence=largest("client_sequence"), broker_sequence=largest("broker_sequence"), **_SAMPLES,
)  # fmt: skip
#: What reads them, for findings and for the column `twin_of`.
READING = Section("twin-reading", counts=(TWINS,), reads_notable=True, reads_twins=True)


#: What a finding says of connections.
_SHOWN = ("connection", "client_ip", "first", "last", "first_packet", "exchanges", "total_ns", "left_out")


class _Pair(NamedTuple):
    """What is on both sides of NAT or of a proxy: the ends of brokers, as numbers of the context."""

    outer: tuple[int, int]
    inner: tuple[int, int]
    is_nat: bool


class _Sides(NamedTuple):
    """The connections on both sides of a pair, by _SHOWN, and what messages take from one side to the other, ns."""

    pair: _Pair
    outer: dict[str, Array]
    inner: dict[str, Array]
    hops: Array

    @property
    def are_counted(self) -> bool:
        """Whether some connections of both sides count."""
        return bool((self.outer["left_out"] == 0).any())


def twin_findings(given: SectionInput) -> list[Finding]:
    """A finding for each pair of brokers' ends. Under a selection, only of pairs of which both are selected."""
    return [_finding(given.context, sides) for sides in _pairs(_rows_in(given.sections)) if _is_selected(given, sides)]


def counted_twice(
    sections: SectionCounts | None, counts: ReportCounts, context: Callable[[], Context],
    selected: Callable[[Context], Selected | None] = lambda context: None,
) -> dict[int, int]:  # fmt: skip
    """The twins (`twin_keys`) that a report of these counts should leave out: those that `twin_findings` is about, if
    some count. `context`, `selected`: return what `SectionInput` has; they are called if there are twins at all."""
    pairs = [] if sections is None else list(_pairs(_rows_in(sections)))
    if not pairs:
        return {}
    assert sections is not None
    here = context()
    given = SectionInput(sections, counts, here, {}, selected(here))
    chosen = [sides for sides in pairs if _is_selected(given, sides)]
    if not any(sides.are_counted for sides in chosen):
        return {}
    return {
        outer: inner for sides in chosen
        for outer, inner in zip(sides.outer["connection"].tolist(), sides.inner["connection"].tolist(), strict=True)
    }  # fmt: skip


def seen_keys(sections: SectionCounts) -> list[int]:
    """The keys of the connections that sections have counted, among those that may be seen twice."""
    rows = _rows_in(sections)
    return rows["connection"].tolist() if rows else []


def twins_in(sections: SectionCounts | None) -> dict[int, int]:
    """The twins (`twin_keys`) among the connections that sections have counted."""
    rows = {} if sections is None else _rows_in(sections)
    return twin_keys(rows) if rows else {}


def findings_of(context: Context, rows: Array) -> list[Finding]:
    """The findings on connections (CONNECTION_ROW) of a report that counts one side."""
    columns = {name: rows[name] for name in (*COLUMNS, "exchanges", "total_ns")}
    return [_finding(context, sides) for sides in _pairs(columns | {"left_out": np.ones(len(rows), np.int64)})]


def _rows_in(sections: SectionCounts) -> dict[str, Array]:
    """The rows of TWINS without that of others, which were added up; {} if it was not counted."""
    if TWINS.name not in sections.forms:
        return {}
    counts = sections.forms[TWINS.name]
    rows = counts.keys() | counts.values()
    return {name: column[rows["connection"] != -1] for name, column in rows.items()}


def _pairs(rows: Mapping[str, Array]) -> Iterator[_Sides]:
    """The pairs of brokers' ends that have twins."""
    if not rows:
        return
    twins = find_twins(rows)
    pairs: dict[_Pair, list[int]] = defaultdict(list)
    brokers = list(zip(rows["broker_ip"].tolist(), rows["broker_port"].tolist(), strict=True))
    for n, (outer, inner, is_nat) in enumerate(
        zip(twins.outer.tolist(), twins.inner.tolist(), twins.is_nat.tolist(), strict=True)
    ):
        pairs[_Pair(brokers[outer], brokers[inner], is_nat)].append(n)
    for pair, chosen in sorted(pairs.items()):
        outer, inner = ({name: rows[name][side[chosen]] for name in _SHOWN} for side in (twins.outer, twins.inner))
        yield _Sides(pair, outer, inner, twins.hop_ns[chosen])


def _is_selected(given: SectionInput, sides: _Sides) -> bool:
    """Whether the report counts exchanges of both sides, or would if one were not left out."""
    if given.selected is None or not sides.are_counted:
        return True
    groups = group_columns(given.counts.groups, tally.GROUP_KEY)
    ends = set(zip(groups["broker_ip"].tolist(), groups["broker_port"].tolist(), strict=True))
    hosts = set(groups["client_ip"].tolist())
    clients = ({*side["client_ip"].tolist()} for side in (sides.outer, sides.inner))
    return {sides.pair.outer, sides.pair.inner} <= ends and all(mine & hosts for mine in clients)


def _finding(context: Context, sides: _Sides) -> Finding:
    (pair, rows, inner_rows, hops), are_counted = sides, sides.are_counted
    count, requests = len(hops), int(rows["exchanges"].sum())
    outer, inner = (endpoint(context.address(ip), port) for ip, port in (pair.outer, pair.inner))
    are_those = "is that" if count == 1 else "are those"
    options: tuple[tuple[str, str | None], ...]
    if outer != inner:
        text = f"{many(count, 'connection')} to {outer} {are_those} to {inner} once more"
        parties, options = [Party("broker", outer), Party("broker", inner)], (("broker", inner),)
    else:
        before, behind = (_hosts(context, each) for each in (rows, inner_rows))
        text = f"{many(count, 'connection')} of {listed(before)} to {outer} {are_those} of {listed(behind)} once more"
        others = " and ".join(f'client_ip != "{host}"' for host in before)
        options = (("filter", others if len(before) <= NAMED else None),)
        parties = [Party("broker", outer), *(Party("host", host) for host in (*before, *behind))]
    seen = "seen before and behind NAT" if pair.is_nat else "both legs of a proxy"
    what = many(requests, "request") if requests else "packets"
    often = "twice" if are_counted else "once, where they come to the broker"
    text += f", {seen}: {'its' if count == 1 else 'their'} {what} {'counts' if requests == 1 else 'count'} {often}"
    hop = int(np.sort(hops)[(count - 1) // 2])
    if hop:
        text += f"; the {'hop' if pair.is_nat else 'proxy'} takes {units.duration(hop)}"
    held, rule = 0 if pair.is_nat else int((rows["total_ns"] - inner_rows["total_ns"]).sum()), COUNTED_ONCE
    if held >= max(_HELD_NS, int(_HELD_SHARE * rows["total_ns"].sum())):
        text += f". Requests took {units.duration(held)} longer in all before it than behind it: it holds them back"
        rule = HOLDS_BACK
    else:
        held = 0
    return (RULE if are_counted else rule).found(
        text, *parties, begin=int(rows["first"].min()), end=int(rows["last"].max()),
        packets=(int(rows["first_packet"].min()),), lost=held, see=options, connections=count, requests=requests,
        hop_ns=hop, behind="NAT" if pair.is_nat else "proxy",
    )  # fmt: skip


def _hosts(context: Context, rows: dict[str, Array]) -> list[str]:
    """The addresses of clients, those with the most connections first."""
    hosts = Counter(context.address(ip) or "?" for ip in rows["client_ip"].tolist())
    return sorted(hosts, key=lambda host: (-hosts[host], host))
