"""What a signature finds in made exchanges, facts and connections, through the counts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkatap.reports.advice.signature import Signature
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from tests.reports.rows import BILLING, MS, START, batch, context, counted

SECOND = 1000 * MS


def found(signature: Signature, *rows: Sequence[Any], **options: Any) -> list[Finding]:
    """What a report on some rows finds, as of `given_of`."""
    return list(signature.findings(given_of(*rows, **options)))


def given_of(
    exchanges: Sequence[Any], connections: Sequence[Any] = (), facts: Sequence[Any] = (),
    results: Sequence[Any] = (), most: int = 1000, sections: Sequence[str] = ("advice",), **parts: Any,
) -> SectionInput:  # fmt: skip
    """The input of a report's sections. `most`: rows of its counts; others are those of a client "billing". `parts`:
    of its context."""
    counts = SectionCounts(sections, most, lambda: BILLING)
    counts.add(batch(list(exchanges), list(results), list(facts)))
    for rows in connections:
        counts.add_connections(rows)
    counts.finish()
    return SectionInput(
        counts, counted(list(exchanges), list(results)), context(**({"last": START + 60 * SECOND} | parts)), {}
    )
