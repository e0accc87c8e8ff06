"""What connections of brokers do, whatever the second they do it in: crafted packets, each of which is counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.broker_health import MOST, OTHER, BrokerHealth, BrokerRow, added, round_trips, value
from tests.support.captures import Packet
from tests.support.tcp import START_NS, Segment, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, METADATA, MS, KafkaTalk, add_exchanges, small_talk

from .metered import by_name
from .support import SECOND
from .watched import Seen, ticking

BROKER = "10.0.0.2:9092"
RST_ACK = 0x14


def asking(client: str, time_ns: int, times: Sequence[int] = (0,)) -> list[Segment]:
    """SYNs that nothing answers, so long after the first."""
    talk = KafkaTalk(client=(client, 40_000), time_ns=time_ns)
    talk.tcp.open()
    return [replace(talk.segments[0], time_ns=time_ns + later) for later in times]


def refused(client: str, time_ns: int) -> list[Segment]:
    (syn,) = asking(client, time_ns)
    return [syn, Segment(syn.time_ns + MS, syn.destination, syn.source, 0, syn.seq + 1, RST_ACK)]


def seen(path: Path, segments: Sequence[Segment], closed: Sequence[Segment] = ()) -> Seen:
    """A monitor over segments; `closed`: those of them whose window is zero."""
    packets = encode(segments)
    for segment in closed:
        packet = packets[segments.index(segment)]
        data = packet.data[:48] + bytes(2) + packet.data[50:]
        packets[segments.index(segment)] = Packet(packet.time_ns, data, len(data))
    return Seen(path, packets)


def by_second(watched: Seen, *names: str) -> list[tuple[int, ...]]:
    """What was counted of BROKER in each second."""
    found = []
    for _ in watched.seconds():
        row = watched.monitor.health.counts(1).get(BROKER, added({}))
        found.append(tuple(value(row, name) for name in names))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.pcap"


def test_an_outage_shows_within_its_second(path: Path) -> None:
    """Ten clients are refused in the second second; three get no answer at all in the third, however often they ask."""
    talks = [refused(f"10.0.1.{n}", START_NS + SECOND + (50 + 50 * n) * MS) for n in range(10)]
    silent = [asking(f"10.0.2.{n}", START_NS + 2 * SECOND + 5 * MS, (0, SECOND, 3 * SECOND)) for n in range(3)]
    watched = seen(path, merge(*talks, *silent, ticking(7)))
    lines = by_second(watched, "refused", "unanswered")
    assert sum(r for r, _ in lines) == 10
    assert sum(n for _, n in lines) == 3
    assert lines[1][0] == 10
    assert lines[3][1] == 3
    requests = by_name(watched.metrics, watched.monitor)
    assert [(p.labels, p.value) for p in requests["kafkatap_connections_refused_total"].points] == [((BROKER,), 10)]
    assert [p.value for p in requests["kafkatap_connections_unanswered_total"].points] == [3]
    assert value(watched.monitor.status.troubles, "refused") == 10


def test_connections_open_and_are_reset(path: Path) -> None:
    """By either end; one that ends by FINs, and one that is still there, are not reset."""
    talks = [small_talk(2, client=(f"10.0.1.{n}", 1), time_ns=START_NS + SECOND + n * MS) for n in range(5)]
    for number, talk in enumerate(talks[:4]):
        talk.tcp.segments[-3:] = []
        if number < 3:
            talk.tcp.reset(number % 2)
    watched = seen(path, merge(*(talk.segments for talk in talks), ticking(3)))
    lines = by_second(watched, "opened", "reset_by_client", "reset_by_broker", "refused")
    assert lines == [(1, 0, 0, 0), (5, 2, 1, 0), (0, 0, 0, 0)]
    (row,) = watched.monitor.health.rows(None)
    assert row == BrokerRow(BROKER, "kafka", 2, 6, 0, 0, 3, 0, 0, row.round_trip)
    assert row.round_trip == 2 * talks[0].tcp.step_ns


def test_retransmissions_and_zero_windows_by_who_sent_them(path: Path) -> None:
    talk = small_talk(6)
    segments = list(talk.segments)
    request = next(s for s in segments if s.payload)
    response = next(s for s in segments if s.payload and s.source[1] == 9092)
    pure = {end: [s for s in segments if not s.payload and s.source[1] == end] for end in (40_000, 9092)}
    later = segments[-1].time_ns
    segments += [replace(s, time_ns=later + n * 3 * MS) for n, s in enumerate((request, request, response), 1)]
    watched = seen(path, merge(segments, ticking(3)), [*pure[40_000][2:4], pure[9092][2]])
    names = ("client_retransmitted", "broker_retransmitted", "client_zero_windows", "broker_zero_windows")
    lines = by_second(watched, *names)
    assert [sum(column) for column in zip(*lines, strict=True)] == [2, 1, 2, 1]


def test_nothing_is_counted_twice_or_lost_whatever_ends_connections(path: Path) -> None:
    """More than the tables keep for long: what ends meanwhile is read when it ends."""
    times = [START_NS + n * 100_000 for n in range(2_000)]
    talks = [small_talk(1, client=(f"10.1.{n >> 8}.{n & 255}", 1), time_ns=at) for n, at in enumerate(times)]
    lost = [asking(f"10.2.{n >> 8}.{n & 255}", at) for n, at in enumerate(times)]
    watched = seen(path, merge(*(talk.segments for talk in talks), *lost, ticking(2)))
    for _ in watched.seconds():
        pass
    watched.monitor.finish()
    row = added(watched.monitor.health.counts(None))
    assert value(row, "opened") == round_trips(row) == 2_001
    assert value(row, "unanswered") == 2_000


def test_other_protocols_are_no_brokers(path: Path) -> None:
    http = KafkaTalk(client=("10.0.3.1", 1), broker=("10.0.3.2", 80))
    http.tcp.open()
    http.tcp.client(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")
    http.tcp.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    watched = seen(path, merge(http.segments, ticking(3)))
    for _ in watched.seconds():
        assert [row.name for row in watched.monitor.health.rows(None)] == [BROKER]


def test_a_window_is_the_last_seconds_and_a_reset_starts_anew(path: Path) -> None:
    watched = seen(path, merge(*(refused(f"10.0.1.{n}", START_NS + n * SECOND) for n in range(1, 15)), ticking(16)))
    for second in watched.seconds():
        health = watched.monitor.health
        assert value(health.counts(10)[BROKER], "refused") == min(max(second - 1, 0), 10, 14) - max(0, second - 15)
        assert value(health.counts(None)[BROKER], "refused") == min(second - 1, 14)
    health.reset()
    assert health.counts(None) == health.counts(60) == {}


def test_brokers_are_bounded() -> None:
    rows = {f"10.0.{n >> 8}.{n & 255}:9092": added({}) + n for n in range(MOST * 3)}
    health = BrokerHealth()
    health._now = dict(rows)
    made = health.end_second(Engine(), 1)
    assert len(made) == MOST
    assert (added(made) == added(rows)).all()
    assert OTHER in made


def test_a_round_trip_is_in_its_bucket(path: Path) -> None:
    talk = KafkaTalk(step_ns=3 * MS)
    talk.tcp.open()
    talk.exchange(API_VERSIONS, 0, 1)
    watched = seen(path, merge(talk.segments, ticking(3)))
    for _ in watched.seconds():
        pass
    family = by_name(watched.metrics, watched.monitor)["kafkatap_handshake_rtt_seconds"]
    ((labels, total, _, counts),) = family.points
    assert labels == (BROKER,)
    assert total == pytest.approx(0.006 + 2e-4)
    assert [n for n, count in enumerate(counts) if count] == [0, 4]


def test_a_connection_that_began_before_is_open_and_not_opened(path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 4)
    talk.exchange(METADATA, 4, 100)
    watched = seen(path, merge(talk.segments[3:], ticking(3)))
    assert by_second(watched, "opened")[-1] == (0,)
    (row,) = watched.monitor.health.rows(None)
    assert (row.open, row.opened) == (2, 1)
