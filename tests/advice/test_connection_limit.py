"""A limit of connections is named if it explains all closings of a host, and nothing else does. Rows are made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kafkatap.reports.batch import Array
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import D_DECRYPTED, H_COMPLETE, H_NOT_CAPTURED, P_FOREIGN, P_KAFKA, P_TLS
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


def named(connections: Sequence[dict[str, Any]], most: int = 1000) -> list[Finding]:
    table: Array = np.zeros(len(connections), CONNECTION_ROW)
    for number, values in enumerate(connections):
        table[number]["connection"] = number
        for name, value in values.items():
            table[number][name] = value
    made = SectionCounts(("first-lines",), most, lambda: 0)
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


def test_the_line_has_who_holds_connections_and_who_gets_none() -> None:
    held = [connection(1_000 * i, last=9_000 * MS) for i in range(1, 6)]
    held += [connection(7_000), connection(13_000, handshake=H_NOT_CAPTURED), connection(500, client_id=WORKING)]
    closings = [closed(10_000 + 300 * i, client_id=(WORKING, -1)[i % 2], unanswered=1, first_packet=90 + i)
                for i in range(12)]  # fmt: skip
    closings.append(closed(13_900, client_id=LEAKING, first_packet=89))
    gone = connection(600, last=700 * MS, closed_at=700 * MS, closed_by=0)
    (one,) = named([*held, *closings, gone, ELSEWHERE])
    assert one.text == (
        "broker 10.0.0.2:9092 closed 13 new connections of host 10.0.0.1 at once, without an answer, while that host "
        'had 8 open that carried messages, and never more. 7 of them are of client "billing", one more each 1.20 s for '
        '6.00 s; 5 of these are idle since. Closed were those of "orders" 6, "billing" 1. Connections of other hosts '
        "go on"
    )
    assert one.numbers == {
        "connections": 13, "open": 8, "open_of_client": 7, "idle_of_client": 5, "between_ns": 1_200 * MS, "clients": 2,
        "unanswered": 12,
    }  # fmt: skip
    assert (one.begin, one.end) == (10_000 * MS, 13_902 * MS)
    assert one.packets == tuple(range(90, 100))
    assert [party.name for party in one.parties] == ["billing", "10.0.0.1", "orders", "10.0.0.2:9092"]


@pytest.mark.parametrize(
    ("whole", "pace"), [(1, ""), (2, ", one more each 1.00 s for 1.00 s"), (3, ", one more each 1.00 s for 2.00 s")]
)
def test_the_pace_is_that_of_connections_whose_begin_was_captured(whole: int, pace: str) -> None:
    (one,) = named([*HELD[:whole], *(row | {"handshake": H_NOT_CAPTURED} for row in HELD[whole:]), *REFUSED])
    assert f'8 of them are of client "billing"{pace}; ' in one.text


def test_it_is_not_known_how_many_are_open_if_there_are_too_many() -> None:
    assert named([*HELD, *REFUSED], most=len(HELD) + len(REFUSED))
    assert not named([*HELD, *REFUSED, *(connection(n, client_ip=OTHER_HOST) for n in range(40))], most=20)


def test_nobody_is_named_whose_id_is_not_known() -> None:
    held = [row | {"last": 9_000 * MS} for row in HELD[:-1]]
    (one,) = named([*held, connection(9_500, client_id=WORKING), *(row | {"client_id": -1} for row in REFUSED)])
    assert one.text.endswith(" for 6.00 s; all of these are idle since")
    (one,) = named([*HELD[:5], *(row | {"client_id": -1} for row in REFUSED), ELSEWHERE])
    assert one.text.endswith("0 of these are idle since; connections of other hosts go on")


#: Ten closings while all connections are open.
TEN = [closed(10_000 + i) for i in range(10)]


def left(at_ms: float, count: int, rows: Sequence[dict[str, Any]] = HELD) -> list[dict[str, Any]]:
    """Open connections, some of which end."""
    end = {"last": int(at_ms * MS), "closed_at": int(at_ms * MS), "closed_by": 0}
    return [*(row | end for row in rows[:count]), *rows[count:]]


@pytest.mark.parametrize(
    ("connections", "is_named"),
    [
        ([*HELD, *REFUSED[:5]], True),
        ([*HELD[:5], *REFUSED], True),
        ([*HELD, *(row | {"closed_at": row["first"] + 50 * MS} for row in REFUSED)], True),
        ([*HELD, *(row | {"closed_at": row["first"] + 50 * MS + 1} for row in REFUSED)], False),
        ([*HELD, *(row | {"closed_at": row["first"] + 60 * MS, "handshake_rtt_ns": 10 * MS} for row in REFUSED)], True),
        ([*HELD, *(row | {"handshake": H_NOT_CAPTURED} for row in REFUSED)], False),
        ([*HELD, *(row | {"protocol": P_FOREIGN} for row in REFUSED)], False),
        ([*(row | {"protocol": P_FOREIGN} for row in HELD), *REFUSED], False),
        ([*(row | {"protocol": P_TLS} for row in HELD), *(row | {"protocol": P_TLS} for row in REFUSED)], True),
        (
            [*(row | {"tls_decryption": D_DECRYPTED} for row in HELD), *(row | {"protocol": P_TLS} for row in REFUSED)],
            True,
        ),
        ([*(row | {"protocol": P_TLS} for row in HELD), *(row | {"client_id": -1} for row in REFUSED)], True),
        ([*left(10_008.5, 2), *TEN], True),  # nine of ten
        ([*left(10_007.5, 2), *TEN], False),
        ([*left(10_000.5, 1), *TEN], True),  # one less is as good
        ([*(connection(i) for i in range(40)), *TEN], True),
        ([*left(10_000.5, 2, [connection(i) for i in range(40)]), *TEN], True),  # of 40, two
        ([*left(10_000.5, 3, [connection(i) for i in range(40)]), *TEN], False),
        ([*left(10_000.5, 2, [connection(i) for i in range(39)]), *TEN], False),
        ([*(row | {"last": 11_500 * MS} for row in HELD), *REFUSED], False),  # it stops
        ([*(row | {"last": 11_500 * MS + 1} for row in HELD), *REFUSED], True),
        ([*(row | {"last": 11_500 * MS} for row in HELD), *REFUSED, connection(11_501, client_ip=OTHER_HOST)], False),
        ([*(row | {"last": 11_500 * MS} for row in HELD), *REFUSED, connection(11_500, client_ip=OTHER_HOST)], True),
        ([*HELD, *REFUSED, connection(0, client_ip=OTHER_HOST, last=1)], False),
        ([*HELD, *REFUSED, connection(0, client_ip=OTHER_HOST, last=1, broker_port=9093)], True),
    ],
)
def test_thresholds(connections: Sequence[dict[str, Any]], is_named: bool) -> None:
    assert bool(named(connections)) == is_named
