"""The in-sync replicas (ISR) of partitions, as controllers and leaders say them, and how they change.

LeaderAndIsr, UpdateMetadata and answers to AlterPartition name the in-sync replicas with an epoch of the partition.
Each change of the leader or of the in-sync replicas raises it. A change shows if the state before it was captured, too.
Metadata has no such epoch, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import groups_of

from ..counting.count_forms import NUMBER
from ..section_parts.counted import PLACE, Rows, counted
from ..section_parts.section import SectionInput
from .event_leaders import REPLICA_OF, SHOWN, topics_of

#: The kinds of facts of partitions whose replicas in sync are named.
PARTITIONS = ("leader state", "updated partition", "altered partition")


def _epoch(x: Rows) -> Any:
    return x.around(x.fact.removeprefix(REPLICA_OF), "partition_epoch")


#: A row for each replica in sync.
IN_SYNC = counted(
    "events.in_sync", {**PLACE, "epoch": NUMBER, "node": NUMBER, "api_key": NUMBER},
    lambda x: (_epoch(x) >= 0) & (x.around(x.fact.removeprefix(REPLICA_OF), "error_code") == 0),
    of=[REPLICA_OF + kind for kind in PARTITIONS], more={"epoch": _epoch, "node": "item"}, **SHOWN,
)  # fmt: skip


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
