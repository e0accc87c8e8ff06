"""Final rows of exchanges of which provisional rows were counted before (`Engine.provisional_rows`).

Most end as foretold, and count no more. Where a response came all the same, the final row counts, and what its
provisional row had counted is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kafkatap.dissector.dtypes import NO_INT32, NO_TIME, NOT_DECODED, RESULT
from kafkatap.reports.batch import Array, Batch

#: What a row holds while there is no response.
_NO_RESPONSE = {
    "response_first": NO_TIME, "response_last": NO_TIME, "response_packet_first": 0, "response_packet_last": 0,
    "response_bytes": -1, "broker_ns": 0, "hol_wait_ns": 0, "throttle_wait_ns": 0, "total_ns": 0,
    "hol_throttle_wait_ns": 0, "hol_poll_wait_ns": 0,
    "throttle_time_ms": NO_INT32, "response_status": NOT_DECODED, "long_poll": 0,
}  # fmt: skip


def confirmed(batch: Batch) -> Array:
    """Which exchanges ended as their provisional rows said: bool (n,)."""
    if batch.provisional is None:
        return np.zeros(len(batch.exchanges), bool)
    fits: Array = batch.provisional == batch.exchanges["outcome"] + 1
    return fits


def without_confirmed(batch: Batch) -> Batch:
    """A batch without the exchanges that ended as foretold."""
    counted = confirmed(batch)
    return batch if not counted.any() else batch.picked(~counted)


def revoked_rows(batch: Batch, first: int) -> Iterator[Batch]:
    """The provisional rows of exchanges, numbered from `first` on, that ended otherwise; nothing where there are
    none."""
    if batch.provisional is None:
        return
    wrong = (batch.provisional != 0) & ~confirmed(batch) & (batch.exchanges["exchange"] >= first)
    if not wrong.any():
        return
    found = batch.picked(wrong)
    rows = found.exchanges
    rows["outcome"] = batch.provisional[wrong] - 1
    for name, value in _NO_RESPONSE.items():
        rows[name] = value
    yield replace(found, results=np.zeros(0, RESULT))
