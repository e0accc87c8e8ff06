"""Receive buffers smaller than bandwidth times delay: a transfer waits for the window once in each round trip."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..connection_words import NO_SCALE, P_KAFKA
from ..findings import Finding
from ..section_parts.counted import CONNECTION, CONNECTIONS, PAIR, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from .parties import broker_party, client_words
from .signature import Signature
from .sums import work_of_clients

#: A share of a client's time that a person notices, and the least time.
_SHARE, _LEAST_NS = 0.2, 100_000_000
#: Below this round trip, 64 KiB a round trip are more than a network of 500 Mbit/s carries.
_RTT_NS = 1_000_000
#: A transfer of fewer round trips is too short to fill any buffer.
_ROUNDS = 4


def _is_request(x: Rows) -> Any:
    """Whether the larger message is the request."""
    return x.request_bytes > x.response_bytes


_WAITS = counted(
    "advice.receiver_waits", CONNECTION | PAIR, lambda x: (x.receiver_ns > 0) & (x.outcome == ANSWERED),
    more={"is_request": _is_request},
    receiver_ns=total("receiver_ns"), transfer_ns=total(lambda x: x.receiver_ns + x.path_ns + x.sender_ns + x.loss_ns),
    bytes=total(lambda x: np.maximum(x.request_bytes, x.response_bytes)), exchanges=total(1),
    first=least("request_first"), last=largest("response_last"),
    packet=least(lambda x: np.where(_is_request(x), x.request_packet_first, x.response_packet_first)),
)  # fmt: skip
_PATHS = counted(
    "advice.paths", CONNECTION, lambda x: (x.protocol == P_KAFKA) & (x.handshake_rtt_ns >= _RTT_NS), of=CONNECTIONS,
    newest="last", rtt_ns=largest("handshake_rtt_ns"), client_zero_windows=total("client_zero_windows"),
    broker_zero_windows=total("broker_zero_windows"),
    is_unscaled=largest(lambda x: (x.client_window_scale == NO_SCALE) | (x.broker_window_scale == NO_SCALE)),
    last=largest("last"),
)  # fmt: skip
#: What several connections of a client add up to.
_ADDED = ("receiver_ns", "transfer_ns", "bytes", "exchanges", "connections")


def _findings(given: SectionInput) -> list[Finding]:
    work = work_of_clients(given)
    paths = {row["connection"]: row for row in given.rows(_PATHS.name)}
    worst: dict[tuple[int, int, int], dict[str, int]] = {}
    for row in given.rows(_WAITS.name):
        path, who = paths.get(row["connection"]), (row["client_id"], row["client_ip"], row["is_request"])
        if path is None or row["connection"] < 0:
            continue
        # A receiver that closes its window reads too slowly: a larger buffer would be full as well.
        is_closed = path["broker_zero_windows" if row["is_request"] else "client_zero_windows"]
        if is_closed or row["transfer_ns"] < _ROUNDS * path["rtt_ns"] * row["exchanges"]:
            continue
        row |= {"rtt_ns": path["rtt_ns"], "is_unscaled": path["is_unscaled"], "connections": 1}
        if (old := worst.get(who)) is not None:
            larger = max(row, old, key=lambda one: one["receiver_ns"])
            span = {"first": min(row["first"], old["first"]), "last": max(row["last"], old["last"])}
            row = larger | {name: row[name] + old[name] for name in _ADDED} | span
        worst[who] = row
    return [
        _finding(given, row, work[who[:2]].time_ns)
        for who, row in worst.items()
        if who[:2] in work and row["receiver_ns"] >= max(_LEAST_NS, _SHARE * work[who[:2]].time_ns)
    ]


def _finding(given: SectionInput, row: dict[str, int], time_ns: int) -> Finding:
    context = given.context
    who = client_words(context, row["client_id"], row["client_ip"])
    broker = broker_party(context, row["broker_ip"], row["broker_port"])
    rate = row["bytes"] * units.SECOND // max(row["transfer_ns"], 1)
    window = rate * row["rtt_ns"] // units.SECOND
    whose, setting = (
        (broker.name, "socket.receive.buffer.bytes of the broker")
        if row["is_request"] else (who, "receive.buffer.bytes (librdkafka: socket.receive.buffer.bytes)")
    )  # fmt: skip
    why = " (no window scaling)" if row["is_unscaled"] else ""
    before = f"{who}: " if row["is_request"] else ""
    share = row["receiver_ns"] / max(time_ns, 1)
    text = (
        f"{before}the receive window of {whose}{why} lets about {units.size(window)} pass in a round trip of "
        f"{units.duration(row['rtt_ns'])}, so {units.size(rate)}/s: its requests wait "
        f"{units.duration(row['receiver_ns'])} in total, {units.share(share)} of its time, though it reads at once"
    )
    numbers = {name: row[name] for name in ("receiver_ns", "transfer_ns", "rtt_ns", "exchanges", "connections")}
    return BUFFERS.found(
        given, row, text, row["receiver_ns"], numbers | {"window_bytes": window, "rate_bytes": rate, "share": share},
        (("sections", "connections"),),
        setting="net.ipv4.tcp_window_scaling" if row["is_unscaled"] else setting,
    )  # fmt: skip


BUFFERS = Signature(
    "small_buffer",
    "a receive buffer is smaller than bandwidth times delay",
    "A large message arrives in portions of one receive window, each a round trip after the one before, though the "
    "window is never closed (`receiver_ns`).",
    "receive.buffer.bytes, socket.receive.buffer.bytes, net.ipv4.tcp_window_scaling",
    "Set the buffer to -1 (the system's, which grows) or to bandwidth times round trip: `receive.buffer.bytes` of "
    "Java's consumers, `socket.receive.buffer.bytes` of librdkafka, and for producers that of the broker. Without "
    "window scaling (`net.ipv4.tcp_window_scaling`, or a firewall that removes it) no buffer counts beyond 64 KiB.",
    f"such waits take {_SHARE:.0%} of the client's time, and {units.duration(_LEAST_NS)}, in transfers of {_ROUNDS} "
    f"round trips or more of {units.duration(_RTT_NS)} or more, and the receiver did not close its window.",
    _findings,
    counts=(_WAITS, _PATHS),
)
