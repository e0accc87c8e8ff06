"""Who writes and reads each topic, in which group, and how far behind.

A row for each topic, client and role. The end of a partition is the largest that the capture shows: a high watermark in
a response to anybody, the latest offset of ListOffsets, or the end of an answered Produce.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from ..batch import Context
from ..model import Column, ReportTable, Row, Value, as_number, in_columns
from ..section_parts.section import READ_SELECTED, Section, SectionInput
from .reader_counts import COUNTS
from .topic_counts import BATCHES, READS, REPLICATES, REQUESTS, WRITES
from .topic_readers import (
    BY_SHARE_FETCH,
    EVIDENCE,
    Client,
    GroupsOf,
    Place,
    Reader,
    log_ends,
    readers_of,
    unseen_readers,
)  # fmt: skip
from .topic_rows import TopicNames

COLUMNS = (
    Column("topic", "topic", "text", "name of the topic, or its id if no message has its name"),
    Column("role", "role", "text", "writes, reads, or replicates (a follower)"),
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("address", "address", "text", "IP address of the client", end="client"),
    Column("group", "group", "text", "group of the reader"),
    Column("evidence", "group known by", "text", "how the group of the reader is known", 2),
    Column("partitions", "parti-\ntions", "count", "partitions of the topic that the client writes or reads"),
    Column("requests", "requests", "count", "requests that list the topic"),
    Column("idle_requests", "idle", "count", "Fetch requests of sessions with the topic that list no partition", 1),
    Column("acks", "acks", "text",
           "what the writer waits for: 0: nothing, 1: the leader, all: all in-sync replicas", 1),
    Column("too_few_replicas", "too few\nreplicas", "count", "partitions of its requests that were answered "
           "NOT_ENOUGH_REPLICAS (_AFTER_APPEND): fewer in-sync replicas than min.insync.replicas", 1),
    Column("batch_bytes", "batch\nbytes", "bytes", "record batches that the client writes or reads"),
    Column("records", "records", "count", "records in them, without markers of transactions", 1),
    Column("lag", "lag", "count", "records between the reader's latest fetch offset and the end, over all partitions"),
    Column("lag_max", "max lag", "count", "largest distance to the high watermark of a partition in one Fetch", 2),
    Column("committed_lag", "lag of\ncommits", "count", "records between the group's latest commits and the end", 1),
    Column("first", "first", "time", "the first request that lists the topic", 4),
    Column("last", "last", "time", "the last request of the reader's session, or that lists the topic", 2),
    Column("certainty", "certainty", "text", "what the capture does not show", 3),
)  # fmt: skip
_ROLES = {WRITES: "writes", READS: "reads", REPLICATES: "replicates"}


class _Traffic:
    def __init__(self) -> None:
        self.requests = self.bytes = self.records = self.too_few_replicas = 0
        self.acks = Counter[int]()
        self.first, self.last = 2**63, 0


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """The table."""
    names = TopicNames(given.context)
    ends, readers, groups = log_ends(given, names), readers_of(given, names), GroupsOf(given, names)
    return (_matrix(given, names, ends, readers, groups),)


OfGroup = tuple[str | None, Place]  # group, place
Readers = dict[tuple[int, Client, str | None], Reader]


def _matrix(
    given: SectionInput, names: TopicNames, ends: dict[Place, int], readers: Readers, groups: GroupsOf
) -> ReportTable:
    """Rows by topic, those with the most bytes first; writers before readers, and by bytes."""
    context = given.context
    traffic: dict[tuple[int, Client, str | None], _Traffic] = defaultdict(_Traffic)
    for row in given.rows(REQUESTS.name):
        t = traffic[row["role"], (row["client_id"], row["client_ip"]), names[row]]
        t.requests += row["requests"]
        t.acks[row["acks"]] += row["requests"]
        t.too_few_replicas += row["too_few_replicas"]
        t.first, t.last = min(t.first, row["first"]), max(t.last, row["last"])
    for row in given.rows(BATCHES.name):
        t = traffic[row["role"], (row["client_id"], row["client_ip"]), names[row]]
        t.bytes += row["bytes"]
        t.records += row["records"]
    for client, name in groups.named_topics(unseen_readers(given)):
        readers.setdefault((READS, client, name), Reader())
    owners = _owners(readers, groups)
    bytes_of: dict[Value, int] = defaultdict(int)
    for (_, _, topic), mine in traffic.items():
        bytes_of[topic] += mine.bytes

    def named_rows() -> Iterator[Row]:
        for place in {*traffic, *readers}:
            role, client, topic = place
            if topic is None:
                continue
            reader = readers.get(place)
            names_of_groups = _groups(groups, client, topic, reader) if role == READS else []
            yield _matrix_row(context, place, traffic[place], reader, names_of_groups, ends, groups.committed, owners)

    roles = {name: number for number, name in _ROLES.items()}

    def order(row: Row) -> tuple[Any, ...]:
        return (
            -bytes_of[row["topic"]], str(row["topic"]), roles[str(row["role"])], -as_number(row["batch_bytes"]),
            str(row["client_id"]), str(row["address"]),
        )  # fmt: skip

    rows = in_columns(COLUMNS, named_rows(), order)
    notes = (
        "idle: Fetch requests that list nothing, as nothing changed in their session; they count for each topic.",
        "lag: end of the partitions less the latest fetch offset, or less the latest commit of the group.",
    )
    return ReportTable("topic_clients", "Writers and readers", COLUMNS, rows, notes, empty="no topics")


def _groups(groups: GroupsOf, client: Client, topic: str, reader: Reader | None) -> list[tuple[str | None, int]]:
    found = groups.of(client, topic)
    if reader is not None and reader.is_share:
        return [(group, BY_SHARE_FETCH) for group, _ in found]
    return found


def _matrix_row(
    context: Context, place: tuple[int, Client, str | None], t: _Traffic, reader: Reader | None,
    groups: list[tuple[str | None, int]], ends: dict[Place, int], offsets: dict[OfGroup, int],
    owners: dict[OfGroup, tuple[int, Client]],
) -> Row:  # fmt: skip
    role, client, topic = place
    evidence = EVIDENCE[groups[0][1]] if groups else None
    if len(groups) > 1:
        evidence = f"{evidence}, one of {len(groups)}"
    lags: list[int] = []
    committed: list[int] = []
    last, first, lag_max = t.last, t.first, -1
    for partition, reading in reader.partitions.items() if reader is not None else ():
        last, first = max(last, reading.last), min(first, reading.first)
        lag_max = max(lag_max, reading.lag)
        end = ends.get((topic, partition), -1)
        if len(groups) == 1 and owners[groups[0][0], (topic, partition)][1] != client:
            continue
        if reading.position >= 0 and end >= 0:
            lags.append(max(end - reading.position, 0))
        offset = offsets.get((groups[0][0], (topic, partition)), -1) if len(groups) == 1 else -1
        if offset >= 0 and end >= 0:
            committed.append(max(end - offset, 0))
    reads = role != WRITES
    return {
        "topic": topic, "role": _ROLES[role], "client_id": context.text(client[0]),
        "address": context.address(client[1]), "group": ", ".join(str(group) for group, _ in groups) or None,
        "evidence": evidence, "partitions": len(reader.partitions) or None if reader is not None else None,
        "requests": t.requests, "idle_requests": reader.idle if reader is not None and reads else None,
        "acks": None if reads else _acks(t.acks), "too_few_replicas": None if reads else t.too_few_replicas,
        "batch_bytes": t.bytes, "records": t.records, "lag": sum(lags) if reads and lags else None,
        "lag_max": lag_max if lag_max >= 0 else None, "committed_lag": sum(committed) if committed else None,
        "first": first if first != 2**63 else None, "last": last or None, "certainty": _certainty(reader),
    }  # fmt: skip


def _acks(requests: Counter[int]) -> str:
    """`all`; with the requests of each if there are several: `all 1,200, 0 3`."""
    counts = [("all" if acks == -1 else str(acks), n) for acks, n in sorted(requests.items()) if n]
    return ", ".join(name if len(counts) == 1 else f"{name} {n:,}" for name, n in counts)


def _owners(readers: Readers, groups: GroupsOf) -> dict[OfGroup, tuple[int, Client]]:
    """(time, client): who reads each partition of a group last. The lag counts for that client alone."""
    owners: dict[OfGroup, tuple[int, Client]] = {}
    for (role, client, topic), reader in readers.items():
        for group, _ in _groups(groups, client, topic or "", reader) if role == READS else []:
            for partition, reading in reader.partitions.items():
                place = group, (topic, partition)
                owners[place] = max(owners.get(place, (0, client)), (reading.last, client))
    return owners


def _certainty(reader: Reader | None) -> str | None:
    if reader is not None and not reader.partitions:
        return "its Fetches list no topic: the session began before the capture"
    if reader is not None and not any(reading.is_reading for reading in reader.partitions.values()):
        return "stopped: its session forgot the topic"
    if reader is None or not reader.unknown:
        return None
    if reader.unknown == len(reader.sessions):
        return "the fetch session began before the capture: only changes seen"
    return f"{reader.unknown} of {len(reader.sessions)} fetch sessions began before the capture"


SECTION = Section(
    "topics", "Who writes and reads each topic, in which group, and how far behind?",
    columns={"topic_clients": COLUMNS}, tables=tables, counts=COUNTS, under_selection=READ_SELECTED,
)  # fmt: skip
