"""A limit of connections is named if it explains all closings of a host, and nothing else does. Rows are made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kafkatap.reports.batch import Array
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import H_COMPLETE, P_KAFKA, P_TLS
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import MS, context, counted

LIMIT, HOST, OTHER_HOST, LEAKING, WORKING = 8, 0, 2, 0, 3


def connection(at_ms: int, **columns: Any) -> dict[str, Any]:
    """An open connection that gets answers until the end of the capture."""
    return {
        "first": at_ms * MS, "last": 100_000 * MS, "closed_at": -1, "closed_by": -1, "reset_by": -1, "broker_ip": 1,
        "broker_port": 9092, "client_ip": HOST, "client_id": LEAKING, "protocol": P_KAFKA, "handshake": H_COMPLETE,
        "client_bytes": 45, "broker_bytes": 400,
    } | columns  # fmt: skip


def closed(at_ms: int, **columns: Any) -> dict[str, Any]:
    """A connection that the broker closes at once."""
    until = (at_ms + 2) * MS
    return connection(at_ms, **{"broker_bytes": 0, "last": until, "closed_at": until, "closed_by": 1} | columns)


HELD = [connection(1000 * i) for i in range(LIMIT)]
REFUSED = [closed(10_000 + 300 * i) for i in range(6)]
ELSEWHERE = connection(500, client_ip=OTHER_HOST, client_id=WORKING)


def named(connections: Sequence[dict[str, Any]]) -> list[Finding]:
    table: Array = np.zeros(len(connections), CONNECTION_ROW)
    for number, values in enumerate(connections):
        table[number]["connection"] = number
        for name, value in values.items():
            table[number][name] = value
    made = SectionCounts(("first-lines",), 1000, lambda: 0)
    made.add_connections(table)
    found = findings(SectionInput(made, counted([]), context(), {}))
    return [finding for finding in found if finding.id == "connection_limit"]


def test_a_full_host_is_named() -> None:
    (finding,) = named([*HELD, *REFUSED, ELSEWHERE])
    assert finding.numbers["connections"] == len(REFUSED)
    assert finding.numbers["open"] == finding.numbers["open_of_client"] == LIMIT
    assert finding.numbers["between_ns"] == 1000 * MS


def test_a_place_that_becomes_free_is_taken() -> None:
    """One of the open connections is closed, a new one is accepted, and then the limit is reached again."""
    first = HELD[0] | {"closed_at": 10_700 * MS, "closed_by": 0, "last": 10_700 * MS}
    (finding,) = named([first, *HELD[1:], *REFUSED, connection(10_800), ELSEWHERE])
    assert finding.numbers["open"] == LIMIT


@pytest.mark.parametrize(
    ("why", "connections"),
    [
        ("few", [*HELD, *REFUSED[:4], ELSEWHERE]),
        ("few open", [*HELD[:4], *REFUSED, ELSEWHERE]),
        ("more were open before", [
            *HELD, *REFUSED, ELSEWHERE,
            *(connection(9000 + i, closed_at=9500 * MS, closed_by=0, last=9500 * MS) for i in range(3)),
        ]),
        ("never got through", [*HELD, *(row | {"client_id": WORKING} for row in REFUSED), ELSEWHERE]),
        ("TLS to a port for plaintext", [*HELD, *(row | {"protocol": P_TLS} for row in REFUSED), ELSEWHERE]),
        ("the client closes", [*HELD, *(row | {"closed_by": 0} for row in REFUSED), ELSEWHERE]),
        ("later", [*HELD, *(row | {"closed_at": row["closed_at"] + 200 * MS} for row in REFUSED), ELSEWHERE]),
        ("with an answer", [*HELD, *(row | {"broker_bytes": 40} for row in REFUSED), ELSEWHERE]),
        ("the broker stops", [
            *HELD, *REFUSED, ELSEWHERE | {"closed_at": 10_100 * MS, "closed_by": 1, "last": 10_100 * MS},
        ]),
    ],
)  # fmt: skip
def test_other_reasons_are_not_named(why: str, connections: Sequence[dict[str, Any]]) -> None:
    assert named(connections) == [], why
