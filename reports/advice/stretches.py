"""The stretches of connections: times in which they carry messages, with pauses of no more than PAUSE_NS.

`read_stretches` adds those of gathered exchanges to STRETCHES. A row is a part of a stretch: what a run read of it.
`stretches_of` joins the rows. So the stretches are the same, however exchanges were gathered, and for any number of
processes.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME, UNANSWERED
from kafkatap.kernels.arrays import taken

from ..batch import Array
from ..counting.count_table import LATEST, MAX, MIN, SUM
from ..questions.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..questions.gathered import Gathered
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .sums import rows_of

#: Shorter pauses are not kept. Members of a group send a Heartbeat each 3 or 5 s, and devices on the path that forget
#: connections keep them for longer.
PAUSE_NS = 6_000_000_000

WHO = {"client_id": TEXT, "client_ip": ADDRESS, "broker_ip": ADDRESS, "broker_port": NUMBER}
OTHERS = {"client_id": OTHER, "client_ip": -1, "broker_ip": -1, "broker_port": -1}
#: `part`: the time at which a part begins. `is_part`: 1, so that `last` says which rows are small.
STRETCHES = CountForm(
    "advice.stretches",
    {"connection": NUMBER, "part": NUMBER, **WHO},
    {
        "is_part": MAX,
        "first": MIN,
        "last": MAX,
        "requests": SUM,
        "answered": SUM,
        "unanswered": SUM,
        "response_bytes": SUM,
        "packet": MIN,
    },
    {"connection": -1, "part": -1, **OTHERS},
    newest="last",
)
#: The latest part of each connection, which the next exchanges may belong to.
LATEST_PARTS = CountForm(
    "advice.latest-parts", {"connection": NUMBER}, {"is_part": MAX, "last": MAX, "part": LATEST}, {"connection": -1},
    newest="last",
)  # fmt: skip


class Stretch(NamedTuple):
    """`requests`: how many it has. `answered`: messages in it to which the other end replied, or that are replies.
    `unanswered`: requests without a response that were not in flight at the end. `response_bytes`: of replies that came
    after a pause. `packet`: the first."""

    first: int
    last: int
    requests: int
    answered: int
    unanswered: int
    response_bytes: int
    packet: int


class Connection(NamedTuple):
    """Its ends, as numbers of the context, and its stretches in order of time."""

    client_id: int
    client_ip: int
    broker_ip: int
    broker_port: int
    stretches: list[Stretch]


class _Messages(NamedTuple):
    """Requests with their responses, and responses that came apart: int64 (n,) each. `row`: the exchange."""

    connection: Array
    first: Array
    last: Array
    row: Array
    requests: Array
    answered: Array
    unanswered: Array
    response_bytes: Array


def _messages(gathered: Gathered) -> _Messages:
    first, total = gathered.column("request_first"), gathered.column("total_ns")
    outcome = gathered.column("outcome")
    answered, unanswered = ((outcome == one).astype(np.int64) for one in (ANSWERED, UNANSWERED))
    found = _Messages(
        gathered.column("connection"), first, first + np.maximum(total, 0), np.arange(len(first)),
        np.ones(len(first), np.int64), answered, unanswered, np.zeros(len(first), np.int64),
    )  # fmt: skip
    slow = np.flatnonzero((total > PAUSE_NS) | (first == NO_TIME))
    if not len(slow):
        return found
    rows = taken(gathered.exchanges, slow)
    asked = np.maximum(rows["request_first"], rows["request_last"])  # NO_TIME is below any time
    is_apart = (rows["response_last"] != NO_TIME) & (rows["response_first"] > asked + PAUSE_NS)
    found.last[slow[is_apart]] = asked[is_apart]
    rows, kept = rows[is_apart], first != NO_TIME
    responses = _Messages(
        rows["connection"], rows["response_first"], rows["response_last"], slow[is_apart],
        np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64), np.zeros(len(rows), np.int64),
        rows["response_bytes"].astype(np.int64) + 4,
    )  # fmt: skip
    return _Messages(*(np.concatenate((a[kept], b)) for a, b in zip(found, responses, strict=True)))


def read_stretches(gathered: Gathered, tally: Tally) -> None:
    """Add the parts of stretches that some exchanges are."""
    messages = _messages(gathered)
    if not len(messages.row):
        return
    connection, first, last, row, requests, answered, unanswered, response_bytes = messages
    # 16 bits are sorted fast. Connections that share them make more parts.
    order = np.argsort(connection.astype(np.uint16), kind="stable")
    connection, first, last = connection[order], first[order], last[order]
    is_begin = np.ones(len(order), bool)
    is_begin[1:] = connection[1:] != connection[:-1]
    is_begin[1:] |= first[1:] > last[:-1] + PAUSE_NS
    is_begin[1:] |= last[1:] < first[:-1] - PAUSE_NS
    at = np.flatnonzero(is_begin)
    of = taken(gathered.exchanges, row[order[at]])
    connection, packets = connection[at], of["request_packet_first"]
    begins, ends = np.minimum.reduceat(first, at), np.maximum.reduceat(last, at)
    before = tally.values_of(LATEST_PARTS.name, {"connection": connection})
    is_same = (before["is_part"] == 1) & (begins <= np.maximum(before["last"], 0) + PAUSE_NS)
    is_same &= ends + PAUSE_NS >= before["part"]
    part = np.where(is_same, before["part"], begins)
    tally.add(STRETCHES.name, {"connection": connection, "part": part, **{name: of[name] for name in WHO}}, {
        "is_part": 1, "first": begins, "last": ends, "requests": np.add.reduceat(requests[order], at),
        "answered": np.add.reduceat(answered[order], at),
        "unanswered": np.add.reduceat(unanswered[order], at),
        "response_bytes": np.add.reduceat(response_bytes[order], at),
        "packet": np.where(packets > 0, packets, np.iinfo(np.int64).max),
    })  # fmt: skip
    tally.add(LATEST_PARTS.name, {"connection": connection}, {"is_part": 1, "last": ends, "part": part})


def stretches_of(given: SectionInput, hosts: Set[tuple[int, int]]) -> tuple[dict[int, Connection], int]:
    """The connections between some hosts (client_ip, broker_ip), and since when all of them are known: earlier parts
    may have been too many."""
    keys, values = given.keys(STRETCHES.name), given.values(STRETCHES.name)
    since = int(values["last"][keys["connection"] == -1].max(initial=0))
    parts: dict[int, list[dict[str, int]]] = {}
    for row in rows_of(given, STRETCHES):
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
            one = Stretch(
                last.first, max(last.last, one.last), last.requests + one.requests, last.answered + one.answered,
                last.unanswered + one.unanswered,
                last.response_bytes + one.response_bytes, min(last.packet, one.packet),
            )  # fmt: skip
            found[-1] = one
        else:
            found.append(one)
    who = rows[0]
    return Connection(who["client_id"], who["client_ip"], who["broker_ip"], who["broker_port"], found)


def pauses(connection: Connection) -> list[tuple[int, int]]:
    """The pauses after which the other end replied: (begin, end)."""
    pairs = zip(connection.stretches, connection.stretches[1:], strict=False)
    return [(one.last, other.first) for one, other in pairs if other.answered]
