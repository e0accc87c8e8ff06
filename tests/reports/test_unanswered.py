"""What the first lines say of requests without a response: since when, and whether they arrived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.dtypes import IN_FLIGHT, UNANSWERED
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import P_KAFKA
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.unanswered import Unanswered, unanswered_requests
from kafkatap.reports.sections.unanswered_finding import unanswered_finding
from tests.support.section_runs import section_input

from .rows import MS, START, batch, context, counted, exchange

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def given(requests: list[Any], lost: int, unacknowledged: int, lost_at: int = 0) -> SectionInput:
    """The input of sections: one connection, whose last bytes were lost or not acknowledged."""
    made = SectionCounts(("first-lines",), 1000, lambda: 0)
    made.add(batch(requests))
    made.finish()
    row = np.zeros(1, CONNECTION_ROW)
    row["protocol"], row["orientation_known"], row["unanswered"] = P_KAFKA, 1, len(requests)
    row["client_lost_bytes"], row["client_unacknowledged_bytes"] = lost, unacknowledged
    row["client_lost_at"] = lost_at
    made.add_connections(row)
    return SectionInput(made, counted(requests), context(), {})


@pytest.mark.parametrize(
    ("lost", "unacknowledged", "known", "words"),
    [
        (0, 0, (0, 2), "; all reached the broker's host"),
        (208, 208, (2, 0), "; all sent again, never acknowledged"),
        (104, 104, (1, 1), "; 1 sent again, never acknowledged; 1 reached the broker's host"),
        (0, 104, (0, 1), "; 1 reached the broker's host"),
        (0, 208, (0, 0), ""),
    ],
)
def test_what_tcp_says_of_two_requests_of_104_bytes(
    lost: int, unacknowledged: int, known: tuple[int, int], words: str
) -> None:
    requests = [exchange(n, n * MS, outcome=UNANSWERED) for n in range(2)]
    found = unanswered_requests(given(requests, lost, unacknowledged))
    assert found == Unanswered(START, 1, *known)
    finding = unanswered_finding(counted(requests), context(), found)
    assert finding is not None
    assert finding.text == f'2 requests have no response: Fetch 2; all by client "billing"{words}'
    assert (finding.begin, finding.packets) == (START, (1,))


def test_later_requests_in_flight_are_lost_first() -> None:
    requests = [exchange(0, outcome=UNANSWERED), exchange(1, MS, outcome=IN_FLIGHT)]
    assert unanswered_requests(given(requests, 104, 104)) == Unanswered(START, 1, 0, 1)
    assert unanswered_requests(given(requests[1:], 104, 104)) is None


def test_a_broker_that_hangs_has_them_and_a_firewall_has_not() -> None:
    hung = unanswered_requests(section_input(SAMPLES / "events" / "hang.pcap.zst", ["first-lines"]))
    dropped = unanswered_requests(section_input(SAMPLES / "advice" / "idle-dropped.pcap.zst", ["first-lines"]))
    assert hung is not None
    assert dropped is not None
    assert hung.lost == 0 < hung.acknowledged
    assert dropped.acknowledged == 0 < dropped.lost


@pytest.mark.parametrize(
    ("seconds", "lost", "words"),
    [
        (1, 208, "2 requests in flight at the end were sent again for up to 1.00 s, never acknowledged: they did not "
         'arrive; Fetch 2 of client "billing" to 10.0.0.2:9092'),
        (1, 104, "1 request in flight at the end was sent again for 1.00 s, never acknowledged: it did not arrive; "
         'Fetch 1 of client "billing" to 10.0.0.2:9092'),
        (0.99, 208, None),
        (1, 0, None),
    ],
)  # fmt: skip
def test_requests_in_flight_that_tcp_sends_again_did_not_arrive(seconds: float, lost: int, words: str | None) -> None:
    requests = [exchange(n, outcome=IN_FLIGHT) for n in range(2)]
    found = unanswered_requests(given(requests, lost, 208, lost_at=START + int(seconds * 1000) * MS))
    finding = unanswered_finding(counted(requests), context(), found)
    assert (None if finding is None else finding.text) == words
    mixed = [exchange(2, -MS, outcome=UNANSWERED), *requests]
    of_both = unanswered_requests(given(mixed, lost, 312, lost_at=START + int(seconds * 1000) * MS))
    told = unanswered_finding(counted(mixed), context(), of_both)
    assert told is not None
    assert ("did not arrive" in told.text) == (words is not None)
