"""Transactions by transactional id: who owns it, how long transactions are open, how they end, and who is fenced.

The section follows each transactional id through its requests in order of time (`transaction_log`). Record batches that
were sent more than once, or never acknowledged, are in a table of their own (`batch_copies` says how they are
found, and what bounds their number).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.kafka.error_codes import error_name

from ..batch import Array, Context
from ..counting.rollup import maybe
from ..model import Column, ReportTable, Row, in_columns
from ..section_parts.batch_copies import COPIES, FATES, what_became
from ..section_parts.section import Section, SectionInput
from ..section_parts.transaction_log import Producer, Transactional, followed, followed_here
from ..units import duration

COLUMNS = (
    Column("transactional_id", "transactional id", "text", "transactional id",
           of=lambda r: r.context.text(r.item.name)),
    Column("client_id", "client", "text", "client_id of the last producer that had this id; under a selection, of the "
           "last one that is selected", of=lambda r: r.owner and r.context.text(r.owner.client_id)),
    Column("address", "address", "text", "IP address of that producer", 1, end="client",
           of=lambda r: r.owner and r.context.address(r.owner.client_ip)),
    Column("producer_id", "producer\nid", "count", "its producer id", 1, of=lambda r: maybe(r.item.producer_id)),
    Column("producer_epoch", "epoch", "count", "its last producer epoch", 2, of=lambda r: maybe(r.item.epoch)),
    Column("state", "state", "text", "at the end of the capture: open, committed, aborted, empty or fenced; unknown: "
           "the selection leaves out Produce, which begins transactions", of="item.state"),
    Column("open_ns", "open\nfor", "ns",
           "how long the open transaction is open at the end of the capture", of="item.open_ns"),
    Column("open_since", "open\nsince", "time", "the first request of the open transaction", of="item.opened"),
    Column("longest_ns", "longest", "ns", "the longest time that a transaction was open, from its first request to the "
           "response that ended it", of=lambda r: maybe(r.item.longest)),
    Column("timeout_ms", "timeout", "ms", "transaction timeout of the producer", 2,
           of=lambda r: maybe(r.item.timeout_ms)),
    Column("committed", "commits", "count", "transactions that the producer committed", apis=(26,),
           of="item.committed"),
    Column("aborted", "aborts", "count", "transactions that the producer aborted", apis=(26,), of="item.aborted"),
    Column("aborted_by_broker", "aborted\nby broker", "count", "transactions that the coordinator aborted: they were "
           "open for longer than the timeout, or fenced", of="item.aborted_by_broker"),
    Column("aborted_elsewhere", "aborted\nelsewhere", "count",
           "transactions that were aborted; by whom was not captured", of="item.aborted_elsewhere"),
    Column("fenced", "fenced", "count", "requests that failed because another producer has the id", of="item.fenced"),
    Column("markers", "markers", "count",
           "markers (control batches) that the coordinator wrote, one for each partition", 1, of="item.markers"),
    Column("failed_requests", "failed", "count", "other failed requests of the transactions", 2, of="item.failed"),
    Column("finding", "finding", "text", "what is wrong, with evidence", of=lambda r: _finding(r.item, r.context)),
    Column("first", "first", "time", "the first request", 3, of="item.first"),
    Column("last", "last", "time", "the last request", 3, of="item.last"),
)  # fmt: skip
BATCH_COLUMNS = (
    Column("client_id", "client", "text", "client_id of the producer"),
    Column("topic", "topic", "text", "topic, or its id"),
    Column("fate", "fate", "text", "duplicated (appended again, at another offset), never acknowledged, refused, "
           "acknowledged perhaps twice in the log, deduplicated (the broker knew them), or acknowledged by a retry"),
    Column("batches", "batches", "count", "record batches"),
    Column("records", "records", "count", "records in them"),
    Column("idempotent", "idempotent", "flag", "the producer is idempotent: retries cannot be appended twice", 1),
    Column("copies", "sent", "count", "times that they were sent", 1),
    Column("retry_ns", "retried\nwithin", "ns", "the longest time from the first to the last copy", 2),
    Column("example", "example", "text", "partition, and offsets or error code of the first such batch"),
    Column("first", "first", "time", "when the first such batch was sent"),
)  # fmt: skip

#: Produce begins transactions, and is read only if it is selected. The other APIs of transactions are always read.
_PRODUCE = 0
#: The columns that are not known without it.
_UNKNOWN = {"state": lambda _: "unknown", **dict.fromkeys(
    ("open_ns", "open_since", "longest_ns", "aborted_by_broker", "aborted_elsewhere", "finding"), lambda _: None,
)}  # fmt: skip


class _Shown(NamedTuple):
    item: Transactional
    owner: Producer | None
    context: Context


def _shown(given: SectionInput) -> Iterator[_Shown]:
    """The transactional ids that the selected exchanges name, or that lived in the selected time; each with the
    producer to show."""
    selected = given.selected
    own = {} if selected is None else {item.name: item.owner for item in given.once(followed_here)}
    for item in followed(given):
        is_there = selected is None or item.name in own
        if selected is not None and selected.expression is None and selected.span is not None and not is_there:
            is_open = item.opened is not None
            is_there = (item.first or 0) < selected.span[1] and (is_open or item.last >= selected.span[0])
        if is_there:
            yield _Shown(item, own.get(item.name) or item.owner, given.context)


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Transactional ids with open transactions first, the longest first; then batches, the worst first."""
    read = None if given.selected is None else given.selected.read_apis
    unknown = {} if read is None or _PRODUCE in read else _UNKNOWN
    rows = in_columns([c._replace(of=unknown.get(c.name, c.of)) for c in COLUMNS], _shown(given))
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
                    empty="every record batch was sent once, and acknowledged if it had to be"),
    )  # fmt: skip


def _finding(item: Transactional, context: Context) -> str | None:
    parts = []
    if item.open_ns is not None:
        parts.append(f"open for {duration(item.open_ns)} when the capture ended")
    for victim, winner, error, _, _ in item.fences:
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
    who = np.stack([keys[name][chosen] for name in ("client_id", "topic", "topic_id")], axis=1)
    who = np.column_stack((who, keys["producer_id"][chosen] >= 0)).tolist()
    together: dict[tuple[Any, ...], list[int]] = {}
    for row, fate, numbers in zip(chosen.tolist(), fates, who, strict=True):
        together.setdefault((*numbers, fate), []).append(row)
    groups: dict[tuple[str | None, str | None, str, bool], list[int]] = {}
    for (client, topic, topic_id, is_idempotent, fate), rows in together.items():
        key = given.context.text(client), given.context.topic(topic, topic_id), fate, bool(is_idempotent)
        groups.setdefault(key, []).extend(rows)
    ordered = sorted(groups.items(), key=lambda item: (FATES.index(item[0][2]), -len(item[1]), str(item[0])))
    for (client, topic, fate, idempotent), rows in ordered:
        at = np.sort(rows)
        one = int(at[np.lexsort((keys["crc"][at], keys["partition"][at], v["first"][at]))[0]])
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
    "transactions", "Who holds a transaction open, who is fenced, and which batches are duplicated or lost?",
    columns={"transactions": COLUMNS, "retried_batches": BATCH_COLUMNS}, tables=tables,
    under_selection="States are learned from all that was read. Rows are of the ids that the selected requests name.",
    made_of=("section_parts.batch_copies:READING", "sections.transaction_reading"),
)  # fmt: skip
