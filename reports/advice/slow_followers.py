"""A follower that Produce requests with acks=all wait for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values, taken

from .. import units
from ..batch import rows_of
from ..counting.percentiles import percentile
from ..finding_words import and_more
from ..findings import Finding, Party
from ..parties import client_parties, client_text
from ..section_parts import follower_waits
from ..section_parts.cluster import Cluster
from ..section_parts.section import SectionInput
from .signature import Signature

#: Requests that waited for it. Fewer may be one pause of its process.
_LEAST = 10
#: Of the broker time of all requests: the same share as in the finding of the section `replication`.
_SHARE = 0.5
#: A usual follower fetches again within some ms. This is what a report calls slow.
_SLOW_NS = 20_000_000
#: Of the 99th percentile: waits of at least so much show when the follower was late.
_LONG = 0.5


class _Wait(NamedTuple):
    """A wait of a Produce request that is charged to a follower. `begin`, `end`: of the request at the broker."""

    begin: int
    end: int
    wait: int
    packet: int


class _Follower:
    """What is charged to a follower. `own_ns`: of the waits, its own time."""

    __slots__ = ("clients", "own_ns", "requests")

    def __init__(self) -> None:
        self.requests: list[_Wait] = []
        self.own_ns = 0
        self.clients: dict[str | None, int] = {}


def _findings(given: SectionInput) -> list[Finding]:
    charged = given.once(follower_waits.charged_requests)
    written = follower_waits.WRITTEN.among(given.events(follower_waits.READ_BY))
    _, first = np.unique(written["exchange"], return_index=True)
    written = taken(written, np.sort(first))
    charge = rows_of(charged.exchange[charged.is_slow], written["exchange"])
    written, charge = taken(written, np.flatnonzero(charge >= 0)), np.flatnonzero(charged.is_slow)[charge[charge >= 0]]
    total, followers = int((written["time"] - written["begin"]).sum()), dict[int, _Follower]()
    wait, number, own = charged.wait[charge], charged.follower[charge], charged.own[charge]
    for follower in distinct_values(number[wait > 0]).tolist():
        mine = np.flatnonzero((number == follower) & (wait > 0))
        if len(mine) < _LEAST or own[mine].sum() < _SHARE * total:
            continue
        row = followers[follower] = _Follower()
        columns = (*(written[name][mine] for name in ("begin", "time", "packet", "client_id")), wait[mine], own[mine])
        for begin, end, packet, client, waited, of_it in zip(*(column.tolist() for column in columns), strict=True):
            row.requests.append(_Wait(begin, end, waited, packet))
            row.own_ns += of_it
            name = given.context.text(client)
            row.clients[name] = row.clients.get(name, 0) + of_it
    addresses = follower_waits.follower_addresses(given)
    return [
        _finding(given.once(Cluster), number, addresses.get(number), row, len(written), total)
        for number, row in followers.items()
        if (_p99(row) or 0) >= _SLOW_NS
    ]


def _p99(row: _Follower) -> int | None:
    return percentile(np.array([each.wait for each in row.requests], np.int64), 99)


def _finding(
    brokers: Cluster, number: int, address: str | None, row: _Follower, produces: int, total: int
) -> Finding:  # fmt: skip
    clients = sorted(row.clients, key=lambda name: (-row.clients[name], name or ""))
    name, p99 = brokers.node_name(number, address) or address, _p99(row) or 0
    where = f" ({name})" if name else ""
    # A usual follower is waited for too, but shortly: the trouble lasts from the first long wait to the last one.
    slow = [each for each in row.requests if each.wait >= _LONG * p99]
    first = min(slow)
    text = (
        f"follower broker {number}{where} held back {len(row.requests):,} of {produces:,} Produce "
        f"requests with acks=all: {units.share(row.own_ns / total)} of their broker time, p99 {units.duration(p99)}; "
        f"most of {client_text(clients[0])}{and_more(len(clients) - 1)}"
    )
    parties = (
        Party("broker", name or f"{number}"),
        *([Party("host", address)] if address else []),
        *(party for client in clients for party in client_parties(client)),
    )
    return SLOW_FOLLOWERS.rule.found(
        text, *parties, begin=first.begin, end=max(each.end for each in slow), packets=[first.packet], lost=row.own_ns,
        see=[("sections", "replication")], wait_ns=sum(each.wait for each in row.requests), own_ns=row.own_ns,
        wait_p99_ns=p99, wait_max_ns=max(each.wait for each in row.requests), broker_ns=total,
        share=row.own_ns / total, produces=produces, held_back=len(row.requests), follower=number,
    )  # fmt: skip


SLOW_FOLLOWERS = Signature(
    "slow_follower",
    "a follower slows acks=all",
    "The leader answers Produce requests with acks=all directly after the Fetch of one follower, behind all others. "
    "Before that it has no Fetch of this follower.",
    "replica.lag.time.max.ms, num.replica.fetchers, min.insync.replicas",
    "Find what keeps that broker (its disk, its GC, its network). While it is slow, `replica.lag.time.max.ms` decides "
    "how long writers wait for it; more `num.replica.fetchers` help if it is the fetching.",
    f"the follower's own time is {_SHARE:.0%} of the broker time of Produce requests with acks=all, over {_LEAST} "
    f"requests, and the 99th percentile of its waits {_SLOW_NS // 1_000_000} ms. Needs a capture at the leader's host, "
    "with the traffic between brokers. "
    "Requests count while another follower was in time, and unless the follower came back on another connection.",
    _findings,
    on_request=True,
    label="slow follower",
)
