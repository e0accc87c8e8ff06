"""Events: small rows of what happened when, which sections put in order over all connections.

A section gives its events kinds of its own, and says what `v0` to `v7` and `s0` to `s3` mean. Everything else is of the
exchange.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import NO_INT32, NO_TIME
from kafkatap.kernels.decorator import record_dtype

from ..batch import Array
from .gathered import FactRows, Gathered

EVENT = record_dtype(
    ("time", "i8"),  # ns since the epoch
    ("exchange", "i8"),  # keys of tables
    ("connection", "i8"),
    ("packet", "i8"),  # the number of the packet at that time
    ("v0", "i8"),
    ("v1", "i8"),
    ("v2", "i8"),
    ("v3", "i8"),
    ("v4", "i8"),
    ("v5", "i8"),
    ("v6", "i8"),
    ("v7", "i8"),
    ("client_id", "i4"),
    ("client_ip", "i4"),
    ("broker_ip", "i4"),
    ("client_port", "i4"),
    ("broker_port", "i4"),
    ("topic", "i4"),
    ("topic_id", "i4"),
    ("partition", "i4"),  # NO_INT32: none
    ("s0", "i4"),
    ("s1", "i4"),
    ("s2", "i4"),
    ("s3", "i4"),
    ("kind", "i2"),
    ("error_code", "i2"),
    ("api_key", "i2"),
    ("outcome", "i2"),  # of the exchange
)
EVENT_TEXTS = ("client_id", "topic", "topic_id", "s0", "s1", "s2", "s3")
EVENT_ADDRESSES = ("client_ip", "broker_ip")
#: The columns by which events of the same time are in order, the last one first: the same for every way to read.
_ORDER = ("v3", "v2", "v1", "v0", "partition", "kind", "exchange", "time")


def events_of(gathered: Gathered, exchanges: Array, kind: int, *, at_request: bool = False) -> Array:
    """EVENT rows of exchanges (their indexes), for the section to fill.

    The time is that of the response's last byte, or with `at_request` of the request's first byte. Where there is no
    such byte, it is that of the other message.
    """
    rows = gathered.rows(exchanges)
    made = np.zeros(len(rows), EVENT)
    for name in (
        "connection",
        "client_id",
        "client_ip",
        "broker_ip",
        "client_port",
        "broker_port",
        "api_key",
        "outcome",
    ):
        made[name] = rows[name]
    made["exchange"] = rows["key"]
    order = ("request_first", "response_last") if at_request else ("response_last", "request_first")
    packets = {"request_first": "request_packet_first", "response_last": "response_packet_last"}
    has_time = rows[order[0]] != NO_TIME
    made["time"] = np.where(has_time, rows[order[0]], rows[order[1]])
    made["packet"] = np.where(has_time, rows[packets[order[0]]], rows[packets[order[1]]])
    made["kind"] = kind
    made["partition"] = NO_INT32
    for name in ("topic", "topic_id", "s0", "s1", "s2", "s3"):
        made[name] = -1
    return made


def events_of_facts(gathered: Gathered, facts: FactRows, kind: int, *, at_request: bool = False) -> Array:
    """EVENT rows, one for each fact, with its topic, partition and error code."""
    made = events_of(gathered, facts.exchange, kind, at_request=at_request)
    for name in ("topic", "topic_id", "partition", "error_code"):
        made[name] = facts[name]
    return made


def in_order(events: Array) -> Array:
    """Events in order of time."""
    ordered: Array = events[np.lexsort([events[name] for name in _ORDER])]
    return ordered
