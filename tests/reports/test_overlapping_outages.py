"""Outages of two brokers at the same time: what each one cost, and the packet that shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.event_timeline import Seen
from kafkatap.reports.sections.event_waits import BEFORE_NS, Costs
from kafkatap.reports.sections.events import findings
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_input
from tests.support.tcp import FIN, START_NS, Segment, encode, merge
from tests.wire.kafkatalk import METADATA, PRODUCE, KafkaTalk

SECOND = 1_000_000_000
#: When brokers 3 and 2 close their connections, and when they answer again, s.
STOPS = {3: (5.0, 20.0), 2: (10.0, 18.0)}
#: The wait of a Produce request with acks=all at broker 1: sent, the client's FIN, the broker's RST, s.
SENT, CLOSED, RESET = 10.2, 14.0, 16.0


def talk(broker: int, port: int, at: float) -> KafkaTalk:
    made = KafkaTalk(("10.0.0.9", port), (f"10.0.1.{broker}", 9092), "writer", time_ns=START_NS + round(at * SECOND))
    made.tcp.open()
    return made


def polls(broker: int, port: int, begin: float, end: float, is_stopped: bool) -> list[Segment]:
    """A client that asks every 0.3 s. A broker that stops closes the connection instead of its last answer."""
    made = talk(broker, port, begin)
    for number in range(round((end - begin) / 0.3)):
        made.tcp.time_ns = START_NS + round((begin + 0.3 * number + port % 2 * 0.001) * SECOND) + SECOND // 100
        made.exchange(METADATA, 1, number)
    if is_stopped:
        made.request(METADATA, 1, 1_000)
        made.tcp.time_ns = START_NS + round(end * SECOND)
        made.tcp.close(1)
    return made.segments


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Segment], dict[str | None, Finding]]:
    """The segments, and the stops that were found by their broker."""
    waiting = talk(1, 5_000, 1.0)
    waiting.exchange(METADATA, 1, 1)
    waiting.tcp.time_ns = START_NS + round(SENT * SECOND)
    waiting.request(PRODUCE, 3, 2, Acks=-1)
    waiting.tcp.time_ns = START_NS + round(CLOSED * SECOND)
    waiting.tcp.close(0)
    waiting.tcp.time_ns = START_NS + round(RESET * SECOND)
    waiting.tcp.reset(1)
    talks = [waiting.segments, polls(1, 5_001, 0.0, 22.0, False)]
    for broker, (stopped, back) in STOPS.items():
        for port in (100 * broker, 100 * broker + 1):
            talks += [polls(broker, port, 0.0, stopped, True), polls(broker, port + 10, back, 22.0, False)]
    segments = merge(*talks)
    path = tmp_path_factory.mktemp("outages") / "two.pcap"
    path.write_bytes(pcap_bytes(encode(segments)))
    found = findings(section_input(path, "events"))
    return segments, {stop.party("broker"): stop for stop in found if stop.id == "broker_stopped"}


def test_a_wait_counts_once_until_the_client_closed(
    capture: tuple[list[Segment], dict[str | None, Finding]],
) -> None:
    """It began in both outages: the later one is the cause. The RST comes long after the client is gone."""
    _, stops = capture
    assert set(stops) == {"10.0.1.2:9092", "10.0.1.3:9092"}
    assert stops["10.0.1.2:9092"].time_lost_ns == pytest.approx((CLOSED - SENT) * SECOND, rel=0.01)
    assert stops["10.0.1.3:9092"].time_lost_ns == 0


def test_the_packet_of_a_stop_is_its_first_fin(capture: tuple[list[Segment], dict[str | None, Finding]]) -> None:
    segments, stops = capture
    for broker, (stopped, _) in STOPS.items():
        (found,) = (stop for name, stop in stops.items() if name == f"10.0.1.{broker}:9092")
        fins = [n for n, s in enumerate(segments, 1) if s.flags & FIN and s.source[0] == f"10.0.1.{broker}"]
        assert found.packets == (fins[0],)
        assert found.begin == START_NS + round(stopped * SECOND)


#: Moments in steps of half of BEFORE_NS, clients and brokers: few, so that outages and waits often meet.
MOMENTS = st.integers(0, 20).map(lambda at: at * BEFORE_NS // 2)
SPANS = st.tuples(MOMENTS, MOMENTS).map(sorted)
WHO, AT = st.integers(0, 2), st.integers(0, 2)


def columns(rows: list[Any], *names: str) -> dict[str, Any]:
    values = np.array([(who, *rest, *span) for who, *rest, span in rows], np.int64).reshape(-1, len(names) + 3)
    found = dict(zip(("client_id", *names, "begin"), values.T, strict=False))
    return found | {"client_ip": np.zeros(len(values), np.int64), "first": found["begin"], "last": values[:, -1]}


@given(
    st.lists(st.tuples(WHO, AT, SPANS), max_size=12),
    st.lists(st.tuples(WHO, AT), max_size=6),
    st.lists(st.tuples(WHO, SPANS), max_size=2),
    st.lists(st.tuples(AT, SPANS), max_size=8),
)
def test_each_wait_counts_for_the_outage_that_a_pass_over_all_finds(
    rows: list[Any], users: list[Any], delayed: list[Any], outages: list[Any]
) -> None:
    waits = columns(rows, "broker")
    none = {"own": np.zeros(len(rows), np.int64), "api_key": np.zeros(len(rows), np.int64)}
    seen = SimpleNamespace(
        answers=columns([(*user, (0, 0)) for user in users], "broker"), throttled=columns(delayed), brokers=range(3),
        waits=waits | none | {"end": waits["last"]}, context=SimpleNamespace(text=str),
        slow={**columns([], "broker"), "second": np.zeros(0, np.int64)},
    )  # fmt: skip
    costs = Costs(cast(Seen, seen), [(at, *span) for at, span in outages])
    expected = [0] * len(outages)
    for who, at, (first, until) in rows:
        began = [
            (at == broker, begin, n) for n, (broker, (begin, end)) in enumerate(outages)
            if first + BEFORE_NS >= begin and first <= end and (who, broker) in users
            and not any(who == client and last >= begin and since <= end for client, (since, last) in delayed)
        ]  # fmt: skip
        interrupted = any(at == broker and until >= begin and first <= end for broker, (begin, end) in outages)
        is_own, _, outage = max(began, default=(False, 0, -1))
        if is_own or (began and not interrupted):
            expected[outage] += until - first
    assert [costs.waited(n).lost_ns for n in range(len(outages))] == expected
