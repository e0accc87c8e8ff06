"""`KeptCounts`: the counts of each capture and hour of a split, which a `CountKeeper` keeps, and their sum.

Captures may be small, and many: exchanges of all are counted together, and each count has its place, a number for a
capture and an hour (`section_parts.place_counts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kafkatap.kernels.arrays import groups_of
from kafkatap.reports.batch import Array, Batch, Names
from kafkatap.reports.counting.count_forms import FormCounts, by_place
from kafkatap.reports.counting.counts import TOPICS, ReportCounts
from kafkatap.reports.counting.parts import Part
from kafkatap.reports.section_parts import stored
from kafkatap.reports.section_parts.place_counts import PlaceCounts
from kafkatap.reports.section_parts.section_counts import SectionCounts

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from .run_options import RunOptions


class CountKeeper(Protocol):
    """Keeps the counts of each capture and hour."""

    def places_of(self, exchanges: Array) -> tuple[Array, Array]:
        """The capture and the hour of EXCHANGE rows: int64 (n,) each."""

    def hour_of(self, time: int) -> int:
        """The hour of a time, ns since the epoch."""

    def keep(self, places: Array, parts: Iterable[tuple[Part, Array]], names: Names, exchanges: Array) -> None:
        """Keep counts beside those that were kept before. `places`: int64 (n, 2), captures and hours. `parts`: with the
        place of each row. `exchanges`: int64 (n,), that the places count."""


class KeptCounts:
    """`capture`: that of the packets of now. `report`, `sections`: get the sum; the report counts topics."""

    def __init__(
        self, options: RunOptions, engine: Engine, keeper: CountKeeper, capture: Callable[[], int],
        report: ReportCounts, sections: SectionCounts | None,
    ) -> None:  # fmt: skip
        self._engine, self._keeper, self._capture = engine, keeper, capture
        self._wanted = options.kept_sections or options.sections
        self._report, self._sections = report, sections
        self._total_topics = FormCounts(TOPICS) if options.by_topic else None
        self._last_place: tuple[int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self._places: dict[tuple[int, int], int] = {}
        self._exchanges: list[int] = []
        self._counts = PlaceCounts(self._wanted, self._engine.limits.names, lambda: self._engine.other)
        self._topics = FormCounts(by_place(TOPICS))
        self._of_topics = -1  # the place of the topics that the report has

    def _number(self, place: tuple[int, int]) -> int:
        """The number of a capture and an hour."""
        self._last_place = place
        number = self._places.setdefault(place, len(self._places))
        if number == len(self._exchanges):
            self._exchanges.append(0)
        return number

    def add(self, batch: Batch) -> None:
        """Add a batch of exchanges, whose arrays stay as they are. What belongs to none of them is in the first place
        of the batch."""
        if len(batch.exchanges):
            places = np.empty(len(batch.exchanges), np.int64)
            first = -1
            for number, part, chosen in self._parts(batch):
                places[chosen] = number
                first = number if first < 0 else first
                self._add(number, part)
        else:
            places, at = np.zeros(0, np.int64), 0
            if batch.estimates is not None and len(batch.estimates):
                at = int(batch.estimates["at"][0])
            latest = None if at else self._last_place
            first = self._number(latest or (self._capture(), self._keeper.hour_of(at)))
        self._counts.add_placed(batch, places, first)
        if self._counts.is_full or len(self._topics) > self._engine.limits.names:
            self._keep()
            self._begin()

    def _parts(self, batch: Batch) -> Iterator[tuple[int, Batch, Array]]:
        """The parts of a batch by place."""
        for [capture, hour], chosen in groups_of(*self._keeper.places_of(batch.exchanges)):
            if len(chosen) == len(batch.exchanges):
                yield self._number((capture, hour)), batch, chosen
            else:
                mask = np.zeros(len(batch.exchanges), bool)
                mask[chosen] = True
                yield self._number((capture, hour)), batch.picked(mask), chosen

    def _add(self, place: int, part: Batch) -> None:
        if place != self._of_topics:
            self._move_topics()
            self._of_topics = place
        self._report.add(part)
        self._engine.limit(self._report)
        self._exchanges[place] += len(part.exchanges)
        self._counts.add_of_place(place, part.exchanges)

    def _move_topics(self) -> None:
        if self._of_topics >= 0:
            self._report.move_topics(self._topics, self._of_topics)

    def _keep(self) -> None:
        """Keep the counts of all places, and add them to the sum."""
        if not self._places:
            return
        self._move_topics()
        places = np.array([*self._places], np.int64)
        parts = self._all_parts(len(places))
        self._keeper.keep(places, parts, self._engine, np.array(self._exchanges, np.int64))
        if self._sections is not None:
            self._counts.add_to(self._sections)
        if self._total_topics is not None:
            self._total_topics.merge(self._topics.table.key_rows()[:, 1:], self._topics)

    def _all_parts(self, places: int) -> Iterator[tuple[Part, Array]]:
        yield stored.topics_part(self._topics)
        yield from self._counts.parts_with_places()
        yield stored.names_part(self._engine, places)

    def finish(self) -> None:
        """Keep the rest."""
        self._keep()
        if self._total_topics is not None:
            self._report.add_topics(self._total_topics.table.key_rows(), self._total_topics)
            self._engine.limit(self._report)
