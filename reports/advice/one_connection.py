"""One connection asked for more than it carries: requests wait behind each other, not for the broker."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..counting.count_table import MAX, MIN, SUM
from ..counting.rollup import api_label
from ..findings import WARNING, Finding
from ..questions.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..questions.gathered import Gathered
from ..questions.notable import BEHIND_NS, SLOW_NS
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature
from .sums import rows_of, work_of_clients

#: The largest part of the client's time.
_SHARE = 0.5
#: Requests ahead of each: Java's clients have 5 in flight at most by default, so up to 4 are usual.
_AHEAD = 5
#: Of the time that the broker works for a connection. If slow requests have so much of it, others wait behind these:
#: the broker stalls, and fewer requests in flight would wait as long.
_SLOW_SHARE = 0.5

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


def _read(gathered: Gathered, tally: Tally) -> None:
    rows, waits = gathered.exchanges, gathered.column("hol_wait_ns")
    broker = gathered.column("broker_ns") - gathered.column("waiting_ns")
    is_slow = broker >= SLOW_NS
    chosen = np.flatnonzero(((waits >= BEHIND_NS) | is_slow) & (gathered.column("outcome") == ANSWERED))
    # Behind requests that a quota delays or may delay, or that wait for data, other settings matter.
    others = ("hol_throttle_wait_ns", "hol_poll_wait_ns", "hol_unknown_wait_ns")
    behind = waits[chosen] - sum(rows[name][chosen] for name in others)
    waited, busy = chosen[behind >= BEHIND_NS], chosen[(behind >= BEHIND_NS) | is_slow[chosen]]
    if len(busy):
        tally.add(_BUSY.name, {"connection": rows["connection"][busy]}, {
            "broker_ns": broker[busy], "slow_ns": np.where(is_slow[busy], broker[busy], 0),
        })  # fmt: skip
    chosen, behind = waited, behind[behind >= BEHIND_NS]
    if len(chosen):
        tally.add(_FORM.name, {name: rows[name][chosen] for name in _FORM.keys}, {
            "behind_ns": behind, "exchanges": 1, "longest_ns": behind,
            "own_ns": gathered.column("total_ns")[chosen] - waits[chosen] - rows["throttle_wait_ns"][chosen],
            "broker_ns": broker[chosen],
            "first": rows["request_first"][chosen], "last": rows["response_last"][chosen],
            "packet": rows["request_packet_first"][chosen],
        })  # fmt: skip


def _findings(given: SectionInput) -> list[Finding]:
    work = work_of_clients(given)
    busy = {row["connection"]: (row["broker_ns"], row["slow_ns"]) for row in rows_of(given, _BUSY)}
    groups: dict[tuple[int, int, int], list[dict[str, int]]] = {}
    for row in rows_of(given, _FORM):
        if row["connection"] != -1:
            groups.setdefault((row["client_id"], row["client_ip"], row["api_key"]), []).append(row)
    made = []
    for (client, ip, _), rows in groups.items():
        whole = work.get((client, ip))
        if whole is not None and not _is_stalled([busy.get(row["connection"], (0, 0)) for row in rows]):
            finding = _finding(given, rows, whole.time_ns)
            made += [] if finding is None else [finding]
    return made


def _is_stalled(connections: list[tuple[int, int]]) -> bool:
    """Whether a few slow requests kept connections busy, of (broker time, slow requests' part of it)."""
    return sum(slow for _, slow in connections) >= _SLOW_SHARE * max(sum(broker for broker, _ in connections), 1)


def _finding(given: SectionInput, rows: list[dict[str, int]], time_ns: int) -> Finding | None:
    """The finding on the exchanges of a client and an API that waited behind others."""
    context, one = given.context, max(rows, key=lambda row: row["behind_ns"])
    behind, exchanges = sum(row["behind_ns"] for row in rows), sum(row["exchanges"] for row in rows)
    own, broker = (sum(row[name] for row in rows) // exchanges for name in ("own_ns", "broker_ns"))
    mean = behind // exchanges
    ahead = mean / max(own, 1)
    # Of a burst of n requests each waits for n / 2 on average. If fewer waited, one slow request was ahead of them all.
    is_deep = ahead <= exchanges / len(rows) / 2 + 1
    if behind < _SHARE * time_ns or mean < SLOW_NS or broker >= SLOW_NS or ahead < _AHEAD or not is_deep:
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
    "Many requests are in flight on one connection. A broker handles those of a connection one after another, so each "
    "waits for all that are ahead (head-of-line wait), although the broker needs little time for each.",
    "max.in.flight.requests.per.connection, batch.size, linger.ms",
    "Send fewer and larger requests (`batch.size`, `linger.ms`), or use more connections: more producers, more "
    "consumers, or more fetchers. Fewer requests in flight (`max.in.flight.requests.per.connection`) move the wait "
    "into the client.",
    f"that wait is {_SHARE:.0%} of the client's time or more, so the largest part of it, and "
    f"{units.duration(SLOW_NS)} or more for each request, as for slow clients; the broker needs less than that; and "
    f"{_AHEAD} requests or more are ahead of each: by default Java's clients have {_AHEAD} in flight. It is "
    "silent if slow requests ahead are what the others wait for: if requests that take the broker "
    f"{units.duration(SLOW_NS)} or more have {_SLOW_SHARE:.0%} of its time for those connections. Waits behind "
    "requests that a quota delays, or that wait for data or members, do not count.",
    _findings,
    (_FORM, _BUSY),
    _read,
    follows=("single_records",),
)
