"""Events: what happened to brokers, hosts, leaders, topics and clients, when, and what followed.

An event is one line with everything that followed folded in. Each kind has a module, which makes findings from what
`event_counts` keeps: `event_outages` (stops, hangs, returns, broken paths), `event_freezes` (shorter hangs),
`event_changes` (leaders, in-sync replicas, coordinators, topics, errors, rebalances), `event_clients` (quotas, storms,
leaks, and the capture's own losses).
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import kinds
from ..batch import Context
from ..commands import command
from ..findings import NOTE, Finding
from ..model import Column, ReportTable, in_columns
from ..section_parts.section import BatchCount, Section, SectionInput
from ..units import duration
from .event_answers import ANSWERS, count_answers
from .event_changes import changes
from .event_clients import client_events, note_losses
from .event_counts import COUNTS, FACTS, read
from .event_freezes import freezes
from .event_outages import outages
from .event_timeline import Seen
from .folding import folded
from .folds import Known
from .selected_findings import selected_findings

COLUMNS = (
    Column("time", "time", "time", "when it began", of="begin"),
    Column("end", "end", "time", "when it was over; empty: it lasts, or took no time", 2),
    Column("event", "kind", "text", "what kind of event it is, for programs", 9, of="id"),
    Column("label", "event", "text", "what kind of event it is"),
    Column("what", "what happened", "text", "what happened, and what followed", end="sentence", of="text"),
    Column("party", "on", "text", "broker, client, host, group, topic or error that it is on", 3, end="party",
           of=lambda f: f.parties[0].name if f.parties else None),
    Column("time_lost_ns", "lost,\nsum", "ns", "time that requests waited because of it, summed", 2,
           of=lambda f: f.time_lost_ns or None),
    Column("packet", "packet", "packet", "first packet that shows it", 1,
           of=lambda f: f.packets[0] if f.packets else None),
    Column("command", "command", "text", "command that shows more", 4),
)  # fmt: skip


def findings(given: SectionInput) -> list[Finding]:
    """The events that a report shows in order of time, those that follow from another one too (`Finding.cause`)."""
    return selected_findings(given, given.learned_by("events").once(all_events))


def all_events(given: SectionInput) -> list[Finding]:
    """All events of what was read, as of `findings`."""
    if given.context.first is None:
        return []
    seen = Seen(given)
    losses = list(note_losses(seen))
    stops = [known for stop in outages(seen) if (known := _with_holes(stop, losses, given.context)) is not None]
    found = [*stops, *freezes(seen), *changes(seen), *client_events(seen), *losses]
    made = [each for _, each in folded([(kinds.EVENTS, each) for each in found], Known(given.context))]
    return sorted(made, key=lambda f: (f.begin or 0, f.id, str(f.parties)))


def _with_holes(outage: Finding, losses: Sequence[Finding], context: Context) -> Finding | None:
    """An outage that says how much of its time was not captured: it may have ended then. None if that is most of it:
    nobody knows whether it was one."""
    begin, holes = outage.begin or 0, [f for f in losses if f.id == kinds.HOLE]
    until = (context.last or 0) if outage.end is None else outage.end
    missing = sum(max(min(f.end or 0, until) - max(f.begin or 0, begin), 0) for f in holes)
    if outage.severity == NOTE or not missing:
        return outage
    if 2 * missing > until - begin:
        return None
    return outage._replace(text=f"{outage.text}; {duration(missing)} of that time was not captured")


def tables(given: SectionInput) -> Sequence[ReportTable]:
    """One row for each event. What followed from another event is in the row of that one."""
    rows = in_columns(COLUMNS, (
        found._replace(command=command(given.context, None, found.options, found.command))
        for found in given.once(findings) if found.cause is None
    ))  # fmt: skip
    empty = "no outage, moved leader, rebalance, quota or burst of errors"
    return (ReportTable("events", "Events", COLUMNS, rows, empty=empty, order="in order of time"),)


SECTION = Section(
    "events", "What happened, when, and to whom?",
    columns={"events": COLUMNS}, tables=tables, facts=FACTS, counts=COUNTS, read=read,
    under_selection="Events are learned from all that was read. These are in the selected time, on parties of the "
    "selected exchanges.",
    findings=findings, made_of=("section_parts.cluster:READING",), reads_notable=True,
    batch_counts=(BatchCount((ANSWERS,), count_answers),),
)  # fmt: skip
