"""The ledger counts every packet, payload byte, request and response in exactly one part. Warnings name the losses."""

from __future__ import annotations

from kafkatap.dissector.dtypes import MOST_ROWS, OUTCOMES

from .. import units
from ..batch import Context
from ..counting.connection_counts import connection_totals
from ..counting.counts import ReportCounts
from ..encryption import NAMED_SHARE, encryption_of
from ..model import Column, ReportTable, Row, in_columns

COLUMNS = (
    Column("section", "section", "text", "packets, payload bytes, requests, responses, or packets in tunnels"),
    Column("part", "part", "text", "the part that counts them; total: all of them", 9),
    Column("meaning", "meaning", "text", "the part in words"),
    Column("count", "count", "count", "number of them"),
    Column("share", "share", "share", "share of the section's total"),
)

#: The parts of each section in words; a part that is not here is shown by its name.
WORDS = {
    "packets": {
        "tcp": "TCP",
        "not_ip": "not IP",
        "not_tcp": "IP, but not TCP",
        "fragment": "IP fragments, not reassembled",
        "evicted_fragment": "IP fragments, evicted",
        "headers_not_captured": "headers cut off",
        "bad_header": "invalid headers",
        "unknown_link_type": "link type that is not read",
        "duplicate": "captured twice",
    },
    "payload bytes": {
        "kafka_frames": "Kafka messages",
        "sasl_tokens": "SASL tokens without a Kafka header",
        "proxy_headers": "headers of the PROXY protocol",
        "tls_overhead": "TLS around decrypted bytes: handshakes, headers, tags",
        "encrypted": "encrypted (TLS), not decrypted",
        "not_kafka": "not Kafka",
        "skipped": "Kafka, outside of any message found",
        "retransmitted": "retransmitted",
        "duplicate": "captured twice",
        "out_of_window": "far outside the TCP window",
        "seen_twice": "of connections that are seen twice",
        "unfinished": "of messages that were not complete yet",
    },
    "requests": {
        "answered": "answered",
        "no_reply_expected": "no reply expected (acks=0)",
        "in_flight": "in flight when the capture ended",
        "unanswered": "unanswered",
        "response_lost": "response lost (gap, or end of capture)",
        "sasl_tokens": "SASL tokens without a Kafka header",
        "header_not_captured": "header not captured",
        "unfinished": "waiting for their response",
        "seen_twice": "of connections that are seen twice",
    },
    "responses": {
        "matched": "matched with a request",
        "out_of_order": "matched with a request, after the response to a later one",
        "cut": "cut off by the end of the connection or of the capture",
        "orphan": "request not in the capture",
        "sasl_tokens": "SASL tokens without a Kafka header",
        "header_not_captured": "header not captured",
        "seen_twice": "of connections that are seen twice",
    },
    "limits": {
        "connections": "silent connections ended early",
        "requests": "requests given up while they waited",
        "gaps": "gaps given up early",
        "messages": "messages cut to their first bytes",
        "fields": "messages with more fields than are read",
        "names": "names counted as (other)",
    },
    "tunnels": {
        "vxlan": "VXLAN",
        "geneve": "GENEVE",
        "gre": "GRE",
        "erspan": "ERSPAN",
        "ip_in_ip": "IP in IP",
        "ethernet_in_ip": "Ethernet in IP",
        "mpls": "MPLS",
    },
}

_DUPLICATES = "{n} packet{s} {were} captured twice. They count once, and not as retransmissions"
_ONE_SIDED = (
    "{n} connection{s} {were} captured in one direction only: no packet of the other direction is in this capture. "
    "Requests are shown without their responses. Responses without their requests cannot be decoded."
)
_UNKNOWN_WAITS = (
    "{n} answered exchange{s} {are} cut (by the snap length, or in gaps) where throttle time, error codes or "
    "max_wait_ms may be. So {their} broker time may contain a throttle wait or a long poll, and "
    "{their} errors do not count."
)
#: Files that the sentence on duplicates names at most.
_NAMED_FILES = 3
#: The parts of the ledger that exchanges fall into, by outcome.
_OUTCOME_PARTS = (
    ("requests", "answered"), ("requests", "no_reply_expected"), ("requests", "in_flight"),
    ("requests", "unanswered"), ("requests", "response_lost"), ("responses", "orphan"),
)  # fmt: skip
#: A warning for each part that is a loss.
_SENTENCES = {
    ("requests", "unanswered"): "{n} request{s} {have} no response in this capture.",
    ("requests", "response_lost"): "{n} response{s} {are} missing: lost in a gap, or sent after the capture ended.",
    (
        "requests",
        "header_not_captured",
    ): "{n} request{s} {have} no header in this capture; only size and time are known.",
    ("responses", "out_of_order"): (
        "{n} response{s} came after the response to a later request of the same connection: the broker answered out of "
        "order."
    ),
    ("responses", "cut"): "{n} response{s} {are} cut off by the end of {their} connection or of the capture.",
    ("responses", "orphan"): "{n} response{s} {have} no request in this capture.",
    ("responses", "header_not_captured"): (
        "{n} response{s} {have} no header in this capture; only size and time are known."
    ),
    ("payload bytes", "skipped"): (
        "{n} byte{s} of Kafka connections {do} not belong to any message that was found. Either a message is cut at "
        "the start or end of its connection or of the capture, or a gap hides where the next message begins."
    ),
    (
        "payload bytes",
        "out_of_window",
    ): "{n} byte{s} {are} far outside the TCP window of {their} connection and {were} ignored.",
    ("packets", "fragment"): (
        "{n} IP fragment{s} {were} not reassembled, because others of the same datagram are not in the capture."
    ),
    ("packets", "evicted_fragment"): (
        "{n} IP fragment{s} {were} not reassembled, because too many datagrams waited for their other fragments."
    ),
    ("limits", "connections"): "{n} silent connection{s} ended early, as many others began since (--max-connections).",
    ("limits", "requests"): "{n} request{s} {were} given up while {they} waited for a response (--max-waiting).",
    ("limits", "gaps"): "{n} gap{s} {were} given up early, as much waited behind gaps (--max-held).",
    ("limits", "messages"): "{n} message{s} {were} cut while many were not complete; only {their} start is decoded "
    "(--max-held).",
    ("limits", "fields"): "{n} message{s} {have} more than "
    f"{MOST_ROWS:,} fields that reports need; only the first of "
    "{their} fields are read.",
    ("limits", "names"): "{n} name{s} {were} counted as (other), as there were so many names (--max-names).",
    ("packets", "headers_not_captured"): "{n} packet{s} {have} incomplete headers and {were} ignored.",
    ("packets", "bad_header"): "{n} packet{s} {have} invalid headers and {were} ignored.",
    ("packets", "unknown_link_type"): (
        "{n} packet{s} {have} a link type that kafkatap does not read and {were} ignored."
    ),
}


def ledger(context: Context) -> ReportTable:
    """Rows by section, with the total of a section last. Parts that are zero have no row."""
    rows: list[Row] = []
    for section, parts in context.ledger.items():
        total = parts.get("total", sum(parts.values()))
        words = WORDS.get(section, {})
        counted = {part: count for part, count in parts.items() if part != "total" and count}
        rows += [
            {"section": section, "part": part, "meaning": words.get(part, part), "count": count,
             "share": count / total if total else None}
            for part, count in (*counted.items(), ("total", total))
        ]  # fmt: skip
    notes = ("The parts of each section add up to its total.",)
    return ReportTable("ledger", "Ledger", COLUMNS, in_columns(COLUMNS, rows), notes, whole=True)


def unknown_wait_warnings(counts: ReportCounts) -> tuple[str, ...]:
    """The sentence on exchanges whose throttle time or long poll is unknown, if there are any."""
    count = counts.total("unknown_waits")
    return (_sentence(_UNKNOWN_WAITS, count),) if count else ()


def loss_warnings(context: Context, selected: ReportCounts | None = None) -> tuple[str, ...]:
    """Warnings: one sentence for each loss, damage or unread part.

    `selected`: the counts of a selection. Then requests and responses are those that are selected, and sentences on
    bytes and packets say that they are about the whole capture.
    """
    warnings: list[str] = []
    if context.interrupted:
        until = "" if context.last is None else f" (packets up to {units.iso(context.last)})"
        warnings.append(f"Interrupted: this report covers only what was read before that{until}.")
    for f in context.files:
        if f.damage:
            warnings.append(f"{f.path}: {f.damage}.")
        if f.drops:
            warnings.append(f"{f.path}: {_sentence('{n} packet{s} {were} dropped during capture.', f.drops)}")
    if context.left_out_connections:
        text = "{n} more connection{s} ended first, and {are} in no number of connections of this report."
        warnings.append(_sentence(text, context.left_out_connections))
    warnings += _duplicate_warnings(context)
    if selected is None:
        return (*warnings, *_capture_warnings(context, frozenset()))
    totals = selected.groups.value_rows()[:, : len(OUTCOMES)].sum(axis=0).tolist()
    outcomes = dict(zip(_OUTCOME_PARTS, totals, strict=True))
    warnings += [_sentence(_SENTENCES[part], n) for part, n in outcomes.items() if part in _SENTENCES and n]
    return (*warnings, *(f"Whole capture: {text}" for text in _capture_warnings(context, frozenset(outcomes))))


def _duplicate_warnings(context: Context) -> list[str]:
    """The sentence on packets that were captured twice, with the files that hold the copies if there are several."""
    count = context.ledger.get("packets", {}).get("duplicate", 0)
    if not count:
        return []
    holders = [f for f in context.files if f.duplicates] if len(context.files) > 1 else []
    parts = [
        f"{f.path}: all of its {f.packets:,} packets" if f.duplicates == f.packets else f"{f.path}: {f.duplicates:,}"
        for f in holders[:_NAMED_FILES]
    ]
    if len(holders) > _NAMED_FILES:
        parts.append(f"and {len(holders) - _NAMED_FILES:,} more files")
    where = f" ({'; '.join(parts)})" if parts else ""
    return [f"{_sentence(_DUPLICATES, count)}{where}."]


def _capture_warnings(context: Context, without: frozenset[tuple[str, str]]) -> list[str]:
    """Sentences on packets, bytes and messages of the whole capture, `without` some parts of the ledger."""
    warnings: list[str] = []
    connections = connection_totals(context)
    gaps = connections.total("gap_bytes")
    if gaps:
        with_gaps = connections.total("connections_with_gaps")
        where = "1 connection" if with_gaps == 1 else f"{with_gaps:,} connections"
        warnings.append(_sentence(f"{{n}} byte{{s}} of {where} {{are}} in no packet of this capture (gaps).", gaps))
    one_sided = connections.total("one_sided")
    if one_sided:
        warnings.append(_sentence(_ONE_SIDED, one_sided))
    if context.not_captured:
        template = (
            "The snap length cut off {n} byte{s} of payload. Total times are right, but error codes, throttle times, "
            "client ids and topics in {them} are missing."
        )
        warnings.append(_sentence(template, context.not_captured))
    for section, parts in context.ledger.items():
        for part, count in parts.items():
            template = _SENTENCES.get((section, part), "")
            if template and count and (section, part) not in without:
                warnings.append(_sentence(template, count))
    if context.encrypted_share >= NAMED_SHARE:
        warnings.append(encryption_of(context).sentences())
    return warnings


def _sentence(template: str, n: int) -> str:
    one = n == 1
    return template.format(
        n=f"{n:,}",
        s="" if one else "s",
        do="does" if one else "do",
        have="has" if one else "have",
        are="is" if one else "are",
        were="was" if one else "were",
        their="its" if one else "their",
        them="it" if one else "them",
        they="it" if one else "they",
    )
