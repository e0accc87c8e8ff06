"""Group requests, positions, commits and ends: read once for the section `groups` and for advice (`reports.groups`)."""

from __future__ import annotations

from ..groups import group_events, offsets_over_time
from ..section_parts.section import Section

SECTION = Section(
    group_events.READ_BY,
    "",
    group_events.FACTS,
    (),
    {},
    group_events.read,
    lambda given: (),
    reads_notable=True,
    counts=(*group_events.COUNTS, *offsets_over_time.COUNTS),
)
