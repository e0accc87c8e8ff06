"""Connections that something closes when they were idle: made connections just inside and just outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkatap.reports.advice.idle_closes import idle_closed
from kafkatap.reports.advice.reconnects import CONNECTION_EACH
from kafkatap.reports.connection_words import H_COMPLETE
from tests.reports.rows import BILLING, GROUP, MS, START, connection, exchange

from .made_input import SECOND, found, given_of

#: Who, when it begins, for how long it is idle until it ends, by whom: s, s; -1: it stays open.
Ended = tuple[int, float, float, int]
PAIR = (BILLING, 0, 1, 9092)


def made(ends: Sequence[Ended], last: int = 60) -> Any:
    """A request on each connection, and the connections."""
    rows, connections = [], []
    for n, (who, at, idle, by) in enumerate(ends):
        begin = int(at * SECOND)
        rows.append(exchange(n, begin, MS, api_key=0, connection=n, client_id=who))
        closed = -1 if idle < 0 else START + begin + MS + int(idle * SECOND)
        connections.append(connection(
            connection=n, client_id=who, first=START + begin, last=max(closed, START + begin), closed_at=closed,
            closed_by=by, exchanges=1, handshake=H_COMPLETE,
        ))  # fmt: skip
    return given_of(rows, connections, last=START + last * SECOND)


def by_broker(*idle: float, every: float = 10) -> list[Ended]:
    return [(BILLING, every * n, one, 1) for n, one in enumerate(idle)]


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        (by_broker(8, 8, 8), 3),
        (by_broker(8, 8), 0),
        (by_broker(8, 8.2, 7.8), 3),
        (by_broker(8, 8.3, 8), 0),  # more than 3 % apart
        (by_broker(2, 2, 2), 3),
        (by_broker(1.9, 1.9, 1.9), 0),
        (by_broker(8, 8, 8, every=0.6), 3),
        (by_broker(8, 8, 8, every=0.5), 0),  # together: the broker ended
        ([*by_broker(8, 8, 8), (GROUP, 52, -1, -1)], 3),
        ([*by_broker(8, 8, 8), (GROUP, 51, -1, -1)], 0),  # another one is idle for longer
        ([(who, at, idle, 0) for who, at, idle, _ in by_broker(8, 8, 8)], 0),  # the program may wait so long and end
        ([*((who, at, idle, 0) for who, at, idle, _ in by_broker(8, 8, 8)), (GROUP, 5, 8, 0)], 3),
        ([*((who, at, idle, 0) for who, at, idle, _ in by_broker(8, 8, 8)), (GROUP, 20.4, 8, 0)], 0),  # it ends, too
        ([*by_broker(8, 8), (BILLING, 20, 8, 0)], 0),  # not the same end each time
    ],
)
def test_thresholds_of_idle_closes(ends: Sequence[Ended], count: int) -> None:
    one = idle_closed(made(ends)).get(PAIR)
    assert (0 if one is None else one.connections) == count
    assert one is None or one.by_broker == (ends[0][3] == 1)


@pytest.mark.parametrize(("closed", "is_idle"), [(5, True), (4, False)])
def test_what_closes_connections_is_no_new_client(closed: int, is_idle: bool) -> None:
    """The ids of requests begin anew in each connection, as librdkafka's do."""
    rows, connections = [], []
    for n in range(10):
        at, by, idle = n * 10 * SECOND, int(n < closed), 8 * SECOND if n < closed else MS
        for api, more in ((18, 0), (0, 1)):
            rows.append(exchange(2 * n + more, at + more * MS, MS, api_key=api, correlation_id=more, connection=n))
        connections.append(connection(
            connection=n, first=START + at, last=START + at + idle, closed_at=START + at + 2 * MS + idle, closed_by=by,
            exchanges=2, handshake=H_COMPLETE, handshake_rtt_ns=0,
        ))  # fmt: skip
    (one,) = found(CONNECTION_EACH, rows, connections, last=START + 99 * SECOND)
    assert ("the broker's end closed 5 of them after 8.00 s without a message" in one.text) == is_idle
    assert ("a new client is made each time" in one.text) != is_idle
    assert ("idle timeout of a proxy" in one.setting) == is_idle
