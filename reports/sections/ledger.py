"""The ledger: where every packet, payload byte, request and response ended, and what was lost in plain sentences."""

from __future__ import annotations

from .. import units
from ..batch import Context
from ..model import Column, Table, Value

COLUMNS = (
    Column("section", "what", "text", "packets, payload bytes, requests or responses"),
    Column("part", "part", "text", "name of the one place where each of them ended; total: all of them", 9),
    Column("meaning", "where it ended", "text", "the same in words"),
    Column("count", "count", "count", "how many"),
    Column("share", "share", "share", "of the section's total"),
)

#: The parts of each section in words; a part that is not here is shown by its name.
WORDS = {
    "packets": {
        "tcp": "TCP",
        "not_ip": "not IP",
        "not_tcp": "IP, but not TCP",
        "fragment": "IP fragments",
        "headers_not_captured": "cut off within their headers",
        "bad_header": "headers that cannot be",
        "unknown_link_type": "link type not known",
    },
    "payload bytes": {
        "kafka_frames": "Kafka messages",
        "sasl_tokens": "SASL tokens without a Kafka header",
        "encrypted": "encrypted (TLS)",
        "not_kafka": "not Kafka",
        "skipped": "Kafka, outside of known messages",
        "retransmitted": "retransmitted",
        "out_of_window": "far outside of the window",
    },
    "requests": {
        "answered": "answered",
        "no_reply_expected": "no reply expected (acks=0)",
        "unanswered": "unanswered",
        "response_lost": "response lost (gap, or end of capture)",
        "sasl_tokens": "SASL tokens without a Kafka header",
        "header_not_captured": "header not captured",
    },
    "responses": {
        "matched": "matched with a request",
        "orphan": "request not in the capture",
        "sasl_tokens": "SASL tokens without a Kafka header",
        "header_not_captured": "header not captured",
    },
}

_DUPLICATES = (
    "{n} packet{s} {are} in a file before it too. Duplicates look like retransmissions, so no verdict of this report "
    "counts those."
)
#: What a part means to a user, where it is a loss.
_SENTENCES = {
    ("requests", "unanswered"): "{n} request{s} {have} no response in this capture.",
    ("requests", "response_lost"): "The response{s} to {n} request{s} {are} lost in a gap or after the end of it.",
    ("requests", "header_not_captured"): "{n} request{s} {are} known by size and time only: the header was cut off.",
    ("responses", "orphan"): "{n} response{s} {have} no request in this capture.",
    ("responses", "header_not_captured"): (
        "{n} response{s} {are} known by size and time only: the header was cut off."
    ),
    ("payload bytes", "skipped"): (
        "{n} byte{s} of Kafka connections {are} in no known message: the capture or the connection begins or ends "
        "inside of one, or bytes that were not captured hide where the next one begins."
    ),
    ("payload bytes", "out_of_window"): "{n} byte{s} {are} far outside of {their} connection's window and not counted.",
    ("packets", "fragment"): "{n} IP fragment{s} {were} not put together; the messages in {them} are missing.",
    ("packets", "headers_not_captured"): "{n} packet{s} {are} cut off within {their} headers and cannot be read.",
    ("packets", "bad_header"): "{n} packet{s} {have} headers that cannot be and {were} left out.",
    ("packets", "unknown_link_type"): "{n} packet{s} {are} of a link type that is not known.",
}


def ledger(context: Context) -> Table:
    """Rows section by section, each section's total last; parts that are zero are left out."""
    rows: list[tuple[Value, ...]] = []
    for section, parts in context.ledger.items():
        total = parts.get("total", sum(parts.values()))
        words = WORDS.get(section, {})
        for part, count in parts.items():
            if part != "total" and count:
                rows.append((section, part, words.get(part, part), count, count / total if total else None))
        rows.append((section, "total", "total", total, 1.0 if total else None))
    notes = ("The parts of each section add up to its total.",)
    return Table("ledger", "Ledger", COLUMNS, rows, notes, whole=True)


def loss_sentences(context: Context) -> tuple[str, ...]:
    """What was lost, damaged or not understood: one sentence each."""
    said: list[str] = []
    if context.interrupted:
        until = "" if context.last is None else f" (packets until {units.iso(context.last)})"
        said.append(f"Interrupted: this report covers what was read before{until}, not the whole input.")
    for f in context.files:
        if f.damage:
            said.append(f"{f.path}: {f.damage}.")
        if f.drops:
            said.append(f"{f.path}: {_say('{n} packet{s} {were} dropped while capturing.', f.drops)}")
        if f.duplicates:
            said.append(f"{f.path}: {_say(_DUPLICATES, f.duplicates)}")
    connections = context.connection_counts
    gaps = connections.total("gap_bytes")
    if gaps:
        torn = connections.total("torn")
        where = "1 connection" if torn == 1 else f"{torn:,} connections"
        said.append(_say(f"{{n}} byte{{s}} of {where} {{are}} in no packet of this capture.", gaps))
    if context.not_captured:
        template = (
            "{n} byte{s} of payload {were} cut off by the snap length: times hold, but errors, throttling and topics "
            "in {them} are not seen."
        )
        said.append(_say(template, context.not_captured))
    for section, parts in context.ledger.items():
        for part, count in parts.items():
            template = _SENTENCES.get((section, part), "")
            if template and count:
                said.append(_say(template, count))
    if context.encrypted_share >= 0.005:
        said.append(f"{units.share(context.encrypted_share)} of the payload is encrypted (TLS) and cannot be read.")
    return tuple(said)


def _say(template: str, n: int) -> str:
    one = n == 1
    return template.format(
        n=f"{n:,}",
        s="" if one else "s",
        have="has" if one else "have",
        are="is" if one else "are",
        were="was" if one else "were",
        their="its" if one else "their",
        them="it" if one else "them",
    )
