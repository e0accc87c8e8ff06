"""The stretches of connections: times in which they carry messages, with pauses of no more than PAUSE_NS.

`count_stretches` adds exchanges to STRETCHES. A row is a part of a stretch: what a run read of it. `stretches_of` joins
the rows. So the stretches are the same for any number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE, NO_TIME, UNANSWERED
from kafkatap.kernels import helper, kernel

from .. import units
from ..counting.count_forms import CONNECTION_ROWS, NUMBER
from ..counting.count_table import LATEST, MAX, MIN, SUM, CountArrays, claim_row, has_room
from ..section_parts.counted import CONNECTION, PAIR, form
from ..section_parts.section import BatchCount, SectionInput

#: Shorter pauses are not kept. Members of a group send a Heartbeat each 3 or 5 s, and devices on the path that forget
#: connections keep them for longer.
PAUSE_NS = 6_000_000_000

#: `part`: the time at which a part begins. `is_part`: 1, so that `last` says which rows are small.
#: `largest_request`: the most bytes of one that was answered.
STRETCHES = form(
    "advice.stretches", CONNECTION | {"part": NUMBER} | PAIR, newest="last", rows=CONNECTION_ROWS,
    is_part=MAX, first=MIN, last=MAX, requests=SUM, answered=SUM, unanswered=SUM, response_bytes=SUM, packet=MIN,
    largest_request=MAX,
)  # fmt: skip
#: The latest part of each connection, which the next messages may belong to.
LATEST_PARTS = form(
    "advice.latest-parts", CONNECTION, newest="last", rows=CONNECTION_ROWS, is_part=MAX, last=MAX, part=LATEST
)


class Stretch(NamedTuple):
    """`requests`: how many it has. `answered`: messages in it to which the other end replied, or that are replies.
    `unanswered`: requests without a response that were not in flight at the end. `response_bytes`: of replies that came
    after a pause. `packet`: the first. `largest_request`: bytes of the largest one that was answered."""

    first: int
    last: int
    requests: int
    answered: int
    unanswered: int
    response_bytes: int
    packet: int
    largest_request: int


class Connection(NamedTuple):
    """Its ends, as numbers of the context, and its stretches in order of time."""

    client_id: int
    client_ip: int
    broker_ip: int
    broker_port: int
    stretches: list[Stretch]

    @property
    def who(self) -> tuple[int, int, int, int]:
        """Its client and its broker."""
        return self.client_id, self.client_ip, self.broker_ip, self.broker_port

    @property
    def hosts(self) -> tuple[int, int]:
        """The addresses of both."""
        return self.client_ip, self.broker_ip


_PART_WIDTH = len(STRETCHES.keys)
_PART_COLUMNS, _LATEST_COLUMNS = len(STRETCHES.values), len(LATEST_PARTS.values)


@helper
def _add_message(e, begin, end, requests, answered, response_bytes, probe, parts, latest):  # type: ignore[no-untyped-def]
    """Add a message of an exchange, or several, to the part of a stretch that it belongs to."""
    probe[0] = e.connection
    at = np.int64(claim_row(latest.keys, 1, latest.slots, latest.used, probe, 0)) * _LATEST_COLUMNS
    last, part = latest.values[at + 1], latest.values[at + 2]
    if latest.values[at] != 1 or begin > max(last, 0) + PAUSE_NS or end + PAUSE_NS < part:
        part = begin
    if end > last or (end == last and part > latest.values[at + 2]):
        latest.values[at + 2] = part
    latest.values[at] = 1
    latest.values[at + 1] = max(last, end)
    probe[1] = part
    probe[2] = e.client_id
    probe[3] = e.client_ip
    probe[4] = e.broker_ip
    probe[5] = e.broker_port
    at = np.int64(claim_row(parts.keys, _PART_WIDTH, parts.slots, parts.used, probe, 0)) * _PART_COLUMNS
    values = parts.values
    values[at] = 1
    values[at + 1] = min(values[at + 1], begin)
    values[at + 2] = max(values[at + 2], end)
    values[at + 3] += requests
    values[at + 4] += answered
    values[at + 5] += requests if e.outcome == UNANSWERED else 0
    values[at + 6] += response_bytes
    if e.request_packet_first > 0:
        values[at + 7] = min(values[at + 7], e.request_packet_first)
    if e.outcome == ANSWERED:
        values[at + 8] = max(values[at + 8], np.int64(e.request_bytes) + 4)


@kernel(np.int64, CountArrays, CountArrays, EXCHANGE, int)
def count_stretches(probe, parts, latest, exchanges, first):  # type: ignore[no-untyped-def]
    """Add the parts of stretches that some exchanges are, as of `BatchCount`. A response that comes after a pause is a
    message of its own."""
    for i in range(first, len(exchanges)):
        if not has_room(parts, _PART_COLUMNS, 2) or not has_room(latest, _LATEST_COLUMNS, 2):
            return i
        e = exchanges[i]
        end = e.request_first + max(e.total_ns, 0)
        asked = max(e.request_first, e.request_last)  # NO_TIME is below any time
        is_apart = e.total_ns > PAUSE_NS or e.request_first == NO_TIME
        is_apart = is_apart and e.response_last != NO_TIME and e.response_first > asked + PAUSE_NS
        if e.request_first != NO_TIME:
            is_answered = 1 if e.outcome == ANSWERED else 0
            _add_message(e, e.request_first, asked if is_apart else end, 1, is_answered, 0, probe, parts, latest)
        if is_apart:
            size = np.int64(e.response_bytes) + 4 - e.response_cut_bytes
            _add_message(e, e.response_first, e.response_last, 0, 1, size, probe, parts, latest)
    return len(exchanges)


#: Reads stretches: one of a signature's `batch_counts`.
COUNT_STRETCHES = BatchCount((STRETCHES, LATEST_PARTS), count_stretches)


def stretches_of(given: SectionInput, hosts: Set[tuple[int, int]]) -> tuple[dict[int, Connection], int]:
    """The connections between some hosts (client_ip, broker_ip), and since when all of them are known: earlier parts
    may have been too many."""
    keys, values = given.keys(STRETCHES.name), given.values(STRETCHES.name)
    since = int(values["last"][keys["connection"] == -1].max(initial=0))
    parts: dict[int, list[dict[str, int]]] = {}
    for row in given.rows(STRETCHES.name):
        if (row["client_ip"], row["broker_ip"]) in hosts and row["connection"] != -1:
            parts.setdefault(row["connection"], []).append(row)
    return {connection: _joined(rows) for connection, rows in parts.items()}, since


def _joined(rows: list[dict[str, int]]) -> Connection:
    rows.sort(key=lambda row: (row["first"], row["last"]))
    found: list[Stretch] = []
    for row in rows:
        one = Stretch(*(row[name] for name in Stretch._fields))
        if found and one.first <= found[-1].last + PAUSE_NS:
            last = found[-1]
            found[-1] = Stretch(
                last.first, max(last.last, one.last), last.requests + one.requests, last.answered + one.answered,
                last.unanswered + one.unanswered, last.response_bytes + one.response_bytes,
                min(last.packet, one.packet), max(last.largest_request, one.largest_request),
            )  # fmt: skip
        else:
            found.append(one)
    return Connection(**{name: rows[0][name] for name in PAIR}, stretches=found)


def lengths_in_words(lengths: Sequence[int]) -> str:
    """`45.0 s`, `45.0 s to 1m 30s`: of some times, ns."""
    least, most = units.duration(min(lengths)), units.duration(max(lengths))
    return least if most == least else f"{least} to {most}"


def pauses(connection: Connection) -> list[tuple[int, int]]:
    """The pauses after which the other end replied: (begin, end)."""
    pairs = zip(connection.stretches, connection.stretches[1:], strict=False)
    return [(one.last, other.first) for one, other in pairs if other.answered]
