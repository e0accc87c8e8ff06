"""A follower that Produce requests with acks=all wait for."""

from __future__ import annotations

import numpy as np

from .. import units
from ..counting.percentiles import percentile
from ..findings import WARNING, Finding, Party
from ..questions import follower_waits
from ..questions.section import SectionInput
from .signature import LABEL, Signature, events_of_kind

#: Requests that waited for it. Fewer may be one pause of its process.
_LEAST = 10
#: Of the broker time of all requests: the same share as in the finding of the section `replication`.
_SHARE = 0.5
#: A usual follower fetches again within some ms. This is what a report calls slow.
_SLOW_NS = 20_000_000


class _Follower:
    """What is charged to a follower. `own_ns`: of the waits, its own time."""

    __slots__ = ("begin", "clients", "end", "own_ns", "packet", "waits")

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.own_ns, self.begin, self.end, self.packet = 0, 2**63 - 1, 0, 0
        self.clients: dict[str, int] = {}


def _findings(given: SectionInput) -> list[Finding]:
    events = events_of_kind(given, SLOW_FOLLOWERS, *follower_waits.KINDS)
    charged = follower_waits.charged_requests(list(follower_waits.waits_of(events, given.context)))
    written = events[events["kind"] == follower_waits.WRITTEN]
    _, first = np.unique(written["exchange"], return_index=True)
    written = written[np.sort(first)]
    written = written[np.isin(written["exchange"], np.fromiter(charged, np.int64, len(charged)))]
    total, followers = int((written["time"] - written["v1"]).sum()), dict[int, _Follower]()
    columns = ("exchange", "time", "v1", "packet", "client_id")
    for key, end, begin, packet, client in zip(*(written[name].tolist() for name in columns), strict=True):
        wait, number, own = charged[key]
        if not wait:
            continue
        row = followers.setdefault(number, _Follower())
        row.waits.append(wait)
        row.own_ns += own
        if begin < row.begin:
            row.begin, row.packet = begin, packet
        row.end = max(row.end, end)
        name = given.context.text(client) or "?"
        row.clients[name] = row.clients.get(name, 0) + own
    addresses = follower_waits.follower_addresses(events, given.context)
    return [
        _finding(number, addresses.get(number), row, len(written), total)
        for number, row in followers.items()
        if len(row.waits) >= _LEAST and row.own_ns >= _SHARE * total and (_p99(row) or 0) >= _SLOW_NS
    ]


def _p99(row: _Follower) -> int | None:
    return percentile(np.array(row.waits, np.int64), 99)


def _finding(number: int, address: str | None, row: _Follower, produces: int, total: int) -> Finding:
    clients = sorted(row.clients, key=lambda name: (-row.clients[name], name))
    name = f"broker {number}" + (f" ({address})" if address else "")
    more = f" and {len(clients) - 1} more" if len(clients) > 1 else ""
    text = (
        f"follower {name} held back {len(row.waits):,} of {produces:,} Produce requests with acks=all: "
        f"{units.share(row.own_ns / total)} of their broker time, p99 {units.duration(_p99(row) or 0)}; "
        f'most of client "{clients[0]}"{more}'
    )
    parties = (Party("broker", name), *([Party("host", address)] if address else []), Party("client", clients[0]))
    numbers = {
        "wait_ns": sum(row.waits), "own_ns": row.own_ns, "wait_p99_ns": _p99(row), "wait_max_ns": max(row.waits),
        "broker_ns": total, "share": row.own_ns / total, "produces": produces, "held_back": len(row.waits),
        "follower": number,
    }  # fmt: skip
    return Finding(
        SLOW_FOLLOWERS.id, WARNING, LABEL, text, row.own_ns, row.begin, row.end, numbers, (row.packet,), parties,
        SLOW_FOLLOWERS.setting, SLOW_FOLLOWERS.remedy, (("sections", "replication"),),
    )  # fmt: skip


SLOW_FOLLOWERS = Signature(
    "slow_follower",
    "a follower slows acks=all",
    "The leader answers Produce requests with acks=all directly after the same follower's Fetch beyond their records. "
    "The other followers have fetched them before. Meanwhile the leader has no Fetch of that follower: it is the "
    "follower that is late.",
    "replica.lag.time.max.ms, num.replica.fetchers, min.insync.replicas",
    "Find what keeps that broker (its disk, its GC, its network). While it is slow, `replica.lag.time.max.ms` decides "
    "how long writers wait for it; more `num.replica.fetchers` help if it is the fetching.",
    f"its own time is {_SHARE:.0%} of the broker time of Produce requests with acks=all, over {_LEAST} requests at "
    f"least, and the 99th percentile of its waits {_SLOW_NS // 1_000_000} ms: a usual follower fetches again within "
    "some ms. It needs a capture at the leader's host, with the traffic between brokers.",
    _findings,
    read=follower_waits.read,
    facts=follower_waits.FACTS,
    events=follower_waits.KINDS,
    on_request=True,
)
