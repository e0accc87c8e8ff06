"""Who waits now: requests that wait for longer than their brokers may hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import Array, Batch, Context, endpoint

from ...engine.selection import Selection, Selector
from .recent_exchanges import Message, as_dicts, message_of

#: Rows that are shown, at most.
MOST = 200
_WHO = ("client_id", "client_ip", "broker_ip", "broker_port")


@dataclass(frozen=True, slots=True)
class Wait:
    """A client at an address that waits for a broker: its oldest request, how long that waits, and on how many
    connections one waits."""

    oldest: Message
    waited_ns: int
    connections: int


def who_waits(batch: Batch, context: Context, selection: Selection | None) -> tuple[list[Wait], Counter[str]]:
    """Clients by their longest wait, MOST at most; and on how many connections a request waits, by broker."""
    rows = batch.exchanges
    if selection is not None:
        rows = taken(rows, np.flatnonzero(Selector(selection, context).select(batch)))
    rows = taken(rows, np.argsort(-rows["waited_ns"], kind="stable"))
    keys = np.stack([rows[name].astype(np.int64) for name in _WHO], axis=1)
    _, first, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)[:MOST]
    found = _messages(taken(rows, first[order]), context)
    longest = rows["waited_ns"][first[order]].tolist()
    waits = [Wait(*each) for each in zip(found, longest, counts[order].tolist(), strict=True)]
    return waits, _by_broker(rows, context)


def _messages(rows: Array, context: Context) -> Sequence[Message]:
    return [message_of(row, context.text, context.address, hosts=context.hosts) for row in as_dicts(rows)]


def _by_broker(rows: Array, context: Context) -> Counter[str]:
    ends = rows["broker_ip"].astype(np.int64) << 16 | rows["broker_port"]
    codes, counts = np.unique(ends, return_counts=True)
    return Counter({
        endpoint(context.address(code >> 16), code & 0xFFFF): count
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
    })  # fmt: skip
