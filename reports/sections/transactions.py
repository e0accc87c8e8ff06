"""Transactions by transactional id: who owns it, how long transactions are open, how they end, and who is fenced.

The section follows each transactional id through its requests in order of time (`transaction_log`). Record batches that
were sent more than once, or never acknowledged, are in a table of their own (`questions.batch_copies` says how they are
found, and what bounds their number). So that its events are few, Produce requests of transactions are counts by
producer id and epoch, with the times of the first and the last one. Only those that failed are events.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.kernels.arrays import is_among

from ..batch import Array, Context
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..counting.rollup import maybe
from ..model import Column, ReportTable, Row, in_columns
from ..section_parts.batch_copies import COPIES, FATES, what_became
from ..section_parts.event_rows import EventKind, events_of
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.section import READ_SELECTED, Section, SectionInput
from ..section_parts.section_counts import Tally
from ..units import duration
from .transaction_log import ADD, COMMIT, END, FAILED, INIT, MARKER, Transactional, followed

COLUMNS = (
    Column("transactional_id", "transactional id", "text", "transactional id"),
    Column("client_id", "client", "text", "client_id of the last producer that had this id"),
    Column("address", "address", "text", "IP address of that producer", 1),
    Column("producer_id", "producer\nid", "count", "its producer id", 1),
    Column("producer_epoch", "epoch", "count", "its last producer epoch", 2),
    Column("state", "state", "text", "at the end of the capture: open, committed, aborted, empty or fenced"),
    Column("open_ns", "open\nfor", "ns", "how long the open transaction is open at the end of the capture"),
    Column("open_since", "open\nsince", "time", "the first request of the open transaction"),
    Column("longest_ns", "longest", "ns", "the longest time that a transaction was open, from its first request to the "
                                          "response that ended it"),
    Column("timeout_ms", "timeout", "ms", "transaction timeout of the producer", 2),
    Column("committed", "commits", "count", "transactions that the producer committed", apis=(26,)),
    Column("aborted", "aborts", "count", "transactions that the producer aborted", apis=(26,)),
    Column("aborted_by_broker", "aborted\nby broker", "count", "transactions that the coordinator aborted: they were "
                                                               "open for longer than the timeout, or fenced"),
    Column("aborted_elsewhere", "aborted\nelsewhere", "count", "transactions that were aborted; by whom was "
                                                               "not captured"),
    Column("fenced", "fenced", "count", "requests that failed because another producer has the id"),
    Column("markers", "markers", "count", "markers (control batches) that the coordinator wrote, one for each "
                                          "partition", 1),
    Column("failed_requests", "failed", "count", "other failed requests of the transactions", 2),
    Column("finding", "finding", "text", "what is wrong, with evidence"),
    Column("first", "first", "time", "the first request", 3),
    Column("last", "last", "time", "the last request", 3),
)  # fmt: skip
BATCH_COLUMNS = (
    Column("client_id", "client", "text", "client_id of the producer"),
    Column("topic", "topic", "text", "topic, or its id"),
    Column("fate", "fate", "text", "duplicated (appended again, at another offset), never acknowledged, "
           "refused, acknowledged perhaps twice in the log, deduplicated (the broker knew them), or acknowledged by a "
           "retry"),
    Column("batches", "batches", "count", "record batches"),
    Column("records", "records", "count", "records in them"),
    Column("idempotent", "idempotent", "flag", "the producer is idempotent: retries cannot be appended twice", 1),
    Column("copies", "sent", "count", "times that they were sent", 1),
    Column("retry_ns", "retried\nwithin", "ns", "the longest time from the first to the last copy", 2),
    Column("example", "example", "text", "partition, and offsets or error code of the first such batch"),
    Column("first", "first", "time", "when the first such batch was sent"),
)  # fmt: skip

_PRODUCED = CountForm(
    "transactions.produced",
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
        tally.add("transactions.produced", keys, {"requests": 1, "first": times, "last": times})
    if len(failed):
        events = events_of(gathered, failed.exchange, FAILED)
        events["transactional_id"], events["producer_id"] = ids[failed.exchange], failed["producer_id"]
        events["epoch"] = failed["producer_epoch"]
        events["error_code"] = worst[failed.exchange]
        tally.note(events)


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Transactional ids with open transactions first, the longest first; then batches, the worst first."""
    rows = in_columns(COLUMNS, (_row(item, given.context) for item in followed(given)))
    notes = (
        "open: from the first request of a transaction to the response that ended it, or to the end of the capture.",
    )
    batches = in_columns(BATCH_COLUMNS, _batch_rows(given))
    batch_notes = (
        "A retry is known by the batch's CRC, on any connection; librdkafka without idempotence makes new batches.",
        "A batch without a response may be in the log all the same.",
    )
    return (
        ReportTable("transactions", "Transactions", COLUMNS, rows, notes, empty="no transactional producers"),
        ReportTable("retried_batches", "Record batches: duplicates and losses", BATCH_COLUMNS, batches, batch_notes,
                    empty="every record batch was sent once and acknowledged"),
    )  # fmt: skip


def _row(item: Transactional, context: Context) -> Row:
    owner = item.owner
    return {
        "transactional_id": context.text(item.name), "client_id": context.text(owner.client_id) if owner else None,
        "address": context.address(owner.client_ip) if owner else None, "producer_id": maybe(item.producer_id),
        "producer_epoch": maybe(item.epoch), "state": item.state, "open_ns": item.open_ns, "open_since": item.opened,
        "longest_ns": maybe(item.longest), "timeout_ms": maybe(item.timeout_ms), "committed": item.committed,
        "aborted": item.aborted, "aborted_by_broker": item.aborted_by_broker,
        "aborted_elsewhere": item.aborted_elsewhere, "fenced": item.fenced, "markers": item.markers,
        "failed_requests": item.failed, "finding": _finding(item, context), "first": item.first, "last": item.last,
    }  # fmt: skip


def _finding(item: Transactional, context: Context) -> str | None:
    parts = []
    if item.open_ns is not None:
        parts.append(f"open for {duration(item.open_ns)} when the capture ended")
    for victim, winner, error in item.fences:
        by = context.text(winner.client_id) if winner else None
        who = f"{context.text(victim.client_id)} ({context.address(victim.client_ip)})"
        parts.append(f"{who} was fenced by {by or 'the coordinator'}: {error_name(error)}")
    if item.timed_out_ns >= 0:
        limit = f", the timeout is {duration(item.timeout_ms * 1_000_000)}" if item.timeout_ms >= 0 else ""
        parts.append(f"the coordinator aborted a transaction after {duration(item.timed_out_ns)}{limit}")
    if item.aborted_elsewhere:
        times = "once" if item.aborted_elsewhere == 1 else f"{item.aborted_elsewhere:,} times"
        parts.append(f"aborted {times}: by whom was not captured")
    return "; ".join(parts) or None


def _batch_rows(given: SectionInput) -> Iterator[Row]:
    """Rows by client, topic and fate."""
    keys, v = given.keys(COPIES.name), given.values(COPIES.name)
    chosen, fates = what_became(v, keys)
    groups: dict[tuple[str | None, str | None, str, bool], list[int]] = {}
    for row, fate in zip(chosen.tolist(), fates, strict=True):
        client = given.context.text(int(keys["client_id"][row]))
        topic = given.context.topic(int(keys["topic"][row]), int(keys["topic_id"][row]))
        groups.setdefault((client, topic, fate, bool(keys["producer_id"][row] >= 0)), []).append(row)
    ordered = sorted(groups.items(), key=lambda item: (FATES.index(item[0][2]), -len(item[1]), str(item[0])))
    for (client, topic, fate, idempotent), rows in ordered:
        at = np.array(rows)
        one = min(rows, key=lambda row: (v["first"][row], keys["partition"][row], keys["crc"][row]))
        yield {
            "client_id": client, "topic": topic, "fate": fate, "batches": len(rows),
            "records": int(v["records"][at].sum()), "idempotent": idempotent, "copies": int(v["copies"][at].sum()),
            "retry_ns": int((v["last"][at] - v["first"][at]).max()), "example": _example(one, keys, v),
            "first": int(v["first"][one]),
        }  # fmt: skip


def _example(row: int, keys: dict[str, Array], v: dict[str, Array]) -> str:
    text = f"partition {int(keys['partition'][row])}"
    low, high = int(v["min_offset"][row]), int(v["max_offset"][row])
    if v["answered"][row]:
        text += f", offset {low}" if low >= high else f", offsets {low} and {high}"
    if v["error_code"][row] > 0:
        text += f", {error_name(int(v['error_code'][row]))}"
    if keys["producer_id"][row] >= 0:
        sequence = int(keys["epoch_sequence"][row]) & 0xFFFFFFFF
        text += f", producer {int(keys['producer_id'][row])}, sequence {sequence}"
    return text


SECTION = Section(
    "transactions",
    "Who holds a transaction open, who is fenced, and which batches are duplicated or lost?",
    (
        "produce", "init producer", "producer", "add partitions", "added partition", "add partitions of",
        "added partitions of", "added partition of", "add offsets", "added offsets", "end transaction",
        "ended transaction", "marker", "marker partition", "transaction commit",
    ),
    (_PRODUCED,),
    {"transactions": COLUMNS, "retried_batches": BATCH_COLUMNS},
    read,
    tables,
    under_selection=READ_SELECTED,
    made_of=("batch_reading",),
)  # fmt: skip
