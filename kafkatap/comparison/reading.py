"""Read captures into sides of a comparison: one pass over the captures of a side, or one for both sides of a moment.

A run's exchanges are counted as they are finished, so the memory is that of the engine and the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkatap.reports import units
from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.quality import has_one_direction
from kafkatap.reports.comparison.side_counts import SideCounts
from kafkatap.reports.comparison.side_events import all_side_events, events_of_side
from kafkatap.reports.counting.connection_counts import without_twins
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.expressions.exchange_columns import began_at
from kafkatap.reports.findings import Finding
from kafkatap.reports.literals import Moment
from kafkatap.reports.section_parts.registry import EVENT_SECTIONS
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts

from ..engine.selection import EARLIEST, LATEST, Selection
from ..run import Run

#: Batches after which small names may be added up.
_OFTEN = 64


class EmptySideError(ValueError):
    """No part of the capture is on a side."""


def read_sides(run: Run, selection: Selection, split: Moment | None = None, utc: bool = False) -> list[Side]:
    """Read the captures of a run: one side, or with `split` the sides before and after that moment.

    An exchange belongs to the side in which its request begins. The events are those of all exchanges; there
    are none if some are selected other than by time, as what others did is not known then. EmptySideError if a side
    has no part of the capture; `utc`: its times are in UTC.
    """
    engine = run.engine
    counts = [SideCounts() for _ in range(1 if split is None else 2)]
    at: int | None = None
    sections = engine.section_counts(EVENT_SECTIONS) if selection.expression is None else None
    if sections is not None:
        engine.on_connections(sections.add_connections)

    def text(number: int) -> str | None:
        value = engine.strings[number] if number >= 0 else None
        return None if value is None else value.decode("utf-8", "replace")

    for number, batch in enumerate(selection.apply(_noted(run.batches(), sections), engine)):
        if at is None and split is not None and engine.first is not None:
            at = split.at(engine.first)
        for own, part in zip(counts, _parts(batch, at), strict=False):
            own.add(part)
            if number % _OFTEN == 0:
                own.fold(text)
    context = run.context()
    spans = _spans(context, selection, split)
    _check_spans(context, selection, split, spans, utc)
    rows = without_twins(context.connections)
    for own, (start, end) in zip(counts, spans, strict=True):
        if selection.expression is None:  # it selects exchanges, not connections
            own.add_connections(rows, start, end, not has_one_direction(rows))
        own.fold(context.text)
    events = () if sections is None else _events(sections, context)
    shown = selection.shown(context.first)
    return [
        _side(own, context, events, *span)._replace(selected=shown) for own, span in zip(counts, spans, strict=True)
    ]


def _side(counts: SideCounts, context: Context, events: Iterable[Finding], start: int, end: int) -> Side:
    first = max(start, context.first or 0)
    last = max(first, min(end, context.last or 0))
    return Side(counts, context, first, last, events_of_side(events, first, last))


def _noted(batches: Iterable[Batch], sections: SectionCounts | None) -> Iterator[Batch]:
    """The batches, of which the sections count all exchanges."""
    for batch in batches:
        if sections is not None:
            sections.add(batch)
        yield batch


def _events(sections: SectionCounts, context: Context) -> list[Finding]:
    """All events of what was read."""
    sections.finish()
    return all_side_events(SectionInput(sections, ReportCounts(), context, {}))


def _parts(batch: Batch, at: int | None) -> list[Batch]:
    if at is None:
        return [batch]
    is_before = began_at(batch.exchanges) < at
    return [batch.picked(is_before), batch.picked(~is_before)]


def _spans(context: Context, selection: Selection, split: Moment | None) -> list[tuple[int, int]]:
    """From when to when each side is, ns."""
    first = context.first or 0
    span = (EARLIEST, LATEST) if selection.window is None else selection.window.span(first)
    if split is None:
        return [span]
    at = split.at(first)
    return [(span[0], min(at, span[1])), (max(at, span[0]), span[1])]


def _check_spans(
    context: Context, selection: Selection, split: Moment | None, spans: list[tuple[int, int]], utc: bool
) -> None:
    """EmptySideError if a span has no part of the capture."""
    if context.first is None or context.last is None:
        return
    first, last = context.first, context.last
    when = f"({units.clock(first, utc, 0, True)} to {units.clock(last, utc, 0)} {units.zone(first, utc)})"
    if split is not None and not first < split.at(first) <= last:
        raise EmptySideError(f"--split {split.text} is outside the capture {when}")
    for start, end in spans:
        if not (start <= last and end > first and start < end):
            raise EmptySideError(f"{_window_text(selection, split)} leaves nothing of {_named(context)} {when}")


def _window_text(selection: Selection, split: Moment | None) -> str:
    window = selection.window
    moments = [("--split", split), *(() if window is None else (("--from", window.start), ("--to", window.end)))]
    return " ".join(f"{option} {moment.text}" for option, moment in moments if moment is not None)


def _named(context: Context) -> str:
    files = context.files
    return files[0].path if len(files) == 1 else f"{len(files):,} captures"
