"""Requests of transactions, read once for the section `transactions` and for advice (`transaction_log`).

So that its events are few, Produce requests of transactions are counts by producer id and epoch, with the times of the
first and the last one. Only those that failed are events.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..section_parts.event_rows import EventKind, events_of
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.section import Section
from ..section_parts.section_counts import Tally
from ..section_parts.transaction_log import ADD, COMMIT, END, FAILED, INIT, MARKER, PRODUCED, READ_BY

_PRODUCED = CountForm(
    PRODUCED,
    {"transactional_id": TEXT, "producer_id": NUMBER, "epoch": NUMBER, "client_id": TEXT, "client_ip": ADDRESS},
    {"requests": SUM, "first": MIN, "last": MAX},
    {"transactional_id": OTHER, "producer_id": -1, "epoch": -1, "client_id": OTHER, "client_ip": -1},
    newest="last",
)
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
    _read_produce(gathered, tally)


def _simple_events(gathered: Gathered, asked: FactRows, api: int, kind: EventKind, response: str) -> Array:
    events = events_of(gathered, asked.exchange, kind, at_request=kind != INIT)
    _name_producer(events, asked)
    if response:
        events["error_code"] = gathered.top(response, "error_code", 0)[asked.exchange]
    if kind == INIT:
        events["timeout_ms"] = asked["timeout_ms"]
    if kind == END:
        events["is_commit"] = asked["committed"]
        events["answered"] = gathered.exchanges["response_last"][asked.exchange]
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
    numbers = gathered.exchanges["exchange"]
    order = np.argsort(numbers, kind="stable")
    results = gathered.results[gathered.results["error_code"] != 0]
    worst = np.zeros(len(numbers), np.int64)
    at = order[np.searchsorted(numbers[order], results["exchange"])] if len(results) else np.zeros(0, np.int64)
    np.maximum.at(worst, at, results["error_code"].astype(np.int64))
    found: Array = worst[exchanges]
    return found


def _note_added(gathered: Gathered, tally: Tally) -> None:
    """Note AddPartitionsToTxn: of clients (up to version 3), and of brokers for several producers."""
    worst = None
    for name, errors, is_broker in (
        ("add partitions", "added partition", 0),
        ("add partitions of", "added partition of", 1),
    ):
        asked = gathered.facts(name)
        chosen = asked["transactional_id"] >= 0
        if is_broker:
            chosen &= asked["verify_only"] != 1
        asked = asked.where(chosen)
        if not len(asked):
            continue
        events = events_of(gathered, asked.exchange, ADD, at_request=True)
        _name_producer(events, asked)
        events["is_of_broker"] = is_broker
        worst = np.zeros(len(gathered.exchanges), np.int64)
        answers = gathered.facts(errors)
        if is_broker:
            events["error_code"] = _worst_of(gathered, asked, answers)
        else:
            np.maximum.at(worst, answers.exchange, answers["error_code"].astype(np.int64))
            events["error_code"] = worst[asked.exchange]
        tally.note(events)


def _worst_of(gathered: Gathered, asked: FactRows, answers: FactRows) -> Array:
    """The largest error code of the partitions of each transaction in requests for several."""
    of = gathered.facts("added partitions of")
    codes = np.zeros(len(of), np.int64)
    if len(answers):
        np.maximum.at(codes, of.around(answers), answers["error_code"].astype(np.int64))
    found = {
        (e, t): c for e, t, c in zip(of.exchange.tolist(), of["transactional_id"].tolist(), codes.tolist(), strict=True)
    }
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


def _read_produce(gathered: Gathered, tally: Tally) -> None:
    """Count Produce requests of transactions that were answered well; note those that were fenced."""
    ids = gathered.top("produce", "transactional_id")
    batches = gathered.facts("batch")
    batches = batches.where(ids[batches.exchange] >= 0)
    if not len(batches):
        return
    _, first = np.unique(batches.exchange, return_index=True)
    batches = batches.where(first)
    answers = gathered.facts("produced partition")
    worst = np.zeros(len(gathered.exchanges), np.int64)
    np.maximum.at(worst, answers.exchange, answers["error_code"].astype(np.int64))
    error = worst[batches.exchange]
    is_good = (error == 0) & (gathered.exchanges["outcome"][batches.exchange] == ANSWERED)
    good, failed = batches.where(is_good), batches.where(is_among(error, _ERRORS_OF_PRODUCE))
    if len(good):
        rows = gathered.rows(good.exchange)
        keys = {"transactional_id": ids[good.exchange], "producer_id": good["producer_id"],
                "epoch": good["producer_epoch"], "client_id": rows["client_id"],
                "client_ip": rows["client_ip"]}  # fmt: skip
        times = rows["request_first"]
        tally.add(PRODUCED, keys, {"requests": 1, "first": times, "last": times})
    if len(failed):
        events = events_of(gathered, failed.exchange, FAILED)
        events["transactional_id"], events["producer_id"] = ids[failed.exchange], failed["producer_id"]
        events["epoch"] = failed["producer_epoch"]
        events["error_code"] = worst[failed.exchange]
        tally.note(events)


SECTION = Section(
    READ_BY,
    "",
    (
        "produce", "init producer", "producer", "add partitions", "added partition", "add partitions of",
        "added partitions of", "added partition of", "add offsets", "added offsets", "end transaction",
        "ended transaction", "marker", "marker partition", "transaction commit", "batch", "produced partition",
    ),
    (_PRODUCED,),
    {},
    read,
    lambda given: (),
    reads_notable=True,
)  # fmt: skip
