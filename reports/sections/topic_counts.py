"""What is counted for topics: traffic, record batches, samples of them, and offsets.

All counts are sums, minima or maxima. Only the delay from a Produce to the first Fetch of the same records needs order:
one batch of DELAY_SAMPLED is noted as an event at both ends. Which ones depends on partition and base offset alone.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import NO_INT16, NO_TIME
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..section_parts.event_rows import EventKind, EventView, events_of_facts
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.matching import matched
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
_WHO = {"role": NUMBER, "client_id": TEXT, "client_ip": ADDRESS, **_TOPIC}
_OTHERS = {"client_id": OTHER, "client_ip": -1, "topic": OTHER, "topic_id": -1}

#: `api_version`: of Produce and Fetch, -1 for ShareFetch. `acks`: of Produce. `too_few_replicas`: its partitions that
#: were answered NOT_ENOUGH_REPLICAS or NOT_ENOUGH_REPLICAS_AFTER_APPEND.
REQUESTS = CountForm(
    "topics.requests",
    {**_WHO, "api_version": NUMBER, "acks": NUMBER},
    {"requests": SUM, "partitions": SUM, "too_few_replicas": SUM, "first": MIN, "last": MAX},
    {**_OTHERS, "api_version": -1, "acks": NO_INT16},
)
#: `codec`: the lowest three bits of a batch's attributes. `unknown`: batches without a number of records.
#: `acknowledged`, `refused`: records of Produce requests whose partition was answered without and with an error code.
BATCHES = CountForm(
    "topics.batches",
    {**_WHO, "codec": NUMBER, "magic": NUMBER},
    {
        "bytes": SUM,
        "batches": SUM,
        "records": SUM,
        "unknown": SUM,
        "acknowledged": SUM,
        "refused": SUM,
        "far_past": SUM,
        "far_future": SUM,
        "farthest": MAX,
    },
    {**_OTHERS, "codec": -1, "magic": -1},
)
SAMPLES = CountForm(
    "topics.samples",
    {**_TOPIC, "codec": NUMBER},
    {"bytes": SUM, "decompressed": SUM, "batches": SUM, "damaged": SUM},
    {"topic": OTHER, "topic_id": -1, "codec": -1},
)
#: `end`: the largest offset seen behind the last record: a high watermark, the end of an answered Produce or
#: the latest offset of ListOffsets.
OFFSETS = CountForm(
    "topics.offsets",
    {**_TOPIC, "partition": NUMBER},
    {"seen": SUM, "end": MAX},
    {"topic": OTHER, "topic_id": -1, "partition": -1},
)
FORMS = (REQUESTS, BATCHES, SAMPLES, OFFSETS)
FACTS = (
    "produce partition", "produced partition", "fetch", "fetch partition", "fetched partition", "batch",
    "fetched batch", "batch sample", "share fetch partition", "share fetched partition",
    "list offsets partition", "listed partition",
)  # fmt: skip


def roles_of(gathered: Gathered) -> Array:
    """WRITES, READS or REPLICATES for each exchange: int64."""
    roles = np.where(gathered.column("api_key") == 0, WRITES, READS)
    replica = np.maximum(gathered.top("fetch", "replica_id"), gathered.top("fetch", "replica_state_id"))
    roles[replica >= 0] = REPLICATES
    return roles


def keys_of(gathered: Gathered, facts: FactRows, roles: Array) -> dict[str, Array]:
    """The key columns role, client_id, client_ip, topic and topic_id of facts."""
    return {
        "role": roles[facts.exchange],
        "client_id": gathered.column("client_id")[facts.exchange],
        "client_ip": gathered.column("client_ip")[facts.exchange],
        "topic": facts["topic"],
        "topic_id": facts["topic_id"],
    }


def read(gathered: Gathered, tally: Tally) -> None:
    """Count topics, and note the sampled batches of which the delay is measured."""
    roles = roles_of(gathered)
    for name in ("produce partition", "fetch partition", "share fetch partition"):
        _requests(gathered, tally, gathered.facts(name), roles)
    answers = gathered.facts("produced partition")
    _too_few_replicas(gathered, tally, answers.where(is_among(answers["error_code"], _TOO_FEW_REPLICAS)), roles)
    for name in ("batch", "fetched batch"):
        _batches(gathered, tally, gathered.facts(name), roles)
    samples = gathered.facts("batch sample")
    if len(samples):
        keys = {name: samples[name] for name in _TOPIC} | {"codec": samples["attributes"] & 7}
        known = samples["decompressed_bytes"] >= 0
        tally.add(SAMPLES.name, keys, {
            "bytes": np.where(known, samples["bytes"], 0), "decompressed": np.maximum(samples["decompressed_bytes"], 0),
            "batches": 1, "damaged": samples["is_damaged"],
        })  # fmt: skip
    _offsets(gathered, tally)
    _delays(gathered, tally, roles)


def _requests(gathered: Gathered, tally: Tally, facts: FactRows, roles: Array) -> None:
    if not len(facts):
        return
    topic = np.maximum(facts["topic"], facts["topic_id"])
    is_first = np.ones(len(facts), bool)
    is_first[1:] = (np.diff(facts.exchange) != 0) | (np.diff(topic) != 0)
    starts = np.flatnonzero(is_first)
    rows = facts.where(starts)
    times, keys = gathered.column("request_first")[rows.exchange], _request_keys(gathered, rows, roles)
    counts = np.diff(np.append(starts, len(facts)))
    tally.add(REQUESTS.name, keys, {"requests": 1, "partitions": counts, "first": times, "last": times})


def _request_keys(gathered: Gathered, facts: FactRows, roles: Array) -> dict[str, Array]:
    is_share = gathered.column("api_key")[facts.exchange] == _SHARE_FETCH
    versions = np.where(is_share, -1, gathered.column("api_version")[facts.exchange])
    return keys_of(gathered, facts, roles) | {"api_version": versions, "acks": gathered.column("acks")[facts.exchange]}


def _too_few_replicas(gathered: Gathered, tally: Tally, answers: FactRows, roles: Array) -> None:
    if len(answers):
        times, keys = gathered.column("request_first")[answers.exchange], _request_keys(gathered, answers, roles)
        tally.add(REQUESTS.name, keys, {"too_few_replicas": 1, "first": times, "last": times})


def _batches(gathered: Gathered, tally: Tally, facts: FactRows, roles: Array) -> None:
    cut = np.maximum(gathered.column("request_cut_bytes"), gathered.column("response_cut_bytes"))[facts.exchange]
    facts = facts.where(cut == 0)  # of a message that is cut, sizes and counts are announced, not sent
    if not len(facts):
        return
    attributes = facts["attributes"]
    keys = keys_of(gathered, facts, roles) | {"codec": attributes & 7, "magic": attributes >> 16}
    records = facts["records"]
    values = {
        "bytes": facts["bytes"], "batches": 1, "records": np.maximum(records, 0), "unknown": records < 0,
    }  # fmt: skip
    if gathered.column("api_key")[facts.exchange[0]] == 0:
        stamp, sent = facts["max_timestamp"], gathered.column("request_first")[facts.exchange] // 1_000_000
        off = np.where(stamp >= 0, stamp - sent, 0)
        answers = gathered.facts("produced partition")
        at = matched(answers, facts)
        error = np.where(at >= 0, answers["error_code"][at] if len(answers) else -1, -1)
        known = np.maximum(records, 0)
        values |= {"acknowledged": np.where((at >= 0) & (error == 0), known, 0)}
        values |= {"refused": np.where((at >= 0) & (error != 0), known, 0)}
        values |= {"far_past": off < -FAR_MS, "far_future": off > FAR_MS, "farthest": np.abs(off)}
    tally.add(BATCHES.name, keys, values)


def _offsets(gathered: Gathered, tally: Tally) -> None:
    fetched = gathered.facts("fetched partition")
    fetched = fetched.where(fetched["high_watermark"] >= 0)
    tally.add(
        OFFSETS.name, {name: fetched[name] for name in (*_TOPIC, "partition")}, {"end": fetched["high_watermark"]}
    )
    asked, listed = gathered.facts("list offsets partition"), gathered.facts("listed partition")
    at = matched(asked, listed)
    ends = listed.where(
        (at >= 0) & (listed["offset"] >= 0) & (asked["timestamp"][at] == _LATEST if len(asked) else False)
    )
    tally.add(OFFSETS.name, {name: ends[name] for name in (*_TOPIC, "partition")}, {"seen": 1, "end": ends["offset"]})
    produced, batches = gathered.facts("produced partition"), gathered.facts("batch")
    if not len(produced) or not len(batches):
        return
    at = matched(batches, produced)
    records = np.where(at >= 0, batches["records"][at], -1)
    known = (produced["base_offset"] >= 0) & (records > 0)
    rows = produced.where(known)
    last = rows["base_offset"] + records[known]
    tally.add(OFFSETS.name, {name: rows[name] for name in (*_TOPIC, "partition")}, {"seen": 1, "end": last})


def _delays(gathered: Gathered, tally: Tally, roles: Array) -> None:
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
