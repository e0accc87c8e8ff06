"""Batches of one record: a producer that sends many small requests."""

from __future__ import annotations

from collections.abc import Iterator

from .. import units
from ..findings import NOTE, WARNING, Finding
from ..section_parts.counted import CLIENT, counted, least, total
from ..section_parts.section import SectionInput
from .parties import client_words
from .signature import Signature
from .stalled_seconds import NONE, STALL_NS, STALLS, stalled_of_client, stalled_seconds
from .sums import sums_of_clients, work_of_clients

_PRODUCE = 0
#: With linger.ms=20 a client sends a broker 50 requests a second at most, and nobody notices 20 ms.
_RATE, _LINGER_MS = 50, 20
#: A sixteenth of the default batch.size. The heads of a request, of its batch and of its packets have about 250 bytes.
_SMALL = 1024
#: One second at that rate is no pattern yet. A client that could not send for a while sends many at once.
_LEAST, _LASTS_NS = 100, units.SECOND
#: More records in a batch than this are a batch.
_FEW = 2.0
#: A part of its time that its requests wait for each other, from which on that is what it costs.
_SHARE = 0.2
#: ... and so does the wait of a request, on average, and the part of the requests that wait.
_NOTICED_NS, _MOST = 10_000_000, 0.5

_BATCHES = counted(
    "advice.batches", CLIENT, lambda x: x.records > 0, of=("batch",),  # old message sets may not say
    batches=total(1), records=total("records"), packet=least("request_packet_first"),
)  # fmt: skip


def _findings(given: SectionInput) -> Iterator[Finding]:
    context, work, stalled = given.context, work_of_clients(given), given.once(stalled_seconds)
    batches = {(row["client_id"], row["client_ip"]): row for row in given.rows(_BATCHES.name)}
    for (client, ip), sums in sums_of_clients(given, _PRODUCE, _LEAST).items():
        requests = sums["answered"] + sums["no_reply_expected"]
        lasts = max(sums["last"] - sums["first"], 1)
        rate, size = requests * units.SECOND / lasts, sums["request_bytes"] / max(requests, 1)
        if lasts < _LASTS_NS or rate < _RATE or size > _SMALL:
            continue
        numbers: dict[str, int | float] = {
            "requests": requests, "requests_per_second": round(rate, 1), "request_mean_bytes": round(size),
        }  # fmt: skip
        exact = batches.get((client, ip))
        how = f"{size:,.0f} bytes each"
        if exact is not None:
            records = exact["records"] / exact["batches"]
            if records > _FEW:
                continue
            how += f", {records:.1f} records in a batch"
            numbers |= {"batches": exact["batches"], "records_per_batch": round(records, 2)}
        behind = sums["hol_wait_ns"] - sums["hol_throttle_wait_ns"] - sums["hol_poll_wait_ns"]
        behind -= sums["hol_unknown_wait_ns"] + sums["hol_loss_wait_ns"] + sums["hol_round_trip_ns"]
        behind -= stalled.get((client, ip, _PRODUCE), NONE).behind_ns
        whole = work.get((client, ip))
        time = 0 if whole is None else whole.time_ns - stalled_of_client(stalled, client, ip)
        is_slow = whole is not None and behind > 0 and behind >= _SHARE * time
        is_slow = is_slow and behind >= _NOTICED_NS * requests and sums["hol_waits"] >= _MOST * requests
        text = f"{client_words(context, client, ip)}: {rate:,.0f} Produce requests a second, {how}"
        if is_slow:
            text += f"; each waits {units.duration(behind // requests)} for those before it"
        row = {"client_id": client, "client_ip": ip, "first": sums["first"], "last": sums["last"]}
        yield SINGLE_RECORDS.found(
            given, row | ({"packet": exact["packet"]} if exact else {}), text, behind if is_slow else 0,
            numbers | {"hol_wait_ns": max(behind, 0)}, (("sections", "topics"),), WARNING if is_slow else NOTE,
        )  # fmt: skip


SINGLE_RECORDS = Signature(
    "single_records",
    "batches of one record",
    "Many Produce requests of a few hundred bytes, with one record in each batch.",
    "linger.ms, batch.size",
    f"Set `linger.ms` to 5 to {_LINGER_MS} (and keep `batch.size` at 16,384 or more), so that records are sent "
    "together. If the program waits for each answer, let it send the next record before.",
    f"the client sends {_RATE} such requests a second, {_LEAST} in all and for {_LASTS_NS // units.SECOND} s, of "
    f"{_SMALL:,} bytes or less on average; with `--sections advice`, of {_FEW:.0f} records or fewer in a batch. A note "
    f"if requests wait for each other for less than {_SHARE:.0%} of its time, without the seconds in which one request "
    f"takes {STALL_NS // 1_000_000} ms by itself; or less than {_NOTICED_NS // 1_000_000} ms each on average; or if "
    "less than half of them wait.",
    _findings,
    (STALLS.form,),
    counts=(_BATCHES,),
    exact_facts=("batch",),
)
