"""`Surveys`: the surveys of all splits, repeated until they fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafkatap.reports.batch import FileInfo

from ...captures.split_checks import dropped, misinformed, misplaced, void
from .located_split import LocatedSplit
from .survey import SplitSurvey


@dataclass
class Surveys:
    """`places[i]` is split i, `surveys[i]` its survey."""

    places: list[LocatedSplit]
    surveys: list[SplitSurvey] = field(init=False)

    def __post_init__(self) -> None:
        self.surveys = [SplitSurvey(i) for i in range(len(self.places))]

    def run(self, survey: Callable[[list[int]], dict[int, SplitSurvey]]) -> None:
        """Survey all splits, and again those that began at a wrong byte or lacked an interface description."""
        again: Iterable[int] = range(len(self.places))
        while again:
            for split, found in survey(list(again)).items():
                self.surveys[split] = found
            again = self._corrected()
        self._leave_out_void()

    @property
    def first(self) -> int | None:
        """The time of the first packet, ns since the epoch; None if there is none."""
        times = (survey.report.first for survey in self.surveys if survey.report is not None)
        return min((time for time in times if time is not None), default=None)

    @property
    def file_numbers(self) -> list[int]:
        """The file of each split."""
        return [place.split.file for place in self.places]

    def files(self, base: int = 0) -> list[FileInfo]:
        """The rows of the table `files`. `base`: packets before all of them."""
        by_file: dict[int, list[SplitSurvey]] = {}
        for place, survey in zip(self.places, self.surveys, strict=True):
            by_file.setdefault(place.split.file, []).append(survey)
        order = sorted(by_file, key=lambda f: (_head_time(by_file[f]) is not None, _head_time(by_file[f]) or 0, f))
        files = []
        for number in order:
            surveys = by_file[number]
            packets = sum(s.packets for s in surveys)
            files.append(_file_info(surveys, base + 1 if packets else 1, packets))
            base += packets
        return files

    def _bounds(self) -> list[tuple[Any, int | None, int | None]]:
        pairs = zip(self.places, self.surveys, strict=True)
        return [(place.split, survey.begins, survey.ends) for place, survey in pairs]

    def _corrected(self) -> list[int]:
        """Correct the splits that have to be surveyed again; return their numbers."""
        number = {(place.split.file, place.split.number): i for i, place in enumerate(self.places)}
        again = []
        for split, exact in misplaced(self._bounds()):
            i = number[split.file, split.number]
            self.places[i] = replace(self.places[i], exact=exact)
            again.append(i)
        if not again:
            interfaces = [(p.split, s.interfaces) for p, s in zip(self.places, self.surveys, strict=True)]
            for split in misinformed(interfaces):
                i = number[split.file, split.number]
                self.places[i] = replace(self.places[i], split=split)
                again.append(i)
        return again

    def _leave_out_void(self) -> None:
        """Drop the surveys of splits beyond damage, and keep where the others begin."""
        beyond = set(void(self._bounds()))
        for i, place in enumerate(self.places):
            if place.split in beyond:
                self.surveys[i] = SplitSurvey(i)
            else:
                self.places[i] = replace(place, exact=self.surveys[i].begins)


def _head_time(surveys: Sequence[SplitSurvey]) -> int | None:
    return next((s.head_time for s in surveys if s.packets), None)


def _file_info(surveys: Sequence[SplitSurvey], first_packet: int, packets: int) -> FileInfo:
    reports = [s.report for s in surveys if s.report is not None]
    firsts = [r.first for r in reports if r.first is not None]
    lasts = [r.last for r in reports if r.last is not None]
    links = dict.fromkeys(link for r in reports for link in r.link_types)
    drops = reports[0].drops if len(reports) == 1 else dropped(s.drops for s in surveys)
    return FileInfo(
        reports[0].path, reports[0].kind, first_packet, packets, sum(r.bytes for r in reports), tuple(links),
        min(firsts, default=None), max(lasts, default=None), drops,
        next((r.damage for r in reports if r.damage), None),
    )  # fmt: skip
