"""One connection asked for more than it carries: requests wait behind each other, not for the broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE
from kafkatap.kernels import kernel

from .. import units
from ..counting.count_forms import NUMBER
from ..counting.count_table import MAX, MIN, SUM, CountArrays, claim_row, has_room
from ..counting.rollup import api_label
from ..findings import Finding
from ..section_parts.counted import CONNECTION, PAIR, form
from ..section_parts.section import BatchCount, SectionInput
from .parties import client_option, client_words
from .signature import Signature, spanning
from .stalled_seconds import COUNTED_NS, NONE, STALL_NS, STALLS, Stalled, stalled_of_client, stalled_seconds
from .sums import work_of_clients

#: The largest part of the client's time.
_SHARE = 0.5
#: Requests ahead of each: Java's clients have 5 in flight at most by default, so up to 4 are usual.
_AHEAD = 5
#: A request is slow from here on, as for clients in the report. If the broker alone takes so long, it is the cause.
_SLOW_NS = 20_000_000
#: Of the time that the broker works for a connection. If slow requests have so much of it, others wait behind these:
#: the broker stalls, and fewer requests in flight would wait as long.
_SLOW_SHARE = 0.5

_BEHIND = form(
    "advice.behind", PAIR | {"api_key": NUMBER} | CONNECTION, behind_ns=SUM, own_ns=SUM, broker_ns=SUM, exchanges=SUM,
    longest_ns=MAX, first=MIN, last=MAX, packet=MIN,
)  # fmt: skip
#: Of connections, whatever the API: the broker time of requests that waited or are slow. It handles one at a time.
_BUSY = form("advice.busy-connections", CONNECTION, broker_ns=SUM, slow_ns=SUM)

#: What is added up of the connections of a client.
_SUMS = ("behind_ns", "own_ns", "broker_ns", "exchanges")
_BEHIND_WIDTH, _BEHIND_COLUMNS, _BUSY_COLUMNS = len(_BEHIND.keys), len(_BEHIND.values), len(_BUSY.values)


@kernel(np.int64, CountArrays, CountArrays, EXCHANGE, int)
def count_behind(probe, waited, busy, exchanges, first):  # type: ignore[no-untyped-def]
    """Add exchanges that waited behind others, or that are slow, as of `BatchCount`.

    Behind requests that a quota delays or may delay, or that wait for data or lost segments, other settings matter.
    None shortens the round trip to the broker.
    """
    for i in range(first, len(exchanges)):
        e = exchanges[i]
        behind = e.hol_wait_ns - e.hol_throttle_wait_ns - e.hol_poll_wait_ns - e.hol_unknown_wait_ns
        behind -= e.hol_loss_wait_ns + e.hol_round_trip_ns
        broker = e.broker_ns - e.waiting_ns - e.round_trip_ns
        if e.outcome != ANSWERED or (behind < COUNTED_NS and broker < _SLOW_NS):
            continue
        if not has_room(waited, _BEHIND_COLUMNS, 1) or not has_room(busy, _BUSY_COLUMNS, 1):
            return i
        probe[0] = e.connection
        v = claim_row(busy.keys, 1, busy.slots, busy.used, probe, 0) * _BUSY_COLUMNS
        busy.values[v] += broker
        busy.values[v + 1] += broker if broker >= _SLOW_NS else 0
        if behind < COUNTED_NS:
            continue
        probe[0] = e.client_id
        probe[1] = e.client_ip
        probe[2] = e.broker_ip
        probe[3] = e.broker_port
        probe[4] = e.api_key
        probe[5] = e.connection
        v = claim_row(waited.keys, _BEHIND_WIDTH, waited.slots, waited.used, probe, 0) * _BEHIND_COLUMNS
        values = waited.values
        values[v] += behind
        values[v + 1] += e.total_ns - e.hol_wait_ns - e.throttle_wait_ns - e.round_trip_ns
        values[v + 2] += broker
        values[v + 3] += 1
        values[v + 4] = max(values[v + 4], behind)
        values[v + 5] = min(values[v + 5], e.request_first)
        values[v + 6] = max(values[v + 6], e.response_last)
        values[v + 7] = min(values[v + 7], e.request_packet_first)
    return len(exchanges)


def _findings(given: SectionInput) -> Iterator[Finding]:
    work, stalled = work_of_clients(given), given.once(stalled_seconds)
    busy = {row["connection"]: row for row in given.rows(_BUSY.name)}
    groups: dict[tuple[int, int, int], list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_BEHIND.name):
        if row["connection"] != -1:
            groups[row["client_id"], row["client_ip"], row["api_key"]].append(row)
    for (client, ip, api), rows in groups.items():
        whole = work.get((client, ip))
        if whole is not None and not _is_stalled([busy[n] for row in rows if (n := row["connection"]) in busy]):
            time = whole.time_ns - stalled_of_client(stalled, client, ip)
            yield from _finding(given, rows, time, stalled.get((client, ip, api), NONE))


def _is_stalled(connections: list[dict[str, int]]) -> bool:
    """Whether a few slow requests kept connections busy."""
    slow, broker = (sum(row[name] for row in connections) for name in ("slow_ns", "broker_ns"))
    return slow >= _SLOW_SHARE * max(broker, 1)


def _finding(given: SectionInput, rows: list[dict[str, int]], time_ns: int, stalled: Stalled) -> Iterator[Finding]:
    """The finding on the exchanges of a client and an API that waited behind others. `time_ns`: of the client, without
    stalled seconds."""
    one, sums = max(rows, key=lambda row: row["behind_ns"]), {name: sum(row[name] for row in rows) for name in _SUMS}
    own, broker = (sums[name] // sums["exchanges"] for name in ("own_ns", "broker_ns"))
    behind, exchanges = sums["behind_ns"] - stalled.behind_ns, sums["exchanges"] - stalled.waited
    if behind <= 0 or exchanges <= 0:
        return
    mean, share = behind // exchanges, behind / max(time_ns, 1)
    ahead = mean / max(own, 1)
    # Of a burst of n requests each waits for n / 2 on average. If fewer waited, one slow request was ahead of them all.
    is_deep = ahead <= exchanges / len(rows) / 2 + 1
    if share < _SHARE or mean < _SLOW_NS or broker >= _SLOW_NS or ahead < _AHEAD or not is_deep:
        return
    who, api = client_words(given.context, one["client_id"], one["client_ip"]), api_label(one["api_key"])
    many = "one connection" if len(rows) == 1 else f"{len(rows):,} connections"
    text = (
        f"{who}: {exchanges:,} {api} requests wait {units.duration(mean)} on average behind about {ahead:,.0f} others "
        f"on {many}, {units.share(share)} of its time; the broker needs {units.duration(broker)} for one"
    )
    numbers = {
        "hol_wait_ns": behind, "mean_ns": mean, "longest_ns": max(row["longest_ns"] for row in rows),
        "broker_mean_ns": broker, "requests_ahead": round(ahead, 1), "exchanges": exchanges, "connections": len(rows),
        "share": share,
    }  # fmt: skip
    row = spanning([one, *rows])
    yield ONE_CONNECTION.found(
        given, row, text, behind, numbers,
        options=(("by", "connection"), ("api", api), *client_option(given.context, one["client_id"])),
    )  # fmt: skip


ONE_CONNECTION = Signature(
    "one_connection",
    "one connection is asked for more than it carries",
    "Many requests are in flight on one connection, and each waits for all ahead (head-of-line wait).",
    "max.in.flight.requests.per.connection, batch.size, linger.ms",
    "Send fewer and larger requests (`batch.size`, `linger.ms`), or use more connections: more producers, more "
    "consumers, or more fetchers. Fewer requests in flight (`max.in.flight.requests.per.connection`) move the wait "
    "into the client.",
    f"that wait is {_SHARE:.0%} of the client's time, and {units.duration(_SLOW_NS)} for each request; the broker "
    f"needs less than that; and {_AHEAD} requests are ahead of each. Requests that take the broker "
    f"{units.duration(_SLOW_NS)} or more have less than {_SLOW_SHARE:.0%} of its time there. Waits behind throttled or "
    "waiting requests, or lost segments, do not count, nor seconds in which one request takes "
    f"{units.duration(STALL_NS)} by itself.",
    _findings,
    counts=(STALLS,),
    batch_counts=(BatchCount((_BEHIND, _BUSY), count_behind),),
)
