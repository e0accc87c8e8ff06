"""Hosts whose packets get lost on the way: between which ends requests wait for segments that are sent again.

The evidence is time (`loss_ns`, and `hol_loss_wait_ns` behind such requests), not retransmissions: those that the
receiver did not need cost nothing. It is a share of the time without waits that have other causes: for data, members
and quotas, also behind requests that have these. Pairs of hosts are compared by the clients that lose much. If they
have one host in common, it is the one that is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from .. import units
from ..batch import Array, Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns, value_columns
from ..finding_words import NAMED, counted, listed
from ..findings import WARNING, Finding, Party
from ..parties import client_parties
from .slow_times import LossTimes, SlowTime
from .time_shares import percent

#: Loss is named if it took this share of the time of a client's requests: below, nobody feels it. And this long in all,
#: so that a single timer (200 ms at least) of a short capture is no verdict.
_SHARE, _LEAST_NS = 0.1, units.SECOND


class _Pair(NamedTuple):
    """The requests between a client's host and a broker's, of clients that lose much. `clients`: their ids as numbers.
    `behind_ns`: the part of `loss_ns` behind other requests. `resent_ns`: how much later their responses arrived than
    they were captured. `worked_ns`: their time without waits that have other causes, and with that."""

    client_ip: str
    broker_ip: str
    loss_ns: int
    behind_ns: int
    resent_ns: int
    worked_ns: int
    clients: tuple[int, ...]

    @property
    def is_lossy(self) -> bool:
        return self.cost_ns > 0

    @property
    def cost_ns(self) -> int:
        return self.loss_ns + self.resent_ns


def lossy_host_findings(counts: ReportCounts, context: Context, times: LossTimes | None) -> list[Finding]:
    """One finding for each host that loses packets with others, or for each pair of hosts. `times`: None: not known."""
    pairs = _pairs(counts, context, {} if times is None else times.resent)
    quiet = frozenset(end for pair in pairs if not pair.is_lossy for end in (pair.client_ip, pair.broker_ip))
    return [
        _finding(worst, mine, quiet, context, {} if times is None else times.times)
        for worst, mine in _by_worst_host([pair for pair in pairs if pair.is_lossy])
        if sum(pair.cost_ns for pair in mine) >= _LEAST_NS
    ]


def _by_worst_host(pairs: list[_Pair]) -> Iterator[tuple[str, list[_Pair]]]:
    """The host whose pairs lost most, with these; then that of the pairs that are left, and so on."""
    if not pairs:
        return
    from heapq import heapify, heappop, heappush  # imported late: few reports have lossy hosts

    of_host: dict[str, dict[_Pair, None]] = defaultdict(dict)
    lost = Counter[str]()
    for pair in pairs:
        for host in {pair.client_ip, pair.broker_ip}:
            of_host[host][pair] = None
            lost[host] += pair.cost_ns
    rank = {host: place for place, host in enumerate(sorted(lost, reverse=True))}
    worst_first = [(-ns, rank[host], host) for host, ns in lost.items()]
    heapify(worst_first)
    while worst_first:
        ns, _, worst = heappop(worst_first)
        if -ns != lost[worst] or not of_host[worst]:  # it lost less since, or nothing is left
            continue
        mine = list(of_host.pop(worst))
        yield worst, mine
        for pair in mine:
            for other in {pair.client_ip, pair.broker_ip} - {worst}:
                del of_host[other][pair]
                lost[other] -= pair.cost_ns
                heappush(worst_first, (-lost[other], rank[other], other))


def _pairs(
    counts: ReportCounts, context: Context, resent: Mapping[tuple[str | None, str | None], Mapping[int, int]]
) -> list[_Pair]:
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    losses = values["loss_ns"] + values["hol_loss_wait_ns"]
    if not losses.any() and not resent:
        return []
    others = ("waiting_ns", "hol_poll_wait_ns", "throttle_wait_ns", "hol_throttle_wait_ns")
    worked = values["total_ns"] - sum(values[name] for name in others)
    pairs = []
    for (client, broker), rows in groups_of(columns["client_ip"], columns["broker_ip"]):
        late = resent.get((context.address(client), context.address(broker)), {})
        hit = _hit(columns["client_id"][rows], losses[rows], worked[rows], late)
        rows = rows[is_among(columns["client_id"][rows], hit)]
        late_ns = sum(late.get(number, 0) for number in hit)
        pairs.append(_Pair(
            str(context.address(client)), str(context.address(broker)), int(losses[rows].sum()),
            int(values["hol_loss_wait_ns"][rows].sum()), late_ns, int(worked[rows].sum()) + late_ns, tuple(hit),
        ))  # fmt: skip
    return pairs


def _hit(clients: Array, losses: Array, worked: Array, late: Mapping[int, int]) -> list[int]:
    """The clients, by number, that lost _SHARE of their time or more. `late`: by client, as `_Pair.resent_ns`."""
    people = distinct_values(clients).tolist()
    return [
        client for client in people
        if (lost := losses[clients == client].sum() + late.get(client, 0))
        and lost >= _SHARE * (worked[clients == client].sum() + late.get(client, 0))
    ]  # fmt: skip


def _named(clients: list[str | None]) -> str:
    if len(clients) > NAMED or None in clients:
        return counted(len(clients), "client")
    return f"client{'s' if len(clients) > 1 else ''} " + ", ".join(f'"{client}"' for client in clients)


def _finding(
    host: str,
    mine: list[_Pair],
    quiet: frozenset[str],
    context: Context,
    times: Mapping[tuple[str | None, str | None], SlowTime],
) -> Finding:
    """`quiet`: the ends of pairs that are not lossy."""
    parts = ("loss_ns", "behind_ns", "resent_ns", "worked_ns")
    loss, behind, late, worked = (sum(getattr(pair, name) for pair in mine) for name in parts)
    others = sorted({pair.broker_ip if pair.client_ip == host else pair.client_ip for pair in mine})
    healthy = len(quiet) - len(quiet.intersection((host, *others)))
    clients = sorted(
        {context.text(n) for pair in mine for n in pair.clients}, key=lambda name: (name is None, name or "")
    )
    share = (loss + late) / worked if worked else 0.0
    text = (
        f"packets between {host} and {listed(others)} get lost: requests of {_named(clients)} waited "
        f"{units.duration(loss - behind)} in total for segments that were sent again"
        + (f", and {units.duration(behind)} behind such requests" if behind else "")
        + (
            f", and {units.duration(late)} for ends of responses that were lost behind the capture point"
            if late
            else ""
        )
        + f", {percent(share)} of their time without throttle and data waits"
    )
    if healthy:
        text += f"; {counted(healthy, 'other host loses', 'other hosts lose')} less than {percent(_SHARE)} so"
    known = [times[ends] for pair in mine if (ends := (pair.client_ip, pair.broker_ip)) in times]
    end = "client_ip" if any(pair.client_ip == host for pair in mine) else "broker_ip"
    return Finding(
        "lossy_host", WARNING, "network", text, loss + late,
        begin=min((one.begin for one in known), default=None), end=max((one.end for one in known), default=None),
        numbers={
            "loss_ns": loss - behind, "hol_loss_wait_ns": behind, "resent_ns": late, "loss_share": share,
            "time_ns": worked, "hosts": len(others), "clients": len(clients), "other_hosts": healthy,
        },
        parties=(
            Party("host", host), *(Party("host", other) for other in others),
            *(party for client in clients for party in client_parties(client)),
        ),
        options=(("by", "client"), ("filter", f'{end} == "{host}"')),
    )  # fmt: skip
