"""One connection asked for more than it carries: requests wait behind each other, not for the broker."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE
from kafkatap.kernels import kernel

from .. import units
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM, CountArrays, claim_row, has_room
from ..counting.rollup import api_label
from ..findings import WARNING, Finding
from ..section_parts.section import BatchCount, SectionInput
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature
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
#: Shorter waits are not counted.
_COUNTED_NS = COUNTED_NS

_FORM = CountForm(
    "advice.behind",
    {"client_id": TEXT, "client_ip": ADDRESS, "broker_ip": ADDRESS, "broker_port": NUMBER, "api_key": NUMBER,
     "connection": NUMBER},
    {"behind_ns": SUM, "own_ns": SUM, "broker_ns": SUM, "exchanges": SUM, "longest_ns": MAX, "first": MIN, "last": MAX,
     "packet": MIN},
    {"client_id": OTHER, "client_ip": -1, "broker_ip": -1, "broker_port": -1, "api_key": -1, "connection": -1},
)  # fmt: skip
#: Of connections, whatever the API: the broker time of requests that waited or are slow. It handles one at a time.
_BUSY = CountForm(
    "advice.busy-connections", {"connection": NUMBER}, {"broker_ns": SUM, "slow_ns": SUM}, {"connection": -1}
)


_BEHIND_WIDTH, _BEHIND_COLUMNS = len(_FORM.keys), len(_FORM.values)
_BUSY_COLUMNS = len(_BUSY.values)


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
        if e.outcome != ANSWERED or (behind < _COUNTED_NS and broker < _SLOW_NS):
            continue
        if not has_room(waited, _BEHIND_COLUMNS, 1) or not has_room(busy, _BUSY_COLUMNS, 1):
            return i
        probe[0] = e.connection
        v = claim_row(busy.keys, 1, busy.slots, busy.used, probe, 0) * _BUSY_COLUMNS
        busy.values[v] += broker
        busy.values[v + 1] += broker if broker >= _SLOW_NS else 0
        if behind < _COUNTED_NS:
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


def _findings(given: SectionInput) -> list[Finding]:
    work, stalled = work_of_clients(given), given.once(stalled_seconds)
    busy = {row["connection"]: (row["broker_ns"], row["slow_ns"]) for row in given.rows(_BUSY.name)}
    groups: dict[tuple[int, int, int], list[dict[str, int]]] = {}
    for row in given.rows(_FORM.name):
        if row["connection"] != -1:
            groups.setdefault((row["client_id"], row["client_ip"], row["api_key"]), []).append(row)
    made = []
    for (client, ip, api), rows in groups.items():
        whole = work.get((client, ip))
        if whole is not None and not _is_stalled([busy.get(row["connection"], (0, 0)) for row in rows]):
            time = whole.time_ns - stalled_of_client(stalled, client, ip)
            finding = _finding(given, rows, time, stalled.get((client, ip, api), NONE))
            made += [] if finding is None else [finding]
    return made


def _is_stalled(connections: list[tuple[int, int]]) -> bool:
    """Whether a few slow requests kept connections busy, of (broker time, slow requests' part of it)."""
    return sum(slow for _, slow in connections) >= _SLOW_SHARE * max(sum(broker for broker, _ in connections), 1)


def _finding(given: SectionInput, rows: list[dict[str, int]], time_ns: int, stalled: Stalled) -> Finding | None:
    """The finding on the exchanges of a client and an API that waited behind others. `time_ns`: of the client, without
    stalled seconds."""
    context, one = given.context, max(rows, key=lambda row: row["behind_ns"])
    every = sum(row["exchanges"] for row in rows)
    own, broker = (sum(row[name] for row in rows) // every for name in ("own_ns", "broker_ns"))
    behind, exchanges = sum(row["behind_ns"] for row in rows) - stalled.behind_ns, every - stalled.waited
    if behind <= 0 or exchanges <= 0:
        return None
    mean = behind // exchanges
    ahead = mean / max(own, 1)
    # Of a burst of n requests each waits for n / 2 on average. If fewer waited, one slow request was ahead of them all.
    is_deep = ahead <= exchanges / len(rows) / 2 + 1
    if behind < _SHARE * time_ns or mean < _SLOW_NS or broker >= _SLOW_NS or ahead < _AHEAD or not is_deep:
        return None
    who, api = client_words(context, one["client_id"], one["client_ip"]), api_label(one["api_key"])
    many = "one connection" if len(rows) == 1 else f"{len(rows):,} connections"
    text = (
        f"{who}: {exchanges:,} {api} requests wait {units.duration(mean)} on average behind about {ahead:,.0f} others "
        f"on {many}, {units.share(behind / time_ns)} of its time; the broker needs {units.duration(broker)} for one"
    )
    parties = (
        *client_parties(context, one["client_id"], one["client_ip"]),
        broker_party(context, one["broker_ip"], one["broker_port"]),
    )
    return Finding(
        ONE_CONNECTION.id, WARNING, ONE_CONNECTION.label, text, behind, min(row["first"] for row in rows),
        max(row["last"] for row in rows),
        {"hol_wait_ns": behind, "mean_ns": mean, "longest_ns": max(row["longest_ns"] for row in rows),
         "broker_mean_ns": broker, "requests_ahead": round(ahead, 1), "exchanges": exchanges, "connections": len(rows),
         "share": behind / time_ns},
        (min(row["packet"] for row in rows),), parties, ONE_CONNECTION.setting, ONE_CONNECTION.remedy,
        (("by", "connection"), ("api", api), *client_option(context, one["client_id"])),
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
    (_FORM, _BUSY),
    counts=(STALLS,),
    batch_count=BatchCount((_FORM, _BUSY), count_behind),
    follows=("single_records",),
)
