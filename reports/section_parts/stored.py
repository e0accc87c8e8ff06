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
from ..counting.count_forms import PLACE, TEXT, FormCounts
from ..counting.counts import TOPICS, ReportCounts
from ..counting.hour_counts import HOUR
from ..counting.parts import Part
from ..counting.stored_counts import COLUMNS, stored_table
from ..name_table import NameTable
from ..table_columns import TIME, TableColumn
from .place_counts import PlaceCounts
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


def kept_table(
    places: Array, parts: Iterable[tuple[Part, Array]], names: Names, exchanges: Array
) -> tuple[pa.Table, Array]:
    """Rows of STORED_COLUMNS, and their captures. `places`: int64 (n, 2), captures and hours since the epoch. `parts`:
    as of `stored_table`. `exchanges`: int64 (n,), that were counted. Each place has a row of EXCHANGES_KEPT with this
    number, and with that of its other rows as layout."""
    import pyarrow as pa

    from ..arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
    from ..tables import arrow_type

    rows, of_rows = stored_table(parts, names)
    counts = np.bincount(of_rows, minlength=len(places))
    used = np.flatnonzero(counts + exchanges)
    layouts = arrow_texts([str(count) for count in counts[used].tolist()])
    columns = [arrow_texts([EXCHANGES_KEPT] * len(used)), layouts, arrow_numbers(exchanges[used], pa.int64())]
    empty = [
        pa.array([b""] * len(used), pa.binary()),
        *(pa.array([[]] * len(used), f.type) for f in [*rows.schema][4:]),
    ]
    totals = pa.Table.from_arrays([*columns, *empty], schema=rows.schema)
    of_rows = np.concatenate((used, of_rows))
    order = np.argsort(of_rows, kind="stable")
    rows, of_rows = pa.concat_tables([totals, rows]).combine_chunks().take(arrow_indices(order)), of_rows[order]
    hours = arrow_numbers(places[of_rows, 1] * HOUR, arrow_type(TIME))
    return rows.add_column(0, "hour", hours), places[of_rows, 0]


def connection_parts(rows: Array, places: Array, context: Context) -> tuple[Iterable[tuple[Part, Array]], Context]:
    """What is kept of connections (CONNECTION_ROW), with its places, and the names of the numbers in it. `places`:
    int64 (n,)."""
    names = context._replace(strings=[*context.strings, OTHER])
    counts = PlaceCounts(counted_sections(OF_LAKES), ROWS, lambda: len(context.strings))
    counts.add_connections(rows, places)
    return counts.parts_with_places(), names


def topics_part(topics: FormCounts) -> tuple[Part, Array]:
    """The counts by topic, with their places."""
    return Part.of(topics, _TOPICS).apart(PLACE)


def names_part(names: Names, places: int) -> tuple[Part, Array]:
    """The names of topics that were known by then, in each place."""
    pairs = np.array(sorted(names.topic_names.items()), np.int64).reshape(-1, 2)
    part = Part(_NAMES, {"topic_id": TEXT, "topic": TEXT}, np.tile(pairs, (places, 1)))
    return part, np.repeat(np.arange(places), len(pairs))


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
