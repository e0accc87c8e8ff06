"""Handshakes of TLS 1.3 that one end rejected, by the lengths of their encrypted records.

The lengths are those of connections that OpenSSL, Java and Go made (samples/tls, samples/questions/auth).
"""

from __future__ import annotations

import pytest

from kafkatap.engine.tls.facts import TlsFacts
from kafkatap.engine.tls.rejections import Outline
from kafkatap.reports.tls_names import (
    HIDDEN_BROKER_CERTIFICATE,
    HIDDEN_CLIENT_CERTIFICATE,
    HIDDEN_NO_CERTIFICATE,
    TLS_1_2,
    TLS_1_3,
)

CLIENT, BROKER = 0, 1
MS = 1_000_000
FLIGHT = [(BROKER, 28), (BROKER, 725), (BROKER, 100), (BROKER, 74)]
NOTHING = (-1, -1)


def verdict(
    *records: tuple[int, int], step_ns: int = MS, version: int = TLS_1_3, suite: int = 0x1302, more: int = 0
) -> tuple[int, int]:
    """The verdict on a connection with these records behind the broker's first flight. `more`: of the broker, that
    were not read."""
    facts = TlsFacts(client=CLIENT, version=version, suite=suite)
    outline = Outline()
    for n, (direction, length) in enumerate([*FLIGHT, *records]):
        if outline.is_open:
            outline.note(direction == CLIENT, length, 1 + n * step_ns, facts)
    return outline.verdict(facts, more + sum(direction == BROKER for direction, _ in [*FLIGHT, *records]))


@pytest.mark.parametrize(
    ("records", "alert"),
    [
        # Two records, or one, with an empty Certificate and Finished; the client may send a request before the alert.
        ([(CLIENT, 30), (CLIENT, 74), (BROKER, 24), (CLIENT, 53)], HIDDEN_NO_CERTIFICATE),
        ([(CLIENT, 30), (CLIENT, 74), (BROKER, 40)], HIDDEN_NO_CERTIFICATE),
        ([(CLIENT, 82), (CLIENT, 53), (BROKER, 24)], HIDDEN_NO_CERTIFICATE),
        ([(CLIENT, 930), (CLIENT, 286), (CLIENT, 74), (BROKER, 24)], HIDDEN_CLIENT_CERTIFICATE),
        ([(CLIENT, 74), (CLIENT, 53), (BROKER, 24)], HIDDEN_CLIENT_CERTIFICATE),
    ],
)
def test_a_broker_that_rejects(records: list[tuple[int, int]], alert: int) -> None:
    assert verdict(*records) == (alert, BROKER)
    assert verdict(*records, version=TLS_1_2) == NOTHING
    assert verdict(*records, step_ns=11_000_000_000) == NOTHING  # an idle connection that the broker closes
    assert verdict(*records, more=1) == NOTHING


@pytest.mark.parametrize("length", [24, 40])
def test_a_client_that_rejects(length: int) -> None:
    assert verdict((CLIENT, length)) == (HIDDEN_BROKER_CERTIFICATE, CLIENT)
    assert verdict((CLIENT, length), (BROKER, 24)) == (HIDDEN_BROKER_CERTIFICATE, CLIENT)


def test_suites_with_short_tags() -> None:
    assert verdict((CLIENT, 22), (CLIENT, 50), (BROKER, 16), suite=0x1305) == (HIDDEN_NO_CERTIFICATE, BROKER)
    assert verdict((CLIENT, 22), (CLIENT, 50), (BROKER, 24), suite=0x1305) == NOTHING


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(CLIENT, 74)],  # nothing speaks for an alert
        [(CLIENT, 74), (BROKER, 255), (BROKER, 255), (BROKER, 24)],  # tickets, then close_notify
        [(CLIENT, 74), (CLIENT, 53), (BROKER, 490), (BROKER, 24)],
        [(CLIENT, 74), (CLIENT, 24), (BROKER, 24)],  # close_notify, and its answer
        [(CLIENT, 30), (CLIENT, 74), (BROKER, 24), (BROKER, 490)],
    ],
)
def test_what_is_no_rejection(records: list[tuple[int, int]]) -> None:
    assert verdict(*records) == NOTHING
