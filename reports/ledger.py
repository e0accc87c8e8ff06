"""The ledger: where every packet, payload byte, request and response ended, and what was lost in plain sentences."""

from __future__ import annotations

from .batch import Context
from .model import Column, Table, Value

COLUMNS = (
    Column("section", "what", "text", "packets, payload bytes, requests or responses"),
    Column("part", "where it ended", "text", "the one place where each of them ended"),
    Column("count", "count", "count", "how many"),
    Column("share", "share", "share", "of the section's total"),
)

#: What a part of a section means to a user; the first that a part's name begins with.
_SENTENCES = {
    "requests": (
        ("unanswered", "{n} {requests} {have} no response in this capture."),
        ("response lost", "The {responses} to {n} {requests} fell into a gap of the capture."),
        ("malformed", "{n} {requests} {do} not follow Kafka's layout; {have} only their header counted."),
        ("unknown", "{n} {requests} of an API or version that is not known; only their header is counted."),
        ("incomplete", "{n} {requests} {are} incomplete."),
    ),
    "responses": (
        ("orphan", "{n} {responses} {have} no request in this capture."),
        ("malformed", "{n} {responses} {do} not follow Kafka's layout; {have} only their header counted."),
        ("incomplete", "{n} {responses} {are} incomplete."),
    ),
    "payload bytes": (
        ("hole", "{n} bytes were sent but are in no packet of this capture."),
        ("skipped", "{n} bytes were skipped because the frame boundaries were lost."),
        ("cut", "{n} bytes were cut off by the snap length."),
    ),
    "packets": (
        ("cut", "{n} {packets} {are} cut short or damaged."),
        ("damaged", "{n} {packets} {are} cut short or damaged."),
    ),
}


def ledger(context: Context) -> Table:
    """Rows section by section, each section's total last; parts that are zero are left out."""
    rows: list[tuple[Value, ...]] = []
    for section, parts in context.ledger.items():
        total = parts.get("total", sum(parts.values()))
        for part, count in parts.items():
            if part != "total" and count:
                rows.append((section, part, count, count / total if total else None))
        rows.append((section, "total", total, 1.0 if total else None))
    notes = ("The parts of each section add up to its total.",)
    return Table("ledger", "Ledger", COLUMNS, rows, notes, whole=True)


def loss_sentences(context: Context) -> tuple[str, ...]:
    """What was lost, damaged or not understood: one sentence each."""
    said: list[str] = []
    for f in context.files:
        if f.damage:
            said.append(f"{f.path}: {f.damage}")
        if f.drops:
            said.append(f"{f.path}: {_number(f.drops)} packets were dropped while capturing.")
    for section, templates in _SENTENCES.items():
        for part, count in context.ledger.get(section, {}).items():
            template = next((t for start, t in templates if part.replace("_", " ").startswith(start)), None)
            if template and count and part != "total":
                said.append(_say(template, count))
    if context.encrypted_share >= 0.005:
        said.append(f"{context.encrypted_share:.0%} of the payload is encrypted (TLS) and cannot be read.")
    return tuple(said)


def _say(template: str, n: int) -> str:
    one = n == 1
    return template.format(
        n=_number(n),
        requests="request" if one else "requests",
        responses="response" if one else "responses",
        packets="packet" if one else "packets",
        have="has" if one else "have",
        do="does" if one else "do",
        are="is" if one else "are",
    )


def _number(n: int) -> str:
    return f"{n:,}"
