"""Connections: who opens how many and how they end, and what the transfers of the slowest were spent on.

Both tables have all connections of the run, whatever exchanges are selected. A connection's times:

* transfer: the time from the first to the last byte of its requests and responses. It is split into shares: limited by
  the receiver's window, loss, the sender, and the path (`dissector.times`).
* lost waits: the time between request and response in which one of both was lost.

The sentences of `finding` are made from the same columns, by the rules of `_why_slow` and `_why_many`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import units
from ..batch import endpoint
from ..connection_columns import decryptions
from ..connection_words import (
    D_NOT_TLS,
    H_COMPLETE,
    H_REFUSED,
    H_UNANSWERED,
    H_UNFINISHED,
    NO_SCALE,
    WITH_FIN,
    WITH_RST,
)
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..counting.histogram import P50, percentiles
from ..counting.rollup import maybe
from ..model import Column, ReportTable, Row, in_columns
from ..model import Value as Cell
from ..section_parts.counted import BROKER, CONNECTIONS, KEPT, Rows, Value, counted, largest, least, least_where, total
from ..section_parts.section import OTHERS, CountRow, Section, SectionInput

SECOND = 1_000_000_000
#: A connection that is open and silent so long before the capture ends is idle, ns.
IDLE_NS = 60 * SECOND
#: Connections that live no longer than this, ns, of which an address opens so many in a second, are a storm.
SHORT_NS, STORM_RATE = SECOND, 10
#: A share of the transfer from which on a cause is named, and the least transfer time of a connection for that, ns.
NAMED_SHARE, NAMED_NS = 0.2, 10_000_000
#: Retransmissions of a connection from which on they are named.
NAMED_RETRANSMISSIONS = 3
#: The largest window without window scaling, bytes.
UNSCALED = 65_535

ADDRESS_COLUMNS = (
    Column("client_ip", "client IP", "text", "IP address of the client", end="client",
           of=lambda r: OTHERS if r["client_ip"] < 0 else r.context.address(r["client_ip"])),
    Column("broker", "broker", "text", "address and port of the broker", end="broker", of=lambda r: r.end("broker")),
    Column("connections", "conns", "count", "TCP connections"),
    Column("rate", "conns\na second", "text", "connections a second, over the whole capture", 9, of=lambda r: _rate(r)),
    Column("busiest_second", "busiest\nsecond", "count", "connections that began in the busiest second"),
    Column("lifetime_p50_ns", "lifetime\np50", "ns", "time from the first packet to the last, median",
           of=lambda r: maybe(r["lifetime"])),
    Column("half_open", "half-\nopen", "count", "SYNs without an answer, and SYN-ACKs that were not acknowledged"),
    Column("refused", "refused", "count", "SYNs that were answered by a RST or by ICMP"),
    Column("client_fin", "client\nFIN", "count", "connections that a FIN of the client closed first", 1),
    Column("broker_fin", "broker\nFIN", "count", "connections that a FIN of the broker closed first"),
    Column("client_rst", "client\nRST", "count", "connections that a RST of the client closed, without any FIN before"),
    Column("broker_rst", "broker\nRST", "count", "connections that a RST of the broker closed, without any FIN before"),
    Column("still_open", "open", "count", "connections that were not closed when the capture ended", 1),
    Column("idle", "idle", "count", "of these, silent for the last 60 s of the capture", 1),
    Column("without_data", "no\ndata", "count", "complete connections in which the client sent nothing", 2),
    Column("sasl", "SASL", "count", "connections with a SASL handshake", 2),
    Column("tls", "TLS", "count", "connections that use TLS", 2),
    Column("exchanges", "exchanges", "count", "requests and responses on these connections", 2),
    Column("finding", "finding", "text", "what stands out", of=lambda r: _why_many(r)),
)  # fmt: skip
_CAUSES = ("loss", "receiver", "sender", "unexplained")
SLOW_COLUMNS = (
    Column("client_id", "client", "text", "client_id of the last request"),
    Column("client", "client's end", "text", "address and port of the client", end="client"),
    Column("broker", "broker", "text", "address and port of the broker", end="broker"),
    Column("exchanges", "exchanges", "count", "requests and responses", 2),
    Column("total_sum_ns", "total\nsum", "ns", "total time of the exchanges, summed", 4),
    Column("broker_sum_ns", "broker\nsum", "ns", "broker time (without APIs that wait at the broker), summed", 4),
    Column("hol_wait_sum_ns", "HOL wait\nsum", "ns", "head-of-line wait, summed", 5),
    Column("throttle_wait_sum_ns", "throttle\nwait sum", "ns", "throttle wait, summed", 5),
    Column("transfer_sum_ns", "transfer\nsum", "ns",
           "time from first to last byte of requests and responses, summed, and what losses delayed their first byte"),
    Column("loss_share", "loss", "share", "share of it, and of waits before it, while lost data was missing"),
    Column("receiver_share", "receiver", "share", "share of it while the receive window was full"),
    Column("sender_share", "sender", "share", "share of it while the sender had room in the window, and did not send"),
    Column("unexplained_share", "unex-\nplained", "share", "share of it of which the windows are not known", 5),
    Column("path_share", "path", "share", "the rest of it: round trips, congestion window, bandwidth"),
    Column("wait_loss_sum_ns", "lost\nwait sum", "ns", "waits for responses while one of both was lost, summed"),
    Column("rtt_ns", "RTT", "ns", "round trip of the handshake"),
    Column("client_rtt_min_ns", "client\nRTT min", "ns", "round trip from the capture point to the client, least", 3),
    Column("client_rtt_mean_ns", "client\nRTT mean", "ns", "the same, mean; delayed acknowledgements count in it", 4),
    Column("client_rtt_max_ns", "client\nRTT max", "ns", "the same, longest", 4),
    Column("broker_rtt_min_ns", "broker\nRTT min", "ns", "round trip from the capture point to the broker, least", 3),
    Column("broker_rtt_mean_ns", "broker\nRTT mean", "ns", "the same, mean", 4),
    Column("broker_rtt_max_ns", "broker\nRTT max", "ns", "the same, longest", 4),
    Column("retransmissions", "retrans-\nmissions", "count",
           "packets with payload sent before, also if the first copy was not captured, both ends"),
    Column("retransmission_wait_max_ns", "longest\nwait", "ns", "longest wait for a retransmission", 1),
    Column("retransmission_timeouts", "time-\nouts", "count", "retransmissions after 190 ms or more: by a timer", 2),
    Column("zero_window_ns", "zero\nwindow", "ns", "time in which a receive window was closed, both ends", 1),
    *(
        column
        for end in ("client", "broker")
        for column in (
            Column(f"{end}_window_scale", f"{end}\nscale", "count",
                   f"window scale in the SYN of the {end}; -2: without the option, empty: not captured", 5),
            Column(f"{end}_mss", f"{end}\nMSS", "count", f"maximum segment size in the SYN of the {end}", 6),
            Column(f"{end}_sack_permitted", f"{end}\nSACK", "flag", f"the SYN of the {end} permits SACK", 6),
            Column(f"{end}_timestamps", f"{end}\nTS", "flag", f"the SYN of the {end} has TCP timestamps", 6),
            Column(f"{end}_window_max", f"{end}\nwindow", "bytes", f"largest receive window of the {end}", 3),
            Column(f"{end}_in_flight_max", f"{end}\nin flight", "bytes",
                   f"most bytes that the {end} had sent and that were not acknowledged", 3),
        )
    ),
    *(
        Column(f"{message}_{name}_ns", f"{message}\n{name}", "ns", f"{name.replace('_', ' ')} of {message}s, summed", 9)
        for message in ("request", "response")
        for name in ("transfer", *_CAUSES)
    ),
    Column("finding", "finding", "text", "what stands out"),
)  # fmt: skip

_WHO = {"client_ip": ADDRESS, **BROKER}
_PARTS_OF_TRANSFERS = tuple(
    f"{message}_{name}_ns" for message in ("request", "response") for name in ("transfer", *_CAUSES)
)
_BEGAN, _OPEN = 0, 1  # `what` of connections.seconds
_ENDS = ("client", "broker")
_SUMMED = (
    "exchanges", "total_ns", "broker_ns", "hol_wait_ns", "throttle_wait_ns", "wait_loss_ns",
    *_PARTS_OF_TRANSFERS,
    *(f"{end}_{name}" for end in _ENDS for name in (
        "rtt_count", "rtt_sum_ns", "retransmissions", "retransmission_timeouts", "zero_window_ns",
    )),
)  # fmt: skip
_LARGEST = (
    "handshake_rtt_ns",
    *(f"{end}_{name}" for end in _ENDS for name in (
        "rtt_max_ns", "retransmission_wait_max_ns", "window_max", "in_flight_max", "window_scale", "mss",
        "sack_permitted", "timestamps",
    )),
)  # fmt: skip


def _is_half_open(x: Rows) -> Any:
    return (x.handshake == H_UNANSWERED) | (x.handshake == H_UNFINISHED)


def _is_open(x: Rows) -> Any:
    return (x.closed_by < 0) & ~_is_half_open(x)


def _lifetime(x: Rows) -> Any:
    has_lived = ~_is_half_open(x) & (x.handshake != H_REFUSED)
    return np.where(has_lived, np.maximum(x.last - x.first, 0), -1)


def _closed(how: int, end: int) -> Value:
    """Connections that an end closed. A RST that refuses one does not close it."""
    return total(lambda x: (x.closed_with == how) & (x.closed_by == end) & (x.handshake != H_REFUSED))


_ADDRESSES = counted(
    "connections.addresses", _WHO, of=CONNECTIONS, metrics={"lifetime": _lifetime},
    connections=total(1), half_open=total(_is_half_open), refused=total(lambda x: x.handshake == H_REFUSED),
    client_fin=_closed(WITH_FIN, 0), broker_fin=_closed(WITH_FIN, 1),
    client_rst=_closed(WITH_RST, 0), broker_rst=_closed(WITH_RST, 1), still_open=total(_is_open),
    without_data=total(lambda x: (x.handshake == H_COMPLETE) & (x.client_bytes == 0)),
    sasl=total(lambda x: x.sasl_mechanism >= 0), tls=total(lambda x: decryptions(x) != D_NOT_TLS),
    exchanges=total("exchanges"),
)  # fmt: skip
_SECONDS = counted(
    "connections.seconds", _WHO, lambda x: x.handshake > 0, of=CONNECTIONS,
    more={"what": _BEGAN, "second": lambda x: x.first // SECOND}, other={"what": KEPT}, connections=total(1),
)  # fmt: skip
_OPEN_SECONDS = _SECONDS.also(
    CONNECTIONS, _is_open, {"what": _OPEN, "second": lambda x: x.last // SECOND}, connections=1
)


def _slow_ns(x: Rows) -> Any:
    return x.request_transfer_ns + x.response_transfer_ns + x.wait_loss_ns


def _least_rtt(end: str) -> Value:
    return least(lambda x: least_where(x[f"{end}_rtt_count"] > 0, x[f"{end}_rtt_min_ns"]))


_OF_ONE: Any = {
    **{name: total(name) for name in _SUMMED}, **{name: largest(name) for name in _LARGEST},
    **{f"{end}_rtt_min_ns": _least_rtt(end) for end in _ENDS},
}  # fmt: skip
_SLOWEST = counted(
    "connections.slowest",
    {"connection": NUMBER, "client_ip": ADDRESS, "client_port": NUMBER, **BROKER, "client_id": TEXT},
    lambda x: (_slow_ns(x) > 0) | (x.client_retransmissions + x.broker_retransmissions > 0), of=CONNECTIONS,
    slow_ns=total(_slow_ns), **_OF_ONE,
)  # fmt: skip


def _duration(ns: int) -> str:
    return units.duration(ns)


def _rate(row: CountRow) -> str:
    ns = (row.context.last or 0) - (row.context.first or 0)
    return f"{row['connections'] * SECOND / ns if ns > 0 else 0.0:.3g}"


def _why_many(row: CountRow) -> str:
    """What stands out of the connections of one address."""
    found = []
    total, busiest, life = row["connections"], row["busiest_second"], row["lifetime"]
    if busiest >= STORM_RATE and 0 <= life <= SHORT_NS:
        ways = [("a FIN of the client", "client_fin"), ("a FIN of the broker", "broker_fin"),
                ("a RST of the client", "client_rst"), ("a RST of the broker", "broker_rst")]  # fmt: skip
        how, name = max(ways, key=lambda way: row[way[1]])
        found.append(f"storm: {busiest:,} in one second, each lives {_duration(life)}")
        if row[name]:
            found.append(f"{row[name]:,} of {total:,} closed by {how}")
    elif row["client_rst"] or row["broker_rst"]:
        found += [f"{row[f'{end}_rst']:,} reset by the {end}" for end in _ENDS if row[f"{end}_rst"]]
    if row["half_open"]:
        found.append(f"{row['half_open']:,} without answer")
    if row["refused"]:
        found.append(f"{row['refused']:,} refused")
    return "; ".join(found)


def addresses(given: SectionInput) -> ReportTable:
    """Connections by client address and broker, the most first."""
    rows = given.count_rows(_ADDRESSES.name)
    owner, bucket, times = given.sections.forms[_ADDRESSES.name].buckets("lifetime")
    top = np.full(len(rows), np.iinfo(np.int64).max, np.int64)
    life = percentiles(owner, bucket, times, len(rows), (P50,), top)[:, 0].tolist() if rows else []
    busiest, idle = _by_second(given)
    for row, lived in zip(rows, life, strict=True):
        who = tuple(row[name] for name in _WHO)
        row |= {"lifetime": lived, "busiest_second": busiest.get(who, 0), "idle": idle.get(who, 0)}
    shown = in_columns(ADDRESS_COLUMNS, rows, lambda row: -row["connections"])  # then in order of addresses
    notes = ("FIN, RST: what closed a connection first, and whose it was. A connection without any is open.",)
    return ReportTable("connections", "Connections by address", ADDRESS_COLUMNS, shown, notes, empty="no connections")


def _by_second(given: SectionInput) -> tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]]:
    """By address and broker: the connections that began in the busiest second, and those that are idle."""
    last = given.context.last or 0
    busiest, idle = defaultdict[tuple[int, ...], int](int), defaultdict[tuple[int, ...], int](int)
    for row in given.rows(_SECONDS.name):
        who, second = (row["client_ip"], row["broker_ip"], row["broker_port"]), row["second"]
        if row["what"] == _BEGAN and second >= 0:
            busiest[who] = max(busiest[who], row["connections"])
        elif row["what"] == _OPEN and second >= 0 and (second + 1) * SECOND <= last - IDLE_NS:
            idle[who] += row["connections"]
    return busiest, idle


def _why_slow(v: dict[str, int]) -> str:
    """What stands out of one connection. `v`: its values."""
    found = []
    scales = {end: v[f"{end}_window_scale"] for end in _ENDS}
    limits = {"request": "broker", "response": "client"}
    rtt = max(v["handshake_rtt_ns"], 0)
    transfer = sum(v[f"{message}_transfer_ns"] for message in limits)
    is_slow = transfer >= NAMED_NS
    unscaled = [end for end in _ENDS if scales[end] == NO_SCALE]
    for message, end in limits.items():
        limited, whole = v[f"{message}_receiver_ns"], v[f"{message}_transfer_ns"]
        if not is_slow or not whole or limited < NAMED_SHARE * transfer:
            continue
        window = v[f"{end}_window_max"]
        size = f" ({window:,} bytes at most)" if window else ""
        share = units.share(limited / whole)
        found.append(f"{message}s wait for the receive window of the {end}{size}: {share} of their transfer")
    if unscaled:
        whose = "both SYNs" if len(unscaled) == 2 else f"the SYN of the {unscaled[0]}"
        most = f", here {units.size(UNSCALED * SECOND // rtt)}/s" if rtt > 0 else ""
        found.append(f"no window scaling ({whose}): at most 64 KiB a round trip{most}")
    repeated = sum(v[f"{end}_retransmissions"] for end in _ENDS)
    lost = sum(v[f"{message}_loss_ns"] for message in limits)
    if (
        repeated >= NAMED_RETRANSMISSIONS
        or v["wait_loss_ns"] >= NAMED_NS
        or (is_slow and lost >= NAMED_SHARE * transfer)
    ):
        timeouts = sum(v[f"{end}_retransmission_timeouts"] for end in _ENDS)
        longest = max(v[f"{end}_retransmission_wait_max_ns"] for end in _ENDS)
        text = f"{repeated:,} retransmission{'s' * (repeated != 1)}, {timeouts:,} after a timeout"
        found.append(f"{text}, longest wait {_duration(longest)}")
    for message, sender in (("request", "client"), ("response", "broker")):
        idle, whole = v[f"{message}_sender_ns"], v[f"{message}_transfer_ns"]
        if is_slow and whole and idle >= NAMED_SHARE * transfer:
            found.append(
                f"the {sender} or its kernel paused within {message}s: {units.share(idle / whole)} of their transfer"
            )
    path = transfer - sum(v[f"{message}_{cause}_ns"] for message in limits for cause in _CAUSES)
    if is_slow and path >= (1 - NAMED_SHARE) * transfer:
        limit = "a congestion window that losses cut" if repeated >= NAMED_RETRANSMISSIONS else "congestion window"
        found.append("path: round trips" + (f" of {_duration(rtt)}" if rtt else "") + f", {limit} or bandwidth")
    return "; ".join(found)


def slowest(given: SectionInput) -> ReportTable:
    """The connections with most transfer time and lost waits."""
    context = given.context

    def named_rows() -> Iterator[Row]:
        for row in sorted(given.rows(_SLOWEST.name), key=lambda row: (-row["slow_ns"], row["connection"])):
            is_one = row["client_ip"] >= 0
            yield {
                "client_id": context.text(row["client_id"]), "finding": _why_slow(row) if is_one else "",
                **{end: endpoint(context.address(row[f"{end}_ip"]), row[f"{end}_port"]) if is_one else "(other)"
                   for end in _ENDS},
                **_slow_values(row),
            }  # fmt: skip

    rows = in_columns(SLOW_COLUMNS, named_rows())
    notes = (
        "Transfer: of requests and responses, from the first byte to the last.",
        "receiver: its window was full; loss: data was missing; sender: it had nothing to send; path: the rest.",
    )
    return ReportTable(
        "slow_connections", "Slowest connections", SLOW_COLUMNS, rows, notes, empty="no transfers took time"
    )


def _slow_values(v: dict[str, int]) -> dict[str, Cell]:
    """The values of SLOW_COLUMNS that are made of numbers only."""
    transfer = v["request_transfer_ns"] + v["response_transfer_ns"]
    parts = {cause: v[f"request_{cause}_ns"] + v[f"response_{cause}_ns"] for cause in _CAUSES}
    # Lost data at the begin of a message delays its first byte, which is no part of its transfer.
    whole = max(transfer, sum(parts.values()))
    parts["path"] = whole - sum(parts.values())
    values: dict[str, Cell] = {
        "exchanges": v["exchanges"], "transfer_sum_ns": whole,
        **{f"{name}_sum_ns": v[f"{name}_ns"] for name in ("total", "broker", "hol_wait", "throttle_wait", "wait_loss")},
        **{f"{name}_share": part / whole if whole else None for name, part in parts.items()},
        "rtt_ns": v["handshake_rtt_ns"] if v["handshake_rtt_ns"] >= 0 else None,
        **{name: sum(v[f"{end}_{name}"] for end in _ENDS)
           for name in ("retransmissions", "retransmission_timeouts", "zero_window_ns")},
        "retransmission_wait_max_ns": max(v[f"{end}_retransmission_wait_max_ns"] for end in _ENDS),
        **{name: v[name] for name in _PARTS_OF_TRANSFERS},
    }  # fmt: skip
    for end in _ENDS:
        count, scale = v[f"{end}_rtt_count"], v[f"{end}_window_scale"]
        is_known = scale >= 0 or scale == NO_SCALE
        values |= {
            f"{end}_rtt_min_ns": v[f"{end}_rtt_min_ns"] if count else None,
            f"{end}_rtt_mean_ns": v[f"{end}_rtt_sum_ns"] // count if count else None,
            f"{end}_rtt_max_ns": v[f"{end}_rtt_max_ns"] if count else None,
            f"{end}_window_scale": scale if is_known else None,
            f"{end}_mss": v[f"{end}_mss"] or None,
            f"{end}_sack_permitted": bool(v[f"{end}_sack_permitted"]) if is_known else None,
            f"{end}_timestamps": bool(v[f"{end}_timestamps"]) if is_known else None,
            f"{end}_window_max": v[f"{end}_window_max"] or None,
            f"{end}_in_flight_max": v[f"{end}_in_flight_max"],
        }
    return values


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Who connects, and what was slow."""
    return addresses(given), slowest(given)


SECTION = Section(
    "connections", "Who opens connections, how do they end, and what slows their transfers?",
    columns={"connections": ADDRESS_COLUMNS, "slow_connections": SLOW_COLUMNS}, tables=tables,
    counts=(_ADDRESSES, _SECONDS, _OPEN_SECONDS, _SLOWEST), measures=True,
    under_selection="These tables have all connections: filters select exchanges.",
)  # fmt: skip
