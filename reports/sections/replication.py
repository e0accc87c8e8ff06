"""Replication: what Produce requests with acks=all wait for, by follower and by writer (`follower_waits`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array, Context, rows_of
from ..counting.percentiles import percentile
from ..model import Column, ReportTable, Row, as_number, in_columns
from ..section_parts.follower_waits import (
    NOT_WRITTEN,
    READ_BY,
    WRITTEN,
    Waits,
    all_waits,
    charged_requests,
    follower_addresses,
)
from ..section_parts.section import READ_SELECTED, Section, SectionInput
from ..units import share

FOLLOWERS = (
    Column("follower", "follower", "count", "broker id in the follower's Fetch requests"),
    Column("address", "address", "text", "IP address of the follower", end="client"),
    Column("topic", "topic", "text", "topic, by name if Metadata names it"),
    Column("produces", "produces", "count", "answered Produce requests with acks=all for a partition that it follows"),
    Column("charged", "waited\nfor it", "count", "of these, requests that waited for this follower last"),
    Column("wait_share", "share\nof waits", "share", "its share of the topic's summed waits for followers"),
    Column("wait_sum_ns", "wait\nsum", "ns", "waits charged to it, summed"),
    Column("wait_p50_ns", "wait\np50", "ns", "median of the waits charged to it", 2),
    Column("wait_p99_ns", "wait\np99", "ns", "99th percentile of the waits charged to it", 1),
    Column("wait_max_ns", "wait\nmax", "ns", "the longest wait charged to it"),
    Column("own_share", "its own\ntime", "share", "part of these waits in which the leader had no Fetch of it"),
    Column("left", "left\nin-sync", "count", "requests that waited until it was removed from the in-sync replicas"),
    Column("last_slow", "longest at", "time", "when the longest wait ended", 1),
)
WRITERS = (
    Column("client_id", "client", "text", "client_id of the Produce requests"),
    Column("topic", "topic", "text", "topic, by name if Metadata names it"),
    Column("produces", "produces", "count", "answered Produce requests with acks=all"),
    Column("failed", "failed", "count", "of these, requests that were answered with an error"),
    Column("broker_p50_ns", "broker\np50", "ns", "broker time, median", 1),
    Column("broker_p99_ns", "broker\np99", "ns", "broker time, 99th percentile"),
    Column("broker_max_ns", "broker\nmax", "ns", "broker time, longest"),
    Column("followers_share", "followers", "share", "part of the broker time of the others: waiting for followers"),
    Column("finding", "finding", "text", "what took most of the time: a follower, the leader, or failed requests"),
)


# ---------------------------------------------------------------- tables


class _Follower:
    def __init__(self) -> None:
        self.produces = 0
        self.left = 0
        self.waits: list[Array] = []
        self.own = 0
        self.longest = (0, 0)

    def add(self, waits: Waits, follower: int) -> None:
        mine = waits.follower == follower
        self.produces += len(mine)
        if not mine.any():
            return
        found = waits.wait_ns[mine]
        self.waits.append(found)
        self.own += int(waits.own_ns[mine].sum())
        self.left += int(waits.is_left[mine].sum())
        at = int(found.argmax())
        self.longest = max(self.longest, (int(found[at]), int(waits.events["time"][mine][at])))


def tables(given: SectionInput) -> Sequence[ReportTable]:
    """Followers by the waits charged to them, then writers by their broker time."""
    return _follower_table(given.once(all_waits), follower_addresses(given)), _writer_table(given)


def _follower_table(found: list[tuple[str | None, Waits]], addresses: dict[int, str | None]) -> ReportTable:
    rows: dict[tuple[str | None, int], _Follower] = {}
    totals: dict[str | None, int] = {}
    for topic, waits in found:
        totals[topic] = totals.get(topic, 0) + int(waits.wait_ns.sum())
        for follower in waits.followers:
            rows.setdefault((topic, follower), _Follower()).add(waits, follower)
    values: list[Row] = []
    for (topic, follower), row in rows.items():
        all_waits = np.concatenate(row.waits) if row.waits else np.zeros(0, np.int64)
        total = int(all_waits.sum())
        values.append({
            "follower": follower, "address": addresses.get(follower), "topic": topic, "produces": row.produces,
            "charged": len(all_waits), "wait_share": total / totals[topic] if totals[topic] else None,
            "wait_sum_ns": total, "wait_p50_ns": percentile(all_waits, 50), "wait_p99_ns": percentile(all_waits, 99),
            "wait_max_ns": int(all_waits.max()) if len(all_waits) else None,
            "own_share": row.own / total if total else None, "left": row.left, "last_slow": row.longest[1] or None,
        })  # fmt: skip

    def order(row: Row) -> tuple[Any, ...]:
        return -as_number(row["wait_sum_ns"]), str(row["topic"]), str(row["follower"])

    notes = (
        "A Produce with acks=all waits until each in-sync follower has fetched beyond it: the last one counts.",
        "This needs a capture at the leader's host.",
    )
    return ReportTable(
        "replication", "Followers that acks=all waited for", FOLLOWERS, in_columns(FOLLOWERS, values, order), notes,
        empty="no Produce with acks=all whose followers were captured",
    )  # fmt: skip


def _writer_table(given: SectionInput) -> ReportTable:
    """Requests by client and topic. A request waits for the last of its partitions."""
    events = given.events(READ_BY)
    written, failed = (kind.among(events) for kind in (WRITTEN, NOT_WRITTEN))
    names = ("client_id", "topic", "topic_id", "exchange", "time", "begin")
    answers = {name: np.concatenate([part[name].astype(np.int64) for part in (written, failed)]) for name in names}
    codes = np.append(np.zeros(len(written), np.int64), failed["error_code"])
    writers, writer = _writers(answers, given.context)
    charged = given.once(charged_requests)
    values: list[Row] = []
    for (number,), rows in groups_of(writer):
        keys, last = np.unique(answers["exchange"][rows][::-1], return_index=True)
        chosen = rows[::-1][last]  # of several partitions, the last one counts
        broker = answers["time"][chosen] - answers["begin"][chosen]
        wrong = rows[codes[rows] != 0]
        codes_of = dict(zip(answers["exchange"][wrong].tolist(), codes[wrong].tolist(), strict=True))
        is_done = ~is_among(keys, list(codes_of))
        charge = rows_of(charged.exchange, keys[is_done])
        charge = charge[charge >= 0]
        waits, followers = charged.wait[charge], charged.follower[charge]
        waits_by = {each: int(waits[followers == each].sum()) for each in distinct_values(followers).tolist()}
        total = int(broker[is_done].sum())
        lost = int(broker.sum()) - total
        client, topic = writers[number]
        values.append({
            "client_id": client, "topic": topic, "produces": len(broker), "failed": len(codes_of),
            "broker_p50_ns": percentile(broker, 50),
            "broker_p99_ns": percentile(broker, 99), "broker_max_ns": int(broker.max()),
            "followers_share": int(waits.sum()) / total if len(charge) and total else None,
            "finding": _failure(codes_of, lost, total) if lost > total else _slowest(waits_by, total),
        })  # fmt: skip

    def order(row: Row) -> tuple[Any, ...]:
        return -as_number(row["broker_max_ns"]), str(row["client_id"]), str(row["topic"])

    notes = (
        "The rest of the broker time is the leader's: its queue, its log, its threads.",
        "Answers with an error count, and requests without one do not (section timeouts).",
    )
    return ReportTable(
        "replication_writers", "Writers with acks=all", WRITERS, in_columns(WRITERS, values, order), notes,
        empty="no Produce with acks=all",
    )  # fmt: skip


def _failure(codes: dict[int, int], lost: int, total: int) -> str:
    """`failed (REQUEST_TIMED_OUT): 99 % of the time`"""
    (code, _), *_ = Counter(codes.values()).most_common(1)
    return f"failed ({error_name(code)}): {share(lost / (lost + total))} of the time"


def _writers(answers: dict[str, Array], context: Context) -> tuple[list[tuple[str | None, str | None]], Array]:
    """The clients and topics of answers, and which of them each has."""
    columns = [answers[name] for name in ("client_id", "topic", "topic_id")]
    numbers: dict[tuple[str | None, str | None], int] = {}
    writer = np.zeros(len(columns[0]), np.int64)
    for (client, topic, topic_id), rows in groups_of(*columns):
        names = context.text(client), context.topic(topic, topic_id)
        writer[rows] = numbers.setdefault(names, len(numbers))
    return list(numbers), writer


def _slowest(waits_by: dict[int, int], total: int) -> str:
    if not waits_by:
        return "no follower was captured"
    waited = sum(waits_by.values())
    slowest = max(waits_by, key=lambda follower: (waits_by[follower], -follower))
    if not total or waited < total / 2:
        return f"leader: {share((total - waited) / total if total else 0)} of the time"
    return f"follower {slowest}: {share(waits_by[slowest] / waited)} of the waits"


SECTION = Section(
    "replication", "Why is acks=all slow?",
    columns={"replication": FOLLOWERS, "replication_writers": WRITERS}, tables=tables, under_selection=READ_SELECTED,
    made_of=("section_parts.follower_waits:READING",),
)  # fmt: skip
