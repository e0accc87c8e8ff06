"""What the capture lacks: damage, drops, gaps, cut packets, and what was given up; captures that mix two places."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES

from .. import units
from ..batch import Context, FileInfo
from ..counting import tally
from ..counting.connection_counts import connection_totals
from ..counting.counts import ReportCounts
from ..finding_words import counted
from ..findings import ERROR, NOTE, WARNING, Finding
from ..model import Scalar

#: Parts of the ledger that are losses, in a few words: section, part, one, many.
_LOSSES = (
    ("packets", "headers_not_captured", "packet with cut headers", "packets with cut headers"),
    ("packets", "bad_header", "packet with an invalid header", "packets with invalid headers"),
    ("packets", "unknown_link_type", "packet of an unread link type", "packets of an unread link type"),
    ("packets", "fragment", "IP fragment alone", "IP fragments alone"),
    ("packets", "evicted_fragment", "IP fragment evicted", "IP fragments evicted"),
    ("limits", "connections", "connection ended early", "connections ended early"),
    ("limits", "requests", "waiting request given up", "waiting requests given up"),
    ("limits", "gaps", "gap given up", "gaps given up"),
    ("limits", "messages", "message cut", "messages cut"),
    ("limits", "fields", "message with too many fields", "messages with too many fields"),
    ("limits", "names", "name counted as (other)", "names counted as (other)"),
    ("requests", "response_lost", "response missing", "responses missing"),
    ("responses", "orphan", "response without its request", "responses without their requests"),
    ("requests", "header_not_captured", "request without a header", "requests without headers"),
    ("responses", "header_not_captured", "response without a header", "responses without headers"),
)
#: Less than this share is the usual: messages are cut where a connection or the capture begins or ends.
_UNPLACED_SHARE = 0.01
#: Less than this share is missing from no sum and no time that a person reads.
_LITTLE = 0.001
#: If nothing else is missing, so much is what the capture begins with: messages that began before, such as large
#: responses, whose bytes cannot be told apart.
_BEGINNING = 0.1
_UNPLACED = (("skipped", "not parsed"), ("out_of_window", "outside the TCP window"))
_RESPONSE_LOST, _ORPHAN = ("requests", "response_lost"), ("responses", "orphan")
#: Captures of two places overlap by more than this, and have so many packets of each other.
_OVERLAP_NS, _SHARED = 1_000_000, 0.1


def overlapping(files: Iterable[FileInfo]) -> list[FileInfo]:
    """The captures that overlap another one by more than _OVERLAP_NS."""
    every = ((f.first or 0, f.last or 0, f) for f in files)
    spans = sorted((each for each in every if each[1] - each[0] > _OVERLAP_NS), key=lambda each: each[0])
    found, latest = [False] * len(spans), 0
    for number, ((_, last, _), (first, _, _)) in enumerate(pairwise(spans)):
        latest = max(latest, last)
        found[number] |= last - first > _OVERLAP_NS
        found[number + 1] = latest - first > _OVERLAP_NS
    return [f for (_, _, f), is_found in zip(spans, found, strict=True) if is_found]


def mixed_times_finding(context: Context) -> Finding | None:
    """Captures that overlap in time and have packets of each other: times lie between two places."""
    found = overlapping(context.files)
    packets, shared = sum(f.packets for f in found), sum(f.duplicates for f in found)
    if not shared or shared < _SHARED * packets:
        return None
    text = (
        f"{units.share(shared / packets)} of the packets are in two captures: times mix both places, and the network "
        "between them counts as the broker's, or not at all; read each capture alone"
    )
    numbers = {"duplicates": shared, "packets": packets, "captures": len(found)}
    return Finding("mixed_times", NOTE, "captures", text, numbers=numbers, command="")


def lost_finding(counts: ReportCounts, context: Context, is_selection: bool) -> Finding | None:
    """What the capture lacks, the gravest first. Of a selection, responses are those that are selected."""
    parts = ["reading was interrupted"] if context.interrupted else []
    damaged = sum(1 for f in context.files if f.damage)
    parts += [counted(damaged, "damaged file")] if damaged else []
    drops = sum(f.drops or 0 for f in context.files)
    parts += [f"{counted(drops, 'packet')} dropped during capture"] if drops else []
    connections = connection_totals(context)
    gaps = connections.total("gap_bytes")
    parts += [f"{units.size(gaps)} in gaps"] if gaps else []
    one_sided = connections.total("one_sided")
    parts += [f"{counted(one_sided, 'connection')} captured in one direction only"] if one_sided else []
    parts += [f"{units.size(context.not_captured)} cut off by the snap length"] if context.not_captured else []
    (unknown,) = _outcomes(counts, "unknown_waits")
    unknown_waits = [f"throttle time or long poll of {counted(unknown, 'exchange')} unknown"] if unknown else []
    parts += [] if is_selection else unknown_waits
    selected = dict(zip((_RESPONSE_LOST, _ORPHAN), _outcomes(counts, "response_lost", "orphan_response"), strict=True))
    of_selection = unknown_waits if is_selection else []
    for section, part, one, many in _LOSSES:
        if is_selection and section in ("requests", "responses"):
            n = selected.get((section, part), 0)
            of_selection += [counted(n, one, many)] if n else []
        else:
            n = context.ledger.get(section, {}).get(part, 0)
            parts += [counted(n, one, many)] if n else []
    payload = context.ledger.get("payload bytes", {})
    whole, others = payload.get("total", 0), len(parts) + len(of_selection)
    unplaced = {part: n for part, _ in _UNPLACED if (n := payload.get(part, 0)) and n >= _UNPLACED_SHARE * whole}
    parts += [
        f"{units.size(unplaced[part])} ({units.share(unplaced[part] / whole)}) {words}"
        for part, words in _UNPLACED if part in unplaced
    ]  # fmt: skip
    is_beginning = not others and unplaced.keys() == {"skipped"} and unplaced["skipped"] < _BEGINNING * whole
    asked = sum(_outcomes(counts, *OUTCOMES[:ORPHAN_RESPONSE]))
    missing = context.ledger.get("requests", {}).get("response_lost", 0)
    of_gaps = bool(gaps) + bool(missing)
    is_little = (
        gaps > 0 and others == of_gaps and not unplaced and gaps < _LITTLE * whole and missing < _LITTLE * max(asked, 1)
    )
    if is_selection and parts:
        parts[0] = f"in the whole capture: {parts[0]}"
    texts = [", ".join(texts) for texts in (of_selection, parts) if texts]
    if not texts:
        return None
    numbers: dict[str, Scalar] = {
        "damaged_files": damaged, "dropped_packets": drops, "gap_bytes": gaps, "one_sided_connections": one_sided,
        "cut_bytes": context.not_captured, "unknown_waits": unknown,
        **{f"{section}_{part}".replace(" ", "_"): context.ledger.get(section, {}).get(part, 0)
           for section, part, *_ in _LOSSES},
        **{f"{part}_bytes": payload.get(part, 0) for part, _ in _UNPLACED},
    }  # fmt: skip
    numbers = {name: n for name, n in numbers.items() if n}
    return Finding(
        "lost",
        ERROR if damaged else NOTE if is_little or is_beginning else WARNING,
        "lost",
        "; ".join(texts),
        numbers=numbers,
        options=(("ledger", ""),),
    )


def _outcomes(counts: ReportCounts, *names: str) -> list[int]:
    """The sums of values of the groups."""
    at = [list(tally.GROUP_VALUES).index(name) for name in names]
    sums: list[int] = counts.groups.value_rows()[:, at].sum(axis=0).tolist()
    return sums
