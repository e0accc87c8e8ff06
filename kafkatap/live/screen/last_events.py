"""The last events, for the screen."""

from __future__ import annotations

import textwrap
from collections import deque

from kafkatap.reports import units
from kafkatap.reports.findings import ERROR, WARNING, Finding

from ..sink import Sink
from .columns import BAD, DIM, NONE, WARN, Column, Line, Span

#: Events that are kept.
KEPT = 500
STYLES = {ERROR: BAD, WARNING: WARN}
_MARGIN = 14


class LastEvents(Sink):
    """`found`: the events with their numbers, the latest first."""

    def __init__(self) -> None:
        self.found: deque[tuple[int, Finding]] = deque(maxlen=KEPT)
        self._count = 0

    def add_event(self, finding: Finding) -> None:
        self._count += 1
        self.found.appendleft((self._count, finding))


def event_columns(utc: bool) -> tuple[Column[Finding], ...]:
    return (
        Column("at", "time", 1, 8, lambda f: (NONE if f.begin is None else units.clock(f.begin, utc, 0), "")),
        Column("severity", "severity", 3, 8, lambda f: (f.severity, STYLES.get(f.severity, DIM)), None, 0, False),
        Column("label", "event", 2, 13, _label, None, 18, False, 17),
        Column("name", "what happened", 0, 30, _text, None, 400, False, 56),
    )


def _label(finding: Finding) -> Span:
    return units.safe(finding.label), STYLES.get(finding.severity, "")


def _text(finding: Finding) -> Span:
    return units.safe(finding.text), STYLES.get(finding.severity, "")


def event_lines(f: Finding, utc: bool, width: int) -> list[Line]:
    """All that is known of an event, in lines of at most `width` columns where that is possible."""

    def at(time: int | None) -> str:
        return NONE if time is None else f"{units.clock(time, utc, 3, date=True)} {units.zone(time, utc)}"

    fields = [("event", f.label, "bold"), ("severity", f.severity, STYLES.get(f.severity, "")), ("what", f.text, "")]
    fields += [("began", at(f.begin), ""), ("ended", at(f.end), "")]
    fields += [("on" if n == 0 else "", f"{party.kind} {party.name}", "") for n, party in enumerate(f.parties)]
    if f.time_lost_ns:
        fields.append(("lost", f"{units.duration(f.time_lost_ns)} of requests, summed", ""))
    fields += [("setting", f.setting, ""), ("remedy", f.remedy, "")]
    lines: list[Line] = []
    for name, text, style in fields:
        parts = textwrap.wrap(units.safe(text), max(width - _MARGIN, 20)) if text else []
        lines += [[(f"{name if n == 0 else '':<{_MARGIN}}", DIM), (part, style)] for n, part in enumerate(parts)]
    return lines
