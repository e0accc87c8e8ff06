"""Connections that a RST answers after a pause: just inside and just outside of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.dissector.dtypes import UNANSWERED
from kafkatap.reports.advice.idle_resets import IDLE_RESETS
from kafkatap.reports.connection_words import WITH_FIN, WITH_RST
from kafkatap.reports.findings import Finding
from tests.reports.rows import MS, START, connection, exchange

from .made_input import SECOND, found

#: The pause that is one, in seconds.
PAUSE = 6


def reset(
    number: int = 1, pause: float = 45, after: float = 0.001, last: bool = True, **columns: Any
) -> tuple[list[Any], Any]:
    """A connection with an answered request, and one after a pause, to which a RST comes `after` seconds later."""
    begin = int(pause * SECOND) + MS
    rows = [exchange(10 * number, 0, MS, connection=number)]
    rows += [exchange(10 * number + 1, begin, connection=number, outcome=UNANSWERED)] if last else []
    values: dict[str, Any] = {
        "connection": number, "closed_with": WITH_RST, "closed_by": 1, "unanswered": 1, "exchanges": len(rows),
        "closed_at": START + begin + int(after * SECOND), "last": START + begin + int(after * SECOND),
    }  # fmt: skip
    return rows, connection(**(values | columns))


def other(*times: float, number: int = 9) -> tuple[list[Any], Any]:
    """A connection that is answered at these times, in seconds."""
    rows = [exchange(10 * number + n, int(at * SECOND), MS, connection=number) for n, at in enumerate(times)]
    return rows, connection(connection=number, exchanges=len(rows))


def findings(*made: tuple[list[Any], Any]) -> list[Finding]:
    return found(IDLE_RESETS, [row for rows, _ in made for row in rows], [row for _, row in made])


def test_it_names_client_broker_pause_and_time() -> None:
    (one,) = findings(reset(), other(46))
    assert one.text == (
        '1 idle connection of client "billing" (10.0.0.1) to 10.0.0.2:9092 '
        "was answered by a RST at the first message after a pause of 45.0 s, though nobody had closed it: a device "
        "on the path forgot it, unless the broker was started anew meanwhile"
    )
    assert one.begin == START + 45 * SECOND + MS
    assert [p.kind for p in one.parties] == ["client", "host", "broker"]
    assert one.numbers["unanswered"] == 1
    (sure,) = findings(reset(), other(0, 46))
    assert sure.text.endswith("other connections of the broker live on, so a device on the path forgot it")


@pytest.mark.parametrize(
    ("made", "is_named"),
    [
        ([reset(pause=PAUSE + 0.1), other(PAUSE + 1)], True),
        ([reset(pause=PAUSE - 0.1), other(PAUSE + 1)], False),
        ([reset(after=1), other(46.5)], True),
        ([reset(after=1.1), other(46.5)], False),  # no answer to the message
        ([reset(closed_with=WITH_FIN), other(46)], False),
        ([reset(closed_by=0), other(46)], False),
        ([reset(exchanges=3), other(46)], False),  # a selection leaves requests out
        ([reset(), other(55)], True),
        ([reset(), other(55.1)], False),  # the broker may be gone
        ([reset()], False),
        ([reset(), other(44)], False),
        ([reset(1), reset(2), other(46)], True),
        ([reset(1), reset(2), reset(3), other(46)], False),  # started anew
        ([reset(1), reset(2), reset(3), other(0, 46)], True),
        ([reset(1), reset(2), reset(3), other(1, 46)], False),  # it began within the pause
    ],
)
def test_thresholds(made: list[tuple[list[Any], Any]], is_named: bool) -> None:
    assert bool(findings(*made)) == is_named
