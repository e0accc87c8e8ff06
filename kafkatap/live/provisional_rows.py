"""Final rows of exchanges that were counted before by a provisional row (`Engine.provisional_rows`).

Most final rows confirm the provisional one and do not count again. If a response came after all, the final row counts,
and the counts of its provisional row are subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkatap.dissector.dtypes import NO_INT32, NO_TIME, NOT_DECODED, RESULT
from kafkatap.dissector.framing.tables import CLOSED_BY_BIT
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.reports.batch import Array, Batch

from ..engine.engine import EXCHANGES

#: The values of a row without a response.
_NO_RESPONSE = {
    "response_first": NO_TIME, "response_last": NO_TIME, "response_packet_first": 0, "response_packet_last": 0,
    "response_bytes": -1, **dict.fromkeys(DURATIONS, 0),
    "throttle_time_ms": NO_INT32, "response_status": NOT_DECODED, "long_poll": 0,
}  # fmt: skip


def confirmed(batch: Batch) -> Array:
    """Which exchanges ended with the outcome of their provisional rows: bool (n,)."""
    if batch.provisional is None:
        return np.zeros(len(batch.exchanges), bool)
    x = batch.exchanges
    fits: Array = batch.provisional == x["outcome"] + 1 + CLOSED_BY_BIT * (x["closed_by"] + 1)
    return fits


def without_confirmed(batch: Batch) -> Batch:
    """A batch without the exchanges that confirm their provisional rows."""
    if not _has_provisional(batch):
        return batch
    counted = confirmed(batch)
    return batch if not counted.any() else batch.picked(~counted)


def _has_provisional(batch: Batch) -> bool:
    """Whether some exchanges have provisional rows. Most batches have none."""
    return batch.provisional is not None and bool(batch.provisional.any())


def revoked_rows(batch: Batch, first: int) -> Iterator[Batch]:
    """The provisional rows of exchanges that ended otherwise, of those numbered from `first` on, by each engine. Empty
    if there are none."""
    if batch.provisional is None or not batch.provisional.any():
        return
    wrong = (batch.provisional != 0) & ~confirmed(batch) & (batch.exchanges["exchange"] % EXCHANGES >= first)
    if not wrong.any():
        return
    found = batch.picked(wrong)
    rows = found.exchanges
    rows["outcome"] = batch.provisional[wrong] % CLOSED_BY_BIT - 1
    rows["closed_by"] = (batch.provisional[wrong] // CLOSED_BY_BIT).astype(np.int8) - 1
    for name, value in _NO_RESPONSE.items():
        rows[name] = value
    yield found._replace(results=np.zeros(0, RESULT), estimates=None)
