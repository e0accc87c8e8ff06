"""Quotas: which clients obey a throttle time, and the byte rates that brokers compare with quotas.

Since Kafka 2.0 (KIP-219) a broker answers a throttled request at once, does not read from the connection for the
throttle time, and expects the client not to send for as long. A request that was sent earlier waits in the socket. A
request that was on its way before the response (pipelined) is no fault of the client. Older brokers hold the response
back themselves.

A broker counts the bytes of Produce requests and of Fetch responses, by client_id. Its rate is the sum over the last
`num` windows by the time that they cover so far. It throttles above the quota, for as long as the rate takes to become
the quota. The section has sums of whole seconds, so its windows may begin up to one window earlier than the broker's.
A broker empties the Fetch response that would exceed the quota, so the bytes of a throttled reader stay just below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array, Context, endpoint
from ..counting.count_forms import TEXT
from ..model import Column, ReportTable, Row, in_columns, largest_first
from ..section_parts.counted import BROKER, KEPT, Rows, counted, largest, least, total
from ..section_parts.event_rows import EventKind, EventView, events_of
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section, SectionInput
from ..section_parts.section_counts import Tally
from ..units import SECOND

OBEDIENCE = (
    Column("client_id", "client", "text", "client_id of the requests", of="name"),
    Column("verdict", "verdict", "text", "whether the client obeys", of=lambda c: c.verdict()),
    Column("software", "software", "text", "the client's software and version, as it names itself", 1,
           of=lambda c: c.software or None),
    Column("throttled", "throttled", "count", "responses with throttle_time_ms above zero"),
    Column("throttle_time_sum_ms", "throttle\ntime sum", "ms", "throttle_time_ms, summed", of="time_ms"),
    Column("kept", "kept", "count", "of these, responses after which nothing was sent too early"),
    Column("early", "sent\ntoo early", "count", "requests that were sent during the throttle time"),
    Column("early_bytes", "bytes into\nmuted socket", "bytes", "bytes of the requests that were sent too early"),
    Column("gap_p50_ns", "gap\np50", "ns", "from a throttled response to the next request, median where known",
           of=lambda c: _median(c.gaps)),
    Column("gap_time_p50_ms", "throttle\ntime p50", "ms", "throttle_time_ms of the same responses, median",
           of=lambda c: _median(c.times)),
    Column("in_flight", "in flight", "count", "requests that were sent before the response, and waited", 1),
    Column("waited_ns", "waited", "ns",
           "throttle wait of the requests in flight or sent too early, summed", 1, of="waited"),
)  # fmt: skip
RATES = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("broker", "broker", "text", "address and port of the broker", end="broker"),
    Column("direction", "counts", "text", "produce: bytes of Produce requests; fetch: bytes of Fetch responses"),
    Column("counted_bytes", "counted\nbytes", "bytes", "all bytes that the quota counts"),
    Column("busiest", "busiest\nsecond", "bytes", "bytes of the busiest second", 1),
    Column("rate", "highest\nrate, 1/s", "bytes", "highest rate over the windows, in bytes a second"),
    Column("rate_at", "at", "time", "when that was", 1),
    Column("quota", "quota\n1/s", "bytes", "the quota of --quota, in bytes a second"),
    Column("over_from", "over quota\nfrom", "time", "when the rate was first seen above the quota"),
    Column("over_windows", "windows\nover", "count", "windows with a rate above the quota"),
    Column("throttle_ns", "longest\nthrottle", "ns", "the throttle time for the highest rate by Kafka's formula"),
)
#: Kafka's default: quota.window.num and quota.window.size.seconds.
WINDOW = (11, 1)
_PRODUCE, _FETCH = 0, 1
#: An exchange that a quota delayed.
_DELAYED = EventKind(1, EventView(
    throttle_time_ms="v0", request_first="v1", request_last="v2", response_first="v3", response_last="v4",
    throttle_wait_ns="v5", request_bytes="v6", client_software="s0", client_software_version="s1",
))  # fmt: skip
_DIRECTIONS = ("produce", "fetch")
#: A request is too early if less than this share of the throttle time has passed.
_EARLY = 0.9
#: How long (ns) a client may need to read a response.
_READING = 5_000_000
#: A client obeys up to the first share of requests too early for each throttled response. From the second share on it
#: ignores throttle times: it sends one or more for each.
_OBEYS, _IGNORES = 0.25, 0.5
#: Throttle times up to this are no evidence of what a broker does.
_SHORT_MS = 5
_NOTHING = np.zeros(0, np.int64)


def _counted_at(x: Rows) -> Any:
    return np.where(x.api_key == _FETCH, x.response_first, x.request_last)


def _counted_bytes(x: Rows) -> Any:
    of_request = x.request_bytes - x.request_cut_bytes
    return np.where(x.api_key == _FETCH, x.response_bytes - x.response_cut_bytes, of_request)


#: The bytes of each second, and the times of the first and the last of them.
FORM = counted(
    "quotas.bytes", {"client_id": TEXT, **BROKER},
    (lambda x: is_among(x.api_key, (_PRODUCE, _FETCH)),
     lambda x: (_counted_at(x) != NO_TIME) & (_counted_bytes(x) > 0)),
    more={"direction": lambda x: x.api_key == _FETCH, "second": lambda x: _counted_at(x) // SECOND},
    other=dict.fromkeys((*BROKER, "direction", "second"), KEPT),
    bytes=total(_counted_bytes), first=least(_counted_at), last=largest(_counted_at),
)  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Note exchanges with a throttle time or a throttle wait, at the request's first byte."""
    column = gathered.column
    delayed = (column("throttle_time_ms") > 0) | (column("throttle_wait_ns") > 0) | (column("hol_throttle_wait_ns") > 0)
    chosen = np.flatnonzero(delayed & (column("request_first") != NO_TIME))
    if not len(chosen):
        return
    events, rows = events_of(gathered, chosen, _DELAYED, at_request=True), gathered.rows(chosen)
    events["throttle_time_ms"] = np.maximum(rows["throttle_time_ms"], 0)
    events["request_bytes"] = rows["request_bytes"] + 4
    for name in (
        "request_first", "request_last", "response_first", "response_last", "throttle_wait_ns", "client_software",
        "client_software_version",
    ):  # fmt: skip
        events[name] = rows[name]
    tally.note(events)


# ---------------------------------------------------------------- obedience


class _Client:
    """What one client did after its throttled responses."""

    def __init__(self, name: str | None) -> None:
        self.name, self.software = name, ""
        self.throttled = self.time_ms = self.kept = self.early = self.early_bytes = 0
        self.in_flight = self.waited = self.judged = 0
        self.gaps: list[Array] = []
        self.times: list[Array] = []

    def add(self, events: Array, is_muted: bool) -> None:
        """Add the events of one connection, in order of time. `is_muted`: the broker answers at once, and then mutes
        the connection."""
        is_throttled = (events["throttle_time_ms"] > 0) & (events["response_last"] != NO_TIME)
        responses = events[is_throttled]
        self.throttled += len(responses)
        self.time_ms += int(responses["throttle_time_ms"].sum())
        self.waited += int(events["throttle_wait_ns"].sum())
        if not is_muted:
            self.kept += len(responses)
            return
        self.judged += len(responses)
        sent = events["request_first"]
        times = responses["response_last"]
        until = times + (_EARLY * 1_000_000 * responses["throttle_time_ms"]).astype(np.int64)
        last = np.searchsorted(times, sent, side="left") - 1  # the last throttled response before each request
        has = last >= 0
        is_early = has & (sent < np.append(until, 0)[last])
        is_early &= ~_leaves_with_response(events, times, last, is_early)
        waits = events["throttle_wait_ns"] > 0
        is_late = waits & ~is_early
        self.early += int(is_early.sum())
        self.early_bytes += int(events["request_bytes"][is_early].sum())
        self.in_flight += int(is_late.sum())
        self.kept += len(responses) - len(distinct_values(last[is_early]))
        first = np.searchsorted(sent, times, side="right")
        known = first < len(sent)
        # Another response may lie between: then the gap belongs to that one.
        known[:-1] &= first[:-1] != first[1:]
        self.gaps.append(sent[np.minimum(first, len(sent) - 1)][known] - times[known])
        self.times.append(responses["throttle_time_ms"][known])

    def verdict(self) -> str:
        if not self.judged:
            return "broker holds responses back"
        ignored = self.early / self.judged
        if ignored <= _OBEYS:
            return "obeys"
        if ignored >= _IGNORES:
            return "ignores it"
        return "obeys in part"


def _median(of_connections: list[Array]) -> int | None:
    values = np.concatenate([*of_connections, _NOTHING])
    return int(np.median(values)) if len(values) else None


def _leaves_with_response(events: Array, times: Array, last: Array, is_early: Array) -> Array:
    """Which requests were on their way before the client had read the response: the first one right after it, while
    others were unanswered."""
    sent = events["request_first"]
    early = np.flatnonzero(is_early)
    _, first = np.unique(last[early], return_index=True)
    first = early[first]
    answered = np.searchsorted(np.sort(events["response_last"][events["response_last"] != NO_TIME]), sent[first])
    is_pipelined = first > answered
    found = np.zeros(len(sent), bool)
    found[first] = is_pipelined & (sent[first] - times[last[first]] <= _READING)
    return found


def _connections(events: Array) -> Iterator[Array]:
    """The events of each connection, in order of their requests."""
    if len(events):
        rows = events[np.lexsort((events["request_last"], events["request_first"], events["connection"]))]
        yield from np.split(rows, np.flatnonzero(np.diff(rows["connection"])) + 1)


def _muting_brokers(events: Array) -> set[tuple[int, int]]:
    """The brokers (address, port) that sent a throttled response sooner than its throttle time: Kafka 2.0 or later."""
    throttled = events[(events["throttle_time_ms"] > _SHORT_MS) & (events["response_first"] != NO_TIME)]
    sooner = throttled[
        throttled["response_first"] - throttled["request_last"] < _EARLY * 1_000_000 * throttled["throttle_time_ms"]
    ]
    return set(zip(sooner["broker_ip"].tolist(), sooner["broker_port"].tolist(), strict=True))


def _obedience(events: Array, context: Context) -> ReportTable:
    clients: dict[str | None, _Client] = {}
    events = _DELAYED.view.of(events)
    throttled = events[events["throttle_time_ms"] > 0]
    brokers = set(zip(throttled["broker_ip"].tolist(), throttled["broker_port"].tolist(), strict=True))
    muting = _muting_brokers(events)
    for rows in _connections(events):
        broker = int(rows["broker_ip"][0]), int(rows["broker_port"][0])
        last = rows[["client_id", "client_software", "client_software_version"]][-1]
        name, *software = map(context.text, map(int, last))
        client = clients.setdefault(name, _Client(name))
        client.software = " ".join(filter(None, software))
        client.add(rows, broker in muting)
    found = in_columns(
        OBEDIENCE, (c for c in clients.values() if c.throttled), lambda c: (-c.early_bytes, -c.time_ms, str(c.name)),
    )  # fmt: skip
    notes: list[str] = []
    if muting:
        notes.append(
            "After a throttled response a client should not send for the throttle time. The gap is known where the "
            "next request was throttled too, or waited."
        )
    if brokers - muting:
        who = "Some of these brokers" if muting else "These brokers"
        notes.append(f"{who} hold throttled responses back, as before Kafka 2.0: a client need not wait after them.")
    return ReportTable(
        "throttle_obedience", "Throttle compliance (KIP-219)", OBEDIENCE, found, tuple(notes),
        empty="no response was throttled",
    )  # fmt: skip


# ---------------------------------------------------------------- rates


class Rate(NamedTuple):
    """The byte rate of a client at a broker. `rate`: the highest, in bytes a second, at the time `at` (ns).

    `over`: the last times (ns) of the windows with a rate above the quota. `throttle_ns`: of the highest rate.
    """

    bytes: int
    busiest: int
    rate: int
    at: int
    over: list[int]
    throttle_ns: int


def rate_of(rows: Array, quota: int | None, window: tuple[int, int]) -> Rate:
    """The highest rate of bytes over `num` windows of `size` seconds. `rows`: int64 (n, 4), by ascending second: the
    second, its bytes, and the times (ns) of the first and the last of them.

    A broker divides by the time that its windows cover so far: the last one is not over. Before it has all windows, it
    takes the missing ones as empty.
    """
    num, size = window
    seconds, sizes, first, last = rows.T
    windows, begin = np.unique((seconds - seconds[0]) // size, return_index=True)
    by_window = np.add.reduceat(sizes, begin)
    sums = np.concatenate([[0], np.cumsum(by_window)])
    totals = sums[1:] - sums[np.searchsorted(windows, windows - num, side="right")]
    ends = np.append(begin[1:], len(rows)) - 1
    starts = np.maximum((seconds[0] + windows * size) * SECOND, first[0])
    covered = (num - 1) * size + (last[ends] - starts) / SECOND
    rates = totals / covered
    best = int(rates.argmax())
    is_over = rates > quota if quota is not None else np.zeros(len(rates), bool)
    throttle = (rates[best] / quota - 1) * covered[best] * SECOND if quota and is_over.any() else 0
    return Rate(
        int(sums[-1]), int(by_window.max()) // size, int(rates[best]), int(last[ends[best]]),
        last[ends[is_over]].tolist(), int(throttle),
    )  # fmt: skip


def _rates(given: SectionInput) -> ReportTable:
    keys, found, context = given.keys(FORM.name), given.values(FORM.name), given.context
    quota, window = given.options.get("quota"), given.options.get("window") or WINDOW
    lines = np.stack([keys.pop("second"), *found.values()], axis=1)
    values: list[Row] = []
    for (client, ip, port, direction), mine in groups_of(*keys.values()):
        rate = rate_of(lines[mine[np.argsort(lines[mine, 0])]], quota, window)
        values.append({
            "client_id": context.text(client), "broker": endpoint(context.address(ip), port),
            "direction": _DIRECTIONS[direction], "counted_bytes": rate.bytes, "busiest": rate.busiest,
            "rate": rate.rate, "rate_at": rate.at, "quota": quota, "over_from": rate.over[0] if rate.over else None,
            "over_windows": len(rate.over) if quota is not None else None, "throttle_ns": rate.throttle_ns or None,
        })  # fmt: skip
    num, size = window
    notes = (
        f"Rates are over {num} windows of {size} s, as Kafka counts them (--window). "
        "--quota BYTES says when a client would be throttled.",
    )
    rows = largest_first(RATES, in_columns(RATES, values), "rate", then=("client_id", "broker", "direction"))
    return ReportTable(
        "quota_rates", "Byte rates that quotas limit", RATES, rows, notes, empty="no Produce and no Fetch"
    )


def tables(given: SectionInput) -> Sequence[ReportTable]:
    """Clients by the bytes that they sent too early, then byte rates."""
    return _obedience(given.events("quotas"), given.context), _rates(given)


SECTION = Section(
    "quotas", "Who obeys, and when would a quota throttle whom?",
    columns={"throttle_obedience": OBEDIENCE, "quota_rates": RATES}, tables=tables, counts=(FORM,), read=read,
)  # fmt: skip
