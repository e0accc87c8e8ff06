"""The map of the cluster: read once for the sections that name brokers (`section_parts.cluster`)."""

from __future__ import annotations

from ..section_parts import cluster
from ..section_parts.section import Section, reads_nothing

SECTION = Section(
    "cluster-reading", "", cluster.FACTS, (), {}, reads_nothing, lambda given: (), reads_notable=True,
    counts=cluster.COUNTS,
)  # fmt: skip
