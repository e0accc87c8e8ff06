"""Group requests, positions and ends: read once for the section `groups` and for advice (`reports.groups`)."""

from __future__ import annotations

from ..groups import group_events, offsets_over_time
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section
from ..section_parts.section_counts import Tally


def read(gathered: Gathered, tally: Tally) -> None:
    """Read the exchanges of groups, and offsets with and without their times."""
    group_events.read(gathered, tally)
    offsets_over_time.read(gathered, tally)


SECTION = Section(
    group_events.READ_BY,
    "",
    group_events.FACTS,
    (*group_events.FORMS, offsets_over_time.POSITIONS, offsets_over_time.ENDS),
    {},
    read,
    lambda given: (),
    reads_notable=True,
)
