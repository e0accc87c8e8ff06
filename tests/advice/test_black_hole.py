"""Packets of the full size that never arrive: what else looks like that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import H_COMPLETE, P_KAFKA
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import START, batch, context, counted, exchange

from .advice_samples import SECOND

FULL = 1_448


def lines(*connections: tuple[int, float, int]) -> list[str]:
    """The findings on connections to brokers: the bytes of the request that was answered first, when the large one that
    gets lost was sent, s, and the port of the broker."""
    counts = SectionCounts(("first-lines",), 1000, lambda: 0)
    rows, table = [], np.zeros(len(connections), CONNECTION_ROW)
    for number, (answered, at, port) in enumerate(connections):
        one: dict[str, Any] = {"connection": number, "broker_port": port, "api_key": 0}
        rows.append(exchange(2 * number, 0, outcome=ANSWERED, request_bytes=answered - 4, **one))
        rows.append(exchange(2 * number + 1, int(at * SECOND), outcome=IN_FLIGHT, request_bytes=5 * FULL, **one))
        values = {
            "connection": number, "client_id": 0, "client_ip": 0, "broker_ip": 1, "broker_port": port,
            "protocol": P_KAFKA, "handshake": H_COMPLETE, "first": START, "last": START + int((at + 20) * SECOND),
            "closed_at": -1, "closed_by": -1, "reset_by": -1, "exchanges": 2, "unanswered": 1,
            "client_bytes": answered + 5 * FULL, "client_unacknowledged_bytes": 5 * FULL, "client_mss": FULL + 12,
            "client_retransmitted_packets": 6, "client_retransmitted_bytes": 6 * FULL, "broker_mss": FULL + 12,
            "first_packet": 10 * number + 1,
        }  # fmt: skip
        for name, value in values.items():
            table[number][name] = value
    counts.add(batch(rows))
    counts.finish()
    counts.add_connections(table)
    made = findings(SectionInput(counts, counted(rows), context(), {}))
    return [finding.text for finding in made if finding.id == "mtu_black_hole"]


def test_the_first_large_request_of_connections_to_several_brokers_is_one_line() -> None:
    assert lines((300, 0.5, 9092), (300, 0.5, 9093)) == [
        'packets of the full size do not arrive from client "billing" (10.0.0.1) to 10.0.0.2:9092 and 1 more: 2 '
        "connections are stuck at segments of 1,448 bytes, sent again 12 times, while smaller ones pass"
    ]


@pytest.mark.parametrize(
    "connection",
    [
        (2_000, 0.5, 9092),  # a request of this size was answered before
        (300, 30.0, 9092),  # after a pause: a device on the path may have forgotten the connection
    ],
)
def test_what_passed_before_is_no_black_hole(connection: tuple[int, float, int]) -> None:
    assert lines((300, 0.5, 9092)) != []
    assert lines(connection) == []
