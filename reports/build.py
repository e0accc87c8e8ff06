"""`build_report` makes the report of a run. All renderers take it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .batch import Context
from .counting import tally
from .counting.counts import ReportCounts
from .counting.heat_map import heat_map
from .counting.histogram import middle
from .counting.rollup import api_label
from .model import Curve, Curves, Report, ReportTable
from .questions.registry import USUAL
from .sections.clients import clients
from .sections.error_codes import error_totals, errors
from .sections.heading import files, heading
from .sections.latency import check_by, latency, roll_latency
from .sections.ledger import ledger, loss_warnings, unknown_wait_warnings
from .sections.never_answered import never_answered_warnings
from .sections.not_decoded import not_decoded, not_decoded_warnings
from .sections.summary import Tables, summary
from .sections.throttle import throttle
from .sections.timeline import timeline

if TYPE_CHECKING:
    from .questions.section_counts import SectionCounts


def build_report(
    counts: ReportCounts,
    context: Context,
    *,
    by: str = "api",
    timeline_rows: int = 24,
    curves: bool = False,
    selected: str | None = None,
    sections: Sequence[str] | None = None,
    over_facts: SectionCounts | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """The report of a run's counts.

    `by`: api, client, broker, connection, version or topic. `curves`: also make the curves that plots need.
    `selected`: the selection's options as the user wrote them; None: everything is selected. `sections`: names of
    `questions.registry`; None: the usual ones. `over_facts`: the counts of those among them that are over facts, and
    `options`: what the user set for these.
    """
    check_by(by)
    counts.finish()
    detail = errors(counts, context)
    undecoded = not_decoded(counts, context)
    people = clients(counts, context)
    usual: dict[str, Callable[[], tuple[ReportTable, ...]]] = {
        "summary": lambda: (summary(counts, context, Tables(detail, people, undecoded), selected),),
        "latency": lambda: (latency(counts, context, by),),
        "throttle": lambda: (throttle(counts, context),),
        "errors": lambda: (error_totals(detail), detail),
        "clients": lambda: (people,),
        "timeline": lambda: (timeline(counts, context, timeline_rows),),
        "not-decoded": lambda: (undecoded,),
        "files": lambda: (files(context),),
    }
    tables = [table for name in (USUAL if sections is None else sections) if name in usual for table in usual[name]()]
    if over_facts is not None:
        tables += section_tables(over_facts, counts, context, options or {}, selected is not None)
    return Report(
        heading=heading(counts, context, len(people.rows), selected),
        tables=tuple(tables),
        ledger=ledger(context),
        warnings=(
            *loss_warnings(context, None if selected is None else counts),
            *unknown_wait_warnings(counts),
            *never_answered_warnings(counts),
            *not_decoded_warnings(undecoded),
        ),
        curves=Curves(latency_curves(counts, context, by), heat_map(counts)) if curves else Curves(),
    )


def section_tables(
    over_facts: SectionCounts, counts: ReportCounts, context: Context, options: Mapping[str, Any], is_selected: bool
) -> list[ReportTable]:
    """The tables of the sections over facts. `is_selected`: exchanges were left out."""
    from .questions.section import SectionInput

    over_facts.finish()
    given = SectionInput(over_facts, counts, context, options)
    found: list[ReportTable] = []
    for section in over_facts.sections:
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
