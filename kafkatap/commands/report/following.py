"""`kafkatap report --follow`: a report each interval, while captures grow."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts

from ..console import discard_output
from ..kept_options import kept_options
from ..values import brief_tables, section_options, text_rows
from .outputs import as_printed
from .reporting import as_ordered, print_report

if TYPE_CHECKING:
    from kafkatap.reports.batch import Context
    from kafkatap.reports.model import Report
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ...engine.selection import Selection
    from ...run import Watch

#: ns between two reports, unless --interval says otherwise.
INTERVAL = 10_000_000_000
_RULE = "-" * 79
#: The alternate screen of a terminal, on which long lines are not wrapped: its begin and end. Cursor to the top and
#: clear.
_BEGIN_SCREEN, _END_SCREEN, _CLEAR = "\x1b[?1049h\x1b[?7l", "\x1b[?7h\x1b[?1049l", "\x1b[H\x1b[2J"


class IntervalReports:
    """Prints the report of the counts so far at each interval. On a terminal it is drawn anew in the same place.

    `context`: what the counts mean now. `is_lost`: the reader of the output has gone.
    """

    def __init__(
        self, options: argparse.Namespace, counts: ReportCounts, context: Callable[[], Context], selection: Selection,
        sections: SectionCounts | None = None,
    ) -> None:  # fmt: skip
        self._options = options
        self.counts = counts
        self._context, self._selection, self._sections = context, selection, sections
        self._interval = (options.interval or INTERVAL) / 1e9
        self._due = time.monotonic() + self._interval
        self._is_screen = sys.stdout.isatty() and not options.json and os.environ.get("TERM") not in (None, "", "dumb")
        self._is_drawn = False
        self.is_lost = False

    def beside(self, watch: Watch) -> Watch:
        """A `Watch` that also prints reports, and ends the run when nobody reads them."""

        def watched(done: int) -> bool:
            self.print_due()
            return watch(done) or self.is_lost

        return watched

    def print_due(self) -> None:
        """Print a report if the interval is over and there are packets."""
        now = time.monotonic()
        if now < self._due or self.is_lost:
            return
        self._due = max(self._due + self._interval, now)
        context = self._context()
        if not context.packets:
            return
        options = self._options
        context = context._replace(options=kept_options(options))
        report = build_report(
            self.counts, context, by=options.by,
            selected=self._selection.shown(context.first), sections=options.sections, over_facts=self._sections,
            options=section_options(options),
        )  # fmt: skip
        report = as_printed(options, as_ordered(options, report))
        try:
            if self._is_screen:
                self._draw(report)
            else:
                print_report(self._options, report)
                if not self._options.json:
                    print(f"\n{_RULE}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            self.is_lost = True

    def _draw(self, report: Report) -> None:
        """Draw as much of a report as the terminal has lines."""
        from shutil import get_terminal_size

        from kafkatap.reports.rendering.text import write_text

        options, size = self._options, get_terminal_size()
        text = io.StringIO()
        color = options.color == "always" or (options.color == "auto" and not os.environ.get("NO_COLOR"))
        width = options.width or size.columns
        write_text(
            report, text, top=text_rows(options), utc=options.utc, color=color, width=width,
            whole_ledger=options.ledger, captures=options.captures, brief=brief_tables(options),
        )  # fmt: skip
        lines = text.getvalue().splitlines()
        if len(lines) > size.lines:
            more = len(lines) - size.lines + 1
            lines = [*lines[: size.lines - 1], f"… {more} more lines; Ctrl-C prints the whole report"]
        if not self._is_drawn:
            sys.stdout.write(_BEGIN_SCREEN)
            self._is_drawn = True
        sys.stdout.write(_CLEAR + "\n".join(lines))

    def close(self) -> None:
        """Show what the terminal showed before the first report."""
        if self._is_drawn:
            sys.stdout.write(_END_SCREEN)
            sys.stdout.flush()
