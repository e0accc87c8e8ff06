"""What is counted for topics: traffic, record batches, samples of them, and offsets.

All counts are sums, minima or maxima. Only the delay from a Produce to the first Fetch of the same records needs order:
one batch of DELAY_SAMPLED is noted as an event at both ends. Which ones depends on partition and base offset alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import NO_INT16, NO_INT32, NO_TIME
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import NUMBER, OTHER, TEXT
from ..section_parts.counted import CLIENT, KEPT, PLACE, Rows, counted, largest, least, once, total
from ..section_parts.event_rows import EventKind, EventView, events_of_facts
from ..section_parts.gathered import Gathered
from ..section_parts.section_counts import Tally

#: What a client does with a topic.
WRITES, READS, REPLICATES = range(3)
_SAMPLED = EventView(base_offset="v0")
PRODUCED, FETCHED = EventKind(1, _SAMPLED), EventKind(2, _SAMPLED)
DELAY_SAMPLED_BITS = 4
DELAY_SAMPLED = 1 << DELAY_SAMPLED_BITS
#: A batch's latest timestamp is far off if it is more than this before or after the time of the request.
FAR_MS = 3_600_000
#: The timestamp of ListOffsets that asks for the end.
_LATEST = -1
_SHARE_FETCH = 78
_TOO_FEW_REPLICAS = (19, 20)

_TOPIC = {"topic": TEXT, "topic_id": TEXT}
_WHO = {"role": NUMBER, **CLIENT, **_TOPIC}
_OTHERS = {"role": KEPT, "topic": OTHER}


def roles_of(gathered: Gathered) -> Array:
    """WRITES, READS or REPLICATES for each exchange: int64."""
    roles = np.where(gathered.column("api_key") == 0, WRITES, READS)
    replica = np.maximum(gathered.top("fetch", "replica_id"), gathered.top("fetch", "replica_state_id"))
    roles[replica >= 0] = REPLICATES
    return roles


def role(x: Rows) -> Any:
    """WRITES, READS or REPLICATES."""
    return x.each(roles_of)


def _begins_topic(x: Rows) -> Any:
    """Whether a partition is the first one of its topic in the request."""
    begins = np.ones(len(x.topic), bool)
    begins[1:] = (np.diff(x.facts.exchange) != 0) | (np.diff(np.maximum(x.topic, x.topic_id)) != 0)
    return begins


#: `api_version`: of Produce and Fetch, -1 for ShareFetch. `acks`: of Produce. `too_few_replicas`: its partitions that
#: were answered NOT_ENOUGH_REPLICAS or NOT_ENOUGH_REPLICAS_AFTER_APPEND.
REQUESTS = counted(
    "topics.requests", _WHO | {"api_version": NUMBER, "acks": NUMBER},
    of=("produce partition", "fetch partition", "share fetch partition"),
    more={"role": role, "api_version": lambda x: np.where(x.api_key == _SHARE_FETCH, -1, x.api_version)},
    other={**_OTHERS, "acks": NO_INT16}, beside=("fetch",),
    requests=total(_begins_topic), partitions=total(1), too_few_replicas=total(), first=least("request_first"),
    last=largest("request_first"),
)  # fmt: skip
_TOO_FEW = REQUESTS.also(
    ("produced partition",), lambda x: is_among(x.error_code, _TOO_FEW_REPLICAS),
    too_few_replicas=1, first="request_first", last="request_first",
)  # fmt: skip


@once
def _is_whole(x: Rows) -> Any:
    """Of a message that is cut, sizes and counts of batches are announced, not sent."""
    return np.maximum(x.request_cut_bytes, x.response_cut_bytes) == 0


@once
def _records(x: Rows) -> Any:
    return np.maximum(x.records, 0)


@once
def _error(x: Rows) -> Any:
    """The error code of a batch's partition; NO_INT32: no answer."""
    return x.beside("produced partition", "error_code", NO_INT32)


@once
def _far(x: Rows) -> Any:
    """How far the latest timestamp of a batch is after the request, ms."""
    return np.where(x.max_timestamp >= 0, x.max_timestamp - x.request_first // 1_000_000, 0)


#: `codec`: the lowest three bits of a batch's attributes. `unknown`: batches without a number of records.
#: `acknowledged`, `refused`: records of Produce requests whose partition was answered without and with an error code.
BATCHES = counted(
    "topics.batches", _WHO | {"codec": NUMBER, "magic": NUMBER}, _is_whole, of=("batch",),
    more={"role": role, "codec": lambda x: x.attributes & 7, "magic": lambda x: x.attributes >> 16},
    other=_OTHERS, beside=("fetch", "produced partition"),
    bytes=total("bytes"), batches=total(1), records=total(_records), unknown=total(lambda x: x.records < 0),
    acknowledged=total(lambda x: np.where(_error(x) == 0, _records(x), 0)),
    refused=total(lambda x: np.where(is_among(_error(x), (0, NO_INT32)), 0, _records(x))),
    far_past=total(lambda x: _far(x) < -FAR_MS), far_future=total(lambda x: _far(x) > FAR_MS),
    farthest=largest(lambda x: np.abs(_far(x))),
)  # fmt: skip
_FETCHED_BATCHES = BATCHES.also(
    ("fetched batch",), _is_whole, bytes="bytes", batches=1, records=_records, unknown=lambda x: x.records < 0
)
SAMPLES = counted(
    "topics.samples", _TOPIC, of=("batch sample",), more={"codec": lambda x: x.attributes & 7},
    bytes=total(lambda x: np.where(x.decompressed_bytes >= 0, x.bytes, 0)),
    decompressed=total(lambda x: np.maximum(x.decompressed_bytes, 0)), batches=total(1), damaged=total("is_damaged"),
)  # fmt: skip
#: `end`: the largest offset seen behind the last record: a high watermark, the end of an answered Produce or
#: the latest offset of ListOffsets.
OFFSETS = counted(
    "topics.offsets", PLACE, lambda x: (x.base_offset >= 0) & (x.beside("batch", "records") > 0),
    of=("produced partition",), beside=("batch",),
    seen=total(1), end=largest(lambda x: x.base_offset + x.beside("batch", "records")),
)  # fmt: skip
_LISTED = OFFSETS.also(
    ("listed partition",),
    (lambda x: x.offset >= 0, lambda x: x.beside("list offsets partition", "timestamp", 0) == _LATEST),
    beside=("list offsets partition",), seen=1, end="offset",
)  # fmt: skip
_WATERMARKS = OFFSETS.also(("fetched partition",), lambda x: x.high_watermark >= 0, end="high_watermark")
COUNTS = (REQUESTS, _TOO_FEW, BATCHES, _FETCHED_BATCHES, SAMPLES, OFFSETS, _LISTED, _WATERMARKS)


def read(gathered: Gathered, tally: Tally) -> None:
    """Note the sampled batches of which the delay is measured."""
    roles = gathered.once(roles_of)
    for kind, name, time in (
        (PRODUCED, "produced partition", "request_last"),
        (FETCHED, "fetched batch", "response_last"),
    ):
        facts = gathered.facts(name)
        offset = facts["base_offset"]
        mixed = (offset.astype(np.uint64) << np.uint64(20)) + facts["partition"].astype(np.uint64)
        sampled = (mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - DELAY_SAMPLED_BITS) == 0
        times = gathered.column(time)[facts.exchange]
        chosen = sampled & (offset >= 0) & (roles[facts.exchange] != REPLICATES) & (times != NO_TIME)
        if kind == FETCHED:
            chosen &= facts["attributes"] >> 16 == 2
        rows = facts.where(chosen)
        events = events_of_facts(gathered, rows, kind)
        events["time"], events["base_offset"] = times[chosen], rows["base_offset"]
        tally.note(events)
