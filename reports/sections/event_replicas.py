"""The in-sync replicas (ISR) of partitions, as controllers and leaders say them, and how they change.

LeaderAndIsr, UpdateMetadata and answers to AlterPartition name the in-sync replicas with an epoch of the partition.
Each change of the leader or of the in-sync replicas raises it. A change shows if the state before it was captured, too.
Metadata has no such epoch, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.kernels.arrays import groups_of

from ..counting.count_forms import NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from .event_leaders import END_OF, topics_of

#: A row for each replica in sync. `first`, `asked`: as of `event_leaders.LEADERS`.
IN_SYNC = CountForm(
    "events.in_sync",
    {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER, "epoch": NUMBER, "node": NUMBER, "api_key": NUMBER},
    {"last": MAX, "first": MIN, "asked": MIN, "packet": MIN},
    {"topic": OTHER, "topic_id": -1, "partition": -1, "epoch": -1, "node": -1, "api_key": -1},
)
#: The kinds of facts of partitions, and of their replicas in sync.
_KINDS = {
    "leader state": "replica of leader state", "updated partition": "replica of updated partition",
    "altered partition": "replica of altered partition",
}  # fmt: skip
FACTS = (*_KINDS, *_KINDS.values())


class Change(NamedTuple):
    """The in-sync replicas of a partition changed from some nodes to others. `topic`, `time`, `asked`: as of
    `event_leaders.Move`."""

    topic: int
    partition: int
    before: frozenset[int]
    after: frozenset[int]
    time: int
    asked: int
    packet: int
    api_key: int


def read_in_sync(gathered: Gathered, tally: Tally) -> None:
    for kind, of_replicas in _KINDS.items():
        replicas, partitions = gathered.facts(of_replicas), gathered.facts(kind)
        if not len(replicas):
            continue
        outer = partitions.around(replicas)
        chosen = (partitions["partition_epoch"][outer] >= 0) & (partitions["error_code"][outer] == 0)
        replicas, outer = replicas.where(chosen), outer[chosen]
        at, end = replicas.exchange, END_OF[kind]
        times, asked = gathered.column(end)[at], gathered.column("request_first")[at]
        keys = {name: partitions[name][outer] for name in ("topic", "topic_id", "partition")}
        keys |= {"epoch": partitions["partition_epoch"][outer], "node": replicas["item"]}
        tally.add(IN_SYNC.name, keys | {"api_key": gathered.column("api_key")[at]}, {
            "last": times, "first": times, "asked": np.where(asked == NO_TIME, times, asked),
            "packet": gathered.column(end.replace("_", "_packet_"))[at],
        })  # fmt: skip


def in_sync_changes(given: SectionInput) -> list[Change]:
    """The changes in order of time, each once. Use `given.once(in_sync_changes)`."""
    columns = given.keys(IN_SYNC.name) | given.values(IN_SYNC.name)
    columns = {name: values[columns["epoch"] >= 0] for name, values in columns.items()}
    return sorted(_changes(given, columns), key=lambda change: (*change[4:], *change[:2]))


def _changes(given: SectionInput, columns: dict[str, np.ndarray]) -> Iterator[Change]:
    topics, epochs = topics_of(given, columns), columns["epoch"]
    for (topic, partition), rows in groups_of(topics, columns["partition"]):
        if epochs[rows].min() == epochs[rows].max():
            continue
        before: frozenset[int] | None = None
        for _, mine in groups_of(epochs[rows]):
            state = rows[mine]
            after = frozenset(columns["node"][state].tolist())
            if before not in (None, after):
                first = state[np.lexsort((columns["api_key"][state], columns["first"][state]))[0]]
                shown = (int(columns[name][first]) for name in ("first", "asked", "packet", "api_key"))
                yield Change(topic, partition, before, after, *shown)
            before = after
