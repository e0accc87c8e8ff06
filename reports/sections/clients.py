"""Who speaks what, and where its time goes: one row for each client_id, address and software.

Requests before a client's software was told (KIP-511) count with the one software seen for that client_id and address;
where several were, or none, they have a row of their own. A connection counts with its last client_id.
Names are told apart by what they print as.

The verdict is a plain rule, `verdict`:

1. throttled  quotas took more than half of the total time, and that was felt (2.)
   network    else, at least 1 % of the TCP payload, in at least RETRANSMITTED_PACKETS packets, was retransmitted;
              not where captures hold duplicates, which look the same
2. -          else, where the 99th percentile of total time (without requests that wait for something else: Fetch for
              data, JoinGroup and SyncGroup for other members) is below 20 ms, and so is the mean of what quotas and
              transfer took of a Fetch, nothing is slow
3. else the largest part of the summed total time:
   throttled  throttle wait, and head-of-line wait while a quota delayed the requests ahead
   broker     broker time (without that of those requests), and head-of-line wait while the broker worked on others
   client     transfer, where the client's receive window was closed meanwhile
   network    transfer, else
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, WAITS
from kafkatap.dissector.kafka.releases import oldest_release_for, removed_in

from ..batch import Context
from ..counting import tally
from ..counting.connection_counts import KEY, VALUES
from ..counting.counts import ReportCounts
from ..counting.histogram import P50, P99
from ..counting.rollup import Rolled, api_label, group_columns, maybe, roll_up
from ..model import Column, Table, Value, Versions

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("address", "address", "text", "IP address of the client"),
    Column("software", "software", "text", "name and version that the client told (KIP-511)", 1),
    Column("connections", "conns", "count", "TCP connections, by their last client_id", 1),
    Column("requests", "requests", "count", "requests"),
    Column("oldest_release", "needs\nKafka", "text", "oldest Kafka release that knows all API versions used"),
    Column("removed", "gone\nin 4.0", "versions", "API versions used that Kafka 4.0 no longer knows", 3),
    Column("api_versions", "API versions", "versions", "all API versions used", 9),
    Column("request_bytes", "sent", "bytes", "size of the requests", 2),
    Column("response_bytes", "received", "bytes", "size of the responses", 2),
    Column("errors", "errors", "count", "non-zero error codes in the responses"),
    Column("throttled", "throt-\ntled", "count", "responses with throttle_time_ms above zero", 1),
    Column("wait_sum_ns", "throttle\nwait", "ns", "time that quotas delayed its requests on the wire, summed", 1),
    Column(
        "hol_throttle_wait_sum_ns",
        "HOL\nthrottle",
        "ns",
        "time that its requests waited behind throttled ones of their connection, summed",
        9,
    ),
    Column(
        "hol_poll_wait_sum_ns",
        "HOL\npoll",
        "ns",
        "time that they waited behind Fetch, ShareFetch, JoinGroup and SyncGroup requests of their connection, summed",
        9,
    ),
    Column("total_p50_ns", "total\np50", "ns", "total time, median (without Fetch, JoinGroup, SyncGroup)", 4),
    Column("total_p99_ns", "total\np99", "ns", "total time, 99th percentile (without Fetch, JoinGroup, SyncGroup)"),
    Column("rtt_ns", "RTT", "ns", "TCP round trip in the handshakes, median", 1),
    Column(
        "retransmitted_packets",
        "retr.",
        "count",
        "packets with payload that was sent before, both ways; null: captures hold duplicates, which look the same",
        4,
    ),
    Column(
        "retransmitted_share", "retr.", "share", "payload bytes that were retransmitted, both ways; null as before", 2
    ),
    Column("zero_windows", "zero\nwin.", "count", "times that the client's receive window was closed", 4),
    Column("verdict", "verdict", "text", "where the time goes: network, broker, client, throttled, or -"),
)

RETRANSMITTED_SHARE = 0.01
RETRANSMITTED_PACKETS = 5
SLOW_NS = 20_000_000

Software = tuple[str | None, str | None]
Who = tuple[str | None, str | None, str | None, str | None]  #: client_id, client_ip, software, software_version


@dataclass(slots=True)
class _Wire:
    """What the connections of one client add up to."""

    connections: int = 0
    rtt: int | None = None
    bytes: int = 0
    again_bytes: int = 0
    again_packets: int = 0
    zero_windows: int = 0


def clients(counts: ReportCounts, context: Context) -> Table:
    """Rows in descending order of requests."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    c: dict[str, list[int]] = {name: column.tolist() for name, column in columns.items()}
    groups = len(counts.groups)
    told = _texts([c[n] for n in ("client_id", "client_ip", "software", "software_version")], context)
    known = _software_seen(told)
    who = [_settle(w, known) for w in told]
    requests = counts.groups.value_rows()[:, :4].sum(axis=1)
    people: list[tuple[int | str | None, ...] | None] = [w if n else None for w, n in zip(who, requests, strict=True)]
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, people)
    timed: list[tuple[int | str | None, ...] | None] = [
        None if c["api_key"][g] in WAITS else people[g] for g in range(groups)
    ]
    fetching: list[tuple[int | str | None, ...] | None] = [
        people[g] if c["api_key"][g] in FETCHES else None for g in range(groups)
    ]
    times = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, timed)
    percentiles = times.percentiles(tally.M_TOTAL, times.values["total_max"], (P50, P99))
    fetches = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, fetching)
    time_row = {key: i for i, key in enumerate(times.keys)}
    fetch_row = {key: i for i, key in enumerate(fetches.keys)}
    versions: dict[Who, set[tuple[int, int]]] = defaultdict(set)
    for g in range(groups):
        if requests[g] and c["api_version"][g] >= 0:
            versions[who[g]].add((c["api_key"][g], c["api_version"][g]))
    wires = _wires(context, known)
    repeated = any(f.duplicates for f in context.files)
    v, total = rolled.values, rolled.exchanges()
    rows: list[tuple[Value, ...]] = []
    for i in sorted(range(len(rolled)), key=lambda i: (-int(total[i]), str(rolled.keys[i]))):
        key: Who = rolled.keys[i]  # type: ignore[assignment]
        wire, t = wires.get(key, _Wire()), time_row.get(key, -1)
        p50, p99 = (maybe(p) for p in percentiles[t]) if t >= 0 else (None, None)
        if repeated:
            wire.again_packets = wire.again_bytes = 0
        share = wire.again_bytes / wire.bytes if wire.bytes and not repeated else None
        gone = {(k, n) for k, n in versions[key] if (removed_in(k, n) or "").startswith("4.0")}
        rows.append((
            key[0], key[1], _software_text(key),
            wire.connections, int(total[i]),
            oldest_release_for(versions[key]) or None, _by_api(gone), _by_api(versions[key]),
            *(int(v[n][i]) for n in (
                "request_bytes", "response_bytes", "errors", "throttled", "wait_ns", "hol_throttle_wait_ns",
                "hol_poll_wait_ns",
            )),
            p50, p99, wire.rtt,
            None if repeated else wire.again_packets, share, wire.zero_windows,
            verdict(wire, p99, _spent(times, t), _spent(fetches, fetch_row.get(key, -1))),
        ))  # fmt: skip
    notes = (
        "needs Kafka: the oldest release that knows all API versions used.",
        "total p99: without Fetch, JoinGroup and SyncGroup, which wait for data and for other members.",
        "verdict: network (1 % or more retransmitted), - (nothing slower than 20 ms), else where most time went. "
        "Waiting behind a request counts as what that request waited for.",
    )
    return Table("clients", "Clients", COLUMNS, rows, notes, empty="no requests")


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the total time of some answered exchanges went, ns. A head-of-line wait is charged to what the request
    ahead waited for; where that was data or other members of a group, to nobody."""

    count: int = 0
    broker: int = 0
    quota: int = 0
    transfer: int = 0


def _spent(rolled: Rolled, row: int) -> Spent:
    if row < 0:
        return Spent()
    total, broker, queue, by_quota, by_wait, quota = (
        int(rolled.values[name][row])
        for name in ("total_ns", "broker_ns", "hol_wait_ns", "hol_throttle_wait_ns", "hol_poll_wait_ns", "wait_ns")
    )
    return Spent(
        count=int(rolled.values["answered"][row]),
        broker=broker + queue - by_quota - by_wait,
        quota=quota + by_quota,
        transfer=total - broker - queue - quota,
    )


def verdict(wire: _Wire, p99: int | None, prompt: Spent, fetches: Spent) -> str:
    """The rule of this module's docstring. `prompt`: exchanges that wait for nothing else; `fetches`: Fetches."""
    quota, transfer = prompt.quota + fetches.quota, prompt.transfer + fetches.transfer
    broker = prompt.broker
    slow_fetches = fetches.quota + fetches.transfer >= SLOW_NS * max(fetches.count, 1)
    slow = (p99 is not None and p99 >= SLOW_NS) or slow_fetches
    if slow and quota > broker + transfer:
        return "throttled"
    if wire.again_packets >= RETRANSMITTED_PACKETS and wire.again_bytes >= RETRANSMITTED_SHARE * wire.bytes:
        return "network"
    if not slow:
        return "-"
    if quota >= max(broker, transfer):
        return "throttled"
    if broker >= transfer:
        return "broker"
    return "client" if wire.zero_windows else "network"


def _by_api(pairs: set[tuple[int, int]]) -> tuple[Versions, ...]:
    """(api_key, version) pairs as names of APIs with their versions, ascending by key."""
    by_api: dict[int, list[int]] = defaultdict(list)
    for api_key, version in sorted(pairs):
        by_api[api_key].append(version)
    return tuple((api_label(key), tuple(versions)) for key, versions in by_api.items())


def _texts(numbers: Sequence[Sequence[int]], context: Context) -> list[Who]:
    """What columns of numbers (client_id, client_ip, software, software_version) mean, row by row."""
    client, ip, name, version = numbers
    strings = {n: context.text(n) for n in {*client, *name, *version}}
    addresses = {n: context.address(n) for n in set(ip)}
    return [
        (strings[a], addresses[b], strings[c], strings[d]) for a, b, c, d in zip(client, ip, name, version, strict=True)
    ]


def _software_seen(told: list[Who]) -> dict[Software, set[Software]]:
    """The software told for each client_id and address."""
    seen: dict[Software, set[Software]] = defaultdict(set)
    for client, ip, name, version in told:
        if name is not None:
            seen[client, ip].add((name, version))
    return seen


def _settle(who: Who, known: dict[Software, set[Software]]) -> Who:
    client, ip, name, version = who
    options = known.get((client, ip), set())
    if name is None and len(options) == 1:
        name, version = next(iter(options))
    return client, ip, name, version


def _software_text(who: Who) -> str | None:
    name, version = who[2:]
    return None if name is None else f"{name} {version}" if version else name


def _wires(context: Context, known: dict[Software, set[Software]]) -> dict[Who, _Wire]:
    counts = context.connection_counts
    keys = group_columns(counts.table, KEY)
    people = _texts([keys[n].tolist() for n in ("client_id", "client_ip", "software", "software_version")], context)
    numbers: dict[Who, int] = {}
    groups = np.array([numbers.setdefault(_settle(who, known), len(numbers)) for who in people], np.int64)
    wires = {who: _Wire(rtt=rtt) for who, rtt in zip(numbers, counts.median_rtts(groups, len(numbers)), strict=True)}
    each = list(wires.values())
    for group, values in zip(groups.tolist(), counts.table.value_rows().tolist(), strict=True):
        wire, value = each[group], dict(zip(VALUES, values, strict=True))
        wire.connections += value["connections"]
        wire.bytes += value["bytes"]
        wire.again_bytes += value["retransmitted_bytes"]
        wire.again_packets += value["retransmitted_packets"]
        wire.zero_windows += value["client_zero_windows"]
    return wires
