"""Group requests, positions and ends: read once for the section `groups` and for advice (`reports.groups`)."""

from __future__ import annotations

from ..groups import group_events
from ..section_parts.section import Section

SECTION = Section(
    group_events.READ_BY,
    "",
    group_events.FACTS,
    group_events.FORMS,
    {},
    group_events.read,
    lambda given: (),
    reads_notable=True,
)
