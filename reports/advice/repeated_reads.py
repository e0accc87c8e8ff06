"""What readers are sent again and again on one connection: all of a partition, or one offset at which they stand.

Both count the same: what each Fetch response brings of a partition, by the offset that the request asks for. A request
of a fetch session leaves out partitions whose offset did not change: then the one before said it, or the first batch
says about where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import dict_rows

from .. import units
from ..finding_words import and_more
from ..finding_words import counted as many
from ..findings import Finding, Party
from ..groups.offsets_over_time import COMMITS
from ..section_parts.counted import CLIENT, CONNECTION, PLACE, SPAN, Rows, counted, largest, least, once, total
from ..section_parts.section import SectionInput
from .parties import client_parties, client_words
from .record_commands import record_commands
from .signature import Signature, spanning

#: Each record so many times on average. A program that reads all once more has each twice.
_TIMES = 3.0
#: Responses with records. Fewer may be a program that tries something.
_RESPONSES = 10
#: Deliveries of one offset, and for how long: twice the default of auto.commit.interval.ms, and longer than the usual
#: attempts of frameworks, which follow at once.
_DELIVERIES, _STANDS_NS = 5, 10 * units.SECOND
#: Rows of the form. What is sent again comes soon, and this is many responses.
_ROWS = 50_000
_BATCH = "fetched batch"


@once
def _is_asked(x: Rows) -> Any:
    """Whether the request has the offset."""
    return (x.beside("fetch partition", "offset") >= 0).astype(np.int64)


@once
def _asked(x: Rows) -> Any:
    """The offset that is fetched, else that of the first batch, which may begin before it."""
    return np.where(_is_asked(x), x.beside("fetch partition", "offset"), x.beside(_BATCH, "base_offset"))


@once
def _begin(x: Rows) -> Any:
    """The offset of the first batch. Message sets may not say."""
    base = x.beside(_BATCH, "base_offset")
    return np.where(base >= 0, base, _asked(x))


@once
def _records(x: Rows) -> Any:
    return x.summed(_BATCH, "records")


_DELIVERED = counted(
    "advice.delivered", CONNECTION | CLIENT | PLACE,
    (
        lambda x: (x.error_code == 0) & (x.top("fetch", "replica_id") < 0) & (x.top("fetch", "replica_state_id") < 0),
        lambda x: (x.summed(_BATCH, "bytes") > 0) & (_asked(x) >= 0),
    ),
    of=("fetched partition",), more={"offset": _asked, "is_asked": _is_asked}, newest="last", rows=_ROWS,
    beside=("fetch", "fetch partition", _BATCH),
    deliveries=total(1), bytes=total(lambda x: x.summed(_BATCH, "bytes")), records=total(_records),
    begin=least(_begin), next=largest(lambda x: _begin(x) + x.beside(_BATCH, "records", 0)),
    end=largest(lambda x: _begin(x) + _records(x)), high_watermark=largest("high_watermark"),
    **SPAN,
)  # fmt: skip


class _Reads(NamedTuple):
    """What a connection was sent of a partition. `client`: numbers of its id and its address. `rows`: by offset."""

    client: tuple[int, int]
    topic: str
    partition: int
    rows: list[dict[str, int]]

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}"


def _reads(given: SectionInput) -> list[_Reads]:
    """Those that were sent something more than once or twice."""
    found: dict[tuple[int, int, int, str, int], list[dict[str, int]]] = defaultdict(list)
    for row in _repeated(given):
        topic = given.context.topic(row["topic"], row["topic_id"])
        if row["connection"] != -1 and topic is not None:
            key = row["connection"], row["client_id"], row["client_ip"], topic, row["partition"]
            found[key].append(row)
    return [
        _Reads(key[1:3], *key[3:], sorted(_with_sessions(rows), key=lambda row: row["offset"]))
        for key, rows in found.items()
    ]


def _repeated(given: SectionInput) -> Iterator[dict[str, int]]:
    """The rows of partitions of a connection of which an offset was sent twice, or more records than they have."""
    keys, values = given.keys(_DELIVERED.name), given.values(_DELIVERED.name)
    places = np.stack([keys[name] for name in ("connection", "topic", "topic_id", "partition")], axis=1)
    if not len(places):
        return
    group = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    begin, end = np.full(len(group), 2**62), np.zeros(len(group), np.int64)
    np.minimum.at(begin, group, values["begin"])
    np.maximum.at(end, group, values["end"])
    sums = {name: np.bincount(group, values[name], len(group)) for name in ("deliveries", "records")}
    is_again = (np.bincount(group, values["deliveries"] > 1, len(group)) > 0) | (sums["records"] > end - begin)
    chosen = (is_again & (sums["deliveries"] >= _DELIVERIES))[group]
    yield from dict_rows({name: column[chosen] for name, column in (keys | values).items()})


def _with_sessions(rows: list[dict[str, int]]) -> list[dict[str, int]]:
    """What was sent without a new offset belongs to the latest one that was asked for in the same batch."""
    asked = {row["begin"]: row for row in sorted(rows, key=lambda row: row["last"]) if row["is_asked"]}
    for row in rows:
        if not row["is_asked"] and (mine := asked.get(row["begin"])) is not None:
            mine |= {name: mine[name] + row[name] for name in ("deliveries", "bytes", "records")}
            mine |= {name: max(mine[name], row[name]) for name in ("last", "next", "end", "high_watermark")}
            mine |= {name: min(mine[name], row[name]) for name in ("first", "packet")}
    return [row for row in rows if row["is_asked"] or row["begin"] not in asked]


# ------------------------------------------------------------ one offset


class _Stand(NamedTuple):
    """A reader that comes back to one offset, the lowest that it asks for since it did so first."""

    reads: _Reads
    row: dict[str, int]
    group: str


def _lowest(rows: list[dict[str, int]]) -> dict[str, int] | None:
    """The row of the offset that a reader comes back to, if it stands there. `rows`: by ascending offset."""
    latest_before, found = 0, None
    for row in rows:
        is_often = row["deliveries"] >= _DELIVERIES and row["last"] - row["first"] >= _STANDS_NS
        if is_often and latest_before < row["first"]:
            found = row if found is None or row["deliveries"] > found["deliveries"] else found
        latest_before = max(latest_before, row["last"])
    return found


def _stands(given: SectionInput) -> list[_Stand]:
    """Those of members of groups that commit nothing behind the record meanwhile."""
    standing = [(reads, row) for reads in given.once(_reads) if (row := _lowest(reads.rows)) is not None]
    if not standing:
        return []
    from ..groups.group import groups_of  # few reports need it

    context, groups = given.context, given.once(groups_of)
    commits: dict[tuple[str | None, str | None, int], list[tuple[int, int]]] = defaultdict(list)
    for one in given.rows(COMMITS.name):
        key = context.text(one["group"]), context.topic(one["topic"], one["topic_id"]), one["partition"]
        commits[key].append((one["time"], one["offset"]))
    found = []
    for reads, row in standing:
        client = context.address(reads.client[1]), context.text(reads.client[0])
        waiting = []
        for group in groups:
            mine = commits.get((group.name, reads.topic, reads.partition), ())
            # librdkafka commits the next offset when it hands out a record, whatever comes of it
            most = row["offset"] + 1 if row["is_asked"] else row["next"]
            has_gone_on = any(time >= row["first"] and offset > most for time, offset in mine)
            # a member begins at the committed offset after each rebalance
            rebalances = [] if group.history is None else group.history.rebalances
            begun = sum(row["first"] < one.end <= row["last"] for one in rebalances)
            if client in group.clients and not has_gone_on and row["deliveries"] - begun >= _DELIVERIES:
                waiting.append((not mine, group.name))
        if waiting:
            found.append(_Stand(reads, row, min(waiting)[1]))
    return found


def _poison_findings(given: SectionInput) -> Iterator[Finding]:
    """One for each group and topic."""
    together: dict[tuple[str, str], list[_Stand]] = defaultdict(list)
    for stand in given.once(_stands):
        together[stand.group, stand.reads.topic].append(stand)
    for (group, topic), stands in together.items():
        worst = max(stands, key=lambda one: (one.row["last"] - one.row["first"], one.row["deliveries"]))
        yield _poison(given, group, topic, worst, len({stand.reads.partition for stand in stands}))


def _poison(given: SectionInput, group: str, topic: str, worst: _Stand, partitions: int) -> Finding:
    context, row, client = given.context, worst.row, worst.reads.client
    stands_ns, behind = row["last"] - row["first"], max(row["high_watermark"] - row["offset"] - 1, 0)
    waits = f", and {many(behind, 'offset')} wait{'s' if behind == 1 else ''}" if behind else ""
    text = (
        f'{client_words(context, *client)} of group "{group}" stands at offset {row["offset"]:,} of '
        f"{worst.reads.place}{and_more(partitions - 1)}: it was sent {row['deliveries']:,} times in "
        f"{units.duration(stands_ns)}, nothing behind it is committed{waits}. Its program fails on this record and "
        "goes back to it, or throws it away"
    )
    numbers = {
        "offset": row["offset"], "partition": worst.reads.partition, "deliveries": row["deliveries"],
        "stands_ns": stands_ns, "bytes": row["bytes"], "behind": behind, "partitions": partitions,
    }  # fmt: skip
    found = POISON_RECORD.found(
        given, row, text, stands_ns, numbers, (("sections", "groups"),),
        parties=(
            *client_parties(context, *client), Party("group", group), Party("topic", topic),
            Party("partition", worst.reads.place),
        ),
    )  # fmt: skip
    commands = record_commands(topic, [(worst.reads.partition, row["offset"])], "--max-messages 1")
    return found._replace(remedy=f"Look at the record: {commands}. {_LEAVE_OUT}")


_LEAVE_OUT = (
    "After a few attempts, let the application leave out what it cannot process, or write it to a dead letter topic."
)
POISON_RECORD = Signature(
    "poison_record",
    "a member comes back to one offset again and again",
    "A member of a group fetches a partition at the same offset again and again. Each response has records, and the "
    "group commits nothing behind the first.",
    "error handling of the application (skip, dead letter topic)",
    "Look at the record: `kafkatap records`, or kafka-console-consumer.sh with `--partition`, `--offset` and "
    f"`--max-messages 1`. {_LEAVE_OUT}",
    f"one offset is sent {_DELIVERIES} times on one connection over {_STANDS_NS // units.SECOND} s, without one for "
    "each rebalance of the group: usual attempts and commits by time are over by then. A commit of the next offset "
    "does not count: librdkafka commits what it has handed out. Time lost: from the first time to the last.",
    _poison_findings,
    counts=(_DELIVERED,),
    on_request=True,
    label="stands still",
)  # fmt: skip


# ------------------------------------------------------------ all of a partition


class _Again(NamedTuple):
    """How often a connection was sent the records of a partition. `again`: bytes that it had before."""

    reads: _Reads
    span: Mapping[str, int]
    begin: int
    end: int
    deliveries: int
    records: int
    bytes: int

    @property
    def times(self) -> float:
        return self.records / (self.end - self.begin)

    @property
    def again(self) -> int:
        return round(self.bytes * (1 - 1 / self.times))


def _sent_again(given: SectionInput) -> Iterator[_Again]:
    """Those that have each record several times, by the offsets between the first and the last."""
    standing = {id(stand.reads) for stand in given.once(_stands)}
    for reads in given.once(_reads):
        rows = reads.rows
        sums = {name: sum(row[name] for row in rows) for name in ("deliveries", "records", "bytes")}
        begin, end = min(row["begin"] for row in rows), max(row["end"] for row in rows)
        if id(reads) in standing or sums["deliveries"] < _RESPONSES or sums["records"] < _TIMES * max(end - begin, 1):
            continue
        yield _Again(reads, spanning(rows), begin, end, **sums)


def _again_findings(given: SectionInput) -> Iterator[Finding]:
    """One for each client."""
    context, together = given.context, defaultdict[tuple[int, int], list[_Again]](list)
    for one in _sent_again(given):
        together[one.reads.client].append(one)
    for client, found in together.items():
        worst = max(found, key=lambda one: one.again)
        again, of = sum(one.again for one in found), sum(one.bytes for one in found)
        text = (
            f"{client_words(context, *client)}: offsets {worst.begin:,} to {worst.end - 1:,} of {worst.reads.place}"
            f"{and_more(len(found) - 1)} were delivered {worst.times:.1f} times, {units.size(again)} of "
            f"{units.size(of)} again: it throws away what it fetched (pause and resume, seek), or reads all anew"
        )
        numbers = {
            "again_bytes": again, "bytes": of, "share": again / of, "times": round(worst.times, 2),
            "begin_offset": worst.begin, "end_offset": worst.end, "partition": worst.reads.partition,
            "deliveries": sum(one.deliveries for one in found), "partitions": len(found),
        }  # fmt: skip
        yield REFETCH.found(
            given, spanning([dict(one.span) for one in found]), text, 0, numbers,
            (("sections", "topics"),),
            parties=(
                *client_parties(context, *client),
                *(Party("topic", topic) for topic in dict.fromkeys(one.reads.topic for one in found)),
            ),
        )  # fmt: skip


REFETCH = Signature(
    "refetch",
    "a reader fetches the same records again and again",
    "On one connection, Fetch responses bring the records of a partition several times: the offsets of the requests go "
    "back, or stay.",
    "max.partition.fetch.bytes, queued.max.messages.kbytes",
    "Pause and seek less often: many clients then throw away what they have fetched of a partition, and fetch it anew. "
    "Or let them fetch less at a time: `max.partition.fetch.bytes`, `fetch.max.bytes`, `queued.max.messages.kbytes` "
    "(librdkafka). A program that reads a topic whole each time can keep it.",
    f"the records of a partition come {_TIMES:.0f} times on average, in {_RESPONSES} responses of one connection. A "
    "program that goes back to the beginning once has them twice. Followers do not count, nor batches that a broker "
    "cuts off.",
    _again_findings,
    counts=(_DELIVERED,),
    on_request=True,
)  # fmt: skip
