"""The counts of sections over messages that a lake has, by capture and hour: the table `section_counts`."""

from __future__ import annotations

from collections.abc import Sequence

from kafkatap.reports.counting.stored_counts import parts_of
from kafkatap.reports.name_table import NameTable
from kafkatap.reports.section_parts.registry import OF_LAKES, OVER_FACTS, USUAL, counted_sections
from kafkatap.reports.section_parts.stored import EXCHANGES_KEPT, STORED_COLUMNS, STORED_TABLE, StoredSections

from .lake_query import LakeQuery, isin, read_rows
from .output.delta import is_delta

_COLUMNS = tuple(column.name for column in STORED_COLUMNS if column.name != "hour")


class LakeSections(StoredSections):
    """What a lake has of sections. `captures`: those with counts."""

    def __init__(self, wanted: Sequence[str], names: NameTable) -> None:
        super().__init__(wanted, names)
        self.captures: set[int] = set()

    @classmethod
    def read(
        cls, out: str, query: LakeQuery, sections: Sequence[str] | None, names: NameTable, by_topic: bool = False
    ) -> LakeSections | None:
        """Those of the hours of a query, for a report of these sections (None: the usual ones). None if it
        needs none, or if an earlier version of kafkatap made the lake. OSError if it cannot be read."""
        if not is_delta(out, STORED_TABLE):
            return None
        found = cls(counted_sections(sections, 0), names)  # all that is counted for small captures
        if not by_topic and not any(section.makes_something for section in found.sections.sections):
            return None  # a report of the rollup
        wanted = query.hours() & isin("form", (EXCHANGES_KEPT, *found.forms))
        for rows in read_rows(out, STORED_TABLE, (*_COLUMNS, "capture"), wanted):
            found.captures.update(rows["capture"].unique().to_pylist())
            for part in parts_of(rows, found.forms, names):
                found.add(part)
        return found


def lacking_sections(names: Sequence[str]) -> list[str]:
    """The sections among these of which a lake has no counts."""
    return [name for name in names if name in OVER_FACTS and name not in OF_LAKES and name not in USUAL]


def over_messages(names: Sequence[str] | None) -> list[str]:
    """The sections among these that are made of messages, whoever sent them."""
    return [name for name in names or () if name in OVER_FACTS and name not in USUAL]
