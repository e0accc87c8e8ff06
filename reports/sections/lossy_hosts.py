"""Hosts whose packets get lost on the way: between which ends requests wait for segments that are sent again.

The evidence is time (`loss_ns`, and `hol_loss_wait_ns` behind such requests), not retransmissions: those that the
receiver did not need cost nothing. It is a share of the time without waits that have other causes: for data, members
and quotas, also behind requests that have these. Pairs of hosts are compared by the clients that lose much. If they
have one host in common, it is the one that is named.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values, is_among

from .. import units
from ..batch import Array, Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns, value_columns
from ..finding_words import NAMED, counted, listed
from ..findings import WARNING, Finding, Party
from ..parties import client_parties
from .slow_times import LossTimes
from .time_shares import percent

#: Loss is named if it took this share of the time of a client's requests: below, nobody feels it. And this long in all,
#: so that a single timer (200 ms at least) of a short capture is no verdict.
_SHARE, _LEAST_NS = 0.1, units.SECOND


class _Pair(NamedTuple):
    """The requests between a client's host and a broker's, of clients that lose much. `clients`: their ids as numbers.
    `behind_ns`: the part of `loss_ns` behind other requests. `worked_ns`: their time without waits that have other
    causes."""

    client_ip: str
    broker_ip: str
    loss_ns: int
    behind_ns: int
    worked_ns: int
    clients: tuple[int, ...]

    @property
    def is_lossy(self) -> bool:
        return self.loss_ns > 0


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
    losses = values["loss_ns"] + values["hol_loss_wait_ns"]
    if not losses.any():
        return []
    others = ("waiting_ns", "hol_poll_wait_ns", "throttle_wait_ns", "hol_throttle_wait_ns")
    worked = values["total_ns"] - sum(values[name] for name in others)
    ends = np.stack((columns["client_ip"], columns["broker_ip"]), axis=1)
    distinct, pair_of = np.unique(ends, axis=0, return_inverse=True)
    pairs = []
    for i, (client, broker) in enumerate(distinct.tolist()):
        rows = np.flatnonzero(pair_of.reshape(-1) == i)
        hit = _hit(columns["client_id"][rows], losses[rows], worked[rows])
        rows = rows[is_among(columns["client_id"][rows], hit)]
        pairs.append(_Pair(
            str(context.address(client)), str(context.address(broker)), int(losses[rows].sum()),
            int(values["hol_loss_wait_ns"][rows].sum()), int(worked[rows].sum()), tuple(hit),
        ))  # fmt: skip
    return pairs


def _hit(clients: Array, losses: Array, worked: Array) -> list[int]:
    """The clients, by number, that lost _SHARE of their time or more."""
    people = distinct_values(clients).tolist()
    return [
        client for client in people
        if (lost := losses[clients == client].sum()) and lost >= _SHARE * worked[clients == client].sum()
    ]  # fmt: skip


def _named(clients: list[str | None]) -> str:
    if len(clients) > NAMED or None in clients:
        return counted(len(clients), "client")
    return f"client{'s' if len(clients) > 1 else ''} " + ", ".join(f'"{client}"' for client in clients)


def _finding(host: str, mine: list[_Pair], pairs: list[_Pair], context: Context, times: LossTimes) -> Finding:
    loss, behind, worked = (sum(getattr(pair, name) for pair in mine) for name in ("loss_ns", "behind_ns", "worked_ns"))
    others = sorted({pair.broker_ip if pair.client_ip == host else pair.client_ip for pair in mine})
    rest = [pair for pair in pairs if pair not in mine]
    quiet = {end for pair in rest if not pair.is_lossy for end in (pair.client_ip, pair.broker_ip)} - {host, *others}
    clients = sorted(
        {context.text(n) for pair in mine for n in pair.clients}, key=lambda name: (name is None, name or "")
    )
    share = loss / worked if worked else 0.0
    text = (
        f"packets between {host} and {listed(others)} get lost: requests of {_named(clients)} waited "
        f"{units.duration(loss - behind)} for segments that were sent again"
        + (f", and {units.duration(behind)} behind such requests" if behind else "")
        + f", {percent(share)} of their time without throttle and data waits"
    )
    if quiet:
        text += f"; {counted(len(quiet), 'other host loses', 'other hosts lose')} less than {percent(_SHARE)} so"
    known = [times[ends] for pair in mine if (ends := (pair.client_ip, pair.broker_ip)) in times]
    end = "client_ip" if any(pair.client_ip == host for pair in mine) else "broker_ip"
    return Finding(
        "lossy_host", WARNING, "network", text, loss,
        begin=min((one.begin for one in known), default=None), end=max((one.end for one in known), default=None),
        numbers={
            "loss_ns": loss - behind, "hol_loss_wait_ns": behind, "loss_share": share,
            "time_ns": worked, "hosts": len(others), "clients": len(clients), "other_hosts": len(quiet),
        },
        parties=(
            Party("host", host), *(Party("host", other) for other in others),
            *(party for client in clients for party in client_parties(client)),
        ),
        options=(("by", "client"), ("filter", f'{end} == "{host}"')),
    )  # fmt: skip
