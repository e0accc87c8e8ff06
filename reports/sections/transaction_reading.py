"""Requests of transactions, read once for the section `transactions` and for advice (`transaction_log`).

So that its events are few, Produce requests of transactions are counts by producer id and epoch, with the times of the
first and the last one. Only those that failed are events.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import NUMBER, TEXT
from ..section_parts.counted import CLIENT, Rows, counted, largest, least, total
from ..section_parts.event_rows import EventKind, events_of
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.section import Section
from ..section_parts.section_counts import Tally
from ..section_parts.transaction_log import ADD, COMMIT, END, FAILED, INIT, MARKER, PRODUCED, READ_BY

#: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, PRODUCER_FENCED, INVALID_TXN_STATE.
_ERRORS_OF_PRODUCE = (47, 52, 90, 48)
#: By API key: the kind of event, the facts of the request, and those of the response with the error code.
_SIMPLE = ((22, INIT, "init producer", "producer"), (25, ADD, "add offsets", "added offsets"),
           (26, END, "end transaction", "ended transaction"), (28, COMMIT, "transaction commit", ""))  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Note requests of transactions."""
    for api, kind, request, response in _SIMPLE:
        asked = gathered.facts(request)
        asked = asked.where(asked["transactional_id"] >= 0)
        if len(asked):
            tally.note(_simple_events(gathered, asked, api, kind, response))
    _note_added(gathered, tally)
    _note_markers(gathered, tally)
    _note_failed(gathered, tally)


def _simple_events(gathered: Gathered, asked: FactRows, api: int, kind: EventKind, response: str) -> Array:
    events = events_of(gathered, asked.exchange, kind, at_request=kind != INIT)
    _name_producer(events, asked)
    if response:
        events["error_code"] = gathered.top(response, "error_code", 0)[asked.exchange]
    if kind == INIT:
        events["timeout_ms"] = asked["timeout_ms"]
    if kind == END:
        events["is_commit"] = asked["committed"]
        events["answered"] = gathered.column("response_last")[asked.exchange]
    if kind in (INIT, END):  # what the broker answers is the new producer id and epoch
        for column, name in (("producer_id", "producer_id"), ("epoch", "producer_epoch")):
            answer = gathered.top(response, name, -1)[asked.exchange]
            events["next_epoch" if column == "epoch" and kind == END else column] = np.where(
                (answer >= 0) & (events["error_code"] == 0), answer, events[column]
            )
    if kind == COMMIT:
        events["error_code"] = _worst_result(gathered, asked.exchange)
    return events


def _name_producer(events: Array, asked: FactRows) -> None:
    events["transactional_id"], events["producer_id"] = asked["transactional_id"], asked["producer_id"]
    events["epoch"] = asked["producer_epoch"]


def _worst_result(gathered: Gathered, exchanges: Array) -> Array:
    """The largest error code in the results of each exchange; 0 for none."""
    worst, results = np.zeros(len(gathered), np.int64), gathered.result_rows
    np.maximum.at(worst, results.exchange, results["error_code"].astype(np.int64))
    found: Array = worst[exchanges]
    return found


def _worst(gathered: Gathered, kind: str) -> Array:
    """The largest error code of the facts of a kind, by exchange; 0 for none."""
    worst, rows = np.zeros(len(gathered), np.int64), gathered.facts(kind)
    np.maximum.at(worst, rows.exchange, rows["error_code"].astype(np.int64))
    return worst


def _note_added(gathered: Gathered, tally: Tally) -> None:
    """Note AddPartitionsToTxn: of clients (up to version 3), and of brokers for several producers."""
    for name, is_of_broker in (("add partitions", 0), ("add partitions of", 1)):
        asked = gathered.facts(name)
        asked = asked.where(asked["transactional_id"] >= 0)
        if is_of_broker:
            asked = asked.where(asked["verify_only"] != 1)
        if len(asked):
            events = events_of(gathered, asked.exchange, ADD, at_request=True)
            _name_producer(events, asked)
            events["is_of_broker"] = is_of_broker
            events["error_code"] = (
                _worst_of(gathered, asked) if is_of_broker else _worst(gathered, "added partition")[asked.exchange]
            )
            tally.note(events)


def _worst_of(gathered: Gathered, asked: FactRows) -> Array:
    """The largest error code of the partitions of each transaction in requests for several."""
    of, answers = gathered.facts("added partitions of"), gathered.facts("added partition of")
    codes = np.zeros(len(of), np.int64)
    if len(answers):
        np.maximum.at(codes, of.around(answers), answers["error_code"].astype(np.int64))
    pairs = zip(of.exchange.tolist(), of["transactional_id"].tolist(), strict=True)
    found = dict(zip(pairs, codes.tolist(), strict=True))
    pairs = zip(asked.exchange.tolist(), asked["transactional_id"].tolist(), strict=True)
    return np.array([found.get(pair, 0) for pair in pairs], np.int64)


def _note_markers(gathered: Gathered, tally: Tally) -> None:
    markers, partitions = gathered.facts("marker"), gathered.facts("marker partition")
    if not len(markers):
        return
    events = events_of(gathered, markers.exchange, MARKER, at_request=True)
    for column, name in (("producer_id", "producer_id"), ("epoch", "producer_epoch"), ("is_commit", "committed")):
        events[column] = markers[name]
    events["partitions"] = np.bincount(markers.around(partitions), minlength=len(markers)) if len(partitions) else 0
    tally.note(events)


def _worst_produced(gathered: Gathered) -> Array:
    return _worst(gathered, "produced partition")


def _transactional_id(x: Rows) -> Any:
    return x.top("produce", "transactional_id")


#: Produce requests of transactions that were answered well, by the first batch of each.
_PRODUCED = counted(
    PRODUCED, {"transactional_id": TEXT, "producer_id": NUMBER, "epoch": NUMBER} | CLIENT,
    (
        lambda x: (x.outcome == ANSWERED) & (_transactional_id(x) >= 0) & x.facts.is_first(),
        lambda x: x.each(_worst_produced) == 0,
    ),
    of=("batch",), more={"transactional_id": _transactional_id, "epoch": "producer_epoch"}, newest="last",
    beside=("produce", "produced partition"),
    requests=total(1), first=least("request_first"), last=largest("request_first"),
)  # fmt: skip


def _note_failed(gathered: Gathered, tally: Tally) -> None:
    """Note Produce requests of transactions that were fenced."""
    ids, batches = gathered.top("produce", "transactional_id"), gathered.facts("batch")
    batches = batches.where(batches.is_first() & (ids[batches.exchange] >= 0))
    error = gathered.once(_worst_produced)[batches.exchange] if len(batches) else np.zeros(0, np.int64)
    at = np.flatnonzero(is_among(error, _ERRORS_OF_PRODUCE))
    if len(at):
        failed = batches.where(at)
        events = events_of(gathered, failed.exchange, FAILED)
        events["transactional_id"], events["producer_id"] = ids[failed.exchange], failed["producer_id"]
        events["epoch"], events["error_code"] = failed["producer_epoch"], error[at]
        tally.note(events)


SECTION = Section(
    READ_BY,
    facts=(
        "init producer", "producer", "add partitions", "added partition", "add partitions of",
        "added partitions of", "added partition of", "add offsets", "added offsets", "end transaction",
        "ended transaction", "marker", "marker partition", "transaction commit",
    ),
    counts=(_PRODUCED,), read=read, reads_notable=True,
)  # fmt: skip
