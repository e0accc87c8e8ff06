"""Which broker leads each partition, as messages show it, and the moves of leaders.

Metadata, UpdateMetadata, LeaderAndIsr and answers to AlterPartition name leaders with their epochs, Metadata before
version 7 without. Without epochs, each broker's answers are in order of time, and the first answer that names a leader
counts. So a leader that comes back shows by epochs alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.dissector.facts.fact_rows import NO_NUMBER

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally

METADATA = 3
#: `first`: when a message showed it; `asked`: when an exchange that shows it began. The broker is that of an answer
#: without an epoch, else -1.
LEADERS = CountForm(
    "events.leaders",
    {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER, "epoch": NUMBER, "leader": NUMBER, "api_key": NUMBER,
     "broker_ip": ADDRESS, "broker_port": NUMBER},
    {"last": MAX, "first": MIN, "asked": MIN, "packet": MIN},
    {"topic": OTHER, "topic_id": -1, "partition": -1, "epoch": -1, "leader": -1, "api_key": -1, "broker_ip": -1,
     "broker_port": -1},
)  # fmt: skip
#: The kinds of facts that name leaders, and the byte of the exchange by which they are known.
END_OF = {
    "metadata partition": "response_last", "leader state": "request_last", "updated partition": "request_last",
    "altered partition": "response_last",
}  # fmt: skip
FACTS = tuple(END_OF)


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


def read_leaders(gathered: Gathered, tally: Tally) -> None:
    for kind, end in END_OF.items():
        rows = gathered.facts(kind)
        if not len(rows):
            continue
        is_known = rows["leader"] != NO_NUMBER
        if kind == "altered partition":
            is_known &= rows["error_code"] == 0
        rows = rows.where(is_known)
        at, epoch = rows.exchange, np.maximum(rows["leader_epoch"], -1)
        api = gathered.column("api_key")[at]
        times, asked = gathered.column(end)[at], gathered.column("request_first")[at]
        keys = {name: rows[name] for name in ("topic", "topic_id", "partition", "leader")}
        keys |= {"epoch": epoch, "api_key": api}
        keys |= {name: np.where(epoch < 0, gathered.column(name)[at], -1) for name in ("broker_ip", "broker_port")}
        packet = gathered.column(end.replace("_", "_packet_"))[at]
        asked = np.where(asked == NO_TIME, times, asked)
        tally.add(LEADERS.name, keys, {"last": times, "first": times, "asked": asked, "packet": packet})


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
