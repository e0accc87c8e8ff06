"""`build_report` makes the report of a run. All renderers take it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from .batch import Context
from .counting import tally
from .counting.counts import ReportCounts
from .counting.heat_map import heat_map
from .counting.histogram import middle
from .counting.rollup import api_label
from .counting.traffic import traffic
from .encryption import is_mostly_encrypted
from .findings import Finding
from .model import Curve, Curves, Mark, Report, ReportTable
from .section_parts.registry import USUAL, load_sections
from .section_parts.section import SectionInput
from .section_parts.section_counts import SectionCounts
from .section_parts.selected import Clients, Selected
from .sections.client_failures import failing_clients
from .sections.clients import clients, with_encrypted
from .sections.error_codes import error_meanings, error_totals, errors
from .sections.heading import files, heading
from .sections.latency import check_by, latency, roll_latency
from .sections.ledger import ledger, loss_warnings, unknown_wait_warnings
from .sections.never_answered import never_answered, never_answered_warnings
from .sections.not_decoded import not_decoded, not_decoded_warnings
from .sections.summary import NOTHING_LEARNED, Learned, Tables, summary
from .sections.throttle import throttle
from .sections.timeline import timeline
from .sections.unnamed_topics import unnamed_topic_warnings

#: Names of one address that brokers advertise, or captures give, of which a report has so many.
_MOST_NAMES = 2


def build_report(
    counts: ReportCounts,
    context: Context,
    *,
    by: str = "api",
    timeline_rows: int = 24,
    curves: bool = False,
    selected: Selected | None = None,
    sections: Sequence[str] | None = None,
    over_facts: SectionCounts | None = None,
    options: Mapping[str, Any] | None = None,
    unchecked: Finding | None = None,
) -> Report:
    """The report of a run's counts.

    `by`: api, client, broker, connection, version or topic. `curves`: also make the curves that plots need.
    `selected`: what exchanges are selected; None: everything is. `sections`: names of
    `registry`; None: the usual ones. `over_facts`: the counts of those among them that are over facts, and
    `options`: what the user set for these. `unchecked`: without `over_facts`, the finding on what was not looked for.
    """
    check_by(by)
    text = None if selected is None else selected.text
    counts.finish()
    detail = errors(counts, context)
    undecoded = not_decoded(counts, context)
    usual: dict[str, Callable[[], tuple[ReportTable, ...]]] = {
        "summary": lambda: (summary(counts, context, Tables(detail, people, undecoded), text, learned, unchecked),),
        "latency": lambda: (latency(counts, context, by),),
        "throttle": lambda: (throttle(counts, context),),
        "errors": lambda: (error_totals(detail), detail, *(() if sections is None else (error_meanings(detail),))),
        "clients": lambda: (people if selected is not None else with_encrypted(people, context),),
        "timeline": lambda: (timeline(counts, context, timeline_rows),),
        "not-decoded": lambda: (undecoded,),
        "files": lambda: (files(context),),
    }
    learned = NOTHING_LEARNED
    everything = counts if selected is None else None
    more: list[ReportTable] = []
    given = None
    if over_facts is not None and any(s.makes_something for s in over_facts.sections):
        from .section_parts.section import SectionInput
        from .sections.advice import unchecked_finding
        from .sections.error_words import error_words
        from .sections.slow_times import loss_times, slow_times
        from .sections.stuck_coordinators import stuck_coordinator
        from .sections.sufferers import units
        from .sections.twin_findings import twin_findings
        from .sections.unanswered import unanswered_requests

        over_facts.finish()
        given = SectionInput(over_facts, counts, context, options or {}, selected)
        more = section_tables(given, sections, selected is not None)
        found = {s.name: given.once(s.findings) for s in over_facts.sections if s.findings is not None}
        unchecked = unchecked_finding(given)
        learned = Learned(found)
        if "events" in found:
            everything = everything or given.learned_by("events").counts
            learned = Learned(
                found, given.once(slow_times), given.once(loss_times), unanswered_requests(given),
                words=error_words(given)._replace(coordinator=stuck_coordinator(given)),
                twins=given.once(twin_findings), units=given.once(units),
            )  # fmt: skip
    versions = never_answered(counts, everything)
    learned = learned._replace(versions=[version for version, _ in versions])
    people = clients(counts, context, failing_clients(detail, counts, context), learned.found.get("advice", ()))
    tables = [table for name in (USUAL if sections is None else sections) if name in usual for table in usual[name]()]
    tables += more
    tables = _with_timeline_by(tables, given, by, timeline_rows)
    if is_mostly_encrypted(context):
        tables = [
            t if t.name.startswith("tls") else t.replace(empty=f"{t.empty} in what could be read") for t in tables
        ]
    if selected is not None:
        who = Clients.of(counts, context)
        tables = [selected.shown(table, who) for table in tables]
    marks = _marks(learned.found.get("events", ()))
    top = heading(counts, context, len(people.rows), text)
    context = _with_learned(context, given if "events" in learned.found else None)
    if context.hosts is not None and context.first is not None:
        from .hosts.named_tables import named_text

        top, *tables = _with_names([top, *tables], context, selected)
        marks = tuple(
            mark._replace(text=named_text(mark.text, partial(context.hosts.text, first=mark.begin, last=mark.begin)))
            for mark in marks
        )
    return Report(
        heading=top,
        tables=tuple(tables),
        ledger=ledger(context),
        warnings=(
            *loss_warnings(context, None if selected is None else counts),
            *unknown_wait_warnings(counts),
            *never_answered_warnings(versions),
            *not_decoded_warnings(undecoded),
            *unnamed_topic_warnings(tables, context),
        ),
        options=context.options,
        curves=Curves(
            latency_curves(counts, context, by),
            heat_map(counts),
            marks,
            traffic(counts.traffic, counts.traffic_interval, context),
        )
        if curves
        else Curves(),
    )


def _with_learned(context: Context, given: SectionInput | None) -> Context:
    """A context in which brokers without another name have the one that they advertise (in what `given` counted), and
    all addresses without one that of captures.

    Rows, and so filters, have the names of files alone. They are written as they come, and by tasks that read a part of
    a capture each: those before the first Metadata, or the block behind the packets, would lack the name in silence.
    """
    found: Mapping[str, Sequence[str]] = {}
    if given is not None:
        from .section_parts.cluster import Cluster

        found = given.learned_by("events").once(Cluster).host_names()
    named: dict[str, list[str]] = {}
    for address, name in dict.fromkeys(pair for file in context.files for pair in file.names):
        named.setdefault(address, []).append(name)
    if not (found or named):
        return context
    from .hosts.host_entry import METADATA, PCAPNG, host_entry
    from .hosts.host_table import HostTable

    entries = []
    for layer, known in ((METADATA, found), (PCAPNG, named)):
        for address, names in known.items():
            with suppress(ValueError):  # an empty name, or one in place of addresses beyond a limit
                entries.append(host_entry(address, ", ".join(names[:_MOST_NAMES]), layer=layer))
    return context._replace(hosts=(context.hosts or HostTable()).with_learned(entries))


def _with_names(tables: Sequence[ReportTable], context: Context, selected: Selected | None) -> list[ReportTable]:
    """The tables with the names of their addresses in the time of the report."""
    from .hosts.named_tables import with_hosts

    first, last = context.first or 0, context.last or context.first or 0
    if selected is not None and selected.span is not None:
        first, last = max(first, selected.span[0]), min(last, selected.span[1])
    return [with_hosts(table, context.hosts, (first, max(first, last))) for table in tables]


def _with_timeline_by(
    tables: list[ReportTable], given: SectionInput | None, by: str, rows: int
) -> list[ReportTable]:  # fmt: skip
    """The tables, with the timeline of each broker or client after the timeline, if the report is by these."""
    from .sections.timeline_by import BY, timeline_by

    at = next((n for n, table in enumerate(tables) if table.name == "timeline"), None)
    if at is None or given is None or by not in BY or "events" not in (s.name for s in given.sections.sections):
        return tables
    return [*tables[: at + 1], timeline_by(given, by, rows), *tables[at + 1 :]]


def _marks(events: Sequence[Finding]) -> tuple[Mark, ...]:
    """The events that charts show: those that follow from no other one, and the returns of brokers."""
    from . import kinds
    from .findings import NOTE

    chosen = (e for e in events if e.severity != NOTE or e.id == kinds.RETURNED)
    return tuple(Mark(e.begin or 0, e.end, e.label, e.text) for e in chosen if e.cause is None or e.severity == NOTE)


def section_tables(given: SectionInput, wanted: Sequence[str] | None, is_selected: bool) -> list[ReportTable]:
    """The tables of the sections over facts. `wanted`: names of sections; None: of all that were counted.
    `is_selected`: exchanges were left out."""
    found: list[ReportTable] = []
    shown = given.sections.sections if wanted is None else load_sections(wanted)
    for section in given.sections.sections:
        if section not in shown or (
            wanted is None and section.name == "tls" and not is_mostly_encrypted(given.context)
        ):
            continue
        made = list(section.tables(given))
        if is_selected and section.under_selection:
            made[0] = made[0].replace(notes=(*made[0].notes, section.under_selection))
        found += made
    return found


def latency_curves(counts: ReportCounts, context: Context, by: str = "api") -> tuple[Curve, ...]:
    """The distribution of broker time for each row of the latency table, the most frequent first."""
    rolled = roll_latency(counts, context, by)
    owner, bucket, count = rolled.histograms.of(tally.M_BROKER)
    rows = rolled.row_of[owner]
    curves = []
    for i, (api_key, long_poll, *rest) in enumerate(rolled.keys):
        assert isinstance(api_key, int)
        total = int(rolled.values["answered"][i])
        if not total:
            continue
        mine = rows == i
        found, inverse = np.unique(bucket[mine], return_inverse=True)
        running = np.cumsum(np.bincount(inverse, weights=count[mine])) / total
        times = np.minimum(middle(found), rolled.values["broker_max"][i])
        label = " ".join((api_label(api_key, int(bool(long_poll))), *(_named(by, value) for value in rest)))
        curves.append((label, total, times.tolist(), running.tolist()))
    return tuple(sorted(curves, key=lambda c: (-c[1], c[0])))


def _named(by: str, value: int | str | None) -> str:
    """The label of a value: `v12`, `billing`, or `(none)` for a client without an id."""
    return f"v{value}" if by == "version" else "(none)" if value is None else str(value)
