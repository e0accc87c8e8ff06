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
    assert bool(finding.remedy) == (known[0] > 0)


def test_what_to_do_follows_from_who_closed() -> None:
    """The log of a broker that closed connections; a client that gave up was not refused."""
    for end, word in (("broker", "logs"), ("client", None)):
        requests = [exchange(n, n * MS, outcome=UNANSWERED, closed_by=end == "broker") for n in range(2)]
        finding = unanswered_finding(counted(requests), context(), None)
        assert finding is not None
        assert (word in finding.remedy) if word else finding.remedy == ""


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


LEAVE = 13


def left_alone(
    apis: tuple[int, ...] = (LEAVE, LEAVE, LEAVE), seconds: float = 5, after: int = 10, answers: int = 3,
    connections: tuple[int, ...] = (1, 2, 2), broker: int = 1, unacknowledged: int = 0,
) -> str | None:  # fmt: skip
    """What is said of three requests that wait for so long, while the broker answers Metadata `after` ms later, and one
    request of an API before."""
    requests = [
        exchange(n, n * MS, outcome=UNANSWERED, api_key=api, connection=one)
        for n, (api, one) in enumerate(zip(apis, connections, strict=True))
    ]
    others = [exchange(8, 0, MS, api_key=answers), exchange(9, after * MS, MS, api_key=3, broker_ip=broker)]
    made = SectionCounts(("first-lines",), 1000, lambda: 0)
    made.add(batch([*requests, *others]))
    made.finish()
    for number in set(connections):
        row = np.zeros(1, CONNECTION_ROW)
        row["protocol"], row["orientation_known"], row["unanswered"], row["connection"] = P_KAFKA, 1, 1, number
        row["closed_at"], row["client_unacknowledged_bytes"] = START + int(seconds * 1000 + 2) * MS, unacknowledged
        made.add_connections(row)
    counts = counted([*requests, *others])
    finding = unanswered_finding(counts, context(), unanswered_requests(SectionInput(made, counts, context(), {})))
    assert finding is not None
    _, found, text = finding.text.partition("; broker 10.0.0.2:9092 answered none of ")
    return text if found else None


def test_an_api_that_a_broker_never_answers_is_named() -> None:
    assert left_alone() == "3 LeaveGroup requests that waited long, but 2 other requests of the same hosts"


@pytest.mark.parametrize(
    "changed",
    [
        {"seconds": 4.9},
        {"after": 1},  # it may not answer anything any more
        {"answers": LEAVE},
        {"apis": (LEAVE, LEAVE, 12)},
        {"apis": (11, 11, 11)},  # JoinGroup waits for members
        {"connections": (1, 1, 1)},
        {"broker": 2},
        {"unacknowledged": 104},  # they did not arrive
    ],
)
def test_a_broker_is_not_said_to_be_silent(changed: dict[str, Any]) -> None:
    assert left_alone(**changed) is None
