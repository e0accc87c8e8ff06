"""Counts of a window as rows: one for each API, client, topic or broker.

Some requests wait for something else: Fetch for data, JoinGroup and SyncGroup for other members. Their times do not
show a slow broker. So a row has the times of its other requests. If it has no others, it has the times of waiting ones
(long polls only if there is nothing else), and `waits` is True.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kafkatap.dissector.dtypes import WAITS
from kafkatap.reports.batch import Array, Context
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.count_table import CountTable
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.counting.histogram import P50, P99, Histograms
from kafkatap.reports.counting.rollup import Rolled, api_label, group_columns, maybe, roll_up, value_columns
from kafkatap.reports.sections.error_codes import error_label
from kafkatap.reports.sections.latency import names_by

SECOND = 1_000_000_000
BY = ("api", "client", "topic", "broker")
#: Kinds of requests, in the order in which a row prefers their times.
_PROMPT, _WAITING, _LONG_POLL = range(3)

#: Columns of tally.GROUP_VALUES that are summed for a row.
_SUMMED = (
    "answered", "no_reply_expected", "in_flight", "unanswered", "response_lost", "request_bytes", "response_bytes",
    "throttled", "throttle_wait_ns", "failed_exchanges", "error_codes",
)  # fmt: skip

Label = int | str | None
#: A part of the traffic, from the outside in: (one of BY, name); in `recent_exchanges` also ("connection", number).
Scope = tuple[tuple[str, str | int | None], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One API, client, topic or broker in a window. Rates are per second, durations ns, None if unknown.

    `name` is the name on the wire, None for requests without a client_id or topic. `api_key`: of a row by API, else
    None. An exchange with several topics counts for each.
    """

    name: str | None
    api_key: int | None
    waits: bool  # its times are those of requests that wait for data or for other members
    long_poll: bool  # ... of Fetches that waited out their max_wait_ms
    requests: int
    request_rate: float
    in_rate: float  # bytes of requests
    out_rate: float  # bytes of responses
    broker_p50: int | None
    broker_p99: int | None
    total_p99: int | None
    throttled: int  # responses with throttle_time_ms above zero
    throttle_wait: int  # sum
    failed: int  # exchanges with a non-zero error code
    error_codes: int
    error_code_rate: float
    top_error: str | None  # the most frequent error code
    unanswered: int  # including responses that were lost
    addresses: tuple[str, ...] = ()  # of a client, those with the most requests first


def window_rows(counts: ReportCounts, context: Context, by: str, length: int, within: Scope = ()) -> list[Row]:
    """Rows by one of BY, the most requests first. `length`: of the window, ns. `within`: only this part of the traffic.
    A topic can only be broken down by API."""
    topics = by == "topic" or any(kind == "topic" for kind, _ in within)
    table, histograms = (counts.topics, counts.topic_histograms) if topics else (counts.groups, counts.histograms)
    c = group_columns(table, tally.TOPIC_KEY if topics else tally.GROUP_KEY)
    names = names_of_groups(c, context, by)
    chosen = _chosen(c, context, within)
    errors = _top_errors(counts, context, by, within)
    rows = _rows(table, histograms, c, names, chosen, errors, length)
    if by != "client" or topics:
        return rows
    addresses = _addresses(table, c, names, chosen, context)
    return [replace(row, addresses=addresses.get(row.name, ())) for row in rows]


def _addresses(
    table: CountTable, c: Mapping[str, Array], names: Sequence[Label], chosen: Sequence[bool] | None, context: Context
) -> dict[Label, tuple[str, ...]]:
    """The addresses of each client, those with the most requests first."""
    answered = value_columns(table, tally.GROUP_VALUES)["answered"].tolist()
    found: dict[Label, Counter[int]] = defaultdict(Counter)
    for n, (name, ip) in enumerate(zip(names, c["client_ip"].tolist(), strict=True)):
        if ip >= 0 and (chosen is None or chosen[n]):
            found[name][ip] += answered[n]
    return {
        name: tuple(_named(text, context) for ip, _ in each.most_common() if (text := context.address(ip)) is not None)
        for name, each in found.items()
    }


def _named(address: str, context: Context) -> str:
    """An address behind the name that it has now."""
    host = None if context.hosts is None else context.hosts.name_at(address, time.time_ns())
    return address if host is None else f"{host.text} {address}"


def total_row(counts: ReportCounts, length: int) -> Row | None:
    """One row of all traffic; None if there was none."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    e = group_columns(counts.errors, tally.ERROR_KEY)
    frequent: Counter[int] = Counter()
    for code, count in zip(e["error_code"].tolist(), counts.errors.value_rows()[:, 0].tolist(), strict=True):
        frequent[code] += count
    top: dict[Label, str] = {"": error_label(frequent.most_common(1)[0][0])} if frequent else {}
    everything = [""] * len(counts.groups)
    rows = _rows(counts.groups, counts.histograms, c, everything, None, top, length, api=False)
    return rows[0] if rows else None


def names_of_groups(c: Mapping[str, Array], context: Context, by: str) -> Sequence[Label]:
    """The name of each group of counts by one of BY. `c`: their key columns."""
    if by == "api":
        return [api_label(key, poll) for key, poll in zip(c["api_key"].tolist(), c["long_poll"].tolist(), strict=True)]
    return names_by(c, context, by)


def _chosen(c: Mapping[str, Array], context: Context, within: Scope) -> Sequence[bool] | None:
    """Which groups belong to a scope."""
    parts = [[name == wanted for name in names_of_groups(c, context, kind)] for kind, wanted in within]
    return [all(fits) for fits in zip(*parts, strict=True)] if parts else None


def _top_errors(counts: ReportCounts, context: Context, by: str, within: Scope) -> dict[Label, str]:
    """The most frequent error code of each row, by name."""
    # Counts of error codes do not separate long polls: each counts for both.
    e = {name: np.tile(column, 2) for name, column in group_columns(counts.errors, tally.ERROR_KEY).items()}
    e["long_poll"] = np.repeat((0, 1), len(counts.errors))
    names = names_of_groups(e, context, by)
    chosen = _chosen(e, context, within)
    found: dict[Label, Counter[int]] = defaultdict(Counter)
    codes, times = e["error_code"].tolist(), np.tile(counts.errors.value_rows()[:, 0], 2).tolist()
    for i, name in enumerate(names):
        if chosen is None or chosen[i]:
            found[name][codes[i]] += times[i]
    return {name: error_label(min(n.items(), key=lambda kv: (-kv[1], kv[0]))[0]) for name, n in found.items()}


def _rows(
    table: CountTable,
    histograms: Histograms,
    c: Mapping[str, Array],
    names: Sequence[Label],
    chosen: Sequence[bool] | None,
    errors: Mapping[Label, str],
    length: int,
    api: bool = True,
) -> list[Row]:
    tiers = np.where(c["long_poll"] != 0, _LONG_POLL, np.where(np.isin(c["api_key"], WAITS), _WAITING, _PROMPT))
    labels: list[tuple[Label, ...] | None] = [
        (name, tier) if chosen is None or chosen[i] else None
        for i, (name, tier) in enumerate(zip(names, tiers.tolist(), strict=True))
    ]
    rolled = roll_up(table, tally.GROUP_VALUES, histograms, labels)
    return _to_rows(rolled, dict(zip(names, c["api_key"].tolist(), strict=True)) if api else {}, errors, length)


def _to_rows(rolled: Rolled, api_keys: Mapping[Label, int], errors: Mapping[Label, str], length: int) -> list[Row]:
    """Rows from groups rolled up by (name, tier): sums of all tiers, times of the first tier that has any."""
    places: dict[Label, int] = {}
    place_of = np.array([places.setdefault(name, len(places)) for name, _ in rolled.keys], np.int64)
    v = {column: np.zeros(len(places), np.int64) for column in _SUMMED}
    for column, total in v.items():
        np.add.at(total, place_of, rolled.values[column])
    requests = v["answered"] + v["no_reply_expected"] + v["in_flight"] + v["unanswered"] + v["response_lost"]
    timed = _timed(rolled, place_of, len(places))
    tiers = [rolled.keys[i][1] for i in timed.tolist()]
    broker = rolled.percentiles(tally.M_BROKER, rolled.values["broker_max"], (P50, P99))[timed]
    total_p99 = rolled.percentiles(tally.M_TOTAL, rolled.values["total_max"], (P99,))[timed, 0]
    seconds = max(length, 1) / SECOND
    columns = zip(
        places, tiers, requests.tolist(), v["request_bytes"].tolist(), v["response_bytes"].tolist(),
        broker[:, 0].tolist(), broker[:, 1].tolist(), total_p99.tolist(), v["throttled"].tolist(),
        v["throttle_wait_ns"].tolist(), v["failed_exchanges"].tolist(), v["error_codes"].tolist(),
        (v["unanswered"] + v["response_lost"]).tolist(), strict=True,
    )  # fmt: skip
    rows = [
        Row(
            None if name is None else str(name), api_keys.get(name), tier != _PROMPT, tier == _LONG_POLL,
            count, count / seconds, sent / seconds, got / seconds, maybe(p50), maybe(p99), maybe(total),
            throttled, wait, failed, codes, codes / seconds, errors.get(name) if codes else None, unanswered,
        )
        for name, tier, count, sent, got, p50, p99, total, throttled, wait, failed, codes, unanswered in columns
        if count
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.requests, row.name or ""))


def _timed(rolled: Rolled, place_of: Array, places: int) -> Array:
    """The rolled row with the times of each place: the first tier with answers, else the first."""
    tiers = np.array([tier for _, tier in rolled.keys], np.int64)
    rank = tiers + np.where(rolled.values["answered"] > 0, 0, _LONG_POLL + 1)
    order = np.lexsort((rank, place_of))
    found: Array = order[np.searchsorted(place_of[order], np.arange(places))]
    return found
