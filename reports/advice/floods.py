"""Clients that ask far more often than they need to: Fetches that the broker answers at once with nothing, Metadata
again and again, a commit for each record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE, NO_TIME
from kafkatap.kernels import kernel

from .. import units
from ..counting.count_forms import NUMBER
from ..counting.count_table import MAX, MIN, SUM, CountArrays, claim_again, has_room
from ..counting.rollup import api_label
from ..finding_words import how_long
from ..findings import Finding
from ..section_parts.counted import CONNECTION, PAIR, form
from ..section_parts.section import BatchCount, SectionInput
from .parties import client_words
from .signature import Signature, spanning
from .sums import sums_of_clients

_FETCH, _METADATA, _COMMIT = 1, 3, 8
#: A broker that need not wait for a byte, or for longer than this, answers at once: a reader that is up to date asks in
#: a loop.
_SHORT_WAIT_MS = 10
#: On average a response with nothing has so few bytes, with the errors and watermarks of some partitions.
_EMPTY_BYTES = 256
#: Part of the requests that errors explain: clients ask for Metadata after each.
_FAILED = 0.5

#: Rows that are kept, those of most requests.
_ROWS = 2_000

FLOODS = form(
    "advice.floods", CONNECTION | PAIR | {"api_key": NUMBER, "min_bytes": NUMBER, "max_wait_ms": NUMBER}, newest="last",
    rows=_ROWS, requests=SUM, response_bytes=SUM, first=MIN, last=MAX, packet=MIN,
)  # fmt: skip
_WIDTH, _COLUMNS = len(FLOODS.keys), len(FLOODS.values)


@kernel(np.int64, CountArrays, EXCHANGE, int)
def count_floods(probe, floods, exchanges, first):  # type: ignore[no-untyped-def]
    """Add requests of the APIs that clients ask again and again, as of `BatchCount`."""
    row = np.int64(-1)
    for i in range(first, len(exchanges)):
        e = exchanges[i]
        is_fetch = e.api_key == _FETCH
        if not (is_fetch or e.api_key == _METADATA or e.api_key == _COMMIT) or e.request_first == NO_TIME:
            continue
        if not has_room(floods, _COLUMNS, 1):
            return i
        probe[0] = e.connection
        probe[1] = e.client_id
        probe[2] = e.client_ip
        probe[3] = e.broker_ip
        probe[4] = e.broker_port
        probe[5] = e.api_key
        probe[6] = e.min_bytes if is_fetch else 0
        probe[7] = e.max_wait_ms if is_fetch else 0
        row = claim_again(floods, _WIDTH, row, probe)
        v = row * _COLUMNS
        values = floods.values
        values[v] += 1
        values[v + 1] += e.response_bytes if e.outcome == ANSWERED else 0
        values[v + 2] = min(values[v + 2], e.request_first)
        values[v + 3] = max(values[v + 3], e.request_first)
        values[v + 4] = min(values[v + 4], e.request_packet_first)
    return len(exchanges)


class _Kind(NamedTuple):
    """A flood: `rate` requests a second of one connection, over `lasts_ns`. A client that works asks far less often."""

    rate: int
    lasts_ns: int
    setting: str
    remedy: str


_KINDS: Mapping[int, _Kind] = {
    _FETCH: _Kind(
        50, units.SECOND, "fetch.min.bytes, fetch.max.wait.ms (librdkafka: fetch.wait.max.ms)",
        "Set `fetch.min.bytes` to 1 or more, and `fetch.max.wait.ms` to 500 ms: then the broker answers when there is "
        "something to read.",
    ),
    _METADATA: _Kind(
        10, 5 * units.SECOND, "how often it asks for Metadata",
        "Keep one client instead of asking it, or its admin client, for topics in a loop; leave `metadata.max.age.ms` "
        "at 5 minutes.",
    ),
    _COMMIT: _Kind(
        20, 5 * units.SECOND, "when it commits (or auto.commit.interval.ms)",
        "Commit after each batch of records, or each few seconds, not after each record.",
    ),
}  # fmt: skip


def _is_flood(row: Mapping[str, int]) -> bool:
    kind, lasts = _KINDS[row["api_key"]], row["last"] - row["first"]
    if lasts < kind.lasts_ns or row["requests"] * units.SECOND < kind.rate * lasts:
        return False
    if row["api_key"] != _FETCH:
        return True
    is_at_once = row["min_bytes"] == 0 or 0 <= row["max_wait_ms"] <= _SHORT_WAIT_MS
    return is_at_once and row["response_bytes"] <= _EMPTY_BYTES * row["requests"]


def _findings(given: SectionInput) -> Iterator[Finding]:
    floods: dict[tuple[int, int, int], list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(FLOODS.name):
        if row["connection"] != -1 and _is_flood(row):
            floods[row["client_id"], row["client_ip"], row["api_key"]].append(row)
    sums = {key: sums_of_clients(given, key, 1) for key in {key for _, _, key in floods}}
    for (client, ip, api_key), rows in floods.items():
        own = sums[api_key].get((client, ip))
        if own is None or own["failed_exchanges"] < _FAILED * own["answered"]:
            yield _finding(given, rows)


def _finding(given: SectionInput, rows: Sequence[dict[str, int]]) -> Finding:
    worst = max(rows, key=lambda row: row["requests"] / (row["last"] - row["first"]))
    kind, requests = _KINDS[worst["api_key"]], sum(row["requests"] for row in rows)
    rate = worst["requests"] * units.SECOND / (worst["last"] - worst["first"])
    row, api = spanning(rows), api_label(worst["api_key"])
    what = f"{requests:,} {api} requests, {rate:,.0f} a second"
    what += f" on one of {len(rows)} connections" if len(rows) > 1 else ""
    what += f", {how_long(row['first'], row['last'], given.context)}"
    answers = sum(one["response_bytes"] for one in rows)
    if worst["api_key"] == _METADATA:
        what += f", with {units.size(answers)} of responses"
    if worst["api_key"] == _FETCH:
        size = worst["response_bytes"] // worst["requests"]
        why = "fetch.min.bytes=0" if worst["min_bytes"] == 0 else f"fetch.max.wait.ms={worst['max_wait_ms']}"
        what += (
            f", nearly all with nothing to read ({units.size(size)} on average): {why} lets the broker answer at once"
        )
    asked = {name: worst[name] for name in ("min_bytes", "max_wait_ms") if worst["api_key"] == _FETCH}
    numbers = {
        "api": api,
        "requests": requests,
        "rate": rate,
        "connections": len(rows),
        "response_bytes": answers,
        **asked,
    }
    return FLOODS_OF_REQUESTS.found(
        given, row, f"{client_words(given.context, worst['client_id'], worst['client_ip'])}: {what}", 0, numbers,
        (("sections", "clients"),), setting=kind.setting, remedy=kind.remedy,
    )  # fmt: skip


FLOODS_OF_REQUESTS = Signature(
    "request_flood",
    "a client asks far more often than it needs to",
    "On one connection, Fetches in a loop that the broker answers at once with nothing; or Metadata, or OffsetCommit, "
    "again and again.",
    ", ".join(dict.fromkeys(kind.setting for kind in _KINDS.values())),
    " ".join(kind.remedy for kind in _KINDS.values()),
    f"{_KINDS[_FETCH].rate} Fetches a second with fetch.min.bytes=0, or fetch.max.wait.ms of {_SHORT_WAIT_MS} or less, "
    f"and responses of {_EMPTY_BYTES} bytes or less on average (usual: 2 a second); {_KINDS[_METADATA].rate} Metadata "
    f"requests (usual: one in 5 minutes), or {_KINDS[_COMMIT].rate} commits a second for 5 s; less than half of them "
    "failed. Time lost: unknown.",
    _findings,
    batch_counts=(BatchCount((FLOODS,), count_floods),),
)
