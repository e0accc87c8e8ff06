"""Clients: one row for each client_id, address and software, with the versions in use and a verdict on the time.

A client names its software in ApiVersions (KIP-511). Earlier requests count with the only software of that client_id
and address. If there are several, or none, these requests have a row of their own. A connection counts with its last
client_id. Two names are the same if they print the same.

`verdict` applies these rules in order. "Slow" means that the 99th percentile of total time is at least 20 ms, without
Fetch, which waits for data, and without JoinGroup and SyncGroup, which wait for other members. A client is also slow if
the mean throttle wait and transfer of its Fetches is at least 20 ms.

1. throttled  slow, and throttling is more than half of the total time
2. network    at least 1 % of the TCP payload was retransmitted, in at least RETRANSMITTED_PACKETS packets
3. -          not slow
4. the largest part of the summed total time:
   throttled  throttle wait, and head-of-line wait behind throttled requests
   broker     broker time (without Fetch, JoinGroup and SyncGroup), and head-of-line wait while the broker worked
   client     transfer, if the client closed its receive window
   network    transfer, otherwise
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, WAITS
from kafkatap.dissector.kafka.releases import oldest_release_for, removed_in

from ..batch import Context
from ..counting import tally
from ..counting.connection_counts import KEY, VALUES, connection_totals
from ..counting.counts import ReportCounts
from ..counting.histogram import P50, P99
from ..counting.rollup import Rolled, api_label, group_columns, maybe, roll_up
from ..model import Column, ReportTable, Value, Versions

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("address", "address", "text", "IP address of the client"),
    Column("software", "software", "text", "name and version of the client software (KIP-511)", 1),
    Column("connections", "conns", "count", "TCP connections whose last client_id this is", 1),
    Column("requests", "requests", "count", "requests"),
    Column("oldest_release", "needs\nKafka", "text", "oldest Kafka release that supports all API versions in use"),
    Column("removed", "gone\nin 4.0", "versions", "API versions in use that Kafka 4.0 removed", 3),
    Column("api_versions", "API versions", "versions", "all API versions in use", 9),
    Column("request_bytes", "sent", "bytes", "size of the requests", 2),
    Column("response_bytes", "received", "bytes", "size of the responses", 2),
    Column("failed_exchanges", "failed", "count", "exchanges whose response has a non-zero error code"),
    Column("error_codes", "error\ncodes", "count", "non-zero error codes in the responses", 2),
    Column("throttled", "throt-\ntled", "count", "responses with throttle_time_ms above zero", 1),
    Column("throttle_wait_sum_ns", "throttle\nwait", "ns", "throttle wait, summed", 1),
    Column(
        "hol_throttle_wait_sum_ns",
        "HOL\nthrottle",
        "ns",
        "head-of-line wait behind throttled requests, summed",
        9,
    ),
    Column(
        "hol_poll_wait_sum_ns",
        "HOL\npoll",
        "ns",
        "head-of-line wait behind Fetch, ShareFetch, JoinGroup and SyncGroup requests, summed",
        9,
    ),
    Column("total_p50_ns", "total\np50", "ns", "total time, median (without Fetch, JoinGroup, SyncGroup)", 4),
    Column("total_p99_ns", "total\np99", "ns", "total time, 99th percentile (without Fetch, JoinGroup, SyncGroup)"),
    Column("rtt_ns", "RTT", "ns", "TCP round trip time of the handshakes, median", 1),
    Column(
        "retransmitted_packets",
        "retrans-\nmitted",
        "count",
        "retransmitted packets with payload",
        4,
    ),
    Column(
        "retransmitted_share",
        "retrans-\nmitted",
        "share",
        "share of the payload bytes that was retransmitted",
        2,
    ),
    Column("zero_windows", "zero\nwin.", "count", "number of times that the client closed its receive window", 4),
    Column("verdict", "verdict", "text", "where the time went: network, broker, client, throttled, or - (not slow)"),
)

RETRANSMITTED_SHARE = 0.01
RETRANSMITTED_PACKETS = 5
SLOW_NS = 20_000_000

Software = tuple[str | None, str | None]
Who = tuple[str | None, str | None, str | None, str | None]  #: client_id, client_ip, software, software_version


class _Traffic:
    """Sums over the connections of one client."""

    def __init__(self, rtt: int | None = None) -> None:
        self.connections = 0
        self.rtt = rtt
        self.bytes = 0
        self.retransmitted_bytes = 0
        self.retransmitted_packets = 0
        self.zero_windows = 0


def clients(counts: ReportCounts, context: Context) -> ReportTable:
    """Rows in descending order of requests."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    c: dict[str, list[int]] = {name: column.tolist() for name, column in columns.items()}
    groups = len(counts.groups)
    names = _texts([c[n] for n in ("client_id", "client_ip", "software", "software_version")], context)
    known = _software_seen(names)
    who = [_with_software(w, known) for w in names]
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
    traffic_of = _traffic_by_client(context, known)
    v, total = rolled.values, rolled.exchanges()
    rows: list[tuple[Value, ...]] = []
    for i in sorted(range(len(rolled)), key=lambda i: (-int(total[i]), str(rolled.keys[i]))):
        key: Who = rolled.keys[i]  # type: ignore[assignment]
        traffic, t = traffic_of.get(key, _Traffic()), time_row.get(key, -1)
        p50, p99 = (maybe(p) for p in percentiles[t]) if t >= 0 else (None, None)
        share = traffic.retransmitted_bytes / traffic.bytes if traffic.bytes else None
        gone = {(k, n) for k, n in versions[key] if (removed_in(k, n) or "").startswith("4.0")}
        rows.append((
            key[0], key[1], _software_text(key),
            traffic.connections, int(total[i]),
            oldest_release_for(versions[key]) or None, _by_api(gone), _by_api(versions[key]),
            *(int(v[n][i]) for n in (
                "request_bytes", "response_bytes", "failed_exchanges", "error_codes", "throttled", "throttle_wait_ns",
                "hol_throttle_wait_ns",
                "hol_poll_wait_ns",
            )),
            p50, p99, traffic.rtt,
            traffic.retransmitted_packets, share, traffic.zero_windows,
            verdict(traffic, p99, _spent(times, t), _spent(fetches, fetch_row.get(key, -1))),
        ))  # fmt: skip
    notes = (
        "needs Kafka: the oldest release that supports all API versions in use.",
        "total p99: without Fetch, JoinGroup and SyncGroup, which wait for data or for other members.",
        "verdict: network (1 % or more was retransmitted), - (p99 below 20 ms), otherwise where most of the time went. "
        "Head-of-line wait counts as the cause that delayed the request ahead.",
    )
    return ReportTable("clients", "Clients", COLUMNS, rows, notes, empty="no requests")


class Spent(NamedTuple):
    """Parts of the total time of answered exchanges, ns. A head-of-line wait counts as the cause that delayed the
    request ahead. It does not count if that request waited for data or for other members of a group."""

    answered: int = 0
    broker: int = 0
    throttle: int = 0
    transfer: int = 0


def _spent(rolled: Rolled, row: int) -> Spent:
    if row < 0:
        return Spent()
    total, broker, hol, hol_throttle, hol_poll, throttle = (
        int(rolled.values[name][row])
        for name in (
            "total_ns",
            "broker_ns",
            "hol_wait_ns",
            "hol_throttle_wait_ns",
            "hol_poll_wait_ns",
            "throttle_wait_ns",
        )
    )
    return Spent(
        answered=int(rolled.values["answered"][row]),
        broker=broker + hol - hol_throttle - hol_poll,
        throttle=throttle + hol_throttle,
        transfer=total - broker - hol - throttle,
    )


def verdict(traffic: _Traffic, p99: int | None, prompt: Spent, fetches: Spent) -> str:
    """Apply the rules of the module docstring. `prompt`: exchanges that do not wait for data or members."""
    throttle, transfer = prompt.throttle + fetches.throttle, prompt.transfer + fetches.transfer
    broker = prompt.broker
    slow_fetches = fetches.throttle + fetches.transfer >= SLOW_NS * max(fetches.answered, 1)
    slow = (p99 is not None and p99 >= SLOW_NS) or slow_fetches
    if slow and throttle > broker + transfer:
        return "throttled"
    if (
        traffic.retransmitted_packets >= RETRANSMITTED_PACKETS
        and traffic.retransmitted_bytes >= RETRANSMITTED_SHARE * traffic.bytes
    ):
        return "network"
    if not slow:
        return "-"
    if throttle >= max(broker, transfer):
        return "throttled"
    if broker >= transfer:
        return "broker"
    return "client" if traffic.zero_windows else "network"


def _by_api(pairs: set[tuple[int, int]]) -> tuple[Versions, ...]:
    """(api_key, version) pairs as names of APIs with their versions, ascending by key."""
    by_api: dict[int, list[int]] = defaultdict(list)
    for api_key, version in sorted(pairs):
        by_api[api_key].append(version)
    return tuple((api_label(key), tuple(versions)) for key, versions in by_api.items())


def _texts(numbers: Sequence[Sequence[int]], context: Context) -> list[Who]:
    """The texts of four columns of numbers (client_id, client_ip, software, software_version), row by row."""
    client, ip, name, version = numbers
    strings = {n: context.text(n) for n in {*client, *name, *version}}
    addresses = {n: context.address(n) for n in set(ip)}
    return [
        (strings[a], addresses[b], strings[c], strings[d]) for a, b, c, d in zip(client, ip, name, version, strict=True)
    ]


def _software_seen(labels: list[Who]) -> dict[Software, set[Software]]:
    """The software of each client_id and address."""
    seen: dict[Software, set[Software]] = defaultdict(set)
    for client, ip, name, version in labels:
        if name is not None:
            seen[client, ip].add((name, version))
    return seen


def _with_software(who: Who, known: dict[Software, set[Software]]) -> Who:
    client, ip, name, version = who
    options = known.get((client, ip), set())
    if name is None and len(options) == 1:
        name, version = next(iter(options))
    return client, ip, name, version


def _software_text(who: Who) -> str | None:
    name, version = who[2:]
    return None if name is None else f"{name} {version}" if version else name


def _traffic_by_client(context: Context, known: dict[Software, set[Software]]) -> dict[Who, _Traffic]:
    counts = connection_totals(context)
    keys = group_columns(counts.table, KEY)
    people = _texts([keys[n].tolist() for n in ("client_id", "client_ip", "software", "software_version")], context)
    numbers: dict[Who, int] = {}
    groups = np.array([numbers.setdefault(_with_software(who, known), len(numbers)) for who in people], np.int64)
    traffic_of = {
        who: _Traffic(rtt=rtt) for who, rtt in zip(numbers, counts.median_rtts(groups, len(numbers)), strict=True)
    }
    each = list(traffic_of.values())
    for group, values in zip(groups.tolist(), counts.table.value_rows().tolist(), strict=True):
        traffic, value = each[group], dict(zip(VALUES, values, strict=True))
        traffic.connections += value["connections"]
        traffic.bytes += value["bytes"]
        traffic.retransmitted_bytes += value["retransmitted_bytes"]
        traffic.retransmitted_packets += value["retransmitted_packets"]
        traffic.zero_windows += value["client_zero_windows"]
    return traffic_of
