"""Fetches that wait for fetch.min.bytes although records are there: the reader gets them later."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..findings import WARNING, Finding
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from .parties import client_option, client_parties, client_words
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

_FORM = CountForm(
    "advice.fetch-waits",
    {"client_id": TEXT, "client_ip": ADDRESS, "max_wait_ms": NUMBER, "min_bytes": NUMBER},
    {"waiting_ns": SUM, "waited": SUM, "with_records": SUM, "dated": SUM, "delay_ns": SUM, "delay_max_ns": MAX,
     "first": MIN, "last": MAX, "packet": MIN},
    {"client_id": OTHER, "client_ip": -1, "max_wait_ms": -1, "min_bytes": -1},
)  # fmt: skip


def _read(gathered: Gathered, tally: Tally) -> None:
    min_bytes, api = gathered.column("min_bytes"), gathered.column("api_key")
    chosen = np.flatnonzero((min_bytes > 1) & (api == _FETCH) & (gathered.column("outcome") == ANSWERED))
    if not len(chosen):
        return
    rows, dated, oldest = gathered.rows(chosen), *_oldest_records(gathered, chosen)
    size = rows["response_bytes"]
    has_records = np.where(dated, True, size > _LARGER * rows["request_bytes"] + _MORE_BYTES)
    waited = has_records & (rows["long_poll"] == 1) & (size < rows["min_bytes"])
    begin = rows["response_first"] - rows["waiting_ns"]
    delay = np.where(waited & dated, rows["response_first"] - np.clip(oldest, begin, rows["response_first"]), 0)
    at = np.flatnonzero(has_records)
    found = {
        "waiting_ns": np.where(waited, rows["waiting_ns"], 0), "waited": waited, "with_records": 1,
        "dated": waited & dated, "delay_ns": delay, "delay_max_ns": delay,
        "first": np.where(waited, rows["request_first"], 2**63 - 1),
        "last": np.where(waited, rows["response_last"], -(2**63)),
        "packet": np.where(waited, rows["response_packet_last"], 2**63 - 1),
    }  # fmt: skip
    values = {name: column[at] if isinstance(column, np.ndarray) else column for name, column in found.items()}
    tally.add(_FORM.name, {name: rows[name][at] for name in _FORM.keys}, values)


def _oldest_records(gathered: Gathered, chosen: Array) -> tuple[Array, Array]:
    """Of some exchanges: whether their batches were read, and the time of the oldest record, ns since the epoch."""
    batches = gathered.facts("fetched batch")
    oldest = np.full(len(gathered.exchanges), 2**63 - 1, np.int64)
    if len(batches):
        # With log append time all records of a batch have its latest time.
        by_log = batches["attributes"] & _LOG_APPEND_TIME != 0
        times = np.where(by_log, batches["max_timestamp"], batches["first_timestamp"])
        known = times > 0
        np.minimum.at(oldest, batches.exchange[known], times[known] * 1_000_000)
    found = oldest[chosen]
    return found < 2**63 - 1, found


def _findings(given: SectionInput) -> list[Finding]:
    context, made = given.context, []
    for row in given.rows(_FORM.name):
        waited, wait_ms, least = row["waited"], row["max_wait_ms"], row["min_bytes"]
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
            f"{client_words(context, row['client_id'], row['client_ip'])}: {waited:,} of {row['with_records']:,} "
            f"Fetches with records were answered only when fetch.max.wait.ms={wait_ms:,} was over, as they did not "
            f"reach fetch.min.bytes={least:,}: records were there for {how} each time"
        )
        made.append(Finding(
            FETCH_WAITS.id, WARNING, FETCH_WAITS.label, text, lost, row["first"], row["last"],
            {"delay_ns": lost, "delay_max_ns": row["delay_max_ns"] if is_dated else None,
             "waiting_ns": row["waiting_ns"], "fetches": waited, "fetches_with_records": row["with_records"],
             "max_wait_ms": wait_ms, "min_bytes": least, "is_measured": is_dated},
            (row["packet"],), client_parties(context, row["client_id"], row["client_ip"]), FETCH_WAITS.setting,
            FETCH_WAITS.remedy, (("by", "client"), *client_option(context, row["client_id"]), ("api", "Fetch")),
        ))  # fmt: skip
    return made


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
    (_FORM,),
    _read,
    exact_facts=("fetched batch",),
)
