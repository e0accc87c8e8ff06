"""`build_report` makes the report of a run. All renderers take it."""

from __future__ import annotations

import numpy as np

from .batch import Context
from .counting import tally
from .counting.counts import ReportCounts
from .counting.histogram import middle
from .counting.rollup import api_label
from .model import Curves, Report
from .sections.clients import clients
from .sections.error_codes import error_totals, errors
from .sections.heading import files, heading
from .sections.latency import check_by, latency, roll_latency
from .sections.ledger import ledger, loss_warnings
from .sections.never_answered import never_answered_warnings
from .sections.not_decoded import not_decoded, not_decoded_warnings
from .sections.throttle import throttle
from .sections.timeline import timeline


def build_report(
    counts: ReportCounts,
    context: Context,
    *,
    by: str = "api",
    timeline_rows: int = 24,
    curves: bool = False,
    selected: str | None = None,
) -> Report:
    """The report of a run's counts.

    `by`: api, client, broker, version or topic. `curves`: also make the curves that plots need. `selected`: the
    selection's options as the user wrote them; None: everything is selected.
    """
    check_by(by)
    counts.finish()
    detail = errors(counts, context)
    undecoded = not_decoded(counts, context)
    people = clients(counts, context)
    return Report(
        heading=heading(counts, context, len(people.rows), selected),
        tables=(
            latency(counts, context, by),
            throttle(counts, context),
            error_totals(detail),
            detail,
            people,
            timeline(counts, context, timeline_rows),
            undecoded,
            files(context),
        ),
        ledger=ledger(context),
        warnings=(
            *loss_warnings(context, None if selected is None else counts),
            *never_answered_warnings(counts),
            *not_decoded_warnings(undecoded),
        ),
        curves=latency_curves(counts, context, by) if curves else Curves(),
    )


def latency_curves(counts: ReportCounts, context: Context, by: str = "api") -> Curves:
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
    return Curves(tuple(sorted(curves, key=lambda c: (-c[1], c[0]))))


def _named(by: str, value: int | str | None) -> str:
    """The label of a value: `v12`, `billing`, or `(none)` for a client without an id."""
    return f"v{value}" if by == "version" else "(none)" if value is None else str(value)
