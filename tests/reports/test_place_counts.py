"""Counts of sections for many captures and hours, which are made together."""

from __future__ import annotations

import numpy as np

from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import P_KAFKA
from kafkatap.reports.section_parts.place_counts import PlaceCounts


def test_a_place_with_too_many_rows_leaves_the_others_as_they_are() -> None:
    rows = np.zeros(12, CONNECTION_ROW)
    rows["connection"], rows["client_ip"], rows["client_id"] = np.arange(1, 13), np.arange(12), np.arange(12)
    rows["protocol"], rows["exchanges"] = P_KAFKA, 1
    counts = PlaceCounts(("upgrade",), names=4, other=lambda: 99)
    counts.add_connections(rows, np.repeat([0, 1], [10, 2]))
    [(part, places)] = counts.parts_with_places()
    connections = part.values[:, part.value_names.index("connections")]
    clients = part.keys[:, [*part.kinds].index("client_id")]
    found = {place: dict(zip(clients[places == place], connections[places == place], strict=True)) for place in (0, 1)}
    assert found == {0: {0: 1, 1: 1, 99: 8}, 1: {10: 1, 11: 1}}
