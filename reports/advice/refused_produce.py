"""Produce requests with acks=0 that the broker refuses: as it may not answer, it closes the connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE
from kafkatap.kernels import kernel

from .. import units
from ..batch import Array
from ..connection_words import P_KAFKA
from ..counting.count_forms import NUMBER
from ..counting.count_table import MAX, MIN, SUM, CountArrays, claim_row, has_room
from ..findings import ERROR, Finding
from ..section_parts.counted import CONNECTION, CONNECTIONS, PAIR, counted, form, largest
from ..section_parts.section import BatchCount, SectionInput
from .parties import broker_party, client_words
from .signature import Signature

#: A broker refuses a batch within milliseconds. A longer time may be chance.
_SOON_NS = units.SECOND // 10
#: Connections of other clients that the broker closes this close to it have another cause: it stops.
_ALIKE_NS = units.SECOND
#: One or two may be chance.
_LEAST = 3

#: By size class of the request: the number of bits of its bytes.
_SENT = form(
    "advice.unacknowledged", CONNECTION | {"size": NUMBER} | PAIR,
    requests=SUM, bytes=MAX, first=MIN, last=MAX, packet=MAX,
)  # fmt: skip
_CLOSED = counted(
    "advice.closed_by_broker", CONNECTION | PAIR, lambda x: (x.closed_by == 1) & (x.protocol == P_KAFKA),
    of=CONNECTIONS, closed_at=largest("closed_at"),
)  # fmt: skip

_WIDTH, _COLUMNS = len(_SENT.keys), len(_SENT.values)


@kernel(np.int64, CountArrays, EXCHANGE, int)
def count_unacknowledged(probe, sent, exchanges, first):  # type: ignore[no-untyped-def]
    """Add Produce requests with acks=0, as of `BatchCount`."""
    for i in range(first, len(exchanges)):
        e = exchanges[i]
        if e.acks != 0:
            continue
        if not has_room(sent, _COLUMNS, 1):
            return i
        bits = 0
        rest = e.request_bytes
        while rest > 0:
            rest >>= 1
            bits += 1
        probe[0] = e.connection
        probe[1] = bits
        probe[2] = e.client_id
        probe[3] = e.client_ip
        probe[4] = e.broker_ip
        probe[5] = e.broker_port
        v = np.int64(claim_row(sent.keys, _WIDTH, sent.slots, sent.used, probe, 0)) * _COLUMNS
        values = sent.values
        values[v] += 1
        values[v + 1] = max(values[v + 1], e.request_bytes)
        values[v + 2] = min(values[v + 2], e.request_first)
        values[v + 3] = max(values[v + 3], e.request_last)
        values[v + 4] = max(values[v + 4], e.request_packet_last)
    return len(exchanges)


class _Refusal(NamedTuple):
    """`bytes`: of the request that was refused. `out_ns`: until the client sent its next one; 0: it sent none."""

    at: int
    bytes: int
    packet: int
    out_ns: int


def _findings(given: SectionInput) -> Iterator[Finding]:
    closings = list(given.rows(_CLOSED.name))
    closed = {row["connection"]: row["closed_at"] for row in closings}
    clients: dict[tuple[int, ...], list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_SENT.name):
        clients[tuple(row[name] for name in PAIR)].append(row)
    for rows in clients.values():
        ip, broker = rows[0]["client_ip"], rows[0]["broker_ip"]
        others = np.sort([r["closed_at"] for r in closings if r["broker_ip"] == broker and r["client_ip"] != ip])
        refused = _refusals(rows, closed, others)
        if len(refused) >= _LEAST:
            sizes = {one.bytes for one in refused}
            passed = max((row["bytes"] for row in rows if row["bytes"] not in sizes), default=0)
            yield _finding(given, rows[0], refused, passed)


def _refusals(rows: Sequence[dict[str, int]], closed: dict[int, int], others: Array) -> list[_Refusal]:
    """One for each connection that the broker closed straight after a request, in order of time. `rows`: of one client.
    `others`: when the broker closed connections of other hosts, ascending."""
    found: dict[int, _Refusal] = {}
    begun = np.sort([row["first"] for row in rows])
    for row in rows:
        at = closed.get(row["connection"])
        if at is None or row["connection"] < 0 or not 0 <= at - row["last"] <= _SOON_NS:
            continue
        near = np.searchsorted(others, (at - _ALIKE_NS, at + _ALIKE_NS))
        before = found.get(row["connection"])
        if near[0] != near[1] or (before is not None and before.bytes > row["bytes"]):
            continue
        later = begun[np.searchsorted(begun, at) :]
        found[row["connection"]] = _Refusal(at, row["bytes"], row["packet"], int(later[0]) - at if len(later) else 0)
    return sorted(found.values())


def _finding(given: SectionInput, who: dict[str, int], refused: Sequence[_Refusal], passed: int) -> Finding:
    client = client_words(given.context, who["client_id"], who["client_ip"])
    broker = broker_party(given.context, who["broker_ip"], who["broker_port"])
    smallest, largest = min(one.bytes for one in refused), max(one.bytes for one in refused)
    sizes = ""
    if smallest > passed > 0:
        sizes = f": each of {units.size(smallest)} or more, while those up to {units.size(passed)} passed"
    text = (
        f"broker {broker.name} closed {len(refused):,} connections of {client} straight after a Produce request with "
        f"acks=0{sizes}. It may not answer an error to them: records are lost, and the client is not told"
    )
    numbers = {
        "connections": len(refused), "smallest_refused_bytes": smallest, "largest_refused_bytes": largest,
        "largest_passed_bytes": passed,
    }  # fmt: skip
    return REFUSED_PRODUCE.found(
        given, who | {"first": refused[0].at, "last": refused[-1].at}, text, sum(one.out_ns for one in refused),
        numbers, (("api", "Produce"),), ERROR, "show", packets=tuple(one.packet for one in refused[:10]),
    )  # fmt: skip


REFUSED_PRODUCE = Signature(
    "refused_produce",
    "a broker refuses Produce requests with acks=0",
    "A broker closes connections of a client within milliseconds of a Produce request with acks=0, for which it may "
    "not send an error. What the client sent after it is lost.",
    "acks, max.message.bytes of the topic",
    "Set `acks=1` or `acks=all`: then the client is told the error. If only large requests are refused, lower "
    "`batch.size` (librdkafka: `message.max.bytes`) or raise `max.message.bytes` of the topic. The broker's log names "
    "the error.",
    f"{_LEAST} connections of a client closed within {_SOON_NS // 1_000_000} ms of the last byte of such a request, "
    f"and none of another host within {_ALIKE_NS // units.SECOND} s. Time lost: until the client's next Produce "
    "request.",
    _findings,
    counts=(_CLOSED,),
    batch_counts=(BatchCount((_SENT,), count_unacknowledged),),
    label="data lost",
)
