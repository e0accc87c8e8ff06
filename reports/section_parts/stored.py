"""Counts of sections that a lake keeps by capture and hour: what is kept, and the sum of what was.

found = StoredSections(wanted, names)
for part in parts_of(rows, found.forms, names):
    found.add(part)
found.sections, found.topics        # what a report is made of
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.strings import OTHER

from ..batch import Array, Context, Names
from ..counting.count_forms import TEXT
from ..counting.counts import TOPICS, ReportCounts
from ..counting.hour_counts import HOUR
from ..counting.parts import Part
from ..counting.stored_counts import COLUMNS, stored_table
from ..name_table import NameTable
from ..table_columns import TIME, TableColumn
from .registry import OF_LAKES, counted_sections
from .section_counts import SectionCounts

if TYPE_CHECKING:
    import pyarrow as pa

#: The names of what is of no section: rows of a report by topic, names of topics by id, the number of exchanges.
_TOPICS, _NAMES, EXCHANGES_KEPT = "by topic", "topic names", "exchanges"
#: The most rows of a form: as many as one run has.
ROWS = 250_000


#: The table of a lake with what is kept: these columns, and the capture.
STORED_TABLE = "section_counts"
STORED_COLUMNS = (
    TableColumn("hour", TIME, "begin of the UTC hour in which the requests or connections begin"), *COLUMNS,
)  # fmt: skip


def kept_table(hour: int, parts: Iterable[Part], names: Names, exchanges: int) -> pa.Table:
    """Rows of STORED_COLUMNS. `hour`: since the epoch. `exchanges`: that were counted. A row of EXCHANGES_KEPT has both
    this number and, as its layout, that of the other rows."""
    import pyarrow as pa

    from ..arrow_arrays import arrow_numbers
    from ..tables import arrow_type

    rows = stored_table(parts, names)
    if rows.num_rows or exchanges:
        row = [EXCHANGES_KEPT, str(rows.num_rows), exchanges, b"", [], []]
        columns = [pa.array([value], field.type) for value, field in zip(row, rows.schema, strict=True)]
        rows = pa.concat_tables([pa.Table.from_arrays(columns, schema=rows.schema), rows])
    return rows.add_column(0, "hour", arrow_numbers(np.full(rows.num_rows, hour * HOUR), arrow_type(TIME)))


def connection_parts(rows: Array, context: Context) -> tuple[list[Part], Context]:
    """What is kept of connections (CONNECTION_ROW), and the names of the numbers in it."""
    names = context._replace(strings=[*context.strings, OTHER])
    counts = SectionCounts(counted_sections(OF_LAKES), ROWS, lambda: len(context.strings))
    counts.add_connections(rows)
    return list(counts.parts()), names


def topics_part(counts: ReportCounts) -> Part:
    """The counts by topic."""
    return Part.of(counts.counts_of(TOPICS), _TOPICS)


def names_part(names: Names) -> Part:
    """The names of topics that were known by then."""
    pairs = np.array(sorted(names.topic_names.items()), np.int64).reshape(-1, 2)
    return Part(_NAMES, {"topic_id": TEXT, "topic": TEXT}, pairs)


class StoredSections:
    """The sum of what was kept. `wanted`: as of `SectionCounts`. `names`: the meaning of all numbers."""

    def __init__(self, wanted: Sequence[str], names: NameTable) -> None:
        self._names = names
        self.sections = SectionCounts(wanted, ROWS, lambda: names.string(OTHER))
        self.report = ReportCounts(by_topic=True)
        #: Forms of which rows do not fit any more: an earlier version of kafkatap kept them.
        self.unread: set[str] = set()

    @property
    def forms(self) -> tuple[str, ...]:
        """The names of the parts that it needs."""
        return (_TOPICS, _NAMES, *self.sections.part_names)

    def add(self, part: Part) -> None:
        """Add what was kept. Parts that no wanted section has are left out."""
        if part.form == _NAMES:
            for topic_id, name in part.keys.tolist():
                self._names.topic_names[topic_id] = name
        elif part.form == _TOPICS:
            if not part.add_to(self.report.counts_of(TOPICS)):
                self.unread.add(part.form)
        elif part.form in self.sections.part_names and not self.sections.add_part(part):
            self.unread.add(part.form)
