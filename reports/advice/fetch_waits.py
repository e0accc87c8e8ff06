"""Fetches that wait for fetch.min.bytes although records are there: the reader gets them later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..batch import Array
from ..counting.count_forms import NUMBER
from ..counting.count_table import EMPTY, MIN
from ..findings import Finding
from ..section_parts.counted import CLIENT, Rows, counted, largest, largest_where, least, least_where, total
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from .parties import client_words
from .signature import Signature

_FETCH, _LOG_APPEND_TIME = 1, 8
#: One such Fetch may be the last records before a pause.
_LEAST = 3
#: Of the Fetches with records. Where most reach the bytes, the setting does what it is for: fewer, larger responses.
_SHARE = 0.5
#: What a person notices. A reader that waits for less was set so on purpose.
_NOTICED_NS = 100_000_000
#: A response with records is so much larger than its request: a response without any has at most some more bytes for
#: each partition than its request has, and a batch at least 61 bytes.
_LARGER, _MORE_BYTES = 1.5, 64


def _oldest_records(gathered: Gathered) -> Array:
    """The time of the oldest record of each Fetch whose batches were read, ns since the epoch; else the largest."""
    batches = gathered.facts("fetched batch")
    oldest = np.full(len(gathered), EMPTY[MIN], np.int64)
    if len(batches):
        # With log append time all records of a batch have its latest time.
        by_log = batches["attributes"] & _LOG_APPEND_TIME != 0
        times = np.where(by_log, batches["max_timestamp"], batches["first_timestamp"])
        known = times > 0
        np.minimum.at(oldest, batches.exchange[known], times[known] * 1_000_000)
    return oldest


def _is_dated(x: Rows) -> Any:
    return x.each(_oldest_records) < EMPTY[MIN]


def _has_records(x: Rows) -> Any:
    is_fetch = (x.min_bytes > 1) & (x.api_key == _FETCH) & (x.outcome == ANSWERED)
    return is_fetch & (_is_dated(x) | (x.response_bytes > _LARGER * x.request_bytes + _MORE_BYTES))


def _waited(x: Rows) -> Any:
    return (x.long_poll == 1) & (x.response_bytes < x.min_bytes)


def _delay(x: Rows) -> Array:
    """How long records were there before the answer, ns."""
    begin = x.response_first - x.waiting_ns
    delay = x.response_first - np.clip(x.each(_oldest_records), begin, x.response_first)
    return np.where(_waited(x) & _is_dated(x), delay, 0)


_FETCHES = counted(
    "advice.fetch-waits", CLIENT | {"max_wait_ms": NUMBER, "min_bytes": NUMBER}, _has_records,
    waiting_ns=total(lambda x: np.where(_waited(x), x.waiting_ns, 0)), waited=total(_waited), with_records=total(1),
    dated=total(lambda x: _waited(x) & _is_dated(x)), delay_ns=total(_delay), delay_max_ns=largest(_delay),
    first=least(lambda x: least_where(_waited(x), x.request_first)),
    last=largest(lambda x: largest_where(_waited(x), x.response_last)),
    packet=least(lambda x: least_where(_waited(x), x.response_packet_last)),
)  # fmt: skip


def _findings(given: SectionInput) -> Iterator[Finding]:
    for row in given.rows(_FETCHES.name):
        waited, wait_ms, least_bytes = row["waited"], row["max_wait_ms"], row["min_bytes"]
        if waited < _LEAST or waited < _SHARE * row["with_records"]:
            continue
        is_dated = row["dated"] == waited
        lost = row["delay_ns"] if is_dated else row["waiting_ns"] // 2
        if lost // waited < _NOTICED_NS:
            continue
        how = (
            f"{units.duration(lost // waited)}" if is_dated else f"up to {units.duration(row['waiting_ns'] // waited)}"
        )
        text = (
            f"{client_words(given.context, row['client_id'], row['client_ip'])}: {waited:,} of "
            f"{row['with_records']:,} Fetches with records were answered only when fetch.max.wait.ms={wait_ms:,} was "
            f"over, as they did not reach fetch.min.bytes={least_bytes:,}: records were there for {how} each time"
        )
        numbers = {
            "delay_ns": lost, "delay_max_ns": row["delay_max_ns"] if is_dated else None,
            "waiting_ns": row["waiting_ns"], "fetches": waited, "fetches_with_records": row["with_records"],
            "max_wait_ms": wait_ms, "min_bytes": least_bytes, "is_measured": is_dated,
        }  # fmt: skip
        yield FETCH_WAITS.found(given, row, text, lost, numbers, (("by", "client"), ("api", "Fetch")))


FETCH_WAITS = Signature(
    "fetch_waits",
    "a reader waits for more bytes although records are there",
    "A Fetch with MinBytes above 1 is answered only when its MaxWaitMs is over, with records, but fewer bytes than "
    "MinBytes.",
    "fetch.min.bytes, fetch.max.wait.ms (librdkafka: fetch.wait.max.ms)",
    "Set `fetch.min.bytes=1`, or `fetch.max.wait.ms` to the delay that the reader may have.",
    f"{_LEAST} Fetches, and at least {_SHARE:.0%} of those with records, end so, and the records wait for "
    f"{_NOTICED_NS // 1_000_000} ms on average: measured from the oldest record in each response with "
    "`--sections advice`, else half of the wait.",
    _findings,
    counts=(_FETCHES,),
    exact_facts=("fetched batch",),
)
