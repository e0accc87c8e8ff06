"""What followers wait for: read once for the section `replication` and for advice (`section_parts.follower_waits`)."""

from __future__ import annotations

from ..section_parts import follower_waits
from ..section_parts.section import Section

SECTION = Section(
    follower_waits.READ_BY,
    "",
    follower_waits.FACTS,
    (),
    {},
    follower_waits.read,
    lambda given: (),
    reads_notable=True,
)
