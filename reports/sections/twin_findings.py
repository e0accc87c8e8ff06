"""The first line of a report on connections that are seen twice, under two addresses (`reports.twins`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import kinds, units
from ..batch import Array, Context, endpoint
from ..counting import tally
from ..counting.count_forms import ADDRESS, NUMBER
from ..counting.rollup import group_columns
from ..finding_words import NAMED, listed
from ..finding_words import counted as many
from ..findings import WARNING, Finding, Party, Rule
from ..section_parts.counted import BROKER, CONNECTION, CONNECTIONS, counted, largest, least, total
from ..section_parts.section import Section, SectionInput
from ..section_parts.section_counts import SectionCounts
from ..twins import SAMPLE_COLUMNS, find_twins, may_be_twins, twin_keys

RULE = Rule(kinds.SEEN_TWICE, "seen twice", WARNING)

_SAMPLES: Any = {name: largest(name) for name in SAMPLE_COLUMNS}
#: The connections that may be seen twice.
TWINS = counted(
    "twins", CONNECTION | {"client_ip": ADDRESS, "client_port": NUMBER} | BROKER,
    may_be_twins, of=CONNECTIONS, newest="last", rows=20_000,
    connections=total(1), first=least("first"), last=largest("last"), first_packet=least("first_packet"),
    exchanges=total("exchanges"), proxy_port=largest("proxy_port"), client_sequence=largest("client_sequence"),
    broker_sequence=largest("broker_sequence"), **_SAMPLES,
)  # fmt: skip
#: What reads them, for findings and for the column `twin_of`.
READING = Section("twin-reading", counts=(TWINS,), reads_notable=True)


#: What a finding says of connections.
_SHOWN = ("client_ip", "first", "last", "first_packet", "exchanges")


class _Pair(NamedTuple):
    """What is on both sides of NAT or of a proxy: the ends of brokers, as numbers of the context."""

    outer: tuple[int, int]
    inner: tuple[int, int]
    is_nat: bool


def twin_findings(given: SectionInput) -> list[Finding]:
    """A finding for each pair of brokers' ends. Under a selection, only of pairs of which both are selected."""
    if TWINS.name not in given.sections.forms:
        return []
    rows = known_connections(given.keys(TWINS.name) | given.values(TWINS.name))
    return findings_of(given.context, rows, partial(_is_selected, given))


def twins_in(sections: SectionCounts | None) -> dict[int, int]:
    """The twins (`twin_keys`) among the connections that sections have counted."""
    if sections is None or TWINS.name not in sections.forms:
        return {}
    counts = sections.forms[TWINS.name]
    return twin_keys(known_connections(counts.keys() | counts.values()))


def findings_of(
    context: Context, rows: Mapping[str, Array] | Array, is_chosen: Callable[..., bool] = lambda *_: True
) -> list[Finding]:
    """The findings on connections: CONNECTION_ROW, or the columns of TWINS. `is_chosen(pair, outer clients, inner
    clients)`: whether there is one on a pair."""
    twins = find_twins(rows)
    pairs: dict[_Pair, list[int]] = defaultdict(list)
    brokers = list(zip(rows["broker_ip"].tolist(), rows["broker_port"].tolist(), strict=True))
    for n, (outer, inner, is_nat) in enumerate(
        zip(twins.outer.tolist(), twins.inner.tolist(), twins.is_nat.tolist(), strict=True)
    ):
        pairs[_Pair(brokers[outer], brokers[inner], is_nat)].append(n)
    found = []
    for pair, chosen in sorted(pairs.items()):
        sides = [{name: rows[name][side[chosen]] for name in _SHOWN} for side in (twins.outer, twins.inner)]
        if is_chosen(pair, *({*side["client_ip"].tolist()} for side in sides)):
            found.append(_finding(context, pair, sides[0], sides[1], twins.hop_ns[chosen]))
    return found


def known_connections(rows: dict[str, Array]) -> dict[str, Array]:
    """The rows of TWINS without that of others, which were added up."""
    return {name: column[rows["connection"] != -1] for name, column in rows.items()}


def _is_selected(given: SectionInput, pair: _Pair, *clients: set[int]) -> bool:
    """Whether the report counts exchanges of both sides."""
    if given.selected is None:
        return True
    groups = group_columns(given.counts.groups, tally.GROUP_KEY)
    ends = set(zip(groups["broker_ip"].tolist(), groups["broker_port"].tolist(), strict=True))
    hosts = set(groups["client_ip"].tolist())
    return {pair.outer, pair.inner} <= ends and all(mine & hosts for mine in clients)


def _finding(
    context: Context, pair: _Pair, rows: dict[str, Array], inner_rows: dict[str, Array], hops: Array
) -> Finding:
    """`rows`, `inner_rows`: of the outer connections, and of those nearest to the broker."""
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
    text += f", {seen}: {'its' if count == 1 else 'their'} {what} {'counts' if requests == 1 else 'count'} twice"
    hop = int(np.sort(hops)[(count - 1) // 2])
    if hop:
        text += f"; the {'hop' if pair.is_nat else 'proxy'} takes {units.duration(hop)}"
    return RULE.found(
        text, *parties, begin=int(rows["first"].min()), end=int(rows["last"].max()),
        packets=(int(rows["first_packet"].min()),), see=options, connections=count, requests=requests, hop_ns=hop,
        behind="NAT" if pair.is_nat else "proxy",
    )  # fmt: skip


def _hosts(context: Context, rows: dict[str, Array]) -> list[str]:
    """The addresses of clients, those with the most connections first."""
    hosts = Counter(context.address(ip) or "?" for ip in rows["client_ip"].tolist())
    return sorted(hosts, key=lambda host: (-hosts[host], host))
