"""The round trip from the capture point to the broker, on timelines that are exact to the nanosecond."""

from __future__ import annotations

import pytest

from tests.support.tcp import ACK, PSH, START_NS, Segment, encode
from tests.wire.harness import check
from tests.wire.kafkatalk import FETCH, MS, PRODUCE, KafkaTalk

#: Parts that are asked for, in ms.
NAMES = ("broker_ns", "round_trip_ns", "hol_wait_ns", "hol_round_trip_ns")
Parts = dict[int, tuple[float, ...]]


class Timeline:
    """One connection, captured at the client. The SYN-ACK comes `away` ms after the SYN."""

    def __init__(self, away: float) -> None:
        self.talk = KafkaTalk(acks=False)
        self.tcp = self.talk.tcp
        self.tcp.open()
        self.at(-1_000)
        for n, ms in enumerate((-1_000, -1_000 + away, -1_000 + away)):
            segment = self.tcp.segments[n]
            self.tcp.segments[n] = Segment(
                START_NS + round(ms * MS), segment.source, segment.destination, segment.seq, segment.ack, segment.flags
            )

    def at(self, ms: float) -> KafkaTalk:
        self.tcp.time_ns = START_NS + round(ms * MS)
        return self.talk

    def request(self, ms: float, n: int, key: int = PRODUCE, **values: int):  # type: ignore[no-untyped-def]
        values = values or {"Acks": 1, "TimeoutMs": 1_000}
        return self.at(ms).request(key, 7, n, **values), self.tcp.next[0]

    def respond(self, ms: float, asked) -> None:  # type: ignore[no-untyped-def]
        """The response. It acknowledges its request, and none behind it."""
        request, end = asked
        self.at(ms).respond(request)
        last = self.tcp.segments[-1]
        assert last.flags == ACK | PSH
        self.tcp.segments[-1] = Segment(
            last.time_ns, last.source, last.destination, last.seq, end, ACK | PSH, last.payload
        )

    def acknowledge(self, ms: float) -> None:
        """The broker's host acknowledges all requests."""
        self.at(ms)
        self.tcp._add(1, ACK)

    def parts(self) -> Parts:
        rows = check(encode(self.tcp.segments)).exchanges
        return {row["correlation_id"]: tuple(row[name] / MS for name in NAMES) for row in rows}


def one(away: float, answered: float, acknowledged: float | None = None) -> tuple[float, ...]:
    """The parts of a Produce that is acknowledged and answered after so many ms."""
    line = Timeline(away)
    line.respond(1, line.request(0, 0))
    asked = line.request(10, 1)
    if acknowledged is not None:
        line.acknowledge(10 + acknowledged)
    line.respond(10 + answered, asked)
    return line.parts()[1]


@pytest.mark.parametrize(
    ("away", "acknowledged", "answered", "round_trip"),
    [
        (60, None, 62, 60),  # the handshake's
        (60, 60.5, 300, 60),
        (60, 100, 300, 60),  # acknowledged late, as hosts do
        (60, 20, 300, 20),  # it is shorter now
        (60, None, 150, 150),  # it is longer now
        (0.2, None, 62, 62),
        (0.2, 62, 300, 62),
        (0.2, None, 45, 0),  # as long as a host delays an acknowledgement
        (0.2, 40, 300, 0),
        (0.9, None, 30, 0),  # near
        (0.2, None, 300, 0),  # the request would have been sent again by then
    ],
)
def test_of_one_request(away: float, acknowledged: float | None, answered: float, round_trip: float) -> None:
    assert one(away, answered, acknowledged) == (answered, round_trip, 0, 0)


@pytest.mark.parametrize("away", [60, 0.2])
def test_of_requests_in_flight(away: float) -> None:
    """A request every 20 ms, each answered after 62 ms. A part of the round trip is head-of-line wait."""
    line = Timeline(away)
    line.respond(-500, line.request(-570, 0))
    asked = {n: line.request(20 * n, n) for n in range(1, 4)}
    for n in range(4, 8):
        line.respond(20 * (n - 3) + 62, asked[n - 3])
        if n < 6:
            asked[n] = line.request(20 * n + 3, n)
            line.tcp.segments.sort(key=lambda segment: segment.time_ns)
    found = line.parts()
    late = 60 if away == 60 else 62
    assert found[1] == (62, late, 0, 0)
    for n in (2, 3):
        broker, round_trip, hol_wait, hol_round_trip = found[n]
        assert (broker, hol_wait) == (20, 42)
        assert (round_trip, hol_round_trip) == (late - 42, 42)


def test_a_wait_for_data_comes_first() -> None:
    """A Fetch that waited for its 100 ms: the rest of its broker time is the round trip."""
    line = Timeline(60)
    line.respond(1, line.request(0, 0))
    asked = line.request(1.5, 1, FETCH, MaxWaitMs=100, MinBytes=1)
    line.acknowledge(101.5)
    line.respond(162, asked)
    broker, round_trip, *_ = line.parts()[1]
    assert broker == pytest.approx(160.5)
    assert round_trip == 60
