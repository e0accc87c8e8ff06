"""The map of the cluster: read once for the sections that name brokers (`section_parts.cluster`)."""

from __future__ import annotations

from ..section_parts import cluster
from ..section_parts.section import Section

SECTION = Section(
    "cluster-reading", "", cluster.FACTS, (cluster.NODES,), {}, cluster.read, lambda given: (), reads_notable=True,
    counts=cluster.COUNTS,
)  # fmt: skip
