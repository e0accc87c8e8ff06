"""Record batches that producers sent more than once: what became of each copy.

A batch is known by its client, topic and partition, its producer id, epoch and sequence, and its CRC, which covers its
timestamps and records. A retry is the same batch. So batches are counted by these, once for all sections that need
them. The form is bounded: beyond `--max-names` batches, half of them are given up, first the oldest of those that were
sent once. Retries follow within minutes, so they still find their first copy.

A client may put the records of a retry into a new batch, as librdkafka does unless its producer is idempotent. Such
retries are not found. Batches of message sets (magic 0 and 1) have no CRC of their own, and producers with acks=0
expect no answer: neither are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT, NO_REPLY_EXPECTED, UNANSWERED

from ..batch import Array
from ..counting.count_forms import NUMBER, TEXT
from ..counting.count_table import EMPTY, MAX, MIN
from .counted import PLACE, Rows, counted, largest, least, least_where, once, total
from .gathered import FactRows, Gathered
from .section import Section

#: Copies that are in flight at the same time, and begin within this, are not retries: a proxy passed the request on,
#: and both of its connections were captured. Clients wait 100 ms before they retry.
_SAME_REQUEST_NS = 20_000_000
_DUPLICATE_SEQUENCE = 46
#: What became of a batch, the worst first. PERHAPS_TWICE: a retry was acknowledged, and an earlier copy without a
#: response may be in the log too, because the producer is not idempotent.
DUPLICATED, NOT_ACKNOWLEDGED, REFUSED, PERHAPS_TWICE, DEDUPLICATED, ACKNOWLEDGED = FATES = (
    "duplicated", "never acknowledged", "refused", "acknowledged, perhaps twice in the log", "deduplicated",
    "acknowledged by a retry",
)  # fmt: skip


def _has_crc(batches: Rows | FactRows) -> Any:
    return (batches["attributes"] >> 16 == 2) & (batches["partition"] >= 0)


def _epoch_sequence(batches: Rows | FactRows) -> Any:
    return (batches["producer_epoch"] << 32) | (batches["sequence"] & 0xFFFFFFFF)


@once
def _error(x: Rows) -> Any:
    return x.beside("produced partition", "error_code", 0)


@once
def _is_answered(x: Rows) -> Any:
    return (x.outcome == ANSWERED) & (_error(x) == 0)


def _offset(x: Rows, missing: int) -> Any:
    """Where the log has them."""
    found = x.beside("produced partition", "base_offset")
    return np.where(_is_answered(x) & (found >= 0), found, missing)


#: The record batches of Produce requests.
COPIES = counted(
    "batches",
    {"client_id": TEXT, **PLACE, "producer_id": NUMBER, "epoch_sequence": NUMBER, "crc": NUMBER},
    lambda x: _has_crc(x) & (x.outcome != NO_REPLY_EXPECTED), of=("batch",), more={"epoch_sequence": _epoch_sequence},
    newest="last", beside=("produced partition",),
    copies=total(1), answered=total(_is_answered), in_flight=total(lambda x: x.outcome == IN_FLIGHT),
    unanswered=total(lambda x: x.outcome == UNANSWERED), failed=total(lambda x: _error(x) != 0),
    min_offset=least(lambda x: _offset(x, EMPTY[MIN])), max_offset=largest(lambda x: _offset(x, EMPTY[MAX])),
    first=least("request_first"), last=largest("request_first"),
    first_end=least(lambda x: least_where(x.outcome == ANSWERED, x.response_last)),
    min_connection=least("connection"), max_connection=largest("connection"),
    error_code=largest(_error), records=largest("records"),
)  # fmt: skip
#: The kinds of facts that they are made of.


def first_batches(gathered: Gathered) -> FactRows:
    """The first batch of each Produce request that has batches with a CRC, in order of these requests."""
    batches = gathered.facts("batch")
    batches = batches.where(_has_crc(batches))
    return batches.where(np.unique(batches.exchange, return_index=True)[1])


def batch_key(gathered: Gathered, batches: FactRows) -> dict[str, Array]:
    """The key columns of batches in the form."""
    keys = {name: batches[name] for name in ("topic", "topic_id", "partition", "producer_id", "crc")}
    return keys | {"epoch_sequence": _epoch_sequence(batches)}


def what_became(values: dict[str, Array], keys: dict[str, Array]) -> tuple[Array, list[str]]:
    """The rows of the form with something to report (their indexes), and what became of each batch."""
    v, is_idempotent = values, keys["producer_id"] >= 0
    several = v["copies"] > 1
    at_once = (v["last"] <= v["first_end"]) & (v["last"] - v["first"] < _SAME_REQUEST_NS)
    is_other_batch = ~is_idempotent & (v["min_connection"] == v["max_connection"])
    is_harmless = (v["answered"] == v["copies"]) & (~several | at_once | is_other_batch)
    is_unknown = (v["answered"] + v["unanswered"] + v["failed"] == 0) | (keys["crc"] < 0)  # its answer was not captured
    is_open = (v["answered"] == 0) & (v["in_flight"] > 0)  # a copy may still be acknowledged
    chosen = np.flatnonzero(~is_harmless & ~is_unknown & ~is_open)
    found = []
    for row in chosen.tolist():
        answered, error = int(v["answered"][row]), int(v["error_code"][row])
        if answered > 1:
            is_same = v["min_offset"][row] >= v["max_offset"][row]
            found.append(DEDUPLICATED if is_same else DUPLICATED)
        elif error == _DUPLICATE_SEQUENCE and several[row]:
            found.append(DEDUPLICATED)
        elif answered:
            found.append(PERHAPS_TWICE if v["unanswered"][row] and not is_idempotent[row] else ACKNOWLEDGED)
        else:
            found.append(REFUSED if error and not v["unanswered"][row] else NOT_ACKNOWLEDGED)
    return chosen, found


#: What reads them, once for all sections that need them.
READING = Section("batch-reading", counts=(COPIES,))
