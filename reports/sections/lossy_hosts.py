"""Hosts whose packets get lost on the way: between which ends requests wait for segments that are sent again.

The evidence is time (`loss_ns`), not retransmissions: those that the receiver did not need cost nothing. Pairs of hosts
that lose much are compared with each other. If they have one host in common, it is the one that is named.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values

from .. import units
from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns, value_columns
from ..finding_words import NAMED, counted, listed
from ..findings import WARNING, Finding, Party
from ..parties import client_parties
from .slow_times import LossTimes
from .time_shares import percent

#: Loss is named if it took this share of the time of a pair's requests, without waits for data and members: below,
#: nobody feels it. And this long in all, so that a single timer (200 ms at least) of a short capture is no verdict.
_SHARE, _LEAST_NS = 0.1, units.SECOND


class _Pair(NamedTuple):
    """The requests between a client's host and a broker's. `clients`: the client ids that lost some, as numbers.
    `worked_ns`: their time without waits."""

    client_ip: str
    broker_ip: str
    loss_ns: int
    worked_ns: int
    clients: tuple[int, ...]

    @property
    def is_lossy(self) -> bool:
        return self.loss_ns >= _SHARE * self.worked_ns and self.loss_ns > 0


def lossy_host_findings(counts: ReportCounts, context: Context, times: LossTimes | None) -> list[Finding]:
    """One finding for each host that loses packets with others, or for each pair of hosts. `times`: None: not known."""
    pairs = _pairs(counts, context)
    left = [pair for pair in pairs if pair.is_lossy]
    found = []
    while left:
        hosts: dict[str, int] = {}
        for pair in left:
            for host in {pair.client_ip, pair.broker_ip}:
                hosts[host] = hosts.get(host, 0) + pair.loss_ns
        worst = max(hosts, key=lambda host: (hosts[host], host))
        mine = [pair for pair in left if worst in (pair.client_ip, pair.broker_ip)]
        left = [pair for pair in left if pair not in mine]
        if sum(pair.loss_ns for pair in mine) >= _LEAST_NS:
            found.append(_finding(worst, mine, pairs, context, times or {}))
    return found


def _pairs(counts: ReportCounts, context: Context) -> list[_Pair]:
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    if not values["loss_ns"].any():
        return []
    worked = values["total_ns"] - values["waiting_ns"] - values["hol_wait_ns"] - values["throttle_wait_ns"]
    ends = np.stack((columns["client_ip"], columns["broker_ip"]), axis=1)
    distinct, pair_of = np.unique(ends, axis=0, return_inverse=True)
    pairs = []
    for i, (client, broker) in enumerate(distinct.tolist()):
        rows = np.flatnonzero(pair_of.reshape(-1) == i)
        hit = rows[values["loss_ns"][rows] > 0]
        pairs.append(_Pair(
            str(context.address(client)), str(context.address(broker)), int(values["loss_ns"][rows].sum()),
            int(worked[rows].sum()), tuple(distinct_values(columns["client_id"][hit]).tolist()),
        ))  # fmt: skip
    return pairs


def _named(clients: list[str | None]) -> str:
    if len(clients) > NAMED or None in clients:
        return counted(len(clients), "client")
    return f"client{'s' if len(clients) > 1 else ''} " + ", ".join(f'"{client}"' for client in clients)


def _finding(host: str, mine: list[_Pair], pairs: list[_Pair], context: Context, times: LossTimes) -> Finding:
    loss, worked = sum(pair.loss_ns for pair in mine), sum(pair.worked_ns for pair in mine)
    others = sorted({pair.broker_ip if pair.client_ip == host else pair.client_ip for pair in mine})
    rest = [pair for pair in pairs if pair not in mine]
    quiet = {end for pair in rest if not pair.is_lossy for end in (pair.client_ip, pair.broker_ip)} - {host, *others}
    clients = sorted(
        {context.text(n) for pair in mine for n in pair.clients}, key=lambda name: (name is None, name or "")
    )
    share = loss / worked if worked else 0.0
    text = (
        f"packets between {host} and {listed(others)} get lost: requests of {_named(clients)} waited "
        f"{units.duration(loss)} for segments that were sent again, {percent(share)} of their time"
    )
    if quiet:
        text += f"; {counted(len(quiet), 'other host loses', 'other hosts lose')} less than {percent(_SHARE)} so"
    known = [times[ends] for pair in mine if (ends := (pair.client_ip, pair.broker_ip)) in times]
    end = "client_ip" if any(pair.client_ip == host for pair in mine) else "broker_ip"
    return Finding(
        "lossy_host", WARNING, "network", text, loss,
        begin=min((one.begin for one in known), default=None), end=max((one.end for one in known), default=None),
        numbers={
            "loss_ns": loss, "loss_share": share, "time_ns": worked, "hosts": len(others), "clients": len(clients),
            "other_hosts": len(quiet),
        },
        parties=(
            Party("host", host), *(Party("host", other) for other in others),
            *(party for client in clients for party in client_parties(client)),
        ),
        options=(("by", "client"), ("filter", f'{end} == "{host}"')),
    )  # fmt: skip
