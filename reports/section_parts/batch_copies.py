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

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT, NO_REPLY_EXPECTED, UNANSWERED

from ..batch import Array
from ..counting.count_forms import NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import EMPTY, MAX, MIN, SUM
from .gathered import FactRows, Gathered
from .matching import matched
from .section_counts import Tally

#: The kinds of facts that `count_batches` needs.
FACTS = ("batch", "produced partition")
_KEYS = {
    "client_id": TEXT, "topic": TEXT, "topic_id": TEXT, "partition": NUMBER, "producer_id": NUMBER,
    "epoch_sequence": NUMBER, "crc": NUMBER,
}  # fmt: skip
_VALUES = {
    "copies": SUM, "answered": SUM, "in_flight": SUM, "unanswered": SUM, "failed": SUM, "min_offset": MIN,
    "max_offset": MAX, "first": MIN, "last": MAX, "first_end": MIN, "min_connection": MIN, "max_connection": MAX,
    "error_code": MAX, "records": MAX,
}  # fmt: skip
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


#: The form of `count_batches`.
COPIES = CountForm("batches", _KEYS, _VALUES, {"client_id": OTHER, **dict.fromkeys(list(_KEYS)[1:], -1)}, newest="last")


def first_batches(gathered: Gathered) -> FactRows:
    """The first batch of each Produce request that has batches with a CRC."""
    batches = gathered.facts("batch")
    batches = batches.where((batches["attributes"] >> 16 == 2) & (batches["partition"] >= 0))
    if len(batches):
        batches = batches.where(np.unique(batches.exchange, return_index=True)[1])
    return batches


def batch_key(gathered: Gathered, batches: FactRows) -> dict[str, Array]:
    """The key columns of batches in the form."""
    keys = {name: batches[name] for name in ("topic", "topic_id", "partition", "producer_id", "crc")}
    keys["client_id"] = gathered.column("client_id")[batches.exchange]
    keys["epoch_sequence"] = (batches["producer_epoch"] << 32) | (batches["sequence"] & 0xFFFFFFFF)
    return keys


def count_batches(gathered: Gathered, tally: Tally) -> None:
    """Add the record batches of Produce requests."""
    batches = gathered.facts("batch")
    if not len(batches):
        return
    has_crc = (batches["attributes"] >> 16 == 2) & (batches["partition"] >= 0)
    batches = batches.where(has_crc & (gathered.column("outcome")[batches.exchange] != NO_REPLY_EXPECTED))
    if not len(batches):
        return
    outcome, sent, answered, connection = (
        gathered.column(name)[batches.exchange] for name in ("outcome", "request_first", "response_last", "connection")
    )
    error, offset = _answers(gathered, batches)
    is_answered = (outcome == ANSWERED) & (error == 0)
    has_offset = is_answered & (offset >= 0)
    end = np.where(outcome == ANSWERED, answered, EMPTY[MIN])
    tally.add(COPIES.name, batch_key(gathered, batches), {
        "copies": 1, "answered": is_answered, "in_flight": outcome == IN_FLIGHT,
        "unanswered": outcome == UNANSWERED, "failed": error != 0,
        "min_offset": np.where(has_offset, offset, EMPTY[MIN]), "max_offset": np.where(has_offset, offset, EMPTY[MAX]),
        "first": sent, "last": sent, "first_end": end, "min_connection": connection, "max_connection": connection,
        "error_code": error,
        "records": batches["records"],
    })  # fmt: skip


def _answers(gathered: Gathered, batches: FactRows) -> tuple[Array, Array]:
    """The error code and the base offset that each batch was answered, 0 and -1 without an answer."""
    answers = gathered.facts("produced partition")
    at = matched(answers, batches)
    has_answer = np.flatnonzero(at >= 0)
    error, offset = np.zeros(len(batches), np.int64), np.full(len(batches), -1, np.int64)
    error[has_answer] = answers["error_code"][at[has_answer]]
    offset[has_answer] = answers["base_offset"][at[has_answer]]
    return error, offset


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
