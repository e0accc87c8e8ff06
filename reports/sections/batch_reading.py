"""Record batches of Produce requests: counted once for the sections on topics, timeouts and transactions."""

from __future__ import annotations

from ..section_parts.batch_copies import COPIES
from ..section_parts.section import Section, reads_nothing

SECTION = Section(
    "batch-reading", "", COPIES.facts, (), {}, reads_nothing, lambda given: (), counts=(COPIES,)
)  # fmt: skip
