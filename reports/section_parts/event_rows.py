"""Events: small rows of what happened when, which sections put in order over all connections.

A section declares kinds of its own (`EventKind`), each with names for the numbers `v0` to `v7` and the texts `s0` to
`s3` (`EventView`). Everything else is of the exchange. Writers and readers use these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import NO_INT32, NO_TIME
from kafkatap.kernels.arrays import taken
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
_ENDS = ("client_id", "client_ip", "client_port", "broker_ip", "broker_port")
EVENT_TEXTS = ("client_id", "topic", "topic_id", "s0", "s1", "s2", "s3")
EVENT_ADDRESSES = ("client_ip", "broker_ip")
_COMMON = tuple(name for name in EVENT.names or () if not name[-1].isdigit())
#: The columns by which events of the same time are in order, the last one first: the same for every way to read.
_ORDER = ("v3", "v2", "v1", "v0", "partition", "kind", "exchange", "time")


class EventView:
    """Names of values of events: the column of EVENT (`v0` to `v7`, `s0` to `s3`) of each.

    Several kinds may have one view, and then are read together. Columns keep their order: those of the same time are in
    order of `v0` to `v3`.
    """

    def __init__(self, **columns: str) -> None:
        self._columns = columns

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        fields: Mapping[str, Any] = EVENT.fields or {}
        found = {name: fields[name] for name in _COMMON} | {n: fields[column] for n, column in self._columns.items()}
        formats, offsets = [field[0] for field in found.values()], [field[1] for field in found.values()]
        names = {"names": [*found], "formats": formats, "offsets": offsets, "itemsize": EVENT.itemsize}
        return np.dtype(names)  # type: ignore[call-overload,no-any-return]

    def of(self, events: Array) -> Array:
        """The same EVENT rows with these names."""
        return events.view(self._dtype)


class EventKind(int):
    """A kind of events: its number in the section, and the names of its values."""

    view: EventView

    def __new__(cls, number: int, view: EventView | None = None) -> EventKind:
        made = super().__new__(cls, number)
        made.view = view or EventView()
        return made

    def among(self, events: Array) -> Array:
        """Those of EVENT rows that are of this kind, with its names."""
        return self.view.of(taken(events, np.flatnonzero(events["kind"] == int(self))))


def events_of(
    gathered: Gathered, exchanges: Array, kind: EventKind, *, at_request: bool = False, **columns: Any
) -> Array:
    """EVENT rows of exchanges (their indexes) with the names of their kind, with some columns, for the section to fill.

    The time is that of the response's last byte, or with `at_request` of the request's first byte. Where there is no
    such byte, it is that of the other message.
    """

    def of(name: str) -> Array:
        return gathered.column(name)[exchanges]

    made = np.zeros(len(exchanges), EVENT)
    for name in (*_ENDS, "connection", "api_key", "outcome"):
        made[name] = of(name)
    made["exchange"] = gathered.keys_of_events(exchanges)
    order = ("request_first", "response_last") if at_request else ("response_last", "request_first")
    packets = {"request_first": "request_packet_first", "response_last": "response_packet_last"}
    time = of(order[0])
    has_time = time != NO_TIME
    made["time"] = np.where(has_time, time, of(order[1]))
    made["packet"] = np.where(has_time, of(packets[order[0]]), of(packets[order[1]]))
    made["kind"] = int(kind)
    made["partition"] = NO_INT32
    for name in ("topic", "topic_id", "s0", "s1", "s2", "s3"):
        made[name] = -1
    events = kind.view.of(made)
    for name, values in columns.items():
        events[name] = values
    return events


def events_of_facts(gathered: Gathered, facts: FactRows, kind: EventKind, *, at_request: bool = False) -> Array:
    """EVENT rows, one for each fact, with its topic, partition and error code."""
    made = events_of(gathered, facts.exchange, kind, at_request=at_request)
    for name in ("topic", "topic_id", "partition", "error_code"):
        made[name] = facts[name]
    return made


def in_order(events: Array) -> Array:
    """Events in order of time."""
    return taken(events, np.lexsort([events[name] for name in _ORDER]))
