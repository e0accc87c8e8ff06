"""Which broker leads each partition, as messages show it, and the moves of leaders.

Metadata, UpdateMetadata, LeaderAndIsr and answers to AlterPartition name leaders with their epochs, Metadata before
version 7 without. Without epochs, each broker's answers are in order of time, and the first answer that names a leader
counts. So a leader that comes back shows by epochs alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.dissector.facts.fact_rows import NO_NUMBER

from ..batch import Array
from ..counting.count_forms import NUMBER
from ..section_parts.counted import BROKER, PLACE, Rows, counted, largest, least
from ..section_parts.section import SectionInput

METADATA = 3
#: The kinds of facts that name leaders, and the byte of the exchange by which they are known.
_END_OF = {
    "metadata partition": "response_last", "leader state": "request_last", "updated partition": "request_last",
    "altered partition": "response_last",
}  # fmt: skip
#: Before the kinds of facts of replicas.
REPLICA_OF = "replica of "


def _shown_at(x: Rows) -> Any:
    return x[_END_OF[x.fact.removeprefix(REPLICA_OF)]]


def _packet(x: Rows) -> Any:
    return x[_END_OF[x.fact.removeprefix(REPLICA_OF)].replace("_", "_packet_")]


def _epoch(x: Rows) -> Any:
    return np.maximum(x.leader_epoch, -1)


def _without_epoch(name: str, x: Rows) -> Any:
    return np.where(_epoch(x) < 0, x[name], -1)


#: When messages showed facts, and when the exchanges that show them began.
SHOWN: Any = {
    "last": largest(_shown_at), "first": least(_shown_at),
    "asked": least(lambda x: np.where(x.request_first == NO_TIME, _shown_at(x), x.request_first)),
    "packet": least(_packet),
}  # fmt: skip
#: The broker is that of an answer without an epoch, else -1.
LEADERS = counted(
    "events.leaders", {**PLACE, "epoch": NUMBER, "leader": NUMBER, "api_key": NUMBER, **BROKER},
    lambda x: (x.leader != NO_NUMBER) & ((x.error_code == 0) | (x.fact != "altered partition")), of=tuple(_END_OF),
    more={"epoch": _epoch, **{name: partial(_without_epoch, name) for name in BROKER}}, **SHOWN,
)  # fmt: skip


class Move(NamedTuple):
    """A partition's leader was another one before. `topic`: a number, which differs by topic. `time`, `asked`: of the
    exchange that first showed it, ns."""

    topic: int
    partition: int
    old: int
    new: int
    time: int
    asked: int
    packet: int
    api_key: int


def leader_moves(given: SectionInput) -> list[Move]:
    """The moves in order of time, each once. Use `given.once(leader_moves)`."""
    columns = given.keys(LEADERS.name) | given.values(LEADERS.name)
    columns = {name: values[columns["leader"] >= 0] for name, values in columns.items()}
    topics = topics_of(given, columns)
    has_epoch = columns["epoch"] >= 0
    broker = [columns["broker_ip"], columns["broker_port"]]
    by_epoch = _moves(columns, topics, np.flatnonzero(has_epoch), [columns["epoch"]], [])
    known = {move[:4] for move in by_epoch}
    for move in sorted(_moves(columns, topics, np.flatnonzero(~has_epoch), [], broker), key=lambda m: m.time):
        if move[:4] not in known:
            known.add(move[:4])
            by_epoch.append(move)
    return sorted(by_epoch, key=lambda move: move[4:] + move[:4])


def _moves(
    columns: dict[str, Array], topics: Array, rows: Array, order: list[Array], by: list[Array]
) -> list[Move]:  # fmt: skip
    """The moves in some rows, those of the same `by` in order of `order` and then of time."""
    place = [*by, columns["partition"], topics]
    rows = rows[
        np.lexsort([columns[name][rows] for name in ("api_key", "first")] + [c[rows] for c in (*order, *place)])
    ]
    before, after = rows[:-1], rows[1:]
    is_move = columns["leader"][before] != columns["leader"][after]
    for column in place:
        is_move &= column[before] == column[after]
    before, after = before[is_move], after[is_move]
    shown = (columns[name][after].tolist() for name in ("first", "asked", "packet", "api_key"))
    ends = columns["leader"][before].tolist(), columns["leader"][after].tolist()
    places = topics[after].tolist(), columns["partition"][after].tolist()
    return [Move(*row) for row in zip(*places, *ends, *shown, strict=True)]


def topics_of(given: SectionInput, columns: dict[str, Array]) -> Array:
    """A number for the topic of each row: int64. A topic that some messages name without its id has one id, unless it
    was made anew under its name."""
    pairs, at = np.unique(np.stack((columns["topic"], columns["topic_id"]), axis=1), axis=0, return_inverse=True)
    names = [given.context.topic(topic, topic_id) for topic, topic_id in pairs.tolist()]
    ids: dict[str | None, set[int]] = {}
    for name, topic_id in zip(names, pairs[:, 1].tolist(), strict=True):
        ids.setdefault(name, set()).update({topic_id} - {-1})
    numbers: dict[tuple[str | None, int], int] = {}
    found = [
        numbers.setdefault((name, next(iter(ids[name])) if len(ids[name]) == 1 else topic_id), len(numbers))
        for name, topic_id in zip(names, pairs[:, 1].tolist(), strict=True)
    ]
    return np.array(found, np.int64)[at.reshape(-1)]
