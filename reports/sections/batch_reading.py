"""Record batches of Produce requests: counted once for the sections on topics, timeouts and transactions."""

from __future__ import annotations

from ..section_parts.batch_copies import COPIES, FACTS, count_batches
from ..section_parts.section import Section

SECTION = Section("batch-reading", "", FACTS, (COPIES,), {}, count_batches, lambda given: ())
