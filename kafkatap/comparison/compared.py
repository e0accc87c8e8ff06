"""The library: `compare(before, after)` returns a `Comparison`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kafkatap.reports.comparison.comparison import Compared, compare_sides
from kafkatap.reports.comparison.judging import Demands
from kafkatap.reports.literals import read_moment
from kafkatap.reports.model import ReportTable

from ..library import Analysis, analyze
from .reading import read_sides

Captures = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Analysis


class Comparison:
    """What has changed from one side to the other. `table(name)` is one of the tables `sides`, `findings`, `changes`
    and `presence` (docs/compare.md).

    `worse`, `better`, `different`: how many findings of each kind. `warnings`: what is not compared, because a side
    is incomplete, and what makes the comparison weak.
    """

    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        self.tables = compared.tables
        self.worse, self.better, self.different = compared.worse, compared.better, compared.different
        self.warnings = compared.all_warnings

    def table(self, name: str) -> ReportTable:
        """One of the tables by name. KeyError for an unknown name."""
        return self._compared.table(name)

    def __getitem__(self, name: str) -> ReportTable:
        return self.table(name)

    @property
    def findings(self) -> list[str]:
        """The findings in words, those that got worse first."""
        return [str(row["finding"]) for row in self.table("findings").named_rows()]

    def __repr__(self) -> str:
        return f"<Comparison: {self.worse} worse, {self.better} better, {self.different} different>"

    def __str__(self) -> str:
        from kafkatap.reports.comparison.text import render_comparison

        return "\n".join("".join(t for t, _ in line).rstrip() for line in render_comparison(self._compared, 100))

    def _repr_html_(self) -> str:
        from kafkatap.reports.comparison.html import comparison_html

        return comparison_html(self._compared)

    def as_json(self) -> dict[str, Any]:
        """The whole comparison as dicts and lists, as `kafkatap compare --json` prints it."""
        from kafkatap.reports.comparison.json_form import comparison_object

        from ..installation import own_version

        return comparison_object(self._compared, own_version())


def compare(
    before: Captures, after: Captures | None = None, *, split: str | None = None, min_change: float = 0.2, **chosen: Any
) -> Comparison:
    """Compare two captures, or with `split` the parts of one before and after a time.

    `before`, `after`: captures as of `analyze`, or analyses, which may select exchanges of each side on their own.
    `split`: a time as of `analyze`. `min_change`: the least relative change that is reported. `chosen`: arguments of
    `analyze` for both sides. ValueError if a time leaves nothing of a side.
    """
    if (after is None) == (split is None):
        raise ValueError("compare needs two captures, or one and `split`")
    if min_change < 0:
        raise ValueError("min_change must not be negative")
    named = [before] if after is None else [before, after]
    if chosen and any(isinstance(one, Analysis) for one in named):
        raise ValueError("an analysis has its selection already: use the arguments of analyze")
    analyses = [one if isinstance(one, Analysis) else analyze(one, **chosen) for one in named]
    moment = None if split is None else read_moment(split)
    from kafkatap.reports.section_parts.registry import EVENT_SECTIONS, needs_of

    sides, texts = [], []
    needs = needs_of(EVENT_SECTIONS)._asdict()
    for analysis in analyses:
        run = analysis._run(all_results=True, selection=analysis.selection, **needs)
        sides += read_sides(run, analysis.selection, moment)
        analysis._check(run)
        texts.append(analysis.selection.text)
    selected = texts if split is None else split_texts(texts[0], split)
    return Comparison(compare_sides(sides[0], sides[1], Demands(ratio=min_change), (selected[0], selected[1])))


def split_texts(selected: str | None, split: str) -> list[str]:
    """The options that select the parts before and after a time."""
    from kafkatap.reports.units import shell_word

    word = shell_word(split)
    return [" ".join(filter(None, (selected, option))) for option in (f"--to {word}", f"--from {word}")]
