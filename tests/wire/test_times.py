"""Where the time of a request went: the broker, the queue, or a quota; on timelines that are exact to the nanosecond.

`at(ms)` below puts the conversation's clock; each segment carries a whole frame, and nothing else moves the clock.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tcp import START_NS, encode
from tests.wire.harness import Decoded, Row, check
from tests.wire.kafkatalk import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    MS,
    PRODUCE,
    SYNC_GROUP,
    KafkaTalk,
    SentRequest,
    assert_exchanges,
    response,
)


class Timeline:
    """One connection whose frames are sent at given times, in ms after its start."""

    def __init__(self) -> None:
        self.talk = KafkaTalk(acks=False)
        self.talk.tcp.open()

    def at(self, ms: float) -> KafkaTalk:
        self.talk.tcp.time_ns = START_NS + round(ms * MS)
        return self.talk

    def request(self, ms: float, key: int, version: int, n: int, **values: Any) -> SentRequest:
        return self.at(ms).request(key, version, n, **values)

    def respond(self, ms: float, asked: SentRequest, throttle: int | None = None, **values: Any) -> None:
        if throttle is not None:
            values["ThrottleTimeMs"] = throttle
        self.at(ms).respond(asked, **values)

    def parts(self) -> dict[int, tuple[float, float, float]]:
        """(broker, queue, throttle_wait) in ms by correlation id; exact multiples of 1 ns."""
        seen = self.seen()
        return {x["correlation_id"]: _parts(x) for x in seen.exchanges}

    def hol_waits(self) -> dict[int, tuple[float, float, float]]:
        """(head-of-line wait, of it behind throttling, of it behind waits for data) in ms by correlation id."""
        names = ("hol_wait_ns", "hol_throttle_wait_ns", "hol_poll_wait_ns")
        return {x["correlation_id"]: tuple(x[n] / MS for n in names) for x in self.seen().exchanges}  # type: ignore[misc]

    def seen(self) -> Decoded:
        self.talk.tcp.close()
        seen = check(encode(self.talk.segments))
        assert_exchanges(seen, self.talk.wanted)
        return seen


def _parts(x: Row) -> tuple[float, float, float]:
    assert (
        sum(x[name] for name in ("broker_ns", "hol_wait_ns", "throttle_wait_ns"))
        == x["response_first"] - x["request_last"]
    )
    return x["broker_ns"] / MS, x["hol_wait_ns"] / MS, x["throttle_wait_ns"] / MS


def test_one_by_one() -> None:
    line = Timeline()
    for n in range(3):
        asked = line.request(10 + 100 * n, HEARTBEAT, 0, n)
        line.respond(17.25 + 100 * n, asked)
    assert set(line.parts().values()) == {(7.25, 0, 0)}


def test_queued_behind_an_earlier_request() -> None:
    line = Timeline()
    first, second, third = (line.request(10 + n, HEARTBEAT, 0, n) for n in range(3))
    line.respond(30, first)
    line.respond(35, second)
    line.respond(35.5, third)
    assert line.parts() == {0: (20, 0, 0), 1: (5, 19, 0), 2: (0.5, 23, 0)}


def test_responses_that_leave_together() -> None:
    line = Timeline()
    first, second = (line.request(10 + n, HEARTBEAT, 0, n) for n in range(2))
    line.respond(30, first)
    line.respond(30, second)
    assert line.parts() == {0: (20, 0, 0), 1: (0, 19, 0)}


@pytest.mark.parametrize(("key", "version"), [(PRODUCE, 6), (PRODUCE, 9), (FETCH, 8), (FETCH, 12)])
def test_since_kip_219_the_next_request_waits(key: int, version: int) -> None:
    """These versions are known only to brokers that answer at once and then do not read for the throttle time."""
    line = Timeline()
    throttled = line.request(10, key, version, 0)
    line.respond(15, throttled, 300)
    following = line.request(65, HEARTBEAT, 0, 1)
    line.respond(325, following)
    later = line.request(400, HEARTBEAT, 0, 2)
    line.respond(404, later)
    assert line.parts() == {0: (5, 0, 0), 1: (10, 0, 250), 2: (4, 0, 0)}


def test_a_request_within_the_mute_window_answered_within_it() -> None:
    """It was read before the window began, or the clock of the quota is coarse: no more wait than there was."""
    line = Timeline()
    throttled = line.request(10, PRODUCE, 7, 0)
    line.respond(15, throttled, 300)
    following = line.request(65, HEARTBEAT, 0, 1)
    line.respond(165, following)
    assert line.parts() == {0: (5, 0, 0), 1: (0, 0, 100)}


def test_a_pipeline_behind_a_throttled_response() -> None:
    """Queued until the throttled response left, then waiting for the end of the window, then for each other."""
    line = Timeline()
    first = line.request(10, PRODUCE, 7, 0)
    second = line.request(11, HEARTBEAT, 0, 1)
    third = line.request(12, HEARTBEAT, 0, 2)
    line.respond(20, first, 100)
    line.respond(123, second)
    line.respond(124, third)
    assert line.parts() == {0: (10, 0, 0), 1: (3, 9, 100), 2: (1, 111, 0)}


def test_throttled_again_and_again() -> None:
    line = Timeline()
    for n, (asked_at, answered_at) in enumerate(((0.5, 1), (2, 52), (60, 103), (104, 180))):
        asked = line.request(asked_at, PRODUCE, 8, n)
        line.respond(answered_at, asked, 50)
    # windows: 1-51, 52-102, 103-153
    assert line.parts() == {0: (0.5, 0, 0), 1: (1, 0, 49), 2: (1, 0, 42), 3: (27, 0, 49)}


def test_before_kip_219_the_throttled_response_is_late() -> None:
    line = Timeline()
    throttled = line.request(10, PRODUCE, 2, 0)
    line.respond(322, throttled, 300)
    following = line.request(330, HEARTBEAT, 0, 1)
    line.respond(334, following)
    assert line.parts() == {0: (12, 0, 300), 1: (4, 0, 0)}


@pytest.mark.parametrize(("produce", "fetch", "at_once"), [(5, 7, False), (6, 8, True), (6, 7, False), (11, 17, True)])
def test_the_offered_versions_tell_which(produce: int, fetch: int, at_once: bool) -> None:
    """A late answer of a broker that answers at once is its own time."""
    line = Timeline()
    keys = [{"ApiKey": PRODUCE, "MaxVersion": produce}, {"ApiKey": FETCH, "MaxVersion": fetch}]
    offered = line.request(1, API_VERSIONS, 0, 0)
    line.respond(2, offered, ApiKeys=keys)
    throttled = line.request(10, FETCH, 3, 1)
    line.respond(322, throttled, 300)
    following = line.request(330, HEARTBEAT, 0, 2)
    line.respond(640, following)
    parts = line.parts()
    assert parts[1] == ((312, 0, 0) if at_once else (12, 0, 300))
    assert parts[2] == ((18, 0, 292) if at_once else (310, 0, 0))


def test_an_early_throttled_response_tells_which() -> None:
    """Old versions, no ApiVersions: one that comes sooner than its throttle time was answered at once."""
    line = Timeline()
    throttled = line.request(10, PRODUCE, 2, 0)
    line.respond(14, throttled, 300)
    following = line.request(20, HEARTBEAT, 0, 1)
    line.respond(319, following)
    late = line.request(400, PRODUCE, 2, 2)
    line.respond(900, late, 100)
    assert line.parts() == {0: (4, 0, 0), 1: (5, 0, 294), 2: (500, 0, 0)}


def test_a_wait_behind_a_muted_request_is_the_quota_s() -> None:
    """The window (20-320) delays 1; 2 and 3 wait behind it, for each other, and for the broker (3 ms and 1 ms)."""
    line = Timeline()
    first = line.request(10, PRODUCE, 7, 0)
    line.respond(20, first, 300)
    second = line.request(100, PRODUCE, 7, 1)
    third = line.request(120, PRODUCE, 7, 2)
    fourth = line.request(120, HEARTBEAT, 0, 3)
    line.respond(323, second, 0)
    line.respond(324, third, 0)
    line.respond(325, fourth)
    assert line.hol_waits() == {0: (0, 0, 0), 1: (0, 0, 0), 2: (203, 200, 0), 3: (204, 200, 0)}


def test_a_wait_behind_a_late_response_is_the_quota_s() -> None:
    """Before 2.0: the response ahead took 12 ms and was held back for 300."""
    line = Timeline()
    first, second = (line.request(10, PRODUCE, 2, n) for n in range(2))
    line.respond(322, first, 300)
    line.respond(330, second, 0)
    assert line.hol_waits() == {0: (0, 0, 0), 1: (312, 300, 0)}


def test_a_wait_that_began_within_that_of_the_request_ahead() -> None:
    """Behind 1, which itself waited 312 ms, 300 of them a quota's: half of that wait counts half of the quota."""
    line = Timeline()
    first, second = (line.request(10, PRODUCE, 2, n) for n in range(2))
    third = line.request(166, PRODUCE, 2, 2)
    line.respond(322, first, 300)
    line.respond(330, second, 0)
    line.respond(331, third, 0)
    assert line.hol_waits()[2] == (164, 150, 0)


def test_a_wait_behind_a_fetch_is_nobody_s() -> None:
    """Whether it waited out its max_wait_ms or not. What waits behind an error of the broker's own is the broker's."""
    line = Timeline()
    first, second = (line.request(10, FETCH, 4, n, MaxWaitMs=500) for n in range(2))
    third, fourth = (line.request(20, HEARTBEAT, 0, n) for n in (2, 3))
    line.respond(110, first)
    line.respond(210, second)
    line.respond(215, third)
    line.respond(216, fourth)
    assert line.hol_waits() == {0: (0, 0, 0), 1: (100, 0, 100), 2: (190, 0, 190), 3: (195, 0, 190)}


def test_a_wait_behind_a_response_without_its_request_is_nobody_known_s() -> None:
    line = Timeline()
    line.respond(1, line.request(0.5, HEARTBEAT, 0, 0))
    second = line.request(10, PRODUCE, 2, 1)
    third = line.request(10, HEARTBEAT, 0, 2)
    line.respond(322, second, 300)
    line.at(323).tcp.send(1, response(HEARTBEAT, 0, 77))
    line.respond(324, third)
    line.talk.tcp.close()
    behind = next(x for x in check(encode(line.talk.segments)).exchanges if x["correlation_id"] == 2)
    assert (behind["hol_wait_ns"], behind["hol_throttle_wait_ns"]) == (313 * MS, 0)


def test_fetch_that_is_throttled_and_waits() -> None:
    """Before 2.0: what is left after the throttle is the broker's, and here a long poll."""
    line = Timeline()
    asked = line.request(0.5, FETCH, 3, 0, MaxWaitMs=500, MinBytes=1)
    line.respond(800.5, asked, 300)
    seen = line.seen()
    assert _parts(seen.exchanges[0]) == (500, 0, 300)
    assert seen.exchanges[0]["long_poll"] == 1


def test_a_long_poll_behind_another() -> None:
    line = Timeline()
    first = line.request(0.5, FETCH, 4, 0, MaxWaitMs=500)
    second = line.request(1, FETCH, 4, 1, MaxWaitMs=500)
    line.respond(500.5, first)
    line.respond(600.5, second)
    seen = line.seen()
    assert {x["correlation_id"]: x["long_poll"] for x in seen.exchanges} == {0: 1, 1: 0}


def test_a_fetch_waits_for_data_no_longer_than_it_says_and_than_it_took() -> None:
    line = Timeline()
    line.respond(110, line.request(10, FETCH, 4, 0, MaxWaitMs=500))
    line.respond(900, line.request(200, FETCH, 4, 1, MaxWaitMs=500))
    found = {x["correlation_id"]: (x["broker_ns"] / MS, x["waiting_ns"] / MS) for x in line.seen().exchanges}
    assert found == {0: (100, 100), 1: (700, 500)}


def test_total_is_from_the_first_byte_to_the_last() -> None:
    talk = KafkaTalk(mss=20, acks=False, step_ns=MS)
    talk.tcp.open()
    asked = talk.request(FETCH, 4, 1)
    talk.tcp.wait(40 * MS)
    talk.respond(asked, Responses=[{"Topic": "t" * 100}])
    talk.tcp.close()
    [x] = check(encode(talk.segments)).exchanges
    assert x["request_last"] > x["request_first"]
    assert x["total_ns"] == x["response_last"] - x["request_first"] > 45 * MS
    assert x["broker_ns"] == x["response_first"] - x["request_last"] == 41 * MS


def test_the_handshake_tells_the_round_trip() -> None:
    """SYN to SYN-ACK and SYN-ACK to ACK, wherever between the ends the capture stands."""
    talk = KafkaTalk(step_ns=3 * MS)
    talk.tcp.open()
    asked = talk.request(HEARTBEAT, 0, 1)
    talk.respond(asked)
    talk.tcp.close()
    assert check(encode(talk.segments)).connections[0]["handshake_rtt_ns"] == 6 * MS
    assert check(encode(talk.segments[1:])).connections[0]["handshake_rtt_ns"] == -1


# ---------------------------------------------------------------- brokers that hold responses back, whatever they offer


def offering(line: Timeline, produce: int = 9, fetch: int = 12) -> None:
    keys = [{"ApiKey": PRODUCE, "MaxVersion": produce}, {"ApiKey": FETCH, "MaxVersion": fetch}]
    line.respond(2, line.request(1, API_VERSIONS, 0, 1_000), ApiKeys=keys)


def test_a_broker_that_offers_new_versions_but_holds_responses_back() -> None:
    """Two requests are answered in what would be mute windows. From then on, throttling lies in the response's time."""
    line = Timeline()
    offering(line)
    for n in range(5):
        throttled = line.request(100 + 1_000 * n, PRODUCE, 7, 2 * n)
        line.respond(415 + 1_000 * n, throttled, 300)
        line.respond(424 + 1_000 * n, line.request(420 + 1_000 * n, HEARTBEAT, 0, 2 * n + 1))
    parts = line.parts()
    assert parts[0] == parts[2] == (315, 0, 0)
    assert parts[4] == parts[6] == parts[8] == (15, 0, 300)
    assert parts[1] == (0, 0, 4)
    assert parts[3] == parts[5] == parts[7] == parts[9] == (4, 0, 0)


def test_an_early_response_proves_that_a_broker_answers_at_once() -> None:
    """Then no request that is answered in a window casts doubt on it."""
    line = Timeline()
    offering(line)
    line.respond(15, line.request(10, PRODUCE, 7, 0), 300)
    for n in range(1, 5):
        line.respond(24 + 10 * n, line.request(20 + 10 * n, HEARTBEAT, 0, n))
    line.respond(900, line.request(500, PRODUCE, 7, 9), 300)
    parts = line.parts()
    assert parts[0] == (5, 0, 0)
    assert parts[1] == parts[4] == (0, 0, 4)
    assert parts[9] == (400, 0, 0)


def test_an_early_response_outweighs_old_versions() -> None:
    line = Timeline()
    offering(line, 5, 7)
    line.respond(15, line.request(10, PRODUCE, 3, 0), 300)
    line.respond(325, line.request(65, HEARTBEAT, 0, 1))
    assert line.parts() == {1_000: (1, 0, 0), 0: (5, 0, 0), 1: (10, 0, 250)}


def test_requests_that_wait_for_the_end_of_the_window_cast_no_doubt() -> None:
    """A slow broker that mutes: its throttled responses come late, too."""
    line = Timeline()
    offering(line)
    for n in range(4):
        line.respond(415 + 1_000 * n, line.request(100 + 1_000 * n, PRODUCE, 7, 2 * n), 300)
        line.respond(719 + 1_000 * n, line.request(420 + 1_000 * n, HEARTBEAT, 0, 2 * n + 1))
    parts = line.parts()
    assert parts[6] == (315, 0, 0)
    assert parts[7] == (4, 0, 295)


def test_members_are_awaited_as_long_as_the_rebalance_timeout() -> None:
    """A SyncGroup waits as long as its JoinGroup said. The rest is the broker's. Without a JoinGroup all is waiting. A
    JoinGroup of version 0 has a session timeout alone. The timeout of a Produce is no wait for members."""
    line = Timeline()
    line.respond(70, line.request(10, JOIN_GROUP, 5, 0, RebalanceTimeoutMs=100), GenerationId=1)
    line.respond(400, line.request(100, JOIN_GROUP, 5, 1, RebalanceTimeoutMs=100), GenerationId=2)
    line.respond(800, line.request(500, SYNC_GROUP, 3, 2, GenerationId=2))
    line.respond(1_200, line.request(900, SYNC_GROUP, 3, 3, GenerationId=2))
    line.respond(1_600, line.request(1_300, JOIN_GROUP, 0, 4, SessionTimeoutMs=100), GenerationId=3)
    line.respond(1_800, line.request(1_700, PRODUCE, 7, 5, Acks=-1, TimeoutMs=50))
    found = {x["correlation_id"]: (x["broker_ns"] / MS, x["waiting_ns"] / MS) for x in line.seen().exchanges}
    assert found == {0: (60, 60), 1: (300, 100), 2: (300, 100), 3: (300, 300), 4: (300, 100), 5: (100, 0)}


def test_nobody_knows_how_long_a_broker_is_mute_behind_a_lost_request() -> None:
    """The response to a lost request may have a throttle time. Then the next request waited for the quota, not for the
    broker, and so did the one behind it."""
    line = Timeline()
    line.respond(15, line.request(10, PRODUCE, 7, 0), 0)
    lost = line.request(20, PRODUCE, 7, 1)
    gone = line.talk.tcp.segments[-1]
    second, third = line.request(21, PRODUCE, 7, 2), line.request(22, PRODUCE, 7, 3)
    line.respond(30, lost, 300)
    line.respond(335, second, 0)
    line.respond(340, third, 0)
    line.respond(410, line.request(400, PRODUCE, 7, 4), 0)
    line.talk.tcp.close()
    seen = check(encode([s for s in line.talk.segments if s is not gone]))
    names = ("broker_ns", "hol_wait_ns", "hol_unknown_wait_ns")
    found = {x["correlation_id"]: (*(x[n] / MS for n in names), x["behind_unread"]) for x in seen.exchanges}
    assert {n: found[n] for n in (0, 2, 3, 4)} == {
        0: (5, 0, 0, 0), 2: (305, 9, 9, 1), 3: (5, 313, 313, 0), 4: (10, 0, 0, 0),
    }  # fmt: skip


def test_answers_out_of_order_wait_for_nobody() -> None:
    """Two requests that were answered in swapped order were worked on at once; a third one did not wait for them."""
    line = Timeline()
    first, second, third = (line.request(n * 5, HEARTBEAT, 0, n) for n in range(3))
    line.respond(20, second)
    line.respond(30, first)
    line.respond(33, third)
    fourth, fifth = line.request(40, HEARTBEAT, 0, 3), line.request(41, HEARTBEAT, 0, 4)
    line.respond(50, fourth)
    line.respond(60, fifth)
    seen = line.seen()
    assert {x["correlation_id"]: _parts(x) for x in seen.exchanges} == {
        0: (30, 0, 0), 1: (15, 0, 0), 2: (23, 0, 0), 3: (10, 0, 0), 4: (10, 9, 0),
    }  # fmt: skip
    assert not any(x["hol_loss_wait_ns"] or x["loss_ns"] for x in seen.exchanges)
