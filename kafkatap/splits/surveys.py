"""`Surveys`: the surveys of all splits, repeated until they fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafkatap.reports.batch import FileInfo

from ..captures.capture_reader import FileReport
from ..captures.pack_reader import FileRead
from ..captures.packs import TimedFile, repack
from ..captures.split_checks import dropped, misinformed, misplaced, void
from ..captures.splits import Split
from ..captures.storage import without_credentials
from .located_split import LocatedSplit
from .survey import SplitSurvey

#: Surveys splits, by their numbers.
Survey = Callable[[list[int]], dict[int, SplitSurvey]]
#: Chooses the files of a run (by number) that are left out.
Choice = Callable[[Mapping[int, FileInfo]], set[int]]


@dataclass
class Surveys:
    """`places[i]` is split i, `surveys[i]` its survey. `run` may add splits. `split_size`: bytes of new packs."""

    places: list[LocatedSplit]
    split_size: int = 0
    surveys: list[SplitSurvey] = field(init=False)
    _can_repack: set[int] = field(init=False)
    _infos: dict[int, dict[int, FileInfo]] = field(init=False, default_factory=dict)  # `by_file`, by `base`

    def __post_init__(self) -> None:
        self.surveys = [SplitSurvey(i) for i in range(len(self.places))]
        self._can_repack = set(range(len(self.places)))

    def run(self, survey: Survey, choose: Choice | None = None) -> None:
        """Survey all splits, and again those that began at a wrong byte or lacked an interface description, and the
        files of packs that were not in order. `choose`: returns the files (by number) that are left out."""
        self._run(survey, range(len(self.places)))
        if choose is not None:
            self._run(survey, self._without(choose(self.by_file())))
        self._leave_out_void()
        self._infos.clear()
        for i, found in enumerate(self.surveys):
            seen = tuple((read.head_time, read.report.packets) for read in found.files)
            self.places[i] = replace(self.places[i], seen=seen, blocks=found.blocks)
        latest: dict[int, int] = {}  # by file
        for i, part, found in sorted(self._parts(), key=lambda row: (row[1].file, row[1].number)):
            self.places[i] = replace(self.places[i], latest=latest.get(part.file))
            for read in found.files:
                if read.report.last is not None:
                    latest[part.file] = max(latest.get(part.file, read.report.last), read.report.last)

    def _run(self, survey: Survey, again: Iterable[int]) -> None:
        """Survey splits until they fit together."""
        self._infos.clear()
        while again:
            for split, found in survey(list(again)).items():
                self.surveys[split] = found
            again = self._corrected()

    def _without(self, files: set[int]) -> list[int]:
        """Remove files; return the splits that have lost some and have others."""
        changed = []
        for i, place in enumerate(self.places):
            pack = tuple(split for split in place.pack if split.file not in files)
            if len(pack) < len(place.pack):
                self.places[i], self.surveys[i] = LocatedSplit(pack), SplitSurvey(i)
                changed += [i] if pack else []
        return changed

    @property
    def first(self) -> int | None:
        """The time of the first packet, ns since the epoch; None if there is none."""
        times = (read.report.first for survey in self.surveys for read in survey.files)
        return min((time for time in times if time is not None), default=None)

    @property
    def file_numbers(self) -> list[tuple[int, ...]]:
        """The files of each split."""
        return [place.file_numbers for place in self.places]

    def files(self, base: int = 0) -> list[FileInfo]:
        """The rows of the table `files`. `base`: packets before all of them."""
        return list(self.by_file(base).values())

    def by_file(self, base: int = 0) -> dict[int, FileInfo]:
        """The same by the number of the file."""
        if base not in self._infos:
            self._infos[base] = {
                number: FileInfo(
                    without_credentials(report.path), report.kind, report.first_packet, report.packets, report.bytes,
                    report.link_types, report.first, report.last, report.drops, report.damage, capture=capture,
                    captured_bytes=report.captured_bytes, empty_packets=report.empty_packets, names=tuple(report.names),
                )
                for number, (report, capture) in self.reports(base).items()
            }  # fmt: skip
        return self._infos[base]

    def reports(self, base: int = 0) -> dict[int, tuple[FileReport, int]]:
        """A report on each file, by its number and in order, and its identity. `base`: packets before all of them."""
        parts: dict[int, list[FileRead]] = {}
        drops: dict[int, list[dict[int, int]]] = {}
        for place, survey in zip(self.places, self.surveys, strict=True):
            for number, read in zip(place.file_numbers, survey.files, strict=False):
                parts.setdefault(number, []).append(read)
                drops.setdefault(number, []).append(survey.drops)
        heads = {number: _head_time(reads) for number, reads in parts.items()}
        found = {}
        for number in sorted(parts, key=lambda n: (heads[n] is not None, heads[n] or 0, n)):
            reads = parts[number]
            packets = sum(read.report.packets for read in reads)
            report = _whole_report([read.report for read in reads], drops[number], base + 1 if packets else 1)
            found[number] = (report, reads[0].capture)
            base += packets
        return found

    def _corrected(self) -> list[int]:
        """Correct the splits that have to be surveyed again; return their numbers."""
        number = {split: i for i, split, _ in self._parts()}
        again = []
        for split, exact in misplaced(self._bounds()):
            i = number[split]
            self.places[i] = replace(self.places[i], exact=exact)
            again.append(i)
        if not again:
            interfaces = [(split, survey.interfaces) for _, split, survey in self._parts()]
            before = {(split.file, split.number): i for split, i in number.items()}
            for split in misinformed(interfaces):
                i = before[split.file, split.number]
                self.places[i] = replace(self.places[i], pack=(split,))
                again.append(i)
        return again + self._repacked()

    def _repacked(self) -> list[int]:
        """Pack the files of packs that are not in order anew; return the numbers of the new packs."""
        wrong = [i for i, survey in enumerate(self.surveys) if not survey.is_in_order]
        timed = []
        size = self.split_size if self._can_repack.issuperset(wrong) else 1  # they change: read each alone
        for i in wrong:
            for split, read in zip(self.places[i].pack, self.surveys[i].files, strict=True):
                timed.append(TimedFile(split, read.head_time, read.report.last))
        packs = repack(timed, size)
        numbers = [*wrong, *range(len(self.places), len(self.places) + len(packs) - len(wrong))]
        for i, pack in zip(numbers, packs, strict=False):
            if i == len(self.places):
                self.places.append(LocatedSplit(pack))
                self.surveys.append(SplitSurvey(i))
            self.places[i] = LocatedSplit(pack)
        for i in wrong[len(packs) :]:
            self.places[i], self.surveys[i] = LocatedSplit(()), SplitSurvey(i)
        self._can_repack.difference_update(numbers)
        return numbers[: len(packs)]

    def _leave_out_void(self) -> None:
        """Drop the surveys of parts beyond damage, and keep where the others begin."""
        beyond = set(void(self._bounds()))
        for i, split, survey in self._parts():
            if split in beyond:
                self.surveys[i] = SplitSurvey(i)
            else:
                self.places[i] = replace(self.places[i], exact=survey.begins)

    def _parts(self) -> list[tuple[int, Split, SplitSurvey]]:
        """(split, its part of a file, its survey) of each split that is part of a file."""
        rows = zip(self.places, self.surveys, strict=True)
        return [(i, place.pack[0], survey) for i, (place, survey) in enumerate(rows) if len(place.pack) == 1]

    def _bounds(self) -> list[tuple[Any, int | None, int | None]]:
        return [(split, survey.begins, survey.ends) for _, split, survey in self._parts()]


def _head_time(reads: Sequence[FileRead]) -> int | None:
    return next((read.head_time for read in reads if read.head_time is not None), None)


def _whole_report(parts: Sequence[FileReport], drops: Sequence[dict[int, int]], first_packet: int) -> FileReport:
    """The report on a file, of those on its parts."""
    whole = parts[0]
    firsts = [part.first for part in parts if part.first is not None]
    lasts = [part.last for part in parts if part.last is not None]
    made = FileReport(
        whole.path, whole.kind, first_packet, sum(part.packets for part in parts), sum(part.bytes for part in parts),
        tuple(dict.fromkeys(link for part in parts for link in part.link_types)),
        min(firsts, default=None), max(lasts, default=None), whole.drops if len(parts) == 1 else dropped(drops),
        next((part.damage for part in parts if part.damage), None), whole.fatal,
    )  # fmt: skip
    made.names = dict.fromkeys(pair for part in parts for pair in part.names)
    for name in ("secrets_left_out", "captured_bytes", "empty_packets"):
        setattr(made, name, sum(getattr(part, name) for part in parts))
    return made
