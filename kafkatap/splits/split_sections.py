"""The sections over facts of one split, and their sum over all splits.

Numbers of strings and addresses differ from process to process, so counts come with the names in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import NamedTuple, TypeVar

import numpy as np

from kafkatap.kernels.arrays import joined
from kafkatap.reports.batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Batch, Names
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.counting.count_rows import NameTable
from kafkatap.reports.questions.section_counts import SectionCounts

from ..engine import Engine
from ..limits import Limits
from .merged_connections import merged_connections
from .task_rows import ReadOptions

Name = TypeVar("Name")


class NamedConnections(NamedTuple):
    """CONNECTION_ROW `rows`. `strings`, `addresses`: those in the rows, by their numbers there."""

    rows: Array
    strings: dict[int, bytes | None]
    addresses: dict[int, str]

    @classmethod
    def of(cls, rows: Array, names: Names) -> NamedConnections:
        """Rows with the names that they refer to."""
        strings, addresses = (distinct(columns_of(rows, some)) for some in (STRING_COLUMNS, ADDRESS_COLUMNS))
        return cls(rows, {n: names.strings[n] for n in strings}, {n: names.addresses[n] for n in addresses})

    def renumbered(self, names: NameTable) -> Array:
        """Copies of the rows with the numbers of `names`."""
        rows = self.rows.copy()
        renumber_rows(
            rows, numbers_here(self.strings, names.string), numbers_here(self.addresses, names.address)
        )  # fmt: skip
        return rows


class SplitSections(NamedTuple):
    """The counts of a split. `strings`, `addresses`: those in the counts, by their numbers there. `shared`: the
    connections that other splits share, which are not counted; None if they are elsewhere."""

    counts: SectionCounts
    strings: dict[int, bytes | None]
    addresses: dict[int, str]
    shared: NamedConnections | None = None

    @classmethod
    def of(cls, counts: SectionCounts, names: Names, shared: NamedConnections | None) -> SplitSections:
        """Counts with the names that they refer to."""
        strings, addresses = counts.names_used()
        return cls(
            counts,
            {number: names.strings[number] for number in strings.tolist()},
            {number: names.addresses[number] for number in addresses.tolist()},
            shared,
        )


class SectionsOfSplit:
    """Counts the sections of one split. Without wanted sections it does nothing."""

    def __init__(self, options: ReadOptions, engine: Engine) -> None:
        self._engine = engine
        self._counts = engine.section_counts(options.sections) if options.sections else None

    def add(self, batch: Batch) -> None:
        """Add a batch of selected exchanges."""
        if self._counts is not None:
            self._counts.add(batch)

    def finish(self, connections: Array, shared: Array | None = None) -> SplitSections | None:
        """The counts. `connections`: CONNECTION_ROW of those that no other split shares; `shared`: of the others, if
        they are wanted."""
        if self._counts is None:
            return None
        self._counts.add_connections(connections)
        named = None if shared is None else NamedConnections.of(shared, self._engine)
        return SplitSections.of(self._counts, self._engine, named)


def total_sections(wanted: tuple[str, ...], names: NameTable, limits: Limits | None) -> SectionCounts:
    """Counts to which those of splits are added. `names`: the meaning of the numbers in them."""
    from kafkatap.dissector.strings import OTHER

    return SectionCounts(wanted, (limits or Limits()).names, lambda: names.string(OTHER))


def add_split(total: SectionCounts, found: SplitSections, names: NameTable) -> None:
    """Add the counts of a split to those of all splits."""
    found.counts.renumber(numbers_here(found.strings, names.string), numbers_here(found.addresses, names.address))
    total.merge(found.counts)


def sum_sections(
    wanted: tuple[str, ...], parts: Iterable[SplitSections], names: NameTable, limits: Limits | None
) -> tuple[SectionCounts, Array]:
    """The counts of splits, and the connections that they share, one CONNECTION_ROW for each: these are not counted."""
    total = total_sections(wanted, names, limits)
    shared: list[Array] = []
    for part in parts:
        add_split(total, deepcopy(part), names)
        if part.shared is not None:
            shared.append(part.shared.renumbered(names))
    return total, merged_connections(joined(shared, CONNECTION_ROW))


def columns_of(rows: Array, names: frozenset[str]) -> list[Array]:
    """The columns of CONNECTION_ROW rows among these."""
    return [rows[name] for name in rows.dtype.names or () if name in names]


def distinct(numbers: Iterable[Array]) -> list[int]:
    """The numbers of names in some arrays."""
    return [number for number in np.unique(np.concatenate(list(numbers))).tolist() if number >= 0]


def renumber_rows(rows: Array, strings: Array, addresses: Array) -> None:
    """Change the numbers of strings and addresses in CONNECTION_ROW rows."""
    for names, numbers in ((STRING_COLUMNS, strings), (ADDRESS_COLUMNS, addresses)):
        for column in columns_of(rows, names):
            column[:] = np.append(numbers, -1)[column]


def numbers_here(names: dict[int, Name], number_of: Callable[[Name], int]) -> Array:
    """The numbers here of names, by their numbers in a split: int64, -1 for a number without a name."""
    found = np.full(max(names, default=-1) + 1, -1, np.int64)
    for old, name in names.items():
        found[old] = number_of(name)
    return found
