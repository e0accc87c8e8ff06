"""The sections over facts of one split, and their sum over all splits.

Numbers of strings and addresses differ from process to process, so counts come with the names in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from kafkatap.reports.batch import Array, Batch
from kafkatap.reports.counting.count_rows import NameTable
from kafkatap.reports.questions.section_counts import SectionCounts

from ..engine import Engine
from ..limits import Limits
from .task_rows import ReadOptions

Name = TypeVar("Name")


class SplitSections(NamedTuple):
    """The counts of a split. `strings`, `addresses`: those in the counts, by their numbers there."""

    counts: SectionCounts
    strings: dict[int, bytes | None]
    addresses: dict[int, str]


class SectionsOfSplit:
    """Counts the sections of one split. Without wanted sections it does nothing."""

    def __init__(self, options: ReadOptions, engine: Engine) -> None:
        self._engine = engine
        self._counts = engine.section_counts(options.sections) if options.sections else None

    def add(self, batch: Batch) -> None:
        """Add a batch of selected exchanges."""
        if self._counts is not None:
            self._counts.add(batch)

    def finish(self, connections: Array) -> SplitSections | None:
        """The counts. `connections`: CONNECTION_ROW of those that no other split shares."""
        if self._counts is None:
            return None
        self._counts.add_connections(connections)
        strings, addresses = self._counts.names_used()
        return SplitSections(
            self._counts,
            {number: self._engine.strings[number] for number in strings.tolist()},
            {number: self._engine.addresses[number] for number in addresses.tolist()},
        )


def total_sections(wanted: tuple[str, ...], names: NameTable, limits: Limits | None) -> SectionCounts:
    """Counts to which those of splits are added. `names`: the meaning of the numbers in them."""
    from kafkatap.dissector.strings import OTHER

    return SectionCounts(wanted, (limits or Limits()).names, lambda: names.string(OTHER))


def add_split(total: SectionCounts, found: SplitSections, names: NameTable) -> None:
    """Add the counts of a split to those of all splits."""
    found.counts.renumber(numbers_here(found.strings, names.string), numbers_here(found.addresses, names.address))
    total.merge(found.counts)


def numbers_here(names: dict[int, Name], number_of: Callable[[Name], int]) -> Array:
    """The numbers here of names, by their numbers in a split: int64, -1 for a number without a name."""
    found = np.full(max(names, default=-1) + 1, -1, np.int64)
    for old, name in names.items():
        found[old] = number_of(name)
    return found
