"""Clients: one row for each client_id, address and software, with the versions in use and a verdict on the time.

A client names its software in ApiVersions (KIP-511). Earlier requests count with the only software of that client_id
and address. If there are several, or none, these requests have a row of their own. A connection counts with its last
client_id. Two names are the same if they print the same. Software that no ApiVersions names is that of the
ClientHellos, if they all show the same: `probably Go`.

Connections that were not decrypted have rows by address and probable software, after those with requests.

`verdict` is where most of the time of a slow client went. "Slow" means that the 99th percentile of total time is at
least 20 ms, without Fetch, which waits for data, and without JoinGroup and SyncGroup, which wait for other members. A
client is also slow if its Fetches take 20 ms on average besides these waits. And its requests must have cost time that
a person notices (`slow_times`). The parts of the time are those of `time_shares`, without waits for data and members:

head-of-line  behind earlier requests of the same connection
throttled     a quota
broker        the broker, and receiver and sender at its end
network       loss and path, with the round trip from the capture point to the broker
client        receiver and sender at the client's end
failing       most of its requests fail, or the same grave error comes again and again (`client_failures`), or advice
              has an error on a client that is not slow (records are lost, a broker cannot be reached)
unknown       no part explains it, or the throttle times of most exchanges were not captured (snap length, gaps)
encrypted     its connections were not decrypted, so its requests are unknown
ok            the client is not slow

The table has the share of each part, as evidence. Clients come in the order of the time that they lost, and then the
cluster's own: those that send what only a broker sends, or have the name and the address of one (`own_brokers`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, ORPHAN_RESPONSE, WAITS
from kafkatap.dissector.kafka.releases import oldest_release_for, removed_in
from kafkatap.kernels.arrays import dict_rows, distinct_values, is_among, new_numbers

from ..batch import Array, Context
from ..connection_words import P_TLS
from ..counting import tally
from ..counting.connection_counts import KEY, VALUES, connection_totals
from ..counting.counts import ReportCounts
from ..counting.histogram import P50, P99
from ..counting.rollup import Label, Rolled, add_up, api_label, group_columns, maybe, numbered, value_columns
from ..findings import ERROR, Finding
from ..model import Column, ReportTable, Row, Value, Versions, in_columns, in_rows
from ..parties import has_own_name
from ..section_parts.notable import SLOW_NS
from ..tls_software import probable_software
from . import time_shares
from .own_brokers import BROKER_APIS, own_by
from .slow_times import noticed_ns
from .time_shares import Spent, has_unknown_waits

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("verdict", "verdict", "text", "failing: most requests fail, or advice has an error on it; or where most of "
           "the time went: network, broker, client, throttled, head-of-line, unknown; ok: not slow; encrypted: its "
           "connections were not decrypted"),
    Column("evidence", "evidence", "text",
           f"what fails; or {time_shares.EVIDENCE}, if the client is slow; or what shows that it is one of the "
           "cluster's own"),
    Column("address", "address", "text", "IP address of the client", 1, end="client"),
    Column("software", "software", "text", "name and version of the client software (KIP-511); probably, perhaps: what "
           "its ClientHellos show (docs/tls.md)", 1),
    Column("connections", "conns", "count", "TCP connections whose last client_id this is", 2),
    Column("requests", "requests", "count", "requests; null: its connections were not decrypted"),
    Column("oldest_release", "min. broker\nversion", "text",
           "oldest Kafka release that supports all API versions in use", 1),
    Column("removed", "gone\nin 4.0", "versions", "API versions in use that Kafka 4.0 removed", 3),
    Column("api_versions", "API versions", "versions", "all API versions in use", 9),
    Column("request_bytes", "sent", "bytes", "size of the requests", 2),
    Column("response_bytes", "received", "bytes", "size of the responses", 2),
    Column("failed_exchanges", "failed", "count", "exchanges whose response has a non-zero error code"),
    Column("error_codes", "error\ncodes", "count", "non-zero error codes in the responses", 2),
    Column("throttled", "throt-\ntled", "count", "responses with throttle_time_ms above zero", 2),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "throttle wait, summed", 2),
    Column("hol_throttle_wait_sum_ns", "HOL\nthrottle sum", "ns",
           "head-of-line wait behind throttled requests, summed", 9),
    Column("hol_poll_wait_sum_ns", "HOL poll\nsum", "ns",
           "head-of-line wait behind Fetch, ShareFetch, JoinGroup and SyncGroup requests, summed", 9),
    Column("total_p50_ns", "total\np50", "ns", "total time, median (without Fetch, JoinGroup, SyncGroup)", 4),
    Column("total_p99_ns", "total\np99", "ns", "total time, 99th percentile (without Fetch, JoinGroup, SyncGroup)"),
    Column("rtt_ns", "RTT", "ns", "TCP round trip time of the handshakes, median", 2),
    Column("retransmitted_packets", "retrans-\nmissions", "count",
           "retransmitted packets with payload of which the first copy was captured, too", 4),
    Column("retransmitted_share", "bytes re-\ntransmitted", "share",
           "share of the payload bytes that was retransmitted", 2),
    Column("zero_windows", "zero\nwin.", "count", "number of times that the client closed its receive window", 4),
    Column("total_sum_ns", "total\nsum", "ns",
           "total time, summed, without waits for data and members: what the shares are of", 9),
    *time_shares.COLUMNS,
    Column("client_share", "client\nshare", "share",
           "share of the time: of receiver and sender, at the client's end", 9),
    Column("nagle_share", "Nagle\nshare", "share", "share of the time: of sender, Nagle with delayed ACK", 9),
    time_shares.HOL_BEHIND._replace(rank=9),
    Column("is_own", "own", "flag", "whether it is one of the cluster's own brokers and controllers", 9),
)  # fmt: skip

#: Columns that are values of groups, and waits that are summed.
_AS_COUNTED = ("request_bytes", "response_bytes", "failed_exchanges", "error_codes", "throttled")
_SUMMED_WAITS = ("throttle_wait", "hol_throttle_wait", "hol_poll_wait")
UNKNOWN = "unknown"
#: The verdict on a client that is not slow.
FINE = "ok"
#: The verdict on a client whose requests fail.
FAILING = "failing"
ENCRYPTED = "encrypted"

Software = tuple[str | None, str | None]
Who = tuple[str | None, str | None, str | None, str | None]  #: client_id, client_ip, software, software_version


class _Encrypted(NamedTuple):
    """A client whose connections were not decrypted. `software`: what its ClientHellos show, in words."""

    address: str | None
    software: str | None


class _Traffic:
    """Sums over the connections of one client. `probable`: what ClientHellos show of one that names no software."""

    def __init__(self, rtt: int | None = None) -> None:
        self.connections = 0
        self.probable = set[str | None]()
        self.rtt = rtt
        self.bytes = 0
        self.retransmitted_bytes = 0
        self.retransmitted_packets = 0
        self.zero_windows = 0

    def probable_software(self) -> str | None:
        return next(iter(self.probable)) if len(self.probable) == 1 else None

    def values(self) -> Row:
        """What TCP shows of a client."""
        return {
            "connections": self.connections, "rtt_ns": self.rtt, "retransmitted_packets": self.retransmitted_packets,
            "retransmitted_share": self.retransmitted_bytes / self.bytes if self.bytes else None,
            "zero_windows": self.zero_windows,
        }  # fmt: skip


_NO_TRAFFIC = _Traffic()


def clients(
    counts: ReportCounts, context: Context, failing: Mapping[Value, str], advice: Sequence[Finding] = ()
) -> ReportTable:
    """Rows in descending order of lost time, the total time without waits for data and members; the cluster's own
    clients come last. `failing`: what fails, by client_id. `advice`: its findings."""
    firsts = [
        (finding.label, party) for finding in advice if finding.severity == ERROR
        for party in takewhile(lambda party: party.kind in ("client", "host"), finding.parties)
    ]  # fmt: skip
    harmed = {party.name: label for label, party in firsts if party.kind == "client"}
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    numbers = [columns[n].tolist() for n in ("client_id", "client_ip", "software", "software_version")]
    names = texts_of(numbers, context)
    known = software_seen(names)
    requests = counts.groups.value_rows()[:, :ORPHAN_RESPONSE].sum(axis=1) > 0
    people: list[Who]
    people, who = numbered(  # type: ignore[assignment]
        with_software(w, known) if has_any else None for w, has_any in zip(names, requests.tolist(), strict=True)
    )
    rolled = add_up(counts.groups, tally.GROUP_VALUES, counts.histograms, list(people), who)
    times = _times(counts, len(people), who, columns["api_key"])
    traffic_of = _traffic_by_client(context, known)[0]
    total = rolled.exchanges()
    by_name = sorted(range(len(people)), key=list(map(str, people)).__getitem__)
    lost = np.asarray(sum(times.parts.values()))
    own = _own(people, who, columns, context)
    is_own = np.zeros(len(people), bool)
    is_own[list(own)] = True
    order = np.array(by_name, np.int64)[np.lexsort((-total[by_name], -lost[by_name], is_own[by_name]))]
    times.is_slow[:] &= lost >= noticed_ns(context)
    verdicts, evidence = _verdicts(times, rolled, own)
    for n, key in enumerate(people):
        if key[0] in failing and n not in own:
            verdicts[n], evidence[n] = FAILING, failing[key[0]]
        elif verdicts[n] == FINE and key[0] in harmed:
            verdicts[n], evidence[n] = FAILING, harmed[key[0]]
    traffic = [traffic_of.get(key, _NO_TRAFFIC) for key in people]
    nobody = _NO_TRAFFIC.values()
    of_tcp = [nobody if one is _NO_TRAFFIC else one.values() for one in traffic]
    versions = _versions(columns, who, len(people))
    parts = {name: column.tolist() for name, column in times.parts.items()}
    whole = lost.tolist()
    values: dict[str, Sequence[Value]] = {
        "client_id": [key[0] for key in people], "address": [key[1] for key in people],
        "software": [
            software_text(key) or one.probable_software() for key, one in zip(people, traffic, strict=True)
        ],
        "requests": total.tolist(),
        "oldest_release": [one[0] for one in versions], "removed": [one[1] for one in versions],
        "api_versions": [one[2] for one in versions],
        **{name: rolled.values[name].tolist() for name in _AS_COUNTED},
        **{f"{wait}_sum_ns": rolled.values[f"{wait}_ns"].tolist() for wait in _SUMMED_WAITS},
        **{f"total_{name}_ns": list(map(maybe, column.tolist())) for name, column in times.percentiles.items()},
        **{name: [row[name] for row in of_tcp] for name in nobody},
        "total_sum_ns": whole,
        **{name: _shares(parts[part], whole) for part, name in time_shares.SHARES.items()},
        "client_share": _shares(times.beside["client"].tolist(), whole),
        "nagle_share": _shares(times.beside["nagle"].tolist(), whole),
        time_shares.HOL_BEHIND.name: times.hol_in_words(), "verdict": verdicts, "evidence": evidence,
        "is_own": is_own.tolist(),
    }  # fmt: skip
    rows: list[tuple[Value, ...]] = in_rows(COLUMNS, values)
    notes = ["verdict: where most of the time went, without waits for data and members; ok: not slow."]
    if UNKNOWN in verdicts:
        notes.append("unknown: responses are cut before their throttle time, or no part explains the time.")
    elif own:
        notes.append("The cluster's own brokers and controllers come last.")
    return ReportTable(
        "clients", "Clients", COLUMNS, [rows[i] for i in order.tolist()], tuple(notes), empty="no requests"
    )


def _shares(parts: Sequence[int], whole: Sequence[int]) -> list[Value]:
    return [part / total if total else None for part, total in zip(parts, whole, strict=True)]


class _Times(NamedTuple):
    """The times of each client, int64 (clients,) each. `parts`: of the total time, by name, without waits for data and
    members. `beside`: the other fields of `Spent`. `percentiles`: of total time by name, -1: none. `is_slow`: bool."""

    parts: dict[str, Array]
    beside: dict[str, Array]
    percentiles: dict[str, Array]
    is_slow: Array

    def spent(self, client: int) -> Spent:
        """The parts of one client."""
        parts = {name: int(column[client]) for name, column in self.parts.items()}
        return Spent(parts, **{name: int(column[client]) for name, column in self.beside.items()})

    def hol_in_words(self) -> list[str | None]:
        """What the requests ahead of those of each client waited for."""
        found: list[str | None] = [None] * len(self.is_slow)
        names = ("hol_throttle", "hol_waiting", "hol_unknown", "hol_loss")
        ahead = (self.parts["HOL"], *(self.beside[name] for name in names))
        for client in np.flatnonzero(np.any(ahead, axis=0)).tolist():
            found[client] = self.spent(client).hol_in_words()
        return found


def _times(counts: ReportCounts, people: int, who: Array, api_keys: Array) -> _Times:
    """`who`: the number of the client of each group, -1: none."""

    def added_up(kept: Array) -> tuple[Rolled, Array]:
        """The groups of some APIs added up, and the row of each client there, -1 if it has none."""
        used = np.zeros(people + 1, bool)
        used[np.where(kept, who, people)] = True
        place = new_numbers(used[:people])
        rows = np.where(kept & (who >= 0), np.append(place, -1)[who], -1)
        keys: list[Label] = [()] * int(used[:people].sum())
        return add_up(counts.groups, tally.GROUP_VALUES, counts.histograms, keys, rows), place

    (times, of_times), (fetches, of_fetches) = (
        added_up(kept) for kept in (~is_among(api_keys, WAITS), is_among(api_keys, FETCHES))
    )
    spent, fetched = (
        time_shares.spent_columns({name: np.append(column, 0)[place] for name, column in rolled.values.items()})
        for rolled, place in ((times, of_times), (fetches, of_fetches))
    )
    # Fetches count without their waits for data, and without those of requests ahead.
    fetched["HOL"] = np.maximum(fetched["HOL"] - fetched["hol_waiting"], 0)
    fetched["waiting"], fetched["hol_waiting"] = np.zeros((2, people), np.int64)
    fetched_ns = sum(fetched[name] for name in time_shares.NAMES)
    answered = np.append(fetches.values["answered"], 0)[of_fetches]
    found = times.percentiles(tally.M_TOTAL, times.values["total_max"], (P50, P99))
    p50, p99 = np.append(found, [[-1, -1]], axis=0)[of_times].T
    both = {name: column + fetched[name] for name, column in spent.items()}
    parts = {name: both.pop(name) for name in time_shares.NAMES}
    is_slow = (p99 >= SLOW_NS) | (fetched_ns >= SLOW_NS * np.maximum(answered, 1))
    return _Times(parts, both, {"p50": p50, "p99": p99}, is_slow)


def _versions(columns: Mapping[str, Array], who: Array, people: int) -> list[tuple[Value, Value, Value]]:
    """The oldest release that supports the API versions of each client, those that Kafka 4.0 removed, and all."""
    kept = (who >= 0) & (columns["api_version"] >= 0)
    rows = [columns[name][kept] for name in ("api_version", "api_key")]
    order = np.lexsort((*rows, who[kept]))
    pairs = list(zip(*(column[order].tolist() for column in reversed(rows)), strict=True))
    ends = [0, *np.cumsum(np.bincount(who[kept], minlength=people)).tolist()]
    known: dict[tuple[tuple[int, int], ...], tuple[Value, Value, Value]] = {}
    found = []
    for first, end in pairwise(ends):
        own = tuple(pairs[first:end])
        if own not in known:
            gone = {(key, version) for key, version in own if (removed_in(key, version) or "").startswith("4.0")}
            known[own] = oldest_release_for(own) or None, by_api(gone), by_api(set(own))
        found.append(known[own])
    return found


def _own(people: Sequence[Who], who: Array, columns: Mapping[str, Array], context: Context) -> dict[int, str]:
    """The clients that are the cluster's own, by number, and what shows it."""
    addresses = (context.address(n) for n in distinct_values(columns["broker_ip"]).tolist())
    brokers = {address for address in addresses if address is not None}
    apis = defaultdict[int, set[int]](set)
    may_be = is_among(columns["api_key"], sorted(BROKER_APIS)) & (who >= 0)
    named = [n for n, (name, address, *_) in enumerate(people) if has_own_name(name) and address in brokers]
    possible = distinct_values(np.concatenate([who[may_be], np.array(named, np.int64)]))
    kept = np.flatnonzero(is_among(who, possible))
    for client, api in zip(who[kept].tolist(), columns["api_key"][kept].tolist(), strict=True):
        apis[client].add(api)
    found = {n: own_by(people[n][0], people[n][1], apis[n], False, brokers) for n in possible.tolist()}
    return {n: why for n, why in found.items() if why}


def _verdicts(times: _Times, rolled: Rolled, own: Mapping[int, str]) -> tuple[list[str], list[str | None]]:
    """The verdict on each client, and its evidence in words. `own`: what shows that a client is the cluster's own."""
    people = len(times.is_slow)
    verdicts, evidence = [FINE] * people, [own.get(n) for n in range(people)]
    for client in np.flatnonzero(times.is_slow).tolist():
        parts, is_known = times.spent(client), not has_unknown_waits(rolled, client)
        verdicts[client] = verdict(True, parts, is_known)
        evidence[client] = parts.in_words(is_known=is_known)
    return verdicts, evidence


def with_encrypted(table: ReportTable, context: Context) -> ReportTable:
    """The table of clients with those whose connections were not decrypted, the most connections first."""
    found = _traffic_by_client(context, {})[1]
    if not found:
        return table
    unknown: Row = dict.fromkeys(column.name for column in COLUMNS)
    rows = in_columns(COLUMNS, (
        {**unknown, **client._asdict(), **traffic.values(), "removed": (), "api_versions": (), "is_own": False,
         "verdict": ENCRYPTED}
        for client, traffic in sorted(found.items(), key=lambda item: (-item[1].connections, str(item[0])))
    ))  # fmt: skip
    note = f"{ENCRYPTED}: connections that were not decrypted, with software as their ClientHellos suggest."
    return table.replace(rows=[*table.rows, *rows], notes=(*table.notes[:1], note))


def verdict(is_slow: bool, parts: Spent, is_known: bool = True) -> str:
    """Where most of the time went, as the module docstring says. `parts`: without waits for data and members.
    `is_known`: whether most throttle times are."""
    if not is_slow:
        return FINE
    found = by_verdict(parts)
    largest = max(found, key=lambda name: found[name])
    if largest == "broker" and not is_known:
        return UNKNOWN
    return largest


def by_verdict(parts: Spent) -> dict[str, int]:
    """The parts, ns, by the verdict that they are evidence of."""
    p = parts.parts
    return {
        "broker": p["broker"] + p["receiver"] + p["sender"] - parts.client,
        "head-of-line": p["HOL"] - parts.hol_loss,
        "throttled": p["throttle"],
        "network": p["loss"] + p["path"] + parts.hol_loss,
        "client": parts.client,
        UNKNOWN: p["unexplained"],
    }


def by_api(pairs: set[tuple[int, int]]) -> tuple[Versions, ...]:
    """(api_key, version) pairs as names of APIs with their versions, ascending by key."""
    by_api: dict[int, list[int]] = defaultdict(list)
    for api_key, version in sorted(pairs):
        by_api[api_key].append(version)
    return tuple((api_label(key), tuple(versions)) for key, versions in by_api.items())


def texts_of(numbers: Sequence[Sequence[int]], context: Context) -> list[Who]:
    """The texts of four columns of numbers (client_id, client_ip, software, software_version), row by row."""
    client, ip, name, version = numbers
    strings = {n: context.text(n) for n in {*client, *name, *version}}
    addresses = {n: context.address(n) for n in set(ip)}
    return [
        (strings[a], addresses[b], strings[c], strings[d]) for a, b, c, d in zip(client, ip, name, version, strict=True)
    ]


def software_seen(labels: list[Who]) -> dict[Software, set[Software]]:
    """The software of each client_id and address."""
    seen: dict[Software, set[Software]] = defaultdict(set)
    for client, ip, name, version in labels:
        if name is not None:
            seen[client, ip].add((name, version))
    return seen


def with_software(who: Who, known: dict[Software, set[Software]]) -> Who:
    client, ip, name, version = who
    options = known.get((client, ip), set())
    if name is None and len(options) == 1:
        name, version = next(iter(options))
    return client, ip, name, version


def software_text(who: Who) -> str | None:
    name, version = who[2:]
    return None if name is None else f"{name} {version}" if version else name


def _traffic_by_client(
    context: Context, known: dict[Software, set[Software]]
) -> tuple[dict[Who, _Traffic], dict[_Encrypted, _Traffic]]:
    """The connections of clients, and of those whose connections were not decrypted."""
    counts = connection_totals(context)
    keys = group_columns(counts.table, KEY)
    people = texts_of([keys[n].tolist() for n in ("client_id", "client_ip", "software", "software_version")], context)
    hellos = keys["tls_ja4"].tolist()
    probable = {n: None if n < 0 else probable_software(context.text(n) or "") for n in set(hellos)}
    shown = {n: None if found is None else found.in_words for n, found in probable.items()}
    clients: list[Who | _Encrypted] = [
        _Encrypted(who[1], shown[hello]) if is_encrypted else with_software(who, known)
        for who, hello, is_encrypted in zip(people, hellos, (keys["protocol"] == P_TLS).tolist(), strict=True)
    ]
    numbers: dict[Who | _Encrypted, int] = {}
    groups = np.array([numbers.setdefault(client, len(numbers)) for client in clients], np.int64)
    each = [_Traffic(rtt) for rtt in counts.median_rtts(groups, len(numbers))]
    values = dict_rows(value_columns(counts.table, VALUES))
    for group, hello, value in zip(groups.tolist(), hellos, values, strict=True):
        traffic = each[group]
        traffic.connections += value["connections"]
        traffic.bytes += value["bytes"]
        traffic.retransmitted_bytes += value["retransmitted_bytes"]
        traffic.retransmitted_packets += value["retransmitted_packets"]
        traffic.zero_windows += value["client_zero_windows"]
        if hello >= 0:
            traffic.probable.add(shown[hello])
    found: tuple[dict[Who, _Traffic], dict[_Encrypted, _Traffic]] = {}, {}
    for client, n in numbers.items():
        if isinstance(client, _Encrypted):
            found[1][client] = each[n]
        else:
            found[0][client] = each[n]
    return found
