"""The map of the cluster: read once for the sections that name brokers (`section_parts.cluster`)."""

from __future__ import annotations

from ..section_parts import cluster
from ..section_parts.section import Section

SECTION = Section(
    "cluster-reading",
    "",
    cluster.FACTS,
    cluster.FORMS,
    {},
    cluster.read,
    lambda given: (),
    cluster.read_connections,
    reads_notable=True,
)
